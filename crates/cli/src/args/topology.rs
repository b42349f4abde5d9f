//! `topology`'s arguments.

use std::path::PathBuf;

/// `topology`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay topology                                 this machine
  forebay topology --svg machine.svg               the same as a picture
  forebay topology --root /mnt/report              files of another machine, laid out as there
  forebay topology server.xml                      a file that `lstopo server.xml` wrote
  forebay topology 4x10:llc=5:smt=2                40 cores on 4 nodes, 5 to a cache
  forebay topology --json | jq '.domains[].cores'

It only reads. Exit codes: 0 done; 2 bad usage or input, or the kernel does not list its processors.")]
pub(crate) struct Topology {
    /// `host`, an XML file that hwloc wrote, or NODESxCORES with `:llc=CORES`, `:smt=THREADS` and `:nic=NODE` behind it
    #[arg(default_value = "host")]
    pub(crate) source: String,
    /// Where the kernel's files are: DIR/proc, DIR/sys; only with `host`
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Write a picture to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
