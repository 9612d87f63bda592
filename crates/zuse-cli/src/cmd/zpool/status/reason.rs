//! What is wrong with a pool, and what to do. It is the most important reason only, in the order of
//! chapter 06 §2.3 of the format notes.

use super::any;
use crate::query::{PoolRow, VdevRow};

/// Where OpenZFS explains its messages.
pub const MESSAGES: &str = "https://openzfs.github.io/openzfs-docs/msg/";

/// Why a pool is not healthy.
pub struct Reason {
    /// What is wrong.
    pub status: String,
    /// What to do.
    pub action: String,
    /// The number of OpenZFS's message.
    pub message: Option<&'static str>,
}

fn some(message: Option<&'static str>, status: &str, action: &str) -> Option<Reason> {
    Some(Reason {
        status: status.to_owned(),
        action: action.to_owned(),
        message,
    })
}

/// The most important one, if there is any.
pub fn of(row: &PoolRow) -> Option<Reason> {
    resilver(row)
        .or_else(|| suspended(row))
        .or_else(|| lost_devices(row))
        .or_else(|| damage(row))
        .or_else(|| devices(row))
        .or_else(|| versions(row))
}

fn resilver(row: &PoolRow) -> Option<Reason> {
    let scan = row.activity.scan.as_ref()?;
    if scan.function != 2 || scan.state != 1 {
        return None;
    }
    some(
        None,
        "One or more devices is currently being resilvered.  The pool will\n\tcontinue to function, possibly in a degraded state.",
        "Wait for the resilver to complete.",
    )
}

fn suspended(row: &PoolRow) -> Option<Reason> {
    let why = row.suspended.as_ref()?;
    let action = if row.lost {
        format!(
            "Make sure the affected devices are connected (and the host's disk is\n\tnot full), then run 'zpool export -f {0}' and mount or import '{0}' again.",
            row.name
        )
    } else {
        "Make sure the affected devices are connected (and the host's disk is\n\tnot full), then run 'zpool clear'.".into()
    };
    Some(Reason {
        status: format!("One or more devices failed, and I/O is suspended:\n\t{why}"),
        action,
        message: None,
    })
}

fn is_usable(row: &PoolRow) -> bool {
    row.state == "ONLINE" || row.state == "DEGRADED"
}

fn leaf_is(row: &PoolRow, what: &dyn Fn(&VdevRow) -> bool) -> bool {
    any(&row.vdevs, &|v| v.is_leaf() && what(v))
}

fn is_faulted(v: &VdevRow) -> bool {
    v.state == "FAULTED" && !is_unlabeled(v)
}

/// A label is missing, or not the expected one.
fn is_unlabeled(v: &VdevRow) -> bool {
    v.unlabeled || v.has_bad_content()
}

fn is_missing(v: &VdevRow) -> bool {
    v.state == "UNAVAIL" && !is_unlabeled(v)
}

/// Missing devices without which the pool cannot be used.
fn lost_devices(row: &PoolRow) -> Option<Reason> {
    if is_usable(row) {
        return None;
    }
    if leaf_is(row, &is_faulted) {
        return some(
            None,
            "One or more devices are faulted in response to persistent errors.  There are insufficient replicas for the pool to\n\tcontinue functioning.",
            "Destroy and re-create the pool from a backup source.  Manually marking the device\n\trepaired using 'zpool clear' may allow some data to be recovered.",
        );
    }
    if leaf_is(row, &is_missing) {
        return some(
            Some("ZFS-8000-3C"),
            "One or more devices could not be opened.  There are insufficient\n\treplicas for the pool to continue functioning.",
            "Attach the missing device and online it using 'zpool online'.",
        );
    }
    if leaf_is(row, &is_unlabeled) {
        return some(
            Some("ZFS-8000-5E"),
            "One or more devices could not be used because the label is missing \n\tor invalid.  There are insufficient replicas for the pool to continue\n\tfunctioning.",
            "Destroy and re-create the pool from\n\ta backup source.",
        );
    }
    None
}

fn damage(row: &PoolRow) -> Option<Reason> {
    if row.lost_blocks == 0 && !row.unreadable {
        return None;
    }
    some(
        Some("ZFS-8000-8A"),
        "One or more devices has experienced an error resulting in data\n\tcorruption.  Applications may be affected.",
        "Restore the file in question if possible.  Otherwise restore the\n\tentire pool from backup.",
    )
}

/// Failed devices without which the pool continues.
fn devices(row: &PoolRow) -> Option<Reason> {
    if leaf_is(row, &is_faulted) {
        return some(
            None,
            "One or more devices are faulted in response to persistent errors.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Replace the faulted device, or use 'zpool clear' to mark the device\n\trepaired.",
        );
    }
    // A cache device too, although the pool is well without it.
    if leaf_is(row, &is_missing) || row.cache.iter().any(is_missing) {
        return some(
            Some("ZFS-8000-2Q"),
            "One or more devices could not be opened.  Sufficient replicas exist for\n\tthe pool to continue functioning in a degraded state.",
            "Attach the missing device and online it using 'zpool online'.",
        );
    }
    if leaf_is(row, &is_unlabeled) {
        return some(
            Some("ZFS-8000-4J"),
            "One or more devices could not be used because the label is missing or\n\tinvalid.  Sufficient replicas exist for the pool to continue\n\tfunctioning in a degraded state.",
            "Replace the device using 'zpool replace'.",
        );
    }
    if any(&row.vdevs, &|v| v.errors != [0; 3]) {
        return some(
            Some("ZFS-8000-9P"),
            "One or more devices has experienced an unrecoverable error.  An\n\tattempt was made to correct the error.  Applications are unaffected.",
            "Determine if the device needs to be replaced, and clear the errors\n\tusing 'zpool clear' or replace the device with 'zpool replace'.",
        );
    }
    if leaf_is(row, &|v| v.state == "OFFLINE") {
        return some(
            None,
            "One or more devices has been taken offline by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Online the device using 'zpool online' or replace the device with\n\t'zpool replace'.",
        );
    }
    if leaf_is(row, &|v| v.state == "REMOVED") {
        return some(
            None,
            "One or more devices has been removed by the administrator.\n\tSufficient replicas exist for the pool to continue functioning in a\n\tdegraded state.",
            "Online the device using zpool online' or replace the device with\n\t'zpool replace'.",
        );
    }
    None
}

fn versions(row: &PoolRow) -> Option<Reason> {
    if row.errata > 0 {
        let what = errata(row.errata);
        let status = format!("Errata #{} detected.{}", row.errata, what.status);
        return some(Some("ZFS-8000-ER"), &status, what.action);
    }
    if row.legacy > 0 {
        return some(
            None,
            "The pool is formatted using a legacy on-disk format.  The pool can\n\tstill be used, but some features are unavailable.",
            "Upgrade the pool using 'zpool upgrade'.  Once this is done, the\n\tpool will no longer be accessible on software that does not support\n\tfeature flags.",
        );
    }
    if !row.features_to_enable.is_empty() {
        return some(
            None,
            "Some supported and requested features are not enabled on the pool.\n\tThe pool can still be used, but some features are unavailable.",
            "Enable all features using 'zpool upgrade'. Once this is done,\n\tthe pool may no longer be accessible by software that does not support\n\tthe features. See zpool-features(7) for details.",
        );
    }
    None
}

/// The messages about a pool with a fault of older software.
pub struct Errata {
    /// What is wrong, after its number.
    status: &'static str,
    /// What to do about an imported pool.
    action: &'static str,
    /// What to do about one that can be imported.
    pub before: &'static str,
}

/// The words for 3 and 4 are those of OpenZFS 2.3.
pub fn errata(number: u64) -> Errata {
    match number {
        1 => Errata {
            status: "",
            action: "To correct the issue run 'zpool scrub'.",
            before: "The pool can be imported using its name or numeric identifier, however there\n\tis a compatibility issue which should be corrected by running 'zpool scrub'.",
        },
        2 => Errata {
            status: "",
            action: "The pool can not be used as long as a filesystem of it is being destroyed.",
            before: "The pool can be imported using its name or numeric identifier.",
        },
        3 => Errata {
            status: "\n\tExisting encrypted datasets contain an on-disk incompatibility\n\t which needs to be corrected.",
            action: "To correct the issue backup existing encrypted datasets to new\n\tencrypted datasets and destroy the old ones. 'zfs mount -o ro' can\n\tbe used to temporarily mount existing encrypted datasets readonly.",
            before: "The pool can be imported using its name or numeric identifier, however\n\texisting encrypted datasets contain an on-disk incompatibility which needs\n\tto be corrected.",
        },
        4 => Errata {
            status: "\n\tExisting encrypted snapshots and bookmarks contain an on-disk\n\tincompatibility. This may cause on-disk corruption if they are used\n\twith 'zfs recv'.",
            action: "To correct the issue, enable the bookmark_v2 feature. No additional\n\taction is needed if there are no encrypted snapshots or bookmarks.\n\tIf preserving the encrypted snapshots and bookmarks is required, use\n\ta non-raw send to backup and restore them. Alternately, they may be\n\tremoved to resolve the incompatibility.",
            before: "Existing encrypted snapshots and bookmarks contain an on-disk\n\tincompatibility. This may cause on-disk corruption if they are used\n\twith 'zfs recv'. To correct the issue, enable the bookmark_v2 feature.\n\tNo additional action is needed if there are no encrypted snapshots or\n\tbookmarks. If preserving the encrypted snapshots and bookmarks is\n\trequired, use a non-raw send to backup and restore them. Alternately,\n\tthey may be removed to resolve the incompatibility.",
        },
        _ => Errata {
            status: "",
            action: "What it is about is not known here.",
            before: "The pool can be imported using its name or numeric identifier.",
        },
    }
}
