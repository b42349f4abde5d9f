//! A running pipeline: its worker threads, the sums of their counters, reloads, and the local socket.

#![forbid(unsafe_code)]

mod accepted;
mod board;
mod control_loop;
mod control_thread;
mod cores;
mod decided;
pub mod events;
mod moves;
mod reload;
mod running;
mod simulated;
pub mod socket;
mod sole;
mod succession;
mod threads;
mod watcher;

pub use accepted::{Accepted, fingerprint};
pub use board::Board;
pub use control_loop::ControlInputs;
pub use cores::{CoreError, Cores, choose, choose_of};
pub use decided::Decided;
pub use moves::{MoveOrder, NotMoved, shown_move};
pub use reload::ReloadError;
pub use running::{Instance, Outcome, Watch, WorkerThread, start};
pub use simulated::{SimulatedTeam, Simulation};
pub use sole::{Sole, SoleError};
pub use threads::StartError;
pub use watcher::Watcher;
