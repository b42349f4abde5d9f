//! `on-off`: each module waits for the largest batch or does not wait (Batchy section 4.3).

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_models::batching::Model;
use forebay_protocol::{ChangeReason, Decision, Layout, Snapshot};

use super::cooldowns::Cooldowns;
use super::{NoParams, set_buffers};
use crate::outlook::Outlook;
use crate::period::longest_delays;

/// Sets a module's trigger to the largest batch if the flows have time to wait for it, and to 0 otherwise.
#[derive(Default)]
pub(crate) struct OnOff {
    outlook: Outlook,
    cooldowns: Cooldowns,
}

impl Controller for OnOff {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Decision) {
        self.outlook.learn(layout, snapshot);
        let (truer, arrivals) = self.outlook.model(layout, snapshot, guard);
        let model = self.outlook.written(layout, snapshot);
        self.cooldowns.pass(layout, snapshot);
        let mut triggers: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
        let mut why = vec![ChangeReason::Rule; triggers.len()];
        // By flow: its delay and the allowed delay, in seconds.
        let mut flows: Vec<Option<(f64, f64)>> = longest_delays(layout, snapshot)
            .into_iter()
            .zip(&layout.flows)
            .map(|(delay, flow)| Some((delay?, (1.0 - guard) * flow.slo_s? * flow.percentile.longest())))
            .collect();
        let through = through(&model);
        let costs = |at: usize| wait(&model, at, layout.batch);
        let saves = |at: usize| {
            let module = &model.modules()[at];
            model.rates()[at] * module.cpu.fixed * (module.ingress.recip() - model.largest().recip())
        };
        let moves = |at: &usize| !layout.modules[*at].fixed && model.rates()[*at] > 0.0;
        let worth = (0..triggers.len()).filter(moves).map(|at| (saves(at) / costs(at), at));
        let order = model.best_first(worth.collect());
        for &at in &order {
            if triggers[at] > 0 && model.arrives_large(at) {
                (triggers[at], why[at]) = (0, ChangeReason::Arrives);
            }
        }
        // Removes buffers, the least useful first, until every flow is in time or has no buffer.
        let late = |flow: &Option<(f64, f64)>| flow.is_some_and(|(is, may)| is >= may);
        for &at in order.iter().rev() {
            if triggers[at] > 0 && through[at].iter().any(|flow| late(&flows[*flow])) {
                (triggers[at], why[at]) = (0, ChangeReason::Recovery);
                self.cooldowns.begin(at);
                through[at].iter().for_each(|flow| add(&mut flows[*flow], -costs(at)));
            }
        }
        for &at in &order {
            let room = |flow: &usize| flows[*flow].is_none_or(|(is, may)| is + costs(at) < may);
            if triggers[at] == 0
                && !model.arrives_large(at)
                && saves(at) > 0.0
                && self.cooldowns.over(at)
                && through[at].iter().all(room)
            {
                (triggers[at], why[at]) = (layout.batch, ChangeReason::Room);
                through[at].iter().for_each(|flow| add(&mut flows[*flow], costs(at)));
            }
        }
        let holds = truer.holds(&arrivals, &triggers);
        set_buffers(layout, snapshot, actions, |at| (triggers[at], Some(holds[at]), why[at]));
    }
}

/// Returns the delay in seconds that a buffer of the largest batch adds at a module.
fn wait(model: &Model, at: usize, batch: usize) -> f64 {
    let module = &model.modules()[at];
    batch as f64 / model.rates()[at] + module.delay.each * (batch as f64 - module.ingress)
}

/// Adds `delay`, in seconds, to the delay of a flow: the first number of the pair. Does nothing if `flow` is `None`.
fn add(flow: &mut Option<(f64, f64)>, delay: f64) {
    if let Some((is, _)) = flow {
        *is += delay;
    }
}

/// Returns the flows through each module.
fn through(model: &Model) -> Vec<Vec<usize>> {
    let mut through = vec![Vec::new(); model.modules().len()];
    for (number, flow) in model.flows().iter().enumerate() {
        flow.path.iter().for_each(|at| through[*at].push(number));
    }
    through
}

impl DeclareController for OnOff {
    type Params = NoParams;
    const NAME: &'static str = "on-off";
    const SUMMARY: &'static str = "each module waits for the largest batch or not at all";
    const HELP: &'static str =
        "The Batchy paper's simple controller: a module waits for the largest batch if all its flows have time for it.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller OnOff);
