//! Tests each event that packets cause, and its limit.

use serde_json::{Value, json};

use super::*;

/// Returns a report of one port and one module, with all counts at 0.
pub(super) fn report() -> Report {
    let timing = json!({ "ticks_per_packet": null, "ticks_per_batch": null, "batch_mean": null });
    let port = json!({
        "name": "in", "kind": "af_packet", "received": 0, "sent": 0, "dropped": 0, "refused": 0, "errors": 0,
        "receiving": timing, "sending": timing,
    });
    let module = json!({
        "name": "lan", "function": "interface_in", "workers": [0], "packets": 0, "rate_pps": 0.0, "batches": 0,
        "batch_mean": null, "batch_sizes": [0, 0, 0, 0, 0, 0, 0, 0, 0], "trigger": 0, "hold_us": null, "weight": null,
        "ticks_per_packet": null, "ticks_per_batch": null, "share": null, "dropped": 0,
        "counters": { "neighbours": { "conflicts": 0, "no_room": 0, "evicted": 0 } },
    });
    let report = json!({
        "pipeline": "edge", "forebay": "0", "kind": "measured", "cpu": { "model": "a CPU", "tsc_ghz": 2.0 },
        "duration_s": 1.0, "modules": [module], "flows": [], "workers": [], "ports": [port], "arrival_clocks": [],
        "pool_exhausted": 0,
        "packets": {
            "in": 0, "lost": 0, "created": {}, "out": 0, "dropped": {}, "consumed": {}, "queued": 0, "held": 0,
            "in_flight": 0,
        },
    });
    serde_json::from_value(report).expect("a report")
}

/// Records events in consecutive looks.
struct Looks {
    log: EventLog,
    limits: Limits,
    start: Instant,
    seen: u64,
}

impl Looks {
    fn new() -> Self {
        Self { log: EventLog::default(), limits: Limits::new(), start: Instant::now(), seen: 0 }
    }

    fn at(&mut self, seconds: u64, report: &Report, is_last: bool) -> Vec<Value> {
        limited(report, &mut self.limits, &self.log, self.start + Duration::from_secs(seconds), is_last);
        let events = self.log.after(self.seen);
        self.seen = events.last().map_or(self.seen, |last| last.id);
        events.iter().map(|event| serde_json::to_value(event).expect("JSON")).collect()
    }
}

#[test]
fn the_first_is_an_event_at_once_and_more_are_counted() {
    let (mut looks, mut seen) = (Looks::new(), report());
    assert!(looks.at(0, &seen, false).is_empty());
    seen.ports[0].skipped.insert(OVERSIZE.to_owned(), 3);
    seen.ports[0].longest_oversize = Some(32_000);
    let events = looks.at(1, &seen, false);
    let message = "port 'in': a frame of 32000 bytes is longer than a packet holds and is lost (oversize): set \
                   `pool: { frame: 32000 }` (allowed are 64 to 65343)";
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["msg"], &events[0]["count"], &events[0]["longest"]),
        (&json!(message), &json!(3), &json!(32_000))
    );
    seen.ports[0].skipped.insert(OVERSIZE.to_owned(), 10);
    seen.ports[0].longest_oversize = Some(48_000);
    assert!(looks.at(2, &seen, false).is_empty(), "too early");
    let events = looks.at(11, &seen, false);
    assert_eq!((&events[0]["count"], &events[0]["longest"]), (&json!(7), &json!(48_000)));
    assert!(looks.at(60, &seen, true).is_empty(), "nothing new");
    seen.ports[0].skipped.insert(OVERSIZE.to_owned(), 11);
    seen.ports[0].longest_oversize = Some(65_549);
    let events = looks.at(61, &seen, false);
    assert!(
        events[0]["msg"].as_str().is_some_and(|text| text.contains("the largest allowed is `pool: { frame: 65343 }`")),
        "{events:?}"
    );
    seen.ports[0].skipped.insert(OVERSIZE.to_owned(), 12);
    seen.ports[0].longest_oversize = None;
    let events = looks.at(62, &seen, true);
    let begins = "port 'in': a frame is longer than a packet of its memory holds and is lost (oversize): set `memory: \
                  { frame: BYTES }`";
    assert!(events[0]["msg"].as_str().is_some_and(|text| text.starts_with(begins)), "at the end: {events:?}");
}

/// Regression: the event of a frame that is longer than a block advised `pool: { frame }`, which does not help.
#[test]
fn a_frame_that_a_block_cut_names_the_block() {
    let (mut looks, mut seen) = (Looks::new(), report());
    seen.ports[0].skipped.insert(OVER_BLOCK.to_owned(), 3);
    let events = looks.at(0, &seen, false);
    let begins = "port 'in': a frame is longer than a block of its ring holds and is lost (over_block): set `ring: { \
                  block: 128KiB }` of the port";
    assert!(events.len() == 1 && events[0]["msg"].as_str().is_some_and(|text| text.starts_with(begins)), "{events:?}");
}

#[test]
fn conflicts_floods_pools_and_lost_lines_are_events() {
    let (mut looks, mut seen) = (Looks::new(), report());
    let neighbours = seen.modules[0].counters.get_mut("neighbours").expect("it has them");
    neighbours.insert("conflicts".to_owned(), 2);
    neighbours.insert("no_room".to_owned(), 5);
    neighbours.insert("evicted".to_owned(), 7);
    seen.packets.dropped.insert("lan.answers_limited".to_owned(), 11);
    seen.packets.dropped.insert("other.not_asked".to_owned(), 13);
    seen.pool_exhausted = 17;
    seen.lost_lines.push(LostLines {
        module: "nat".to_owned(),
        lines: "log".to_owned(),
        over_rate: 0,
        lost: 19,
        unwritten: 23,
    });
    let events = looks.at(0, &seen, false);
    let names: Vec<_> = events.iter().map(|event| (event["event"].clone(), event["count"].clone())).collect();
    let expected = [("address_conflict", 2), ("neighbour_flood", 23), ("pool_low", 17), ("log_lost", 42)];
    assert_eq!(names, expected.map(|(name, count)| (json!(name), json!(count))));
    assert!(events.iter().all(|event| event["level"] == "warn"));
    assert_eq!(
        (&events[0]["module"], &events[1]["module"], &events[3]["module"]),
        (&json!("lan"), &json!("lan"), &json!("nat"))
    );
    assert_eq!((&events[3]["lost"], &events[3]["unwritten"]), (&json!(19), &json!(23)));
    assert!(looks.at(1, &seen, true).is_empty());
}

/// Regression: the limits for the names of all earlier configurations were kept.
#[test]
fn limits_of_modules_that_are_gone_go() {
    let (mut looks, mut seen) = (Looks::new(), report());
    for at in 0..50 {
        seen.modules[0].name = format!("lan{at}");
        seen.ports[0].name = format!("in{at}");
        seen.modules[0].counters.get_mut("neighbours").expect("it has them").insert("conflicts".to_owned(), 1);
        seen.ports[0].skipped.insert(OVERSIZE.to_owned(), 1);
        assert_eq!(looks.at(at, &seen, false).len(), 2);
        assert!(looks.at(at, &seen, false).is_empty(), "nothing new");
        assert_eq!(looks.limits.len(), 2);
    }
}
