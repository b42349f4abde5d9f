//! The arguments of `forebay history`.

use std::path::PathBuf;

use clap::ValueEnum;

/// Arguments of `history`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay history                                      everything that has changed in the saved measurements
  forebay history --module acl0 --figure ipp           one figure of one module
  forebay history --pipeline 'usecase:gw n=4'          one pipeline with one setting
  forebay history --html history.html                  with plots
  forebay history --json | jq '.series[] | select(.steps != [])'

`forebay measure PIPELINE --save NAME` saves measurements. Steps are found by minimum description length, so there is \
no threshold to set. Counted figures (from emulation) are equal in every run, so every change of them is a step.")]
pub(crate) struct History {
    /// The folder with the saved measurements
    #[arg(long, value_name = "DIR", default_value = super::compare::STORE)]
    pub(crate) store: PathBuf,
    /// Only this pipeline: its own name, or its name on the command line, such as `usecase:gw`. Settings may follow
    /// either name
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

/// A figure whose history can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Figure {
    /// Instructions per packet
    Ipp,
    /// Ticks per packet
    CppTicks,
    /// Packets per call
    PacketsPerCall,
    /// Effective CPU utilisation of the chain
    Cur,
}
