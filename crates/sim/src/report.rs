//! The results of a run.

use forebay_measure::Distribution;

use crate::tally::Tally;

/// The results since the [beginning](crate::Simulator::begin_report) of the report. The results cover both the time
/// simulated in detail and the extrapolated time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The simulated time, in seconds.
    pub seconds: f64,
    /// The part of `seconds` that was simulated in detail, in seconds.
    pub detail_s: f64,
    /// Packets that workers took from sources.
    pub entered: u64,
    /// Packets that were sent by ports.
    pub left: u64,
    /// Packets that were dropped or consumed in functions, or that the graph drops.
    pub gone: u64,
    /// Packets that were dropped because of an overloaded module: by backpressure at the start of a chain that leads to
    /// the module, or because the ring to the module's worker was full.
    pub turned_away: u64,
    /// By port: packets that were lost before they entered, because the port's queue was full.
    pub lost: Vec<u64>,
    /// Packets that wait now: in module queues, and on rings to other workers.
    pub queued: u64,
    /// By module. Folded modules other than the leader have only zeros.
    pub modules: Vec<ModuleReport>,
    /// By flow.
    pub flows: Vec<FlowReport>,
    /// By worker: the fraction of `seconds` in which the worker was busy.
    pub busy: Vec<f64>,
}

/// The results of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleReport {
    /// The number of packets processed.
    pub packets: u64,
    /// The number of calls.
    pub calls: u64,
    /// The number of packets to this module that backpressure dropped, or that found the ring to its worker full.
    pub turned_away: u64,
}

/// The results of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowReport {
    /// The number of packets that were sent.
    pub packets: u64,
    /// The number of packets whose delay exceeded the objective.
    pub violations: u64,
    /// Delays from arrival to departure, in nanoseconds.
    pub delay: Distribution,
}

impl Report {
    /// Adds up the counts of the workers in `counted`. `queued` is the number of packets that wait now.
    pub(crate) fn of(counted: &[Tally], seconds: f64, detail_s: f64, queued: u64) -> Self {
        let mut report = Self { seconds, detail_s, queued, ..Self::default() };
        let Some(first) = counted.first() else { return report };
        report.modules.resize(first.modules.len(), ModuleReport::default());
        report.flows.resize(first.flows.len(), FlowReport::default());
        report.lost.resize(first.lost.len(), 0);
        for tally in counted {
            report.entered += tally.entered;
            report.left += tally.left;
            report.gone += tally.gone;
            report.lost.iter_mut().zip(&tally.lost).for_each(|(sum, lost)| *sum += lost);
            for (sum, module) in report.modules.iter_mut().zip(&tally.modules) {
                sum.packets += module.packets;
                sum.calls += module.calls;
                sum.turned_away += module.turned_away;
                report.turned_away += module.turned_away;
            }
            for (sum, flow) in report.flows.iter_mut().zip(&tally.flows) {
                sum.packets += flow.packets;
                sum.violations += flow.violations;
                sum.delay.merge(&flow.delay);
            }
            report.busy.push(tally.busy as f64 / 1e12 / seconds.max(f64::MIN_POSITIVE));
        }
        report
    }

    /// Returns the number of packets sent per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.left as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Returns the mean number of packets per call over all modules, or 0 without calls.
    #[must_use]
    pub fn batch(&self) -> f64 {
        let sum = |of: fn(&ModuleReport) -> u64| self.modules.iter().map(of).sum::<u64>();
        sum(|module| module.packets) as f64 / sum(|module| module.calls).max(1) as f64
    }

    /// Returns the delays of all flows together, in nanoseconds.
    #[must_use]
    pub fn delay(&self) -> Distribution {
        let mut all = Distribution::default();
        self.flows.iter().for_each(|flow| all.merge(&flow.delay));
        all
    }
}
