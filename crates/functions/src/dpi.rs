//! Deep packet inspection: sends packets to gates by the patterns in their payloads.
//!
//! Each packet is looked at by itself. (A pattern that two TCP segments share is found once sessions carry the state of a
//! search from one to the next; `inspection::strings` is where that state would come out and go in.)

pub mod pattern;
pub mod set;
mod table;

use std::ops::Range;
use std::sync::Arc;

use forebay_graph::files::{MOST_RULES, read_text};
use forebay_graph::{
    Context, Declare, Fold, Function, Gate, PerBranch, Reader, Reason, Setup, SetupError, StateKind, register,
};
use forebay_measure::Counter;
use forebay_packet::{MAX_BATCH, Packet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inspection::payload::{Part, Seen};
use crate::parameters::{LISTED, of_elements};
use pattern::{is_name, parse_file};
use set::{MOST_CLASSES, Verdict};
use table::{Current, Next, Patterns};

/// Parameters of `dpi`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The patterns: a file's name, a pattern a line, or a list of such lines.
    patterns: Source,
    /// The classes of patterns, from the strongest: of a packet with patterns of several classes the first of them decides.
    /// One, `match`, whose packets leave by the gate `match`, where there are none.
    classes: Option<Vec<Class>>,
    /// Whether ASCII letters are found in either case where a pattern does not say.
    #[serde(default)]
    nocase: bool,
    /// How many bytes of each payload are looked at, 1 to 65535; all of them by default.
    depth: Option<usize>,
    /// Fragments: `scan` what each carries (the default), `pass` them unseen, or `drop` them.
    #[serde(default)]
    fragments: Fragments,
    /// What counts are told in reports: of each `class` (the default), or of each `pattern`, too, that was there at first.
    /// Of all patterns the table `matches` tells them.
    #[serde(default)]
    count: Count,
    /// How many patterns there may be at a time, 1 to 1048576; 65536 by default. Each takes 8 bytes a worker for its count.
    #[serde(default = "capacity")]
    capacity: usize,
}

fn capacity() -> usize {
    1 << 16
}

/// The largest `capacity`.
const MOST_PATTERNS: usize = 1 << 20;
/// The largest `depth`: what the largest packets have.
const MOST_DEPTH: usize = u16::MAX as usize;

/// Where patterns come from.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "patterns are a file's name or a list of patterns")]
enum Source {
    /// A file, relative to the configuration.
    File(String),
    /// The lines of such a file.
    Inline(Vec<String>),
}

/// A class of patterns.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Class {
    /// What patterns say (`class=NAME`).
    name: String,
    /// The name of the gate by which such packets leave, or `drop`. Several classes may have one; `clean` is the gate of
    /// packets without patterns.
    gate: String,
}

/// What becomes of fragments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Fragments {
    /// What each carries is looked at.
    #[default]
    Scan,
    /// They leave as clean packets do, and are counted as not seen.
    Pass,
    /// They are dropped.
    Drop,
}

/// What counts are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Count {
    /// Packets of each class.
    #[default]
    Class,
    /// Those that each pattern decided, too.
    Pattern,
}

const CLEAN: &str = "clean";
const DROP: &str = "drop";

const PATTERN: Gate = Gate::drop(0);
const FRAGMENT: Gate = Gate::drop(1);
const DROPS: &[Reason] = &[
    Reason { name: "pattern", help: "A pattern is in the payload, and packets of its class are to be dropped." },
    Reason { name: "fragment", help: "The packet is a fragment, and fragments are to be dropped ('fragments')." },
];

/// One module's patterns and counts.
struct Inspector {
    patterns: Reader<Current, Next>,
    /// By class.
    gates: Box<[Gate]>,
    depth: usize,
    fragments: Fragments,
    /// Packets by class, then clean ones and those that were not looked at.
    classes: Arc<[Counter]>,
    /// By place, packets that each pattern decided.
    matches: Arc<[Counter]>,
    /// By place, the same for the report, where that is wanted.
    shown: Arc<[Counter]>,
}

/// The function.
pub struct Dpi {
    inspector: Inspector,
    scratch: Box<Scratch>,
}

/// What a batch is worked on in.
struct Scratch {
    ranges: [(u16, u16); MAX_BATCH],
    places: [u16; MAX_BATCH],
    verdicts: [Verdict; MAX_BATCH],
}

impl Scratch {
    fn new() -> Box<Self> {
        Box::new(Self { ranges: [(0, 0); MAX_BATCH], places: [0; MAX_BATCH], verdicts: [Verdict::CLEAN; MAX_BATCH] })
    }
}

/// The classes and what becomes of them.
struct Classes {
    names: Vec<String>,
    /// By class.
    gates: Vec<Gate>,
    /// By the number of the gate.
    gate_names: Vec<String>,
}

impl Params {
    /// The classes, their gates by number, and the gates' names.
    fn classes(&self) -> Result<Classes, SetupError> {
        let only = || vec![Class { name: "match".to_owned(), gate: "match".to_owned() }];
        let classes = self.classes.clone().unwrap_or_else(only);
        if !(1..=MOST_CLASSES).contains(&classes.len()) {
            return Err(SetupError::at(
                "classes",
                format!("{} classes: allowed are 1 to {MOST_CLASSES}", classes.len()),
            ));
        }
        let (mut gates, mut names) = (Vec::new(), vec![CLEAN.to_owned()]);
        for (index, Class { name, gate }) in classes.iter().enumerate() {
            for (key, word) in [("name", name), ("gate", gate)] {
                if !is_name(word) || key == "name" && [CLEAN, "unseen"].contains(&&word[..]) {
                    let word: String = word.chars().take(60).collect();
                    let message = format!(
                        "'{word}': allowed are letters, digits, '_', '-', '.' and '/', but for the words clean and unseen as a name"
                    );
                    return Err(SetupError::at(format!("classes[{index}].{key}"), message));
                }
            }
            if classes[..index].iter().any(|before| before.name == *name) {
                let message = format!("two classes are called '{name}': allowed is each once");
                return Err(SetupError::at(format!("classes[{index}].name"), message));
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

    fn read(&self, setup: &Setup<'_>) -> Result<(String, Vec<u8>), SetupError> {
        match &self.patterns {
            Source::Inline(lines) => Ok((LISTED.to_owned(), lines.join("\n").into_bytes())),
            Source::File(name) => {
                let path = setup.path(name);
                let shown = path.display().to_string();
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
        A pattern is a line: text as it stands, with |0d 0a| or \\x0d for bytes; or text in quotes, after which may stand \
        'nocase', 'class=CLASS' and 'name=NAME'. Empty lines and lines that begin with # are passed over. A pattern without a \
        class is of the first. Of a packet with several patterns the strongest class decides, and within it the pattern that \
        ends first; it alone is counted, in the table 'matches'. The payload is what follows the header of TCP or UDP, else \
        what follows that of IP, up to the IP packet's end; a transport header that contradicts itself is payload. \
        Where the header above IP cannot be found (behind more than 8 IPv6 extension headers, or cut short), all \
        behind IP's header is, whatever `depth` says; where IP cannot be found (behind more than 4 VLAN tags), the \
        frame is. IP in tunnels is payload. Each packet is looked at by itself: a pattern that two packets share is \
        not found. Frames that are not IP leave by 'clean'. Patterns can be added and removed while packets run, by \
        the table 'patterns'.";
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
            [("depth", params.depth.unwrap_or(MOST_DEPTH), MOST_DEPTH), ("capacity", params.capacity, MOST_PATTERNS)]
        {
            if !(1..=most).contains(&value) {
                return Err(SetupError::at(path, format!("{value}: allowed are 1 to {most}")));
            }
        }
        let Classes { names, gates, gate_names } = params.classes()?;
        setup.gates(gate_names)?;
        let key = format!("dpi {}", serde_json::to_string(&params).unwrap_or_default());
        let patterns = setup.once_a_module(&key, |setup| {
            let (shown, bytes) = params.read(setup)?;
            let refused = |error: String| match &params.patterns {
                Source::Inline(lines) => of_elements("patterns", lines, &error),
                Source::File(_) => SetupError::at("patterns", error),
            };
            let read = parse_file(&shown, &bytes, params.nocase).map_err(refused)?;
            let gauges = setup.gauges("patterns", ["known", "shadowed", "bytes of memory"].map(str::to_owned));
            Patterns::new(read, (names.clone(), params.nocase, params.capacity), gauges, &shown).map_err(refused)
        })?;
        let counted = names.iter().cloned().chain([CLEAN, "unseen"].map(str::to_owned));
        let classes = setup.counters("payloads", counted);
        let shown =
            if params.count == Count::Pattern { setup.counters("matches", patterns.titles()) } else { Arc::default() };
        let inspector = Inspector {
            patterns: patterns.reader(),
            gates: gates.into(),
            depth: params.depth.unwrap_or(MOST_DEPTH),
            fragments: params.fragments,
            classes,
            matches: patterns.tally().counters(),
            shown,
        };
        setup.table("matches", Arc::clone(patterns.tally()) as Arc<dyn forebay_graph::Table>);
        setup.table("patterns", patterns);
        Ok(Self { inspector, scratch: Scratch::new() })
    }
}

impl Inspector {
    /// What of a packet is looked at; nothing where it is not to be.
    #[inline]
    fn look(&self, packet: &mut Packet) -> Result<Range<usize>, Gate> {
        let Some(seen) = Seen::of(packet) else {
            // IP that cannot be found is looked for patterns as a whole.
            return if packet.hidden().is_some() { Ok(0..packet.len().min(MOST_DEPTH)) } else { Err(Gate::FIRST) };
        };
        match (seen.part, self.fragments) {
            (Part::Whole, _) | (_, Fragments::Scan) => {}
            (_, Fragments::Pass) => return Err(Gate::FIRST),
            (_, Fragments::Drop) => return Err(FRAGMENT),
        }
        let Range { start, end } = seen.payload;
        // Headers that cannot be found do not push the payload out of what is looked at.
        let depth = if seen.unsure { MOST_DEPTH } else { self.depth };
        Ok(start..end.min(start + depth))
    }

    /// Inspects the packets of the batch at these places.
    #[inline]
    fn inspect(
        &mut self,
        scratch: &mut Scratch,
        batch: &mut [Packet],
        places: impl Iterator<Item = usize>,
        context: &mut Context<'_>,
    ) {
        let Scratch { ranges, places: seen, verdicts } = scratch;
        let (mut count, mut unseen) = (0, 0);
        for place in places {
            let Some(packet) = batch.get_mut(place) else { continue };
            match self.look(packet) {
                Ok(range) => {
                    ranges[count % MAX_BATCH] = (range.start as u16, range.end as u16);
                    seen[count % MAX_BATCH] = place as u16;
                    count += 1;
                }
                Err(gate) => {
                    unseen += 1;
                    if gate != Gate::FIRST {
                        context.put(place, gate);
                    }
                }
            }
        }
        let current = self.patterns.read();
        let (ranges, seen, verdicts) = (&ranges[..count], &seen[..count], &mut verdicts[..count]);
        let payload = |at: usize| -> &[u8] {
            let (start, end) = ranges[at];
            let data = batch.get(usize::from(seen[at])).map_or(&[][..], |packet| packet.data());
            data.get(usize::from(start)..usize::from(end)).unwrap_or_default()
        };
        current.0.judge(payload, verdicts);
        let mut clean = 0;
        for (place, verdict) in seen.iter().zip(verdicts) {
            let Some(gate) = self.gates.get(usize::from(verdict.class)) else {
                clean += 1;
                continue;
            };
            self.classes[usize::from(verdict.class)].add(1);
            for counts in [&self.matches, &self.shown] {
                if let Some(count) = counts.get(verdict.slot as usize) {
                    count.add(1);
                }
            }
            if *gate != Gate::FIRST {
                context.put(usize::from(*place), *gate);
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

/// The patterns of many branches: each is asked for its own packets.
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
        inspectors.each(branches, batch, |inspector, batch, places| inspector.inspect(scratch, batch, places, context));
    }
}

register!(Dpi);

#[cfg(test)]
mod tests;
