//! Tests the handover between configurations: sessions of unchanged parts are kept, and all others are not.

use std::path::Path;
use std::sync::{Arc, Weak};

use forebay_graph::{HandedOver, SharedState};
use forebay_protocol::ConfigurationChange;
use forebay_units::Frequency;

use crate::{Conditions, Loaded, Source, prepare};

/// A firewall whose state never changes, and another firewall, a translator, a balancer and users whose state changes
/// with `varied`.
fn configuration(varied: usize, more: &str) -> String {
    format!(
        "ports: {{ a: {{ generator: }}, b: {{ generator: }}, c: {{ sink: }} }}
state:
  known: {{ connections: {{ sessions: 100 }} }}
  strangers: {{ connections: {{ sessions: {varied} }} }}
  nat1: {{ nat: {{ pool: 203.0.113.0/28, sessions: {varied} }} }}
  web: {{ balancer: {{ sessions: {varied}, services: [{{ address: 192.0.2.10, protocol: udp, \
   backends: [{{ address: 10.0.0.1 }}] }}] }} }}
  users: {{ pdu_sessions: {{ limit: 100, sessions: ['10.60.0.1 teid={varied}'], rules: rules.txt }} }}
modules:
  fw: {{ firewall: {{ state: known, default: permit }} }}
  wall: {{ firewall: {{ state: strangers, default: permit }} }}
  nat: {{ nat_out: {{ state: nat1 }} }}
  lb: {{ balance: {{ state: web }} }}
  down: {{ upf_downlink: {{ state: users }} }}
{more}
"
    )
}

const ALONE: &str = "pipeline:\n  - a -> fw -> wall -> nat -> lb -> down -> c\n  - b -> c";
const BESIDE: &str =
    "  more: { counter: }\npipeline:\n  - a -> fw -> wall -> nat -> lb -> down -> c\n  - b -> more -> c";

/// A folder with a file of rules.
fn folder(rules: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a writable folder");
    std::fs::write(folder.path().join("rules.txt"), rules).expect("a writable folder");
    folder
}

/// Loads the next configuration as a reload does. The running one exists until it is replaced.
fn follow(running: Option<Loaded>, text: &str, base: &Path) -> (Loaded, ConfigurationChange) {
    let source = Source::new(text, "test.yaml", base);
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let before = running.as_ref().map(|running| running.made.clone());
    let prepared = prepare(&source, conditions, before.as_ref()).unwrap_or_else(|problems| panic!("{problems}"));
    let loaded = prepared.open().unwrap_or_else(|problems| panic!("{problems}"));
    let change = before.map(|before| before.change_to(&loaded.made)).unwrap_or_default();
    (loaded, change)
}

/// Returns the objects that are handed over, with the keys of all their shares.
fn handed_over(loaded: &Loaded) -> impl Iterator<Item = (&HandedOver, &SharedState)> {
    loaded.made.tables.iter().filter_map(|(key, object)| Some((key.handed_over()?, object)))
}

/// Returns the objects that are handed over, with the descriptions of their contents.
fn kept(loaded: &Loaded) -> Vec<(String, Weak<dyn std::any::Any + Send + Sync>)> {
    handed_over(loaded).map(|(object, value)| (object.key.clone(), Arc::downgrade(value))).collect()
}

/// Returns the object under the only key of this kind and name.
fn find(loaded: &Loaded, kind: &str, of: &str) -> SharedState {
    let named = |key: &str| !key.contains("listing") && key.contains(kind) && key.contains(of);
    let found: Vec<_> = handed_over(loaded).filter(|(object, _)| named(&object.key)).collect();
    assert_eq!(found.len(), 1, "{kind} {of}: {:?}", loaded.made.tables.keys());
    Arc::clone(found[0].1)
}

/// Regression: each configuration held the tables of sessions of the previous configuration, so that all tables stayed
/// in memory.
#[test]
fn sessions_of_what_has_changed_are_not_kept() {
    let folder = folder("1 tcp\n");
    let (mut running, _) = follow(None, &configuration(1_000, ALONE), folder.path());
    let (count, known) = (kept(&running).len(), find(&running, "connections", "known"));
    for round in 1..12 {
        let old: Vec<_> = kept(&running).into_iter().filter(|(key, _)| !key.contains("known")).collect();
        assert!(old.len() > 8, "{old:?}");
        let (next, change) = follow(Some(running), &configuration(1_000 + round, ALONE), folder.path());
        running = next;
        assert_eq!(change.forgotten, ["nat1", "strangers", "users", "web"]);
        let alive: Vec<_> = old.iter().filter(|(_, object)| object.strong_count() > 0).map(|(key, _)| key).collect();
        assert!(alive.is_empty(), "round {round}: {alive:?}");
        assert_eq!(kept(&running).len(), count, "round {round}: {:?}", kept(&running));
        assert!(Arc::ptr_eq(&find(&running, "connections", "known"), &known), "unchanged state is kept");
    }
}

/// Regression: a state that was changed back found its old sessions.
#[test]
fn a_state_that_is_changed_back_starts_empty() {
    let folder = folder("1 tcp\n");
    let (first, _) = follow(None, &configuration(1_000, ALONE), folder.path());
    let of = |loaded: &Loaded| {
        [("connections", "strangers"), ("nat", "nat1"), ("balancer", "web"), ("pdu_sessions", "users")]
            .map(|(kind, of)| find(loaded, kind, of))
    };
    let before = of(&first);
    let (second, _) = follow(Some(first), &configuration(2_000, ALONE), folder.path());
    let (third, _) = follow(Some(second), &configuration(1_000, ALONE), folder.path());
    for (before, after) in before.iter().zip(of(&third)) {
        assert!(!Arc::ptr_eq(before, &after));
    }
}

/// A state that is taken over does not request its objects again. They are kept nevertheless, and the state finds them
/// when it is created again with the same sessions.
#[test]
fn users_outlast_their_rules_whatever_changes_between() {
    let folder = folder("1 tcp\n");
    let (first, _) = follow(None, &configuration(1_000, ALONE), folder.path());
    let users = find(&first, "pdu_sessions", "users");
    let (second, change) = follow(Some(first), &configuration(1_000, BESIDE), folder.path());
    assert_eq!((change.added, change.changed), (vec!["more".to_owned()], vec![]));
    std::fs::write(folder.path().join("rules.txt"), "1 tcp\n2 udp\n").expect("a writable folder");
    let (third, change) = follow(Some(second), &configuration(1_000, BESIDE), folder.path());
    assert_eq!((change.changed, change.forgotten), (vec!["down".to_owned()], vec![]));
    assert!(Arc::ptr_eq(&find(&third, "pdu_sessions", "users"), &users));
}

/// The sessions of each worker are kept as long as the number of workers is the same, also if a module is taken over
/// and does not request them.
#[test]
fn sessions_are_kept_as_long_as_they_come_to_the_same_workers() {
    let text = |more: &str, workers: &str| {
        format!(
            "ports: {{ a: {{ generator: }}, c: {{ sink: }} }}
state: {{ known: {{ connections: {{ sessions: 100 }} }} }}
modules: {{ fw: {{ firewall: {{ state: known, default: permit }} }}{more} }}
pipeline:
  - a -> fw -> {}c
workers: {workers}
",
            if more.is_empty() { "" } else { "more -> " }
        )
    };
    let tables = |loaded: &Loaded| {
        let own = handed_over(loaded).filter(|(object, _)| object.shares.is_some());
        own.map(|(key, table)| (key.clone(), Arc::as_ptr(table).cast::<()>() as usize)).collect::<Vec<_>>()
    };
    let base = Path::new("");
    let (alone, _) = follow(None, &text("", "[{}]"), base);
    let one = find(&alone, "connections", "known");
    assert_eq!(tables(&alone).len(), 1);
    let (two, change) = follow(Some(alone), &text("", "[{}, {}]"), base);
    let both = tables(&two);
    assert_eq!((both.len(), change.forgotten), (2, vec!["known".to_owned()]));
    let (beside, change) = follow(Some(two), &text(", more: { counter: }", "[{}, {}]"), base);
    assert_eq!((tables(&beside), change.kept, change.forgotten), (both, 1, vec![]));
    let (changed, change) = follow(Some(beside), &text("", "[{}]"), base);
    assert_eq!((tables(&changed).len(), change.forgotten), (1, vec!["known".to_owned()]));
    assert!(
        !Arc::ptr_eq(&find(&changed, "connections", "known"), &one),
        "a new table, although the number of workers is the same as at first"
    );
}

/// Regression: the gauges of a module's table were in no report. Only the function of the check had requested them,
/// which is dropped when another one is created to run. They were also missing after a reload that created the module
/// again.
#[test]
fn gauges_of_shared_objects_are_shown_by_each_running_replica() {
    let folder = folder("");
    let text = |gates: &str| {
        format!(
            "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}
modules:
  ids: {{ nids: {{ rules: ['alert udp any any -> any 53 (content:\"abc\"; sid:1;)'] }} }}
  look: {{ dpi: {{ patterns: ['abc'] }} }}
  list: {{ acl: {{ rules: {{ synthetic: 3 }} }} }}
  {gates}
workers: [{{}}, {{}}]
pipeline: [in -> ids -> look, look[clean] -> list -> more -> out, look[match] -> drop]
"
        )
    };
    let (running, _) = follow(None, &text("more: { counter: }"), folder.path());
    let shown = |loaded: &Loaded, name: &str, heading: &str| {
        let modules = loaded.plans.iter().flat_map(|plan| &plan.modules).filter(|module| module.name == name);
        let made = modules.filter(|module| module.function.is_some());
        made.map(|module| {
            let own: Vec<_> = module.counters.iter().filter(|own| own.heading == heading).collect();
            assert_eq!(own.len(), 1, "{name}");
            assert!(own[0].gauges, "{name}");
            (own[0].names.clone(), Arc::clone(&own[0].counters))
        })
        .collect::<Vec<_>>()
    };
    let known = |loaded: &Loaded| {
        let rules = shown(loaded, "ids", "rules");
        for (name, heading) in [("ids", "rules"), ("look", "patterns"), ("list", "compiling given up")] {
            let all = shown(loaded, name, heading);
            assert!(all.iter().all(|(_, counters)| Arc::ptr_eq(counters, &all[0].1)), "{name}: one of all workers");
        }
        rules.iter().map(|(names, counters)| (names[0].clone(), counters[0].get())).collect::<Vec<_>>()
    };
    let expected = vec![("known".to_owned(), 1); 2];
    assert_eq!(known(&running), expected);
    // With one worker instead of two, that worker takes over the modules.
    let alone = text("more: { counter: }").replace("[{}, {}]", "[{}]");
    let (alone, _) = follow(Some(running), &alone, folder.path());
    assert_eq!(shown(&alone, "ids", "rules").len() + shown(&alone, "look", "patterns").len(), 0, "taken over");
    let (again, _) = follow(Some(alone), &text("more: { counter: }"), folder.path());
    assert_eq!(known(&again), expected[1..]);
}
