//! The arguments of `forebay lab`.

use std::path::PathBuf;

use clap::Subcommand;

/// Experiments.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// What a packet costs: two chains run to completion and pipelined, hand-over, load against rate, every use case (NALM)
    #[command(after_help = "\
Examples:
  forebay lab lean --out lean                 a few minutes; then open lean/index.html
  forebay lab lean --out lean --short         seconds, to see what there is
  forebay lab lean --out lean --json | jq .chains

It writes results.json, a CSV file for each table, and index.html, which needs nothing besides itself. Nothing else should run \
on the machine meanwhile; runs that were disturbed are named in the report.")]
    Lean(LabLean),
}

/// `lab lean`'s arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct LabLean {
    /// The folder that results are written to; it is made where it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Fewer and shorter runs
    #[arg(long)]
    pub(crate) short: bool,
    /// Do not count instructions
    #[arg(long)]
    pub(crate) no_count: bool,
    /// Print the results as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
