//! What the command line sets of a configuration that is to run.

use clap::builder::NonEmptyStringValueParser;
use forebay_graph::secret::without_keys;
use forebay_pipeline::{Problem, Problems, shown_setting};

use super::values::{setting, whole, workers};

/// Settings of a run.
#[derive(Debug, clap::Args)]
pub(crate) struct Settings {
    /// Set a use case's parameter or override a part of the configuration: `n=16`, `ports.red.generator.rate=2Mpps`
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Which module runs next: everything in order, or modules by their weights; the same as `--set scheduler=NAME`
    #[arg(long, value_name = "NAME", value_parser = ["run-to-completion", "weighted-fair"])]
    pub(crate) scheduler: Option<String>,
    /// What sets triggers so that flows keep their delay objectives (`forebay list controllers`); the same as `--set
    /// control.batching=NAME`
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) controller: Option<String>,
    /// Run on so many workers, each with its share of the sessions: the same as so many plain entries under `workers:`
    #[arg(long, value_name = "N", value_parser = workers)]
    pub(crate) workers: Option<usize>,
    /// What everything random derives from: the same as `--set seed=N`
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub(crate) seed: Option<u64>,
}

impl Settings {
    /// All of them: each as it was written, and as a setting.
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

    /// The same problems, those of settings that have a flag of their own told by that flag.
    pub(crate) fn as_written(&self, mut problems: Problems) -> Problems {
        for (written, setting) in self.all() {
            let as_set = format!("--set {}", shown_setting(&setting));
            problems.all.iter_mut().filter(|it| it.shown == as_set).for_each(|it| it.shown.clone_from(&written));
        }
        for problem in &mut problems.all {
            let way =
                with_parameters(problem).map(|setting| format!(": on the command line `--set '{setting}'` instead"));
            problem.message.push_str(&way.unwrap_or_default());
        }
        problems
    }
}

/// The setting that names a controller with its parameters, where one was given that cannot: `--controller` and `control.batching=NAME`
/// leave no place for them.
fn with_parameters(problem: &Problem) -> Option<String> {
    if let Some((_, written)) = problem.message.split_once(" needs parameters: write `batching: ") {
        return Some(format!("control.batching={}", written.strip_suffix('`')?));
    }
    let (path, value) = problem.shown.strip_prefix("--set control.batching.")?.split_once('=')?;
    let (name, key) = path.split_once('.')?;
    let single = problem.message.starts_with("'control.batching' is a single value") && !key.contains('.');
    single.then(|| format!("control.batching={{ {name}: {{ {key}: {value} }} }}"))
}
