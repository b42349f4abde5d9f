//! Arguments of `serve` and `token`.

use std::path::PathBuf;

use forebay_server::Listen;
use forebay_server::access::Role;

use crate::events::LogFormat;

/// Arguments of `serve`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay serve                                        this user's pipelines, at http://127.0.0.1:9640
  curl http://127.0.0.1:9640/api/v1/instances
  curl http://127.0.0.1:9640/metrics
  forebay serve --listen unix:/run/user/1000/forebay.sock
  sudo forebay serve --config /etc/forebay/serve.yaml  all users' pipelines, as the user `forebay`

The command serves until Ctrl-C or SIGTERM. SIGHUP reads the settings, the tokens and the certificates again. The \
server never starts or ends a pipeline, and a pipeline does not notice if the server ends. Changes over HTTP need a \
token: see `forebay token`.")]
pub(crate) struct Serve {
    /// Listen at this address, `ADDRESS:PORT` or `unix:PATH`, in place of those in the settings (default:
    /// 127.0.0.1:9640). May be repeated
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: Vec<Listen>,
    /// Read settings from this file (`forebay schema serve` prints its JSON Schema)
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Keep the audit log and the history in this file, or in memory with `memory` (default: a file in this user's
    /// folder for state)
    #[arg(long, value_name = "FILE")]
    pub(crate) store: Option<PathBuf>,
    /// Accept the tokens in this file
    #[arg(long, value_name = "FILE")]
    pub(crate) tokens: Option<PathBuf>,
    /// As root: the user of the process that serves HTTP (default: forebay)
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// Format of the log on standard error
    #[arg(long, value_name = "FORMAT", default_value = "logfmt")]
    pub(crate) log_format: LogFormat,
    /// Watch only the pipeline at this socket
    #[arg(long, value_name = "PATH")]
    pub(crate) only: Option<PathBuf>,
    /// End together with this process, the parent
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) parent: Option<u32>,
    /// Serve HTTP as the child of the root helper
    #[arg(long, hide = true)]
    pub(crate) http_process: bool,
}

/// Arguments of `token`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay token grafana --role viewer --expires 2027-12-31
  forebay token mona --role operator --user mona
  curl -H 'Authorization: Bearer forebay_…' http://127.0.0.1:9640/api/v1/instances/edge/config

The command prints the token on standard error, and an entry for the file of tokens on standard output. The entry has \
only the token's hash, from which the token cannot be found. The file begins with the line `tokens:` and has \
mode 0600.")]
pub(crate) struct NewToken {
    /// The token's name in the audit log
    pub(crate) name: String,
    /// The rights of the token: viewer (reads), operator (also changes tables, values and workers of modules), admin
    /// (also changes configurations, and reads the audit log)
    #[arg(long, value_name = "ROLE", value_parser = role)]
    pub(crate) role: Role,
    /// The user of this host that the token stands for. At a Unix socket, only this user and root can
    /// use it
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Option<String>,
    /// The last day of the token (2027-12-31, UTC), or the time of its end (2027-12-31T12:00:00Z)
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    pub(crate) expires: Option<String>,
    /// Print JSON, with the token
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a role.
fn role(text: &str) -> Result<Role, String> {
    match text {
        "viewer" => Ok(Role::Viewer),
        "operator" => Ok(Role::Operator),
        "admin" => Ok(Role::Admin),
        _ => Err("allowed are viewer, operator and admin".to_owned()),
    }
}

/// Parses the end of a token.
fn expiry(text: &str) -> Result<String, String> {
    match forebay_server::access::end_of(text) {
        Some(_) => Ok(text.to_owned()),
        None => Err("allowed are a date (2027-12-31) and a time (2027-12-31T12:00:00Z)".to_owned()),
    }
}
