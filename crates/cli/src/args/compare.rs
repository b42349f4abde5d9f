//! The arguments of `forebay compare`.

use std::path::PathBuf;

use forebay_units::Nanos;

/// The default folder for saved measurements.
pub(crate) const STORE: &str = ".forebay/measurements";

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay measure usecase:gw --save before     with the old build
  forebay compare before                       with the new build
  forebay compare before after --json | jq .comparison.parts

The two builds or configurations run in turn, one process per run, until the change is known within 1 % or the time is \
up. Exit codes: 0 nothing costs more; 1 a module costs more (the command names the module and the cause); 2 bad usage \
or input, or measuring failed.")]
pub(crate) struct Compare {
    /// A measurement that `measure --save` saved
    pub(crate) name: String,
    /// Another saved measurement to compare with (default: this program on the same pipeline)
    pub(crate) other: Option<String>,
    /// The folder with saved measurements
    #[arg(long, value_name = "DIR", default_value = STORE)]
    pub(crate) store: PathBuf,
    /// Time limit for the pairs of runs, 40s to 1h; counting instructions takes extra time
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(crate) time: Nanos,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a time limit. Less than 40 s is not enough for the pairs of runs that a result needs.
fn time(text: &str) -> Result<Nanos, String> {
    super::values::time_within(text, Nanos(40_000_000_000)..=Nanos(3_600_000_000_000), "40s to 1h")
}
