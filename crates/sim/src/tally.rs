//! The counters of a simulation.

use forebay_measure::Distribution;

use crate::scene::Scene;
use crate::time::Picos;

/// The counts of a worker since its start, or in a part of that time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    /// By module.
    pub(crate) modules: Vec<ModuleTally>,
    /// By flow.
    pub(crate) flows: Vec<FlowTally>,
    /// The sum of the durations of busy turns, in picoseconds.
    pub(crate) busy: u64,
    /// The number of busy turns.
    pub(crate) busy_turns: u64,
    /// The times that packets had waited at ports, in nanoseconds. All packets of a batch count with the time of its
    /// first packet.
    pub(crate) port_wait: Distribution,
    /// Packets taken from sources.
    pub(crate) entered: u64,
    /// By port: packets lost because the port's queue was full.
    pub(crate) lost: Vec<u64>,
    /// Packets that were sent by ports.
    pub(crate) left: u64,
    /// Packets that were dropped or consumed in functions, or that the graph drops.
    pub(crate) gone: u64,
}

/// The counts of a module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ModuleTally {
    /// Packets that were processed.
    pub(crate) packets: u64,
    /// Calls of the module's function, each for one batch.
    pub(crate) calls: u64,
    /// Packets that came, including those that backpressure dropped.
    pub(crate) came: u64,
    /// Packets that came while there was a trigger.
    pub(crate) arrived: u64,
    /// The number of instants at which packets came while there was a trigger.
    pub(crate) arrivals: u64,
    /// Packets to this module that backpressure dropped, or that found the ring to its worker full.
    pub(crate) turned_away: u64,
}

/// The counts of a flow.
#[derive(Clone, Debug, Default)]
pub(crate) struct FlowTally {
    /// Packets that were sent.
    pub(crate) packets: u64,
    /// Packets whose delay exceeded the objective.
    pub(crate) violations: u64,
    /// Delays in nanoseconds.
    pub(crate) delay: Distribution,
}

impl Tally {
    /// Creates empty counts for a scene.
    pub(crate) fn new(scene: &Scene) -> Self {
        Self {
            modules: vec![ModuleTally::default(); scene.layout.modules.len()],
            flows: vec![FlowTally::default(); scene.flows],
            lost: vec![0; scene.entries.len()],
            ..Self::default()
        }
    }

    /// Applies `each` to every count and the corresponding count of `other`. Distributions are excluded.
    fn with(&mut self, other: &Self, each: impl Fn(&mut u64, u64)) {
        for (mine, theirs) in self.modules.iter_mut().zip(&other.modules) {
            let ModuleTally { packets, calls, came, arrived, arrivals, turned_away } = mine;
            each(packets, theirs.packets);
            each(calls, theirs.calls);
            each(came, theirs.came);
            each(arrived, theirs.arrived);
            each(arrivals, theirs.arrivals);
            each(turned_away, theirs.turned_away);
        }
        for (mine, theirs) in self.flows.iter_mut().zip(&other.flows) {
            each(&mut mine.packets, theirs.packets);
            each(&mut mine.violations, theirs.violations);
        }
        each(&mut self.busy, other.busy);
        each(&mut self.busy_turns, other.busy_turns);
        each(&mut self.entered, other.entered);
        each(&mut self.left, other.left);
        each(&mut self.gone, other.gone);
        self.lost.iter_mut().zip(&other.lost).for_each(|(mine, theirs)| each(mine, *theirs));
    }

    /// Returns the counts since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut rest = self.clone();
        rest.with(earlier, |count, before| *count = count.saturating_sub(before));
        for ((mine, all), before) in rest.flows.iter_mut().zip(&self.flows).zip(&earlier.flows) {
            mine.delay = all.delay.since(&before.delay);
        }
        rest.port_wait = self.port_wait.since(&earlier.port_wait);
        rest
    }

    /// Adds the counts of `other` multiplied by `times`: the expected counts of a span that is `times` as long.
    pub(crate) fn add_times(&mut self, other: &Self, times: f64) {
        self.with(other, |count, more| *count += (more as f64 * times).round() as u64);
        for (mine, theirs) in self.flows.iter_mut().zip(&other.flows) {
            mine.delay.add_times(&theirs.delay, times);
        }
        self.port_wait.add_times(&other.port_wait, times);
    }
}

/// A few totals that show whether a state is steady. The totals are cheap to read, so they are read after every piece.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Summary {
    /// The time, in seconds.
    pub(crate) time: f64,
    /// The number of packets that were sent.
    pub(crate) left: f64,
    /// The number of calls of modules.
    pub(crate) calls: f64,
    /// The sum of the durations of busy turns, in seconds.
    pub(crate) busy: f64,
    /// The sum of the delays of all packets that were sent, in seconds.
    pub(crate) delay: f64,
}

impl Summary {
    /// Returns the totals since `earlier`.
    pub(crate) fn minus(self, earlier: Self) -> Self {
        Self {
            time: self.time - earlier.time,
            left: self.left - earlier.left,
            calls: self.calls - earlier.calls,
            busy: self.busy - earlier.busy,
            delay: self.delay - earlier.delay,
        }
    }

    /// Returns the totals of two spans together. Also adds the times.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            time: self.time + other.time,
            left: self.left + other.left,
            calls: self.calls + other.calls,
            busy: self.busy + other.busy,
            delay: self.delay + other.delay,
        }
    }

    /// Sets the time to `now` and adds the counts of a worker: `busy` in picoseconds and `delay` in nanoseconds.
    pub(crate) fn count(&mut self, now: Picos, left: u64, calls: u64, busy: u64, delay: u64) {
        self.time = now.seconds();
        self.left += left as f64;
        self.calls += calls as f64;
        self.busy += busy as f64 / 1e12;
        self.delay += delay as f64 / 1e9;
    }
}
