//! `oracle`: the best known triggers. They are found by trial before the experiment and do not change during a run.
//!
//! The candidates are multiples of the triggers to which `optimal` converges, and all constants that were tried. A
//! controller would have to learn these triggers while traffic flows. The difference between `oracle` and `optimal` is
//! therefore the cost of learning and of caution.

use super::constant::{self, Constant};
use crate::batching::figures::Figures;
use crate::batching::scenario::Rule;

/// The multiples that are tried.
const MULTIPLES: &[f64] = &[0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0];
/// The multiples of a short run.
const FEW_MULTIPLES: &[f64] = &[0.8, 1.0, 1.2, 1.5];

/// Triggers that do not change.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Oracle {
    /// The triggers as a multiple of the triggers of `optimal`. `None` if they are a constant.
    pub(super) multiple: Option<f64>,
    /// The constant, if all modules have the same trigger.
    pub(super) constant: Option<usize>,
    /// The settings that set the triggers. Empty if the triggers are a constant, because the controller then sets them.
    pub(super) settings: Vec<String>,
}

impl Oracle {
    /// Returns the controller of the run: `static` with the constant, or `null`, which does not change the triggers
    /// that `settings` sets.
    pub(super) fn rule(&self) -> Rule {
        self.constant.map_or(Rule::new("null"), Rule::constant)
    }
}

/// Returns the candidates: multiples of the given triggers of modules, from 1 to `largest`. Empty if no module has a
/// trigger.
pub(super) fn around(triggers: &[(String, usize)], largest: usize, short: bool) -> Vec<Oracle> {
    if triggers.is_empty() {
        return Vec::new();
    }
    let multiples = if short { FEW_MULTIPLES } else { MULTIPLES };
    let tried = multiples.iter().map(|multiple| {
        let buffers = triggers.iter().map(|(name, trigger)| {
            let trigger = ((*trigger as f64 * multiple).round() as usize).clamp(1, largest);
            // Traffic is steady, so batches fill before the hold time ends.
            format!("\"{name}\": {{ trigger: {trigger}, hold: 1s }}")
        });
        let settings = vec![format!("buffers={{ {} }}", buffers.collect::<Vec<_>>().join(", "))];
        Oracle { multiple: Some(*multiple), constant: None, settings }
    });
    tried.collect()
}

/// Returns the candidate or the constant that carries the most packets while it keeps the objective. `None` if none
/// keeps it.
pub(super) fn best(tried: &[(Oracle, Figures)], constants: &[(usize, Figures)]) -> Option<Oracle> {
    let constant = |trigger: usize| Oracle { multiple: None, constant: Some(trigger), settings: Vec::new() };
    let mut all = tried.to_vec();
    all.extend(constants.iter().map(|(trigger, run)| (constant(*trigger), run.clone())));
    let numbered: Vec<_> = all.iter().enumerate().map(|(at, (_, run))| (at, run.clone())).collect();
    match constant::best(&numbered) {
        Constant { trigger: at, kept: Some(true) } => Some(all.swap_remove(at).0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batching::figures::Tally;

    fn run(rate_pps: f64, violated: u32) -> Figures {
        let tally = Tally { all: 100, stalled: 0, violated };
        Figures { rate_pps, tally, whole: tally, runs: 1, ..Figures::default() }
    }

    #[test]
    fn triggers_grow_together_and_stay_within_a_batch() {
        let tried = around(&[("acl0".to_owned(), 20), ("nat0".to_owned(), 1)], 32, false);
        let of = |multiple: f64| tried.iter().find(|oracle| oracle.multiple == Some(multiple)).expect("tried");
        assert_eq!(
            of(1.0).settings,
            [r#"buffers={ "acl0": { trigger: 20, hold: 1s }, "nat0": { trigger: 1, hold: 1s } }"#]
        );
        assert_eq!(
            of(2.0).settings,
            [r#"buffers={ "acl0": { trigger: 32, hold: 1s }, "nat0": { trigger: 2, hold: 1s } }"#]
        );
        assert!(of(0.7).settings[0].contains(r#""nat0": { trigger: 1,"#), "a module that waited still waits");
        assert!(around(&[], 32, false).is_empty());
    }

    #[test]
    fn the_best_candidate_that_keeps_the_objective_is_chosen() {
        let tried: Vec<_> = around(&[("acl0".to_owned(), 20)], 32, true)
            .into_iter()
            .zip([run(1.0, 0), run(2.0, 0), run(3.0, 50), run(4.0, 90)])
            .collect();
        let chosen = |constants: &[(usize, Figures)]| best(&tried, constants);
        assert_eq!(chosen(&[(8, run(1.5, 0))]).and_then(|oracle| oracle.multiple), Some(1.0));
        assert_eq!(chosen(&[(8, run(2.5, 0))]).map(|oracle| oracle.rule()), Some(Rule::constant(8)));
        assert_eq!(best(&tried[2..], &[(8, run(1.5, 99))]), None);
    }
}
