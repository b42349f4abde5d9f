//! Which sessions are meant: by protocol, state, worker, and by addresses, prefixes and ports of their ends.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::row::{End, Row, protocol, protocol_name};
use crate::connection::Phase;

/// The most ends that are asked for together.
const MOST: usize = 4;

/// What is asked of an end: of all that a row has, or of the one of this number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    which: Option<usize>,
    net: IpNet,
    port: Option<u16>,
}

impl Wanted {
    fn is(&self, end: &End) -> bool {
        self.net.contains(&end.address) && self.port.is_none_or(|port| port == end.port)
    }

    fn of(&self, row: &Row) -> bool {
        let mut ends = row.ends.iter().enumerate();
        ends.any(|(at, end)| self.which.is_none_or(|which| which == at) && end.is_some_and(|end| self.is(&end)))
    }
}

/// What must hold of a session, all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Selector {
    protocol: Option<u8>,
    state: Option<&'static str>,
    pub(super) worker: Option<usize>,
    ends: [Option<Wanted>; MOST],
}

impl Selector {
    /// Everything.
    pub(super) const ALL: Self = Self { protocol: None, state: None, worker: None, ends: [None; MOST] };

    /// Whether a session is meant; its worker is none of its own concern.
    pub(super) fn means(&self, row: &Row) -> bool {
        self.protocol.is_none_or(|protocol| protocol == row.protocol)
            && self.state.is_none_or(|state| row.age.is_some_and(|age| age.phase.name() == state))
            && self.ends.iter().flatten().all(|wanted| wanted.of(row))
    }

    /// Reads what stands for sessions whose ends have these names: `all`, or words of which each must hold.
    pub(super) fn parse(text: &str, names: &[&str]) -> Result<Self, String> {
        let mut words = text.split_ascii_whitespace().peekable();
        let Some(first) = words.peek() else { return Err(format!("nothing is said: {}", allowed(names))) };
        if *first == "all" && text.trim_ascii() == "all" {
            return Ok(Self::ALL);
        }
        words.try_fold(Self::ALL, |so_far, word| so_far.and(word, names))
    }

    /// Reads a line as it is shown: who it is, without what changes.
    pub(super) fn of_line(line: &str, names: &[&str]) -> Result<Self, String> {
        let changes = ["state", "idle", "ends", "sessions", "worker", "at"];
        let lasts = |word: &&str| word.split_once('=').is_none_or(|(name, _)| !changes.contains(&name));
        line.split_ascii_whitespace().filter(lasts).try_fold(Self::ALL, |so_far, word| so_far.and(word, names))
    }

    /// One condition more.
    fn and(mut self, word: &str, names: &[&str]) -> Result<Self, String> {
        let wrong = || format!("'{}': {}", super::short(word), allowed(names));
        let (name, value) = word.split_once('=').map_or((None, word), |(name, value)| (Some(name), value));
        let wanted = |which| {
            let (net, port) = net(value).ok_or_else(wrong)?;
            Ok(Wanted { which, net, port })
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
                    format!("state '{}': allowed are {}", super::short(value), names.join(", "))
                })?;
                only(&mut self.state, Some(state), word, "state", |state| format!("state={state}"))?;
            }
            Some("worker") => {
                let worker = value.parse().map_err(|_| wrong())?;
                only(&mut self.worker, Some(worker), word, "worker", |worker| format!("worker={worker}"))?;
            }
            name => {
                let which = name.map(|name| names.iter().position(|known| *known == name).ok_or_else(wrong));
                let wanted: Result<Wanted, String> = wanted(which.transpose()?);
                let place = self.ends.iter_mut().find(|end| end.is_none());
                *place.ok_or_else(|| format!("more than {MOST} addresses: allowed are as many"))? = Some(wanted?);
            }
        }
        Ok(self)
    }
}

/// Sets what is the same of all that are meant. Of two values the second one would hold alone, and what is not asked for would
/// be ended.
fn only<T: Copy + PartialEq>(
    field: &mut Option<T>,
    value: Option<T>,
    word: &str,
    name: &str,
    said: impl FnOnce(T) -> String,
) -> Result<(), String> {
    if let Some(before) = field.filter(|before| Some(*before) != value) {
        let (before, word) = (said(before), super::short(word));
        return Err(format!("'{before}' and '{word}': nothing is both, allowed is one {name}"));
    }
    *field = value;
    Ok(())
}

/// A protocol as a word says it.
fn shown(number: u8) -> String {
    protocol_name(number).map_or_else(|| format!("protocol={number}"), str::to_owned)
}

fn allowed(names: &[&str]) -> String {
    format!(
        "allowed are 'all', or addresses, prefixes, ADDRESS:PORT, [IPV6]:PORT, protocol=NAME, state=NAME, worker=N, and {} of \
         these, all of which must hold",
        names.iter().map(|name| format!("{name}=")).collect::<Vec<_>>().join(", ")
    )
}

/// An address, prefix, or address with a port.
fn net(text: &str) -> Option<(IpNet, Option<u16>)> {
    if let Ok(end) = text.parse::<SocketAddr>() {
        return Some((IpNet::from(end.ip()), Some(end.port())));
    }
    let net = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    net.map(|net| (net, None))
}

/// Where a line that was shown says that it is: worker, table, place.
pub(super) fn place(line: &str) -> Result<(usize, u8, u32), String> {
    let words = |name: &'static str| line.split_ascii_whitespace().filter_map(move |word| word.strip_prefix(name));
    let mut all = words("at=");
    let at = all.next().unwrap_or_default();
    if let Some(other) = all.find(|other| *other != at) {
        return Err(format!(
            "'at={}' and 'at={}': nothing is at both, allowed is one",
            super::short(at),
            super::short(other)
        ));
    }
    if let Some(other) = words("worker=").find(|other| at.split('.').next() != Some(*other)) {
        let (at, other) = (super::short(at), super::short(other));
        return Err(format!("'worker={other}' and 'at={at}': nothing is both, 'at' begins with the worker"));
    }
    let mut parts = at.split('.');
    let place = (|| {
        let place = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        // Something comes behind each place.
        (parts.next().is_none() && place.2 < u32::MAX).then_some(place)
    })();
    place.ok_or_else(|| format!("'{}' is no line of this table: allowed are those that it shows", super::short(line)))
}

/// Fuzzing: whatever is asked for is understood or refused, and a line as it is shown is read again.
pub fn fuzz_selector(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let names = ["inside", "peer", "outside"];
    for line in text.lines() {
        let told = Selector::parse(line, &names);
        if let Err(told) = told {
            assert!(told.len() < 1_000, "what is refused is told shortly");
        }
        let _ = Selector::of_line(line, &names);
        let _ = place(line);
    }
}
