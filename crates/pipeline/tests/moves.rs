//! Which modules of a running configuration can move to which workers, and what is said of those that cannot.

use std::collections::BTreeSet;
use std::path::Path;

use forebay_functions as _;
use forebay_pipeline::{Conditions, Made, MoveError, Moving, Source, load, move_modules};
use forebay_ports as _;
use forebay_protocol::WantedWorkers;
use forebay_units::Frequency;
use proptest::prelude::*;

const CONDITIONS: fn() -> Conditions = || Conditions { frequency: Frequency::new(1e9), simulated: true };

fn source(more: &str) -> Source {
    let text = format!(
        "ports:
  in: {{ generator: {{ source: 10.0.0.0/24 }} }}
  net: {{ generator: {{ destination: 192.0.2.0/28 }} }}
  out: {{ sink: }}
state: {{ nat1: {{ nat: {{ pool: 192.0.2.0/28 }} }} }}
modules:
  first: {{ counter: }}
  there: {{ nat_out: {{ state: nat1 }} }}
  second: {{ counter: }}
  slow: {{ shaper: {{ rate: 1Gbps, burst: 16KiB }} }}
  back: {{ nat_in: {{ state: nat1 }} }}
  third: {{ counter: }}
pipeline:
  - in -> first -> there -> second -> slow -> out
  - net -> back -> third -> out
{more}"
    );
    Source::new(text, "moves.yaml", Path::new("."))
}

const TWO: &str = "workers: [{}, { modules: [] }]\n";

fn made(more: &str) -> Made {
    load(&source(more), CONDITIONS()).unwrap_or_else(|problems| panic!("{problems}")).made
}

fn wanted(wishes: &[(&str, &[usize])]) -> Vec<WantedWorkers> {
    wishes.iter().map(|(module, to)| WantedWorkers { module: (*module).to_owned(), to: to.to_vec() }).collect()
}

fn moving(made: &Made, wishes: &[(&str, &[usize])], most: Option<usize>) -> Result<Option<Moving>, MoveError> {
    move_modules(made, CONDITIONS(), &wanted(wishes), most)
}

fn refused(made: &Made, wishes: &[(&str, &[usize])], most: Option<usize>) -> String {
    moving(made, wishes, most).err().expect("it cannot be").to_string()
}

fn moved(moving: &Moving) -> Vec<&str> {
    moving.moves.iter().map(|moved| moved.module.as_str()).collect()
}

#[test]
fn moves_become_a_setting_that_names_every_worker_and_module() {
    let made = made("workers: [{ core: 3 }, { core: 1, modules: [] }]\n");
    let answer = moving(&made, &[("slow", &[1]), ("second", &[1])], None).expect("it can be").expect("they move");
    assert_eq!(moved(&answer), ["second", "slow"]);
    let setting =
        r#"workers=[{"core":3,"modules":["first","there","back","third"]},{"core":1,"modules":["second","slow"]}]"#;
    assert_eq!(answer.source.sets(), [setting]);
    assert_eq!(answer.source.given(), [setting]);
    assert_eq!((answer.forgetful.len(), answer.remaining.len()), (0, 0));
    // A setting before is replaced by it.
    let sets = source("").set("batch=16").set("workers=[{}, { modules: [] }]").set("workers.0.core=2");
    let loaded = load(&sets, CONDITIONS()).unwrap_or_else(|problems| panic!("{problems}"));
    let answer = moving(&loaded.made, &[("third", &[1])], None).expect("it can be").expect("it moves");
    let setting = r#"workers=[{"core":2,"modules":["first","there","second","slow","back"]},{"modules":["third"]}]"#;
    assert_eq!(answer.source.sets(), ["batch=16", setting]);
}

#[test]
fn a_worker_may_wait_for_modules_and_one_that_is_left_without_may_stay() {
    let made = made(TWO);
    let all = ["first", "there", "second", "slow", "back", "third"].map(|name| (name, &[1][..]));
    let answer = moving(&made, &all, None).expect("it can be").expect("they move");
    assert!(answer.source.sets()[0].starts_with(r#"workers=[{"modules":[]},"#), "{:?}", answer.source.sets());
    assert!(moving(&made, &[("first", &[0])], None).expect("it can be").is_none(), "it is there");
}

#[test]
fn what_cannot_move_is_refused_with_what_is_allowed() {
    let two = made(TWO);
    assert_eq!(
        refused(&two, &[("firts", &[1])], None),
        "no module is called 'firts' (did you mean 'first'?): there are first, there, second, slow, back, third"
    );
    assert_eq!(
        refused(&two, &[("first", &[2])], None),
        "module 'first': there is no worker 2: there are 2, numbered from 0, and a move starts none"
    );
    assert_eq!(refused(&two, &[("first", &[])], None), "module 'first' would run on no worker: name at least one");
    let twice = [("first", &[0][..]), ("first", &[1])];
    assert_eq!(refused(&two, &twice, None), "module 'first' is named twice: allowed is once, with all of its workers");
    for (wishes, why) in [
        (&[("first", &[1][..]), ("there", &[1])][..], "'nat1' is shared with 'there', which is on worker 1"),
        (&[("second", &[1])], "packets would go in a circle over workers, by way of 'second' -> 'slow'"),
        (&[("slow", &[0, 1])], "module 'slow' is on 2 workers, but shaper has state that every packet may change"),
    ] {
        let answer = refused(&two, wishes, None);
        assert!(answer.contains(why), "{answer}");
    }
}

/// Modules whose sessions would be lost are named: others come to each worker than before.
#[test]
fn modules_whose_sessions_would_be_lost_are_named() {
    let made = made(TWO);
    let forgetful = |to: &[usize], more: &[(&str, &[usize])]| {
        let wishes = [&[("there", to), ("back", to)][..], more].concat();
        moving(&made, &wishes, None).expect("it can be").expect("they move").forgetful
    };
    let behind = [("second", &[1][..]), ("slow", &[1])];
    assert_eq!(forgetful(&[0, 1], &[&behind[..], &[("third", &[0, 1])]].concat()), ["there", "back"]);
    assert_eq!(forgetful(&[1], &[&behind[..], &[("third", &[1])]].concat()), [""; 0]);
}

#[test]
fn a_controller_that_moves_modules_is_not_interfered_with() {
    let made = made(&format!("{TWO}control: {{ batching: optimal, workers: 3 }}\n"));
    assert_eq!(
        refused(&made, &[("third", &[1])], None),
        "the controller moves modules itself (`control.workers: 3`, where `workers` has 2): leave `control.workers` out"
    );
}

/// A file that has changed is for a reload to read: a move changes nothing but workers.
#[test]
fn a_move_does_not_read_files_that_have_changed() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let file = folder.path().join("rules");
    std::fs::write(&file, "permit ip from any to any\n").expect("a writable folder");
    let text = format!(
        "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}\nmodules: {{ wall: {{ acl: {{ rules: rules }} }}, after: \
        {{ counter: }} }}\n\
         pipeline: [in -> wall -> after -> out]\n{TWO}"
    );
    let source = Source::new(text, "moves.yaml", folder.path());
    let made = load(&source, CONDITIONS()).unwrap_or_else(|problems| panic!("{problems}")).made;
    std::fs::write(&file, "deny ip from any to any port 80 # longer\n").expect("a writable folder");
    let answer = refused(&made, &[("after", &[1])], None);
    assert!(answer.contains("'wall' reads a file that was changed since: reload, or change it back"), "{answer}");
}

#[test]
fn of_more_moves_than_allowed_the_first_that_are_possible_are_made() {
    let made = made(TWO);
    let all = ["there", "back", "third", "second", "slow", "first"].map(|name| (name, &[1][..]));
    let of = |most| moving(&made, &all, Some(most)).expect("it can be").expect("some move");
    // Both ways of a translation together; `there` alone would lie in the middle of its line.
    assert_eq!(moved(&of(1)), ["third"]);
    assert_eq!(moved(&of(2)), ["slow", "third"]);
    assert_eq!(moved(&of(6)).len(), 6);
    let remaining: Vec<_> = of(2).remaining.iter().map(|moved| moved.module.clone()).collect();
    assert_eq!(remaining, ["there", "back", "second", "first"]);
    let answer = refused(&made, &[("there", &[1]), ("back", &[1]), ("first", &[1])], Some(0));
    assert!(answer.starts_with("none of 3 moves can be made with at most 0: "), "{answer}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// What is chosen of a wish is no more than allowed, can be, and with the rest is the wish.
    #[test]
    fn what_is_chosen_is_allowed_and_possible(to in prop::array::uniform6(0usize..2), from in prop::array::uniform6(0usize..2), most in 1usize..6) {
        const NAMES: [&str; 6] = ["first", "there", "second", "slow", "back", "third"];
        let on = |worker: usize| {
            let modules = NAMES.iter().zip(&from).filter(|(_, on)| **on == worker).map(|(name, _)| *name);
            modules.collect::<Vec<_>>().join(", ")
        };
        let workers = format!("workers: [{{ modules: [{}] }}, {{ modules: [{}] }}]\n", on(0), on(1));
        let Ok(loaded) = load(&source(&workers), CONDITIONS()) else { return Ok(()) };
        let to = to.map(|worker| [worker]);
        let wishes: Vec<_> = NAMES.iter().zip(&to).map(|(name, to)| (*name, &to[..])).collect();
        match moving(&loaded.made, &wishes, Some(most)) {
            Ok(Some(answer)) => {
                prop_assert!(answer.moves.len() <= most);
                let all = answer.moves.iter().chain(&answer.remaining);
                let all: BTreeSet<_> = all.map(|moved| moved.module.as_str()).collect();
                let wanted: BTreeSet<_> = (0..6).filter(|at| to[*at] != [from[*at]]).map(|at| NAMES[at]).collect();
                prop_assert_eq!(all, wanted);
                prop_assert!(load(&answer.source, CONDITIONS()).is_ok());
            }
            Ok(None) => prop_assert!((0..6).all(|at| to[at] == [from[at]])),
            Err(MoveError::TooFew { .. } | MoveError::Problems(_)) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
