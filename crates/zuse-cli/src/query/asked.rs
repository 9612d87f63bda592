//! Questions that several commands use.

use super::Question;

impl Question {
    /// About a dataset and all file systems below it: these properties.
    pub fn file_systems(root: &str, properties: &[&str]) -> Self {
        Self::Datasets {
            root: root.to_owned(),
            depth: None,
            filesystems: true,
            volumes: false,
            snapshots: false,
            bookmarks: false,
            received: false,
            properties: Some(properties.iter().map(|p| (*p).to_owned()).collect()),
        }
    }
}
