//! `forebay measure`: figures, and their reproducibility.

use std::path::Path;
use std::process::Command;

use forebay_bench::counting::{self, Extent};
use serde_json::Value;

use crate::{File, forebay};

/// Returns true if valgrind, which counting needs, is installed.
pub(crate) fn has_valgrind() -> bool {
    let is_installed = Command::new("valgrind").arg("--version").output().is_ok();
    if !is_installed {
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: valgrind is not installed\n")));
    }
    is_installed
}

/// Returns the report of `measure`. It may be void if the machine is too busy, for example with other tests.
pub(super) fn measured(more: &[&str]) -> Value {
    let arguments = ["measure", "usecase:l2l3", "--set", "n=2", "--duration", "50ms", "--json"];
    with_ticks(|| {
        let done = forebay(&[&arguments, more].concat());
        (done.code, done.json())
    })
}

/// Returns the first report that has ticks. Beside busy processes, a run of 50 ms may end before a turn was timed, and
/// is void.
fn with_ticks(run: impl Fn() -> (Option<i32>, Value)) -> Value {
    for _ in 0..100 {
        let (code, measured) = run();
        let void = measured["chain"]["void"] == true || measured["search"]["void"] == true;
        assert_eq!(code, Some(i32::from(void)), "{measured}");
        if !void || measured["chain"]["sum_ticks"].is_f64() {
            return measured;
        }
    }
    panic!("no turn was timed in 100 runs");
}

fn figure(measured: &Value, module: usize, name: &str) -> f64 {
    measured["modules"][module][name].as_f64().expect("a figure")
}

#[test]
fn instructions_are_the_same_in_every_run_and_add_up_to_the_total() {
    if !has_valgrind() {
        return;
    }
    let (one, other) = (measured(&[]), measured(&[]));
    let instructions = |measured: &Value| {
        let modules = measured["modules"].as_array().expect("a list").iter().filter(|part| part["kind"] == "module");
        modules.map(|module| module["ipp"].as_f64().expect("counted")).collect::<Vec<_>>()
    };
    assert_eq!(instructions(&one), instructions(&other));
    assert_eq!(one["chain"]["ipp"], other["chain"]["ipp"]);
    assert!(instructions(&one).iter().all(|count| *count > 1.0), "{one}");
    let residue = one["chain"]["residue_ipp"].as_f64().expect("counted");
    let all = one["chain"]["ipp"].as_f64().expect("counted");
    assert!(residue > 0.0 && residue < all, "{residue} of {all}");
    assert_eq!(one["modules"][0]["source"]["ipp"], "emulated");
    assert_eq!(one["modules"][0]["source"]["ipc"], "n/a");
    // Equal modules have similar counts, each under its own name.
    let module = |name: &str| {
        let modules = one["modules"].as_array().expect("a list");
        modules.iter().position(|module| module["name"] == name)
    };
    let (first, second) = (module("ttl0").expect("there"), module("ttl1").expect("there"));
    let (a, b) = (figure(&one, first, "ipp"), figure(&one, second, "ipp"));
    assert!((a / b - 1.0).abs() < 0.2, "{a} and {b}");
}

/// Regression: the C library copies more than 256 bytes in a way that depends on the distance between source and
/// destination. The heap addresses of the sources differed in every process, because maps with random hashing returned
/// their keys in another order.
#[test]
fn instructions_of_long_packets_are_the_same_in_every_run_and_folder() {
    if !has_valgrind() {
        return;
    }
    let sizes: Vec<_> = (0..24).map(|number| format!("{{ size: {}, weight: 1 }}", 600 + 37 * number)).collect();
    let pipeline = format!(
        "ports:\n  in: {{ generator: {{ size: [{}] }} }}\n  mix: {{ generator: {{ size: imix }} }}\n  \
            out: {{ sink: {{}} }}\n\
         modules:\n  hop: {{ ttl: }}\npipeline:\n  - in -> hop -> out\n  - mix -> hop\n",
        sizes.join(", ")
    );
    let file = File::new(&pipeline);
    let folder =
        file.beside("a folder with a name that is so long that its path takes another place than the shorter one");
    std::fs::create_dir(&folder).expect("a writable folder");
    let longer = format!("{folder}/test.yaml");
    std::fs::copy(file.path(), &longer).expect("a writable folder");
    let counted = |path: &str| {
        let extent = Extent { before: 512, packets: 2_048 };
        counting::count(Path::new(env!("CARGO_BIN_EXE_forebay")), path, &[], extent).expect("counted")
    };
    let first = counted(file.path());
    assert!(first.ports[0][0] > 2_048, "{first:?}");
    for path in [file.path(), &longer, &longer] {
        let again = counted(path);
        if again.checks == first.checks {
            assert_eq!(again, first, "{path}");
        } else {
            // Without optimisation, `core` checks pointers. Figures of parts include these checks.
            assert_eq!((&again.served, again.all), (&first.served, first.all), "{path}");
        }
    }
}

#[test]
fn without_counting_only_ticks_are_available() {
    let measurement = measured(&["--no-count"]);
    assert_eq!(measurement["modules"][0]["ipp"], Value::Null);
    assert_eq!(measurement["modules"][0]["source"]["ipp"], "n/a");
    assert!(measurement["chain"]["cpp_ticks"].as_f64().expect("measured") > 0.0);
    // The sum of the parts is about equal to the whole. The benchmark shows the exact ratio, on an idle machine.
    let part = |name: &str| measurement["chain"][name].as_f64().expect("measured");
    assert!(part("sum_ticks") > part("residue_ticks") && part("residue_ticks") >= 0.0, "{measurement}");
    let of_kind = |kind: &str| {
        measurement["modules"].as_array().expect("a list").iter().filter(|part| part["kind"] == kind).count()
    };
    assert_eq!((of_kind("receive"), of_kind("send"), of_kind("hand_over")), (1, 1, 0));
    assert!(measurement["chain"]["cur"].as_f64().is_some_and(|cur| cur > 0.0 && cur <= 1.0), "{measurement}");
}

#[test]
fn standard_input_is_refused_because_it_is_read_twice() {
    let refused = forebay(&["measure", "-"]);
    assert_eq!(refused.code, Some(2));
    assert!(
        refused.err.contains("the pipeline is read twice, once to count instructions: name a file"),
        "{}",
        refused.err
    );
}

#[test]
fn a_search_reports_both_rates_or_is_void() {
    let limit = ["--no-count", "--search", "--search-time", "1s"];
    let measurement = measured(&limit);
    let search = &measurement["search"];
    assert!(search["trials"].as_u64().expect("a count") > 0 && search["seconds"].as_f64().expect("measured") > 0.0);
    let void = search["void"].as_bool().expect("yes or no");
    for (rate, found) in [("ndr_pps", "ndr"), ("pdr_pps", "pdr")] {
        // On a busy machine there is no rate. Otherwise the rate comes from the bounds.
        let pps = if void { &serde_json::Value::Null } else { &search[found]["pps"] };
        assert_eq!(&measurement["chain"][rate], pps, "{search}");
    }
    // Without a search there are no rates.
    let measurement = measured(&["--no-count"]);
    assert!(measurement["search"].is_null() && measurement["chain"]["ndr_pps"].is_null());
    // Each missing processor event has a reason.
    let unavailable = measurement["unavailable"].as_object().expect("a map");
    for (figure, event) in
        [("ipc", "instructions"), ("llc_misses", "llc_misses"), ("stalled_backend", "stalled_backend")]
    {
        assert_eq!(measurement["chain"][figure].is_null(), unavailable.contains_key(event), "{unavailable:?}");
    }
    assert!(measurement["workers"][0]["disturbance"]["span_s"].as_f64().expect("measured") >= 0.05);
}

#[test]
fn a_search_needs_sources_with_a_rate_and_a_valid_time() {
    let refused = forebay(&["measure", "usecase:l2l3", "--set", "rate=max", "--no-count", "--search"]);
    assert_eq!(refused.code, Some(2));
    let err = &refused.err;
    assert!(err.contains("(generator): a search cannot set its load: allowed are generators with a `rate`"), "{err}");
    for time in ["0s", "1", "2h", "5000s"] {
        let refused = forebay(&["measure", "usecase:l2l3", "--search", "--search-time", time]);
        assert_eq!(refused.code, Some(2), "{time}");
    }
    let refused = forebay(&["measure", "usecase:l2l3", "--search-time", "5s"]);
    assert_eq!(refused.code, Some(2), "a time without a search");
}

#[test]
fn without_valgrind_only_instructions_are_missing() {
    let measured = with_ticks(|| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["measure", "usecase:l2l3", "--set", "n=1", "--duration", "50ms", "--json"]).env("PATH", "");
        let output = command.output().expect("the command can be started");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(err.contains("instructions are n/a: valgrind is not installed"), "{err}");
        (output.status.code(), serde_json::from_slice(&output.stdout).expect("figures"))
    });
    assert!(measured["modules"][0]["cpp_ticks"].is_f64() && measured["modules"][0]["ipp"].is_null(), "{measured}");
    assert_eq!(measured["modules"][0]["source"]["ipp"], "n/a");
}
