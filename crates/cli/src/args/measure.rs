//! The command line of `measure PIPELINE`, and of the program that it runs under valgrind.

use std::path::PathBuf;

use forebay_units::Nanos;

/// Arguments of `measure`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay measure usecase:gw --set n=16
  forebay measure gateway.yaml --json | jq .chain
  forebay measure usecase:gw --save before
  forebay measure usecase:gw --search        the highest rate without loss

Ticks are measured on this machine while the pipeline runs. Instructions are counted under valgrind's callgrind, in \
simulated time, and are equal in every run. If this host cannot measure a figure, the command prints n/a. Without \
valgrind, instructions are n/a.")]
pub(crate) struct Measure {
    /// A configuration file, `usecase:NAME`, `function:NAME` (the function's example), or `-` for standard input (only
    /// with --no-count)
    pub(crate) pipeline: String,
    /// Set a use case's parameter or override a part of the configuration: `n=16`, `batch=64`
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::setting)]
    pub(crate) set: Vec<String>,
    /// Measuring time for ticks
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration)]
    pub(crate) duration: Nanos,
    /// Do not count instructions
    #[arg(long)]
    pub(crate) no_count: bool,
    /// Save the figures and this program under this name, for `compare` and `history`
    #[arg(long, value_name = "NAME")]
    pub(crate) save: Option<String>,
    /// The folder for saved measurements
    #[arg(long, value_name = "DIR", default_value = super::compare::STORE, requires = "save")]
    pub(crate) store: PathBuf,
    /// Search for the highest rate without loss (NDR), and for the highest rate with at most 0.5 % loss (PDR)
    #[arg(long)]
    pub(crate) search: bool,
    /// Time limit of the search
    #[arg(long, value_name = "TIME", default_value = "30s", requires = "search", value_parser = search_time)]
    pub(crate) search_time: Nanos,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Arguments of `count`.
#[derive(Debug, clap::Args)]
pub(crate) struct Count {
    /// A configuration file or `usecase:NAME`
    pub(crate) pipeline: String,
    /// Settings
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::setting)]
    pub(crate) set: Vec<String>,
    /// The first module that is counted separately
    #[arg(long)]
    pub(crate) first: usize,
    /// Packets that enter before counting starts
    #[arg(long)]
    pub(crate) before: u64,
    /// Packets that enter during counting
    #[arg(long)]
    pub(crate) packets: u64,
}

/// Parses a measuring time. A shorter time could contain less than one turn.
fn duration(text: &str) -> Result<Nanos, String> {
    super::values::time_within(text, Nanos(1_000_000)..=Nanos(3_600_000_000_000), "1ms to 1h")
}

fn search_time(text: &str) -> Result<Nanos, String> {
    super::values::time_within(text, Nanos(1_000_000_000)..=Nanos(3_600_000_000_000), "1s to 1h")
}
