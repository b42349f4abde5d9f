//! The command line of `measure PIPELINE`, and of what it runs under valgrind.

use std::path::PathBuf;

use forebay_units::Nanos;

/// `measure`'s arguments.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay measure usecase:gw --set n=16
  forebay measure gateway.yaml --json | jq .chain
  forebay measure usecase:gw --save before
  forebay measure usecase:gw --search        how much it carries without loss

Ticks are measured on this machine while the pipeline runs; instructions are counted under valgrind's callgrind, in simulated \
time, and are the same in every run. What this host cannot tell is n/a: \
without valgrind, instructions are.")]
pub(crate) struct Measure {
    /// A configuration file, `usecase:NAME`, `function:NAME` (its example by itself), or with --no-count `-`
    pub(crate) pipeline: String,
    /// Set a use case's parameter or override a part of the configuration: `n=16`, `batch=64`
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::setting)]
    pub(crate) set: Vec<String>,
    /// How long ticks are measured
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) duration: Nanos,
    /// Do not count instructions
    #[arg(long)]
    pub(crate) no_count: bool,
    /// Keep the figures under this name, with this program, for `compare` and `history`
    #[arg(long, value_name = "NAME")]
    pub(crate) save: Option<String>,
    /// Where measurements are kept
    #[arg(long, value_name = "DIR", default_value = super::compare::STORE, requires = "save")]
    pub(crate) store: PathBuf,
    /// Search the rates that are carried without loss (NDR) and with at most 0.5 % of it (PDR)
    #[arg(long)]
    pub(crate) search: bool,
    /// How long the search may take
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "search", value_parser = search_time)]
    pub(crate) search_time: Nanos,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `count`'s arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Count {
    /// A configuration file or `usecase:NAME`
    pub(crate) pipeline: String,
    /// Settings
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::setting)]
    pub(crate) set: Vec<String>,
    /// The first module that is told apart
    #[arg(long)]
    pub(crate) first: usize,
    /// Packets that enter before
    #[arg(long)]
    pub(crate) before: u64,
    /// Packets that enter while it counts
    #[arg(long)]
    pub(crate) packets: u64,
}

/// In less hardly a turn is timed.
fn duration(text: &str) -> Result<Nanos, String> {
    super::values::time_within(text, Nanos(1_000_000)..=Nanos(3_600_000_000_000), "1ms to 1h")
}

fn search_time(text: &str) -> Result<Nanos, String> {
    super::values::time_within(text, Nanos(1_000_000_000)..=Nanos(3_600_000_000_000), "1s to 1h")
}
