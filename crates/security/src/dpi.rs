//! Deep packet inspection: sends packets to gates by the patterns in their payloads.
//!
//! Each packet is inspected on its own. (A pattern that spans two TCP segments could be found if sessions carried the
//! state of the search from one segment to the next. `inspection::strings` is the module that would return and take
//! this state.)

pub mod pattern;
pub mod set;
mod table;

use std::ops::Range;
use std::sync::Arc;

use forebay_graph::files::{MOST_RULES, read_text};
use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reader, Reason, Setup, SetupError, StateKind, on_one_line,
    register, short,
};
use forebay_measure::Counter;
use forebay_packet::{MAX_BATCH, Packet};
use forebay_tables::parameters::{LISTED, of_elements};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inspection::payload::{Fragmentation, PacketLayout};
use pattern::{is_name, parse_file};
use set::{MOST_CLASSES, Verdict};
use table::{Current, Next, Patterns};

/// Parameters of `dpi`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The patterns: the name of a file with one pattern per line, or a list of such lines.
    patterns: Source,
    /// The classes of patterns, from the strongest. If a packet contains patterns of several classes, the first of
    /// these classes decides. Without this parameter there is one class, `match`, whose packets leave by the gate
    /// `match`.
    classes: Option<Vec<Class>>,
    /// True if patterns without `case` or `nocase` match ASCII letters in either case.
    #[serde(default)]
    nocase: bool,
    /// The number of bytes of each payload that are inspected, 1 to 65535; all by default.
    depth: Option<usize>,
    /// The treatment of fragments: `scan` (the default) inspects the payload of each fragment, `pass` forwards
    /// fragments without inspection, `drop` drops them.
    #[serde(default)]
    fragments: Fragments,
    /// The counts in reports: the counts of each `class` (the default), or also of each `pattern` in the configuration.
    /// The table `matches` has the counts of all patterns.
    #[serde(default)]
    count: Count,
    /// The largest number of patterns at a time, 1 to 1048576; 65536 by default. Each pattern takes 8 bytes per worker
    /// for its count.
    #[serde(default = "capacity")]
    capacity: usize,
}

fn capacity() -> usize {
    1 << 16
}

/// The largest `capacity`.
const MAX_PATTERNS: usize = 1 << 20;
/// The largest `depth`: the size of the largest packets.
const MAX_DEPTH: usize = u16::MAX as usize;

/// The source of the patterns.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a file's name or a list of patterns")]
enum Source {
    /// A file. Its name is relative to the configuration.
    File(String),
    /// The lines of a pattern file.
    Inline(Vec<String>),
}

/// A class of patterns.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Class {
    /// The name, which patterns refer to (`class=NAME`).
    name: String,
    /// The gate by which packets of the class leave, or `drop`. Several classes may share a gate. `clean` is the gate
    /// of packets without patterns.
    gate: String,
}

/// The treatment of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Fragments {
    /// The part of the payload in each fragment is inspected.
    #[default]
    Scan,
    /// Fragments are not inspected. They leave like clean packets, and are counted as unseen.
    Pass,
    /// Fragments are dropped.
    Drop,
}

/// The counts in reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Count {
    /// Packets of each class.
    #[default]
    Class,
    /// Also the packets that each pattern decided.
    Pattern,
}

const CLEAN: &str = "clean";
const DROP: &str = "drop";

const PATTERN: Gate = Gate::drop(0);
const FRAGMENT: Gate = Gate::drop(1);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason { name: "pattern", help: "A pattern is in the payload, and packets of its class are to be dropped." },
    Reason { name: "fragment", help: "The packet is a fragment, and fragments are to be dropped ('fragments')." },
];

/// The patterns and counters of one module.
struct Inspector {
    /// The patterns, which the control plane may change between two batches.
    patterns: Reader<Current, Next>,
    /// The gate of each class.
    gates: Box<[Gate]>,
    /// The number of bytes of each payload that are inspected.
    depth: usize,
    fragments: Fragments,
    /// The number of packets of each class, then of clean packets, and last of packets that were not inspected.
    classes: Arc<[Counter]>,
    /// The packets that each pattern decided, by slot.
    matches: Arc<[Counter]>,
    /// The same counts for the report, if the parameter `count` is `pattern`; otherwise empty.
    report_matches: Arc<[Counter]>,
}

/// The function `dpi`.
pub struct Dpi {
    inspector: Inspector,
    scratch: Box<Scratch>,
}

/// The working memory of a batch.
struct Scratch {
    /// The start and the end of the payload of each inspected packet, in bytes into the frame.
    ranges: [(u16, u16); MAX_BATCH],
    /// The index of each inspected packet in the batch.
    indices: [u16; MAX_BATCH],
    /// The verdict on each inspected packet.
    verdicts: [Verdict; MAX_BATCH],
}

impl Scratch {
    fn new() -> Box<Self> {
        Box::new(Self { ranges: [(0, 0); MAX_BATCH], indices: [0; MAX_BATCH], verdicts: [Verdict::CLEAN; MAX_BATCH] })
    }
}

/// The classes and their gates.
struct Classes {
    names: Vec<String>,
    /// The gate of each class.
    gates: Vec<Gate>,
    /// The names of the gates, by number.
    gate_names: Vec<String>,
}

impl Params {
    /// Returns the classes, their gates and the names of the gates. Fails if a name is invalid, or if a class occurs
    /// twice.
    fn classes(&self) -> Result<Classes, SetupError> {
        let only = || vec![Class { name: "match".to_owned(), gate: "match".to_owned() }];
        let classes = self.classes.clone().unwrap_or_else(only);
        if !(1..=MOST_CLASSES).contains(&classes.len()) {
            return Err(SetupError::not_allowed(
                "classes",
                format!("{} classes", classes.len()),
                format!("1 to {MOST_CLASSES}"),
            ));
        }
        let (mut gates, mut names) = (Vec::new(), vec![CLEAN.to_owned()]);
        for (index, Class { name, gate }) in classes.iter().enumerate() {
            for (key, word) in [("name", name), ("gate", gate)] {
                if !is_name(word) || key == "name" && [CLEAN, "unseen"].contains(&&word[..]) {
                    let word = short(word);
                    let allowed = "letters, digits, '_', '-', '.' and '/'; a name must not be 'clean' or 'unseen'";
                    let wrong = format!("'{word}'");
                    return Err(SetupError::wrong(format!("classes[{index}].{key}"), word, wrong, allowed));
                }
            }
            if classes[..index].iter().any(|before| before.name == *name) {
                let wrong = format!("two classes have the name '{name}'");
                return Err(SetupError::with_hint(
                    format!("classes[{index}].name"),
                    wrong,
                    "give each class its own name",
                ));
            }
            if gate == DROP {
                gates.push(PATTERN);
                continue;
            }
            let number = names.iter().position(|known| known == gate).unwrap_or_else(|| {
                names.push(gate.clone());
                names.len() - 1
            });
            gates.push(Gate::out(number as u16));
        }
        Ok(Classes { names: classes.into_iter().map(|class| class.name).collect(), gates, gate_names: names })
    }

    /// Reads the patterns. Returns the name of their source for errors, and the lines.
    fn read(&self, setup: &Setup<'_>) -> Result<(String, Vec<u8>), SetupError> {
        match &self.patterns {
            Source::Inline(lines) => Ok((LISTED.to_owned(), lines.join("\n").into_bytes())),
            Source::File(name) => {
                let path = setup.path("patterns", name)?;
                let shown = on_one_line(&path.display().to_string());
                let bytes = read_text(&path, MOST_RULES);
                let bytes = bytes.map_err(|error| SetupError::at("patterns", format!("{shown}: {error}")))?;
                Ok((shown, bytes))
            }
        }
    }
}

impl Declare for Dpi {
    type Params = Params;
    const NAME: &'static str = "dpi";
    const SUMMARY: &'static str = "sends packets to gates by the patterns in their payloads";
    const HELP: &'static str = "\
        Each line is a pattern: plain text, or text in quotes. |0d 0a| and \\x0d stand for bytes. After the closing \
        quote, 'nocase', 'class=CLASS' and 'name=NAME' are allowed. Empty lines and lines that begin with # are \
        skipped. A pattern without a class belongs to the first class. If a packet contains several patterns, the \
        pattern of the first class in `classes` decides. Within a class, the pattern that ends first decides. Only the \
        deciding pattern is counted, in the table 'matches'. The payload is everything after the header of TCP or UDP, \
        or otherwise after the header of IP, up to the end of the IP packet. A transport header that contradicts \
        itself is part of the payload. If the header above IP cannot be found (behind more than 8 IPv6 extension \
        headers, or cut short), everything after the IP header is inspected, whatever `depth` is. If IP cannot be \
        found (behind more than 4 VLAN tags), the whole frame is inspected. A packet in a tunnel is part of the \
        payload of the outer packet. Each packet is inspected on its own: a pattern that spans two packets is not \
        found. Frames that are not IP leave by 'clean'. Patterns can be added and removed while packets run, with the \
        table 'patterns'.";
    const EXAMPLE: &'static str = "\
        { patterns: ['\"X-Evil: \" nocase class=bad', '|13|BitTorrent protocol'], \
        classes: [{ name: bad, gate: drop }, { name: p2p, gate: slow }] }";
    const TRAFFIC: &'static str = "{ size: 1024 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLD: Option<Fold<Self>> = Some(|branches| {
        let inspectors = PerBranch::new(branches.into_iter().map(|dpi| dpi.inspector).collect());
        Box::new(Folded { inspectors, scratch: Scratch::new() })
    });

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        for (path, value, most) in
            [("depth", params.depth.unwrap_or(MAX_DEPTH), MAX_DEPTH), ("capacity", params.capacity, MAX_PATTERNS)]
        {
            if !(1..=most).contains(&value) {
                return Err(SetupError::not_allowed(path, value, format!("1 to {most}")));
            }
        }
        let Classes { names, gates, gate_names } = params.classes()?;
        setup.gates(gate_names)?;
        let key = format!("dpi {}", serde_json::to_string(&params).unwrap_or_default());
        let patterns = setup.once_per_module(&key, |setup| {
            let (shown, bytes) = params.read(setup)?;
            let refused = |error: String| match &params.patterns {
                Source::Inline(lines) => of_elements("patterns", lines, &error),
                Source::File(_) => SetupError::lines("patterns", &error),
            };
            let read = parse_file(&shown, &bytes, params.nocase).map_err(refused)?;
            let gauges = setup.gauges("patterns", ["known", "shadowed", "bytes of memory"].map(str::to_owned));
            Patterns::new(read, (names.clone(), params.nocase, params.capacity), gauges, &shown).map_err(refused)
        })?;
        let counted = names.iter().cloned().chain([CLEAN, "unseen"].map(str::to_owned));
        let classes = setup.counters("payloads", counted);
        let report_matches = if params.count == Count::Pattern {
            setup.entry_counters("matches", patterns.titles())
        } else {
            Arc::default()
        };
        let inspector = Inspector {
            patterns: patterns.reader(),
            gates: gates.into(),
            depth: params.depth.unwrap_or(MAX_DEPTH),
            fragments: params.fragments,
            classes,
            matches: patterns.tally().counters(),
            report_matches,
        };
        setup.table("matches", Arc::clone(patterns.tally()) as Arc<dyn forebay_graph::Table>);
        setup.table("patterns", patterns);
        Ok(Self { inspector, scratch: Scratch::new() })
    }
}

impl Inspector {
    /// Returns the part of a packet to inspect, in bytes into the frame, or the gate of a packet that is not inspected.
    #[inline]
    fn look(&self, packet: &mut Packet) -> Result<Range<usize>, Gate> {
        let Some(layout) = PacketLayout::of(packet) else {
            // If IP cannot be found, the whole frame is inspected.
            return if packet.hidden().is_some() { Ok(0..packet.len().min(MAX_DEPTH)) } else { Err(Gate::FIRST) };
        };
        match (layout.fragmentation, self.fragments) {
            (Fragmentation::Whole, _) | (_, Fragments::Scan) => {}
            (_, Fragments::Pass) => return Err(Gate::FIRST),
            (_, Fragments::Drop) => return Err(FRAGMENT),
        }
        let Range { start, end } = layout.payload;
        // If the headers cannot be parsed, everything behind them is inspected. Otherwise a sender could use such
        // headers to move the content beyond `depth`.
        let depth = if layout.headers_hidden { MAX_DEPTH } else { self.depth };
        Ok(start..end.min(start + depth))
    }

    /// Inspects the packets of the batch at these indices, counts them, and puts them on their gates. There may be up
    /// to [`MAX_BATCH`] indices.
    #[inline]
    fn inspect(
        &mut self,
        scratch: &mut Scratch,
        batch: &mut [Packet],
        indices: impl Iterator<Item = usize>,
        context: &mut Context<'_>,
    ) {
        let Scratch { ranges, indices: inspected, verdicts } = scratch;
        let (mut count, mut unseen) = (0, 0);
        for index in indices {
            let Some(packet) = batch.get_mut(index) else { continue };
            match self.look(packet) {
                Ok(range) => {
                    ranges[count % MAX_BATCH] = (range.start as u16, range.end as u16);
                    inspected[count % MAX_BATCH] = index as u16;
                    count += 1;
                }
                Err(gate) => {
                    unseen += 1;
                    if gate != Gate::FIRST {
                        context.put(index, gate);
                    }
                }
            }
        }
        let current = self.patterns.read();
        let (ranges, inspected, verdicts) = (&ranges[..count], &inspected[..count], &mut verdicts[..count]);
        let payload = |at: usize| -> &[u8] {
            let (start, end) = ranges[at];
            let data = batch.get(usize::from(inspected[at])).map_or(&[][..], |packet| packet.data());
            data.get(usize::from(start)..usize::from(end)).unwrap_or_default()
        };
        current.0.judge(payload, verdicts);
        let mut clean = 0;
        for (index, verdict) in inspected.iter().zip(verdicts) {
            let Some(gate) = self.gates.get(usize::from(verdict.class)) else {
                clean += 1;
                continue;
            };
            self.classes[usize::from(verdict.class)].add(1);
            for counts in [&self.matches, &self.report_matches] {
                if let Some(count) = counts.get(verdict.slot as usize) {
                    count.add(1);
                }
            }
            if *gate != Gate::FIRST {
                context.put(usize::from(*index), *gate);
            }
        }
        let [.., cleans, unseens] = &*self.classes else { return };
        cleans.add(clean);
        unseens.add(unseen);
    }
}

impl Function for Dpi {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { inspector, scratch } = self;
        inspector.inspect(scratch, batch, 0..batch.len(), context);
    }
}

/// The patterns of many branches. The packets of each branch are inspected with the branch's patterns.
struct Folded {
    inspectors: PerBranch<Inspector>,
    scratch: Box<Scratch>,
}

impl Function for Folded {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let (Self { inspectors, scratch }, branches) = (self, context.branches());
        if let Some(only) = inspectors.common(branches, batch) {
            return only.inspect(scratch, batch, 0..batch.len(), context);
        }
        inspectors
            .each(branches, batch, |inspector, batch, indices| inspector.inspect(scratch, batch, indices, context));
    }
}

register!(Dpi);

#[cfg(test)]
mod tests;
