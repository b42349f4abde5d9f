//! Applies a controller's actions between two turns.

use forebay_measure::Clock;
use forebay_protocol::Action;

use super::Worker;
use crate::port::Ready;
use crate::scheduler::share::{check_limit, check_weight};
use crate::scheduler::{Scheduler, ShareError};

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Applies a controller's actions. Only called between turns.
    ///
    /// # Errors
    /// An unknown module, an invalid value, or an action that the scheduler does not support. Then no action is
    /// applied.
    pub fn apply(&mut self, actions: &[Action]) -> Result<(), ActionError> {
        actions.iter().try_for_each(|action| self.check(action))?;
        for action in actions {
            self.make(action);
        }
        // The hold limits are derived once for all actions, because `derive_holds` looks at every buffer.
        if actions.iter().any(|action| matches!(action, Action::SetTrigger { .. } | Action::SetHold { .. })) {
            self.derive_holds();
        }
        Ok(())
    }

    /// Checks an action without applying it. An action that passes must not fail in [`make`](Self::make).
    fn check(&self, action: &Action) -> Result<(), ActionError> {
        let modules = self.modules;
        if let Some(module) = action.module().filter(|module| *module >= modules) {
            return Err(ActionError::Module { module, modules });
        }
        match *action {
            Action::SetTrigger { trigger, .. } if trigger > self.batch => {
                Err(ActionError::Trigger { trigger, batch: self.batch })
            }
            Action::SetWeight { .. } | Action::SetRate { .. } if !S::SHARES => {
                Err(ActionError::Scheduler { scheduler: S::NAME })
            }
            Action::SetWeight { weight, .. } => Ok(check_weight(weight)?),
            Action::SetRate { ref limit, .. } => Ok(limit.as_ref().map_or(Ok(()), check_limit)?),
            Action::SetOffer { factor } if !(factor >= 0.0 && factor.is_finite()) => {
                Err(ActionError::Factor { factor })
            }
            Action::SetTrigger { .. } | Action::SetHold { .. } | Action::SetOffer { .. } => Ok(()),
        }
    }

    /// Applies a checked action. The caller derives the hold limits afterwards.
    fn make(&mut self, action: &Action) {
        // The modules of a fold share one queue: that of the first module.
        let leader = action.module().map_or(0, |module| self.leaders[module]);
        match *action {
            Action::SetTrigger { trigger, .. } => {
                let input = &mut self.nodes[leader].input;
                input.mark(self.counters[leader].packets.get() + input.len() as u64);
                input.set_trigger(trigger, self.batch, self.desk.now, &mut self.spares);
                if input.is_ready() {
                    self.scheduler.ready(leader);
                }
            }
            Action::SetHold { hold, .. } => self.hold_stated[leader] = Some(self.clock.frequency().ticks(hold)),
            Action::SetWeight { weight, .. } => {
                self.scheduler.set_weight(leader, weight);
                self.counters[leader].weight.set(weight.into());
            }
            Action::SetRate { limit, .. } => self.scheduler.set_limit(leader, limit),
            Action::SetOffer { factor } => {
                for gateway in &mut self.gateways {
                    let source = gateway.port.as_mut().and_then(|port| port.schedule());
                    if source.is_some_and(|source| source.set_offer(factor)) {
                        gateway.ready = Ready::Now;
                    }
                }
            }
        }
    }
}

/// Why an action is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ActionError {
    /// The module does not exist.
    #[error("there is no module {module}: the pipeline has {modules}, numbered from 0")]
    Module {
        /// The module in the action.
        module: usize,
        /// The number of modules.
        modules: usize,
    },
    /// The trigger is larger than the largest batch.
    #[error("a trigger of {trigger}: allowed are 0 to {batch}, the largest batch")]
    Trigger {
        /// The trigger in the action.
        trigger: usize,
        /// The largest batch.
        batch: usize,
    },
    /// No source can offer this rate.
    #[error("the factor {factor} for the configured rates is out of range: allowed are 0 or more")]
    Factor {
        /// The factor in the action.
        factor: f64,
    },
    /// The weight or limit is invalid.
    #[error("{}: {_0}", _0.part)]
    Share(#[from] ShareError),
    /// The scheduler does not share time, so it has no weights and limits.
    #[error("the scheduler {scheduler} has no weights and limits: only weighted-fair has them")]
    Scheduler {
        /// The scheduler.
        scheduler: &'static str,
    },
}
