//! How much memory this process may use: that of the machine, or of its control group.

/// Memory of this machine in bytes, or the limit of this process's cgroup (a container) if that is
/// lower. `None` if the host does not report it.
pub fn memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let machine = of_machine(&read("/proc/meminfo")?)?;
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    Some(lowest_limit(&groups, &read).map_or(machine, |group| group.min(machine)))
}

/// `MemTotal:       24576000 kB`
fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The lowest limit of the process's cgroup and its parents. Lines are `0::/path` (version 2), or
/// `N:memory:/path` (version 1).
fn lowest_limit(groups: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let mut lowest = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(kinds), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let (root, file) = match kinds {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if kinds.split(',').any(|kind| kind == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut path = path.trim_end_matches('/');
        loop {
            // "max" is not a number: there is no limit here.
            let here = read(&format!("{root}{path}/{file}"));
            if let Some(bound) = here.and_then(|text| text.trim().parse::<u64>().ok()) {
                lowest = Some(lowest.map_or(bound, |lowest: u64| lowest.min(bound)));
            }
            match path.rfind('/') {
                Some(at) => path = &path[..at],
                None => break,
            }
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::{lowest_limit, of_machine};

    #[test]
    fn the_memory_of_a_machine_is_in_kib() {
        let text = "MemTotal:       24576000 kB\nMemFree:  1 kB\n";
        assert_eq!(of_machine(text), Some(24_576_000 << 10));
        assert_eq!(of_machine("MemFree: 1 kB"), None);
        assert_eq!(of_machine("MemTotal: many kB"), None);
    }

    #[test]
    fn the_least_bound_of_all_groups_around_counts() {
        let files = [
            ("/sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("/sys/fs/cgroup/a/memory.max", "1000000\n"),
            ("/sys/fs/cgroup/memory.max", "2000000\n"),
            (
                "/sys/fs/cgroup/memory/old/memory.limit_in_bytes",
                "500000\n",
            ),
        ];
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_string())
        };
        assert_eq!(lowest_limit("0::/a/b\n", &read), Some(1_000_000));
        assert_eq!(lowest_limit("0::/\n", &read), Some(2_000_000));
        let older = "5:cpu,memory:/old\n2:cpuset:/\n0::/elsewhere/deep";
        assert_eq!(lowest_limit(older, &read), Some(500_000));
        assert_eq!(lowest_limit("", &read), None);
        assert_eq!(lowest_limit("nonsense\n1:memory", &read), None);
    }
}
