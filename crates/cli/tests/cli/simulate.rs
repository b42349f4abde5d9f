//! `forebay simulate`: its results are those of a packet-by-packet run within a few percent, and depend only on the
//! seed. Invalid inputs are refused.

use serde_json::Value;
use tempfile::TempDir;

use crate::{CommandResult, File, ROUTER, forebay, undisturbed};

const GATEWAY: &str = "usecase:gw --set n=4 --set fold=off --set rate=1Mpps --set slo=200us --set control.period=10ms \
                       --controller optimal --cost *=100+20 --json";

fn json(command: &str, more: &str) -> Value {
    let arguments: Vec<_> = command.split_whitespace().chain(GATEWAY.split_whitespace()).collect();
    let arguments = arguments.into_iter().chain(more.split_whitespace()).collect::<Vec<_>>();
    let done = forebay(&arguments);
    assert_eq!(done.code, Some(0), "{}", done.err);
    done.json()
}

/// Returns the first branch's rate, mean delay and packets per call, and the worker's busy share.
fn figures(report: &Value) -> [f64; 4] {
    let flow = &report["flows"][0];
    let modules = report["modules"].as_array().expect("a list");
    let acl = modules.iter().find(|module| module["name"] == "acl0").expect("it exists");
    let figures = [&flow["rate_pps"], &flow["delay_us"]["mean"], &acl["batch_mean"], &report["workers"][0]["busy"]];
    figures.map(|figure| figure.as_f64().expect("a number"))
}

#[test]
fn a_simulation_agrees_with_a_packet_by_packet_run() {
    let (simulated, executed) = (json("simulate", "--duration 2s"), json("run", "--virtual --duration 2s"));
    for (simulated, executed) in figures(&simulated).into_iter().zip(figures(&executed)) {
        assert!((simulated / executed - 1.0).abs() <= 0.05, "{simulated} instead of {executed}");
    }
    assert_eq!((&simulated["kind"], &simulated["flows"][0]["kept"]), (&"simulated".into(), &true.into()));
    assert_eq!(simulated["control"]["controller"], "optimal");
    assert!(simulated["control"]["changes"].as_array().is_some_and(|changes| !changes.is_empty()));
}

#[test]
fn an_objective_on_the_mean_is_kept_and_reported() {
    let mean = "--set flows.0.percentile=mean --set flows.0.slo=100us --duration 2s";
    for command in ["simulate", "run --virtual"] {
        let report = json(command, mean);
        let [first, second] = [0, 1].map(|flow| &report["flows"][flow]);
        assert_eq!((&first["percentile"], &second["percentile"]), (&"mean".into(), &99.0.into()), "{command}");
        assert_eq!(first["at_percentile_us"], first["delay_us"]["mean"], "{command}");
        assert_eq!(first["kept"], true, "{command}: {first}");
        assert!(first["at_percentile_us"].as_f64() > Some(50.0), "{command}: {first}");
    }
    let arguments = format!("run --virtual {GATEWAY} {mean}").replace(" --json", "");
    let out = forebay(&arguments.split_whitespace().collect::<Vec<_>>()).success();
    assert!(out.contains("mean ") && out.contains("p99 "), "{out}");
}

#[test]
fn equal_seeds_have_equal_results() {
    let run =
        |seed: &str| json("simulate", &format!("--set ports.in.generator.arrivals=poisson --duration 500ms {seed}"));
    let seven = run("--seed 7");
    assert_eq!(seven, run("--seed 7"));
    assert_ne!(seven, run("--seed 8"));
    // Regression: only `--seed` had an effect, not the setting.
    assert_eq!(seven, run("--set seed=7"));
}

#[test]
fn an_hour_is_summarised_in_tables() {
    let arguments: Vec<_> = GATEWAY.split_whitespace().filter(|argument| *argument != "--json").collect();
    let out = forebay(&[&["simulate"], &arguments[..], &["--duration", "3600s", "--strict"]].concat()).success();
    for expected in
        ["3600.000 s simulated batch by batch", "acl0", "objectives: 4 of 4 kept", "optimal every", "worker 0:"]
    {
        assert!(out.contains(expected), "'{expected}' is not in\n{out}");
    }
}

#[test]
fn measured_costs_are_used_if_none_are_given() {
    let cache = TempDir::new().expect("a folder for the test");
    let file = File::new(&ROUTER.replace("count: 1000", "rate: 1Mpps"));
    let run = |arguments: &[&str]| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments).env("XDG_CACHE_HOME", cache.path());
        let done = undisturbed(|| CommandResult::of(command.output().expect("it starts")));
        (done.code, done.err)
    };
    let simulate = ["simulate", file.path(), "--duration", "100ms"];
    let (code, message) = run(&simulate);
    let named = format!(
        "the cost of calls of ether_split, hash_split, mac_rewrite, ttl is unknown: `forebay profile {}`",
        file.path()
    );
    assert!(code == Some(2) && message.contains(&named), "{message}");
    // The command that the error suggests has the settings of the use case, so that it can be copied.
    let (_, of_usecase) = run(&["simulate", "usecase:gw", "--set", "n=2", "--set", "name=a b"]);
    assert!(of_usecase.contains("`forebay profile usecase:gw --set n=2 --set 'name=a b'`"), "{of_usecase}");
    let (code, message) = run(&["profile", file.path(), "--time", "20ms"]);
    assert_eq!(code, Some(0), "{message}");
    let (code, message) = run(&simulate);
    assert_eq!((code, message.as_str()), (Some(0), ""), "the costs are those of these parameters");
}

/// Regression: a profile has the costs of the functions' examples. A `bypass` that spins longer than the example was
/// simulated with the cost of the example, and other differing parameters were not reported.
#[test]
fn parameters_that_differ_from_the_example_have_an_effect_or_a_warning() {
    let cache = TempDir::new().expect("a folder for the test");
    let run = |arguments: &[&str]| {
        let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(arguments).env("XDG_CACHE_HOME", cache.path());
        let done = undisturbed(|| CommandResult::of(command.output().expect("it starts")));
        assert_eq!(done.code, Some(0), "{}", done.err);
        done
    };
    let file = File::new(
        "ports: { in: { generator: { rate: 20kpps } }, out: { sink: } }\nmodules:\n  \
            fw: { acl: { rules: { synthetic: 200 } } }\n  hop: { ttl: }\n  \
        inspect: { bypass: { cycles_per_batch: 20000, cycles_per_packet: 500 } }\n\
        pipeline: [in -> fw -> hop -> inspect -> out]\n",
    );
    run(&["profile", "--time", "20ms", "acl", "ttl", "bypass"]);
    let simulate = ["simulate", file.path(), "--duration", "200ms", "--json"];
    let busy = |done: &CommandResult| done.json()["workers"][0]["busy"].as_f64().expect("a share");
    let (as_written, slower) =
        (run(&simulate), run(&[&simulate[..], &["--set", "modules.inspect.bypass.cycles_per_batch=40000"]].concat()));
    assert!(busy(&slower) > 1.5 * busy(&as_written), "{} and {}", busy(&as_written), busy(&slower));
    assert_eq!(as_written.json()["costs_of_example"], serde_json::json!(["acl"]));
    let warnings: Vec<_> = as_written.err.lines().filter(|line| line.contains("the function's example")).collect();
    assert!(
        matches!(warnings[..], [one] if one.contains("test: acl: ") && one.contains("`--cost acl=CALL+PACKET`")),
        "{warnings:?}"
    );
    let given = run(&[&simulate[..], &["--cost", "fw=100+20"]].concat());
    assert_eq!((given.err.as_str(), &given.json()["costs_of_example"]), ("", &serde_json::json!([])));
}

#[test]
fn invalid_simulations_are_refused() {
    let (finite, endless) = (File::new(ROUTER), File::new(&ROUTER.replace("count: 1000", "rate: 1Mpps")));
    let refused = |arguments: &[&str], expected: &str| {
        let done = forebay(&[&["simulate"], arguments].concat());
        assert!(done.code == Some(2) && done.err.contains(expected), "{:?}: {}", done.code, done.err);
    };
    let cost = ["--cost", "*=100"];
    refused(&[finite.path(), cost[0], cost[1]], "port 'in': the arrival times of its packets are not known in advance");
    refused(&[endless.path(), "--cost", "hopp=100"], "no module or function is called 'hopp' (did you mean 'hop'?)");
    refused(
        &[endless.path(), cost[0], cost[1], "--duration", "0s"],
        "'0s' for '--duration <TIME>': allowed are times above 0",
    );
    refused(&[endless.path(), cost[0], cost[1], "--decisions", "x"], "--decisions: the pipeline has no controller");
    refused(&[endless.path(), cost[0], cost[1], "--controller", "fair"], "write `scheduler: weighted-fair` too");
    let optimal = [endless.path(), cost[0], cost[1], "--controller", "optimal"];
    let expected = format!(
        "{}: control.workers: 2: this simulation cannot move modules to other workers: at most 1",
        endless.path()
    );
    refused(&[&optimal[..], &["--set", "control.workers=2"]].concat(), &expected);
    let two = ["--workers", "2", "--set", "control.workers=2", "--duration", "10ms"];
    forebay(&[&["simulate"], &optimal[..], &two].concat()).success();
    refused(&["nowhere.yaml"], "nowhere.yaml");
}
