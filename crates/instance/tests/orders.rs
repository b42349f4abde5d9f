//! Tests that workers check their orders between turns, however long the turns are.

use forebay_instance::{ControlInputs, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load};

/// Regression: a worker checked its orders every 64 turns. With turns of 4 ms it did not respond within 2 s on a busy
/// machine.
#[test]
fn slow_modules_do_not_keep_orders_waiting() {
    let cycles = (Tsc.frequency().hertz() * 4e-3) as u64;
    let text = format!(
        "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}\n\
         modules: {{ slow: {{ bypass: {{ cycles_per_batch: {cycles} }} }} }}\n\
         pipeline: [in -> slow -> out]\n"
    );
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let source = Source::new(&text, "slow.yaml", "");
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core");
    let instance = start(plans, cores, made, Box::new(|_| None), ControlInputs::default()).expect("it starts");
    let board = instance.board();
    let slow_turns = || board.report(&board.nothing(), &board.read(Tsc.now())).workers[0].busy_turns;
    // The next order follows at once. Another process may interrupt this thread for some turns, but not in all rounds.
    let count = || (instance.census(), slow_turns());
    let fewest = (0..20).map(|_| count().1).collect::<Vec<_>>().windows(2).map(|pair| pair[1] - pair[0]).min();
    assert!(fewest.is_some_and(|turns| turns <= 3), "{fewest:?}");
    drop(instance.end());
}
