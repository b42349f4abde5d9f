//! Tests of the families and of the text formats.

mod aggregates;
mod documents;
mod syntax;

use forebay_protocol::report::{FlowReport, ModuleReport};
use serde_json::json;

use super::*;

/// Returns a module without packets.
pub(super) fn module(name: &str, function: &str) -> ModuleReport {
    let module = json!({
        "name": name, "function": function, "workers": [0], "packets": 0, "rate_pps": 0.0, "batches": 0,
        "batch_sizes": [0, 0, 0, 0, 0, 0, 0, 0, 0], "trigger": 0, "dropped": 0, "counters": {},
    });
    serde_json::from_value(module).expect("a module")
}

/// Returns a flow without packets and objectives.
pub(super) fn flow(name: &str) -> FlowReport {
    let flow = json!({ "name": name, "packets": 0, "rate_pps": 0.0, "delay_us": { "samples": 0 } });
    serde_json::from_value(flow).expect("a flow")
}

/// Returns a report with each kind of value.
pub(super) fn small_report() -> Report {
    serde_json::from_str(include_str!("tests/small.json")).expect("a report")
}

/// Returns an instance with this report.
pub(super) fn instance_with<'a>(name: &'a str, report: &'a Report) -> InstanceMetrics<'a> {
    InstanceMetrics {
        name,
        is_up: true,
        hello: None,
        started_s: Some(1_764_234_000.5),
        report: Some(report),
        config_changes: Some(4),
        alarms: 1,
    }
}

/// Returns the families of the small report, of an instance that does not respond, and of a server.
pub(super) fn small_families() -> Vec<Family> {
    let report = small_report();
    let hello = json!({
        "protocol": 2, "forebay": report.forebay, "pipeline": report.pipeline, "instance": "edge", "pid": 7,
        "started": "2025-11-27T09:00:00.5Z", "workers": 2, "capabilities": [],
    });
    let hello: Hello = serde_json::from_value(hello).expect("a hello");
    let edge = InstanceMetrics { hello: Some(&hello), ..instance_with("edge", &report) };
    let gone = InstanceMetrics {
        name: "gone",
        is_up: false,
        hello: None,
        started_s: Some(1_764_230_400.0),
        report: None,
        config_changes: None,
        alarms: 2,
    };
    let server = ServerMetrics {
        version: "0.1.0",
        started_s: Some(1_764_233_999.25),
        requests: [100, 0, 7, 1],
        viewers: 2,
        store_bytes: Some(8_192),
        resident_bytes: Some(15_728_640),
        cpu_s: Some(1.5),
    };
    families(&[edge, gone], &server, &Options::default())
}

/// Fails at the first line that differs.
fn assert_same_lines(text: &str, expected: &str) {
    for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "line {}", number + 1);
    }
    assert_eq!(text, expected);
}

#[test]
fn the_text_of_a_small_report() {
    let text = encode(Format::Text, &small_families());
    assert_same_lines(std::str::from_utf8(&text).expect("text"), include_str!("tests/small.prom"));
}

#[test]
fn the_openmetrics_text_of_a_small_report() {
    let text = encode(Format::OpenMetrics, &small_families());
    assert_same_lines(std::str::from_utf8(&text).expect("text"), include_str!("tests/small.openmetrics"));
}

#[test]
fn values_that_do_not_exist_are_absent() {
    let mut report = small_report();
    report.flows = vec![flow("idle")];
    (report.modules, report.control) = (vec![module("route", "ip_lookup")], None);
    report.workers[0].busy = f64::NAN;
    let families = families(&[instance_with("edge", &report)], &ServerMetrics::default(), &Options::default());
    let names: Vec<_> = families.iter().map(|family| family.name).collect();
    for absent in ["forebay_server_start_time_seconds", "forebay_server_store_bytes", "forebay_instance_info"] {
        assert!(!names.contains(&absent), "{absent}");
    }
    let of_flows: Vec<_> = names.iter().filter(|name| name.starts_with("forebay_flow_")).collect();
    assert_eq!(of_flows, [&"forebay_flow_packets_total"]);
    assert!(names.iter().all(|name| !name.starts_with("forebay_control_")));
    for absent in ["forebay_module_ticks_per_packet", "forebay_module_hold_seconds", "forebay_module_weight"] {
        assert!(!names.contains(&absent), "{absent}");
    }
    let busy = families.iter().find(|family| family.id == FamilyId::WorkerBusy).expect("a worker");
    assert_eq!(busy.samples.len(), 1, "a number that is not finite is no value");
}

#[test]
fn only_these_labels_exist() {
    let allowed = [
        "instance",
        "module",
        "flow",
        "port",
        "worker",
        "reason",
        "function",
        "pipeline",
        "version",
        "status",
        "type",
        "core",
        "lines",
        "cause",
        "controller",
    ];
    for family in small_families() {
        for (name, _) in family.samples.iter().flat_map(|sample| &sample.labels) {
            assert!(allowed.contains(name), "{}: {name}", family.name);
        }
    }
}
