//! Experiments: pipelines, traffic and measurements made into reports that anybody can make again.
//!
//! An experiment is a module: it runs what it needs, gives its results as a plain value that serialises, and makes tables and
//! a page of them. Nothing is in a page that is not in the results.

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

/// Hears how far an experiment is.
pub trait Progress {
    /// It begins, and has so many steps.
    fn begin(&mut self, steps: usize);
    /// The next step: what it is.
    fn step(&mut self, what: &str);
    /// A part of the experiment begins.
    fn part(&mut self, _name: &str) {}
    /// The steps that were begun last are expected to take so many seconds together.
    fn expect(&mut self, _seconds: f64) {}
    /// A flag that is set once the user has interrupted the experiment: the part that is being made is given up, in the
    /// middle of a run, too.
    fn stop(&self) -> Arc<AtomicBool> {
        Arc::default()
    }
    /// Whether the user has interrupted the experiment.
    fn is_stopped(&self) -> bool {
        self.stop().load(Ordering::Relaxed)
    }
}

/// Why an experiment cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// A pipeline that is not in order.
    #[error(transparent)]
    Problems(#[from] forebay_pipeline::Problems),
    /// Workers that get no cores.
    #[error(transparent)]
    Cores(#[from] forebay_instance::CoreError),
    /// A pipeline that does not start.
    #[error(transparent)]
    Start(#[from] forebay_instance::StartError),
    /// Instructions that cannot be counted.
    #[error(transparent)]
    Count(#[from] forebay_lean::cases::CaseError),
    /// A pipeline that ended ill.
    #[error("{pipeline}: {told}")]
    Trouble {
        /// Which.
        pipeline: String,
        /// What its ports and modules say.
        told: String,
    },
    /// Hand-over that cannot be measured.
    #[error("hand-over: {0}")]
    Handover(std::io::Error),
    /// A figure that cannot be drawn.
    #[error(transparent)]
    Plot(#[from] forebay_plot::PlotError),
    /// A use case that the parts of an experiment do not have.
    #[error("--usecase {asked}: allowed are {names}, or their first words{of_short}")]
    UseCase {
        /// The requested name.
        asked: String,
        /// The names that exist.
        names: String,
        /// The words that are added where short experiments have fewer.
        of_short: &'static str,
    },
    /// Calls that cannot be measured.
    #[error(transparent)]
    Profile(#[from] forebay_lean::profile::ProfileError),
    /// The program's own file, which a profile is of.
    #[error(transparent)]
    Store(#[from] forebay_lean::profile::StoreError),
    /// A folder without captures.
    #[error("{}: there are no captures in it: allowed are files whose names end in {}", .0.display(), batching::CAPTURES.join(", "))]
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
    /// Simulated rates that do not come to rest.
    #[error("simulation: rates do not come to rest: they still change by {0:e} of themselves")]
    NoRest(f64),
    /// A thread that cannot be started, or not on its core.
    #[error("a thread for co-runs: {0}")]
    Thread(std::io::Error),
    /// The user has interrupted it.
    #[error("interrupted")]
    Interrupted,
    /// A file that cannot be written.
    #[error("{}: {error}", .path.display())]
    File {
        /// Which.
        path: std::path::PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
}
