//! The command line of `gate`.

use std::path::PathBuf;

/// `gate`'s arguments.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay gate --baseline baselines/instructions.json
  forebay gate --baseline ours.json --update gateway.yaml usecase:gw
  forebay gate --baseline ours.json --max-ipp +1% --json | jq .answer
  forebay gate --against ../parent/target/release/forebay usecases

Instructions are counted under valgrind's callgrind: they are the same in every run, so that every change is one of the program. \
Exit codes: 0 nothing is dearer than the limit; 1 something is, with its name and why; 2 bad usage or input, or it cannot be counted.")]
pub(crate) struct Gate {
    /// Only these of the baseline; with --update, what it is to have besides: a configuration file, `usecase:NAME`,
    /// `function:NAME` (its example by itself), or all of a kind, `usecases` or `functions`
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
    /// The file that says what they have cost
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Instead of a baseline: another build of forebay, which counts the same now; without PIPELINE all that is built in
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["baseline", "update"])]
    pub(crate) against: Option<PathBuf>,
    /// By how much instructions per packet may grow, of a module, of what is no module's, and of all
    #[arg(long, value_name = "SHARE", default_value = "+0.5%", value_parser = share)]
    pub(crate) max_ipp: f64,
    /// Write what is counted now into the baseline, and say what changed
    #[arg(long)]
    pub(crate) update: bool,
    /// Settings of PIPELINE: `n=16`, `batch=64`
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::setting, requires = "pipelines")]
    pub(crate) set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `+0.5%` as a share.
fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').map(|text| text.trim().trim_start_matches('+'));
    let percent = number.and_then(|number| number.parse().ok()).filter(|percent| (0.0..=1_000.0).contains(percent));
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "write a share such as +0.5%; allowed are 0% to 1000%".to_owned())
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_read() {
        assert_eq!(["+0.5%", "1 %", "0%"].map(share), [Ok(0.005), Ok(0.01), Ok(0.0)]);
        for wrong in ["", "%", "0.5", "-1%", "+-1%", "1001%", "nan%", "x%"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }
}
