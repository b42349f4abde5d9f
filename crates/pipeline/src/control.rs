//! The section `control`: which controller sets the triggers, and how often.

use forebay_control::Settings;
use forebay_graph::SetupError;
use forebay_protocol::SchedulerKind;
use forebay_units::Nanos;
use serde_json::Value;

use crate::compile::{add_faults, read};
use crate::conform::Misfits;
use crate::language::Control;
use crate::workers::MOST;
use crate::yaml::Node;

/// How often a controller decides where nothing is said.
const PERIOD: Nanos = Nanos(100_000_000);
/// How often it may decide.
const SHORTEST: Nanos = Nanos(1_000_000);
const LONGEST: Nanos = Nanos(3_600_000_000_000);
/// The part of each objective in reserve where nothing is said: Batchy's delta.
const GUARD: f64 = 0.05;

/// Reads the section, where there is one. What is wrong with it is added.
/// `workers`: how many there are under `workers`.
pub(crate) fn read_control(
    root: &Node,
    scheduler: SchedulerKind,
    workers: usize,
    misfits: &mut Misfits,
) -> Option<Settings> {
    let node = root.get("control")?;
    let told: Control = read(misfits, root, &["control"], node)?;
    let (name, params) = match &told.batching {
        Value::String(name) => (name.clone(), Value::Null),
        // What YAML reads where the controller's name is written without quotes.
        Value::Null => ("null".to_owned(), Value::Null),
        Value::Object(map) => map.iter().next().map(|(name, params)| (name.clone(), params.clone()))?,
        _ => return None,
    };
    // An unknown name does not fit the schema, which says so.
    let controller = forebay_graph::controllers().into_iter().find(|it| it.name == name)?;
    if let Err(error) = controller.build(&params) {
        if !told.batching.is_object() {
            let message = format!("{name} needs parameters: write `batching: {{ {name}: {} }}`", controller.example);
            add_faults(misfits, root, &["control"], SetupError::at("batching", message));
            return None;
        }
        add_faults(misfits, root, &["control", "batching", &name], error);
        return None;
    }
    let period = told.period.unwrap_or(PERIOD);
    if !(SHORTEST..=LONGEST).contains(&period) {
        let error = SetupError::at("period", format!("every {period}: allowed are 1ms to 1h"));
        add_faults(misfits, root, &["control"], error);
        return None;
    }
    if let Some(needed) = controller.scheduler.filter(|needed| *needed != scheduler) {
        let needed = serde_json::to_value(needed).ok()?;
        let message = format!("{name} sets weights: write `scheduler: {}` too", needed.as_str().unwrap_or_default());
        add_faults(misfits, root, &["control"], SetupError::at("batching", message));
        return None;
    }
    let most = told.workers.unwrap_or(workers);
    let wrong = if most < workers {
        Some(format!("{most} where there are {workers} under `workers`: allowed are {workers} to {MOST}"))
    } else if most > workers && scheduler != SchedulerKind::RunToCompletion {
        Some(format!(
            "{most}: nothing goes to other workers where time is shared out: allowed is {workers}, or run-to-completion"
        ))
    } else {
        None
    };
    if let Some(message) = wrong {
        add_faults(misfits, root, &["control"], SetupError::at("workers", message));
        return None;
    }
    Some(Settings { controller, params, period, guard: told.guard.unwrap_or(GUARD), workers: most })
}
