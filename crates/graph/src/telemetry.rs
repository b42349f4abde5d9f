//! The engine's counters: plain words that the worker writes and any thread reads.

mod ways;

use std::sync::Arc;

use forebay_measure::{Counter, Histogram, histogram::Sample};
use forebay_protocol::{report::SIZE_CLASSES, snapshot::LONG_CLASSES};
use forebay_units::{Frequency, Ticks};

use crate::fold::Arrival;
use crate::own_counters::OwnCounters;
use crate::plan::FlowPlan;
use crate::port::PortCounters;
pub use ways::Way;

/// The reason for which packets are dropped at the start of a chain that leads to an overloaded module, or because the
/// ring to the module's worker is full.
pub const BACKPRESSURE: &str = "backpressure";

/// Returns the size class of a batch of `packets` packets (1 to 256). Any other number gives a class past the last one.
#[inline]
#[must_use]
pub fn size_class(packets: usize) -> usize {
    (usize::BITS - packets.wrapping_sub(1).leading_zeros()) as usize
}

/// The times of a module, a port, a hand-over, or the residue, in timed turns.
#[derive(Debug, Default)]
pub struct Account {
    /// The ticks of the timed calls. The sum wraps, because short calls may seem to take less than 0 ticks.
    pub ticks: Counter,
    /// The packets of the timed calls.
    pub packets: Counter,
    /// The timed calls.
    pub calls: Counter,
    /// Pairs of a stretch and the stretch before it. A stretch is the part of a timed turn between two readings of the
    /// clock.
    pub(crate) after_any: Pairs,
    /// Pairs of a stretch and the residue after it.
    pub(crate) then_residue: Pairs,
}

/// Pairs of consecutive stretches of a turn. From the difference between the two kinds of pairs, the worker learns the
/// cost of a reading of the clock. Each array has the ticks of the pairs, then the number of pairs.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    /// Pairs with a reading between the two stretches.
    pub(crate) split: [Counter; 2],
    /// Pairs without a reading between the two stretches.
    pub(crate) whole: [Counter; 2],
}

/// The counts of a [`Meter`](crate::Meter) for a module, a port, a hand-over, the residue, or whole turns.
#[derive(Debug, Default)]
pub struct MeterAccount {
    /// Instructions.
    pub instructions: Counter,
    /// Core cycles.
    pub cycles: Counter,
    /// The packets of the metered calls.
    pub packets: Counter,
}

/// The counts of a worker's meter, in turns that are metered and not timed.
#[derive(Debug)]
pub struct Metered {
    /// By module.
    pub modules: Vec<MeterAccount>,
    /// By port: the counts of the calls in which the port gave packets to the worker, and of the calls in which it took
    /// packets from the worker.
    pub ports: Vec<[MeterAccount; 2]>,
    /// Hand-overs of packets to and from other workers.
    pub handover: MeterAccount,
    /// The residue: no module, no port and no hand-over.
    pub residue: MeterAccount,
    /// Whole turns.
    pub all: MeterAccount,
    /// The metered busy turns.
    pub turns: Counter,
    /// 1 as soon as the meter has failed, 0 before.
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

/// Turns so long that the machine may have run something else, by class. A turn is long if it takes longer than
/// [`LONG`](forebay_protocol::snapshot::LONG). Class n has the turns that took 2ⁿ to 2ⁿ⁺¹ times as long as `LONG`. The
/// last class also has all longer turns.
#[derive(Debug, Default)]
pub struct LongTurns {
    /// The number of all long turns.
    pub turns: [Counter; LONG_CLASSES],
    /// The number of busy long turns.
    pub busy_turns: [Counter; LONG_CLASSES],
    /// The ticks of all long turns.
    pub ticks: [Counter; LONG_CLASSES],
    /// The ticks of busy long turns.
    pub busy: [Counter; LONG_CLASSES],
}

impl LongTurns {
    /// Returns the class of a turn that took `times` times as long as [`LONG`](forebay_protocol::snapshot::LONG).
    pub(crate) fn class(times: u64) -> usize {
        (times.max(1).ilog2() as usize).min(LONG_CLASSES - 1)
    }

    /// Counts a long turn of this class. `busy`: the turn had work to do.
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
    /// The packets processed.
    pub packets: Counter,
    /// The calls, by batch size ([`size_class`]).
    pub sizes: [Counter; SIZE_CLASSES],
    /// The timed calls.
    pub timed: Account,
    /// The present trigger: the number of packets that must wait before the module runs. 0 if there is none.
    pub trigger: Counter,
    /// The present hold limit: the longest time that packets wait for the trigger, in ticks. 0 without a trigger.
    pub hold: Counter,
    /// The present weight. 0 if the scheduler does not share time.
    pub weight: Counter,
    /// The turns with a trigger in which packets came, as of the last update of the gauges.
    pub arrivals: Counter,
    /// The packets that came while there was a trigger.
    pub arrived: Counter,
    /// The packets in the queue at the last update, if the module has a trigger or the scheduler shares time.
    pub queued: Counter,
    /// How long the first packet of the queue had waited for the trigger at the last update, in ticks. 0 if the queue
    /// was empty.
    pub oldest: Counter,
}

impl ModuleCounters {
    /// Returns the number of calls.
    #[must_use]
    pub fn batches(&self) -> u64 {
        self.sizes.iter().map(Counter::get).sum()
    }
}

/// Counters of the reasons for which a module drops, creates or consumes packets.
#[derive(Debug)]
pub struct ReasonCounters {
    /// The names, in the order of the function's declaration.
    pub names: Vec<&'static str>,
    /// The counters, in the same order.
    pub counts: Arc<[Counter]>,
}

impl ReasonCounters {
    pub(crate) fn new(names: impl IntoIterator<Item = &'static str>) -> Self {
        let names: Vec<_> = names.into_iter().collect();
        Self { counts: names.iter().map(|_| Counter::new()).collect(), names }
    }

    /// Returns the name and the counter of the reason with the number `which`. `None` if there is no such reason.
    pub(crate) fn get(&self, which: usize) -> Option<(&'static str, &Counter)> {
        Some((*self.names.get(which)?, self.counts.get(which)?))
    }

    /// Returns the sum over all reasons.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts.iter().map(Counter::get).sum()
    }

    /// Returns each reason with its count.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.names.iter().zip(&*self.counts).map(|(name, count)| (*name, count.get()))
    }
}

/// A module's description and counters for readers.
#[derive(Debug)]
pub struct ModuleTelemetry {
    /// The module's name in the configuration.
    pub name: String,
    /// Its function's name.
    pub kind: &'static str,
    /// Its output gates' names, in order.
    pub gates: Vec<String>,
    /// Whether this worker runs the module.
    pub here: bool,
    /// The packets dropped, by reason.
    pub drops: ReasonCounters,
    /// The packets created, by reason.
    pub creates: ReasonCounters,
    /// The packets consumed, by reason.
    pub consumes: ReasonCounters,
    /// The packets for this module that were dropped because a later module was overloaded, or because the ring to this
    /// module's worker was full ([`BACKPRESSURE`]).
    pub turned_away: Counter,
    /// The function's own counters.
    pub own: Vec<OwnCounters>,
}

/// A port's description and counters for readers.
#[derive(Debug)]
pub struct PortTelemetry {
    /// Its name in the configuration.
    pub name: String,
    /// The name of its port type.
    pub kind: &'static str,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// The packets that the port refused to send.
    pub refused: Counter,
    /// 1 if the port was closed before its last packet was read, otherwise 0.
    pub unread: Counter,
    /// The timed calls in which the port gave packets to the worker.
    pub receiving: Account,
    /// The timed calls in which the port took packets from the worker.
    pub sending: Account,
}

/// A flow's description and counters for readers. All fields that accounting a packet touches are in the first cache
/// line, except the histogram's buckets.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct FlowTelemetry {
    /// The smaller of the objective and the largest delay so far, or 0 after the objective was set. Only a delay above
    /// this value can be a violation or a new maximum. For most packets this is the only comparison.
    usual: Counter,
    /// The objective, in ticks. [`Ticks::NEVER`] if there is none.
    objective: Counter,
    /// The packets whose delay was above the objective.
    pub violations: Counter,
    /// The delays from arrival to departure, in ticks.
    pub delay: Histogram,
    /// The flow as declared, or as found if none was declared.
    pub plan: Box<FlowPlan>,
    /// The bytes of the packets that left. Counted only if the rate objective of some flow is in bits, otherwise 0.
    pub bytes: Counter,
}

/// The size is an odd number of cache lines, so that the counters of many flows use all sets of the cache.
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

    /// Returns the objective. [`Ticks::NEVER`] if there is none.
    #[must_use]
    pub fn objective(&self) -> Ticks {
        Ticks(self.objective.get())
    }

    /// Sets the objective. Only the worker's own thread may call this.
    pub fn set_objective(&self, objective: Ticks) {
        self.objective.set(objective.0);
        self.usual.set(0);
    }

    /// Accounts `n` packets with this delay. To cancel an earlier call, pass the negative of its `n` (wrapped).
    #[inline]
    pub(crate) fn account(&self, delay: Sample, n: u64) {
        if delay.value() > self.usual.get() {
            return self.account_unusual(delay, n);
        }
        self.delay.record_within(delay, n);
    }

    /// Accounts packets whose delay may exceed the objective or the largest delay so far, and updates `usual`.
    #[inline(never)]
    fn account_unusual(&self, delay: Sample, n: u64) {
        self.delay.record_sample(delay, n);
        if delay.value() > self.objective.get() {
            self.violations.add(n);
        }
        self.usual.set(self.delay.max().min(self.objective.get()));
    }
}

/// The folds, for readers. In a fold, one function runs for modules of several branches
/// ([`Branches`](crate::Branches)). The engine does not count the packets of each folded module. Their number derives
/// from two counts: the packets that come to a fold, by flow word, and the packets that its modules drop, by reason.
#[derive(Debug)]
pub struct FoldTelemetry {
    /// By fold: its modules, by branch.
    pub members: Vec<Vec<usize>>,
    /// By fold: the fold that its packets come from. `None` if they come from a split.
    pub(crate) before: Vec<Option<usize>>,
    /// By flow word: the module in which its packets first run folded.
    pub(crate) arrival: Vec<Option<Arrival>>,
    /// By flow word: the packets that have come to that module.
    pub(crate) arrived: Arc<[Counter]>,
}

impl FoldTelemetry {
    /// Returns the packets of each module, by fold and branch, including packets that still wait for the module.
    /// `dropped` returns how many packets a module has dropped.
    #[must_use]
    pub fn packets(&self, dropped: impl Fn(usize) -> u64) -> Vec<Vec<u64>> {
        let mut packets: Vec<Vec<u64>> = self.members.iter().map(|members| vec![0; members.len()]).collect();
        for (arrival, count) in self.arrival.iter().zip(&*self.arrived) {
            if let Some(Arrival { fold, branch }) = *arrival {
                packets[fold][branch] += count.get();
            }
        }
        // Folds are in the order of their modules, so the counts of an earlier fold are complete.
        for (fold, before) in self.before.iter().enumerate() {
            let Some(before) = *before else { continue };
            let passed_on = self.members[before].iter().zip(&packets[before]);
            packets[fold] = passed_on.map(|(member, had)| had.saturating_sub(dropped(*member))).collect();
        }
        packets
    }
}

/// The worker's own counters.
#[derive(Debug, Default)]
pub struct WorkerCounters {
    /// All turns.
    pub turns: Counter,
    /// The busy turns: turns with work to do.
    pub busy_turns: Counter,
    /// The ticks of busy turns.
    pub busy: Counter,
    /// The ticks of all turns.
    pub all: Counter,
    /// The ticks by which timed turns were longer than the mean of untimed turns. The sum wraps, because it may be
    /// negative.
    pub timing: Counter,
    /// The timed busy turns.
    pub timed_turns: Counter,
    /// The residue: work for no module, no port and no hand-over, for example scheduling, polling and timers. In this
    /// account, `packets` is the number of all stretches of residue, and `calls` is the number of the timed ones.
    pub residue: Account,
    /// The timed hand-overs of packets to and from other workers.
    pub handover: Account,
    /// The turns in which the machine may have run something else.
    pub long: LongTurns,
    /// The packets handed over to other workers.
    pub handed: Counter,
    /// The packets taken from other workers.
    pub taken: Counter,
    /// The ticks during which no packet was taken from ports while this graph took over.
    pub pause: Counter,
    /// The attempts to hand over a batch that failed because the ring to the other worker was full.
    pub stalls: Counter,
    /// The packets in the input queues of modules and other nodes at the last sweep.
    pub queued: Counter,
    /// The packets held by functions at the last sweep.
    pub held: Counter,
    /// The sent packets that a kernel or device still used at the last sweep.
    pub in_flight: Counter,
    /// The packets dropped because the configuration sends them to the bin (`-> drop`).
    pub unwanted: Counter,
    /// The packets dropped because a function selected a gate that does not exist.
    pub no_gate: Counter,
    /// The packets that functions still held when the worker closed them.
    pub held_at_close: Counter,
    /// The packets that the pool could not provide.
    pub exhausted: Counter,
    /// The time, in ticks, for which the first packet of each batch from a port had waited at the port. It is recorded
    /// once for each packet of the batch.
    pub port_wait: Histogram,
    /// The clocks that packets' arrival times came from ([`ArrivalClock`](forebay_packet::ArrivalClock)), as a bit set:
    /// 1 poll, 2 intended, 4 kernel.
    pub arrival_clocks: Counter,
}

/// All counters of one worker.
#[derive(Debug)]
pub struct Telemetry {
    /// The number of the worker.
    pub id: usize,
    /// The pipeline's name.
    pub pipeline: String,
    /// The frequency of the clock's ticks.
    pub frequency: Frequency,
    /// By module.
    pub counters: Arc<[ModuleCounters]>,
    /// By module.
    pub modules: Vec<ModuleTelemetry>,
    /// By port.
    pub ports: Vec<PortTelemetry>,
    /// By flow.
    pub flows: Vec<FlowTelemetry>,
    /// The paths of flows with a rate objective.
    pub ways: Vec<Way>,
    /// The folds.
    pub folds: FoldTelemetry,
    /// The worker's own counters.
    pub worker: WorkerCounters,
    /// The meter's counts. `None` if the worker has no meter.
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
