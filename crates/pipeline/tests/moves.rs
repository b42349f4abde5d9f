//! Tests the moves of modules of a running configuration to other workers, and the errors of impossible moves.

use std::collections::BTreeSet;
use std::path::Path;

use forebay_functions as _;
use forebay_pipeline::{Conditions, MoveError, Moving, PipelineParts, Source, load, move_modules};
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

fn made(more: &str) -> PipelineParts {
    load(&source(more), CONDITIONS()).unwrap_or_else(|problems| panic!("{problems}")).made
}

fn wanted(moves: &[(&str, &[usize])]) -> Vec<WantedWorkers> {
    moves.iter().map(|(module, to)| WantedWorkers { module: (*module).to_owned(), to: to.to_vec() }).collect()
}

fn moving(made: &PipelineParts, moves: &[(&str, &[usize])], most: Option<usize>) -> Result<Option<Moving>, MoveError> {
    move_modules(made, CONDITIONS(), &wanted(moves), most)
}

fn refused(made: &PipelineParts, moves: &[(&str, &[usize])], most: Option<usize>) -> String {
    moving(made, moves, most).err().expect("it cannot be").to_string()
}

fn moved(moving: &Moving) -> Vec<&str> {
    moving.moves.iter().map(|moved| moved.module.as_str()).collect()
}

#[test]
fn moves_become_a_setting_that_names_every_worker_and_module() {
    let made = made("workers: [{ core: 3 }, { core: 1, modules: [] }]\n");
    let result = moving(&made, &[("slow", &[1]), ("second", &[1])], None).expect("it can be").expect("they move");
    assert_eq!(moved(&result), ["second", "slow"]);
    let setting =
        r#"workers=[{"core":3,"modules":["first","there","back","third"]},{"core":1,"modules":["second","slow"]}]"#;
    assert_eq!(result.source.sets(), [setting]);
    assert_eq!(result.source.given(), [setting]);
    assert_eq!((result.forgetful.len(), result.remaining.len()), (0, 0));
    // It replaces an earlier setting.
    let sets = source("").set("batch=16").set("workers=[{}, { modules: [] }]").set("workers.0.core=2");
    let loaded = load(&sets, CONDITIONS()).unwrap_or_else(|problems| panic!("{problems}"));
    let result = moving(&loaded.made, &[("third", &[1])], None).expect("it can be").expect("it moves");
    let setting = r#"workers=[{"core":2,"modules":["first","there","second","slow","back"]},{"modules":["third"]}]"#;
    assert_eq!(result.source.sets(), ["batch=16", setting]);
}

#[test]
fn workers_without_modules_are_allowed_before_and_after_a_move() {
    let made = made(TWO);
    let all = ["first", "there", "second", "slow", "back", "third"].map(|name| (name, &[1][..]));
    let result = moving(&made, &all, None).expect("it can be").expect("they move");
    assert!(result.source.sets()[0].starts_with(r#"workers=[{"modules":[]},"#), "{:?}", result.source.sets());
    assert!(moving(&made, &[("first", &[0])], None).expect("it can be").is_none(), "it is there");
}

#[test]
fn errors_of_impossible_moves_name_the_allowed_ones() {
    let two = made(TWO);
    assert_eq!(
        refused(&two, &[("firts", &[1])], None),
        "no module is called 'firts' (did you mean 'first'?): there are first, there, second, slow, back, third"
    );
    assert_eq!(
        refused(&two, &[("first", &[2])], None),
        "module 'first': there is no worker 2: the pipeline has 2, numbered from 0, and a move cannot start a worker"
    );
    let nowhere = "module 'first' would run on no worker: name at least one worker";
    assert_eq!(refused(&two, &[("first", &[])], None), nowhere);
    let twice = [("first", &[0][..]), ("first", &[1])];
    assert_eq!(refused(&two, &twice, None), "module 'first' is named twice: name it once, with all of its workers");
    for (moves, why) in [
        (&[("first", &[1][..]), ("there", &[1])][..], "'nat1' is shared with 'there', which is on worker 1"),
        (&[("second", &[1])], "packets would go in a circle over workers, by way of 'second' -> 'slow'"),
        (&[("slow", &[0, 1])], "module 'slow' is on 2 workers, but shaper has state that every packet may change"),
    ] {
        let result = refused(&two, moves, None);
        assert!(result.contains(why), "{result}");
    }
}

/// Modules that would lose sessions are named, because each worker would get other sessions than before.
#[test]
fn modules_whose_sessions_would_be_lost_are_named() {
    let made = made(TWO);
    let forgetful = |to: &[usize], more: &[(&str, &[usize])]| {
        let moves = [&[("there", to), ("back", to)][..], more].concat();
        moving(&made, &moves, None).expect("it can be").expect("they move").forgetful
    };
    let behind = [("second", &[1][..]), ("slow", &[1])];
    assert_eq!(forgetful(&[0, 1], &[&behind[..], &[("third", &[0, 1])]].concat()), ["there", "back"]);
    assert_eq!(forgetful(&[1], &[&behind[..], &[("third", &[1])]].concat()), [""; 0]);
}

#[test]
fn modules_that_a_controller_moves_are_refused() {
    let made = made(&format!("{TWO}control: {{ batching: optimal, workers: 3 }}\n"));
    assert_eq!(
        refused(&made, &[("third", &[1])], None),
        "the controller moves modules itself, because `control.workers` is 3 and `workers` has 2: leave \
         `control.workers` out"
    );
}

/// A move changes only workers. Only a reload reads changed files.
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
    let result = refused(&made, &[("after", &[1])], None);
    let expected = "'wall' reads a file that has changed since Forebay read it: reload, or restore the file";
    assert!(result.contains(expected), "{result}");
}

#[test]
fn the_first_possible_moves_are_made_if_there_are_more_than_allowed() {
    let made = made(TWO);
    let all = ["there", "back", "third", "second", "slow", "first"].map(|name| (name, &[1][..]));
    let of = |most| moving(&made, &all, Some(most)).expect("it can be").expect("some move");
    // Both directions of a translation move together. `there` cannot move alone, because it is in the middle of its
    // line.
    assert_eq!(moved(&of(1)), ["third"]);
    assert_eq!(moved(&of(2)), ["slow", "third"]);
    assert_eq!(moved(&of(6)).len(), 6);
    let remaining: Vec<_> = of(2).remaining.iter().map(|moved| moved.module.clone()).collect();
    assert_eq!(remaining, ["there", "back", "second", "first"]);
    let result = refused(&made, &[("there", &[1]), ("back", &[1]), ("first", &[1])], Some(0));
    assert!(result.starts_with("none of 3 moves is possible if at most 0 may be made: "), "{result}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// The chosen moves are possible and not more than allowed. With the remaining moves they are all wanted moves.
    #[test]
    fn chosen_moves_are_allowed_and_possible(
        to in prop::array::uniform6(0usize..2), from in prop::array::uniform6(0usize..2), most in 1usize..6,
    ) {
        const NAMES: [&str; 6] = ["first", "there", "second", "slow", "back", "third"];
        let on = |worker: usize| {
            let modules = NAMES.iter().zip(&from).filter(|(_, on)| **on == worker).map(|(name, _)| *name);
            modules.collect::<Vec<_>>().join(", ")
        };
        let workers = format!("workers: [{{ modules: [{}] }}, {{ modules: [{}] }}]\n", on(0), on(1));
        let Ok(loaded) = load(&source(&workers), CONDITIONS()) else { return Ok(()) };
        let to = to.map(|worker| [worker]);
        let moves: Vec<_> = NAMES.iter().zip(&to).map(|(name, to)| (*name, &to[..])).collect();
        match moving(&loaded.made, &moves, Some(most)) {
            Ok(Some(result)) => {
                prop_assert!(result.moves.len() <= most);
                let all = result.moves.iter().chain(&result.remaining);
                let all: BTreeSet<_> = all.map(|moved| moved.module.as_str()).collect();
                let wanted = (0..6).filter(|module| to[*module] != [from[*module]]).map(|module| NAMES[module]);
                let wanted: BTreeSet<_> = wanted.collect();
                prop_assert_eq!(all, wanted);
                prop_assert!(load(&result.source, CONDITIONS()).is_ok());
            }
            Ok(None) => prop_assert!((0..6).all(|module| to[module] == [from[module]])),
            Err(MoveError::TooFew { .. } | MoveError::Problems(_)) => {}
            Err(other) => prop_assert!(false, "{other}"),
        }
    }
}
