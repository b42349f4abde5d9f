//! `gradient`: the controller of the paper (Batchy section 4.3), one projected-gradient step each period.

use forebay_graph::{Actions, Controller, DeclareController, Layout, SetupError, Snapshot, Why, register};
use forebay_models::batching::Model;
use forebay_models::batching::measured::Measured;

use super::rests::Rests;
use super::{NoParams, set_buffers};
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
        let present: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
        let told = delays(layout, snapshot);
        let measured = Measured { triggers: &present, delays: &told, guard };
        let (mut next, mut why) = (present.clone(), vec![Why::Gradient; present.len()]);
        for at in written.needless_buffers(&next) {
            (next[at], why[at]) = (0, Why::Arrives);
        }
        // Flows that are too slow are helped first; what others have time for is theirs all the same.
        let delays = written.delays_after(&measured, &next);
        let cut = written.recovery(&Measured { triggers: &next, delays: &delays, guard });
        for at in (0..cut.len()).filter(|at| cut[*at] < next[*at]) {
            why[at] = Why::Recovery;
            if cut[at] == 0 {
                self.rests.begin(at);
            }
        }
        // What a buffer lets go decides about those behind it that have none.
        let attributed = Model::new(written.attributed(&cut), written.flows().to_vec(), written.largest());
        let attributed = attributed.expect("of a model").with_turn(written.turn());
        let delays = written.delays_after(&measured, &cut);
        next = attributed.gradient_step(&Measured { triggers: &cut, delays: &delays, guard });
        let delays = written.delays_after(&measured, &next);
        for (at, trigger) in written.new_buffers(&Measured { triggers: &next, delays: &delays, guard }) {
            if self.rests.over(at) {
                (next[at], why[at]) = (trigger, Why::Room);
            }
        }
        let holds = truer.holds(&arrivals, &next);
        set_buffers(layout, snapshot, actions, |at| (next[at], Some(holds[at]), why[at]));
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
