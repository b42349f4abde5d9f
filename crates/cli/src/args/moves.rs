//! `move`'s arguments.

use forebay_protocol::WantedWorkers;

use super::Running;
use super::values::moved;

/// `move`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay move crypto=1                     module 'crypto' goes to worker 1
  forebay move nat-out=1 nat-in=1 route=0   modules that share sessions go together
  forebay move ttl=0,1                      both workers run it, each for its sessions
  forebay move a=1 b=1 c=1 --moves 2        as many of them, the first ones first
  forebay move crypto=1 --json | jq .moved.pause_us

Packets that wait are let through first: none is lost and none overtakes another of its session. Tables, sessions and \
counters move with their module. Workers stay: one that is to have modules later is in the configuration as \
`{ modules: [] }`. Exit codes: 0 all are where they are to be; 1 --moves left some where they were; \
2 refused, and nothing has moved.")]
pub(crate) struct Move {
    /// Modules, each with the workers that are to run it
    #[arg(required = true, value_name = "MODULE=WORKER[,WORKER…]", value_parser = moved)]
    pub(crate) modules: Vec<WantedWorkers>,
    /// How many modules may move at most
    #[arg(long, value_name = "M", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub(crate) moves: Option<u64>,
    /// Also move modules whose sessions are lost by it, because other sessions come to each worker
    #[arg(long)]
    pub(crate) lose_sessions: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}
