//! Modules that share sessions run on the same workers: a worker has the sessions of its own packets.

use forebay_graph::{SetupError, StateKind};

use crate::compile::{Draft, ModuleDraft, add_faults};
use crate::conform::Misfits;

/// Refuses modules with one state of sessions that are on different workers: one would not find what the other has opened.
pub(crate) fn check(draft: &Draft, misfits: &mut Misfits) {
    let state = |module: &ModuleDraft| {
        let named = module.params.get("state").and_then(serde_json::Value::as_str).map(str::to_owned);
        named.filter(|_| module.kind.state == StateKind::PerSession)
    };
    for (at, module) in draft.modules.iter().enumerate() {
        let Some(named) = state(module) else { continue };
        let first = draft.modules[..at].iter().position(|other| state(other).as_ref() == Some(&named));
        let Some(first) = first else { continue };
        let on = |at: usize| &draft.placement.modules[at];
        if on(first) != on(at) {
            let (other, theirs, own) = (&draft.modules[first].name, numbers(on(first)), numbers(on(at)));
            let told = format!(
                "'{named}' is shared with '{other}', which is on {theirs}, and this module is on {own}: each worker has \
                 sessions of its own, so both need the same workers"
            );
            let error = SetupError::at("state", told);
            add_faults(misfits, &draft.root, &["modules", &module.name, module.kind.name], error);
        }
    }
}

/// Workers as they are written.
fn numbers(workers: &[usize]) -> String {
    let listed: Vec<_> = workers.iter().map(ToString::to_string).collect();
    format!("worker{} {}", if workers.len() == 1 { "" } else { "s" }, listed.join(", "))
}
