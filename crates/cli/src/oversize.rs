//! The event that a frame is longer than a packet of the pool, or a block of a ring, holds.
//!
//! A device that joins frames (GRO, LRO), or a sender that leaves their cutting to its interface (TSO), makes frames of
//! up to 64 KiB. Without the event a run would lose them in silence.

use std::collections::BTreeMap;
use std::io::Write;

use forebay_graph::report::{PortReport, Report};
use forebay_graph::{OVER_BLOCK, OVERSIZE};
use forebay_packet::MAX_FRAME;

use crate::format::whole;
use crate::printed;

/// Ports and reasons whose event is printed already, with the length that it named.
#[derive(Default)]
pub(crate) struct Oversize(BTreeMap<(String, &'static str), Option<u64>>);

impl Oversize {
    /// Prints an event for each port of the run called `name` that lost its first such frame.
    pub(crate) fn print(&mut self, name: &str, report: &Report) {
        print(name, &self.events(report));
    }

    /// The same at the end of the run, which names the longest frame where a longer one came after the event.
    pub(crate) fn print_last(&mut self, name: &str, report: &Report) {
        print(name, &self.last_events(report));
    }

    fn events(&mut self, report: &Report) -> Vec<String> {
        let mut events = Vec::new();
        for port in &report.ports {
            for reason in [OVERSIZE, OVER_BLOCK] {
                let key = (port.name.clone(), reason);
                if port.skipped.contains_key(reason) && !self.0.contains_key(&key) {
                    self.0.insert(key, port.longest_oversize);
                    events.push(if reason == OVERSIZE { event(port) } else { event_of_block(port) });
                }
            }
        }
        events
    }

    fn last_events(&mut self, report: &Report) -> Vec<String> {
        let is_longer = |port: &&PortReport| {
            let named = self.0.get(&(port.name.clone(), OVERSIZE));
            named.is_some_and(|named| port.longest_oversize > *named)
        };
        let longest = report.ports.iter().filter(is_longer).filter_map(|port| {
            let longest = port.longest_oversize?;
            let (name, length) = (&port.name, whole(longest));
            Some(format!(
                "port '{name}': the longest frame that is lost (oversize) has {length} bytes: {}",
                remedy(longest)
            ))
        });
        let longest: Vec<_> = longest.collect();
        let mut events = self.events(report);
        events.extend(longest);
        events
    }
}

fn print(name: &str, events: &[String]) {
    for event in events {
        // Without a standard error the report still counts the frames.
        let _ = writeln!(printed::err(), "{name}: {event}");
    }
}

fn event(port: &PortReport) -> String {
    let name = &port.name;
    let Some(longest) = port.longest_oversize else {
        // The kernel drops such frames of `af_xdp`: it counts them and does not say how long they are.
        return format!(
            "port '{name}': a frame is longer than a packet of its memory holds and is lost (oversize): set \
             `memory: {{ frame: BYTES }}` of the port, or limit joined frames (GRO, TSO) where they are made"
        );
    };
    let length = whole(longest);
    let remedy = remedy(longest);
    format!("port '{name}': a frame of {length} bytes is longer than a packet holds and is lost (oversize): {remedy}")
}

fn remedy(longest: u64) -> String {
    if longest <= MAX_FRAME as u64 {
        format!("set `pool: {{ frame: {longest} }}` (allowed are 64 to {MAX_FRAME})")
    } else {
        format!("`pool: {{ frame: {MAX_FRAME} }}` is the most; limit joined frames (GRO, TSO) where they are made")
    }
}

/// The event of a port whose frames the kernel cuts (`af_packet`): `pool: { frame }` does not help.
fn event_of_block(port: &PortReport) -> String {
    format!(
        "port '{}': a frame is longer than a block of its ring holds and is lost ({OVER_BLOCK}): set \
         `ring: {{ block: 128KiB }}` of the port, which holds frames of up to 64 KiB (allowed are up to 4MiB)",
        port.name
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::tests::report;

    #[test]
    fn the_first_oversize_frame_of_a_port_is_an_event_that_names_what_to_set() {
        let (mut oversize, mut seen) = (Oversize::default(), report(1));
        assert!(oversize.events(&seen).is_empty());
        seen.ports[0].skipped.insert(OVERSIZE.to_owned(), 3);
        seen.ports[0].longest_oversize = Some(32_000);
        let event = "port 'in': a frame of 32 000 bytes is longer than a packet holds and is lost (oversize): \
                     set `pool: { frame: 32000 }` (allowed are 64 to 65343)";
        assert_eq!(oversize.events(&seen), [event]);
        assert!(oversize.events(&seen).is_empty(), "once");
        assert!(oversize.last_events(&seen).is_empty(), "no longer one came");
        seen.ports[0].longest_oversize = Some(48_000);
        assert!(oversize.events(&seen).is_empty(), "once");
        let last = "port 'in': the longest frame that is lost (oversize) has 48 000 bytes: \
                    set `pool: { frame: 48000 }` (allowed are 64 to 65343)";
        assert_eq!(oversize.last_events(&seen), [last]);
        seen.ports[0].name = "other".to_owned();
        seen.ports[0].longest_oversize = Some(65_549);
        let events = oversize.events(&seen);
        assert!(events.len() == 1 && events[0].contains("`pool: { frame: 65343 }` is the most"), "{events:?}");
        seen.ports[0].name = "xdp".to_owned();
        seen.ports[0].longest_oversize = None;
        let events = oversize.events(&seen);
        let begins = "port 'xdp': a frame is longer than a packet of its memory holds and is lost (oversize): set \
                      `memory: { frame: BYTES }`";
        assert!(events.len() == 1 && events[0].starts_with(begins), "{events:?}");
    }

    /// The event of a frame that a block cut named `pool: { frame }`, which does not help.
    #[test]
    fn a_frame_that_a_block_cut_names_the_block() {
        let (mut oversize, mut seen) = (Oversize::default(), report(1));
        seen.ports[0].skipped.insert(OVER_BLOCK.to_owned(), 3);
        let events = oversize.last_events(&seen);
        let begins = "port 'in': a frame is longer than a block of its ring holds and is lost (over_block): set \
                      `ring: { block: 128KiB }` of the port";
        assert!(events.len() == 1 && events[0].starts_with(begins), "{events:?}");
        assert!(oversize.last_events(&seen).is_empty(), "once");
    }
}
