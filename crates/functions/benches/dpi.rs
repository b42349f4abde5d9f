//! Measures the ticks per packet of `dpi` with its patterns, against the scan of the same payloads by the crate
//! `aho-corasick`.
//!
//! 4 096 payloads of 1 400 bytes in batches of 32. No payload contains a pattern, so every byte is looked at. The
//! function and the automata of the crate take turns in every pass, so that other load on the machine slows all of
//! them. The figure of the function is for a whole call: it includes finding the layers, and putting packets into the
//! batch and taking them out. Run with `cargo bench -p forebay-functions --bench dpi`. With a number as argument, it
//! measures only this number of patterns. With `rules`, it measures `nids` with this number of rules instead. With
//! `--record` the figure of 1 000 patterns goes into `target/bench.json`.

mod record;

use std::hint::black_box;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use forebay_functions::security::dpi::Dpi;
use forebay_functions::security::nids::Nids;
use forebay_graph::Rig;
use forebay_measure::clock::{Clock, Tsc};
use forebay_packet::Batch;
use serde_json::json;

const PACKETS: usize = 4_096;
const BATCH: usize = 32;
const PASSES: usize = 15;
const LENGTH: usize = 1_400;
/// The number of packets that are measured at a time: the pool of a rig has no more.
const POOL: usize = 512;

/// Random payloads and patterns.
struct Random(forebay_units::Random);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        (self.0.bits() % most as u64) as usize
    }

    fn word(&mut self, least: usize, most: usize) -> Vec<u8> {
        const LETTERS: &[u8] = b"eeeetttaaaooiinnsshhrrddlluccmmwfgypbvkjxqzETAOIN0123456789/-._=&?%";
        let length = least + self.below(most - least);
        (0..length).map(|_| LETTERS[self.below(LETTERS.len())]).collect()
    }
}

/// Returns patterns: words like names and parts of addresses. Every fifth pattern has random bytes.
fn patterns(count: usize) -> Vec<Vec<u8>> {
    let mut random = Random(forebay_units::Random::new(1));
    (0..count)
        .map(|n| match n % 5 {
            0 => (0..8 + random.below(12)).map(|_| random.below(256) as u8).collect(),
            _ => random.word(8, 24),
        })
        .collect()
}

/// Returns payloads of words, among them beginnings of patterns, or of random bytes.
fn payloads(patterns: &[Vec<u8>], text: bool) -> Vec<Vec<u8>> {
    let mut random = Random(forebay_units::Random::new(2));
    let one = |random: &mut Random| {
        let mut payload = Vec::with_capacity(LENGTH + 32);
        while payload.len() < LENGTH {
            match (text, random.below(8)) {
                (false, _) => payload.push(random.below(256) as u8),
                (true, 0) => {
                    let pattern = &patterns[random.below(patterns.len())];
                    payload.extend(&pattern[..pattern.len() / 2]);
                }
                (true, _) => payload.extend(random.word(3, 9)),
            }
            if text {
                payload.push(b' ');
            }
        }
        payload.truncate(LENGTH);
        payload
    };
    (0..PACKETS).map(|_| one(&mut random)).collect()
}

fn frame(payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
        .tcp(40_000, 80, 1, 2)
        .write(&mut frame, payload)
        .expect("memory");
    frame
}

fn main() -> Result<(), String> {
    let only: Option<usize> = std::env::args().find_map(|word| word.parse().ok());
    if std::env::args().any(|word| word == "rules") {
        rules();
        return Ok(());
    }
    println!(
        "{:>8} {:>8} {:>6} {:>10} {:>10} {:>10} {:>10} {:>9}",
        "patterns", "payload", "", "function", "crate", "crate DFA", "crate NFA", "of best"
    );
    for count in [100, 1_000, 10_000].into_iter().filter(|count| only.is_none_or(|only| only == *count)) {
        let patterns = patterns(count);
        for text in [true, false] {
            for nocase in [false, true] {
                compare(&patterns, text, nocase)?;
            }
        }
    }
    Ok(())
}

/// Returns the ticks per packet of a function's calls.
fn process(rig: &mut Rig, payloads: &[Vec<u8>]) -> f64 {
    let mut spent = 0;
    for payloads in payloads.chunks(POOL) {
        let mut batches: Vec<Batch> = Vec::new();
        for payloads in payloads.chunks_exact(BATCH) {
            let mut batch = Batch::with_capacity(BATCH);
            for payload in payloads {
                batch.push(rig.packet(&frame(payload))).expect("room");
            }
            batches.push(batch);
        }
        let start = Tsc.now();
        for batch in &mut batches {
            black_box(rig.process(batch));
        }
        spent += Tsc.now().since(start).0;
    }
    spent as f64 / payloads.len() as f64
}

/// Measures `nids` if no rule matches. The rules are for several ports, half of them for the port of the packets.
fn rules() {
    println!("{:>8} {:>8} {:>10}", "rules", "payload", "function");
    for count in [100, 1_000, 5_000] {
        let patterns = patterns(count);
        for text in [true, false] {
            let payloads = payloads(&patterns, text);
            let rule = |(sid, pattern): (usize, &Vec<u8>)| {
                let bytes: String = pattern.iter().map(|byte| format!("{byte:02x} ")).collect();
                let port = if sid.is_multiple_of(2) { "80".to_owned() } else { (1 + sid % 50).to_string() };
                format!("alert tcp any any -> any {port} (content:\"|{bytes}|\"; sid:{sid};)")
            };
            let lines: Vec<String> = (1..).zip(&patterns).map(rule).collect();
            let mut rig = Rig::of::<Nids>(&json!({ "rules": lines })).expect("rules");
            let mut ticks: Vec<f64> = (0..PASSES).map(|_| process(&mut rig, &payloads)).collect();
            ticks.sort_by(f64::total_cmp);
            println!("{count:>8} {:>8} {:>10.0}", if text { "text" } else { "bytes" }, ticks[PASSES / 2]);
        }
    }
}

fn compare(patterns: &[Vec<u8>], text: bool, nocase: bool) -> Result<(), String> {
    let build = |kind| {
        let mut builder = AhoCorasick::builder();
        builder.kind(kind).ascii_case_insensitive(nocase).match_kind(MatchKind::Standard);
        builder.build(patterns).expect("few enough patterns")
    };
    let crates = [None, Some(AhoCorasickKind::DFA), Some(AhoCorasickKind::ContiguousNFA)].map(build);
    let payloads: Vec<_> =
        payloads(patterns, text).into_iter().filter(|payload| !crates[1].is_match(payload)).collect();
    let payloads = &payloads[..payloads.len() / BATCH * BATCH];
    let hexadecimal = |pattern: &Vec<u8>| pattern.iter().map(|byte| format!("\\x{byte:02x}")).collect::<String>();
    let lines: Vec<String> = patterns.iter().map(hexadecimal).collect();
    let mut rig = Rig::of::<Dpi>(&json!({ "patterns": lines, "nocase": nocase })).expect("patterns");
    let mut ticks: [Vec<f64>; 4] = Default::default();
    for _ in 0..PASSES {
        ticks[0].push(process(&mut rig, payloads));
        for (scan, ticks) in crates.iter().zip(&mut ticks[1..]) {
            let start = Tsc.now();
            for payload in payloads {
                assert!(black_box(scan.find(black_box(payload))).is_none());
            }
            ticks.push(Tsc.now().since(start).0 as f64 / payloads.len() as f64);
        }
    }
    ticks.iter_mut().for_each(|ticks| ticks.sort_by(f64::total_cmp));
    let [function, own, table, lists] = [0, 1, 2, 3].map(|at| ticks[at][PASSES / 2]);
    let best = own.min(table).min(lists);
    let name = if patterns.len() == 1_000 && text && !nocase { "dpi_1k" } else { "" };
    println!(
        "{:>8} {:>8} {:>6} {function:>10.0} {own:>10.0} {table:>10.0} {lists:>10.0} {:>9.3} {name}",
        patterns.len(),
        if text { "text" } else { "bytes" },
        if nocase { "nocase" } else { "case" },
        function / best,
    );
    if name.is_empty() {
        return Ok(());
    }
    record::record(&[record::Figure { name, ticks: &ticks[0], against: ("aho-corasick", best) }])
}
