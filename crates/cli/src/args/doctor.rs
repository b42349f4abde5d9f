//! Arguments of `doctor`.

use std::path::PathBuf;

use super::values::setting;

/// Arguments of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay doctor                                   this machine, for any pipeline of one worker
  forebay doctor gateway.yaml                      its workers, their pools and its ports
  forebay doctor --core 2-3 --interface eth1       two workers, and the packets of eth1
  forebay doctor --json | jq '.checks[] | select(.state == \"costs\") | .remedy'
  forebay doctor --root /mnt/report                the files of another machine

The command only reads, and takes half a second. A check that cannot be made on this host shows n/a. Exit codes: 0 no \
check found a certain loss of performance; 1 a check found a certain loss, or a reason why the pipeline cannot run; 2 \
bad usage or input.")]
pub(crate) struct Doctor {
    /// A configuration file, `usecase:NAME`, or `-` for standard input (default: any pipeline with one worker)
    pub(crate) pipeline: Option<String>,
    /// Set a use case's parameter or override a part of the configuration
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting, requires = "pipeline")]
    pub(crate) set: Vec<String>,
    /// The workers' cores, in the order of the workers: 2, or 2-3,8 (default: cores that are chosen automatically)
    #[arg(long, value_name = "LIST")]
    pub(crate) core: Vec<forebay_host::KernelList>,
    /// A network interface whose packets the workers receive, in addition to the pipeline's ports
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,
    /// The root of the kernel's files: DIR/proc, DIR/sys
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
