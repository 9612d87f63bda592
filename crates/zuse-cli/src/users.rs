//! Processes with a working directory or an open file below a directory.
//!
//! A dataset that appears inside its parent's mount has no mount of its own that the kernel could
//! call busy. Links in `/proc` show the same, and reading them needs no answer from the file
//! system.

use std::fs;
use std::path::{Path, PathBuf};

/// A process, and where it is.
pub struct User {
    pid: u32,
    name: String,
    /// What it uses.
    pub path: PathBuf,
}

impl std::fmt::Display for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "process {} ({}) uses '{}'",
            self.pid,
            self.name,
            self.path.display()
        )
    }
}

/// The first process that uses one of these directories, as far as this user may see it.
pub fn first_of(dirs: &[PathBuf]) -> Option<User> {
    let own = std::process::id();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let pid = process.file_name().to_str().and_then(|n| n.parse().ok());
        let Some(pid) = pid.filter(|pid| *pid != own) else {
            continue;
        };
        let home = process.path();
        let single = ["cwd", "root", "exe"].map(|name| home.join(name));
        let open = fs::read_dir(home.join("fd"))
            .into_iter()
            .flatten()
            .flatten();
        let links = single.into_iter().chain(open.map(|fd| fd.path()));
        let used = links
            .filter_map(|link| fs::read_link(link).ok())
            .find(|path| dirs.iter().any(|dir| is_below(path, dir)));
        if let Some(path) = used {
            let name = fs::read_to_string(home.join("comm")).unwrap_or_default();
            let name = name.trim().to_owned();
            return Some(User { pid, name, path });
        }
    }
    None
}

fn is_below(path: &Path, dir: &Path) -> bool {
    path.starts_with(dir) && dir != Path::new("/")
}
