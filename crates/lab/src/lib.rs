//! Experiments: they run pipelines, generate traffic, measure, and write reports that anybody can reproduce.
//!
//! Each experiment is a module. It performs its runs, returns its results as a plain value that can be serialised, and
//! makes tables and a page of them. The page contains only data of the results.

#![forbid(unsafe_code)]

pub mod batching;
mod blocks;
mod csv;
mod folder;
mod header;
pub mod history;
pub mod lean;
mod machine;
pub mod placement;
mod trial;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use header::Header;
pub use machine::Machine;

/// Receives the progress of an experiment.
pub trait Progress {
    /// Starts a sequence of `steps` steps. A part may begin several sequences, one after the other.
    fn begin(&mut self, steps: usize);
    /// Starts the next step. `what` describes it.
    fn step(&mut self, what: &str);
    /// Starts a part of the experiment.
    fn part(&mut self, _name: &str) {}
    /// Announces the expected total time of the steps of the last [`Progress::begin`], in seconds.
    fn expect(&mut self, _seconds: f64) {}
    /// Returns a flag that is set once the user has interrupted the experiment. The part in progress is then abandoned,
    /// even in the middle of a run.
    fn stop(&self) -> Arc<AtomicBool> {
        Arc::default()
    }
    /// Returns whether the user has interrupted the experiment.
    fn is_stopped(&self) -> bool {
        self.stop().load(Ordering::Relaxed)
    }
}

/// An error of an experiment.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A pipeline is not valid.
    #[error(transparent)]
    Problems(#[from] forebay_pipeline::Problems),
    /// Workers cannot get the cores that they need.
    #[error(transparent)]
    Cores(#[from] forebay_instance::CoreError),
    /// A pipeline does not start.
    #[error(transparent)]
    Start(#[from] forebay_instance::StartError),
    /// Instructions cannot be counted.
    #[error(transparent)]
    Count(#[from] forebay_bench::cases::CaseError),
    /// A port or module of a pipeline failed during the run.
    #[error("{pipeline}: {troubles}")]
    Trouble {
        /// The pipeline.
        pipeline: String,
        /// The reports of its ports and modules.
        troubles: String,
    },
    /// No packet entered a pipeline, also not in a run of this length.
    #[error("no packet entered in a run of {} s: other work occupies the machine", .0.as_secs_f64())]
    Idle(std::time::Duration),
    /// The cost of a hand-over cannot be measured.
    #[error("hand-over: {0}")]
    Handover(std::io::Error),
    /// A figure cannot be drawn.
    #[error(transparent)]
    Plot(#[from] forebay_plot::PlotError),
    /// The parts of the experiment do not contain the use case.
    #[error("--usecase {requested}: allowed are {names}, or the first words of a name{of_short}")]
    UseCase {
        /// The requested name.
        requested: String,
        /// The names that exist.
        names: String,
        /// A note for the error text: short experiments have fewer use cases.
        of_short: &'static str,
    },
    /// The cost of calls cannot be measured.
    #[error(transparent)]
    Profile(#[from] forebay_bench::profile::ProfileError),
    /// The program's own file, which identifies a stored profile, cannot be read.
    #[error(transparent)]
    Store(#[from] forebay_bench::profile::StoreError),
    /// A folder contains no captures.
    #[error(
        "{}: the folder contains no captures: allowed are files whose names end in {}",
        .0.display(),
        batching::CAPTURES.join(", ")
    )]
    Captures(std::path::PathBuf),
    /// The contention simulator refuses its input.
    #[error(transparent)]
    Contention(#[from] forebay_contention::ContentionError),
    /// Models cannot be fitted.
    #[error(transparent)]
    Model(#[from] forebay_contention::models::ModelError),
    /// The search refuses its input.
    #[error(transparent)]
    Placement(#[from] forebay_models::placement::ProblemError),
    /// No candidate gives every function a demand.
    #[error("models: no candidate for the metric gives every function a demand")]
    NoMetric,
    /// Simulated rates do not converge.
    #[error("simulation: rates do not converge: their relative change is still {0:e}")]
    NoRest(f64),
    /// A thread cannot be started, or cannot be bound to its core.
    #[error("a thread for co-runs: {0}")]
    Thread(std::io::Error),
    /// The user has interrupted the experiment.
    #[error("interrupted")]
    Interrupted,
    /// A file cannot be written or read.
    #[error("{}: {error}", .path.display())]
    File {
        /// The path of the file.
        path: std::path::PathBuf,
        /// The error of the operating system.
        error: std::io::Error,
    },
}
