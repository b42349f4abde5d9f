//! The arguments of `forebay graph`.

use super::Running;
use super::values::setting;

/// Arguments of `graph`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay graph gateway.yaml
  forebay graph usecase:gw --set n=64             equal branches are drawn once
  forebay graph usecase:gw --full                 every module separately
  forebay graph                                   the running pipeline
  forebay graph gateway.yaml --dot | dot -Tsvg > gateway.svg
  forebay graph gateway.yaml --json | jq '.edges[] | select(.to == null)'")]
pub(crate) struct Graph {
    /// A configuration file, `usecase:NAME`, or `-` for standard input (default: `running`, the running pipeline)
    pub(crate) pipeline: Option<String>,
    /// Set a use case's parameter or override a part of the configuration
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<String>,
    /// Draw every module separately, including those of equal branches
    #[arg(long, conflicts_with = "json")]
    pub(crate) full: bool,
    /// Print Graphviz DOT, for `dot -Tsvg` or `dot -Tpng`
    #[arg(long, conflicts_with = "json")]
    pub(crate) dot: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) running: Running,
}
