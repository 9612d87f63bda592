//! Which process holds the lock of a file.
//!
//! `/proc/locks` has one line for each lock: `1: FLOCK  ADVISORY  WRITE 812 fe:00:4711 0 EOF`.
//! Processes of other namespaces have number 0 there. Disks have no such lock.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{major, minor};

/// Number and name of the process that holds the lock of a file, if the host reports it.
pub fn lock_holder(path: &Path) -> Option<(u32, String)> {
    let meta = std::fs::metadata(path).ok()?;
    let (dev, ino) = (meta.dev(), meta.ino());
    let place = format!("{:02x}:{:02x}:{ino}", major(dev), minor(dev));
    let table = std::fs::read_to_string("/proc/locks").ok()?;
    let pid = pid_of(&table, &place)?;
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some((pid, name.trim_end().to_owned()))
}

fn pid_of(table: &str, place: &str) -> Option<u32> {
    table.lines().find_map(|line| {
        // The line of a waiting process has an arrow in front.
        let mut words = line.split_whitespace().skip(1);
        let kind = words.next()?;
        let pid = words.nth(2)?.parse().ok().filter(|pid| *pid != 0)?;
        (kind == "FLOCK" && words.next()? == place).then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::pid_of;

    #[test]
    fn the_line_of_a_file_names_its_holder() {
        let table = "1: POSIX  ADVISORY  WRITE 5 fe:00:77 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 812 fe:00:4711 0 EOF\n\
                     2: -> FLOCK  ADVISORY  READ 9 fe:00:4711 0 EOF\n\
                     3: FLOCK  ADVISORY  WRITE 0 fe:00:5 0 EOF\n";
        assert_eq!(pid_of(table, "fe:00:4711"), Some(812));
        for none in ["fe:00:77", "fe:00:5", "fe:00:1"] {
            assert_eq!(pid_of(table, none), None, "{none}");
        }
    }
}
