//! A running pipeline: its worker threads, the sums of their counters, reloads, and the local socket.

#![forbid(unsafe_code)]

mod accepted;
mod control_loop;
mod control_thread;
mod cores;
mod decision_summary;
pub mod events;
mod instance;
mod lock_file;
mod moves;
mod pipeline_counters;
mod reload;
mod running;
mod simulated;
pub mod socket;
mod succession;
mod threads;
mod watcher;
mod worker_thread;

pub use accepted::{Accepted, fingerprint};
pub use control_loop::ControlInputs;
pub use cores::{CoreError, Cores, choose, choose_of};
pub use decision_summary::DecisionSummary;
pub use instance::{Instance, Outcome, start};
pub use lock_file::{LockError, LockFile};
pub use moves::{MoveOrder, NotMoved, shown_move};
pub use pipeline_counters::PipelineCounters;
pub use reload::ReloadError;
pub use simulated::{SimulatedTeam, Simulation};
pub use threads::StartError;
pub use watcher::Watcher;
pub use worker_thread::{Watch, WorkerThread};
