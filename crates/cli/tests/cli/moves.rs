//! Modules of a running pipeline move to other workers by command.

use std::io::Write as _;

use serde_json::{Value, json};

use crate::running::{Running, json as read, packets};

/// Two workers, the second of which has nothing to run yet.
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

/// A running pipeline of two workers; `None`, and a printed reason, on a machine with one core.
pub(crate) fn two_workers(name: &str) -> Option<Running> {
    two_workers_of(name, || TWO.to_owned())
}

/// The same of another text, which is made where there are two cores.
pub(crate) fn two_workers_of(name: &str, text: impl FnOnce() -> String) -> Option<Running> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        let _ = writeln!(std::io::stderr(), "skipped: {name}: one core");
        return None;
    }
    Some(Running::of(&text()))
}

fn opened(running: &Running) -> u64 {
    let modules = read(&running.ask(&["show", "modules", "nat", "--json"]));
    modules[0]["counters"]["sessions"]["opened"].as_u64().expect("a number")
}

#[test]
fn modules_move_by_command_and_sessions_are_lost_only_on_demand() {
    let Some(running) = two_workers("modules_move_by_command_and_sessions_are_lost_only_on_demand") else { return };
    crate::running::wait_for("all sessions", || opened(&running) == 100);
    let before = packets(&read(&running.ask(&["show", "modules", "--json"])), "nat");
    let done = running.ask(&["move", "nat=1", "last=1"]);
    let said = done.well();
    assert!(said.starts_with("'nat' from worker 0 to 1\n'last' from worker 0 to 1\nchanged in "), "{said}");
    assert!(said.contains("3 modules kept their state") && !said.contains("replaced"), "{said}");
    assert_eq!(running.ask(&["move", "last=1"]).well(), "all modules are already on their workers: nothing has moved\n");
    assert!(packets(&read(&running.ask(&["show", "modules", "--json"])), "nat") >= before, "it counts on");
    assert_eq!(opened(&running), 100, "no session was opened again");
    // It is the configuration in force, kept for the next start, and stays so at a reload of the file.
    let setting = r#"workers=[{"modules":["first"]},{"modules":["nat","last"]}]"#;
    let answer = read(&running.ask(&["reload", "--json"]))["reloaded"].clone();
    assert_eq!(
        (&answer["sets"], &answer["moved"], &answer["kept"]),
        (&json!([setting]), &json!([]), &json!(3)),
        "{answer}"
    );
    let state = std::fs::read_to_string(running.path("state")).expect("it is kept");
    let state: Value = serde_json::from_str(&state).expect("JSON");
    assert_eq!(state["sets"], json!([setting]));

    // Sessions would be lost: refused, and nothing changes.
    let refused = running.ask(&["move", "nat=0,1"]);
    assert_eq!(refused.code, Some(2));
    let why = "error: 'nat' from worker 1 to 0 and 1: each worker would get other sessions, and the sessions of 'nat' \
               would be lost: allowed are moves from one worker to one worker, and these moves with `lose_sessions` \
               (--lose-sessions)\n";
    assert_eq!(refused.err, why);
    assert_eq!(opened(&running), 100);
    let answer = read(&running.ask(&["move", "nat=0,1", "--lose-sessions", "--json"]))["moved"].clone();
    assert_eq!((&answer["forgotten"], &answer["missing"]), (&json!(["shared"]), &json!(0)), "{answer}");
    assert_eq!(answer["moves"], json!([{ "module": "nat", "from": [1], "to": [0, 1] }]));
    let answer = read(&running.ask(&["reload", "--forget", "--json"]))["reloaded"].clone();
    assert_eq!(answer["sets"], json!([]), "{answer}");

    // A part of it, said by the exit code.
    let part = running.ask(&["move", "first=1", "nat=1", "last=1", "--moves", "2"]);
    assert_eq!(part.code, Some(1), "{}", part.err);
    assert!(part.out.contains("'nat' from worker 0 to 1\nnot moved: 'last' from worker 0 to 1\n"), "{}", part.out);

    for (arguments, why) in [
        (&["nta=1"][..], "no module is called 'nta' (did you mean 'nat'?): there are first, nat, last"),
        (&["nat=2"], "module 'nat': there is no worker 2: there are 2, numbered from 0, and a move starts none"),
        (&["first=0", "first=1"], "module 'first' is named twice"),
        (&["first=0", "nat=1", "last=0"], "packets would go in a circle over workers"),
        (&["nat"], "write MODULE=WORKER, such as crypto=1"),
        (&["nat=one"], "write MODULE=WORKER, such as crypto=1"),
        (&["nat=1", "--moves", "0"], "0 is not in 1..=10000"),
        (&[], "MODULE=WORKER"),
    ] {
        let done = running.ask(&[&["move"], arguments].concat());
        assert!(done.code == Some(2) && done.err.contains(why), "{arguments:?}: {:?} {}", done.code, done.err);
    }
    let report = running.end();
    assert_eq!((&report["packets"]["in"], &report["packets"]["dropped"]), (&report["packets"]["out"], &json!({})));
}
