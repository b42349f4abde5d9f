//! The arguments of `forebay history`.

use std::path::PathBuf;

use clap::ValueEnum;

/// `history`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay history                                      what has changed, of all that was saved
  forebay history --module acl0 --figure ipp           one figure of one module
  forebay history --pipeline 'usecase:gw n=4'          one pipeline with one setting
  forebay history --html history.html                  with plots
  forebay history --json | jq '.series[] | select(.steps != [])'

Measurements are saved by `forebay measure PIPELINE --save NAME`. Steps are found by minimum description length: there is no \
threshold to set. Figures that are counted (emulated) are the same each time, so there every change is a step.")]
pub(crate) struct History {
    /// The folder that measurements are saved in
    #[arg(long, value_name = "DIR", default_value = super::compare::STORE)]
    pub(crate) store: PathBuf,
    /// Only this pipeline: its name, or what it was named by, such as `usecase:gw`; either with its settings, too
    #[arg(long, value_name = "NAME")]
    pub(crate) pipeline: Option<String>,
    /// Only this module; `(all)` is the whole chain
    #[arg(long, value_name = "NAME")]
    pub(crate) module: Option<String>,
    /// Only this figure
    #[arg(long, value_name = "FIGURE")]
    pub(crate) figure: Option<Figure>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write a page with plots to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// A figure whose history is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Instructions a packet
    Ipp,
    /// Ticks a packet
    CppTicks,
    /// Packets a call
    PacketsPerCall,
    /// Effective CPU utilisation, of the chain
    Cur,
}
