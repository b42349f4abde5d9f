//! What the engine counts, as plain words that the worker writes and anybody reads.

mod ways;

use std::sync::Arc;

use forebay_measure::{Counter, Histogram, histogram::Sample};
use forebay_protocol::{report::SIZE_CLASSES, snapshot::LONG_CLASSES};
use forebay_units::{Frequency, Ticks};

use crate::fold::Arrival;
use crate::plan::FlowPlan;
use crate::port::PortCounters;
pub use ways::Way;

/// The reason for which packets are dropped where a chain begins that leads to an overloaded module.
pub const BACKPRESSURE: &str = "backpressure";

/// Which class a batch of `packets` (1..=256) is counted in; past the last for any other number.
#[inline]
#[must_use]
pub fn size_class(packets: usize) -> usize {
    (usize::BITS - packets.wrapping_sub(1).leading_zeros()) as usize
}

/// What was timed of something.
#[derive(Debug, Default)]
pub struct Account {
    /// Ticks.
    pub ticks: Counter,
    /// Packets of the calls that were timed.
    pub packets: Counter,
    /// Calls that were timed.
    pub calls: Counter,
    /// Stretches timed together with the stretch before.
    pub(crate) after_any: Pairs,
    /// Stretches timed together with the residue after them.
    pub(crate) then_residue: Pairs,
}

/// Two stretches of a turn that were timed together: ticks, and how often. They say what a reading of the clock between
/// them takes.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// With a reading between them.
    pub(crate) split: [Counter; 2],
    /// Without one.
    pub(crate) whole: [Counter; 2],
}

/// What a [`Meter`](crate::Meter) has counted of something.
#[derive(Debug, Default)]
pub struct MeterAccount {
    /// Instructions.
    pub instructions: Counter,
    /// Core cycles.
    pub cycles: Counter,
    /// Packets of the calls that were metered.
    pub packets: Counter,
}

/// What a meter has counted of a worker, in turns of its own: none of them is timed.
#[derive(Debug)]
pub struct Metered {
    /// By module.
    pub modules: Vec<MeterAccount>,
    /// By port: when packets were taken from it, and when they were given to it.
    pub ports: Vec<[MeterAccount; 2]>,
    /// When packets were given to other workers or taken from them.
    pub handover: MeterAccount,
    /// What was no module's, no port's and no hand-over's.
    pub residue: MeterAccount,
    /// Of whole turns.
    pub all: MeterAccount,
    /// Turns that were metered, of those in which there was something to do.
    pub turns: Counter,
    /// 1 from when the meter had nothing to tell any more.
    pub failed: Counter,
}

impl Metered {
    pub(crate) fn new(modules: usize, ports: usize) -> Self {
        Self {
            modules: (0..modules).map(|_| MeterAccount::default()).collect(),
            ports: (0..ports).map(|_| Default::default()).collect(),
            handover: MeterAccount::default(),
            residue: MeterAccount::default(),
            all: MeterAccount::default(),
            turns: Counter::new(),
            failed: Counter::new(),
        }
    }
}

/// Turns so long that the machine may have been elsewhere in them, by how many times longer than the shortest of them: 1,
/// 2, 4, … times and more.
#[derive(Debug, Default)]
pub struct LongTurns {
    /// How many.
    pub turns: [Counter; LONG_CLASSES],
    /// How many of them had something to do.
    pub busy_turns: [Counter; LONG_CLASSES],
    /// Their ticks.
    pub ticks: [Counter; LONG_CLASSES],
    /// Ticks of those in which there was something to do.
    pub busy: [Counter; LONG_CLASSES],
}

impl LongTurns {
    /// The class of a turn that took so many times what the shortest does, at least once.
    pub(crate) fn class(times: u64) -> usize {
        (times.max(1).ilog2() as usize).min(LONG_CLASSES - 1)
    }

    pub(crate) fn add(&self, class: usize, ticks: u64, busy: bool) {
        self.turns[class].add(1);
        self.ticks[class].add(ticks);
        if busy {
            self.busy_turns[class].add(1);
            self.busy[class].add(ticks);
        }
    }
}

/// A module's counters. An ordinary call of up to 64 packets writes the first cache line only.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct ModuleCounters {
    /// Packets processed.
    pub packets: Counter,
    /// Calls, by how many packets the batch had ([`size_class`]).
    pub sizes: [Counter; SIZE_CLASSES],
    /// The calls that were timed, the distribution of their packets included.
    pub timed: Account,
    /// The trigger now in force.
    pub trigger: Counter,
    /// The hold limit now in force, in ticks.
    pub hold: Counter,
    /// The weight now in force; 0 where the scheduler does not share time out.
    pub weight: Counter,
    /// Turns in which packets came, of those with a trigger, when it was looked at last.
    pub arrivals: Counter,
    /// Packets that had come while there was one.
    pub arrived: Counter,
    /// Packets that waited for the trigger then.
    pub queued: Counter,
    /// How long the first of them had waited then, in ticks.
    pub oldest: Counter,
}

impl ModuleCounters {
    /// How many calls.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.sizes.iter().map(Counter::get).sum()
    }
}

/// Counters of the reasons why packets end in, or come to be in, one module or port.
#[derive(Debug)]
pub struct ReasonCounters {
    /// The names, in the order in which the function declared them.
    pub names: Vec<&'static str>,
    /// The counters, likewise.
    pub counts: Arc<[Counter]>,
}

impl ReasonCounters {
    pub(crate) fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        Self { counts: names.iter().map(|_| Counter::new()).collect(), names }
    }

    /// A reason's name and its counter.
    pub(crate) fn get(&self, which: usize) -> Option<(&'static str, &Counter)> {
        Some((*self.names.get(which)?, self.counts.get(which)?))
    }

    /// The sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(Counter::get).sum()
    }

    /// Each reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.names.iter().zip(&*self.counts).map(|(name, count)| (*name, count.get()))
    }
}

/// A module as its readers see it.
#[derive(Debug)]
pub struct ModuleTelemetry {
    /// Its name in the configuration.
    pub name: String,
    /// Its function's name.
    pub kind: &'static str,
    /// Its output gates' names, in order.
    pub gates: Vec<String>,
    /// Whether this worker runs it.
    pub here: bool,
    /// Why it dropped packets.
    pub drops: ReasonCounters,
    /// Why it created packets.
    pub creates: ReasonCounters,
    /// Why packets ended in it.
    pub consumes: ReasonCounters,
    /// Packets for it that were dropped because a module further on is overloaded.
    pub turned_away: Counter,
    /// The function's own counters.
    pub own: Vec<OwnCounters>,
}

/// Counters of a function's own, under one heading.
#[derive(Clone, Debug)]
pub struct OwnCounters {
    /// Their heading.
    pub heading: String,
    /// The counters.
    pub counters: Arc<[Counter]>,
    /// Their names.
    pub names: Vec<String>,
    /// Whether they state something, where others count what happened ([`Setup::gauges`](crate::Setup::gauges)).
    pub gauges: bool,
    /// Whether there is one counter per rule or table entry ([`Setup::entry_counters`](crate::Setup::entry_counters)).
    pub per_entry: bool,
}

/// A port as its readers see it.
#[derive(Debug)]
pub struct PortTelemetry {
    /// Its name in the configuration.
    pub name: String,
    /// What kind of port it is.
    pub kind: &'static str,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// Packets that it would not send.
    pub refused: Counter,
    /// 1 where it was closed before its last packet was read.
    pub unread: Counter,
    /// Times that packets were taken from it in timed turns.
    pub receiving: Account,
    /// Times that packets were given to it in timed turns.
    pub sending: Account,
}

/// A flow as its readers see it. All that accounting a packet touches, but for the histogram's buckets, is in the first
/// cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct FlowTelemetry {
    /// No delay up to this one is above the objective or the largest so far: of most packets nothing else is asked.
    usual: Counter,
    /// The objective, in ticks; that of [`Ticks::NEVER`] where there is none.
    objective: Counter,
    /// Packets whose delay was above the objective.
    pub violations: Counter,
    /// From arrival to departure, in ticks.
    pub delay: Histogram,
    /// What was declared, or found where nothing was.
    pub plan: Box<FlowPlan>,
    /// Bytes of the packets that left, where any flow's rate objective is in bits.
    pub bytes: Counter,
}

/// Odd, so that what packets of many flows write lies in all sets of the cache.
const _: () = assert!(size_of::<FlowTelemetry>() / 64 % 2 == 1, "lines of a flow");

impl FlowTelemetry {
    pub(crate) fn new(plan: FlowPlan, frequency: Frequency) -> Self {
        let objective = Counter::new();
        objective.set(plan.slo.map_or(Ticks::NEVER, |slo| frequency.ticks(slo)).0);
        Self {
            usual: Counter::new(),
            objective,
            violations: Counter::new(),
            delay: Histogram::new(),
            plan: Box::new(plan),
            bytes: Counter::new(),
        }
    }

    /// The objective; [`Ticks::NEVER`] where there is none.
    #[must_use]
    pub fn objective(&self) -> Ticks {
        Ticks(self.objective.get())
    }

    /// Sets the objective. Only the worker's own thread calls this.
    pub fn set_objective(&self, objective: Ticks) {
        self.objective.set(objective.0);
        self.usual.set(0);
    }

    /// Accounts `n` packets of this delay.
    #[inline]
    pub(crate) fn account(&self, delay: Sample, n: u64) {
        if delay.value() > self.usual.get() {
            return self.account_unusual(delay, n);
        }
        self.delay.record_within(delay, n);
    }

    #[inline(never)]
    fn account_unusual(&self, delay: Sample, n: u64) {
        self.delay.record_sample(delay, n);
        if delay.value() > self.objective.get() {
            self.violations.add(n);
        }
        self.usual.set(self.delay.max().min(self.objective.get()));
    }
}

/// Modules that run as one, as their readers see them: what is counted by flow word where packets come to them, and by reason
/// where they end, says how many each has had.
#[derive(Debug)]
pub struct FoldTelemetry {
    /// By fold: its modules, by branch.
    pub members: Vec<Vec<usize>>,
    /// By fold: the one that its packets come from; `None`: they come from a split.
    pub(crate) before: Vec<Option<usize>>,
    /// By flow word: to which module its packets come.
    pub(crate) arrival: Vec<Option<Arrival>>,
    /// By flow word: packets.
    pub(crate) arrived: Arc<[Counter]>,
}

impl FoldTelemetry {
    /// Packets that each module has had, with those that may still wait before it: by fold and branch. `dropped` says how many
    /// a module has dropped.
    #[must_use]
    pub fn packets(&self, dropped: impl Fn(usize) -> u64) -> Vec<Vec<u64>> {
        let mut packets: Vec<Vec<u64>> = self.members.iter().map(|members| vec![0; members.len()]).collect();
        for (arrival, count) in self.arrival.iter().zip(&*self.arrived) {
            if let Some(Arrival { fold, branch }) = *arrival {
                packets[fold][branch] += count.get();
            }
        }
        // Folds are in the modules' order: what comes before has been seen.
        for (fold, before) in self.before.iter().enumerate() {
            let Some(before) = *before else { continue };
            let left = self.members[before].iter().zip(&packets[before]);
            packets[fold] = left.map(|(member, had)| had.saturating_sub(dropped(*member))).collect();
        }
        packets
    }
}

/// The worker's own counters.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    /// Turns.
    pub turns: Counter,
    /// Turns in which there was something to do.
    pub busy_turns: Counter,
    /// Ticks of turns in which there was something to do.
    pub busy: Counter,
    /// Ticks of all turns.
    pub all: Counter,
    /// Ticks by which timed turns were longer than the mean of untimed ones. It wraps: the sum may be below 0.
    pub timing: Counter,
    /// Turns that were timed, of those in which there was something to do.
    pub timed_turns: Counter,
    /// The time that was no module's, no port's and no hand-over's: scheduling, polling, looking after timers. Its
    /// packets are all such stretches of turns, its calls those that were timed.
    pub residue: Account,
    /// Times that packets were given to other workers or taken from them in timed turns.
    pub handover: Account,
    /// Turns in which the machine may have been elsewhere.
    pub long: LongTurns,
    /// Packets given to other workers.
    pub handed: Counter,
    /// Packets taken from other workers.
    pub taken: Counter,
    /// For how many ticks no packet was taken from ports when this graph took over from the one before.
    pub pause: Counter,
    /// Batches that another worker had no room for: they waited.
    pub stalls: Counter,
    /// Packets in modules' input queues at the last sweep.
    pub queued: Counter,
    /// Packets held by functions at the last sweep.
    pub held: Counter,
    /// Packets that ports have given to a kernel or device that it has not finished with, at the last sweep.
    pub in_flight: Counter,
    /// Packets dropped because the configuration sends them nowhere (`-> drop`).
    pub unwanted: Counter,
    /// Packets dropped because a function put them on a gate that it does not have.
    pub no_gate: Counter,
    /// Packets that functions still held when the worker was wound up.
    pub wound_up: Counter,
    /// Packets that the pool could not give.
    pub exhausted: Counter,
    /// How long the first of the packets that were taken together from a port had waited there, in ticks, for each of them.
    pub port_wait: Histogram,
    /// Bit sets of arrival clocks seen: 1 poll, 2 intended, 4 kernel.
    pub arrival_clocks: Counter,
}

/// Everything that one worker counts.
#[derive(Debug)]
pub struct Telemetry {
    /// Which worker it is of.
    pub id: usize,
    /// The pipeline's name.
    pub pipeline: String,
    /// What a tick is worth.
    pub frequency: Frequency,
    /// By module.
    pub counters: Arc<[ModuleCounters]>,
    /// By module.
    pub modules: Vec<ModuleTelemetry>,
    /// By port.
    pub ports: Vec<PortTelemetry>,
    /// By flow.
    pub flows: Vec<FlowTelemetry>,
    /// The ways of flows with a rate objective.
    pub ways: Vec<Way>,
    /// What runs as one.
    pub folds: FoldTelemetry,
    /// The worker itself.
    pub worker: WorkerCounters,
    /// What its meter counts, where it was given one.
    pub metered: Option<Metered>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_are_powers_of_two() {
        let classes: Vec<_> = [1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33, 64, 65, 128, 129, 256].map(size_class).into();
        assert_eq!(classes, [0, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]);
    }
}
