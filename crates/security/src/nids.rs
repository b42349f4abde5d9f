//! Network intrusion detection with Snort's rule language: reports packets or drops them.

mod alerts;
mod bits;
mod chain;
mod check;
mod classes;
mod eve;
mod groups;
mod judge;
mod limits;
mod params;
pub mod parse;
mod plan;
mod ranges;
mod regex;
mod rule;
mod skipped;
mod view;

use std::ops::ControlFlow;
use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{MAX_BATCH, Packet};
use forebay_sessions::connection::SessionLookup;
use forebay_tables::journal::{self, JournalSlot, LineWriter};
use forebay_tables::parameters::no_memory;
use forebay_units::Ticks;

use crate::inspection::strings::{Job, scan};
use crate::inspection::tally::Tally;
use alerts::{Alert, Lines};
use bits::SessionBits;
use groups::{Group, Ruleset};
use limits::Limits;
use params::{Alerts, Count, MAX_TRACKERS, Params, RATE};
use rule::Action;
use skipped::SkippedTable;
use view::View;

/// The gate of packets that a rule drops.
const DENIED: Gate = Gate::drop(0);
const UNDECIDABLE: Gate = Gate::drop(1);
const UNDECIDED: Gate = Gate::drop(2);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason {
        name: "rule",
        help: "A rule with the action 'drop' matches the packet, and no rule with 'pass' matches it.",
    },
    Reason {
        name: "undecidable",
        help: "The packet hides its addresses, protocol or transport header, and there are rules with the action \
               'drop'.",
    },
    Reason {
        name: "undecided",
        help: "It is unknown whether a rule with the action 'drop' matches the packet. The test takes more steps than \
               'steps' allows, or the rule needs the packet's session, which a fragment does not show.",
    },
];
const ALERTED: Gate = Gate::out(1);

/// The counters of packets, by outcome. The constants below are indices in this list.
const PACKETS: [&str; 7] = ["clean", "alerted", "logged", "dropped", "passed", "unseen", "undecided"];
const CLEAN: usize = 0;
const DROPPED: usize = 3;
const PASSED: usize = 4;
const UNSEEN: usize = 5;
/// The counter of packets whose headers cannot be read, of packets whose session a rule needs but cannot find, and of
/// packets whose search took more steps than allowed. A packet that was dropped, or that another rule matched, is also
/// counted under that outcome.
const UNDECIDED_PACKETS: usize = 6;
/// The index of the counter of alerts that a `threshold` suppresses. This counter follows the counters of a
/// [`journal`].
const LIMITED: usize = journal::COUNTERS.len();

/// The function `nids`.
pub struct Nids {
    rules: Arc<Ruleset>,
    /// True if reported packets leave by the gate `alerted`.
    divert: bool,
    /// The counts for `threshold` and `detection_filter`.
    limits: Limits,
    /// The number of packets that each rule matched.
    matches: Arc<[Counter]>,
    /// The same counts for the report, if the parameter `count` is `rule`; otherwise empty.
    report_matches: Arc<[Counter]>,
    /// The counters of [`PACKETS`].
    packets: Arc<[Counter]>,
    out: Out,
    /// The search caches of each rule's expressions, by rule and expression.
    caches: Vec<Vec<regex::SearchCache>>,
    /// The memory for tests of one packet.
    scratch: check::Scratch,
    /// The fields of each packet of the batch; `None` if it is not IP.
    views: Box<[Option<View>]>,
    /// The strings found in each packet: a bit for each string, `words` words for each packet. [`search`](Self::search)
    /// sets the bits, and [`test_rules`](Self::test_rules) clears them.
    found: Box<[u64]>,
    /// The number of words of `found` for each packet.
    words: usize,
    /// For each packet: true if any string was found.
    any: Box<[bool]>,
    /// The `number` of the last packet that each rule was tested on.
    last_tested: Box<[u64]>,
    /// The number of packets that were tested so far, the present one included.
    number: u64,
    /// The rules that match the present packet, by index.
    matching: Vec<u32>,
    /// The rules that match the present packet if its session also passes their tests, by index.
    pending: Vec<u32>,
    /// The table of sessions, if one is configured.
    sessions: Option<Arc<SessionLookup>>,
    /// Bits that rules keep for sessions, if a rule uses any.
    bits: Option<SessionBits>,
    /// The first value is true if any rule is undecided on the present packet, the second if such a rule has the action
    /// 'drop'.
    undecided: (bool, bool),
    /// The searches of a batch: the index of the packet, and the index of one of its groups.
    searches: Vec<(u16, u8)>,
}

/// The destination of alerts.
struct Out {
    /// The writer of the file; `None` if alerts do not go to a file.
    writer: Option<LineWriter<Alert>>,
    /// The counters of the journal, and the counter [`LIMITED`].
    counts: Arc<[Counter]>,
}

impl Declare for Nids {
    type Params = Params;
    const NAME: &'static str = "nids";
    const SUMMARY: &'static str = "reports packets, or drops them, by rules in Snort's language";
    const HELP: &'static str = "\
        Rules are a documented part of the language of Snort (docs/nids.md): the actions alert, drop, pass and log; \
        tcp, udp, icmp and ip; addresses and ports with lists, negation and variables; content with its modifiers, \
        pcre, isdataat, byte_test, byte_jump, byte_extract, comparisons of headers, flow, flowbits, threshold and \
        detection_filter. A rule with anything else is an error, which names the line. With 'unknown: skip', the rule \
        is skipped and listed. A packet that matches a rule with 'pass' is neither reported nor dropped by other \
        rules. Any other packet that matches a rule with 'drop' is dropped. Each packet is examined on its own. A \
        fragment after the first has no ports, and matches only rules that need no ports. The option flow needs the \
        parameter 'flow'. With 'flow: { state: NAME }' rules test the state of the packet's session, and keep bits for \
        it (flowbits). If there is a rule with 'drop', a packet that hides its protocol or transport header is dropped \
        as 'undecidable': the header is behind more than 8 IPv6 extension headers or 4 VLAN tags, or is cut short (RFC \
        7113 section 3). Alerts are counted by rule in the table 'matches', and written to a file if one is named. A \
        worker waits for the file only in simulated time, or if all packets come from captures with `speed: fast`.";
    const EXAMPLE: &'static str = "\
        { rules: ['alert tcp any any -> any 80 (msg:\"admin page\"; content:\"GET /admin\"; depth:10; sid:1;)', \
        'drop udp any any -> any any (msg:\"bad\"; content:\"|de ad be ef|\"; sid:2;)'] }";
    const TRAFFIC: &'static str = "{ size: 512 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLLOWS: Option<&'static str> = Some("/flow/state");

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(1..=MAX_TRACKERS).contains(&params.trackers) {
            return Err(SetupError::not_allowed("trackers", params.trackers, format!("1 to {MAX_TRACKERS}")));
        }
        if !(1_000..=100_000_000).contains(&params.steps) {
            return Err(SetupError::not_allowed("steps", params.steps, "1000 to 100000000"));
        }
        let stated = params.alerts.as_ref().and_then(|alerts| alerts.rate);
        if let Some(rate) = stated.filter(|rate| !(1..=1_000_000).contains(rate)) {
            return Err(SetupError::not_allowed("alerts.rate", rate, "1 to 1000000 lines a second"));
        }
        if params.divert {
            setup.gates(["clean", "alerted"])?;
        }
        let key = format!("nids {}", serde_json::to_string(&params).unwrap_or_default());
        let rules = setup.once(&key, |setup| params.compile(setup))?;
        setup.once_per_module(&format!("{key} size"), |setup| {
            let gauges = setup.gauges("rules", ["known", "skipped", "groups", "bytes of memory"].map(str::to_owned));
            let (groups, bytes) = rules.size();
            let values = [rules.rules.len(), rules.skipped.len(), groups, bytes];
            gauges.iter().zip(values).for_each(|(gauge, value)| gauge.set(value as u64));
            Ok(())
        })?;
        let title = |rule: &rule::Rule| format!("{} {}", rule.sid, rule.message);
        let tally = setup.once_per_module(&format!("{key} matches"), |_| {
            let tally = Tally::new(rules.rules.len());
            rules.rules.iter().enumerate().for_each(|(index, rule)| tally.name(index, title(rule)));
            Ok(tally)
        })?;
        let checking = setup.checking();
        let path = match &params.alerts {
            None => None,
            Some(Alerts { file, .. }) => {
                let path = setup.claim_to_append("alerts.file", file)?;
                if setup.looks_at_files() {
                    journal::check(&path).map_err(|error| SetupError::at("alerts.file", error))?;
                }
                Some(path)
            }
        };
        let journal = match path.filter(|_| !checking) {
            None => None,
            Some(path) => {
                let slot = setup.lasting(&format!("nids alerts {}", path.display()), |_| Ok(JournalSlot::default()))?;
                let journal = slot.take(&path, setup.name(), setup.frequency());
                Some(journal.map_err(|error| SetupError::at("alerts.file", error))?)
            }
        };
        let packets = setup.counters("packets", PACKETS.map(str::to_owned));
        let names = journal::COUNTERS.into_iter().chain(["limited"]);
        let counts = setup.counters("alerts", names.map(str::to_owned));
        let (simulated, own) = (setup.simulated(), Arc::clone(&counts));
        let rate = stated.or((!setup.may_wait()).then_some(RATE));
        let format = params.alerts.as_ref().map(|alerts| alerts.format).unwrap_or_default();
        let of_lines = Arc::new(Lines { rules: Arc::clone(&rules), format });
        let writer =
            journal.map(|journal| journal.line_writer(of_lines, own, rate, simulated).waiting(setup.may_wait()));
        let report_matches = if params.count == Count::Rule {
            setup.entry_counters("matches", rules.rules.iter().map(title))
        } else {
            Arc::default()
        };
        let matches = tally.counters();
        setup.table("matches", tally);
        setup.table("skipped", Arc::new(SkippedTable::new(&rules.skipped)));
        let sessions = params.flow.lookup(setup)?.map(Arc::new);
        let with_bits = sessions.as_deref().filter(|_| !rules.bits.is_empty());
        let bits = with_bits.map(|table| SessionBits::new(&rules.bits, table, setup)).transpose()?;
        let batch = setup.batch().max(1);
        let words = rules.strings.div_ceil(64);
        let caches = rules.rules.iter().map(|rule| rule.pcres.iter().map(|pcre| pcre.regex.cache()).collect());
        Ok(Self {
            divert: params.divert,
            limits: Limits::new(params.trackers, setup.secret(), setup.frequency())
                .map_err(no_memory("trackers", format!("{} trackers", params.trackers)))?,
            matches,
            report_matches,
            packets,
            out: Out { writer, counts },
            caches: caches.collect(),
            scratch: check::Scratch::new(&rules.rules, params.steps),
            views: vec![None; batch].into(),
            found: vec![0; batch * words].into(),
            words,
            any: vec![false; batch].into(),
            last_tested: vec![0; rules.rules.len()].into(),
            number: 0,
            undecided: (false, false),
            matching: Vec::with_capacity(rules.rules.len()),
            pending: Vec::with_capacity(rules.rules.iter().filter(|rule| rule.involves_session()).count()),
            sessions,
            bits,
            searches: Vec::with_capacity(batch * 3),
            rules,
        })
    }
}

impl Out {
    /// Reports a packet, if alerts go to a file.
    fn report(&mut self, rule: u32, action: Action, view: &View, now: Ticks) {
        if let Some(writer) = &mut self.writer {
            writer.write(now, |nanos| Alert { nanos, rule, action, view: *view });
        }
    }
}

impl Nids {
    /// Searches the payloads of a batch for the strings by which rules are found. Needs the `views` of all packets, and
    /// writes the results to `found` and `any`.
    fn search(&mut self, batch: &[Packet]) {
        let Self { rules, views, found, words, any, searches, .. } = self;
        searches.clear();
        for (index, view) in views.iter().take(batch.len()).enumerate() {
            let Some(view) = view else { continue };
            for (which, group) in rules.groups(view).iter().enumerate() {
                if group.is_some_and(|group| group.strings.is_some()) {
                    searches.push((index as u16, which as u8));
                }
            }
        }
        let group = |search: &(u16, u8)| -> Option<&Group> {
            let view = views.get(usize::from(search.0))?.as_ref()?;
            rules.groups(view)[usize::from(search.1)]
        };
        let job = |search: &(u16, u8)| {
            let (packet, view) = (batch.get(usize::from(search.0))?, views.get(usize::from(search.0))?.as_ref()?);
            Some(Job { strings: group(search)?.strings.as_ref()?, bytes: view.payload(packet) })
        };
        // Each search in the list has its group, packet and strings. So `job` skips none, and `number` is an index in
        // the list.
        scan(searches.iter().filter_map(job), &mut |number, hit| {
            let Some((search, group)) = searches.get(number).and_then(|search| Some((search, group(search)?))) else {
                return ControlFlow::Break(());
            };
            let index = usize::from(search.0);
            any[index] = true;
            let bits = &mut found[index * *words..][..*words];
            for string in hit.strings().map(|string| group.first + string) {
                let (word, bit) = (&mut bits[string / 64], 1 << (string % 64));
                // If this string was found before, the remaining strings were found with it: they are shorter, and this
                // string ends with them.
                if *word & bit != 0 {
                    break;
                }
                *word |= bit;
            }
            ControlFlow::Continue(())
        });
    }
}

/// Returns the gate and counter of a packet on which some rules are undecided. `judged` is the outcome of the rules
/// whose result is known. If an undecided rule may drop the packet, `drop` is the gate for this case. The packet then
/// goes to this gate, except if a rule with 'drop' or 'pass' matches it: `judged` then decides. If the returned counter
/// is `None`, the packet is only counted as undecided.
#[cold]
fn undecided_outcome(judged: (Gate, usize), drop: Option<Gate>) -> (Gate, Option<usize>) {
    match (judged, drop) {
        ((DENIED, counter) | (_, counter @ PASSED), _) => (judged.0, Some(counter)),
        (_, Some(reason)) => (reason, Some(DROPPED)),
        ((gate, CLEAN), None) => (gate, None),
        ((gate, counter), None) => (gate, Some(counter)),
    }
}

impl Function for Nids {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let now = context.now();
        let most = self.views.len().min(MAX_BATCH);
        let mut counts = [0u64; PACKETS.len()];
        let mut begun = 0;
        let sessions = self.sessions.clone();
        // The table of sessions. It is lent at most once a batch, when the first packet needs it.
        let mut lent = None;
        // A batch is never larger than declared. If it were, it would be processed in parts.
        for part in batch.chunks_mut(most) {
            for (view, packet) in self.views.iter_mut().zip(part.iter_mut()) {
                *view = View::of(packet);
            }
            self.search(part);
            for (index, packet) in part.iter_mut().enumerate() {
                let Some(view) = self.views[index] else {
                    if packet.hidden().is_none() {
                        counts[UNSEEN] += 1;
                        continue;
                    }
                    counts[UNDECIDED_PACKETS] += 1;
                    if self.rules.drops {
                        counts[DROPPED] += 1;
                        context.put(begun + index, UNDECIDABLE);
                    }
                    continue;
                };
                self.test_rules(index, &view, packet.data(), now);
                if !self.pending.is_empty() {
                    let lent = lent.get_or_insert_with(|| sessions.as_ref().and_then(|sessions| sessions.lend()));
                    self.test_session(index, packet, lent.as_mut(), now);
                }
                let (mut gate, counter) = self.judge(&view, now);
                let mut counter = Some(counter);
                if view.headers_hidden || self.undecided.0 {
                    let hidden = (view.headers_hidden && self.rules.drops).then_some(UNDECIDABLE);
                    let unfinished = self.undecided.1.then_some(UNDECIDED);
                    (gate, counter) = undecided_outcome((gate, counter.unwrap_or(CLEAN)), hidden.or(unfinished));
                    counts[UNDECIDED_PACKETS] += 1;
                }
                if let Some(counter) = counter {
                    counts[counter] += 1;
                }
                if gate != Gate::FIRST {
                    context.put(begun + index, gate);
                }
            }
            begun += part.len();
        }
        self.packets.iter().zip(counts).for_each(|(counter, count)| counter.add(count));
    }

    fn close(&mut self) -> Result<(), String> {
        self.out.writer.as_ref().map_or(Ok(()), |writer| writer.journal().flush())
    }
}

register!(Nids);

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
