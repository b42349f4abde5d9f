//! Alarms: each begins and ends with its cause. And the history, whose figures are those of the counters.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::stream::Viewer;
use super::{EDGE, INSTANCE, QUIET, Site, list};
use crate::server::{Pipeline, wait_for};

/// Returns the active alarm of this name.
fn alarm(site: &Site, name: &str) -> Option<Value> {
    let response = site.server.get("/api/v1/alarms");
    list(&response.json(), "alarms").into_iter().find(|alarm| alarm["alarm"] == name)
}

/// Checks the fields of an alarm of the pipeline, and that its cause and its advice contain these words.
fn check(alarm: &Value, severity: &str, subject: &str, cause: &str, advice: &str) {
    assert_eq!(
        (&alarm["severity"], &alarm["instance"], &alarm["subject"]),
        (&json!(severity), &json!("edge"), &json!(subject))
    );
    assert!(alarm["cause"].as_str().is_some_and(|text| text.contains(cause)), "{alarm}");
    assert!(alarm["advice"].as_str().is_some_and(|text| text.contains(advice)), "{alarm}");
    assert!(alarm["since_ms"].as_i64() > Some(1_600_000_000_000), "{alarm}");
}

/// Returns whether the events of an alarm say in turn that it began and that it ended.
fn alternate(events: &[(String, bool)], name: &str) -> bool {
    let mut is_active = false;
    events.iter().filter(|(of, _)| of == name).all(|(_, active)| {
        let is_change = *active != is_active;
        is_active = *active;
        is_change
    }) && !is_active
}

/// Returns the beginnings and ends of alarms up to the first one for which `is_last` is true.
fn alarms_until(viewer: &mut Viewer, is_last: impl Fn(&str, bool) -> bool) -> Vec<(String, bool)> {
    let change = |data: &Value| {
        let name = data["alarm"]["alarm"].as_str().unwrap_or_default().to_owned();
        (name, data["active"].as_bool().unwrap_or_default())
    };
    let events = viewer.until("alarm", |event| {
        let (name, is_active) = change(&event.data);
        event.name == "alarm" && is_last(&name, is_active)
    });
    events.iter().filter(|event| event.name == "alarm").map(|event| change(&event.data)).collect()
}

#[test]
fn a_missed_objective_is_an_alarm_until_the_objective_changes() {
    let text = EDGE.replace("slo: 10s", "slo: 1ns");
    let site = Site::start(&text);
    let mut viewer = Viewer::open(&site.server, "", None);
    let first = viewer.next();
    wait_for("the alarm", || alarm(&site, "objective_missed").is_some());
    let missed = alarm(&site, "objective_missed").expect("the flow takes longer than 1 ns");
    check(&missed, "warning", "video", "'video' missed its objective", "objective");
    let overview = site.read("");
    assert_eq!((&overview["objectives"], &overview["objectives_missed"]), (&json!(1), &json!(1)));
    assert!(overview["alarms"].as_u64() > Some(0));
    assert!(site.server.get("/api/v1/instances").json()["alarms"].as_u64() > Some(0));
    assert_eq!(site.put("*", EDGE).status, 200);
    wait_for("its end", || alarm(&site, "objective_missed").is_none());
    assert_eq!(site.read("")["objectives_missed"], 0);
    let mut events = alarms_until(&mut viewer, |name, is_active| name == "objective_missed" && !is_active);
    if list(&first.data, "alarms").iter().any(|alarm| alarm["alarm"] == "objective_missed") {
        // The flow missed its objective before the viewer came.
        events.insert(0, ("objective_missed".to_owned(), true));
    }
    assert!(alternate(&events, "objective_missed"), "{events:?}");
}

#[test]
fn a_silent_and_a_killed_pipeline_are_alarms_until_it_runs_again() {
    let mut site = Site::start(EDGE);
    let mut viewer = Viewer::open(&site.server, "", None);
    viewer.next();
    site.pipeline.signal(Signal::STOP);
    wait_for("the alarm", || alarm(&site, "instance_silent").is_some());
    check(&alarm(&site, "instance_silent").expect("it is stopped"), "critical", "", "sent nothing", "kill -CONT");
    assert_eq!(site.read("")["status"], "silent");
    site.pipeline.signal(Signal::CONT);
    wait_for("its end", || alarm(&site, "instance_silent").is_none() && site.read("")["status"] == "running");
    site.pipeline.kill();
    wait_for("the alarm", || alarm(&site, "instance_killed").is_some());
    check(&alarm(&site, "instance_killed").expect("it was killed"), "critical", "", "killed", "start it again");
    assert_eq!(site.read("")["status"], "killed");
    assert!(alarm(&site, "instance_silent").is_none(), "a pipeline that has ended is not silent");
    let drops = site.server.get(&format!("{INSTANCE}/drops"));
    assert!(drops.problem(503).contains("ended") && drops.header("retry-after").is_some());
    let file = site.pipeline.file.clone();
    site.pipeline = Pipeline::run(site.folder.path(), "edge", &file, &[]);
    wait_for("the end of the alarm", || {
        alarm(&site, "instance_killed").is_none() && site.read("")["status"] == "running"
    });
    let events = alarms_until(&mut viewer, |name, is_active| name == "instance_killed" && !is_active);
    let of_name = |name: &str| events.iter().filter(|(of, _)| of == name).count();
    assert!(alternate(&events, "instance_silent") && of_name("instance_silent") >= 2, "{events:?}");
    assert!(alternate(&events, "instance_killed") && of_name("instance_killed") == 2, "{events:?}");
}

/// Returns the sum of a column.
fn sum(column: &Value) -> u64 {
    column.as_array().expect("a column").iter().filter_map(Value::as_u64).sum()
}

#[test]
fn the_history_has_all_packets_of_the_counters() {
    const PACKETS: u64 = 20_000;
    let site = Site::start(QUIET);
    // After the first tick, the first sample has begun, too.
    wait_for("two packets and a tick", || site.read("/drops")["in"] == 2 && site.read("")["in_pps"] == 0.0);
    let began = jiff::Timestamp::now().as_second();
    let text = QUIET.replacen("0.001pps", &format!("10kpps, queue: 32768, count: {PACKETS}"), 1);
    assert_eq!(site.put("*", &text).status, 200);
    let history = |query: &str| site.read(&format!("/history?{query}"));
    let entered = || sum(&history("")["figures"]["total"]["entered"]);
    wait_for("a sample with the packets", || entered() >= PACKETS);
    let (total, module, flow) = (history(""), history("module=fw"), history("flow=video"));
    wait_for("the counters", || site.read("/drops")["in"] == json!(PACKETS + 2));
    let drops = site.read("/drops");
    // The two packets before the first sample: one left, and one was dropped.
    let figures = &total["figures"]["total"];
    assert_eq!(
        (sum(&figures["entered"]), sum(&figures["out"]) + 1),
        (PACKETS, drops["out"].as_u64().expect("a count"))
    );
    assert_eq!(Some(sum(&figures["dropped"]) + 1), drops["dropped"]["fw.denied"].as_u64());
    let modules = list(&site.read("/modules"), "modules");
    let figures = &module["figures"]["module"];
    assert_eq!(Some(sum(&figures["packets"]) + 1), modules[0]["packets"].as_u64());
    assert_eq!(Some(sum(&figures["dropped"]) + 1), modules[0]["dropped"].as_u64());
    assert_eq!(Some(sum(&figures["batches"]) + 1), modules[0]["batches"].as_u64());
    let flows = list(&site.read("/flows"), "flows");
    let figures = &flow["figures"]["flow"];
    assert_eq!(
        (Some(sum(&figures["packets"])), Some(sum(&figures["violations"]))),
        (flows[0]["packets"].as_u64(), flows[0]["violations"].as_u64())
    );
    let delays = list(figures, "p99_us");
    assert!(delays.iter().any(|delay| delay.as_f64() > Some(0.0)), "{flow}");
    let now = jiff::Timestamp::now().as_second();
    for history in [&total, &module, &flow] {
        let at = list(history, "at");
        assert!(at.iter().all(|at| (began - 1..=now).contains(&at.as_i64().expect("a time in seconds"))), "{history}");
        assert!(list(history, "interval_s").len() == at.len() && !at.is_empty(), "{history}");
    }
    // A sample without packets of the flow has no delay: 0 would be a wrong one.
    let packets = list(figures, "packets");
    assert!(packets.iter().zip(&delays).all(|(packets, delay)| (*packets == json!(0)) == delay.is_null()), "{flow}");
    let first = total["at"][0].as_i64().expect("a time");
    assert_eq!(history(&format!("from={first}&to={}&most=1", first + 1))["at"], json!([first]));
    assert_eq!(
        (&history(&format!("to={first}"))["at"], &history(&format!("from={}", now + 100))["at"]),
        (&json!([]), &json!([]))
    );
    wait_for("a second sample", || list(&history(""), "at").len() > 1);
    let page = history("most=1");
    assert_eq!(page["at"], json!([first]));
    assert_eq!(history(&format!("most=1&from={}", page["next"]))["at"][0], page["next"]);
    site.pipeline.end();
}
