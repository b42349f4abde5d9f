//! Wrong input: exit code 2, and an error that names it and says what is allowed.

use crate::{File, ROUTER, forebay};

/// What `forebay` says of arguments that it must refuse.
fn refused(arguments: &[&str]) -> String {
    let done = forebay(arguments);
    assert_eq!(done.code, Some(2), "{arguments:?}: {}{}", done.out, done.err);
    done.err
}

fn says(arguments: &[&str], all: &[&str]) {
    let err = refused(arguments);
    for said in all {
        assert!(err.contains(said), "{arguments:?}: '{said}' is not in\n{err}");
    }
}

#[test]
fn commands_and_names() {
    says(&["chekc"], &["'chekc'", "'check'"]);
    says(&[], &["Usage"]);
    says(&["list", "function"], &["functions"]);
    says(&["describe", "mac_rewirte"], &["'mac_rewirte'", "did you mean 'mac_rewrite'?"]);
    says(&["usecase", "gww"], &["'gww'", "did you mean 'gw'?"]);
    says(&["usecase", "gw", "--set", "m=3"], &["no parameter 'm'", "sessions"]);
    says(&["usecase", "gw", "--set", "n=zero"], &["'zero'", "1 to"]);
    says(&["run", "usecase:none"], &["'none'", "l2l3"]);
    says(&["completions", "dos"], &["bash"]);
}

#[test]
fn files() {
    says(&["run", "/nonexistent.yaml"], &["/nonexistent.yaml", "cannot be read"]);
    says(&["check", "/"], &["cannot be read"]);
    says(&["run", "gw"], &["gw: cannot be read", "did you mean 'usecase:gw'"]);
    says(&["check", "acl"], &["acl: cannot be read", "did you mean 'function:acl'"]);
    let file = File::new(&ROUTER.replace("hop: { ttl: }", "hop: { tll: }"));
    says(&["check", file.path()], &["test.yaml:6", "'tll'", "did you mean 'ttl'?"]);
    let done = forebay(&["check", file.path(), "--json"]);
    let json: serde_json::Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!((done.code, &json["in_order"]), (Some(2), &false.into()));
    assert!(json["problems"][0]["place"].as_str().is_some_and(|place| place.ends_with("test.yaml:6")), "{json}");
}

#[test]
fn names_with_control_characters_are_shown_and_not_obeyed() {
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

#[test]
fn settings_of_what_is_not_there() {
    says(&["run", "usecase:gw", "--set", "nn=3"], &["--set nn=3", "no parameter 'nn'", "it has n, rate, slo"]);
    let file = File::new(ROUTER);
    says(
        &["run", file.path(), "--set", "ports.inn.generator.rate=2Mpps"],
        &["--set ports.inn", "new port 'inn'", "own ports are in, out"],
    );
}

#[test]
fn settings_triggers_and_costs() {
    let file = File::new(ROUTER);
    let run = |more: &[&'static str], all: &[&str]| says(&[&["run", file.path()], more].concat(), all);
    run(&["--set", "batch"], &["KEY=VALUE"]);
    run(&["--set", "batch=0"], &["--set batch=0"]);
    run(&["--set", "ports.in.generator.rate=fast"], &["'fast'", "Mpps"]);
    run(&["--trigger", "hop"], &["MODULE=N"]);
    run(&["--trigger", "hup=3"], &["'hup'", "did you mean 'hop'?"]);
    run(&["--trigger", "hop=33"], &["0 to 32"]);
    run(&["--cost", "hop=1"], &["--virtual"]);
    run(&["--virtual", "--cost", "hup=1"], &["'hup'"]);
    run(&["--virtual", "--cost", "hop=fast"], &["NAME=CALL+PACKET"]);
    run(&["--duration", "20"], &["'20'", "ms"]);
    run(&["--interval", "1ns"], &["50ms"]);
    run(&["--core", "4000"], &["core 4000", "allowed are"]);
}

/// An empty name once meant the controller `null`, which is YAML for nothing.
#[test]
fn no_controller_is_named_by_nothing() {
    let file = File::new(ROUTER);
    for command in ["run", "simulate"] {
        says(&[command, file.path(), "--controller", ""], &["--controller <NAME>", "a value is required"]);
        says(
            &[command, file.path(), "--controller", "optimum"],
            &["error: --controller optimum: control.batching: 'optimum'", "did you mean 'optimal'?", "on-off"],
        );
        says(&[command, file.path(), "--workers", "300"], &["'300'", "--workers", "1 to 256"]);
    }
}

/// The controller was refused for want of parameters, and its parameters because it has none: neither said what works.
#[test]
fn how_a_controller_is_given_parameters_is_said() {
    let goes_on = ROUTER.replace("count: 1000", "rate: 1Mpps");
    let file = File::new(&format!("{goes_on}control: {{ batching: optimal, period: 10ms }}\n"));
    let run = ["run", file.path(), "--virtual"];
    let works = |trigger| format!("control.batching={{ static: {{ trigger: {trigger} }} }}");
    let instead = |trigger| format!(": on the command line `--set '{}'` instead", works(trigger));
    for command in [&["--controller", "static"][..], &["--set", "control.batching=static"]] {
        says(&[&run[..], command].concat(), &["static needs parameters: ", &instead(16)]);
    }
    let one = ["--set", "control.batching.static.trigger=8"];
    let told = ["'control.batching' is a single value", &instead(8)];
    says(&[&run[..], &one].concat(), &told);
    says(&[&run[..], &["--controller", "static"], &one].concat(), &told);
    let json = forebay(&[&run[..], &["--set", &works(8), "--json"]].concat()).json();
    assert_eq!(json["control"]["controller"], "static");
    assert!(json["modules"].as_array().is_some_and(|all| all.iter().all(|module| module["trigger"] == 8)), "{json}");
}

#[test]
fn settings_without_a_value() {
    let file = File::new(&format!("{ROUTER}flows:\n  - {{ name: all, path: hop, slo: 1ms }}\n"));
    for command in ["run", "simulate", "check"] {
        says(
            &[command, file.path(), "--set", "flows.0.slo="],
            &["'flows.0.slo='", "`flows.0.slo=null` leaves the key out"],
        );
    }
    let told = forebay(&["run", file.path(), "--virtual", "--set", "flows.0.slo=null", "--json"]).json();
    assert_eq!(told["flows"][0]["slo_us"], serde_json::Value::Null);
}

#[test]
fn settings_of_batch_control() {
    let file = File::new(&format!("{ROUTER}flows:\n  - {{ name: all, path: hop, slo: 1ms }}\n"));
    let set = |setting: &str, all: &[&str]| {
        let given = format!("--set {setting}: ");
        says(
            &["run", file.path(), "--virtual", "--controller", "optimal", "--set", setting],
            &[&[given.as_str()], all].concat(),
        );
    };
    for wrong in ["0", "-1", "257", "1000"] {
        let told = format!("'{wrong}' is out of range: allowed is a whole number from 1 to 256");
        set(&format!("control.workers={wrong}"), &["control.workers", &told]);
    }
    for wrong in ["two", "1.5"] {
        set(&format!("control.workers={wrong}"), &[&format!("'{wrong}' is not a whole number")]);
    }
    // A whole number, however it is written: once told as a `floating point`, `expected usize`.
    set("control.workers=1e3", &["'1000.0' is out of range: allowed is a whole number from 1 to 256"]);
    let one = forebay(&["run", file.path(), "--virtual", "--controller", "optimal", "--set", "control.workers=1e0"]);
    assert_eq!(one.code, Some(0), "{}", one.err);
    set("control.guard=1", &["'1' is out of range: allowed is a number from 0 below 1"]);
    set("control.guard=5%", &["'5%' is not a number"]);
    set("control.gaurd=0.1", &["unknown key 'gaurd' (did you mean 'guard'?)"]);
    set("control.period=1us", &["1us: allowed are 1ms to 1h"]);
    set("flows.0.slo=0s", &["no delay at all", "more than 0"]);
    set("flows.0.slo=-1ms", &["flows[0].slo: '-1ms' is not a span of time", "units: ns, us, ms, s"]);
    set("flows.0.slo=1parsec", &["'1parsec' is not a span of time"]);
    set("flows.0.slo=99999999999s", &["'99999999999s' is too large for a span of time: allowed is up to 104d"]);
    set("flows.0.min_rate=0pps", &["0pps: allowed are 1pps to 1000Gpps"]);
    set("flows.0.percentile=101", &["'101' is out of range: allowed is a number above 0 to 100"]);
    set("flows.all.slo=1ms", &["'all' is not in the list 'flows'", "(did you mean 'flows.0'?)"]);
}

/// `unexpected argument '-1' found` says neither of which flag it is nor what is allowed.
#[test]
fn what_is_below_nothing_is_told_of_its_flag() {
    let file = File::new(ROUTER);
    says(&["simulate", file.path(), "--duration", "-1s"], &["'-1s' for '--duration <TIME>'", "units: ns, us, ms, s"]);
    says(&["run", file.path(), "--seed", "-1"], &["'-1' for '--seed <N>'"]);
    says(&["replay", file.path(), "--guard", "-0.1"], &["'-0.1' for '--guard <PART>'", "0 to less than 1"]);
    says(&["replay", file.path(), "--periods", "-1"], &["'-1' for '--periods <N>'", "whole numbers from 0 to"]);
    says(&["profile", "--batch", "-1"], &["'-1' for '--batch <N>'", "allowed are 4 to 256"]);
}

#[test]
fn costs_that_nobody_can_have() {
    let file = File::new(ROUTER);
    for wrong in ["*=", "=1", "hop", "hop=-1+2", "hop=1.5", "hop=1+2+3", "hop=99999999999999999999+1"] {
        says(
            &["simulate", file.path(), "--cost", wrong],
            &["--cost", &format!("'{wrong}'"), "whole nanoseconds of up to 3600000000000"],
        );
    }
}

#[test]
fn traces_and_drops() {
    let file = File::new(ROUTER);
    says(&["run", file.path(), "--trace", "0"], &["1..=100000"]);
    says(&["run", file.path(), "--filter", "tcp"], &["--trace"]);
    says(
        &["run", file.path(), "--trace", "1", "--filter", "tcp or hots 10.0.0.1"],
        &["column 8", "'hots'", "host ADDRESS"],
    );
    says(&["run", file.path(), "--drops", "/nonexistent/x.pcapng"], &["--drops", "/nonexistent/x.pcapng"]);
}

#[test]
fn a_measurement_takes_time() {
    for duration in ["0s", "999us", "3601s"] {
        says(&["measure", "usecase:gw", "--duration", duration], &["--duration", "allowed are 1ms to 1h"]);
    }
}

/// Paths of all keys of the configuration that take a number, with the unit of those that have one.
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

/// One line: the key at the end of `path` with a value, and what it stands in.
fn nested(path: &[String], value: &str) -> String {
    path.iter().rev().fold(value.to_owned(), |inner, key| match key.as_str() {
        "0" => format!("[{inner}]"),
        "*" => format!("{{ x: {inner} }}"),
        key => format!("{{ {key}: {inner} }}"),
    })
}

/// Whether a number stands where a message says what is allowed.
fn names_bounds(message: &str) -> bool {
    let words = ["allowed", "unit", " is not a"];
    let allowed = words.iter().find_map(|word| message.split_once(word));
    allowed.is_some_and(|(_, allowed)| allowed.contains(|c: char| c.is_ascii_digit()))
}

/// Some were refused without a bound, or in a description that went over two lines, the second of which said nothing.
#[test]
fn every_number_that_is_refused_is_named_with_its_bounds_on_one_line() {
    let schema: serde_json::Value = serde_json::from_str(&forebay(&["schema"]).out).expect("JSON");
    let mut keys = Vec::new();
    numeric_keys(&schema, &mut Vec::new(), &mut keys);
    assert!(keys.len() > 150, "{keys:?}");
    for wrong in ["1e20", "-1", "nan", "text", "1e20 with its unit"] {
        // A line for each key; those of one section stand under it, each in an entry of its own.
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
                // One entry each, in a file of its own.
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
            let place = line.split_once("test.yaml:").and_then(|(_, rest)| rest.split_once(": "));
            let (number, message) = place.unwrap_or_else(|| panic!("a line without a place: {line}"));
            messages[number.parse::<usize>().expect("a line's number") - 1].push(message.to_owned());
        }
        let mut bad = Vec::new();
        for ((path, line), messages) in lines.iter().zip(&messages).filter(|((path, _), _)| !path.is_empty()) {
            // Where words may stand, too, those are what a word is answered with.
            let is_number = !matches!(wrong, "nan" | "text");
            if is_number && !messages.iter().any(|message| names_bounds(message)) {
                bad.push(format!("{path}: {line}\n    {}", messages.join("\n    ")));
            }
        }
        assert!(bad.is_empty(), "{wrong}:\n{}", bad.join("\n"));
    }
}
