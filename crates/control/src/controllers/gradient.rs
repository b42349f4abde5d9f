//! `gradient`: the controller of the paper (Batchy section 4.3). It makes one projected-gradient step each period.

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_models::batching::{Model, measured::Measured};
use forebay_protocol::{ChangeReason, Decision, Layout, Snapshot};

use super::cooldowns::Cooldowns;
use super::{NoParams, set_buffers};
use crate::outlook::Outlook;
use crate::period::longest_delays;

/// Steps along the gradient. Removes buffers and adds new buffers by the paper's rules.
#[derive(Default)]
pub(crate) struct Gradient {
    outlook: Outlook,
    cooldowns: Cooldowns,
}

impl Controller for Gradient {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, guard: f64, actions: &mut Decision) {
        self.outlook.learn(layout, snapshot);
        let (truer, arrivals) = self.outlook.model(layout, snapshot, guard);
        let written = self.outlook.written(layout, snapshot);
        self.cooldowns.pass(layout, snapshot);
        let present: Vec<usize> = snapshot.modules.iter().map(|module| module.trigger).collect();
        let delays = longest_delays(layout, snapshot);
        let stated: Vec<bool> = layout.modules.iter().map(|module| module.fixed).collect();
        let measured = Measured { triggers: &present, stays: &stated, delays: &delays, guard };
        let (mut next, mut why) = (present.clone(), vec![ChangeReason::Gradient; present.len()]);
        for at in written.needless_buffers(&measured) {
            (next[at], why[at]) =
                (0, if written.waits_too_long(at, present[at]) { ChangeReason::Slow } else { ChangeReason::Arrives });
        }
        // First, triggers of flows that are too slow are cut. Other flows keep their spare time.
        let delays = written.delays_after(&measured, &next);
        let cut = written.recovery(&Measured { triggers: &next, delays: &delays, ..measured });
        for at in (0..cut.len()).filter(|at| cut[*at] < next[*at]) {
            why[at] = ChangeReason::Recovery;
            self.cooldowns.begin(at);
        }
        // A buffer that was reduced is not enlarged at once, and no time is reserved for it.
        let cooling: Vec<bool> =
            (stated.iter().enumerate()).map(|(at, stated)| *stated || !self.cooldowns.over(at)).collect();
        // Modules without buffers get the batches of the buffer before them, so their costs count at this buffer.
        let attributed = Model::new(written.attributed(&cut), written.flows().to_vec(), written.largest());
        let attributed = attributed.expect("the parts come from a valid model").with_turn(written.turn());
        let attributed = attributed.with_rates(written.rates().iter().copied());
        let delays = written.delays_after(&measured, &cut);
        next = attributed.gradient_step(&Measured { triggers: &cut, stays: &cooling, delays: &delays, guard });
        let delays = written.delays_after(&measured, &next);
        let after = Measured { triggers: &next, stays: &cooling, delays: &delays, guard };
        for (at, trigger) in written.new_buffers(&after) {
            (next[at], why[at]) = (trigger, ChangeReason::Room);
        }
        let holds = truer.holds(&arrivals, &next);
        set_buffers(layout, snapshot, actions, |at| (next[at], Some(holds[at]), why[at]));
    }
}

impl DeclareController for Gradient {
    type Params = NoParams;
    const NAME: &'static str = "gradient";
    const SUMMARY: &'static str = "one step each period towards the least load, as in the Batchy paper";
    const HELP: &'static str = "The full controller of the Batchy paper, without the errors of the published version.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self::default())
    }
}

register!(controller Gradient);
