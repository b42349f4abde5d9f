//! Tests that branches that run as one treat every packet like branches that run separately, and have the same reports.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_graph::{
    RunToCompletion,
    drive::{Ended, shut_down_team, simulate_team},
};
use forebay_instance::{SimulatedTeam, Simulation};
use forebay_measure::Clock;
use forebay_pipeline::{Conditions, Source, load};
use forebay_ports::pcap::read_memory;
use forebay_protocol::report::Report;
use forebay_units::Ticks;
use proptest::prelude::*;

/// A function of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BranchFunction {
    Ttl,
    Mac,
    Nat,
    Acl,
    Checksum,
    Counter,
    /// Cannot be folded.
    Bypass,
}

impl BranchFunction {
    /// Returns the configuration of the function in a branch.
    fn text(self, branch: usize) -> String {
        match self {
            Self::Ttl => "ttl: ".to_owned(),
            Self::Mac => format!(
                "mac_rewrite: {{ source: '02:00:00:00:00:{branch:02x}', destination: '06:00:00:00:00:{branch:02x}' }}"
            ),
            Self::Nat => format!(
                "static_nat: {{ direction: out, unmatched: drop, \
                 mappings: [{{ inside: 198.18.0.0/17, outside: {}.1.0.0/17 }}] }}",
                branch + 1
            ),
            Self::Acl => format!("acl: {{ rules: {{ synthetic: 20, seed: {branch} }}, default: deny }}"),
            Self::Checksum => "ip_checksum: ".to_owned(),
            Self::Counter => "counter: ".to_owned(),
            Self::Bypass => "bypass: {}".to_owned(),
        }
    }
}

/// A split over branches, each of which is a chain.
#[derive(Clone, Debug)]
struct Shape {
    branches: Vec<Vec<BranchFunction>>,
    /// Whether all branches lead to one common module.
    meets: bool,
    trigger: usize,
    /// Whether flows are declared for every second branch. Packets of the other branches belong to no declared flow.
    declared: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    let kind = || {
        prop_oneof![
            Just(BranchFunction::Ttl),
            Just(BranchFunction::Mac),
            Just(BranchFunction::Nat),
            Just(BranchFunction::Acl),
            Just(BranchFunction::Checksum),
            Just(BranchFunction::Counter)
        ]
    };
    let odd = prop::option::weighted(0.3, (0..6usize, 0..4usize));
    (2..6usize, prop::collection::vec(kind(), 1..5), odd, any::<bool>(), 0..9usize, any::<bool>()).prop_map(
        |(branches, chain, odd, meets, trigger, declared)| {
            let mut branches = vec![chain; branches];
            if let Some((branch, stage)) = odd {
                let branch = branch % branches.len();
                let stage = stage % branches[branch].len();
                branches[branch][stage] = BranchFunction::Bypass;
            }
            Shape { branches, meets, trigger, declared }
        },
    )
}

impl Shape {
    fn text(&self, fold: &str) -> String {
        let mut text = format!(
            "batch: 16\nfold: {fold}\nports:\n  in: {{ generator: {{ rate: 1Mpps, count: 3000, sessions: 64, burst: 3, \
             size: imix, source: [198.18.0.0/16] }} }}\n  \
             out: {{ pcap: {{ write: {fold}.pcap }} }}\nmodules:\n  split: {{ hash_split: {{ gates: {} }} }}\n",
            self.branches.len()
        );
        let mut lines = "pipeline:\n  - in -> split\n".to_owned();
        if self.meets {
            text.push_str("  last: { ip_checksum: }\n");
            lines.push_str("  - last -> out\n");
        }
        let end = if self.meets { "last" } else { "out" };
        let mut flows = "flows:\n".to_owned();
        for (branch, chain) in self.branches.iter().enumerate() {
            let names: Vec<_> = (0..chain.len()).map(|stage| format!("m{branch}-{stage}")).collect();
            for (name, kind) in names.iter().zip(chain) {
                text.push_str(&format!("  {name}: {{ {} }}\n", kind.text(branch)));
            }
            lines.push_str(&format!("  - split[{branch}] -> {} -> {end}\n", names.join(" -> ")));
            if branch % 2 == 0 {
                flows.push_str(&format!("  - {{ name: f{branch}, path: [split[{branch}]], slo: 1ms }}\n"));
            }
        }
        if self.trigger > 0 {
            // A trigger of the split module. Modules of branches with a trigger would not be folded.
            text.push_str(&format!("buffers: {{ split: {{ trigger: {} }} }}\n", self.trigger));
        }
        if self.declared { text + &lines + &flows } else { text + &lines }
    }

    /// Returns the expected number of folds. A branch that differs does not count.
    fn folds(&self) -> usize {
        let alike: Vec<_> = self.branches.iter().filter(|branch| !branch.contains(&BranchFunction::Bypass)).collect();
        if alike.len() > 1 { alike[0].len() } else { 0 }
    }
}

/// The result of a run.
struct Done {
    report: Report,
    /// The output frames, in order.
    frames: Vec<Vec<u8>>,
    folds: usize,
}

fn run(shape: &Shape, fold: &str, folder: &Path) -> Done {
    run_text(&shape.text(fold), fold, folder)
}

fn run_text(text: &str, fold: &str, folder: &Path) -> Done {
    let source = Source::new(text.to_owned(), "test", folder);
    let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
    let loaded = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}\n{text}"));
    let folds = loaded.plans[0].folds.len();
    let mut team = SimulatedTeam::<RunToCompletion>::new(loaded.plans, &[], None).expect("a plan that runs");
    assert_eq!(simulate_team(&mut team.workers, Ticks(1_000_000_000)), Ended::Finished);
    assert!(shut_down_team(&mut team.workers).is_empty());
    let reading = team.board.read(team.workers[0].clock().now());
    let report = team.board.report(&team.board.nothing(), &reading);
    let capture = std::fs::read(folder.join(format!("{fold}.pcap"))).expect("it was written");
    let (frames, error) = read_memory(&capture);
    assert!(error.is_none(), "{error:?}");
    Done { report, frames: frames.into_iter().map(|(_, frame)| frame).collect(), folds }
}

/// Returns the frames of each session in order.
fn by_session(frames: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<&[u8]>> {
    let mut sessions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for frame in frames {
        // The Ethernet addresses, which identify the branch, and the addresses and ports of IPv4 without options.
        let key = [&frame[..12], &frame[26..38]].concat();
        sessions.entry(key).or_default().push(&frame[..]);
    }
    sessions
}

/// Regression: when splits behind a split ran as one, all packets got the flow word of the first split and continued in
/// its branches.
#[test]
fn branches_of_branches_do_the_same() {
    for (depth, declared) in [(2, false), (2, true), (3, false), (3, true)] {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let [folded, written] = ["on", "off"].map(|fold| run_text(&tree(depth, declared, fold), fold, folder.path()));
        assert!(folded.folds >= depth && written.folds == 0);
        assert_eq!(by_session(&folded.frames), by_session(&written.frames));
        let modules = |done: &Done| {
            done.report.modules.iter().map(|module| (module.name.clone(), module.packets)).collect::<Vec<_>>()
        };
        assert_eq!(modules(&folded), modules(&written));
        let flows =
            |done: &Done| done.report.flows.iter().map(|flow| (flow.name.clone(), flow.packets)).collect::<Vec<_>>();
        assert_eq!(flows(&folded), flows(&written));
    }
}

/// Returns a tree of splits by bits of the destination address. Each leaf writes its own Ethernet address.
fn tree(depth: usize, declared: bool, fold: &str) -> String {
    let mut text = format!(
        "fold: {fold}\nports:\n  \
         in: {{ generator: {{ rate: 1Mpps, count: 2000, sessions: 64, destination: 10.0.0.0/26 }} }}\n  \
         out: {{ pcap: {{ write: {fold}.pcap }} }}\nmodules:\n"
    );
    let (mut lines, mut flows) = ("pipeline:\n  - in -> s\n".to_owned(), "flows:\n".to_owned());
    let mut level = vec![String::new()];
    for bit in 0..depth {
        let half = 1 << (5 - bit);
        let mut below = Vec::new();
        for at in &level {
            let base: usize = at.bytes().enumerate().map(|(bit, side)| usize::from(side - b'0') << (5 - bit)).sum();
            let len = 27 + bit;
            text.push_str(&format!(
                "  s{at}: {{ ip_lookup: {{ routes: [\"10.0.0.{base}/{len} 0\", \"10.0.0.{}/{len} 1\"] }} }}\n",
                base + half
            ));
            below.extend([0, 1].map(|side| format!("{at}{side}")));
        }
        level = below;
        for at in &level {
            let (parent, side) = at.split_at(at.len() - 1);
            let next = if bit + 1 < depth { format!("s{at}") } else { format!("ttl{at} -> mac{at} -> out") };
            lines.push_str(&format!("  - s{parent}[{side}] -> {next}\n"));
        }
    }
    for (number, leaf) in level.iter().enumerate() {
        text.push_str(&format!(
            "  ttl{leaf}: {{ ttl: }}\n  mac{leaf}: {{ mac_rewrite: {{ source: '02:00:00:00:00:{number:02x}', \
             destination: '06:00:00:00:00:{number:02x}' }} }}\n"
        ));
        flows.push_str(&format!("  - {{ name: f{leaf}, path: ttl{leaf}, slo: 1ms }}\n"));
    }
    if declared { text + &lines + &flows } else { text + &lines }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn folded_and_written_do_the_same(shape in shape()) {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let (folded, written) = (run(&shape, "on", folder.path()), run(&shape, "off", folder.path()));
        prop_assert_eq!((folded.folds, written.folds), (shape.folds(), 0));
        prop_assert_eq!(by_session(&folded.frames), by_session(&written.frames));
        for report in [&folded.report, &written.report] {
            prop_assert_eq!(report.packets.missing(), 0);
        }
        prop_assert_eq!(&folded.report.packets, &written.report.packets);
        for (folded, written) in folded.report.modules.iter().zip(&written.report.modules) {
            let facts = |module: &forebay_protocol::report::ModuleReport| {
                (module.name.clone(), module.function.clone(), module.packets, module.dropped, module.counters.clone())
            };
            prop_assert_eq!(facts(folded), facts(written));
        }
        let flows = |report: &Report| {
            report.flows.iter().map(|flow| (flow.name.clone(), flow.packets)).collect::<Vec<_>>()
        };
        prop_assert_eq!(flows(&folded.report), flows(&written.report));
        // Modules that run as one need fewer calls in all.
        let calls = |report: &Report| report.modules.iter().map(|module| module.batches).sum::<u64>();
        let (folded, written) = (calls(&folded.report), calls(&written.report));
        prop_assert!(shape.folds() == 0 || folded <= written + 16, "{folded} {written}");
    }
}
