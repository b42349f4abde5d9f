//! Tables asked as operators ask them, while a worker is woken as an engine would.

use std::sync::Arc;

use forebay_graph::{Outcome, Rig, Table};

/// The table that a function has handed out under a name.
pub(crate) fn table(rig: &Rig, name: &str) -> Arc<dyn Table> {
    let (_, table) = rig.declared.tables.iter().find(|(known, _)| known == name).expect("a table of this name");
    Arc::clone(table)
}

/// What `ask` comes to on a thread of its own, which waits for the worker meanwhile.
pub(crate) fn asked<T: Send>(rigs: &mut [&mut Rig], ask: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !asking.is_finished() {
            rigs.iter_mut().for_each(|rig| _ = rig.wake());
        }
        asking.join().expect("it does not panic")
    })
}

/// All that a filter means, as lines.
pub(crate) fn chosen(rig: &mut Rig, name: &str, filter: &str) -> Vec<String> {
    let table = table(rig, name);
    asked(&mut [rig], move || table.chosen(filter, None, 100_000).expect("an answer"))
}

/// Changes, made.
pub(crate) fn changed(rig: &mut Rig, name: &str, changes: &[&str]) -> Outcome {
    let table = table(rig, name);
    asked(&mut [rig], move || table.apply(changes))
}

/// A word of a line: `NAME=VALUE`.
pub(crate) fn word<'l>(line: &'l str, name: &str) -> &'l str {
    let mut words = line.split(' ').filter_map(|word| word.split_once('='));
    words.find(|(known, _)| *known == name).map(|(_, value)| value).unwrap_or_else(|| panic!("{line} has no {name}"))
}
