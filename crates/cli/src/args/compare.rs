//! The command line of `compare`.

use std::path::PathBuf;

use forebay_units::Nanos;

/// Where measurements are kept, unless it is said.
pub(crate) const STORE: &str = ".forebay/measurements";

/// `compare`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay measure usecase:gw --save before     with the build that was
  forebay compare before                       with the one that is
  forebay compare before after --json | jq .comparison.parts

Both run in turn, a process a run, until what changed is known within 1 % or the time is up. Exit codes: 0 nothing costs more; 1 \
something does, with its name and why; 2 bad usage or input, or it cannot be measured.")]
pub(crate) struct Compare {
    /// What was saved with `measure --save`
    pub(crate) name: String,
    /// What it is compared with: another that was saved; without it, this program on the same pipeline
    pub(crate) other: Option<String>,
    /// Where measurements are kept
    #[arg(long, value_name = "DIR", default_value = STORE)]
    pub(crate) store: PathBuf,
    /// How long the pairs of runs may take, 40s to 1h; instructions are counted before
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = time)]
    pub(crate) time: Nanos,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// In less there is no time for the pairs of runs that an answer needs.
fn time(text: &str) -> Result<Nanos, String> {
    super::values::time_within(text, Nanos(40_000_000_000)..=Nanos(3_600_000_000_000), "40s to 1h")
}
