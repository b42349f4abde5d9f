//! Reads the section `control`: the controller that sets the triggers, and its period.

use forebay_control::Settings;
use forebay_graph::SetupError;
use forebay_protocol::SchedulerKind;
use forebay_units::Nanos;
use serde_json::Value;

use crate::buffers::unreached;
use crate::faults::FaultCollector;
use crate::language::{Control, MOST_WORKERS};
use crate::section::read;
use crate::yaml::Node;

/// The default period of decisions.
const PERIOD: Nanos = Nanos(100_000_000);
/// The shortest period of decisions.
const SHORTEST: Nanos = Nanos(1_000_000);
/// The longest period of decisions.
const LONGEST: Nanos = Nanos(3_600_000_000_000);
/// The default part of each delay objective that is kept in reserve (delta in Batchy).
const GUARD: f64 = 0.05;

/// Reads the section, if there is one. Adds its errors to `faults`, and then returns `None`. `scheduler` is the
/// pipeline's scheduler, `batch` is the largest batch, and `workers` is the number of workers in the section `workers`.
pub(crate) fn read_control(
    root: &Node,
    scheduler: SchedulerKind,
    batch: usize,
    workers: usize,
    faults: &mut FaultCollector,
) -> Option<Settings> {
    let node = root.get("control")?;
    let section: Control = read(faults, root, &["control"], node)?;
    let (name, params) = match &section.batching {
        Value::String(name) => (name.clone(), Value::Null),
        // YAML reads the controller's name without quotes as a null.
        Value::Null => ("null".to_owned(), Value::Null),
        Value::Object(map) => map.iter().next().map(|(name, params)| (name.clone(), params.clone()))?,
        _ => return None,
    };
    // The schema check reports an unknown name.
    let controller = forebay_graph::controllers().into_iter().find(|it| it.name == name)?;
    if let Err(error) = controller.build(&params) {
        if !section.batching.is_object() {
            let hint = format!("write `batching: {{ {name}: {} }}`", controller.example);
            let error = SetupError::with_hint("batching", format_args!("{name} needs parameters"), hint);
            faults.add_all(root, &["control"], error);
            return None;
        }
        faults.add_all(root, &["control", "batching", &name], error);
        return None;
    }
    // Other controllers set no trigger above the largest batch.
    let trigger = params["trigger"].as_u64().filter(|trigger| name == "static" && *trigger > batch as u64);
    if let Some(trigger) = trigger {
        faults.add_all(root, &["control", "batching", &name], unreached(trigger, batch));
        return None;
    }
    let period = section.period.unwrap_or(PERIOD);
    if !(SHORTEST..=LONGEST).contains(&period) {
        let period = node.get("period").and_then(Node::as_text).unwrap_or_default();
        let error = SetupError::wrong("period", period, format_args!("a period of {period}"), "1ms to 1h");
        faults.add_all(root, &["control"], error);
        return None;
    }
    if let Some(needed) = controller.scheduler.filter(|needed| *needed != scheduler) {
        let needed = serde_json::to_value(needed).ok()?;
        let hint = format!("write `scheduler: {}` too", needed.as_str().unwrap_or_default());
        let error = SetupError::with_hint("batching", format_args!("{name} sets weights"), hint);
        faults.add_all(root, &["control"], error);
        return None;
    }
    let most = section.workers.unwrap_or(workers);
    let wrong = if most < workers {
        let wrong = format!("{most} is less than the {workers} under `workers`");
        Some(SetupError::wrong("workers", most, wrong, format!("{workers} to {MOST_WORKERS}")))
    } else if most > workers && scheduler != SchedulerKind::RunToCompletion {
        let wrong = format!("{most} would let modules move to other workers, which this scheduler does not support");
        let allowed = format!("{workers}, or `scheduler: run-to-completion`");
        Some(SetupError::wrong_single("workers", most, wrong, allowed))
    } else {
        None
    };
    if let Some(error) = wrong {
        faults.add_all(root, &["control"], error);
        return None;
    }
    Some(Settings { controller, params, period, guard: section.guard.unwrap_or(GUARD), workers: most })
}
