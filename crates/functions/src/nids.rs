//! Network intrusion detection: rules as Snort writes them, which report packets or drop them.

mod alerts;
mod bits;
mod chain;
mod check;
mod classes;
mod eve;
mod groups;
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
use forebay_packet::{MAX_BATCH, Packet, Ticks};

use crate::connection::{LentSessions, SessionLookup};
use crate::inspection::strings::{Job, scan};
use crate::inspection::tally::Tally;
use crate::journal::{self, Pen, Slot};
use crate::parameters::no_memory;
use alerts::{Alert, Lines};
use bits::SessionBits;
use groups::{Group, Ruleset};
use limits::{Limits, Said};
use params::{Alerts, Count, MOST_TRACKERS, Params, RATE};
use regex::Undecided;
use rule::Action;
use skipped::SkippedTable;
use view::View;

const DENIED: Gate = Gate::drop(0);
const UNDECIDABLE: Gate = Gate::drop(1);
const UNDECIDED: Gate = Gate::drop(2);
const DROPS: &[Reason] = &[
    Reason { name: "rule", help: "A rule with the action 'drop' matches the packet, and none with 'pass'." },
    Reason {
        name: "undecidable",
        help: "The packet hides its addresses, protocol or transport header, and there are rules with the action 'drop'.",
    },
    Reason {
        name: "undecided",
        help: "Whether a rule with the action 'drop' matches the packet is not known: it takes more steps than 'steps' \
               allows, or depends on the session of a packet that does not show it (a fragment).",
    },
];
const ALERTED: Gate = Gate::out(1);

/// Counters, of packets.
const PACKETS: [&str; 7] = ["clean", "alerted", "logged", "dropped", "passed", "unseen", "undecided"];
const CLEAN: usize = 0;
const DROPPED: usize = 3;
const PASSED: usize = 4;
const UNSEEN: usize = 5;
/// Packets that hide the headers or the session that rules ask for, and packets whose search took more steps than are
/// allowed. They are counted by another counter, too, if the packet was dropped or another rule matched it.
const UNSURE: usize = 6;
/// The counter, behind those of a [`journal`], of alerts that a `threshold` suppresses.
const LIMITED: usize = journal::COUNTERS.len();

/// The function.
pub struct Nids {
    rules: Arc<Ruleset>,
    divert: bool,
    limits: Limits,
    /// By rule, packets that it matched.
    matches: Arc<[Counter]>,
    /// The same for the report, where that is wanted.
    shown: Arc<[Counter]>,
    packets: Arc<[Counter]>,
    out: Out,
    /// By rule, what its expressions need.
    rooms: Vec<Vec<regex::Room>>,
    scratch: check::Scratch,
    views: Box<[Option<View>]>,
    /// Packet by packet, the strings that were found: a bit each.
    found: Box<[u64]>,
    /// Words of that a packet.
    words: usize,
    /// Whether any was found, by packet.
    any: Box<[bool]>,
    /// By rule, the last packet that it was asked of.
    asked: Box<[u64]>,
    /// How many packets there were.
    number: u64,
    /// Rules that match the packet.
    matching: Vec<u32>,
    /// Rules that match the packet, if its session is as they ask.
    pending: Vec<u32>,
    /// The table of sessions, where there is one.
    sessions: Option<Arc<SessionLookup>>,
    /// Bits that rules keep for sessions, where any does.
    bits: Option<SessionBits>,
    /// Whether it is not known if a rule matches the packet, and whether that is so of a rule that drops.
    undecided: (bool, bool),
    /// Searches of a batch: the packet, and which of its groups.
    searches: Vec<(u16, u8)>,
}

/// Where alerts go.
struct Out {
    pen: Option<Pen<Alert>>,
    counts: Arc<[Counter]>,
}

impl Declare for Nids {
    type Params = Params;
    const NAME: &'static str = "nids";
    const SUMMARY: &'static str = "tells of packets, or drops them, by rules as Snort writes them";
    const HELP: &'static str = "\
        Rules are a documented part of the language of Snort (docs/nids.md): the actions alert, drop, pass and log; \
        tcp, udp, icmp and ip; addresses and ports with lists, negation and variables; content with its modifiers, \
        pcre, isdataat, byte_test, byte_jump, byte_extract, comparisons of headers, flow, flowbits, threshold and \
        detection_filter. Anything else is refused with its line, or skipped and listed with 'unknown: skip'. A \
        packet that a rule with 'pass' matches is not reported; else it is dropped where a rule with 'drop' matches \
        it. Each packet is looked at by itself, as fragments are: later ones show no ports, and match only rules that \
        ask for none. The option flow needs the parameter 'flow'. With 'flow: { state: NAME }' rules ask for the \
        state of the packet's session, and keep bits for it (flowbits). Where a rule has the action drop, a packet is \
        dropped as 'undecidable' that hides its protocol or transport header (behind more than 8 IPv6 extension \
        headers or 4 VLAN tags, or cut short; RFC 7113 section 3). Alerts are counted by rule in the table 'matches', \
        and written to a file where one is named. A worker waits for the file only in simulated time and where all \
        packets come from captures with `speed: fast`.";
    const EXAMPLE: &'static str = "\
        { rules: ['alert tcp any any -> any 80 (msg:\"admin page\"; content:\"GET /admin\"; depth:10; sid:1;)', \
        'drop udp any any -> any any (msg:\"bad\"; content:\"|de ad be ef|\"; sid:2;)'] }";
    const TRAFFIC: &'static str = "{ size: 512 }";
    const DROPS: &'static [Reason] = DROPS;
    const STATE: StateKind = StateKind::SharedReadOnly;
    const FOLLOWS: Option<&'static str> = Some("/flow/state");

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(1..=MOST_TRACKERS).contains(&params.trackers) {
            return Err(SetupError::at("trackers", format!("{}: allowed are 1 to {MOST_TRACKERS}", params.trackers)));
        }
        if !(1_000..=100_000_000).contains(&params.steps) {
            return Err(SetupError::at("steps", format!("{}: allowed are 1000 to 100000000", params.steps)));
        }
        let stated = params.alerts.as_ref().and_then(|alerts| alerts.rate);
        if let Some(rate) = stated.filter(|rate| !(1..=1_000_000).contains(rate)) {
            return Err(SetupError::at("alerts.rate", format!("{rate}: allowed are 1 to 1000000 lines a second")));
        }
        if params.divert {
            setup.gates(["clean", "alerted"])?;
        }
        let key = format!("nids {}", serde_json::to_string(&params).unwrap_or_default());
        let rules = setup.once(&key, |setup| params.compile(setup))?;
        setup.once_a_module(&format!("{key} size"), |setup| {
            let gauges = setup.gauges("rules", ["known", "skipped", "groups", "bytes of memory"].map(str::to_owned));
            let (groups, bytes) = rules.size();
            let values = [rules.rules.len(), rules.skipped.len(), groups, bytes];
            gauges.iter().zip(values).for_each(|(gauge, value)| gauge.set(value as u64));
            Ok(())
        })?;
        let title = |rule: &rule::Rule| format!("{} {}", rule.sid, rule.message);
        let tally = setup.once_a_module(&format!("{key} matches"), |_| {
            let tally = Tally::new(rules.rules.len());
            rules.rules.iter().enumerate().for_each(|(place, rule)| tally.name(place, title(rule)));
            Ok(tally)
        })?;
        let checking = setup.checking();
        let path = match &params.alerts {
            None => None,
            Some(Alerts { file, .. }) => {
                let path = setup.claim_on("alerts.file", file)?;
                if setup.looks_at_files() {
                    journal::check(&path).map_err(|error| SetupError::at("alerts.file", error))?;
                }
                Some(path)
            }
        };
        let journal = match path.filter(|_| !checking) {
            None => None,
            Some(path) => {
                let slot = setup.lasting(&format!("nids alerts {}", path.display()), |_| Ok(Slot::default()))?;
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
        let pen = journal.map(|journal| journal.pen(of_lines, own, rate, simulated).waiting(setup.may_wait()));
        let shown = if params.count == Count::Rule {
            setup.counters("matches", rules.rules.iter().map(title))
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
        let rooms = rules.rules.iter().map(|rule| rule.pcres.iter().map(|pcre| pcre.regex.room()).collect());
        Ok(Self {
            divert: params.divert,
            limits: Limits::new(params.trackers, setup.secret(), setup.frequency())
                .map_err(no_memory("trackers", format!("{} trackers", params.trackers)))?,
            matches,
            shown,
            packets,
            out: Out { pen, counts },
            rooms: rooms.collect(),
            scratch: check::Scratch::new(&rules.rules, params.steps),
            views: vec![None; batch].into(),
            found: vec![0; batch * words].into(),
            words,
            any: vec![false; batch].into(),
            asked: vec![0; rules.rules.len()].into(),
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
    /// Tells of a packet, where there is a file.
    fn tell(&mut self, rule: u32, action: Action, view: &View, now: Ticks) {
        if let Some(pen) = &mut self.pen {
            pen.write(now, |nanos| Alert { nanos, rule, action, view: *view });
        }
    }
}

impl Nids {
    /// Finds the strings that rules of the packets' groups are found by.
    fn search(&mut self, batch: &[Packet]) {
        let Self { rules, views, found, words, any, searches, .. } = self;
        searches.clear();
        for (place, view) in views.iter().take(batch.len()).enumerate() {
            let Some(view) = view else { continue };
            for (which, group) in rules.groups(view).iter().enumerate() {
                if group.is_some_and(|group| group.strings.is_some()) {
                    searches.push((place as u16, which as u8));
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
        // Each search that is in the list has its group, packet and strings: none is left out, and numbers are places.
        scan(searches.iter().filter_map(job), &mut |number, hit| {
            let Some((search, group)) = searches.get(number).and_then(|search| Some((search, group(search)?))) else {
                return ControlFlow::Break(());
            };
            let place = usize::from(search.0);
            any[place] = true;
            let bits = &mut found[place * *words..][..*words];
            for string in hit.strings().map(|string| group.first + string) {
                let (word, bit) = (&mut bits[string / 64], 1 << (string % 64));
                // Those that end a string that was found before were found with it.
                if *word & bit != 0 {
                    break;
                }
                *word |= bit;
            }
            ControlFlow::Continue(())
        });
    }

    /// Asks the rules that may match a packet; those that do are in `matching` afterwards.
    fn ask(&mut self, place: usize, view: &View, frame: &[u8], now: Ticks) {
        let Self {
            rules, limits, rooms, scratch, found, words, any, asked, number, matching, pending, undecided, ..
        } = self;
        matching.clear();
        pending.clear();
        scratch.clear();
        *undecided = (false, false);
        *number += 1;
        let mut one = |rule: u32| {
            let at = rule as usize;
            let (Some(last), Some(known)) = (asked.get_mut(at), rules.rules.get(at)) else { return };
            if std::mem::replace(last, *number) == *number || !check::header(known, view) {
                return;
            }
            match check::body(known, &rules.sought[at], view, frame, scratch, &mut rooms[at]) {
                Ok(true) => {}
                Ok(false) => return,
                Err(Undecided) => {
                    *undecided = (true, undecided.1 || known.action == Action::Drop);
                    return;
                }
            }
            if known.involves_session() {
                pending.push(rule);
                return;
            }
            // Last of all: it counts what matches in all else.
            let filtered = known.filter.as_ref().is_some_and(|filter| limits.ask(rule, filter, view, now) != Said::Yes);
            // A rule with 'noalert' that does not drop has done all that it does.
            if !(filtered || known.silent && known.action > Action::Drop) {
                matching.push(rule);
            }
        };
        let groups = rules.groups(view);
        for group in groups.iter().flatten() {
            group.always.iter().for_each(|rule| one(*rule));
        }
        if std::mem::take(&mut any[place]) {
            for (at, word) in found[place * *words..][..*words].iter_mut().enumerate() {
                let mut bits = std::mem::take(word);
                while bits != 0 {
                    let string = at * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let rules =
                        groups.iter().flatten().find_map(|group| group.rules.get(string.checked_sub(group.first)?));
                    if let Some(rules) = rules {
                        rules.iter().for_each(|rule| one(*rule));
                    }
                }
            }
        }
    }

    /// Asks the packet's session for the rules that are `pending`. If it is not known, because the packet does
    /// not show its session or another module has the table, a rule that asks for it is undecided, as one whose search
    /// was not finished.
    #[inline(never)]
    fn follow(&mut self, place: usize, packet: &mut Packet, mut sessions: Option<&mut LentSessions<'_>>, now: Ticks) {
        let Self { rules, limits, matching, pending, bits, undecided, views, .. } = self;
        let (before, Some(Some(view))) = (&views[..place], views.get(place)) else { return };
        let mut standing = sessions.as_deref().and_then(|sessions| sessions.standing(packet, now));
        // The module that opens sessions may be behind this one. It has not seen the packets before this one in the
        // batch, which may have established the session or set its bits.
        let is_unknown = standing.is_some_and(|standing| standing.row.is_none());
        let unsettled = is_unknown && before.iter().flatten().any(|other| view.is_of_session(other));
        if bits.is_some() {
            pending.sort_unstable_by_key(|rule| (rules.rules[*rule as usize].turn(), *rule));
        }
        for rule in pending.iter().copied() {
            let known = &rules.rules[rule as usize];
            let mut filtered = || known.filter.as_ref().is_some_and(|it| limits.ask(rule, it, view, now) != Said::Yes);
            let as_asked = match standing {
                _ if unsettled && known.asks_history() => {
                    *undecided = (true, undecided.1 || known.action == Action::Drop);
                    continue;
                }
                Some(standing) => {
                    known.flow.is_none_or(|flow| flow.matches(standing))
                        && bits.as_ref().is_none_or(|bits| bits.hold(&known.bits, standing.row))
                }
                None if known.asks_session() => {
                    *undecided = (true, undecided.1 || known.action == Action::Drop);
                    continue;
                }
                None => true,
            };
            if !as_asked || filtered() {
                continue;
            }
            if let (Some(bits), Some(sessions), Some(standing)) = (&*bits, sessions.as_deref_mut(), &mut standing) {
                bits.change(&known.bits, &mut standing.row, sessions);
            }
            if !(known.silent && known.action > Action::Drop) {
                matching.push(rule);
            }
        }
    }

    /// What becomes of a packet by the rules that match it, and which counter is its.
    fn judge(&mut self, view: &View, now: Ticks) -> (Gate, usize) {
        let Self { rules, matching, limits, matches, shown, out, divert, .. } = self;
        let rule = |number: &u32| &rules.rules[*number as usize];
        matching.sort_unstable_by_key(|number| (rule(number).action, rule(number).priority, rule(number).sid));
        let Some(first) = matching.first() else { return (Gate::FIRST, CLEAN) };
        let action = rule(first).action;
        let told = if action == Action::Pass { &matching[..1] } else { &matching[..] };
        for number in told {
            for counts in [&*matches, &*shown] {
                if let Some(count) = counts.get(*number as usize) {
                    count.add(1);
                }
            }
            if action == Action::Pass {
                continue;
            }
            let known = rule(number);
            if known.silent {
                continue;
            }
            match known.threshold.as_ref().map(|limit| limits.ask(*number, limit, view, now)) {
                Some(Said::No) => out.counts[LIMITED].add(1),
                None | Some(Said::Yes | Said::NoRoom) => out.tell(*number, known.action, view, now),
            }
        }
        match action {
            Action::Pass => (Gate::FIRST, PASSED),
            Action::Drop => (DENIED, DROPPED),
            Action::Alert => (if *divert { ALERTED } else { Gate::FIRST }, 1),
            Action::Log => (if *divert { ALERTED } else { Gate::FIRST }, 2),
        }
    }
}

/// The gate and counter of a packet for which rules could not be judged to their end: `drop`, where a rule with the
/// action 'drop' may match it. A rule with 'pass' that matches decides nevertheless.
#[cold]
fn unsure(judged: (Gate, usize), drop: Option<Gate>) -> (Gate, Option<usize>) {
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
        // Lent once a batch, for the first packet that needs it.
        let mut lent = None;
        // A batch is never larger than was said; if it were, it would be taken in parts.
        for part in batch.chunks_mut(most) {
            for (view, packet) in self.views.iter_mut().zip(part.iter_mut()) {
                *view = View::of(packet);
            }
            self.search(part);
            for (place, packet) in part.iter_mut().enumerate() {
                let Some(view) = self.views[place] else {
                    if packet.hidden().is_none() {
                        counts[UNSEEN] += 1;
                        continue;
                    }
                    counts[UNSURE] += 1;
                    if self.rules.drops {
                        counts[DROPPED] += 1;
                        context.put(begun + place, UNDECIDABLE);
                    }
                    continue;
                };
                self.ask(place, &view, packet.data(), now);
                if !self.pending.is_empty() {
                    let lent = lent.get_or_insert_with(|| sessions.as_ref().and_then(|sessions| sessions.lend()));
                    self.follow(place, packet, lent.as_mut(), now);
                }
                let (mut gate, counter) = self.judge(&view, now);
                let mut counter = Some(counter);
                if view.unsure || self.undecided.0 {
                    let hidden = (view.unsure && self.rules.drops).then_some(UNDECIDABLE);
                    let unfinished = self.undecided.1.then_some(UNDECIDED);
                    (gate, counter) = unsure((gate, counter.unwrap_or(CLEAN)), hidden.or(unfinished));
                    counts[UNSURE] += 1;
                }
                if let Some(counter) = counter {
                    counts[counter] += 1;
                }
                if gate != Gate::FIRST {
                    context.put(begun + place, gate);
                }
            }
            begun += part.len();
        }
        self.packets.iter().zip(counts).for_each(|(counter, count)| counter.add(count));
    }

    fn close(&mut self) -> Result<(), String> {
        self.out.pen.as_ref().map_or(Ok(()), |pen| pen.journal().flush())
    }
}

register!(Nids);

#[cfg(test)]
mod naive;
#[cfg(test)]
mod tests;
