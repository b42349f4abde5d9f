use std::collections::BTreeMap;

use forebay_protocol::decision::UnkeptCause;
use forebay_protocol::report::UnkeptReport;
use serde_json::Value;

use super::*;

fn event(name: EventName, field: (&str, &str), time: &str) -> Event {
    Event {
        id: 1,
        time: time.to_owned(),
        level: name.level(),
        event: name,
        pipeline: "gw".to_owned(),
        fields: BTreeMap::from([(field.0.to_owned(), Value::from(field.1))]),
        message: format!("{name} of {}", field.1),
    }
}

fn now() -> String {
    jiff::Timestamp::now().to_string()
}

fn active(alarms: &Alarms) -> Vec<(AlarmName, String)> {
    alarms.list().into_iter().map(|alarm| (alarm.alarm, alarm.subject)).collect()
}

#[test]
fn an_event_begins_an_alarm_and_its_opposite_ends_it() {
    let alarms = Alarms::new(Arc::default());
    for (begins, ends, field, name) in [
        (EventName::LinkDown, EventName::LinkUp, "port", AlarmName::LinkDown),
        (EventName::PortLost, EventName::PortRemade, "port", AlarmName::PortLost),
        (EventName::ObjectiveMissed, EventName::ObjectiveKept, "flow", AlarmName::ObjectiveMissed),
    ] {
        // Also an old event counts, because its opposite has not come.
        alarms.event("gw", &event(begins, (field, "a"), "2020-01-01T00:00:00Z"));
        alarms.event("gw", &event(ends, (field, "b"), &now()));
        assert_eq!(active(&alarms), [(name, "a".to_owned())]);
        assert!(alarms.list()[0].cause.ends_with(" of a") && !alarms.list()[0].advice.is_empty());
        alarms.event("gw", &event(ends, (field, "a"), &now()));
        assert_eq!(active(&alarms), []);
    }
}

#[test]
fn an_old_event_without_an_opposite_is_no_alarm() {
    let alarms = Alarms::new(Arc::default());
    alarms.event("gw", &event(EventName::PoolLow, ("port", ""), "2020-01-01T00:00:00Z"));
    assert_eq!(active(&alarms), []);
    alarms.event("gw", &event(EventName::PoolLow, ("port", ""), &now()));
    assert_eq!(active(&alarms), [(AlarmName::PoolLow, String::new())]);
}

#[test]
fn a_pipeline_that_ends_takes_its_alarms_along_unless_it_was_killed() {
    let alarms = Alarms::new(Arc::default());
    for (status, expected) in
        [(Status::Ended, vec![]), (Status::Killed, vec![(AlarmName::InstanceKilled, String::new())])]
    {
        alarms.event("gw", &event(EventName::LinkDown, ("port", "a"), &now()));
        alarms.event("other", &event(EventName::LinkDown, ("port", "a"), &now()));
        alarms.end("gw", 7, status);
        alarms.end("other", 7, Status::Ended);
        assert_eq!(active(&alarms), expected);
        alarms.begin("gw");
        assert_eq!(active(&alarms), []);
    }
}

#[test]
fn silence_is_reported_once() {
    let alarms = Alarms::new(Arc::default());
    let changes: Vec<_> = [Status::Running, Status::Silent, Status::Silent, Status::Running, Status::Running]
        .map(|status| alarms.status("gw", 7, status, Duration::from_millis(1_900)))
        .to_vec();
    assert_eq!(changes, [false, true, false, true, false]);
}

#[test]
fn losses_and_objectives_come_from_ticks() {
    let alarms = Alarms::new(Arc::default());
    let dropped = [("fw.denied", 5), ("out.refused", 6), ("nat.backpressure", 7)];
    let tick = Tick {
        dropped: dropped.map(|(reason, count)| (reason.to_owned(), count)).into(),
        lost: 1,
        interval_s: 0.5,
        unkept: Some(vec![UnkeptReport {
            flow: "a".to_owned(),
            least_us: 90.0,
            slo_us: 50.0,
            cause: UnkeptCause::Slow,
        }]),
        ..Tick::default()
    };
    alarms.tick("gw", &tick);
    let expected = [
        (AlarmName::PacketsLost, "nat.backpressure"),
        (AlarmName::PacketsLost, "out.refused"),
        (AlarmName::PacketsLost, "ports"),
        (AlarmName::ObjectiveOutOfReach, "a"),
    ];
    let mut found = active(&alarms);
    found.sort_by_key(|(name, subject)| (advice::severity(*name), subject.clone()));
    assert!(alarms.list()[0].cause.contains(" in the last 0.5 s"), "{:?}", alarms.list());
    assert_eq!(found, expected.map(|(name, subject)| (name, subject.to_owned())));
}

/// Regression: near its limit, an objective was out of reach and in reach several times per second, and its alarm began
/// and ended as often.
#[test]
fn an_objective_must_be_in_reach_for_some_time_before_its_alarm_ends() {
    let alarms = Alarms::new(Arc::default());
    let unkept = |cause| UnkeptReport { flow: "a".to_owned(), least_us: 90.0, slo_us: 50.0, cause };
    let (start, second) = (Instant::now(), Duration::from_secs(1));
    let is_active = |seconds: u32| {
        alarms.look(start + second * seconds);
        !active(&alarms).is_empty()
    };
    alarms.unkept("gw", &[unkept(UnkeptCause::Slow)]);
    alarms.unkept("gw", &[]);
    assert!(is_active(9));
    let since = alarms.list()[0].since_ms;
    alarms.unkept("gw", &[unkept(UnkeptCause::Load)]);
    assert!(is_active(99), "it is out of reach again");
    let [alarm] = &alarms.list()[..] else { panic!("one alarm") };
    assert_eq!(alarm.since_ms, since);
    assert_eq!(
        alarm.cause,
        "no trigger keeps the objective of 50us: more packets arrive than a worker has time for, even in the largest \
         batches"
    );
    alarms.unkept("gw", &[]);
    assert!(!is_active(12));
}

/// Regression: viewers kept the first cause of an alarm, for example a count of dropped packets, for as long as the
/// alarm was active.
#[test]
fn a_changed_cause_is_sent_to_viewers_at_intervals() {
    let events: Arc<Events> = Arc::default();
    let (mut queue, _) = events.subscribe();
    let alarms = Alarms::new(events);
    let mut sent = || -> Vec<String> {
        let data = std::iter::from_fn(|| queue.try_recv().ok()).map(|event| event.data.clone());
        data.map(|data| serde_json::from_str::<Value>(&data).expect("JSON")["alarm"]["cause"].to_string()).collect()
    };
    let lose = |count| alarms.tick("gw", &Tick { lost: count, interval_s: 1.0, ..Tick::default() });
    lose(1);
    let [cause] = &sent()[..] else { panic!("one event") };
    assert!(cause.contains(" 1 packets"), "{cause}");
    lose(2);
    let start = Instant::now();
    alarms.look(start);
    assert!(sent().is_empty(), "too soon");
    lose(3);
    alarms.look(start + AGAIN);
    let [cause] = &sent()[..] else { panic!("one event") };
    assert!(cause.contains(" 3 packets"), "{cause}");
    alarms.look(start + AGAIN * 2);
    assert!(sent().is_empty(), "viewers have it already");
}
