//! The table of an interface's neighbours, one per line. Operators list and change neighbours through this table.

use std::net::IpAddr;

use forebay_graph::{Outcome, Table, Verb, foreign_words, short};
use forebay_packet::host_address::check_host_address;
use forebay_packet::wire::ethernet::MacAddress;

use super::Interface;
use super::entry::{Entry, NeighbourState};
use super::neighbours::Address;

const SYNTAX: &str = "\
add ADDRESS MAC [permanent|stale]   adds a neighbour: add 192.0.2.7 02:00:00:00:00:07; permanent by default
remove ADDRESS                      removes a neighbour, learned or permanent
replace ADDRESS MAC [permanent|stale]   sets another Ethernet address for a neighbour, or adds it";

/// The error if there is no room for a neighbour.
const FULL: &str = "no room: permanent neighbours use all slots for this address: remove some, or increase `capacity`";

/// Parses a line with an address and a MAC address.
fn parse(line: &str) -> Result<(Address, MacAddress), String> {
    let mut words = line.split_ascii_whitespace();
    let address = address(words.next().unwrap_or_default())?;
    let shown = address.ip();
    let mac = words.next().ok_or_else(|| {
        format!("{shown} has no Ethernet address: write one after it, for example {shown} 02:00:00:00:00:07")
    })?;
    let mac: MacAddress = mac.parse().map_err(|error| format!("{error}"))?;
    if mac.0[0] & 1 == 1 {
        return Err(format!("{mac} is a group address: allowed are addresses of one interface"));
    }
    match words.next() {
        Some(surplus) => Err(format!("unexpected '{}' after the Ethernet address: remove it", short(surplus))),
        None => Ok((address, mac)),
    }
}

/// Parses the address of a single host.
fn address(word: &str) -> Result<Address, String> {
    let bad = || {
        let shown = short(word);
        format!(
            "'{shown}' is not a neighbour's address: allowed are unicast addresses such as 192.0.2.7 or 2001:db8::7"
        )
    };
    let address: IpAddr = word.parse().map_err(|_| bad())?;
    check_host_address(address)?;
    Address::of(address).ok_or_else(bad)
}

impl Interface {
    /// Adds a permanent neighbour of the configuration.
    pub(super) fn add_permanent(&self, line: &str) -> Result<(), String> {
        let (address, mac) = parse(line)?;
        self.refuse_own(address.ip())?;
        self.neighbours.put(address, Entry::permanent(mac), 0).map_err(|_| FULL.to_owned())
    }

    /// Fails if the address is the interface's own or a broadcast address: a neighbour cannot have it.
    fn refuse_own(&self, address: IpAddr) -> Result<(), String> {
        if self.addresses().any(|own| own == address) {
            return Err(format!("{address} is the interface's own address: allowed are addresses of other hosts"));
        }
        self.refuse_broadcast(address)
    }

    /// Makes one change by an operator. After an error, nothing has changed.
    fn change(&self, line: &str) -> Result<(), String> {
        let (verb, entry) = Verb::split(line, SYNTAX)?;
        let now = self.noted();
        if verb == Verb::Remove {
            let word = entry.split_ascii_whitespace().next().unwrap_or_default();
            let address = address(word)?;
            if let Some(known) = self.neighbours.look(address) {
                // The neighbour's state may have changed since the line was listed, so all states are accepted.
                let listed = format!(
                    "{} {} {}",
                    address.ip(),
                    known.mac,
                    NeighbourState::ALL.map(NeighbourState::name).join(" ")
                );
                if let Some((_, word)) = foreign_words(entry, &listed).next() {
                    let word = short(word);
                    return Err(format!(
                        "'{word}' differs from the listed line of {0}: write remove {0}",
                        address.ip()
                    ));
                }
            }
            let removed = self.neighbours.remove(address);
            return removed.then_some(()).ok_or_else(|| {
                format!("{} is not a known neighbour: `forebay show table NAME` lists the neighbours", address.ip())
            });
        }
        let entry = entry.trim_ascii_end();
        let (entry, state) = match entry.rsplit_once(|byte: char| byte.is_ascii_whitespace()) {
            Some((before, state)) if !state.contains([':', '-']) => (before, state),
            _ => (entry, "permanent"),
        };
        let (key, mac) = parse(entry)?;
        let address = key.ip();
        let entry = match state {
            "permanent" => Entry::permanent(mac),
            // The listed state of a learned neighbour may be out of date, so the entry becomes stale.
            "stale" | "reachable" | "delay" | "probe" => Entry::stale(mac, now, &self.neighbours.timers),
            other => {
                let other = short(other);
                return Err(format!("'{other}' is not a neighbour state: allowed are permanent and stale"));
            }
        };
        self.refuse_own(address)?;
        if verb == Verb::Add && self.neighbours.look(key).is_some_and(|known| known.state == NeighbourState::Permanent)
        {
            return Err(format!("{address} already exists: write {}", Verb::Replace.form(SYNTAX)));
        }
        self.neighbours.put(key, entry, now).map_err(|_| FULL.to_owned())
    }
}

impl Table for Interface {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        for (at, line) in changes.iter().enumerate() {
            outcome.note(at, self.change(line));
        }
        outcome
    }

    fn len(&self) -> usize {
        self.neighbours.all().len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let first = |line: &str| address(line.split_ascii_whitespace().next().unwrap_or_default());
        let after = after.map(first).transpose()?;
        let all = self.neighbours.all();
        let line =
            |(address, entry): (Address, Entry)| format!("{} {} {}", address.ip(), entry.mac, entry.state.name());
        Ok(all
            .into_iter()
            .filter(|(address, _)| after.is_none_or(|after| *address > after))
            .take(most)
            .map(line)
            .collect())
    }
}
