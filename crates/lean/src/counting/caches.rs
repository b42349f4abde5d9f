//! Misses per packet of data in two simulated caches, counted like instructions: the same in every run.
//!
//! Callgrind simulates a first cache for data and a last one for everything (valgrind manual, "Cache simulation
//! options"). Its caches have lines of 64 bytes, and a power of two of them.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{CountError, Extent, Served, tool};

/// Ways of a simulated cache.
const WAYS: u64 = 16;
/// Bytes of a line.
const LINE: u64 = 64;
/// The time between two looks at whether it is to end.
const LOOK: Duration = Duration::from_millis(20);

/// What was counted of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Misses {
    /// Instructions a packet, the engine's and the ports' included.
    pub instructions: f64,
    /// Lines a packet that were not in the first cache.
    pub first: f64,
    /// Lines a packet that were not in the last one either.
    pub last: f64,
}

/// Counts: runs `program count PIPELINE` under callgrind with caches of these sizes in bytes, until `stop` is set.
/// Sizes are rounded down to what can be simulated.
///
/// # Errors
/// [`CountError`]; [`CountError::Failed`] where it was stopped.
pub fn misses(
    program: &Path,
    pipeline: &str,
    settings: &[String],
    extent: Extent,
    caches: [u64; 2],
    stop: &AtomicBool,
) -> Result<Misses, CountError> {
    let folder = tempfile::tempdir()?;
    let plain = tool(folder.path(), program, pipeline, settings, 0, extent);
    let size = |bytes: u64| format!("{},{WAYS},{LINE}", rounded(bytes));
    // The tool's own options stand before the program.
    let mut tool = Command::new(plain.get_program());
    tool.args(["--cache-sim=yes", &format!("--D1={}", size(caches[0])), &format!("--LL={}", size(caches[1]))])
        .args(plain.get_args())
        .env_clear()
        .envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))))
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = tool.spawn().map_err(CountError::of_valgrind)?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if stop.load(Ordering::Relaxed) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(CountError::Failed("it was interrupted".to_owned()));
        }
        std::thread::sleep(LOOK);
    };
    let text = |pipe: &mut dyn Read| {
        let mut text = String::new();
        let _ = pipe.read_to_string(&mut text);
        text
    };
    let out = child.stdout.take().map(|mut pipe| text(&mut pipe)).unwrap_or_default();
    if !status.success() {
        let err = child.stderr.take().map(|mut pipe| text(&mut pipe)).unwrap_or_default();
        let last = err.lines().rev().find(|line| !line.is_empty()).unwrap_or("it says nothing");
        return Err(CountError::Failed(last.to_owned()));
    }
    let served: Option<Served> = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let packets = served.filter(|served| served.packets > 0).ok_or(CountError::Answer)?.packets;
    let profile = std::fs::read_to_string(folder.path().join(super::PROFILE))?;
    parse(&profile, packets).ok_or(CountError::Answer)
}

/// The largest size that can be simulated, up to this one.
fn rounded(bytes: u64) -> u64 {
    let least = WAYS * LINE;
    1 << bytes.max(least).ilog2()
}

/// The totals of a profile, by packet.
fn parse(profile: &str, packets: u64) -> Option<Misses> {
    let line = |key: &str| profile.lines().find_map(|line| line.strip_prefix(key));
    let names: Vec<_> = line("events:")?.split_ascii_whitespace().collect();
    let counts: Vec<u64> =
        line("totals:")?.split_ascii_whitespace().map(|it| it.parse().ok()).collect::<Option<_>>()?;
    // Columns of nothing at the end are left out.
    let count = |name: &str| names.iter().position(|it| *it == name).map(|at| counts.get(at).copied().unwrap_or(0));
    let per_packet = |names: [&str; 2]| Some((count(names[0])? + count(names[1])?) as f64 / packets as f64);
    let instructions = count("Ir")? as f64 / packets as f64;
    let (first, last) = (per_packet(["D1mr", "D1mw"])?, per_packet(["DLmr", "DLmw"])?);
    (instructions > 0.0).then_some(Misses { instructions, first, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_read_by_their_names() {
        let text = "version: 1\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\nfn=a\n1 2 3\n\
                    totals: 4000 900 300 5 60 40 1 20\n";
        assert_eq!(parse(text, 10), Some(Misses { instructions: 400.0, first: 10.0, last: 2.0 }));
        assert_eq!(parse("events: Ir\ntotals: 10\n", 10), None);
        assert_eq!(parse("events: Ir D1mr D1mw DLmr DLmw\ntotals: 0\n", 10), None);
        assert_eq!(parse("events: Ir D1mr D1mw DLmr DLmw\ntotals: x\n", 10), None);
        assert_eq!(parse("", 10), None);
    }

    #[test]
    fn sizes_are_powers_of_two() {
        assert_eq!([0, 1 << 20, 36 << 20, 48 << 10].map(rounded), [1024, 1 << 20, 32 << 20, 32 << 10]);
    }
}
