//! `dpi n`: EdgeMiner's DPI (section 3.1.2): searches payloads for patterns, and sends packets with a pattern on
//! another path. Then it forwards packets to n next hops. 3 + n modules.
//!
//! `nids n`: Octans' NIDS (section VI.A): rules with one content each, half of them for the destination port of the
//! packets and half for fifty other ports. Matching packets are counted and forwarded. 2 + n modules.
//!
//! The patterns are generated from the seed. Payloads contain the beginnings of many patterns but no whole pattern,
//! except that some payloads end with a pattern.

use forebay_units::Random;
use std::collections::BTreeSet;

use super::parameters::{Values, Wrong};
use super::text::{Text, address, hops, prefix};

/// The number of bytes of a frame before the text of its payload: Ethernet, IPv4, UDP, and two bytes that compensate
/// the checksum.
const BEFORE: u64 = 14 + 20 + 8 + 2;
/// The lengths of patterns. The shortest frame has room for the longest pattern.
const LENGTHS: std::ops::RangeInclusive<u64> = 8..=16;
/// The largest number of patterns that occur in packets.
const SHOWN: usize = 4;
/// The destination port of packets.
const PORT: u64 = 5_000;
/// The number of other destination ports in rules.
const OTHER_PORTS: u64 = 50;

pub(super) fn write_dpi(values: &Values) -> Result<String, Wrong> {
    let n = values.whole("n", 1, 4_096)?;
    let patterns = patterns(values, "patterns", 1)?;
    let mut text = Text::new(&format!("dpi-{n}"), values)?;
    let payloads = payloads(values, &text, &patterns)?;
    generator(&mut text, n, &payloads);
    text.sink();
    text.line("in -> dpi");
    text.line("dpi[clean] -> route");
    text.module("dpi", "dpi", &format!("{}, classes: [{{ name: found, gate: found }}] ", sought(&patterns)));
    hops(&mut text, n, "dpi[clean] -> ");
    let (found, slo) = (address(&mut text, n, "other"), text.slo());
    text.branch("found", "", "dpi[found]", &[found], slo);
    Ok(text.finish())
}

pub(super) fn write_nids(values: &Values) -> Result<String, Wrong> {
    let n = values.whole("n", 1, 4_096)?;
    let contents = patterns(values, "rules", 2)?;
    let mut text = Text::new(&format!("nids-{n}"), values)?;
    let (ours, others) = contents.split_at(contents.len().div_ceil(2));
    let payloads = payloads(values, &text, ours)?;
    generator(&mut text, n, &payloads);
    text.sink();
    text.line("in -> ids -> route");
    let ports = std::iter::repeat_n(PORT, ours.len()).chain((0..others.len() as u64).map(|n| 6_000 + n % OTHER_PORTS));
    let rules = contents.iter().zip(ports).zip(1..).map(|((content, port), sid)| {
        format!("'alert udp any any -> any {port} (msg:\"{content}\"; content:\"{content}\"; sid:{sid};)'")
    });
    text.module("ids", "nids", &format!(" rules: [{}] ", rules.collect::<Vec<_>>().join(", ")));
    hops(&mut text, n, "");
    Ok(text.finish())
}

/// Returns the text of the parameter `patterns` of `dpi`.
pub(super) fn sought(patterns: &[String]) -> String {
    format!(" patterns: [{}]", patterns.join(", "))
}

/// Writes a generator whose sessions have `n` destination prefixes in turn. `payloads` is the text of its parameter
/// `size`.
fn generator(text: &mut Text, n: u64, payloads: &str) {
    let destinations: Vec<_> = (0..n).map(prefix).collect();
    let lines = ["source: 192.168.0.0/24".to_owned(), format!("destination: [{}]", destinations.join(", "))];
    text.generator_with("in", (1, n), payloads, &lines);
}

/// Generates patterns of small letters from the seed, all different. Their number is the value of `parameter`, at least
/// `least`.
pub(super) fn patterns(values: &Values, parameter: &'static str, least: u64) -> Result<Vec<String>, Wrong> {
    let count = values.whole(parameter, least, 10_000)?;
    let mut random = Random::new(values.whole("seed", 0, u64::MAX)?);
    let mut draw = |below: u64| random.bits() % below;
    let (mut known, mut all) = (BTreeSet::new(), Vec::new());
    while (all.len() as u64) < count {
        let length = LENGTHS.start() + draw(LENGTHS.end() - LENGTHS.start() + 1);
        let pattern: String = (0..length).map(|_| char::from(b'a' + draw(26) as u8)).collect();
        if known.insert(pattern.clone()) {
            all.push(pattern);
        }
    }
    Ok(all)
}

/// Returns the text of a generator's parameter `size`, with the frames' lengths and payloads. The parameter `matching`
/// is the percentage of payloads that end with a pattern.
pub(super) fn payloads(values: &Values, text: &Text, patterns: &[String]) -> Result<String, Wrong> {
    let (matching, size) = (values.whole("matching", 0, 100)?, text.size());
    let shown: Vec<&str> = patterns.iter().step_by(patterns.len().div_ceil(SHOWN)).map(String::as_str).collect();
    let clean = (100 - matching) * shown.len() as u64;
    let ends = std::iter::once((clean, "")).chain(shown.into_iter().map(|pattern| (matching, pattern)));
    let room = (size - BEFORE) as usize;
    let entry = |(weight, end): (u64, &str)| {
        let text = beginnings(patterns, room - end.len()) + end;
        format!("{{ size: {size}, weight: {weight}, payload: '{text}' }}")
    };
    let entries: Vec<_> = ends.filter(|(weight, _)| *weight > 0).map(entry).collect();
    Ok(format!("[{}]", entries.join(", ")))
}

/// Returns text of this length that consists of beginnings of patterns.
fn beginnings(patterns: &[String], length: usize) -> String {
    let mut text: String = patterns.iter().cycle().take(length / 5 + 1).map(|it| format!("{} ", &it[..4])).collect();
    text.truncate(length);
    text
}
