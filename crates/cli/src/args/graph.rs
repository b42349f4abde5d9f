//! `graph`'s arguments.

use super::Running;
use super::values::setting;

/// `graph`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay graph gateway.yaml
  forebay graph usecase:gw --set n=64             equal branches are drawn once
  forebay graph usecase:gw --full                 every module by itself
  forebay graph                                   the running pipeline
  forebay graph gateway.yaml --dot | dot -Tsvg > gateway.svg
  forebay graph gateway.yaml --json | jq '.edges[] | select(.to == null)'")]
pub(crate) struct Graph {
    /// A configuration file, `usecase:NAME`, or `-` for standard input; `running`, or nothing: the running pipeline
    pub(crate) pipeline: Option<String>,
    /// Set a use case's parameter or override a part of the configuration
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Draw every module, also those of equal branches
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Print the language of Graphviz, for `dot -Tsvg` or `dot -Tpng`
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}
