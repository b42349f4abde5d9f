//! `fair`: the explicit-scheduling model (Batchy equations 8 to 10) for the weighted-fair scheduler, with rate
//! objectives.
//!
//! Equations 8 to 10 determine executions per second, `x_v`. This controller sets triggers `b_v = R_v/x_v` instead,
//! where `R_v` is the rate of packets at module v. They are the triggers with the least load within all delay
//! objectives, as `optimal` computes them. A weight of this engine is a share of a worker's time. Module v gets the
//! time of its executions, `x_v·T0_v + R_v·T1_v`, with the time `T0_v` per call and `T1_v` per packet. If there is not
//! enough time for all packets, `R_v` is reduced: rate objectives come first, and the remaining time gives max-min fair
//! rates.

mod admitted;
mod demands;

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_models::max_min::Shares;
use forebay_protocol::{
    Decision, Layout, SchedulerKind, ShortCause, ShortFlow, Snapshot, UnkeptCause, UnkeptObjective,
};

use super::NoParams;
use super::optimal::Optimal;
use super::weighted::set_weights;
use crate::period::delays;
use admitted::Admitted;
use demands::{Demands, Gate, Rates, cost, parts};

/// A module that turns away no packets gets a weight for this multiple of the time that it needs. Packets that arrive
/// unevenly then do not wait. The module still uses only the time that it needs.
const HEADROOM: f64 = 1.5;
/// The least fraction of a worker's available time that a module gets. With it, an idle module can process its first
/// packets.
const START: f64 = 0.01;
/// A weight is changed if the new value differs from the present value by more than this fraction.
const WORTH: f64 = 0.01;
/// Two rates count as equal if they differ by at most this fraction.
const NEAR: f64 = 0.01;

/// Sets weights and triggers for the least load, and limits rates in overload.
#[derive(Default)]
pub(crate) struct Fair {
    triggers: Optimal,
    rates: Rates,
}

impl Controller for Fair {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Decision) {
        self.rates.pass(snapshot);
        let in_packets = self.rates.in_packets(layout);
        let layout = in_packets.as_ref().unwrap_or(layout);
        let demands = Demands::new(layout, snapshot, &self.rates, guard);
        let admitted = Admitted::new(layout, &demands);
        self.set_triggers(layout, snapshot, (&demands.gates, &admitted.restricted), guard, actions);
        let needs = needs(layout, snapshot, &admitted, actions);
        set_weights(layout, snapshot, &needs, WORTH, actions);
        self.report_short(layout, snapshot, (&demands, &admitted.shares), guard, actions);
    }
}

impl Fair {
    /// Sets the triggers. Packets of a flow that gets less than it offers wait in a queue, whatever the triggers are.
    /// The delay objective of this flow is ignored until the flow gets its rate. If the flow is late, it is reported as
    /// a flow whose objective is not kept.
    fn set_triggers(
        &mut self,
        layout: &Layout,
        snapshot: &Snapshot,
        (gates, restricted): (&[Gate], &[bool]),
        guard: f64,
        actions: &mut Decision,
    ) {
        if !restricted.contains(&true) {
            return self.triggers.decide(layout, snapshot, guard, actions);
        }
        let mut without = layout.clone();
        let held = gates.iter().zip(restricted).filter(|(_, restricted)| **restricted);
        let held: Vec<usize> = held.flat_map(|(gate, _)| &gate.flows).map(|(flow, _)| *flow).collect();
        held.iter().for_each(|flow| without.flows[*flow].slo_s = None);
        self.triggers.decide(&without, snapshot, guard, actions);
        let took = delays(layout, snapshot);
        for flow in held {
            let of = &layout.flows[flow];
            let Some(slo_s) = of.slo_s.filter(|slo| took[flow].is_some_and(|delay| delay > *slo)) else { continue };
            // No trigger changes the wait in the full queue. Without this wait, the calls on the path remain.
            let call = |at: &usize| cost(snapshot, *at).at(snapshot.modules[*at].batch().unwrap_or(1.0));
            let least_s = of.path.iter().map(call).sum();
            let cause = if least_s < (1.0 - guard) * slo_s { UnkeptCause::Share } else { UnkeptCause::Slow };
            actions.unkept.push(UnkeptObjective { flow, least_s, slo_s, cause });
        }
    }

    /// Adds the flows that do not have their rates, with the reasons, to `actions.short`.
    fn report_short(
        &self,
        layout: &Layout,
        snapshot: &Snapshot,
        (demands, shares): (&Demands, &Shares),
        guard: f64,
        actions: &mut Decision,
    ) {
        for (at, gate) in demands.gates.iter().enumerate() {
            for &(flow, part) in &gate.flows {
                let (rate, Some(stated)) = (self.rates.departed(flow), layout.flows[flow].min_rate) else { continue };
                // A `part` of 0 means that the flow has no packets.
                if rate >= (1.0 - NEAR) * stated || part <= 0.0 {
                    continue;
                }
                let shared = || layout.flows[flow].path.iter().copied().take_while(|before| *before < gate.module);
                let wanted = stated.min(gate.offered * part);
                let cause = if shares.rates[at] * part < (1.0 - NEAR) * wanted {
                    let with = gate.flows.iter().map(|(other, _)| *other).find(|other| *other != flow);
                    missing(layout, demands, (with, gate.module), guard)
                } else if let Some(module) = shared().find(|before| self.rates.is_full(layout, snapshot, *before)) {
                    ShortCause::Held { module }
                } else {
                    continue;
                };
                actions.short.push(ShortFlow { flow, rate, stated, cause });
            }
        }
    }
}

/// Returns why a gate cannot pass as many packets as one of its flows needs. Either there is not enough time for the
/// stated rates, or there is not enough time for the other packets that pass the gate together with the flow. `with` is
/// another flow of the gate, if there is one, and `module` is the gate's module.
fn missing(layout: &Layout, demands: &Demands, (with, module): (Option<usize>, usize), guard: f64) -> ShortCause {
    let stated = |gate: &Gate, flow: usize, part: f64| {
        layout.flows[flow].min_rate.map_or(0.0, |stated| stated.min(gate.offered * part))
    };
    let (worker, load) = demands.busiest(layout, stated);
    match with {
        Some(with) if load <= 1.0 => ShortCause::Together { with, module },
        _ if load > 1.0 => ShortCause::Time { worker, load },
        // The time is sufficient for the stated rates alone. But other packets arrive between the packets of these
        // flows, and pass the gates, too. The load that is reported includes these other packets.
        _ => {
            let along = |gate: &Gate, _: usize, part: f64| (gate.promised * (1.0 - guard)).min(gate.offered) * part;
            let (worker, load) = demands.busiest(layout, along);
            ShortCause::Time { worker, load }
        }
    }
}

/// Returns, by module, the fraction of time that the module needs on each of its workers.
fn needs(
    layout: &Layout,
    snapshot: &Snapshot,
    Admitted { demands, shares, restricted, part }: &Admitted,
    actions: &Decision,
) -> Vec<f64> {
    let mut triggers: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
    actions.changes.iter().for_each(|change| triggers[change.module] = change.to);
    let mut turns_away = vec![false; layout.modules.len()];
    let (mut rates, mut promised) = (demands.before.clone(), vec![0.0; layout.modules.len()]);
    for (at, gate) in demands.gates.iter().enumerate() {
        turns_away[gate.module] = restricted[at];
        for (module, part) in gate.behind(layout) {
            rates[module] += shares.rates[at] * part;
            promised[module] += gate.promised * part;
        }
    }
    let need = |at: usize, rate: f64| {
        let batch = snapshot.modules[at].batch().unwrap_or(1.0).max(triggers[at] as f64).max(1.0);
        let (executions, cost) = (rate / batch, cost(snapshot, at));
        (executions * cost.fixed + rate * cost.each) / layout.modules[at].workers.len().max(1) as f64
    };
    (0..layout.modules.len())
        .map(|at| {
            if turns_away[at] {
                return need(at, rates[at]);
            }
            let most: f64 =
                parts(layout, at).filter_map(|(worker, _)| demands.whole.get(worker)).fold(0.0, |a, b| a.max(*b));
            // If only a part of the packets is to be admitted, modules before gates get no headroom: with more time,
            // they would admit more packets.
            let headroom = if *part < 1.0 && demands.before[at] > 0.0 { 1.0 } else { HEADROOM };
            need(at, (headroom * rates[at]).max(promised[at])).max(START * most)
        })
        .collect()
}

impl DeclareController for Fair {
    type Params = NoParams;
    const NAME: &'static str = "fair";
    const SUMMARY: &'static str =
        "the least load within all delay objectives; in overload, each flow's `min_rate` first, then fair shares";
    const HELP: &'static str = "For `scheduler: weighted-fair`. The controller sets triggers as `optimal` does. It \
         derives the weights from the time that modules need. If there is not enough time for all packets, each flow \
         gets its `min_rate` or the rate it offers, whichever is lower. The remaining time is shared so that the \
         lowest rate is as high as possible. If flows share a port, set `shares` with `when_full: drop` for the \
         modules behind the split. Otherwise the flows wait for each other.";
    const EXAMPLE: &'static str = "{}";
    const SCHEDULER: Option<SchedulerKind> = Some(SchedulerKind::WeightedFair);
    const RATES: bool = true;

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller Fair);
