//! The event that a frame is longer than a packet of the pool holds.
//!
//! A device that joins frames (GRO, LRO), or a sender that leaves their cutting to its interface (TSO), makes frames of
//! up to 64 KiB. Without the event a run would lose them in silence.

use std::collections::BTreeSet;
use std::io::Write;

use forebay_graph::OVERSIZE;
use forebay_graph::report::Report;
use forebay_packet::MAX_FRAME;

use crate::format::whole;
use crate::printed;

/// Ports whose event is printed already.
#[derive(Default)]
pub(crate) struct Oversize(BTreeSet<String>);

impl Oversize {
    /// Prints an event for each port that lost its first such frame.
    pub(crate) fn print(&mut self, report: &Report) {
        for event in self.events(report) {
            // Without a standard error the report still counts the frames.
            let _ = writeln!(printed::err(), "{event}");
        }
    }

    fn events(&mut self, report: &Report) -> Vec<String> {
        let lossy = report.ports.iter().filter(|port| port.skipped.contains_key(OVERSIZE));
        let new = lossy.filter(|port| self.0.insert(port.name.clone()));
        new.map(|port| match port.longest_oversize {
            Some(longest) => event(&port.name, longest),
            None => event_without_length(&port.name),
        })
        .collect()
    }
}

fn event(port: &str, longest: u64) -> String {
    let length = whole(longest);
    let what = format!("port '{port}': a frame of {length} bytes is longer than a packet holds and is lost (oversize)");
    if longest <= MAX_FRAME as u64 {
        format!("{what}: set `pool: {{ frame: {longest} }}` (allowed are 64 to {MAX_FRAME})")
    } else {
        format!(
            "{what}: `pool: {{ frame: {MAX_FRAME} }}` is the most; limit joined frames (GRO, TSO) where they are made"
        )
    }
}

/// The event of a port whose frames the kernel drops (`af_xdp`): it counts them and does not say how long they are.
fn event_without_length(port: &str) -> String {
    format!(
        "port '{port}': a frame is longer than a packet of its memory holds and is lost (oversize): set \
         `memory: {{ frame: BYTES }}` of the port, or limit joined frames (GRO, TSO) where they are made"
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
}
