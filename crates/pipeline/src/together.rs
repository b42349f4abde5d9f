//! Checks that modules that share sessions run on the same workers, because each worker has its own sessions.

use forebay_graph::{SetupError, StateKind};

use crate::draft::{Draft, ModuleDraft};
use crate::faults::FaultCollector;

/// Returns the name of the state of sessions that a module uses, and the path of the parameter with this name; `None`
/// if the module uses no such state.
fn state(module: &ModuleDraft) -> Option<(&str, String)> {
    if module.kind.state == StateKind::PerSession {
        return Some((module.params.get("state")?.as_str()?, "state".to_owned()));
    }
    let named = module.kind.followed(&module.params)?;
    Some((named, module.kind.follows?.trim_start_matches('/').replace('/', ".")))
}

/// Returns a group number for each module. Modules that share sessions have the same number.
pub(crate) fn groups(draft: &Draft) -> Vec<usize> {
    let first = |module: &ModuleDraft| {
        let (named, _) = state(module)?;
        draft.modules.iter().position(|other| state(other).is_some_and(|(theirs, _)| theirs == named))
    };
    draft.modules.iter().enumerate().map(|(index, module)| first(module).unwrap_or(index)).collect()
}

/// Refuses modules that use the same state of sessions on different workers, because one module would not find the
/// sessions of the other. Refuses modules that only look up sessions of a state if no module opens these sessions.
pub(crate) fn check(draft: &Draft, faults: &mut FaultCollector) {
    let opens = |module: &ModuleDraft| module.kind.state == StateKind::PerSession;
    for (index, module) in draft.modules.iter().enumerate() {
        let Some((named, parameter)) = state(module) else { continue };
        let shares = |other: &ModuleDraft| state(other).is_some_and(|(theirs, _)| theirs == named);
        let mut fault = |wrong: String, hint: &str| {
            let error = SetupError::with_hint(parameter.as_str(), wrong, hint);
            faults.add_all(&draft.root, &["modules", &module.name, module.kind.name], error);
        };
        if !opens(module) && !draft.modules.iter().any(|other| opens(other) && shares(other)) {
            let wrong = format!("no module opens sessions in the state '{named}'");
            fault(wrong, "name a state in which a module opens sessions");
            continue;
        }
        let Some(first) = draft.modules[..index].iter().position(shares) else { continue };
        let on = |module: usize| &draft.placement.modules[module];
        if on(first) != on(index) {
            let (other, theirs, own) = (&draft.modules[first].name, numbers(on(first)), numbers(on(index)));
            let wrong =
                format!("'{named}' is shared with '{other}', which is on {theirs}, and this module is on {own}");
            fault(wrong, "run both on the same workers, because each worker has its own sessions");
        }
    }
}

/// Lists workers for a message.
fn numbers(workers: &[usize]) -> String {
    let listed: Vec<_> = workers.iter().map(ToString::to_string).collect();
    format!("worker{} {}", if workers.len() == 1 { "" } else { "s" }, listed.join(", "))
}
