//! The arguments of `forebay move`.

use forebay_protocol::WantedWorkers;

use super::Running;
use super::values::{moved, whole_within};

/// Arguments of `move`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay move crypto=1                     module 'crypto' moves to worker 1
  forebay move nat-out=1 nat-in=1 route=0   modules that share sessions move together
  forebay move ttl=0,1                      both workers run it, each for its own sessions
  forebay move a=1 b=1 c=1 --moves 2        at most 2 of them, in this order
  forebay move crypto=1 --json | jq .moved.pause_us

Queued packets are processed first: no packet is lost, and packets of a session stay in order. Tables, sessions and \
counters move with their module. A move does not add or remove workers. To keep a worker for later moves, write the \
worker as `{ modules: [] }` in the configuration. Exit codes: 0 all modules are on their workers; 1 --moves left some \
modules where they were; 2 the move was refused, and no module has moved.")]
pub(crate) struct Move {
    /// Modules, each with the workers that shall run it
    #[arg(required = true, value_name = "MODULE=WORKER[,WORKER…]", value_parser = moved)]
    pub(crate) modules: Vec<WantedWorkers>,
    /// Maximum number of modules to move
    #[arg(long, value_name = "M", value_parser = moves)]
    pub(crate) moves: Option<u64>,
    /// Also move modules that lose their sessions by the move (their new workers receive other sessions)
    #[arg(long)]
    pub(crate) lose_sessions: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}

/// Parses a number of modules to move.
fn moves(text: &str) -> Result<u64, String> {
    whole_within(text, 1..=10_000)
}
