//! Events of ports' interfaces: down, up, lost, remade.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_graph::{LinkCounters, LinkState, PortCounters, Telemetry};
use forebay_protocol::event::EventName;

use crate::events::{EventLog, NewEvent};

/// The interfaces of a run's ports, as they were at the last look.
#[derive(Default)]
pub(super) struct Links(BTreeMap<String, Link>);

/// The interface of a port.
struct Link {
    /// The counters of the port. A reload that opens the port again replaces them.
    counters: Arc<PortCounters>,
    seen: Seen,
}

/// The state of an interface at the last look.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    state: LinkState,
    /// The number of times that the interface went down.
    downs: u64,
    /// The number of times that the interface disappeared.
    losses: u64,
}

impl Seen {
    fn of(link: &LinkCounters) -> Self {
        // The state is read after the counts. A change between the two reads is then in the counts of the next look.
        let (downs, losses) = (link.downs(), link.losses());
        Self { state: link.state(), downs, losses }
    }
}

impl Links {
    /// Compares the ports of these workers with the last look, and records an event for each change.
    pub(super) fn look(&mut self, workers: &[Arc<Telemetry>], log: &EventLog) {
        let ports = || workers.iter().flat_map(|worker| &worker.ports);
        self.0.retain(|name, _| ports().any(|port| port.name == *name));
        for port in ports() {
            let now = Seen::of(&port.counters.link);
            if now.state == LinkState::Unknown {
                // The port has no interface, or another worker has the port.
                continue;
            }
            let counters = || Arc::clone(&port.counters);
            let link =
                self.0.entry(port.name.clone()).or_insert_with(|| Link { counters: counters(), seen: Seen::default() });
            if !Arc::ptr_eq(&link.counters, &port.counters) {
                // A reload has opened the port again: its counters begin at 0, and the interface is the same.
                (link.counters, link.seen.downs, link.seen.losses) = (counters(), 0, 0);
            }
            changes(link.seen, now).into_iter().for_each(|name| log.record(event(name, &port.name, now.state)));
            link.seen = now;
        }
    }
}

/// Returns the events between two looks at one interface, in the order in which they happened.
fn changes(before: Seen, now: Seen) -> Vec<EventName> {
    let is_bad = |state| matches!(state, LinkState::NoCarrier | LinkState::Down);
    let (is_gone, was_gone) = (now.state == LinkState::Gone, before.state == LinkState::Gone);
    let was_lost = now.losses > before.losses || is_gone && !was_gone;
    let is_remade = (was_lost || was_gone) && !is_gone;
    // An interface that disappears goes down first, which is no separate event.
    let was_down = now.downs > before.downs && !was_lost && !is_gone;
    let went_down = was_down || is_bad(now.state) && now.state != before.state;
    let came_up = now.state == LinkState::Up && (went_down || is_bad(before.state) && !is_remade);
    let all = [
        (was_lost, EventName::PortLost),
        (is_remade, EventName::PortRemade),
        (went_down, EventName::LinkDown),
        (came_up, EventName::LinkUp),
    ];
    all.into_iter().filter(|(happened, _)| *happened).map(|(_, name)| name).collect()
}

fn event(name: EventName, port: &str, state: LinkState) -> NewEvent {
    let (why, text) = match (name, state) {
        (EventName::PortLost, _) => {
            (None, "its interface is gone: the port will use the next interface with this name")
        }
        (EventName::PortRemade, _) => (None, "its interface is there again, and the port uses it"),
        (EventName::LinkUp, _) => (None, "its interface is up again"),
        (_, LinkState::Down) => (Some("down"), "its interface is down: run `ip link set NAME up`"),
        (_, LinkState::NoCarrier) => (Some("no_carrier"), "its interface has no carrier: nothing is at its other end"),
        _ => (Some("short"), "its interface was down for less than 200 ms"),
    };
    NewEvent::new(name, format!("port '{port}': {text}")).with("port", port).with_some("why", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(state: LinkState, downs: u64, losses: u64) -> Seen {
        Seen { state, downs, losses }
    }

    #[test]
    fn each_change_is_an_event_also_between_two_looks() {
        use EventName::{LinkDown, LinkUp, PortLost, PortRemade};
        use LinkState::{Down, Gone, NoCarrier, Unknown, Up};
        for (before, now, expected) in [
            (seen(Unknown, 0, 0), seen(Up, 0, 0), vec![]),
            (seen(Unknown, 0, 0), seen(NoCarrier, 1, 0), vec![LinkDown]),
            (seen(Up, 0, 0), seen(Up, 0, 0), vec![]),
            (seen(Up, 0, 0), seen(Down, 1, 0), vec![LinkDown]),
            (seen(Down, 1, 0), seen(Down, 1, 0), vec![]),
            (seen(Down, 1, 0), seen(NoCarrier, 2, 0), vec![LinkDown]),
            (seen(NoCarrier, 2, 0), seen(Up, 2, 0), vec![LinkUp]),
            (seen(Up, 2, 0), seen(Up, 3, 0), vec![LinkDown, LinkUp]),
            (seen(Up, 2, 0), seen(Gone, 2, 1), vec![PortLost]),
            (seen(Down, 2, 0), seen(Gone, 2, 1), vec![PortLost]),
            (seen(Gone, 2, 1), seen(Gone, 2, 1), vec![]),
            (seen(Gone, 2, 1), seen(Up, 2, 1), vec![PortRemade]),
            (seen(Gone, 2, 1), seen(NoCarrier, 3, 1), vec![PortRemade, LinkDown]),
            (seen(Gone, 2, 1), seen(Gone, 2, 2), vec![PortLost]),
            (seen(Up, 2, 1), seen(Up, 2, 2), vec![PortLost, PortRemade]),
            (seen(Up, 2, 1), seen(Up, 3, 2), vec![PortLost, PortRemade]),
            // A reload has replaced the counters of an interface that was down before.
            (seen(Down, 0, 0), seen(Up, 0, 0), vec![LinkUp]),
            (seen(Down, 0, 0), seen(Down, 1, 0), vec![LinkDown]),
        ] {
            assert_eq!(changes(before, now), expected, "{before:?} {now:?}");
        }
    }

    #[test]
    fn an_event_names_its_port_and_why() {
        let log = EventLog::default();
        log.record(event(EventName::LinkDown, "wan", LinkState::NoCarrier));
        log.record(event(EventName::PortRemade, "wan", LinkState::Up));
        let lines: Vec<_> = log.after(0).iter().map(|event| event.to_logfmt()[30..].to_owned()).collect();
        assert_eq!(
            lines,
            [
                "level=warn event=link_down port=wan why=no_carrier msg=\"port 'wan': its interface has no carrier: \
                 nothing is at its other end\"",
                "level=info event=port_remade port=wan msg=\"port 'wan': its interface is there again, and the port \
                 uses it\""
            ]
        );
    }
}
