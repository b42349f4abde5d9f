//! The associations of inbound packets: found by their index, changed while packets run.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use forebay_graph::{Live, Outcome, Reader, Replay, Table as ControlTable, Verb};
use forebay_tables::lpm::IpPrefix;
use hashbrown::HashMap;

use super::window::Window;
use crate::esp::lasting::Lasting;
use crate::esp::lifetime::Used;
use crate::esp::line::{Keyed, Keys, Line, index_of, only_listed, split_change, without_comment};

/// The names of the words that a line may have.
pub(super) const WORDS: [&str; 9] =
    ["key", "local", "peer", "for", "esn", "soft-packets", "soft-bytes", "hard-packets", "hard-bytes"];
/// The number of changes that are published together.
const CHUNK: usize = 1 << 10;

/// The state of an association that changes with each packet. One worker writes it.
#[derive(Debug)]
pub(super) struct Receiving {
    pub(super) window: Window,
    pub(super) used: Used,
}

/// An association.
pub(super) struct Inbound {
    /// The line, as it is listed.
    pub(super) line: Line,
    pub(super) keyed: Keyed,
    /// The state, which continues in the next configuration.
    pub(super) receiving: Arc<Receiving>,
}

impl Inbound {
    /// Returns true if packets of the association may have these outer addresses.
    #[inline(always)]
    pub(super) fn is_between(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.line.peer.is_none_or(|peer| peer == source) && self.line.local.is_none_or(|local| local == destination)
    }

    /// Returns true if packets from this source may be inside (RFC 4301 section 5.2, step 4). Without prefixes, all
    /// sources are allowed.
    pub(super) fn admits(&self, source: IpAddr) -> bool {
        self.line.prefixes.is_empty()
            || self.line.prefixes.iter().any(|prefix| match (prefix, source) {
                (IpPrefix::V4(prefix), IpAddr::V4(source)) => prefix.contains(source.to_bits()),
                (IpPrefix::V6(prefix), IpAddr::V6(source)) => prefix.contains(source.to_bits()),
                _ => false,
            })
    }
}

/// One copy of the associations, in which workers look packets up.
#[derive(Clone, Default)]
pub(super) struct Associations {
    /// The associations by index.
    by_spi: HashMap<u32, Arc<Inbound>>,
    /// The keys of `by_spi` in order, for listing.
    order: BTreeMap<u32, ()>,
}

/// A change that was made in one copy, and that the other copy repeats.
pub(super) enum Step {
    Added(Arc<Inbound>),
    Removed(u32),
}

impl Replay<Vec<Step>> for Associations {
    fn replay(&mut self, log: &mut Vec<Step>) {
        for step in log.drain(..) {
            match step {
                Step::Added(association) => drop(self.add(association)),
                Step::Removed(spi) => drop(self.remove(spi)),
            }
        }
    }
}

impl Associations {
    /// Returns the association of an index.
    #[inline(always)]
    pub(super) fn get(&self, spi: u32) -> Option<&Inbound> {
        self.by_spi.get(&spi).map(|association| &**association)
    }

    /// Adds an association. Fails, and changes nothing, if its index exists.
    fn add(&mut self, association: Arc<Inbound>) -> Result<(), String> {
        let spi = association.line.spi;
        if self.by_spi.contains_key(&spi) {
            return Err(format!("{spi:#x} already exists: use 'replace'"));
        }
        self.by_spi.insert(spi, association);
        self.order.insert(spi, ());
        Ok(())
    }

    /// Removes and returns an association; `None` if its index does not exist.
    fn remove(&mut self, spi: u32) -> Option<Arc<Inbound>> {
        self.order.remove(&spi);
        self.by_spi.remove(&spi)
    }
}

/// A module's associations, used by a worker and changed by the control plane.
pub(super) struct Inbounds {
    /// The two copies of the associations.
    live: Arc<Live<Associations, Vec<Step>>>,
    /// The settings with which keys in changes are read.
    keys: Keys,
    /// The states that continue in the next configuration.
    states: Arc<Lasting<Receiving>>,
}

/// The syntax of changes.
const SYNTAX: &str = "\
add SPI key=KEY [peer=ADDRESS] [local=ADDRESS] [for=PREFIX,...] [esn] [soft-packets=N] [hard-packets=N] \
[soft-bytes=N] [hard-bytes=N]   adds an association
remove SPI   removes an association; the listed line is allowed, too
replace SPI key=KEY ...   replaces the association with this index, or adds it
where KEY is @FILE, or hexadecimal digits, and the last 4 bytes are the salt";

impl Inbounds {
    /// Creates the associations that the configuration lists.
    pub(super) fn new(listed: Vec<(Line, Keyed)>, keys: Keys, states: Arc<Lasting<Receiving>>) -> Result<Self, String> {
        let all = Arc::new(Live::new(Arc::default()));
        let mut inbounds = Self { live: all, keys, states };
        let mut associations = Associations::default();
        for one in listed {
            associations.add(inbounds.make(one))?;
        }
        inbounds.live = Arc::new(Live::new(Arc::new(associations)));
        Ok(inbounds)
    }

    pub(super) fn reader(&self) -> Reader<Associations, Vec<Step>> {
        Reader::new(Arc::clone(&self.live))
    }

    /// Builds the association of a line. If an association with the same index and key is in use, continues its state.
    fn make(&self, (line, keyed): (Line, Keyed)) -> Arc<Inbound> {
        let make = || Receiving { window: Window::new(), used: Used::default() };
        let receiving = self.states.get(line.spi, keyed.fingerprint, |_| true, make);
        Arc::new(Inbound { line, keyed, receiving })
    }

    /// Makes one change in `associations`, and appends its steps to `log`. If the change fails, nothing changes.
    fn change(&self, associations: &mut Associations, change: &str, log: &mut Vec<Step>) -> Result<(), String> {
        let change = without_comment(change);
        let (verb, entry) = split_change(change, SYNTAX)?;
        let spi = index_of(entry)?;
        if verb == Verb::Remove {
            let current = associations
                .get(spi)
                .ok_or_else(|| format!("{spi:#x} does not exist: `forebay show table NAME` lists the associations"))?;
            only_listed(entry, &current.line, &current.keyed, &self.keys)?;
            associations.remove(spi);
            log.push(Step::Removed(spi));
            return Ok(());
        }
        let association = self.make(Line::read(entry, &WORDS, &self.keys)?);
        if verb == Verb::Replace && associations.remove(spi).is_some() {
            log.push(Step::Removed(spi));
        }
        associations.add(Arc::clone(&association))?;
        log.push(Step::Added(association));
        Ok(())
    }
}

impl ControlTable for Inbounds {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        for (chunk, lines) in changes.chunks(CHUNK).enumerate() {
            self.live.change(|associations, log| {
                for (at, line) in lines.iter().enumerate() {
                    outcome.note(chunk * CHUNK + at, self.change(associations, line, log));
                }
            });
        }
        outcome
    }

    fn len(&self) -> usize {
        self.live.look().by_spi.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        use std::ops::Bound::{Excluded, Unbounded};
        let after = after.map(index_of).transpose()?.map_or(Unbounded, Excluded);
        let associations = self.live.look();
        let line = |(spi, ()): (&u32, &())| {
            let Inbound { line, receiving, .. } = associations.get(*spi)?;
            Some(line.list(&receiving.used, receiving.window.top()))
        };
        Ok(associations.order.range((after, Unbounded)).filter_map(line).take(most).collect())
    }
}
