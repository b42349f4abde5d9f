//! The mappings of a module. Workers read them while the control plane changes them.
//!
//! Both sides are one value that is published as a whole (`forebay_graph::Live`). A worker always sees both sides in
//! the same version, so replies to translated packets are translated back.

use std::sync::Arc;

use forebay_graph::{
    DeclareState, Live, Outcome, Reader, Replay, Setup, SetupError, Table as ControlTable, Verb, register, short,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::mappings::{Mapping, MappingError, Mappings, Prefix};

/// Maximum number of changes that are published together. It is so large that the cost of publishing is negligible.
const CHUNK: usize = 1 << 12;

/// A change that was made to the mappings.
pub(super) enum MappingChange {
    Added(Mapping),
    Removed(Prefix),
}

impl Replay<Vec<MappingChange>> for Mappings {
    fn replay(&mut self, log: &mut Vec<MappingChange>) {
        for step in log.drain(..) {
            match step {
                // The change succeeded on the other copy, which had the same contents.
                MappingChange::Added(mapping) => drop(self.add(&mapping)),
                MappingChange::Removed(inside) => drop(self.remove(inside)),
            }
        }
    }
}

/// Pairs of IPv4 prefixes: the mappings of one module, or the state `static_mappings`, which modules share.
pub struct StaticMappings {
    live: Arc<Live<Mappings, Vec<MappingChange>>>,
}

impl StaticMappings {
    /// Builds the table of these mappings, with the errors of [`Mappings::of`].
    pub(super) fn of(mappings: &[Mapping]) -> Result<Self, SetupError> {
        Ok(Self { live: Arc::new(Live::new(Arc::new(Mappings::of(mappings)?))) })
    }

    /// Returns a worker's reader of the mappings.
    pub(super) fn reader(&self) -> Reader<Mappings, Vec<MappingChange>> {
        Reader::new(Arc::clone(&self.live))
    }
}

/// Syntax of changes.
const SYNTAX: &str = "\
add INSIDE OUTSIDE        adds a mapping: add 10.0.0.0/24 192.0.2.0/24, or one address each
remove INSIDE [OUTSIDE]   removes a mapping; OUTSIDE must be the mapping's outside prefix
replace INSIDE OUTSIDE    changes the outside prefix of a mapping, or adds a mapping";

/// Applies one change and appends it to `log`. After an error, the mappings and the log are unchanged.
fn change(mappings: &mut Mappings, line: &str, log: &mut Vec<MappingChange>) -> Result<(), String> {
    let (verb, entry) = Verb::split(line, SYNTAX)?;
    let mut words = entry.split_ascii_whitespace();
    let inside = Prefix::parse(words.next().unwrap_or_default())?;
    let outside = words.next().map(Prefix::parse).transpose()?;
    if let Some(surplus) = words.next() {
        let surplus = short(surplus);
        return Err(format!("'{surplus}' after the outside prefix is not allowed: write {}", verb.form(SYNTAX)));
    }
    if verb == Verb::Remove {
        return remove(mappings, inside, outside, log).map_err(|error| error.to_string());
    }
    let outside = outside.ok_or_else(|| format!("{inside} has no outside prefix: write {}", verb.form(SYNTAX)))?;
    let mapping = Mapping { inside, outside };
    let before = if verb == Verb::Replace { mappings.remove(inside) } else { None };
    let added = mappings.add(&mapping).map_err(|error| error.to_string());
    match (before, &added) {
        (Some(_), Ok(())) => log.push(MappingChange::Removed(inside)),
        // Restore the removed mapping. The removal was not published, so no reader has seen it.
        (Some(outside), Err(_)) => mappings.add(&Mapping { inside, outside }).map_err(|error| error.to_string())?,
        (None, _) => {}
    }
    added.map(|()| log.push(MappingChange::Added(mapping)))
}

/// Removes the mapping of an inside prefix and appends the change to `log`. Returns an error, without a change, if
/// there is no such mapping, or if `outside` is given and is not its outside prefix.
fn remove(
    mappings: &mut Mappings,
    inside: Prefix,
    outside: Option<Prefix>,
    log: &mut Vec<MappingChange>,
) -> Result<(), MappingError> {
    let current = mappings.inside.overlapping(inside).filter(|(prefix, _)| *prefix == inside);
    let current = current.map(|(_, start)| Prefix { start, ..inside }).ok_or(MappingError::Unknown(inside))?;
    if outside.is_some_and(|outside| outside != current) {
        return Err(MappingError::Other { inside, outside: current });
    }
    mappings.remove(inside);
    log.push(MappingChange::Removed(inside));
    Ok(())
}

impl ControlTable for StaticMappings {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        for (chunk, lines) in changes.chunks(CHUNK).enumerate() {
            self.live.change(|mappings, log| {
                for (at, line) in lines.iter().enumerate() {
                    outcome.note(chunk * CHUNK + at, change(mappings, line, log));
                }
            });
        }
        outcome
    }

    fn len(&self) -> usize {
        self.live.look().inside.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let first = |line: &str| Prefix::parse(line.split_ascii_whitespace().next().unwrap_or_default());
        let after = after.map(first).transpose()?.map(|prefix| prefix.start);
        let mappings = self.live.look();
        let line = |(inside, start): &(Prefix, u32)| format!("{inside} {}", Prefix { start: *start, ..*inside });
        Ok(mappings.inside.after(after).take(most).map(line).collect())
    }
}

/// Parameters of the state `static_mappings`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateParams {
    /// The mappings. Prefixes of one side may not overlap.
    mappings: Vec<Mapping>,
}

impl DeclareState for StaticMappings {
    type Params = StateParams;
    const NAME: &'static str = "static_mappings";
    const SUMMARY: &'static str = "pairs of IPv4 prefixes that the static_nat modules of both directions share";
    const EXAMPLE: &'static str = "{ mappings: [{ inside: 10.0.0.0/24, outside: 192.0.2.0/24 }] }";

    fn new(params: StateParams, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Self::of(&params.mappings)
    }
}

register!(state StaticMappings);

#[cfg(test)]
mod tests;
