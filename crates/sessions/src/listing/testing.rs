//! Requests of operators in tests, while a worker is woken as an engine would wake it.

use std::sync::Arc;

use forebay_graph::{Outcome, Rig, Table};

/// Returns the table that a function has declared under a name.
pub(crate) fn table(rig: &Rig, name: &str) -> Arc<dyn Table> {
    let (_, table) = rig.declared.tables.iter().find(|(known, _)| known == name).expect("a table of this name");
    Arc::clone(table)
}

/// Runs `ask` on its own thread, and wakes the workers until it returns.
pub(crate) fn run_while_serving<T: Send>(rigs: &mut [&mut Rig], ask: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let request = scope.spawn(ask);
        while !request.is_finished() {
            rigs.iter_mut().for_each(|rig| _ = rig.wake());
        }
        request.join().expect("it does not panic")
    })
}

/// Returns the lines that a filter selects.
pub(crate) fn chosen(rig: &mut Rig, name: &str, filter: &str) -> Vec<String> {
    let table = table(rig, name);
    run_while_serving(&mut [rig], move || table.chosen(filter, None, 100_000).expect("an answer"))
}

/// Applies changes to a table.
pub(crate) fn changed(rig: &mut Rig, name: &str, changes: &[&str]) -> Outcome {
    let table = table(rig, name);
    run_while_serving(&mut [rig], move || table.apply(changes))
}

/// Returns the value of a word `NAME=VALUE` of a line.
pub(crate) fn word<'l>(line: &'l str, name: &str) -> &'l str {
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find(|(known, _)| *known == name).map(|(_, value)| value).unwrap_or_else(|| panic!("{line} has no {name}"))
}
