//! `wfq` and `nfvnice`: baselines with weights for the weighted-fair scheduler and without waiting for batches.
//!
//! NFVnice (Kulkarni et al., SIGCOMM 2017, section 3.3) gives each function a share of the processor in proportion to
//! its load: the arrival rate of packets times the cost of one. The scheduler implements the backpressure of NFVnice
//! (`shares`: marks at 80 and 60 % of a queue; packets are dropped at the start of their chain).

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_protocol::{Action, ChangeReason, Decision, Layout, SchedulerKind, Snapshot};

use super::{NoParams, set_buffers};

/// The weight of the module with the largest share. Shares are thus accurate to a ten-thousandth of the largest share.
const MOST: f64 = 10_000.0;
/// A weight is changed if the new value differs from the present value by more than this fraction.
const WORTH: f64 = 0.05;

/// Sets equal weights.
pub(crate) struct Wfq;

/// Sets weights in proportion to loads.
#[derive(Default)]
pub(crate) struct NfvNice {
    /// By module: its load over the last periods, in seconds per second.
    loads: Vec<f64>,
}

/// The weight of the last period in a load. NFVnice uses a moving average.
const RECENT: f64 = 0.5;

impl Controller for Wfq {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, _: f64, actions: &mut Decision) {
        set_buffers(layout, snapshot, actions, |_| (0, None, ChangeReason::Rule));
        for (module, _) in layout.running().filter(|(at, _)| snapshot.modules[*at].weight != 1) {
            actions.actions.push(Action::SetWeight { module, weight: 1 });
        }
    }
}

impl Controller for NfvNice {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, _: f64, actions: &mut Decision) {
        set_buffers(layout, snapshot, actions, |_| (0, None, ChangeReason::Rule));
        self.loads.resize(layout.modules.len(), 0.0);
        for (load, module) in self.loads.iter_mut().zip(&snapshot.modules) {
            let batch = module.batch().unwrap_or(1.0);
            let packet = module.cost_s.0 / batch + module.cost_s.1;
            *load += RECENT * (module.came as f64 / snapshot.period_s * packet - *load);
        }
        set_weights(layout, snapshot, &self.loads, WORTH, actions);
    }
}

/// Gives modules weights in proportion to `shares`, which are by module and in any unit. A weight is changed only if
/// the new value differs from the present value by more than the fraction `worth`. If all shares are 0, no weight is
/// changed.
pub(super) fn set_weights(layout: &Layout, snapshot: &Snapshot, shares: &[f64], worth: f64, actions: &mut Decision) {
    let most = shares.iter().fold(0.0_f64, |most, share| most.max(*share));
    if most <= 0.0 {
        return;
    }
    for (module, _) in layout.running() {
        let weight = (MOST * shares[module] / most).round().max(1.0);
        let now = f64::from(snapshot.modules[module].weight);
        if (weight - now).abs() > worth * now {
            actions.actions.push(Action::SetWeight { module, weight: weight as u32 });
        }
    }
}

impl DeclareController for Wfq {
    type Params = NoParams;
    const NAME: &'static str = "wfq";
    const SUMMARY: &'static str = "modules share time equally, and packets never wait for batches";
    const HELP: &'static str =
        "A baseline, for `scheduler: weighted-fair`: equal weights. The section `shares` configures the backpressure.";
    const EXAMPLE: &'static str = "{}";
    const SCHEDULER: Option<SchedulerKind> = Some(SchedulerKind::WeightedFair);

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

impl DeclareController for NfvNice {
    type Params = NoParams;
    const NAME: &'static str = "nfvnice";
    const SUMMARY: &'static str =
        "modules share time in proportion to their load (arrival rate times cost), as in NFVnice";
    const HELP: &'static str =
        "A baseline, for `scheduler: weighted-fair`. The section `shares` configures the backpressure.";
    const EXAMPLE: &'static str = "{}";
    const SCHEDULER: Option<SchedulerKind> = Some(SchedulerKind::WeightedFair);

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller Wfq);
register!(controller NfvNice);
