//! Exclusive files of a run: its state, its socket, and the settings in force.

use crate::forebay;
use crate::running::{PIPELINE, Running, json, temporary};

/// Regression: two runs with one state file wrote it in turns without an error, and the second run started from the
/// configuration of the first run.
#[test]
fn a_second_run_with_the_same_state_or_socket_is_refused_and_changes_nothing() {
    let running = Running::start();
    json(&running.request(&["reload", "--set", "name=first", "--json"]));
    let name = |file: &str| running.path(file).to_str().expect("UTF-8").to_owned();
    let (state, socket, drops, pipeline) = (name("state"), name("s"), name("drops"), name("pipeline.yaml"));
    let before = std::fs::read(&state).expect("it exists");
    std::fs::write(&drops, "precious").expect("a writable folder");
    let run = |more: &[&str]| {
        forebay(&[&["run", &pipeline, "--no-live", "--duration", "10ms", "--drops", &drops][..], more].concat())
    };
    let process = running.id();
    let expected = format!(
        "error: --state {state}: process {process} has it: that run keeps its configuration there: \
                        stop it, or give this run another file\n"
    );
    let second = run(&["--state", &state, "--no-socket"]);
    assert_eq!((second.code, second.err), (Some(2), expected));
    let second = run(&["--socket", &socket]);
    let expected = format!(
        "error: the socket '{socket}': another pipeline listens on this path: end that pipeline, or use \
                        another path\n"
    );
    assert_eq!((second.code, second.err), (Some(2), expected));
    assert_eq!(std::fs::read(&state).expect("it exists"), before);
    assert_eq!(std::fs::read(&drops).expect("it exists"), b"precious");
    assert!(running.request(&["show", "modules"]).out.contains("route"));
    // With its own files, a second run is accepted. A run that has ended releases its files.
    let other = name("other");
    run(&["--state", &other, "--no-socket"]).success();
    let (_, folder) = running.end_keeping();
    assert!(!folder.path().join("state.lock").exists() && !folder.path().join("s").exists());
    let at = |file: &str| folder.path().join(file).to_str().expect("UTF-8").to_owned();
    let more = ["--state", &at("state"), "--socket", &at("s")];
    let again = forebay(&[&["run", &at("pipeline.yaml"), "--no-live", "--duration", "10ms"][..], &more].concat());
    assert!(again.code == Some(0) && again.err.contains("last accepted"), "{}", again.err);
}

/// Regression: a setting of a reload replaced all earlier settings, and the parameters of a use case were lost at every
/// reload, with `--set` or without.
#[test]
fn settings_of_a_reload_are_added_to_earlier_ones() {
    let running =
        Running::in_folder(temporary(), PIPELINE, &["--set", "name=mine", "--set", "ports.in.generator.rate=50kpps"]);
    let sets = |arguments: &[&str]| {
        json(&running.request(&[&["reload", "--json"], arguments].concat()))["reloaded"]["sets"].clone()
    };
    assert_eq!(sets(&[]), serde_json::json!(["name=mine", "ports.in.generator.rate=50kpps"]));
    assert_eq!(
        sets(&["--set", "modules.b.counter={}", "--set", "name=yours"]),
        serde_json::json!(["ports.in.generator.rate=50kpps", "modules.b.counter={}", "name=yours"])
    );
    assert_eq!(running.name(), "yours");
    let output = running.request(&["reload"]).success();
    let in_force =
        "settings in force: --set ports.in.generator.rate=50kpps --set modules.b.counter={} --set name=yours\n";
    assert!(output.ends_with(in_force), "{output}");
    // An earlier setting that is now invalid is reported with the option that removes it.
    running.write(&PIPELINE.replace(
        "  in:  { generator: { rate: 100kpps, destination: 10.0.0.0/16 } }",
        "  in: { ring: { from: x } }\n  x: { ring: { to: x } }",
    ));
    let refused = running.request(&["reload"]);
    assert!(
        refused.code == Some(2) && refused.err.contains("--set ports.in.generator.rate=50kpps: "),
        "{}",
        refused.err
    );
    assert!(refused.err.ends_with("stay in force: use --forget to remove them\n"), "{}", refused.err);
    running.write(PIPELINE);
    assert_eq!(sets(&["--forget", "--set", "name=third"]), serde_json::json!(["name=third"]));
    assert_eq!(sets(&["--forget"]), serde_json::json!([]));
    assert_eq!(running.name(), "pipeline");
    // The parameters of a use case are settings, too, also after a start from the stored state.
    json(&running.request(&["reload", "usecase:l2l3", "--set", "n=3", "--set", "rate=10kpps", "--json"]));
    let modules = || json(&running.request(&["show", "modules", "--json"])).as_array().expect("a list").len();
    let of_three = modules();
    assert_eq!(sets(&["usecase:l2l3"]), serde_json::json!(["n=3", "rate=10kpps"]));
    assert_eq!(modules(), of_three);
    let (_, folder) = running.end_keeping();
    let running = Running::in_folder(folder, PIPELINE, &[]);
    let reloaded = json(&running.request(&["reload", "usecase:l2l3", "--set", "n=4", "--json"]))["reloaded"].clone();
    assert_eq!(reloaded["sets"], serde_json::json!(["rate=10kpps", "n=4"]));
    running.end();
}

/// Regression: a start hung if the name of the old state was that of a pipe. The state of another pipeline was reported
/// as a changed file, and errors in the state as errors in the file. A killed run left a partial state file.
#[test]
fn a_start_reports_the_pipeline_of_the_state_and_does_not_hang() {
    let folder = temporary();
    let path = |name: &str| folder.path().join(name).to_str().expect("UTF-8").to_owned();
    let (fast, slow, state) = (path("fast.yaml"), path("slow.yaml"), path("state"));
    std::fs::write(&fast, PIPELINE).expect("a writable folder");
    std::fs::write(&slow, PIPELINE.replace("100kpps", "1kpps")).expect("a writable folder");
    let run = |file: &str, more: &[&str]| {
        let arguments = ["run", file, "--no-socket", "--json", "--duration", "10ms", "--state", &state];
        forebay(&[&arguments[..], more].concat())
    };
    // No process has this number.
    let leftovers = [path("state.4194999.new"), path("state.old.4194999.new")];
    leftovers.iter().for_each(|path| std::fs::write(path, "{").expect("a writable folder"));
    run(&fast, &[]).success();
    assert!(leftovers.iter().all(|path| !std::path::Path::new(path).exists()));
    // The state is of another pipeline. A pipe with the name of the old state is refused, and the state is unchanged.
    let (before, old) = (std::fs::read(&state).expect("it exists"), path("state.old"));
    assert!(std::process::Command::new("mkfifo").arg(&old).status().expect("the command mkfifo").success());
    for more in [&[][..], &["--prefer", "file"]] {
        let done = run(&slow, more);
        let expected = format!("--state {old}: it is a pipe: allowed are regular files");
        assert!(done.code == Some(2) && done.err.contains(&expected), "{}", done.err);
    }
    assert_eq!(std::fs::read(&state).expect("it exists"), before);
    std::fs::remove_file(&old).expect("it exists");
    let done = run(&slow, &[]);
    let expected = format!("started from {slow}, because the state is from another pipeline, {fast}; ");
    assert!(
        done.code == Some(0) && done.err.contains(&expected) && done.err.contains("why=other_file"),
        "{}",
        done.err
    );
    // An error in the stored text is reported as an error of the state.
    let text = std::fs::read_to_string(&state).expect("it exists");
    std::fs::write(&state, text.replace("ip_lookup", "ip_lockup")).expect("a writable folder");
    let done = run(&slow, &[]);
    let expected = format!("error: {state} ({slow}:6 as it was accepted): ");
    let hint = format!("to start from {slow}, use --prefer file: {state} is kept as {state}.old\n");
    assert!(done.code == Some(2) && done.err.contains(&expected) && done.err.ends_with(&hint), "{}", done.err);
    // Each error has its own line.
    std::fs::write(&state, text.replace("counter", "cuonter")).expect("a writable folder");
    let done = run(&slow, &[]);
    let begin = format!("error: {state} ({slow}:");
    let faults: Vec<_> = done.err.lines().filter(|line| line.contains("cuonter")).collect();
    assert!(faults.len() == 2 && faults.iter().all(|line| line.starts_with(&begin)), "{}", done.err);
    // For a file that is not a state, the error names the option that replaces it.
    std::fs::write(&state, "{").expect("a writable folder");
    let done = run(&slow, &[]);
    let hint = format!("use --prefer file, which keeps the state as {state}.old\n");
    assert!(done.code == Some(2) && done.err.ends_with(&hint), "{}", done.err);
    run(&slow, &["--prefer", "file"]).success();
    assert_eq!(std::fs::read(&old).expect("it was stored"), b"{");
}

/// Regression: the error did not name the file.
#[test]
fn a_reload_that_cannot_be_saved_names_the_state_file_and_changes_nothing() {
    let running = Running::start();
    let state = running.path("state");
    std::fs::remove_file(&state).expect("it exists");
    std::fs::create_dir(&state).expect("a writable folder");
    let done = running.request(&["reload", "--set", "name=other"]);
    let expected = format!("cannot save the configuration for the next start: {}: it is a", state.display());
    assert!(done.code == Some(2) && done.err.contains(&expected), "{}", done.err);
    assert_eq!(running.name(), "pipeline");
}
