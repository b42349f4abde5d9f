//! The arguments of `forebay gate`.

use std::path::PathBuf;

/// Arguments of `gate`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  forebay gate --baseline baselines/instructions.json
  forebay gate --baseline ours.json --update gateway.yaml usecase:gw
  forebay gate --baseline ours.json --max-ipp +1% --json | jq .answer
  forebay gate --against ../parent/target/release/forebay usecases

Instructions are counted under valgrind's callgrind. The counts are equal in every run, so every change comes from the \
program. Exit codes: 0 no module exceeds the limit; 1 a module exceeds the limit (the command names the module and the \
cause); 2 bad usage or input, or counting failed.")]
pub(crate) struct Gate {
    /// Check only these pipelines of the baseline; with --update, add these pipelines to the baseline. Allowed are a
    /// configuration file, `usecase:NAME`, `function:NAME` (the function's example), or all `usecases` or `functions`
    #[arg(value_name = "PIPELINE")]
    pub(crate) pipelines: Vec<String>,
    /// The file with the expected costs
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Compare with another build of forebay instead of a baseline: both count the same pipelines now (without
    /// PIPELINE: all built-in pipelines)
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["baseline", "update"])]
    pub(crate) against: Option<PathBuf>,
    /// Allowed growth of the instructions per packet of each module, of code outside modules, and of the total
    #[arg(long, value_name = "SHARE", default_value = "+0.5%", value_parser = share)]
    pub(crate) max_ipp: f64,
    /// Write the new counts into the baseline, and report the changes
    #[arg(long)]
    pub(crate) update: bool,
    /// Settings of PIPELINE: `n=16`, `batch=64`
    #[arg(long, value_name = "KEY=VALUE", value_parser = super::values::setting, requires = "pipelines")]
    pub(crate) set: Vec<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Parses a percentage (`+0.5%`) and returns it as a fraction (0.005).
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
