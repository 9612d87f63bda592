//! `zfs inherit`

use clap::Args;
use zuse::property_table::{self as table, dataset_property, is_user_property};
use zuse::{DatasetKind, ListedKinds};

use crate::automount;
use crate::error::{CommandError, Explain, Outcome};
use crate::session::{Need, Session};

/// Clear local properties, so that datasets inherit them
#[derive(Args, Debug)]
pub struct Inherit {
    /// Also all descendants
    #[arg(short)]
    recursive: bool,
    /// Return to the received value
    #[arg(short = 'S')]
    received: bool,
    /// The property
    property: String,
    /// The datasets
    #[arg(required = true, value_name = "DATASET")]
    datasets: Vec<String>,
}

impl Inherit {
    /// Refuses a property that datasets of that kind do not have.
    fn check_kind(&self, pool: &std::sync::Arc<zuse::Pool>, name: &str) -> Outcome {
        let (Some(known), false) = (dataset_property(&self.property), self.recursive) else {
            return Ok(());
        };
        let kind = pool.dataset(name).and_then(|d| d.kind());
        let mask = match kind.or_cannot(|| format!("cannot open '{name}'"))? {
            DatasetKind::Filesystem => table::F,
            DatasetKind::Volume => table::V,
            _ => return Ok(()),
        };
        if known.valid_on(mask) {
            return Ok(());
        }
        let why = "property doesn't apply to datasets of this type";
        let what = format!("cannot inherit {} for '{name}': {why}", known.name);
        Err(CommandError::new(what).into())
    }

    /// Runs the command.
    pub fn run(self, session: &mut Session) -> Outcome {
        let property = &self.property;
        if let Some(known) = dataset_property(property) {
            if known.is_readonly() {
                return Err(
                    CommandError::new(format!("{} property is read-only", known.name)).into(),
                );
            }
            if !known.inheritable() && !self.received {
                return Err(CommandError::new(format!(
                    "'{}' property cannot be inherited",
                    known.name
                ))
                .hint(format!("use 'zfs set {}=none' to clear", known.name))
                .hint(format!(
                    "use 'zfs inherit -S {}' to revert to received value",
                    known.name
                ))
                .into());
            }
        } else if !is_user_property(property) {
            return Err(CommandError::usage(format!("invalid property '{property}'")).into());
        }
        for name in &self.datasets {
            let pool = session.pool_for(name, Need::Write)?;
            let moves = automount::decides(property);
            let newly = moves && property == "mountpoint";
            if moves {
                // Before the change: a mount in use would stay at a place that the property no
                // longer names.
                automount::check_movable(session, name)?;
            }
            if name.contains('#') {
                super::check_head(name)?;
            }
            self.check_kind(&pool, name)?;
            let depth = if self.recursive { None } else { Some(0) };
            for found in pool
                .list(name, depth, ListedKinds::HEADS)
                .or_cannot(|| format!("cannot open '{name}'"))?
            {
                let dataset = pool
                    .dataset(&found.name)
                    .or_cannot(|| format!("cannot open '{}'", found.name))?;
                let done = match self.received {
                    true => dataset.revert_to_received(property),
                    false => dataset.inherit(property),
                };
                done.or_cannot(|| format!("cannot inherit {property} for '{}'", found.name))?;
            }
            session.log(&pool);
            if moves {
                automount::follow(session, name, newly)?;
            }
        }
        Ok(())
    }
}
