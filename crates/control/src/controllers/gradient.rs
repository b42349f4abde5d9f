//! `gradient`: the controller of the paper (Batchy section 4.3), one projected-gradient step each period.

use forebay_graph::{Actions, Controller, DeclareController, Layout, SetupError, Snapshot, Why, register};
use forebay_models::batching::Model;
use forebay_models::batching::measured::Measured;

use super::NoParams;
use super::rests::Rests;
use crate::outlook::{Outlook, delays};

/// Steps along the gradient; takes buffers away and gives new ones by the paper's rules.
#[derive(Default)]
pub(crate) struct Gradient {
    outlook: Outlook,
    rests: Rests,
}

impl Controller for Gradient {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Actions) {
        let (truer, arrivals) = self.outlook.model(layout, snapshot, guard);
        let written = self.outlook.written(layout, snapshot);
        self.rests.pass(layout.modules.len());
        let mut triggers: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
        let mut why = vec![Why::Gradient; triggers.len()];
        for at in written.needless_buffers(&triggers) {
            (triggers[at], why[at]) = (0, Why::Arrives);
        }
        let told = delays(layout, snapshot);
        let measured = Measured { triggers: &triggers, delays: &told, guard };
        let limit = |flow: usize| layout.flows[flow].slo_s.map(|slo| (1.0 - guard) * slo);
        let violated = (0..told.len()).any(|flow| told[flow].zip(limit(flow)).is_some_and(|(is, may)| is >= may));
        let next = if violated {
            let cut = written.recovery(&measured);
            for at in (0..cut.len()).filter(|at| cut[*at] < triggers[*at]) {
                why[at] = Why::Recovery;
                if cut[at] == 0 {
                    self.rests.begin(at);
                }
            }
            cut
        } else {
            // What a buffer lets go decides about those behind it that have none.
            let attributed = Model::new(written.attributed(&triggers), written.flows().to_vec(), written.largest());
            let attributed = attributed.expect("of a model").with_turn(written.turn());
            let mut next = attributed.gradient_step(&measured);
            let stepped = Measured { triggers: &next.clone(), ..measured };
            for (at, trigger) in written.new_buffers(&stepped) {
                if self.rests.over(at) {
                    (next[at], why[at]) = (trigger, Why::Room);
                }
            }
            next
        };
        let holds = truer.holds(&arrivals, &next);
        for (at, _) in layout.running().filter(|(_, module)| !module.fixed) {
            let hold = Some(holds[at]).filter(|hold| hold.is_finite());
            actions.set(snapshot, at, next[at], hold, (why[at], None));
        }
    }
}

impl DeclareController for Gradient {
    type Params = NoParams;
    const NAME: &'static str = "gradient";
    const SUMMARY: &'static str = "one step each period towards the least load, as the paper Batchy does";
    const HELP: &'static str = "The paper's full controller, with what was wrong with the published one put right.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller Gradient);
