//! What a run came to.

use forebay_measure::Distribution;

use crate::tally::Tally;

/// What happened since the [beginning](crate::Simulator::begin): what was simulated in detail, and what its figures stood in for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// How much time passed, in seconds.
    pub seconds: f64,
    /// How much of it was simulated in detail.
    pub detail_s: f64,
    /// Packets that workers took from sources.
    pub entered: u64,
    /// Packets that left by ports.
    pub left: u64,
    /// Packets that ended in functions, or for which the configuration has no place.
    pub gone: u64,
    /// Packets that were turned away where a chain begins that leads to an overloaded module.
    pub turned_away: u64,
    /// By port: packets that found its queue full: they never entered.
    pub lost: Vec<u64>,
    /// Packets that wait now, for modules and on their way to other workers.
    pub queued: u64,
    /// By module: those that others run for have nothing.
    pub modules: Vec<ModuleReport>,
    /// By flow.
    pub flows: Vec<FlowReport>,
    /// By worker: the share of its time in which it had something to do.
    pub busy: Vec<f64>,
}

/// A module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModuleReport {
    /// Packets processed.
    pub packets: u64,
    /// Calls.
    pub calls: u64,
    /// Packets for it that were turned away.
    pub turned_away: u64,
}

/// A flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowReport {
    /// Packets that left.
    pub packets: u64,
    /// Those above the objective.
    pub violations: u64,
    /// From arrival to departure, in nanoseconds.
    pub delay: Distribution,
}

impl Report {
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
            report.lost.iter_mut().zip(&tally.lost).for_each(|(told, lost)| *told += lost);
            for (told, module) in report.modules.iter_mut().zip(&tally.modules) {
                told.packets += module.packets;
                told.calls += module.calls;
                told.turned_away += module.turned_away;
                report.turned_away += module.turned_away;
            }
            for (told, flow) in report.flows.iter_mut().zip(&tally.flows) {
                told.packets += flow.packets;
                told.violations += flow.violations;
                told.delay.merge(&flow.delay);
            }
            report.busy.push(tally.busy as f64 / 1e12 / seconds.max(f64::MIN_POSITIVE));
        }
        report
    }

    /// Packets a second that left.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.left as f64 / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Packets a call, over all modules; 0 without calls.
    #[must_use]
    pub fn batch(&self) -> f64 {
        let sum = |of: fn(&ModuleReport) -> u64| self.modules.iter().map(of).sum::<u64>();
        sum(|module| module.packets) as f64 / sum(|module| module.calls).max(1) as f64
    }

    /// Delays of all flows together, in nanoseconds.
    #[must_use]
    pub fn delay(&self) -> Distribution {
        let mut all = Distribution::default();
        self.flows.iter().for_each(|flow| all.merge(&flow.delay));
        all
    }
}
