//! The arguments of `forebay replay`.

use std::path::PathBuf;

/// `replay`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay run usecase:gw --set slo=300us --set fold=off --controller optimal --decisions day.jsonl --duration 20s
  forebay replay day.jsonl                                 the same controller: it decides the same
  forebay replay day.jsonl --controller gradient           another one
  forebay replay day.jsonl --controller static --set trigger=8 --guard 0.2
  forebay replay day.jsonl --json | jq .parts[0].summary

What was recorded stays as it was: each period the other controller sees the triggers that were in force then. What both decide is \
told by the batch model. Exit codes: 0 done; 2 bad usage, or what is no recording.")]
pub(crate) struct Replay {
    /// What `forebay run --decisions` has written
    pub(crate) file: PathBuf,
    /// Who decides (`forebay list controllers`); without it, the recorded one
    #[arg(long, value_name = "NAME")]
    pub(crate) controller: Option<String>,
    /// Set one of the controller's parameters (`forebay describe NAME`)
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::parameter)]
    pub(crate) set: Vec<String>,
    /// The part of each delay objective that is kept in reserve, 0 to less than 1; without it, the recorded one
    #[arg(long, value_name = "PART", value_parser = guard)]
    pub(crate) guard: Option<f64>,
    /// How many of the last periods are shown
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = super::values::whole::<usize>)]
    pub(crate) periods: usize,
    /// Print JSON: every period
    #[arg(long)]
    pub(crate) json: bool,
}

fn guard(text: &str) -> Result<f64, String> {
    let guard = text.parse().ok().filter(|guard| (0.0..1.0).contains(guard));
    guard.ok_or_else(|| "allowed is 0 to less than 1, such as 0.2".to_owned())
}
