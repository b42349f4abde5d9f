//! The arguments of `forebay topology`.

use std::path::PathBuf;

/// Arguments of `topology`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay topology                                 this machine
  forebay topology --svg machine.svg               also as a picture
  forebay topology --root /mnt/report              the files of another machine
  forebay topology server.xml                      a file that `lstopo server.xml` wrote
  forebay topology 4x10:llc=5:smt=2                40 cores on 4 nodes, 5 to a cache
  forebay topology --json | jq '.domains[].cores'

The command only reads. Exit codes: 0 success; 2 bad usage or input, or the kernel lists no processors.")]
pub(crate) struct Topology {
    /// `host`, an XML file that hwloc wrote, or NODESxCORES, optionally followed by `:llc=CORES`, `:smt=THREADS` and
    /// `:nic=NODE`
    #[arg(default_value = "host")]
    pub(crate) source: String,
    /// The root of the kernel's files (DIR/proc, DIR/sys); only with `host`
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Write a picture to this SVG file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
