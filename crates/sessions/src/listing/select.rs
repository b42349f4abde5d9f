//! Selection of sessions by protocol, state and worker, and by addresses, prefixes and ports of their ends.

use std::net::{IpAddr, SocketAddr};

use forebay_graph::short;
use ipnet::IpNet;

use super::row::{End, Row, protocol, protocol_name};
use crate::connection::Phase;

/// Maximum number of conditions on ends.
const MOST: usize = 4;

/// A condition on an end of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct EndCondition {
    /// The index of the end, or `None` if any end of the row may meet the condition.
    which: Option<usize>,
    /// The addresses that meet the condition.
    net: IpNet,
    /// The port that meets the condition, or `None` for any port.
    port: Option<u16>,
}

impl EndCondition {
    /// Returns true if an end has an allowed address and port.
    fn is(&self, end: &End) -> bool {
        self.net.contains(&end.address) && self.port.is_none_or(|port| port == end.port)
    }

    /// Returns true if a row meets the condition.
    fn of(&self, row: &Row) -> bool {
        let mut ends = row.ends.iter().enumerate();
        ends.any(|(at, end)| self.which.is_none_or(|which| which == at) && end.is_some_and(|end| self.is(&end)))
    }
}

/// Conditions on a session, all of which must hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    protocol: Option<u8>,
    state: Option<&'static str>,
    pub(super) worker: Option<usize>,
    ends: [Option<EndCondition>; MOST],
}

impl Selector {
    /// Selects all sessions.
    pub(super) const ALL: Self = Self { protocol: None, state: None, worker: None, ends: [None; MOST] };

    /// Returns true if a row matches. The condition on the worker is not checked here: the caller sends the request
    /// only to this worker.
    pub(super) fn matches(&self, row: &Row) -> bool {
        self.protocol.is_none_or(|protocol| protocol == row.protocol)
            && self.state.is_none_or(|state| row.age.is_some_and(|age| age.phase.name() == state))
            && self.ends.iter().flatten().all(|condition| condition.of(row))
    }

    /// Parses a selection: `all`, or words that are conditions. `names` are the names of a row's ends.
    pub(super) fn parse(text: &str, names: &[&str]) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace().peekable();
        let Some(first) = words.peek() else { return Err(format!("the filter is empty: {}", allowed(names))) };
        if *first == "all" && text.trim_ascii() == "all" {
            return Ok(Self::ALL);
        }
        words.try_fold(Self::ALL, |so_far, word| so_far.and(word, names))
    }

    /// Parses a line as the table shows it. Only the fields that do not change become conditions.
    pub(super) fn of_line(line: &str, names: &[&str]) -> Result<Self, String> {
        let changing = ["state", "idle", "ends", "sessions", "worker", "at"];
        let is_fixed = |word: &&str| word.split_once('=').is_none_or(|(name, _)| !changing.contains(&name));
        line.split_ascii_whitespace().filter(is_fixed).try_fold(Self::ALL, |so_far, word| so_far.and(word, names))
    }

    /// Adds the condition of one word.
    fn and(mut self, word: &str, names: &[&str]) -> Result<Self, String> {
        let wrong = || format!("'{}': {}", short(word), allowed(names));
        let (name, value) = word.split_once('=').map_or((None, word), |(name, value)| (Some(name), value));
        let condition = |which| {
            let (net, port) = net(value).ok_or_else(wrong)?;
            Ok(EndCondition { which, net, port })
        };
        match name {
            None if protocol(value).is_some() => only(&mut self.protocol, protocol(value), word, "protocol", shown)?,
            Some("protocol") => {
                let number = protocol(value).or_else(|| value.parse().ok());
                only(&mut self.protocol, Some(number.ok_or_else(wrong)?), word, "protocol", shown)?;
            }
            Some("state") => {
                let mut phases = Phase::ALL.iter().map(|phase| phase.name());
                let state = phases.find(|name| *name == value).ok_or_else(|| {
                    let mut names: Vec<_> = Phase::ALL.iter().map(|phase| phase.name()).collect();
                    names.sort_unstable();
                    names.dedup();
                    format!("state '{}': allowed are {}", short(value), names.join(", "))
                })?;
                only(&mut self.state, Some(state), word, "state", |state| format!("state={state}"))?;
            }
            Some("worker") => {
                let worker = value.parse().map_err(|_| wrong())?;
                only(&mut self.worker, Some(worker), word, "worker", |worker| format!("worker={worker}"))?;
            }
            name => {
                let which = name.map(|name| names.iter().position(|known| *known == name).ok_or_else(wrong));
                let condition: Result<EndCondition, String> = condition(which.transpose()?);
                let free = self.ends.iter_mut().find(|end| end.is_none());
                *free.ok_or_else(|| format!("more than {MOST} addresses: allowed are up to {MOST}"))? =
                    Some(condition?);
            }
        }
        Ok(self)
    }
}

/// Sets a condition that may have only one value. Returns an error if the condition already has another value. If the
/// last value replaced it without an error, entries could be ended that the operator did not mean.
fn only<T: Copy + PartialEq>(
    field: &mut Option<T>,
    value: Option<T>,
    word: &str,
    name: &str,
    format: impl FnOnce(T) -> String,
) -> Result<(), String> {
    if let Some(before) = field.filter(|before| Some(*before) != value) {
        let (before, word) = (format(before), short(word));
        return Err(format!("'{before}' and '{word}' contradict each other: allowed is one {name}"));
    }
    *field = value;
    Ok(())
}

/// Formats a protocol as a word of a filter.
fn shown(number: u8) -> String {
    protocol_name(number).map_or_else(|| format!("protocol={number}"), str::to_owned)
}

/// Returns the part of an error that lists the allowed conditions.
fn allowed(names: &[&str]) -> String {
    format!(
        "allowed are 'all', or addresses, prefixes, ADDRESS:PORT and [IPV6]:PORT (also after {}), protocol=NAME, \
         state=NAME and worker=N; an entry must match all conditions",
        names.iter().map(|name| format!("{name}=")).collect::<Vec<_>>().join(", ")
    )
}

/// Parses an address, a prefix, or an address with a port.
fn net(text: &str) -> Option<(IpNet, Option<u16>)> {
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Some((IpNet::from(end.ip()), Some(end.port())));
    }
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    net.map(|net| (net, None))
}

/// Returns the position in a line that was copied from the table: worker, table, index.
pub(super) fn position(line: &str) -> Result<(usize, u8, u32), String> {
    let words = |name: &'static str| line.split_ascii_whitespace().filter_map(move |word| word.strip_prefix(name));
    let mut all = words("at=");
    let at = all.next().unwrap_or_default();
    if let Some(other) = all.find(|other| *other != at) {
        return Err(format!("'at={}' and 'at={}' contradict each other: allowed is one 'at'", short(at), short(other)));
    }
    if let Some(other) = words("worker=").find(|other| at.split('.').next() != Some(*other)) {
        let (at, other) = (short(at), short(other));
        return Err(format!(
            "'worker={other}' and 'at={at}' contradict each other: 'at' begins with the worker's number"
        ));
    }
    let mut workers = at.split('.');
    let position = (|| {
        let position = (workers.next()?.parse().ok()?, workers.next()?.parse().ok()?, workers.next()?.parse().ok()?);
        // `u32::MAX` is not allowed, because listing continues at the next index.
        (workers.next().is_none() && position.2 < u32::MAX).then_some(position)
    })();
    position.ok_or_else(|| {
        format!("'{}' is not a line of this table: allowed are lines as the table shows them", short(line))
    })
}

/// Fuzz target: parses each line as a filter, as a line of a table and as a position. Errors are allowed, panics are
/// not.
pub fn fuzz_selector(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let names = ["inside", "peer", "outside"];
    for line in text.lines() {
        let parsed = Selector::parse(line, &names);
        if let Err(error) = parsed {
            assert!(error.len() < 1_000, "an error is short");
        }
        let _ = Selector::of_line(line, &names);
        let _ = position(line);
    }
}
