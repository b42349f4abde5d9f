//! Configuration settings on the command line.

use clap::builder::NonEmptyStringValueParser;
use forebay_graph::secret::without_keys;
use forebay_pipeline::{Fault, Problems, shown_setting};

use super::values::{setting, whole, workers};

/// Settings of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Set a use case's parameter or override a part of the configuration: `n=16`, `ports.red.generator.rate=2Mpps`
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// The scheduler: `run-to-completion` runs all modules in order, `weighted-fair` shares time among them by their
    /// weights; equals `--set scheduler=NAME`
    #[arg(long, value_name = "NAME", value_parser = ["run-to-completion", "weighted-fair"])]
    pub(crate) scheduler: Option<String>,
    /// The controller that sets triggers to keep the flows' delay objectives (`forebay list controllers`); equals
    /// `--set control.batching=NAME`
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) controller: Option<String>,
    /// Run on N workers, each with its share of the sessions; equals N empty entries under `workers:`
    #[arg(long, value_name = "N", value_parser = workers)]
    pub(crate) workers: Option<usize>,
    /// The seed of all random numbers; equals `--set seed=N`
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) seed: Option<u64>,
}

impl Settings {
    /// Returns all settings, each as it was written on the command line, and as a `KEY=VALUE` setting.
    pub(crate) fn all(&self) -> impl Iterator<Item = (String, String)> {
        let set = self.set.iter().map(|set| (format!("--set {}", shown_setting(set)), set.clone()));
        let scheduler = self.scheduler.iter().map(|name| (format!("--scheduler {name}"), format!("scheduler={name}")));
        let controller = self.controller.iter();
        let controller =
            controller.map(|name| (format!("--controller {}", without_keys(name)), format!("control.batching={name}")));
        let seed = self.seed.map(|seed| (format!("--seed {seed}"), format!("seed={seed}")));
        let workers = self
            .workers
            .map(|workers| (format!("--workers {workers}"), format!("workers=[{}]", vec!["{}"; workers].join(", "))));
        set.chain(scheduler).chain(controller).chain(seed).chain(workers)
    }

    /// Returns the problems with their places as the user wrote them. If the user gave a setting by its own option
    /// (`--seed 7` for `--set seed=7`), the place is that option.
    pub(crate) fn as_written(&self, mut problems: Problems) -> Problems {
        for (written, setting) in self.all() {
            let as_set = format!("--set {}", shown_setting(&setting));
            problems.faults.iter_mut().filter(|it| it.place == as_set).for_each(|it| it.place.clone_from(&written));
        }
        for fault in &mut problems.faults {
            let hint = with_parameters(fault)
                .map(|setting| format!(": on the command line, write `--set '{setting}'` instead"));
            fault.message.push_str(&hint.unwrap_or_default());
        }
        problems
    }
}

/// Returns a setting to suggest if the fault is that a controller's parameters are missing or cannot be merged.
/// `--controller NAME` and `control.batching=NAME` cannot carry parameters, but the returned setting
/// `control.batching={ NAME: { … } }` can. Returns `None` for any other fault.
fn with_parameters(fault: &Fault) -> Option<String> {
    if let Some(written) = fault.hint.as_deref().and_then(|hint| hint.strip_prefix("write `batching: ")) {
        return Some(format!("control.batching={}", written.strip_suffix('`')?));
    }
    let (path, value) = fault.place.strip_prefix("--set control.batching.")?.split_once('=')?;
    let (name, key) = path.split_once('.')?;
    let single = fault.message.starts_with("'control.batching' is a single value") && !key.contains('.');
    single.then(|| format!("control.batching={{ {name}: {{ {key}: {value} }} }}"))
}
