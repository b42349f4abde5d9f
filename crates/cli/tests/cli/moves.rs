//! Modules of a running pipeline move to other workers by command.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::running::{Running, json as read, packets};

/// A pipeline with two workers. The second worker has no module yet.
pub(crate) const TWO: &str = "
ports:
  in:  { generator: { rate: 50kpps, sessions: 100, source: 10.0.0.0/8 } }
  out: { sink: }
state: { shared: { nat: { pool: 203.0.113.0/28 } } }
modules:
  first: { counter: }
  nat: { nat_out: { state: shared } }
  last: { counter: }
pipeline: [in -> first -> nat -> last -> out]
workers:
  - {}
  - { modules: [] }
";

/// Starts a pipeline with two workers. On a machine with one core, prints the reason and returns `None`.
pub(crate) fn two_workers(name: &str) -> Option<Running> {
    two_workers_of(name, || TWO.to_owned())
}

/// Like [`two_workers`], with another configuration, which is made only if there are two cores.
pub(crate) fn two_workers_of(name: &str, text: impl FnOnce() -> String) -> Option<Running> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: {name}: one core");
        return None;
    }
    Some(Running::of(&text()))
}

fn opened(running: &Running) -> u64 {
    let modules = read(&running.request(&["show", "modules", "nat", "--json"]));
    modules[0]["counters"]["sessions"]["opened"].as_u64().expect("a number")
}

#[test]
fn modules_move_by_command_and_lose_sessions_only_if_allowed() {
    let Some(running) = two_workers("modules_move_by_command_and_lose_sessions_only_if_allowed") else { return };
    crate::running::wait_for("all sessions", || opened(&running) == 100);
    let before = packets(&read(&running.request(&["show", "modules", "--json"])), "nat");
    let done = running.request(&["move", "nat=1", "last=1"]);
    let output = done.success();
    assert!(output.starts_with("'nat' from worker 0 to 1\n'last' from worker 0 to 1\nchanged in "), "{output}");
    assert!(output.contains("3 modules kept their state") && !output.contains("replaced"), "{output}");
    assert_eq!(
        running.request(&["move", "last=1"]).success(),
        "all modules are already on their workers: nothing has moved\n"
    );
    assert!(packets(&read(&running.request(&["show", "modules", "--json"])), "nat") >= before, "it continues to count");
    assert_eq!(opened(&running), 100, "no session was opened again");
    // The move is part of the configuration in force. It is stored for the next start, and a reload of the file keeps
    // it.
    let setting = r#"workers=[{"modules":["first"]},{"modules":["nat","last"]}]"#;
    let response = read(&running.request(&["reload", "--json"]))["reloaded"].clone();
    assert_eq!(
        (&response["sets"], &response["moved"], &response["kept"]),
        (&json!([setting]), &json!([]), &json!(3)),
        "{response}"
    );
    let state = std::fs::read_to_string(running.path("state")).expect("it is kept");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(state["sets"], json!([setting]));

    // Sessions would be lost: the move is refused, and nothing changes.
    let refused = running.request(&["move", "nat=0,1"]);
    assert_eq!(refused.code, Some(2));
    let why = "error: 'nat' from worker 1 to 0 and 1: the sessions of 'nat' would be lost, because each worker would \
               get other sessions: allowed are moves from one worker to one worker; to lose the sessions, use \
               `lose_sessions` (--lose-sessions)\n";
    assert_eq!(refused.err, why);
    assert_eq!(opened(&running), 100);
    let response = read(&running.request(&["move", "nat=0,1", "--lose-sessions", "--json"]))["moved"].clone();
    assert_eq!((&response["forgotten"], &response["missing"]), (&json!(["shared"]), &json!(0)), "{response}");
    assert_eq!(response["moves"], json!([{ "module": "nat", "from": [1], "to": [0, 1] }]));
    let response = read(&running.request(&["reload", "--forget", "--json"]))["reloaded"].clone();
    assert_eq!(response["sets"], json!([]), "{response}");

    // Only a part is moved: the exit code is 1.
    let part = running.request(&["move", "first=1", "nat=1", "last=1", "--moves", "2"]);
    assert_eq!(part.code, Some(1), "{}", part.err);
    assert!(part.out.contains("'nat' from worker 0 to 1\nnot moved: 'last' from worker 0 to 1\n"), "{}", part.out);

    for (arguments, why) in [
        (&["nta=1"][..], "no module is called 'nta' (did you mean 'nat'?): there are first, nat, last"),
        (
            &["nat=2"],
            "module 'nat': there is no worker 2: the pipeline has 2, numbered from 0, and a move cannot start a worker",
        ),
        (&["first=0", "first=1"], "module 'first' is named twice"),
        (&["first=0", "nat=1", "last=0"], "packets would go in a circle over workers"),
        (&["nat"], "write MODULE=WORKER, such as crypto=1"),
        (&["nat=one"], "write MODULE=WORKER, such as crypto=1"),
        (&["nat=1", "--moves", "0"], "'0' for '--moves <M>': allowed are 1 to 10000"),
        (&[], "MODULE=WORKER"),
    ] {
        let done = running.request(&[&["move"], arguments].concat());
        assert!(done.code == Some(2) && done.err.contains(why), "{arguments:?}: {:?} {}", done.code, done.err);
    }
    let report = running.end();
    assert_eq!((&report["packets"]["in"], &report["packets"]["dropped"]), (&report["packets"]["out"], &json!({})));
}
