//! Tests that each event is written as one line, whatever text comes from outside, and that a parser can read the line.

use std::time::Duration;

use proptest::prelude::*;

use forebay_protocol::event::{Event, EventName, is_control};

use super::*;

/// Returns the pairs of a line in logfmt, as another program reads them.
fn pairs(line: &str) -> Vec<(String, String)> {
    let (mut pairs, mut rest) = (Vec::new(), line);
    while !rest.is_empty() {
        let (name, value) = rest.split_once('=').expect("a pair");
        let (text, more) = if value.starts_with('"') {
            let mut values = serde_json::Deserializer::from_str(value).into_iter::<String>();
            let text = values.next().expect("a string").expect("a string");
            (text, &value[values.byte_offset()..])
        } else {
            let end = value.find(' ').unwrap_or(value.len());
            (value[..end].to_owned(), &value[end..])
        };
        pairs.push((name.to_owned(), text));
        rest = more.strip_prefix(' ').unwrap_or(more);
    }
    pairs
}

fn recorded(new: NewEvent) -> Event {
    let log = EventLog::default();
    log.set_pipeline("gw");
    log.record(new);
    log.after(0).remove(0)
}

#[test]
fn an_event_is_a_line_in_both_formats() {
    let new = NewEvent::new(EventName::Oversize, "a frame of 9 000 bytes is lost").with("port", "in");
    let mut event = recorded(new.with("count", 3).with("interface", "a b").with_some("none", None::<u64>));
    assert!(event.time.parse::<jiff::Timestamp>().is_ok() && event.time.len() == "2026-01-02T03:04:05.678Z".len());
    event.time = "2026-01-02T03:04:05.678Z".to_owned();
    assert_eq!(
        event.to_logfmt(),
        "time=2026-01-02T03:04:05.678Z level=warn event=oversize pipeline=gw count=3 interface=\"a b\" port=in \
         msg=\"a frame of 9 000 bytes is lost\""
    );
    assert_eq!(
        event.to_json(),
        "{\"id\":1,\"time\":\"2026-01-02T03:04:05.678Z\",\"level\":\"warn\",\"event\":\"oversize\",\"pipeline\":\"gw\",\
         \"count\":3,\"interface\":\"a b\",\"port\":\"in\",\"msg\":\"a frame of 9 000 bytes is lost\"}"
    );
    assert_eq!(serde_json::from_str::<Event>(&event.to_json()).expect("JSON"), event);
}

#[test]
fn no_text_from_outside_forges_a_line() {
    let forged = "x\"\ntime=2026-01-02T03:04:05.678Z level=error event=port_lost msg=\"\u{1b}[2J\r\u{2028}\u{202e}\\";
    let event = recorded(NewEvent::new(EventName::TableChanged, forged).with("table", forged));
    for line in [event.to_logfmt(), event.to_json()] {
        assert!(line.lines().count() == 1 && !line.contains(|c| is_control(c) || c == '\n'), "{line:?}");
    }
    let read = pairs(&event.to_logfmt());
    let names: Vec<_> = read.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["time", "level", "event", "pipeline", "table", "msg"]);
    assert!(read[4].1 == forged && read[5].1 == forged, "{read:?}");
    assert_eq!(serde_json::from_str::<Event>(&event.to_json()).expect("JSON"), event);
}

proptest! {
    #[test]
    fn any_text_is_read_again(text in "(\\PC|\\p{Cc}|[\"\\\\=\u{2028}\u{202e}])*") {
        let event = recorded(NewEvent::new(EventName::LinkDown, text.clone()).with("port", text.clone()));
        let line = event.to_logfmt();
        prop_assert!(!line.contains(|c| is_control(c) || c == '\n' || c == '\t'));
        let read = pairs(&line);
        prop_assert_eq!(read.len(), 6);
        prop_assert_eq!(&read[4], &("port".to_owned(), text.clone()));
        prop_assert_eq!(&read[5], &("msg".to_owned(), text));
        prop_assert_eq!(serde_json::from_str::<Event>(&event.to_json()).expect("JSON"), event);
    }
}

#[test]
fn a_log_keeps_the_last_events_with_increasing_numbers() {
    let log = EventLog::default();
    assert!(log.after(0).is_empty() && log.recent(3).is_empty());
    assert!(log.wait_after(0, Duration::from_millis(1)).is_empty());
    for number in 1..=KEPT + 2 {
        log.record(NewEvent::new(EventName::LinkUp, number.to_string()));
    }
    let ids = |events: Vec<Event>| events.iter().map(|event| event.id).collect::<Vec<_>>();
    let last = KEPT as u64 + 2;
    assert_eq!(log.after(0).len(), KEPT);
    assert_eq!(log.after(0)[0].id, 3, "the oldest went");
    assert_eq!(ids(log.after(last - 2)), [last - 1, last]);
    assert_eq!(ids(log.recent(2)), [last - 1, last]);
    assert_eq!(ids(log.wait_after(last - 1, Duration::from_secs(60))), [last]);
    assert!(log.after(last).is_empty() && log.after(u64::MAX).is_empty());
    assert_eq!(log.recent(1)[0].pipeline, "");
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| log.wait_after(last, Duration::from_secs(600)));
        log.record(NewEvent::new(EventName::LinkDown, ""));
        assert_eq!(ids(waits.join().expect("no panic")), [last + 1]);
    });
}

#[test]
fn a_long_text_is_cut() {
    let long = "é".repeat(5_000);
    let event = recorded(NewEvent::new(EventName::ReloadRefused, long.clone()).with("file", long));
    let shown = format!("{} …", "é".repeat(2_048));
    assert!(event.message == shown && event.fields["file"] == shown);
}
