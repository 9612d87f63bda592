//! The caller of a request.

/// The process behind a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// File-system user id.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Thread id; 0 when the kernel asks for itself or the process lives in an unknown pid
    /// namespace.
    pub pid: u32,
    /// The umask of requests that create a file, otherwise 0. It has been applied to `mode`
    /// already, unless the session was mounted with POSIX ACLs. Then the server applies it, or a
    /// default ACL instead.
    pub umask: u32,
}

impl Caller {
    /// The supplementary groups, read from `/proc` now, because requests do not include them.
    ///
    /// Empty if the process is gone. With `default_permissions` the kernel has checked access
    /// already, with the true set.
    pub fn groups(&self) -> Vec<u32> {
        if self.pid == 0 {
            return Vec::new();
        }
        match std::fs::read_to_string(format!("/proc/{}/status", self.pid)) {
            Ok(status) => parse_groups(&status),
            Err(_) => Vec::new(),
        }
    }

    /// Whether the caller is in a group, primary or supplementary.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().contains(&gid)
    }
}

fn parse_groups(status: &str) -> Vec<u32> {
    status
        .lines()
        .find_map(|line| line.strip_prefix("Groups:"))
        .map(|list| {
            list.split_whitespace()
                .filter_map(|g| g.parse().ok())
                .collect()
        })
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;
