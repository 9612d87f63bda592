//! `zdb -O`, `-r`: an object by its path, printed or copied out.

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use zuse::tools::{FileSystem, Layers as _};
use zuse::{Credentials, Pool};

use super::Style;
use super::object::Table;
use super::objects::not_held;
use crate::error::{CommandError, Explain, Meaning, Outcome, Stop};
use crate::session::Session;

/// Bytes copied at a time.
const CHUNK: usize = 1 << 20;

/// The file system of a dataset, and the object that a path in it leads to.
fn find(
    pool: &Arc<Pool>,
    dataset: &str,
    path: &str,
) -> Outcome<(Arc<FileSystem>, Arc<zuse_zpl::Znode>)> {
    let name = dataset.trim_end_matches('/');
    let fs = pool.file_system(name).map_err(|e| not_held(name, &e, 2))?;
    let found = fs.resolve(&Credentials::root(), path.as_bytes());
    let znode = found.map_err(|e| {
        let mut error = CommandError::new(format!(
            "failed to lookup dataset={name} path=/{}: {}",
            path.trim_start_matches('/'),
            std::io::Error::from_raw_os_error(e.errno().0)
                .to_string()
                .split(" (os error")
                .next()
                .unwrap_or_default()
        ));
        error.code = 2;
        Stop::from(error.meaning(Meaning::NotFound))
    })?;
    Ok((fs, znode))
}

/// Prints the object behind each path.
pub fn show(
    session: &mut Session,
    pool: &Arc<Pool>,
    dataset: &str,
    paths: &[String],
    style: Style,
) -> Outcome {
    for path in paths {
        let (fs, znode) = find(pool, dataset, path)?;
        let mut table = Table::new(fs.objset());
        let number = znode.object().0 as i64;
        table.print(session, number, znode.dnode(), style)?;
    }
    Ok(())
}

/// Copies the content of a file out.
pub fn copy(
    session: &mut Session,
    pool: &Arc<Pool>,
    dataset: &str,
    path: &str,
    target: &Path,
) -> Outcome {
    let shown = target;
    let target = session.path(target);
    let (fs, znode) = find(pool, dataset, path).map_err(|stop| match stop {
        Stop::Failed(error) if error.code == 2 && error.meaning == Meaning::NotFound => {
            let mut said = error.hint("zdb: internal error: No such file or directory");
            said.code = 1;
            Stop::Failed(said)
        }
        other => other,
    })?;
    let cannot = || format!("cannot write '{}'", target.display());
    let number = znode.object().0;
    session.ui.line(format!(
        "Copying object {number} to file {}",
        shown.display()
    ))?;
    let size = znode.size();
    session
        .ui
        .line(format!("Object {number} is {size} bytes"))?;
    let mut out = std::fs::File::create(&target).or_cannot(cannot)?;
    let mut buf = vec![0; CHUNK];
    let mut at = 0;
    while at < size {
        let n = fs
            .read(&znode, at, &mut buf)
            .or_cannot(|| format!("cannot read '{path}'"))?;
        if n == 0 {
            break;
        }
        out.write_all(buf.get(..n).unwrap_or_default())
            .or_cannot(cannot)?;
        at += n as u64;
    }
    out.sync_all().or_cannot(cannot)?;
    Ok(())
}
