//! The contract of `run --json` with programs: its fields, and the accounting of every packet.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::{File, ROUTER, forebay};

fn is_number(value: &Value) -> bool {
    value.is_number()
}

fn number_or_null(value: &Value) -> bool {
    value.is_number() || value.is_null()
}

type Test = fn(&Value) -> bool;

/// Checks that `value` has each of these fields with the right type.
fn need(value: &Value, path: &str, fields: &[(&str, Test)]) {
    for (name, test) in fields {
        let field = value.get(name).unwrap_or_else(|| panic!("{path} has no '{name}'"));
        assert!(test(field), "{path}.{name} is {field}");
    }
}

fn sum(counts: &Value) -> u64 {
    counts.as_object().expect("counts by reason").values().map(|count| count.as_u64().expect("a count")).sum()
}

/// Checks a document against the contract.
pub(crate) fn check(report: &Value) {
    need(
        report,
        "document",
        &[
            ("pipeline", Value::is_string),
            ("forebay", Value::is_string),
            ("kind", Value::is_string),
            ("cpu", Value::is_object),
            ("duration_s", is_number),
            ("packets", Value::is_object),
            ("modules", Value::is_array),
            ("flows", Value::is_array),
            ("workers", Value::is_array),
            ("ports", Value::is_array),
        ],
    );
    need(&report["cpu"], "cpu", &[("model", Value::is_string), ("tsc_ghz", is_number)]);
    let packets = &report["packets"];
    let whole: Test = Value::is_u64;
    let by_reason: Test = Value::is_object;
    let fields =
        [("in", whole), ("created", by_reason), ("out", whole), ("dropped", by_reason), ("consumed", by_reason)];
    need(packets, "packets", &fields);
    need(packets, "packets", &[("queued", whole), ("held", whole), ("in_flight", whole)]);
    let count = |name: &str| packets[name].as_u64().expect("checked above");
    let waiting = [count("queued"), count("held"), count("in_flight")];
    assert_eq!(waiting, [0, 0, 0], "packets remain at the end");
    assert_eq!(
        count("in") + sum(&packets["created"]),
        count("out") + sum(&packets["dropped"]) + sum(&packets["consumed"])
    );
    for module in report["modules"].as_array().expect("checked above") {
        let fields = [
            ("name", Value::is_string as Test),
            ("function", Value::is_string),
            ("packets", whole),
            ("batches", whole),
        ];
        need(module, "module", &fields);
        let fields = [("batch_mean", number_or_null as Test), ("trigger", whole), ("ticks_per_packet", number_or_null)];
        need(module, "module", &fields);
        need(module, "module", &[("ticks_per_batch", number_or_null), ("batch_sizes", Value::is_array)]);
        let sizes =
            module["batch_sizes"].as_array().expect("checked above").iter().map(|size| size.as_u64().expect("a count"));
        assert_eq!(sizes.sum::<u64>(), module["batches"].as_u64().expect("checked above"));
    }
    for flow in report["flows"].as_array().expect("checked above") {
        let fields =
            [("name", Value::is_string as Test), ("packets", whole), ("rate_pps", is_number), ("delay_us", by_reason)];
        need(flow, "flow", &fields);
        need(flow, "flow", &[("slo_us", number_or_null), ("violations", number_or_null)]);
        let names = ["mean", "p50", "p95", "p99", "p999", "max"];
        need(&flow["delay_us"], "delay_us", &names.map(|name| (name, number_or_null as Test)));
        need(&flow["delay_us"], "delay_us", &[("samples", whole)]);
        // Without samples, delays are null.
        let known = flow["delay_us"]["samples"] != 0;
        assert!(names.iter().all(|name| flow["delay_us"][name].is_number() == known), "{flow}");
    }
    for worker in report["workers"].as_array().expect("checked above") {
        need(worker, "worker", &[("id", whole), ("core", number_or_null), ("busy", is_number), ("turns", whole)]);
        need(worker, "worker", &[("timing_share", is_number as Test)]);
        need(&worker["machine_time"], "machine_time", &[("steal", number_or_null as Test), ("wait", number_or_null)]);
    }
    for port in report["ports"].as_array().expect("checked above") {
        need(port, "port", &[("name", Value::is_string), ("received", whole), ("sent", whole), ("dropped", whole)]);
    }
}

#[test]
fn run_json_fulfils_the_contract() {
    let file = File::new(ROUTER);
    let done = forebay(&["run", file.path(), "--json"]);
    let report = done.json();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(done.out.lines().count(), 1, "one object and nothing else: {}", done.out);
    check(&report);
    assert_eq!(report["packets"]["in"], 1_000);
    let packets = |module: usize| report["modules"][module]["packets"].as_u64().expect("a count");
    assert_eq!(packets(0), 1_000);
    let unwanted = report["packets"]["dropped"]["unwanted"].as_u64().unwrap_or(0);
    assert_eq!(report["packets"]["out"].as_u64().expect("a count") + unwanted, 1_000);
    assert_eq!((&report["kind"], &report["arrival_clocks"][0]), (&"measured".into(), &"poll".into()));
}

/// Returns the rows of the table of fields in `docs/cli.md`: the names in the first column, and the whole row.
fn documented() -> Vec<(Vec<String>, String)> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md")).expect("docs");
    let table =
        page.split("\n### JSON\n").nth(1).expect("the section").split("\n\n| field |").nth(1).expect("the table");
    let rows = table.split("\n\n").next().expect("the table").lines().skip(2);
    let names = |text: &str| text.split('`').skip(1).step_by(2).map(|name| name.replace("[]", "")).collect();
    rows.map(|row| (names(row.split('|').nth(1).expect("a column")), row.to_owned())).collect()
}

/// Checks that the row names each field of an object and of the objects in it.
fn all_documented(path: &str, value: &Value, row: &str) {
    // The keys of these objects are names of drop reasons, counters and functions.
    const OPEN: [&str; 4] = ["created", "dropped", "consumed", "counters"];
    match value {
        Value::Array(items) => items.iter().for_each(|item| all_documented(path, item, row)),
        Value::Object(fields) => {
            for (name, value) in fields {
                assert!(row.contains(&format!("`{name}`")), "{path}.{name} is not in docs/cli.md: {row}");
                if !OPEN.contains(&name.as_str()) {
                    all_documented(&format!("{path}.{name}"), value, row);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn documented_fields_and_report_fields_are_the_same() {
    let flows = "flows: [{ name: a, path: kind, slo: 1ms, min_rate: 1kpps }]\nscheduler: weighted-fair\n\
                 control: { batching: fair, period: 10ms }\n";
    let file = File::new(&format!("{}{flows}", ROUTER.replace("count: 1000", "rate: 100kpps")));
    let report = forebay(&["run", file.path(), "--no-socket", "--json", "--duration", "200ms"]).json();
    let rows = documented();
    let row = |name: &str| rows.iter().find(|(names, _)| names.iter().any(|known| known == name)).map(|(_, row)| row);
    for (name, value) in report.as_object().expect("an object") {
        let row = row(name).unwrap_or_else(|| panic!("'{name}' is not in docs/cli.md"));
        all_documented(name, value, row);
    }
    for (names, row) in &rows {
        let absent = names.iter().filter(|name| report.get(name.as_str()).is_none()).count();
        assert!(absent == 0 || row.contains("left out where there are none"), "{names:?} are in no report");
    }
    // In its row, a field that every module, flow, worker or port has comes first.
    for (list, first) in
        [("modules", "function"), ("flows", "delay_us"), ("workers", "busy_turns"), ("ports", "receiving")]
    {
        assert!(report[list][0].get(first).is_some(), "{list}[].{first}");
    }
}

/// Runs the contract check in `shared/check` against this output, if it exists.
pub(crate) fn shared(kind: &str, json: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/check/contract.py");
    if !script.exists() {
        let _ = writeln!(std::io::stderr(), "skipped: {} is not there", script.display());
        return;
    }
    let checked = Command::new("python3").arg(&script).args([kind, json]).stdin(Stdio::null()).output();
    match checked {
        Ok(checked) => assert!(checked.status.success(), "{kind}: {}", String::from_utf8_lossy(&checked.stdout)),
        Err(error) => drop(writeln!(std::io::stderr(), "skipped: python3 cannot be run: {error}")),
    }
}

#[test]
fn the_shared_contract_check_passes() {
    let file = File::new(ROUTER);
    for extra in [&[][..], &["--virtual", "--cost", "*=100+10"], &["--trigger", "write=32"]] {
        let arguments = [&["run", file.path(), "--json"], extra].concat();
        let done = forebay(&arguments);
        let json = file.beside("run.json");
        std::fs::write(&json, &done.out).expect("a file beside the test's");
        shared("run", &json);
    }
}
