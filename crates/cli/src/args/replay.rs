//! The arguments of `forebay replay`.

use std::path::PathBuf;

/// Arguments of `replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay run usecase:gw --set slo=300us --set fold=off --controller optimal --decisions day.jsonl --duration 20s
  forebay replay day.jsonl                                 the same controller: it makes the same decisions
  forebay replay day.jsonl --controller gradient           another controller
  forebay replay day.jsonl --controller static --set trigger=8 --guard 0.2
  forebay replay day.jsonl --json | jq .parts[0].summary

The other controller does not change the recorded run: in each period, it sees the triggers that were in force at that \
time. The batch model predicts the effect of the recorded decision and of the other controller's decision. Exit codes: \
0 success; 2 bad usage, or the file is not a recording.")]
pub(crate) struct Replay {
    /// The file that `forebay run --decisions` wrote
    pub(crate) file: PathBuf,
    /// The controller that decides (`forebay list controllers`; default: the recorded one)
    #[arg(long, value_name = "NAME")]
    pub(crate) controller: Option<String>,
    /// Set one of the controller's parameters (`forebay describe NAME`)
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::parameter)]
    pub(crate) set: Vec<String>,
    /// The share of each delay objective that is kept in reserve, 0 to less than 1 (default: the recorded one)
    #[arg(long, value_name = "PART", value_parser = guard)]
    pub(crate) guard: Option<f64>,
    /// Show this many of the last periods
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = super::values::whole::<usize>)]
    pub(crate) periods: usize,
    /// Print JSON with every period
    #[arg(long)]
    pub(crate) json: bool,
}

fn guard(text: &str) -> Result<f64, String> {
    let guard = text.parse().ok().filter(|guard| (0.0..1.0).contains(guard));
    guard.ok_or_else(|| "allowed is 0 to less than 1, such as 0.2".to_owned())
}
