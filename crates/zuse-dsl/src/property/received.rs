//! Properties from a stream, and those that its receiver sets or excludes (chapter 05b §9.9 of the
//! format notes).
//!
//! ```text
//!   stream, allowed      NAME$recvd                       source "received"
//!   -o on the top        NAME$recvd, NAME                 "local"; `inherit -S` brings the received value back
//!   -o below, -x         NAME$recvd, NAME$inherit         inherited; `inherit -S` likewise
//!   -x, not inheritable  nothing changes
//! ```
//! A package replaces earlier received properties: values missing in it are cleared. A failed
//! receive restores every entry.

use zuse_base::{Errno, Error, Result};
use zuse_dmu::zap::ZapValue;
use zuse_format::property::{
    HAS_RECEIVED_KEY, dataset_property, ignore_unknown_key, inherit_key, is_user_property,
    received_key,
};

use super::Value;
use super::set::Change;
use crate::context::{Ctx, Dsl};

/// Changes of a receive to its target's properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceivedProperties {
    /// The properties in the stream; `None` if it says nothing about properties.
    pub received: Option<Vec<(String, Value)>>,
    /// Set as the receiver's own.
    pub local: Vec<(String, Value)>,
    /// Not to be changed by the stream (`-x`).
    pub kept_out: Vec<String>,
    /// Set to inherit where the stream has a value: for the properties that `-o` sets on the top.
    pub inherited: Vec<String>,
}

/// Entries of a property as they were.
pub(super) type Entries = Vec<(String, Option<ZapValue>)>;

/// Properties, each with its change.
type Changes = Vec<(String, Change)>;

/// Entries of a head before the change, and refused values.
#[derive(Debug, Default)]
pub struct PropertyUndo {
    /// The properties, each with its entries.
    entries: Vec<(String, Entries)>,
    /// Values that cannot be set here, as messages.
    pub refused: Vec<String>,
}

fn keys(name: &str) -> [String; 4] {
    [
        name.to_owned(),
        inherit_key(name),
        received_key(name),
        ignore_unknown_key(name),
    ]
}

fn is_inheritable(name: &str) -> bool {
    dataset_property(name).map_or(is_user_property(name), |p| p.inheritable())
}

impl Dsl {
    /// Changes the properties of a receive's target. Refused values are left out and reported.
    ///
    /// # Errors
    /// The receiver's own values are refused; the pool cannot be changed.
    pub fn receive_properties(&self, name: &str, new: &ReceivedProperties) -> Result<PropertyUndo> {
        let mut undo = PropertyUndo::default();
        let (changes, mut marks) = self.plan_received(name, new, &mut undo)?;
        if changes.is_empty() && marks.is_empty() {
            return Ok(undo);
        }
        marks.extend(changes.iter().cloned());
        match self.change_properties(name, marks.clone()) {
            Ok(()) => return Ok(undo),
            Err(Error::Refused { errno, .. }) if errno != Errno::NOENT => {}
            Err(e) => return Err(e),
        }
        // If one change is refused, each is tried separately: the others still apply.
        for (property, change) in marks {
            let is_own = matches!(change, Change::Set(_)) && property != HAS_RECEIVED_KEY;
            match self.change_properties(name, vec![(property.clone(), change)]) {
                Err(Error::Refused { what, .. }) if !is_own => {
                    let refused = format!("cannot receive {property} property on {name}: {what}");
                    undo.refused.push(refused);
                }
                Err(e) => {
                    self.undo_properties(name, &undo)?;
                    return Err(e);
                }
                Ok(()) => {}
            }
        }
        Ok(undo)
    }

    /// The changes that give a target the stream's values, and the mark that it has received
    /// values. `undo` records the present entries.
    fn plan_received(
        &self,
        name: &str,
        new: &ReceivedProperties,
        undo: &mut PropertyUndo,
    ) -> Result<(Changes, Changes)> {
        let _config = self.read_config();
        let ds = self.find_ds(name)?;
        let props = self.meta()?.dir(self.meta()?.ds(ds)?.dir)?.props;
        let stored = self.stored(props)?;
        let mut changes: Changes = Vec::new();
        let mut marks = Vec::new();
        let among = |list: &[String], name: &str| list.iter().any(|k| k == name);
        let inherited = |name: &str| among(&new.inherited, name);
        let kept_out = |name: &str| inherited(name) || among(&new.kept_out, name);
        if let Some(received) = &new.received {
            if !stored.contains_key(HAS_RECEIVED_KEY) {
                marks.push((HAS_RECEIVED_KEY.to_owned(), Change::Set(Value::Number(0))));
            }
            for (name, value) in received {
                let have = stored.get(&received_key(name)).and_then(super::decoded);
                let stays = kept_out(name) && !is_inheritable(name);
                if !stays && have.as_ref() != Some(value) {
                    changes.push((name.clone(), Change::SetReceived(value.clone())));
                }
                let own =
                    stored.contains_key(name) || stored.contains_key(&ignore_unknown_key(name));
                let hidden = stored.contains_key(&inherit_key(name));
                // A mark that hides the received value stays. A local value here is hidden only by
                // a value given for the top.
                let hide = if own { inherited(name) } else { !hidden };
                if kept_out(name) && !stays && hide {
                    changes.push((name.clone(), Change::Inherit));
                }
            }
            for key in stored.keys() {
                let Some(name) = key.strip_suffix("$recvd").filter(|n| !n.is_empty()) else {
                    continue;
                };
                let again = received.iter().any(|(n, _)| n == name);
                if !again && (is_inheritable(name) || !kept_out(name)) {
                    changes.push((name.to_owned(), Change::ClearReceived));
                }
            }
        }
        for (name, value) in &new.local {
            changes.push((name.clone(), Change::Set(value.clone())));
        }
        for (name, _) in &changes {
            if undo.entries.iter().any(|(n, _)| n == name) {
                continue;
            }
            let entries = keys(name).into_iter();
            let entries = entries.map(|key| {
                let value = stored.get(&key).cloned();
                (key, value)
            });
            undo.entries.push((name.clone(), entries.collect()));
        }
        Ok((changes, marks))
    }

    /// Reverts [`Self::receive_properties`].
    ///
    /// # Errors
    /// The pool cannot be changed.
    pub fn undo_properties(&self, name: &str, undo: &PropertyUndo) -> Result<()> {
        if undo.entries.is_empty() {
            return Ok(());
        }
        let changes = undo.entries.iter();
        let changes =
            changes.map(|(name, entries)| (name.clone(), Change::Restore(entries.clone())));
        self.change_properties(name, changes.collect())
    }
}

impl Ctx<'_> {
    /// Restores stored entries.
    pub(super) fn put_entries(
        &self,
        table: &crate::table::Table,
        entries: &[(String, Option<ZapValue>)],
    ) -> Result<()> {
        for (key, value) in entries {
            match value {
                Some(value) => table.put(self.tx, key, value)?,
                None => {
                    table.remove(self.tx, key)?;
                }
            }
        }
        Ok(())
    }
}
