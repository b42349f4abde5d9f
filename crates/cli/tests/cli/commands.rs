//! The commands that describe Forebay and check configurations.

use serde_json::Value;

use crate::{File, ROUTER, forebay};

#[test]
fn every_command_has_help_with_an_example() {
    for command in [
        "run",
        "replay",
        "measure",
        "gate",
        "check",
        "graph",
        "stop",
        "drops",
        "show",
        "list",
        "describe",
        "usecase",
        "schema",
        "completions",
        "man",
        "history",
        "lab",
        "place",
    ] {
        let help = forebay(&[command, "--help"]).success();
        assert!(help.contains("Example") && help.contains(&format!("forebay {command}")), "{help}");
    }
    assert!(forebay(&["--help"]).success().contains("Exit codes"));
    assert!(forebay(&["--version"]).success().starts_with("forebay "));
}

/// The settings in the help of `run` and in `docs/configuration.md` are valid for the example configuration.
#[test]
fn documented_settings_are_valid_for_the_example() {
    let help = forebay(&["run", "--help"]).success();
    let line = help.lines().find(|line| line.contains("run gateway.yaml --set")).expect("an example of a setting");
    let setting = line.split("--set ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a setting");
    let trigger = line.split("--trigger ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a trigger");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/gateway.yaml");
    forebay(&["check", file, "--set", setting]).success();
    forebay(&["run", file, "--virtual", "--duration", "1ms", "--set", setting, "--trigger", trigger]).success();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let text = std::fs::read_to_string(page).expect("the page is part of the repository");
    let line = text.lines().find(|line| line.starts_with("forebay run gateway.yaml --set batch")).expect("an example");
    let settings: Vec<&str> = line.split(' ').filter(|word| word.contains('=')).collect();
    let arguments: Vec<&str> = settings.iter().flat_map(|setting| ["--set", setting]).collect();
    forebay(&[&["check", file], &arguments[..]].concat()).success();
}

#[test]
fn settings_that_a_stored_configuration_ignores_are_reported() {
    let file = File::new(ROUTER);
    let state = file.beside("state");
    let first = forebay(&["run", file.path(), "--no-socket", "--state", &state, "--json"]);
    assert!(first.code == Some(0) && !first.err.contains("ignored"), "{}", first.err);
    let again = forebay(&["run", file.path(), "--no-socket", "--state", &state, "--json"]);
    assert!(again.err.contains("last accepted") && !again.err.contains("ignored"), "{}", again.err);
    let more = ["--set", "batch=8", "--workers", "1", "--seed", "3", "--scheduler", "weighted-fair"];
    let again = forebay(&[&["run", file.path(), "--no-socket", "--state", &state, "--json"], &more[..]].concat());
    let expected = "ignored, because the accepted configuration has its own settings: --set batch=8, --scheduler \
                    weighted-fair, --seed 3, --workers 1\"\n";
    assert!(again.code == Some(0) && again.err.contains(expected), "{}", again.err);
}

/// Returns the JSON descriptions of everything with this name.
fn described(name: &str) -> Vec<Value> {
    let text = forebay(&["describe", name, "--json"]).success();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn everything_listed_has_a_description() {
    for kind in ["functions", "ports", "usecases", "state", "controllers"] {
        let listed: Value = serde_json::from_str(&forebay(&["list", kind, "--json"]).success()).expect("JSON");
        let table = forebay(&["list", kind]).success();
        for thing in listed.as_array().expect("a list") {
            let name = thing["name"].as_str().expect("a name");
            assert!(table.contains(name), "{table}");
            let description = forebay(&["describe", name]).success();
            assert!(description.starts_with(&format!("{name} (")) && description.contains("Example:"), "{description}");
            // A function and a port may have the same name. Both are described then, each on one line.
            assert!(described(name).iter().any(|json| json["summary"] == thing["summary"]), "{name}");
        }
    }
}

#[test]
fn a_function_is_described_with_everything_that_it_declares() {
    let description = forebay(&["describe", "mac_rewrite"]).success();
    for expected in [
        "destination (text, required)",
        "truncated: The frame",
        "State: none",
        "Equal branches run as one (fold): yes",
        "(effect): yes",
        "modules:",
    ] {
        assert!(description.contains(expected), "'{expected}' is not in\n{description}");
    }
    let description = forebay(&["describe", "generator"]).success();
    assert!(description.contains("queue (whole number") && description.contains("by default 4096"), "{description}");
}

/// Regression: time-outs were a list of nulls, the default of a choice was missing, and nested keys were not described.
#[test]
fn defaults_and_nested_keys_are_described() {
    for (name, expected) in [
        ("af_xdp", r#"mode (auto or native or generic, by default "auto")"#),
        ("af_xdp", r#"checksums (auto or complete or leave, by default "auto")"#),
        ("af_xdp", "receive (whole number 32 to 32768, by default 2048)"),
        ("af_xdp", "memory.chunks (whole number 64 to 16777216, by default 16384)"),
        ("af_xdp", "memory.aligned (true or false, by default false)"),
        ("connections", "pick_up (true or false, by default false)"),
        ("connections", r#"timeouts.tcp_established (text, by default "124min")"#),
        ("connections", "sessions (whole number, by default 65536)"),
        ("nat", r#"timeouts.udp (text, by default "5min")"#),
        ("nat", "forwards[].inside (text, required)"),
        ("balancer", "services[].backends[].weight (whole number"),
        ("af_packet", "ring.blocks (whole number 2 to 4096, by default 64)"),
        ("meter", "srtcm.cbs (text, required)"),
        ("generator", r#"transport (udp or tcp, by default "udp")"#),
    ] {
        let description = forebay(&["describe", name]).success();
        assert!(description.contains(&format!("\n  {expected}")), "'{expected}' is not in\n{description}");
        assert!(!description.contains("null"), "{description}");
    }
}

#[test]
fn a_controller_is_described_with_its_requirements() {
    let description = forebay(&["describe", "static"]).success();
    for expected in [
        "static (controller): ",
        "trigger (whole number up to 256, required)",
        "control: { batching: { static: { trigger: 16 } } }",
    ] {
        assert!(description.contains(expected), "'{expected}' is not in\n{description}");
    }
    let description = forebay(&["describe", "nfvnice"]).success();
    assert!(
        description.contains("Needs `scheduler: weighted-fair`.") && description.contains("Parameters:\n  none\n"),
        "{description}"
    );
    assert_eq!(described("nfvnice")[0]["scheduler"], "weighted-fair");
    assert_eq!(described("optimal")[0]["scheduler"], Value::Null);
    let listed = forebay(&["list", "controllers"]).success();
    for name in ["fair", "gradient", "max", "nfvnice", "null", "on-off", "optimal", "static", "wfq"] {
        assert!(listed.lines().any(|line| line.starts_with(&format!("{name} "))), "{listed}");
        let file = File::new(&forebay(&["usecase", "rc", "--set", "n=2"]).success());
        let example = described(name)[0]["example"].as_str().expect("an example").trim().to_owned();
        let batching = example
            .strip_prefix("control: { batching: ")
            .and_then(|rest| rest.strip_suffix(" }"))
            .expect("of this form");
        let set = format!("control.batching={batching}");
        let scheduler = described(name)[0]["scheduler"].as_str().map(|name| format!("scheduler={name}"));
        let mut arguments = vec!["check", file.path(), "--set", &set];
        scheduler.iter().for_each(|set| arguments.extend(["--set", set]));
        forebay(&arguments).success();
    }
}

#[test]
fn a_printed_use_case_can_be_checked() {
    let text = forebay(&["usecase", "l2l3", "--set", "n=2"]).success();
    let file = File::new(&text);
    assert!(forebay(&["check", file.path()]).success().contains("in order"));
}

#[test]
fn check_prints_the_numbers_of_modules_and_ports() {
    let file = File::new(ROUTER);
    assert!(forebay(&["check", file.path()]).success().contains("in order (4 modules, 2 ports"));
    let json: Value = serde_json::from_str(&forebay(&["check", file.path(), "--json"]).success()).expect("JSON");
    assert_eq!((&json["in_order"], json["modules"].as_array().map(Vec::len)), (&true.into(), Some(4)));
}

#[test]
fn several_configurations_are_checked_at_once() {
    let (good, bad) = (File::new(ROUTER), File::new("pipeline: [ a -> b ]"));
    let done = forebay(&["check", good.path(), bad.path(), "usecase:gw", "none.yaml"]);
    assert_eq!((done.code, done.out.matches("in order").count()), (Some(2), 2), "{}", done.out);
    for place in [&format!("{}:1: ", bad.path())[..], "none.yaml: cannot be read"] {
        assert!(done.err.contains(place), "{}", done.err);
    }
    let done = forebay(&["check", "--json", good.path(), bad.path()]);
    let lines: Vec<Value> = done.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let files: Vec<_> = lines.iter().map(|line| (line["file"].as_str(), line["in_order"].as_bool())).collect();
    assert_eq!(files, [(Some(good.path()), Some(true)), (Some(bad.path()), Some(false))]);
}

#[test]
fn schema_and_completions_are_printed() {
    let schema: Value = serde_json::from_str(&forebay(&["schema"]).success()).expect("JSON");
    assert!(schema["properties"]["ports"].is_object());
    for shell in ["bash", "zsh", "fish"] {
        assert!(forebay(&["completions", shell]).success().contains("forebay"));
    }
}

/// Each command that the help lists has a manual page: with its options, and with its examples on lines of their own.
#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::TempDir::new().expect("a folder for the test");
    let path = folder.path().join("man1");
    forebay(&["man", path.to_str().expect("a plain name")]).success();
    let page = |name: &str| std::fs::read_to_string(path.join(format!("{name}.1"))).expect(name);
    let help = forebay(&["--help"]).success();
    let list = help.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a list");
    let commands: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|it| !it.is_empty()))
        .collect();
    assert!(commands.len() > 25 && commands.contains(&"run"), "{commands:?}");
    for command in commands.iter().filter(|command| **command != "help") {
        let text = page(&format!("forebay-{command}"));
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "SEE ALSO"] {
            assert!(
                text.contains(&format!("\n.SH {section}\n")) || text.contains(&format!("\n.SH \"{section}\"\n")),
                "{text}"
            );
        }
    }
    let (main, run, lab) = (page("forebay"), page("forebay-run"), page("forebay-lab-lean"));
    assert!(main.contains("\n.SH COMMANDS\n") && main.contains("forebay\\-run(1)"), "{main}");
    assert!(run.contains("\n\\fBforebay run usecase:gw \\-\\-set n=16 \\-\\-duration 20s\\fR\n"), "{run}");
    assert!(run.contains("\n.SH \"EXIT STATUS\"\n.PP\n0 success;"), "{run}");
    assert!(run.starts_with(".TH \"forebay-run\" \"1\" \"\" \"forebay "), "{run}");
    assert!(lab.contains("forebay lab lean"), "{lab}");
}

/// `docs/drops.md` explains each reason for which a packet can be dropped.
#[test]
fn every_drop_reason_is_documented() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/drops.md");
    let text = std::fs::read_to_string(page).expect("the page is part of the repository");
    let listed: Value = serde_json::from_str(&forebay(&["list", "functions", "--json"]).success()).expect("JSON");
    for function in listed.as_array().expect("a list") {
        let name = function["name"].as_str().expect("a name");
        let json = described(name).into_iter().find(|json| json["drops"].is_array()).expect("it is a function");
        for reason in json["drops"].as_array().expect("a list") {
            let row = format!(
                "| `{name}` | `{}` | {} |",
                reason["name"].as_str().expect("a name"),
                reason["help"].as_str().expect("help")
            );
            assert!(text.contains(&row), "docs/drops.md lacks the line\n{row}");
        }
    }
    for reason in ["refused", "unwanted", "backpressure", "no_gate", "held_at_close"] {
        assert!(text.contains(&format!("{reason}`")), "{reason}");
    }
}
