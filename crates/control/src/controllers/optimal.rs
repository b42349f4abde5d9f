//! `optimal`: the least load within all objectives, each period from the present snapshot.

use forebay_graph::{Actions, Controller, DeclareController, Layout, SetupError, Snapshot, Unkept, Why, register};

use forebay_models::batching::Model;
use forebay_models::batching::waiting::Arrivals;

use super::{NoParams, set_buffers};
use crate::outlook::Outlook;

/// By how much less load triggers are changed at all: a steady load has a steady control.
const WORTH: f64 = 0.01;

/// The rate up to which no packets come to a module, in packets a second: that of flows that are only kept in mind.
const IDLE: f64 = 1.0;

/// How near to a whole number packets that come together are, where it is always so many.
const ALWAYS: f64 = 0.02;

/// Solves the model to its optimum.
#[derive(Default)]
pub(crate) struct Optimal {
    outlook: Outlook,
}

impl Controller for Optimal {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Actions) {
        let (model, arrivals) = self.outlook.model(layout, snapshot, guard);
        let present: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
        let mut best = model.best_triggers(&arrivals);
        whole_arrivals(&model, &arrivals, &mut best);
        let (now, then) = (model.predict(&arrivals, &present), model.predict(&arrivals, &best));
        let kept = |delays: &[Option<f64>]| {
            model.flows().iter().zip(delays).all(|(flow, delay)| delay.is_none_or(|delay| delay <= flow.slo))
        };
        if kept(&now.delays) && now.load <= then.load * (1.0 + WORTH) {
            best = present;
        }
        let holds = model.holds(&arrivals, &best);
        let idle = |at: usize| model.rates()[at] <= IDLE;
        set_buffers(layout, snapshot, actions, |at| {
            (best[at], Some(holds[at]), if idle(at) { Why::Idle } else { Why::Optimum })
        });
        if !actions.changes.is_empty() {
            let nearest = nearest(layout, &model, &then.delays);
            actions.changes.iter_mut().for_each(|change| change.flow = nearest[change.module]);
        }
        for (flow, delay) in then.delays.iter().enumerate() {
            let Some(slo_s) = layout.flows[flow].slo_s else { continue };
            let told = &model.flows()[flow];
            if let Some(delay) = delay.filter(|delay| *delay > told.slo) {
                let least_s = delay + self.outlook.rest(flow).unwrap_or(0.0);
                actions.unkept.push(Unkept { flow, least_s, slo_s });
            }
        }
    }
}

/// By module: the flow through it that is nearest to its objective, where one has any.
fn nearest(layout: &Layout, model: &Model, delays: &[Option<f64>]) -> Vec<Option<usize>> {
    let mut nearest: Vec<(f64, Option<usize>)> = vec![(0.0, None); layout.modules.len()];
    for (flow, (told, delay)) in model.flows().iter().zip(delays).enumerate() {
        let part = delay.unwrap_or(0.0) / told.slo;
        for &at in told.path.iter().filter(|_| layout.flows[flow].slo_s.is_some()) {
            if part > nearest[at].0 {
                nearest[at] = (part, Some(flow));
            }
        }
    }
    nearest.into_iter().map(|(_, flow)| flow).collect()
}

/// Where packets come so many at a time, and always so many, a trigger that is no multiple of that waits for more than it takes: a
/// smaller one costs a call more, and keeps nobody waiting for the rest of what came together.
fn whole_arrivals(model: &Model, arrivals: &Arrivals, triggers: &mut [usize]) {
    let batches = model.predict(arrivals, triggers).batches;
    for (at, trigger) in triggers.iter_mut().enumerate() {
        let arrives = match arrivals.before[at] {
            Some(before) => arrivals.kept[at] * batches[before],
            None => model.modules()[at].ingress,
        };
        let together = arrives.round();
        if *trigger > 0 && together >= 2.0 && (arrives - together).abs() <= ALWAYS * together {
            *trigger -= *trigger % together as usize;
        }
    }
}

impl DeclareController for Optimal {
    type Params = NoParams;
    const NAME: &'static str = "optimal";
    const SUMMARY: &'static str = "the least load within all delay objectives, solved each period";
    const HELP: &'static str = "Waits for batches where that saves most, as long as every flow keeps its objective.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller Optimal);
