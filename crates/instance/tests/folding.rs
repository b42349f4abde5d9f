//! Branches that run as one and branches that run as they are written treat every packet alike, and are told alike.

use std::collections::BTreeMap;
use std::path::Path;

use forebay_graph::{
    RunToCompletion,
    drive::{Ended, simulate_team, wind_up_team},
};
use forebay_instance::{SimulatedTeam, Simulation};
use forebay_measure::Clock;
use forebay_pipeline::{Conditions, Source, load};
use forebay_ports::pcap::read_memory;
use forebay_protocol::report::Report;
use forebay_units::Ticks;
use proptest::prelude::*;

/// What a branch does with packets: functions in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Ttl,
    Mac,
    Nat,
    Acl,
    Checksum,
    Counter,
    /// Not to be folded.
    Bypass,
}

impl Kind {
    /// It with the parameters of a branch, as it is configured.
    fn told(self, branch: usize) -> String {
        match self {
            Self::Ttl => "ttl: ".to_owned(),
            Self::Mac => format!(
                "mac_rewrite: {{ source: '02:00:00:00:00:{branch:02x}', destination: '06:00:00:00:00:{branch:02x}' }}"
            ),
            Self::Nat => format!(
                "static_nat: {{ direction: out, unmatched: drop, mappings: [{{ inside: 198.18.0.0/17, outside: {}.1.0.0/17 }}] }}",
                branch + 1
            ),
            Self::Acl => format!("acl: {{ rules: {{ synthetic: 20, seed: {branch} }}, default: deny }}"),
            Self::Checksum => "ip_checksum: ".to_owned(),
            Self::Counter => "counter: ".to_owned(),
            Self::Bypass => "bypass: {}".to_owned(),
        }
    }
}

/// A split over branches, each a chain.
#[derive(Clone, Debug)]
struct Shape {
    branches: Vec<Vec<Kind>>,
    /// Whether all go on to one module more.
    meets: bool,
    trigger: usize,
    /// Whether flows are declared, and packets of every other branch are of none.
    declared: bool,
}

fn shape() -> impl Strategy<Value = Shape> {
    let kind = || {
        prop_oneof![
            Just(Kind::Ttl),
            Just(Kind::Mac),
            Just(Kind::Nat),
            Just(Kind::Acl),
            Just(Kind::Checksum),
            Just(Kind::Counter)
        ]
    };
    let odd = prop::option::weighted(0.3, (0..6usize, 0..4usize));
    (2..6usize, prop::collection::vec(kind(), 1..5), odd, any::<bool>(), 0..9usize, any::<bool>()).prop_map(
        |(branches, chain, odd, meets, trigger, declared)| {
            let mut branches = vec![chain; branches];
            if let Some((branch, stage)) = odd {
                let branch = branch % branches.len();
                let stage = stage % branches[branch].len();
                branches[branch][stage] = Kind::Bypass;
            }
            Shape { branches, meets, trigger, declared }
        },
    )
}

impl Shape {
    fn text(&self, fold: &str) -> String {
        let mut text = format!(
            "batch: 16\nfold: {fold}\nports:\n  in: {{ generator: {{ rate: 1Mpps, count: 3000, sessions: 64, burst: 3, size: imix, source: [198.18.0.0/16] }} }}\n  \
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
                text.push_str(&format!("  {name}: {{ {} }}\n", kind.told(branch)));
            }
            lines.push_str(&format!("  - split[{branch}] -> {} -> {end}\n", names.join(" -> ")));
            if branch % 2 == 0 {
                flows.push_str(&format!("  - {{ name: f{branch}, path: [split[{branch}]], slo: 1ms }}\n"));
            }
        }
        if self.trigger > 0 {
            // Of the split: what comes later would not be folded.
            text.push_str(&format!("buffers: {{ split: {{ trigger: {} }} }}\n", self.trigger));
        }
        if self.declared { text + &lines + &flows } else { text + &lines }
    }

    /// How many folds there should be: a branch that differs is left out.
    fn folds(&self) -> usize {
        let alike: Vec<_> = self.branches.iter().filter(|branch| !branch.contains(&Kind::Bypass)).collect();
        if alike.len() > 1 { alike[0].len() } else { 0 }
    }
}

/// What became of packets.
struct Done {
    report: Report,
    /// Frames that left, in order.
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
    assert!(wind_up_team(&mut team.workers).is_empty());
    let reading = team.board.read(team.workers[0].clock().now());
    let report = team.board.report(&team.board.nothing(), &reading);
    let capture = std::fs::read(folder.join(format!("{fold}.pcap"))).expect("it was written");
    let (frames, error) = read_memory(&capture);
    assert!(error.is_none(), "{error:?}");
    Done { report, frames: frames.into_iter().map(|(_, frame)| frame).collect(), folds }
}

/// By session: the frames in order.
fn by_session(frames: &[Vec<u8>]) -> BTreeMap<Vec<u8>, Vec<&[u8]>> {
    let mut sessions: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for frame in frames {
        // Addresses and ports of IPv4 without options, and which branch's Ethernet addresses it has.
        let key = [&frame[..12], &frame[26..38]].concat();
        sessions.entry(key).or_default().push(&frame[..]);
    }
    sessions
}

/// Splits behind a split that run as one had all packets' words be those of the first of them: they went on as packets of its branches.
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

/// A tree of splits by bits of the destination address, of whose leaves each writes its own address.
fn tree(depth: usize, declared: bool, fold: &str) -> String {
    let mut text = format!(
        "fold: {fold}\nports:\n  in: {{ generator: {{ rate: 1Mpps, count: 2000, sessions: 64, destination: 10.0.0.0/26 }} }}\n  \
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
        text.push_str(&format!("  ttl{leaf}: {{ ttl: }}\n  mac{leaf}: {{ mac_rewrite: {{ source: '02:00:00:00:00:{number:02x}', destination: '06:00:00:00:00:{number:02x}' }} }}\n"));
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
        for told in [&folded.report, &written.report] {
            prop_assert_eq!(told.packets.missing(), 0);
        }
        prop_assert_eq!(&folded.report.packets, &written.report.packets);
        for (folded, written) in folded.report.modules.iter().zip(&written.report.modules) {
            let told = |module: &forebay_protocol::report::ModuleReport| {
                (module.name.clone(), module.function.clone(), module.packets, module.dropped, module.counters.clone())
            };
            prop_assert_eq!(told(folded), told(written));
        }
        let flows = |report: &Report| report.flows.iter().map(|flow| (flow.name.clone(), flow.packets)).collect::<Vec<_>>();
        prop_assert_eq!(flows(&folded.report), flows(&written.report));
        // Calls of what runs as one add up.
        let calls = |report: &Report| report.modules.iter().map(|module| module.batches).sum::<u64>();
        prop_assert!(shape.folds() == 0 || calls(&folded.report) <= calls(&written.report) + 16, "{} {}", calls(&folded.report), calls(&written.report));
    }
}
