//! Invalid input: exit code 2, and an error that names the input and the allowed values.

use crate::{File, ROUTER, forebay};

/// Returns the error of `forebay` for arguments that it must refuse.
fn refused(arguments: &[&str]) -> String {
    let done = forebay(arguments);
    assert_eq!(done.code, Some(2), "{arguments:?}: {}{}", done.out, done.err);
    done.err
}

fn assert_error(arguments: &[&str], all: &[&str]) {
    let err = refused(arguments);
    for expected in all {
        assert!(err.contains(expected), "{arguments:?}: '{expected}' is not in\n{err}");
    }
}

#[test]
fn unknown_commands_and_names_are_refused() {
    assert_error(&["chekc"], &["'chekc'", "'check'"]);
    assert_error(&[], &["Usage"]);
    assert_error(&["list", "function"], &["functions"]);
    assert_error(&["describe", "mac_rewirte"], &["'mac_rewirte'", "did you mean 'mac_rewrite'?"]);
    assert_error(&["usecase", "gww"], &["'gww'", "did you mean 'gw'?"]);
    assert_error(&["usecase", "gw", "--set", "m=3"], &["no parameter 'm'", "sessions"]);
    assert_error(&["usecase", "gw", "--set", "n=zero"], &["'zero'", "1 to"]);
    assert_error(&["run", "usecase:none"], &["'none'", "l2l3"]);
    assert_error(&["completions", "dos"], &["bash"]);
}

#[test]
fn invalid_files_are_refused() {
    assert_error(&["run", "/nonexistent.yaml"], &["/nonexistent.yaml", "cannot be read"]);
    assert_error(&["check", "/"], &["cannot be read"]);
    assert_error(&["check", ""], &["the file name is empty: name a file"]);
    assert_error(&["check", "usecase:nosuch"], &["usecase:nosuch: there is no use case 'nosuch'"]);
    assert_error(&["run", "gw"], &["gw: cannot be read", "did you mean 'usecase:gw'"]);
    assert_error(&["check", "acl"], &["acl: cannot be read", "did you mean 'function:acl'"]);
    let file = File::new(&ROUTER.replace("hop: { ttl: }", "hop: { tll: }"));
    assert_error(&["check", file.path()], &["test.yaml:6", "'tll'", "did you mean 'ttl'?"]);
    let done = forebay(&["check", file.path(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!((done.code, &json["in_order"]), (Some(2), &false.into()));
    assert!(json["problems"][0]["place"].as_str().is_some_and(|place| place.ends_with("test.yaml:6")), "{json}");
}

#[test]
fn control_characters_in_names_are_escaped() {
    let file = File::new("\"name\\e[31m\": 1\nports: { \"in\\e[2J\": { sink: } }\npipeline: [\"a\\e]0;t\\a -> b\"]\n");
    for arguments in [
        &["check", file.path()][..],
        &["run", file.path()],
        &["check", "\u{1b}[31mx"],
        &["check", file.path(), "--\u{1b}[31mx"],
        &["describe", "\u{1b}[31mx"],
        &["show", "\u{1b}]0;t\u{7}\u{9b}x"],
        &["usecase", "\u{1b}[31mx"],
        &["run", "usecase:gw", "--set", "\u{1b}[31mx=1"],
        &["run", file.path(), "--trigger", "\u{1b}[31mx"],
    ] {
        let err = refused(arguments);
        assert!(!err.chars().any(|character| character.is_control() && character != '\n'), "{arguments:?}: {err:?}");
    }
}

/// Regression: a line feed in a name, a value or an argument began another line, which looked like another error.
#[test]
fn a_line_feed_in_a_name_begins_no_line() {
    let with = |from: &str, to: &str| File::new(&ROUTER.replace(from, to));
    for file in [
        with("hop: { ttl: }", "hop: { ttl: }\n  \"x\\nerror: y\": { counter: {} }"),
        with("out: { sink: {} }", "out: { sink: {} }\n  \"x\\nerror: y\": { sink: }"),
        with("modules:", "state: { \"x\\nerror: y\": { connections: } }\nmodules:"),
        with("hop: { ttl: }", "hop: { dpi: { patterns: [a], classes: [{ name: b, gate: \"x\\nerror: y\" }] } }"),
        with("hop: { ttl: }", "hop: { tap: { file: \"/x\\nerror: y/z\" } }"),
        with("generator: { count: 1000, sessions: 4 }", "pcap: { read: \"x\\nerror: y\" }"),
        with("ports:", "name: \"x\\nerror: y\"\nports:"),
        with("pipeline:", "flows: [{ name: \"x\\nerror: y\", path: [hop] }]\npipeline:"),
        with("pipeline:", "pipeline:\n  - \"in -> x\\nerror: y\""),
    ] {
        let err = refused(&["check", file.path()]);
        let begin = format!("error: {}:", file.path());
        assert!(err.lines().all(|line| line.starts_with(&begin)) && err.contains("x\\u000aerror: y"), "{err}");
    }
    let argument = "x\nerror: y";
    for arguments in [
        &["check", argument][..],
        &["run", argument],
        &["run", "usecase:gw", "--set", "x\nerror: y=1"],
        &["describe", argument],
        &["usecase", argument],
        &["list", argument],
        &["show", "modules", "--instance", argument],
        &["table", "m", "--socket", argument],
    ] {
        let err = refused(arguments);
        assert!(!err.contains("\nerror: y") && err.contains("x\\u000aerror"), "{arguments:?}: {err}");
    }
}

#[test]
fn settings_of_unknown_parts_are_refused() {
    assert_error(
        &["run", "usecase:gw", "--set", "nn=3"],
        &["--set nn=3", "no parameter 'nn'", "parameters are n, rate, slo"],
    );
    let file = File::new(ROUTER);
    assert_error(
        &["run", file.path(), "--set", "ports.inn.generator.rate=2Mpps"],
        &["--set ports.inn", "new port 'inn'", "own ports are in, out"],
    );
}

#[test]
fn invalid_settings_triggers_and_costs_are_refused() {
    let file = File::new(ROUTER);
    let run = |more: &[&'static str], all: &[&str]| assert_error(&[&["run", file.path()], more].concat(), all);
    run(&["--set", "batch"], &["KEY=VALUE"]);
    run(&["--set", "batch=0"], &["--set batch=0"]);
    run(&["--set", "ports.in.generator.rate=fast"], &["'fast'", "Mpps"]);
    run(&["--trigger", "hop"], &["MODULE=N"]);
    run(&["--trigger", "hup=3"], &["'hup'", "(did you mean 'hop'?): there are "]);
    run(&["--trigger", "hop=33"], &["0 to 32"]);
    run(&["--cost", "hop=1"], &["--virtual"]);
    run(&["--virtual", "--cost", "hup=1"], &["'hup'"]);
    run(&["--virtual", "--cost", "hop=fast"], &["NAME=CALL+PACKET"]);
    run(&["--duration", "20"], &["'20'", "ms"]);
    run(&["--interval", "1ns"], &["50ms"]);
    run(&["--core", "4000"], &["core 4000", "allowed are"]);
}

/// Regression: an empty name selected the controller `null`, because an empty YAML value is null.
#[test]
fn an_empty_controller_name_is_refused() {
    let file = File::new(ROUTER);
    for command in ["run", "simulate"] {
        assert_error(&[command, file.path(), "--controller", ""], &["--controller <NAME>", "a value is required"]);
        assert_error(
            &[command, file.path(), "--controller", "optimum"],
            &["error: --controller optimum: control.batching: 'optimum'", "did you mean 'optimal'?", "on-off"],
        );
        assert_error(&[command, file.path(), "--workers", "300"], &["'300'", "--workers", "1 to 256"]);
    }
}

/// Regression: the controller was refused because parameters were missing, and its parameters because it had none.
/// Neither error showed a valid command.
#[test]
fn the_error_shows_how_to_set_parameters_of_a_controller() {
    let endless = ROUTER.replace("count: 1000", "rate: 1Mpps");
    let file = File::new(&format!("{endless}control: {{ batching: optimal, period: 10ms }}\n"));
    let run = ["run", file.path(), "--virtual"];
    let valid_setting = |trigger| format!("control.batching={{ static: {{ trigger: {trigger} }} }}");
    let suggestion = |trigger| format!(": on the command line, write `--set '{}'` instead", valid_setting(trigger));
    for command in [&["--controller", "static"][..], &["--set", "control.batching=static"]] {
        assert_error(&[&run[..], command].concat(), &["static needs parameters: ", &suggestion(16)]);
    }
    let one = ["--set", "control.batching.static.trigger=8"];
    let expected = ["'control.batching' is a single value", &suggestion(8)];
    assert_error(&[&run[..], &one].concat(), &expected);
    assert_error(&[&run[..], &["--controller", "static"], &one].concat(), &expected);
    let json = forebay(&[&run[..], &["--set", &valid_setting(8), "--json"]].concat()).json();
    assert_eq!(json["control"]["controller"], "static");
    assert!(json["modules"].as_array().is_some_and(|all| all.iter().all(|module| module["trigger"] == 8)), "{json}");
}

#[test]
fn settings_without_a_value_are_refused() {
    let file = File::new(&format!("{ROUTER}flows:\n  - {{ name: all, path: hop, slo: 1ms }}\n"));
    for command in ["run", "simulate", "check"] {
        assert_error(
            &[command, file.path(), "--set", "flows.0.slo="],
            &["'flows.0.slo='", "`flows.0.slo=null` removes the key"],
        );
    }
    let report = forebay(&["run", file.path(), "--virtual", "--set", "flows.0.slo=null", "--json"]).json();
    assert_eq!(report["flows"][0]["slo_us"], serde_json::Value::Null);
}

#[test]
fn invalid_settings_of_batch_control_are_refused() {
    let file = File::new(&format!("{ROUTER}flows:\n  - {{ name: all, path: hop, slo: 1ms }}\n"));
    let set = |setting: &str, all: &[&str]| {
        let prefix = format!("--set {setting}: ");
        assert_error(
            &["run", file.path(), "--virtual", "--controller", "optimal", "--set", setting],
            &[&[prefix.as_str()], all].concat(),
        );
    };
    for wrong in ["0", "-1", "257", "1000"] {
        let expected = format!("'{wrong}' is out of range: allowed is a whole number from 1 to 256");
        set(&format!("control.workers={wrong}"), &["control.workers", &expected]);
    }
    for wrong in ["two", "1.5"] {
        set(&format!("control.workers={wrong}"), &[&format!("'{wrong}' is not a whole number")]);
    }
    // A whole number in any notation. Regression: the error called it a `floating point`, `expected usize`.
    set("control.workers=1e3", &["'1000.0' is out of range: allowed is a whole number from 1 to 256"]);
    let one = forebay(&["run", file.path(), "--virtual", "--controller", "optimal", "--set", "control.workers=1e0"]);
    assert_eq!(one.code, Some(0), "{}", one.err);
    set("control.guard=1", &["'1' is out of range: allowed is a number from 0 below 1"]);
    set("control.guard=5%", &["'5%' is not a number"]);
    set("control.gaurd=0.1", &["unknown key 'gaurd' (did you mean 'guard'?)"]);
    set("control.period=1us", &["1us: allowed are 1ms to 1h"]);
    set("flows.0.slo=0s", &["flows[0].slo: a delay objective of 0s cannot be met: allowed is more than 0"]);
    set("flows.0.slo=-1ms", &["flows[0].slo: '-1ms' is not a span of time", "units: ns, us, ms, s"]);
    set("flows.0.slo=1parsec", &["'1parsec' is not a span of time"]);
    set("flows.0.slo=99999999999s", &["'99999999999s' is too large for a span of time: the largest is 104d"]);
    set("flows.0.min_rate=0pps", &["0pps: allowed are 1pps to 1000Gpps"]);
    set("flows.0.percentile=101", &["'101' is out of range: allowed is a number above 0 to 100"]);
    set("flows.all.slo=1ms", &["the list 'flows' has no item 'all'", "(did you mean 'flows.0'?)"]);
}

/// Regression: `unexpected argument '-1' found` named neither the flag nor the allowed values.
#[test]
fn negative_numbers_are_refused_with_their_flag() {
    let file = File::new(ROUTER);
    assert_error(
        &["simulate", file.path(), "--duration", "-1s"],
        &["'-1s' for '--duration <TIME>'", "units: ns, us, ms, s"],
    );
    assert_error(&["run", file.path(), "--seed", "-1"], &["'-1' for '--seed <N>'"]);
    let of_run = "'0s' for '--duration <TIME>': allowed are times above 0";
    assert_error(&["run", file.path(), "--duration", "0s"], &[of_run]);
    assert_error(&["run", file.path(), "--trace", "0"], &["'0' for '--trace <N>': allowed are 1 to 100000"]);
    assert_error(&["run", file.path(), "--instance", ""], &["--instance '': allowed are up to"]);
    let long = "x".repeat(200);
    for command in [["run", file.path()], ["show", "modules"]] {
        let wrong = "a path of 200 bytes: allowed are 1 to 107: choose another path with --socket";
        assert_error(&[&command[..], &["--socket", &long]].concat(), &[wrong]);
    }
    assert_error(&["replay", file.path(), "--guard", "-0.1"], &["'-0.1' for '--guard <PART>'", "0 to less than 1"]);
    assert_error(&["replay", file.path(), "--periods", "-1"], &["'-1' for '--periods <N>'", "whole numbers from 0 to"]);
    for (option, named) in [("--moves", "'x' for '--moves <M>'"), ("--seed", "'x' for '--seed <N>'")] {
        assert_error(&["place", file.path(), "--apply", option, "x"], &[named, "whole numbers from 0 to"]);
    }
    assert_error(&["drops", "--count", "0"], &["'0' for '--count <N>': allowed are 1 to"]);
    assert_error(&["profile", "--batch", "-1"], &["'-1' for '--batch <N>'", "allowed are 4 to 256"]);
}

#[test]
fn invalid_costs_are_refused() {
    let file = File::new(ROUTER);
    for wrong in ["*=", "=1", "hop", "hop=-1+2", "hop=1.5", "hop=1+2+3", "hop=99999999999999999999+1"] {
        assert_error(
            &["simulate", file.path(), "--cost", wrong],
            &["--cost", &format!("'{wrong}'"), "whole nanoseconds from 0 to 3600000000000"],
        );
    }
}

#[test]
fn invalid_traces_and_drops_are_refused() {
    let file = File::new(ROUTER);
    assert_error(&["run", file.path(), "--trace", "0"], &["allowed are 1 to 100000"]);
    assert_error(&["run", file.path(), "--filter", "tcp"], &["--trace"]);
    assert_error(
        &["run", file.path(), "--trace", "1", "--filter", "tcp or hots 10.0.0.1"],
        &["column 8", "'hots'", "host ADDRESS"],
    );
    assert_error(&["run", file.path(), "--drops", "/nonexistent/x.pcapng"], &["--drops", "/nonexistent/x.pcapng"]);
}

#[test]
fn a_measurement_needs_a_valid_duration() {
    for duration in ["0s", "999us", "3601s"] {
        assert_error(&["measure", "usecase:gw", "--duration", duration], &["--duration", "allowed are 1ms to 1h"]);
    }
}

/// Collects the paths of all configuration keys that take a number, with the unit if they have one.
fn numeric_keys(schema: &serde_json::Value, path: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    assert!(schema["$ref"].is_null(), "references are not followed here: {path:?}");
    let types = [&schema["type"]].into_iter().chain(schema["type"].as_array().into_iter().flatten());
    let is_number = types.into_iter().any(|it| *it == "integer" || *it == "number");
    let units = schema["pattern"].as_str().and_then(|pattern| pattern.strip_prefix("^\\s*[0-9][0-9._]*\\s*("));
    let unit = units.and_then(|units| units.split('|').next()).unwrap_or_default();
    let known = found.iter().any(|(known, with)| known == path && with == unit);
    if (is_number || units.is_some()) && !known {
        found.push((path.clone(), unit.to_owned()));
    }
    for form in ["anyOf", "oneOf", "allOf"].iter().filter_map(|key| schema[key].as_array()).flatten() {
        numeric_keys(form, path, found);
    }
    let keys = schema["properties"].as_object().into_iter().flatten();
    let any = schema.get("additionalProperties").filter(|it| it.is_object()).map(|it| ("*".to_owned(), it));
    let item = schema.get("items").filter(|it| it.is_object()).map(|it| ("0".to_owned(), it));
    for (key, below) in keys.map(|(key, below)| (key.clone(), below)).chain(any).chain(item) {
        path.push(key);
        numeric_keys(below, path, found);
        path.pop();
    }
}

/// Returns one line with the key at the end of `path`, its value, and the objects around it.
fn nested(path: &[String], value: &str) -> String {
    path.iter().rev().fold(value.to_owned(), |inner, key| match key.as_str() {
        "0" => format!("[{inner}]"),
        "*" => format!("{{ x: {inner} }}"),
        key => format!("{{ {key}: {inner} }}"),
    })
}

/// Returns true if a number follows the words of a message that introduce the allowed values.
fn names_bounds(message: &str) -> bool {
    let words = ["allowed", "unit", " is not a"];
    let allowed = words.iter().find_map(|word| message.split_once(word));
    allowed.is_some_and(|(_, allowed)| allowed.contains(|c: char| c.is_ascii_digit()))
}

/// Regression: some numbers were refused without a bound, or with a description on two lines.
#[test]
fn every_refused_number_is_reported_with_its_bounds_on_one_line() {
    let schema: serde_json::Value = serde_json::from_str(&forebay(&["schema"]).out).expect("JSON");
    let mut keys = Vec::new();
    numeric_keys(&schema, &mut Vec::new(), &mut keys);
    assert!(keys.len() > 150, "{keys:?}");
    for wrong in ["1e20", "-1", "nan", "text", "1e20 with its unit"] {
        // One line for each key. Keys of one section are below it, each in its own entry.
        let mut sections = std::collections::BTreeMap::<&str, Vec<(String, String)>>::new();
        for (number, (path, unit)) in keys.iter().enumerate() {
            let value = wrong.replace(" with its unit", unit);
            if value == "1e20" && wrong != "1e20" {
                continue;
            }
            let line = match path[0].as_str() {
                "modules" | "ports" | "state" | "shares" | "buffers" => {
                    format!("  k{number}: {}", nested(&path[2..], &value))
                }
                "flows" | "workers" => format!("  - {}", nested(&path[2..], &value)),
                // Other keys would need their own files.
                _ => continue,
            };
            sections.entry(&path[0]).or_default().push((path.join("."), line));
        }
        let mut lines = Vec::new();
        for (section, entries) in &sections {
            lines.push((String::new(), format!("{section}:")));
            lines.extend(entries.iter().cloned());
        }
        let text: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
        let file = File::new(&text);
        let err = refused(&["check", file.path()]);
        let mut messages = vec![Vec::new(); lines.len()];
        for line in err.lines() {
            let position = line.split_once("test.yaml:").and_then(|(_, rest)| rest.split_once(": "));
            let (number, message) = position.unwrap_or_else(|| panic!("a line without a position: {line}"));
            messages[number.parse::<usize>().expect("a line's number") - 1].push(message.to_owned());
        }
        let mut bad = Vec::new();
        for ((path, line), messages) in lines.iter().zip(&messages).filter(|((path, _), _)| !path.is_empty()) {
            // If a key also accepts words, the error for a word lists the accepted words.
            let is_number = !matches!(wrong, "nan" | "text");
            if is_number && !messages.iter().any(|message| names_bounds(message)) {
                bad.push(format!("{path}: {line}\n    {}", messages.join("\n    ")));
            }
        }
        assert!(bad.is_empty(), "{wrong}:\n{}", bad.join("\n"));
    }
}
