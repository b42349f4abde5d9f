//! Recorded traffic: sessions of a capture spread over branches of equal functions, as fast as packets are taken.
//!
//! The functions are stand-ins of a known cost, which take packets of any kind as they are. Stand-ins do not fold, so that there are no
//! folded runs.

use std::path::{Path, PathBuf};

use forebay_graph::Cost;
use serde::Serialize;

use super::figures::{Figures, Told, mean_delay_us};
use super::place::Place;
use super::scenario::{PERCENTILE, Rule, Scenario, Span, fold};
use super::settled::objective;
use super::{Extents, basis};
use crate::{LabError, Progress};

const CONTROLLERS: &[&str] = &["null", "max", "on-off", "gradient", "optimal"];
/// Branches, and functions of each.
const BRANCHES: usize = 16;
const FUNCTIONS: usize = 3;
/// What a function takes, in nanoseconds; in real time it spins for as many of the paper's cycles.
const COST: Cost = Cost { per_batch: 60, per_packet: 15 };
const CYCLES: (u64, u64) = (144, 36);
/// Periods of a run that count at most.
const PERIODS: u32 = 100;

/// A run on a capture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Captured {
    /// The file.
    pub capture: String,
    /// The controller.
    pub controller: &'static str,
    /// Whether equal branches ran as one: stand-ins never do.
    pub fold: bool,
    /// Packets a second against those of `null`; `None` where either run is void.
    pub to_null: Option<f64>,
    /// Figures.
    #[serde(flatten)]
    pub told: Told,
}

/// Makes all runs on the captures in a folder.
pub(super) fn measure(
    folder: &Path,
    place: &Place,
    extents: &Extents,
    progress: &mut dyn Progress,
) -> Result<Vec<Captured>, LabError> {
    let files = files(folder)?;
    let span = Span { periods: PERIODS.min(extents.span.periods), ..extents.span };
    let max: Vec<_> = files.iter().map(|file| scenario(file, "max", None, span)).collect();
    let means = basis::measure(place, &max, progress, |run| [mean_delay_us(run, false)])?;
    let mut scenarios = Vec::new();
    for (file, [mean]) in files.iter().zip(means) {
        let slo = Some(objective(mean).0);
        scenarios.extend(CONTROLLERS.iter().map(|controller| scenario(file, controller, slo, span)));
    }
    let figures = place.all(&scenarios, progress, |run| Figures::of(&run, place.hertz()))?;
    let mut all = Vec::new();
    for (file, figures) in files.iter().zip(figures.chunks(CONTROLLERS.len())) {
        let rate = |run: &Figures| run.sound(|run| run.rate_pps).filter(|rate| *rate > 0.0);
        let null = rate(&figures[0]);
        all.extend(figures.iter().zip(CONTROLLERS).map(|(figures, controller)| Captured {
            capture: name(file),
            controller,
            fold: false,
            to_null: rate(figures).zip(null).map(|(rate, null)| rate / null),
            told: figures.told(),
        }));
    }
    Ok(all)
}

fn name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// How names of captures end.
pub(crate) const ENDS: [&str; 4] = [".pcap", ".pcapng", ".pcap.gz", ".pcapng.gz"];

/// The captures in a folder, by name.
pub(super) fn files(folder: &Path) -> Result<Vec<PathBuf>, LabError> {
    let wrong = |error| LabError::File { path: folder.to_owned(), error };
    let entries = std::fs::read_dir(folder).map_err(wrong)?.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    let mut files: Vec<_> = entries.into_iter().map(|entry| entry.path()).collect();
    files.retain(|file| ENDS.iter().any(|end| name(file).ends_with(end)));
    files.sort();
    if files.is_empty() { Err(LabError::Captures(folder.to_owned())) } else { Ok(files) }
}

fn scenario(file: &Path, controller: &'static str, slo: Option<u64>, span: Span) -> Scenario {
    let mut text = format!(
        "name: capture\nports:\n  in: {{ pcap: {{ read: {}, speed: fast, loops: forever }} }}\n  out: {{ sink: {{}} }}\n",
        // A name in JSON is one in YAML.
        serde_json::Value::from(file.display().to_string())
    );
    let (mut modules, mut lines, mut flows) = (String::new(), String::new(), String::new());
    for branch in 0..BRANCHES {
        let names: Vec<_> = (0..FUNCTIONS).map(|function| format!("f{function}_{branch}")).collect();
        for name in &names {
            let (batch, packet) = CYCLES;
            modules.push_str(&format!(
                "  {name}: {{ bypass: {{ cycles_per_batch: {batch}, cycles_per_packet: {packet} }} }}\n"
            ));
        }
        let way = format!("split[{branch}] -> {}", names.join(" -> "));
        lines.push_str(&format!("  - {way} -> out\n"));
        let slo = slo.map_or_else(String::new, |slo| format!(", slo: {slo}ns"));
        flows.push_str(&format!("  - {{ name: branch{branch}, path: \"{way}\"{slo}, percentile: {PERCENTILE} }}\n"));
    }
    text.push_str(&format!("modules:\n  split: {{ hash_split: {{ gates: {BRANCHES} }} }}\n{modules}"));
    text.push_str(&format!("pipeline:\n  - in -> split\n{lines}flows:\n{flows}"));
    let name = format!("{}, {controller}", name(file));
    Scenario::of_text(name, text, &Rule::new(controller), &[fold(false)], span).costing("f", COST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_measure::Nanos;

    /// Where stand-ins can be folded one day, captures are to be run folded, too.
    #[test]
    fn stand_ins_do_not_fold() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("none.pcap");
        // libpcap's header of a file in microseconds, of Ethernet, without packets.
        let words = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1];
        std::fs::write(&file, words.map(u32::to_le_bytes).concat()).expect("a file");
        let mut scenario = scenario(&file, "null", None, Span { period: Nanos(1_000_000), periods: 1 });
        scenario.source = scenario.source.set(fold(true));
        assert!(!scenario.folds().expect("a pipeline"));
    }
}
