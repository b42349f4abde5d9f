//! Counts data cache misses per packet in two simulated caches. Like instruction counts, the numbers of misses are the
//! same in every run.
//!
//! Callgrind simulates a first-level data cache and a last-level cache (valgrind manual, "Cache simulation options").
//! The simulated caches have lines of 64 bytes. The number of lines of each cache is a power of two.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{CountError, Extent, Served, tool};

/// The associativity of a simulated cache.
const WAYS: u64 = 16;
/// Bytes per line.
const LINE: u64 = 64;
/// The time between two checks of `stop`.
const LOOK: Duration = Duration::from_millis(20);

/// The counts of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Misses {
    /// Instructions per packet, ports and the engine included.
    pub instructions: f64,
    /// Misses of the first-level data cache per packet.
    pub first: f64,
    /// Misses of the last-level cache per packet.
    pub last: f64,
}

/// Runs `program count PIPELINE` under callgrind with simulated caches. `caches` has the sizes of the first-level data
/// cache and of the last-level cache, in bytes. Each is rounded down to a size that can be simulated. If `stop` is set
/// meanwhile, the run is killed.
///
/// # Errors
/// [`CountError`]; [`CountError::Failed`] if `stop` was set.
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
    // The options of valgrind stand before the program.
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
            return Err(CountError::Failed("interrupted".to_owned()));
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
        let last = err.lines().rev().find(|line| !line.is_empty()).unwrap_or("no output");
        return Err(CountError::Failed(last.to_owned()));
    }
    let served: Option<Served> = out.lines().last().and_then(|line| serde_json::from_str(line).ok());
    let packets = served.filter(|served| served.packets > 0).ok_or(CountError::Answer)?.packets;
    let profile = std::fs::read_to_string(folder.path().join(super::PROFILE))?;
    parse(&profile, packets).ok_or(CountError::Answer)
}

/// Returns the largest size up to `bytes` that can be simulated.
fn rounded(bytes: u64) -> u64 {
    let least = WAYS * LINE;
    1 << bytes.max(least).ilog2()
}

/// Returns the totals of a profile, divided by the packets. `None` if an event is missing or no instruction was
/// counted.
fn parse(profile: &str, packets: u64) -> Option<Misses> {
    let line = |key: &str| profile.lines().find_map(|line| line.strip_prefix(key));
    let names: Vec<_> = line("events:")?.split_ascii_whitespace().collect();
    let counts: Vec<u64> =
        line("totals:")?.split_ascii_whitespace().map(|it| it.parse().ok()).collect::<Option<_>>()?;
    // Callgrind leaves out zeros at the end of a line.
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
