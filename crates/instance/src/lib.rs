//! A running pipeline: its workers' threads, what they count together, live change, and the local socket.

#![forbid(unsafe_code)]

mod accepted;
mod board;
mod cores;
mod decided;
pub mod events;
mod moves;
mod reload;
mod running;
mod simulated;
pub mod socket;
mod sole;
mod steering;
mod steersman;
mod succession;
mod threads;
mod watcher;

pub use accepted::{Accepted, fingerprint};
pub use board::Board;
pub use cores::{CoreError, Cores, choose, choose_of};
pub use decided::Decided;
pub use moves::{MoveOrder, NotMoved, shown_move};
pub use reload::ReloadError;
pub use running::{Instance, Outcome, Watch, WorkerThread, start};
pub use simulated::{SimulatedTeam, Simulation};
pub use sole::{Sole, SoleError};
pub use steering::Steer;
pub use threads::StartError;
pub use watcher::Watcher;
