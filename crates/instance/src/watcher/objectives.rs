//! Events of flows' objectives: missed, and kept again.
//!
//! A flow near its objective misses it in one second and keeps it in the next. Events for single seconds would be of no
//! use. So an event needs several looks, one per second.

use std::collections::{BTreeMap, VecDeque};

use forebay_protocol::{
    event::EventName,
    report::{FlowReport, Report},
};
use forebay_units::{Nanos, PacketRate, Percentile};

use crate::events::{EventLog, NewEvent};

/// The number of last looks in which misses are counted.
const LOOKS: usize = 5;
/// A flow misses its objective if it was late in at least this number of the last [`LOOKS`] looks.
const LATE: usize = 3;
/// A flow keeps its objective again after this number of consecutive looks in which it was not late.
const CLEAN: usize = 5;

/// The last looks at each flow with an objective.
#[derive(Default)]
pub(super) struct Objectives(BTreeMap<String, Looks>);

/// A flow's objectives: the delay in microseconds and its percentile, the packets per second, and the bits per second.
/// `None` for an objective that the flow does not have.
type Objective = (Option<f64>, Option<Percentile>, Option<f64>, Option<f64>);

#[derive(Default)]
struct Looks {
    /// The objective of these looks.
    objective: Objective,
    /// Whether the flow was late, by look. The last look is at the end.
    late: VecDeque<bool>,
    /// Whether the last event for the flow was that it misses its objective.
    is_missed: bool,
}

impl Looks {
    /// Adds a look. Returns the event to record, if the flow now misses its objective or keeps it again.
    fn add(&mut self, is_late: bool) -> Option<EventName> {
        self.late.push_back(is_late);
        if self.late.len() > LOOKS.max(CLEAN) {
            self.late.pop_front();
        }
        let late = self.late.iter().rev().take(LOOKS).filter(|late| **late).count();
        let clean = self.late.iter().rev().take_while(|late| !**late).count();
        let change = match self.is_missed {
            false if late >= LATE => EventName::ObjectiveMissed,
            true if clean >= CLEAN => EventName::ObjectiveKept,
            _ => return None,
        };
        self.is_missed = change == EventName::ObjectiveMissed;
        Some(change)
    }
}

impl Objectives {
    /// Judges each flow by the report of the time since the last look, and records events.
    pub(super) fn look(&mut self, recent: &Report, log: &EventLog) {
        self.0.retain(|name, _| recent.flows.iter().any(|flow| flow.name == *name));
        // Without packets, or without an objective, there is nothing to judge.
        for flow in recent.flows.iter().filter(|flow| flow.kept.is_some() || flow.rate_kept.is_some()) {
            let looks = self.0.entry(flow.name.clone()).or_default();
            let objective = (flow.slo_us, flow.percentile, flow.min_rate_pps, flow.min_rate_bps);
            // A reload has changed the objective, so that earlier looks do not count. `is_missed` stays: a flow that
            // missed the old objective is reported when it keeps the new one.
            if looks.objective != objective {
                looks.objective = objective;
                looks.late.clear();
            }
            let change = looks.add(flow.is_missed());
            change.into_iter().for_each(|name| log.record(event(name, flow)));
        }
    }
}

/// Returns the figures of the last second beside the objectives that they miss.
fn figures(flow: &FlowReport) -> String {
    let micros = |micros: f64| Nanos((micros * 1e3).round() as u64);
    let delay = flow.kept.is_some_and(|kept| !kept).then_some(flow.at_percentile_us).flatten().zip(flow.slo_us);
    let delay = delay.map(|(now, objective)| {
        let percentile = flow.percentile.map_or_else(String::new, |percentile| format!(" at {percentile}"));
        format!("; its delay{percentile} was {}, the objective is {}", micros(now.round()), micros(objective))
    });
    let rate = flow.rate_kept.is_some_and(|kept| !kept).then_some(flow.min_rate_pps).flatten();
    let rate = rate.map(|objective| {
        format!("; its rate was {}, the objective is {}", PacketRate(flow.rate_pps.round()), PacketRate(objective))
    });
    delay.into_iter().chain(rate).collect()
}

fn event(name: EventName, flow: &FlowReport) -> NewEvent {
    let message = match name {
        EventName::ObjectiveKept => {
            format!("flow '{}' kept its objective in each of the last {CLEAN} seconds", flow.name)
        }
        _ => {
            let figures = figures(flow);
            format!("flow '{}' missed its objective in {LATE} of the last {LOOKS} seconds{figures}", flow.name)
        }
    };
    let event =
        NewEvent::new(name, message).with("flow", flow.name.as_str()).with("rate_pps", flow.rate_pps.round() as u64);
    event
        .with_some("slo_us", flow.slo_us)
        .with_some("percentile", flow.percentile)
        .with_some("at_percentile_us", flow.at_percentile_us.map(|micros| micros.round() as u64))
        .with_some("min_rate_pps", flow.min_rate_pps)
        .with_some("min_rate_bps", flow.min_rate_bps)
}

#[cfg(test)]
mod tests {
    use super::super::tests::report;
    use super::*;

    /// Regression: a flow with a new objective was reported to have missed it, because of seconds in which it had
    /// another objective.
    #[test]
    fn a_changed_objective_is_judged_without_earlier_seconds() {
        let (mut objectives, log) = (Objectives::default(), EventLog::default());
        let mut look = |slo_us: f64, is_late: bool| {
            let flow = serde_json::json!({
                "name": "video", "packets": 9, "rate_pps": 9.0, "delay_us": { "samples": 9 }, "slo_us": slo_us,
                "percentile": 99.0, "kept": !is_late,
            });
            let mut report = report();
            report.flows.push(serde_json::from_value(flow).expect("a flow"));
            objectives.look(&report, &log);
            log.recent(9).iter().map(|event| event.event).collect::<Vec<_>>()
        };
        for slo_us in [10.0, 20.0] {
            assert_eq!([look(slo_us, true), look(slo_us, true)], [[], []]);
        }
        assert_eq!(look(20.0, true), [EventName::ObjectiveMissed]);
        for slo_us in [20.0, 30.0] {
            assert!((0..4).all(|_| look(slo_us, false).len() == 1), "not yet kept for five seconds");
        }
        assert_eq!(look(30.0, false), [EventName::ObjectiveMissed, EventName::ObjectiveKept]);
    }

    #[test]
    fn missed_and_kept_take_several_looks() {
        use EventName::{ObjectiveKept, ObjectiveMissed};
        let mut looks = Looks::default();
        let mut add = |text: &str| text.chars().filter_map(|c| looks.add(c == 'x')).collect::<Vec<_>>();
        assert_eq!(add("x.x..x...x..x.."), [], "never three of five");
        assert_eq!(add(".x.x.x"), [ObjectiveMissed]);
        assert_eq!(add("xxxx....x....x"), [], "it is missed already, and never kept for five");
        assert_eq!(add("....."), [ObjectiveKept]);
        assert_eq!(add("xx"), []);
        assert_eq!(add("x"), [ObjectiveMissed]);
    }
}
