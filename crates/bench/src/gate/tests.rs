//! Made-up changes, and the gate's findings for them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::baseline::tests::case;

const LIMIT: f64 = 0.005;

/// A module, defined by the cost of its code per call and per packet.
#[derive(Clone, Copy, Debug)]
struct Module {
    per_call: u64,
    per_packet: u64,
    packets: u64,
    batch: u64,
}

impl Module {
    fn part(self, at: usize) -> PartCounts {
        let calls = self.packets.div_ceil(self.batch);
        let instructions = self.per_call * calls + self.per_packet * self.packets;
        PartCounts::new(&format!("m{at}"), "acl", instructions, self.packets, calls)
    }
}

const PACKETS: u64 = 16_384;

fn pipeline(modules: &[Module], residue: u64) -> Case {
    let parts = modules.iter().enumerate().map(|(at, module)| module.part(at)).collect();
    case("usecase:gw", parts, residue, PACKETS)
}

fn module() -> impl Strategy<Value = Module> {
    (1_000u64..100_000, 1_000u64..100_000, 1u64..=PACKETS, 2u64..=32)
        .prop_map(|(per_call, per_packet, packets, batch)| Module { per_call, per_packet, packets, batch })
}

fn modules() -> impl Strategy<Value = Vec<Module>> {
    prop::collection::vec(module(), 1..12)
}

fn failing(compared: &Compared) -> Vec<&str> {
    let modules = compared.findings.iter().filter(|finding| finding.fails() && finding.part != "(all)");
    modules.map(|finding| finding.part.as_str()).collect()
}

#[test]
fn equal_figures_give_no_finding() {
    let one = pipeline(&[Module { per_call: 10, per_packet: 20, packets: 100, batch: 7 }], 5_000);
    let compared = compare(&one, &one, None, 0.0);
    assert_eq!((compared.findings.len(), compared.parts, compared.fails()), (0, 3, false));
    assert_eq!((compared.case.as_str(), wants(&one, &one, 0.0)), ("usecase:gw n=4", None));
}

#[test]
fn modules_that_come_and_go_are_named() {
    let all = |count: usize| vec![Module { per_call: 1_000, per_packet: 50, packets: PACKETS, batch: 32 }; count];
    let (two, three) = (pipeline(&all(2), 9_000), pipeline(&all(3), 9_000));
    let compared = compare(&two, &three, None, LIMIT);
    assert_eq!(failing(&compared), ["m2"]);
    let whole = compared.findings.last().expect("the whole has increased");
    assert_eq!((whole.why[0].cause, whole.mostly[0].0.as_str()), (GateCause::Appeared, "m2"));
    let compared = compare(&three, &two, None, LIMIT);
    assert!(!compared.fails());
    assert_eq!(
        (compared.findings[0].verdict, compared.findings[0].why[0].cause),
        (GateVerdict::Decreased, GateCause::Vanished)
    );
}

/// Passing packets on to a module has a cost per call. A further module means more calls, but not smaller batches.
#[test]
fn another_module_does_not_count_as_smaller_batches_of_the_residue() {
    let all = |count: usize, batch| {
        let modules = vec![Module { per_call: 1_000, per_packet: 50, packets: PACKETS, batch }; count];
        let calls = count as u64 * PACKETS.div_ceil(batch);
        pipeline(&modules, calls * 300 + PACKETS * 20)
    };
    let (before, now, other) = (all(2, 32), all(3, 32), all(3, 16));
    let residue = |before, now, other| {
        let compared = compare(before, now, Some(other), LIMIT);
        let found = compared
            .findings
            .into_iter()
            .find(|finding| finding.part == "(residue)")
            .expect("the residue has increased");
        found.why.into_iter().map(|why| (why.cause, (why.ipp * 1e3).round() / 1e3)).collect::<Vec<_>>()
    };
    assert!(wants(&before, &now, LIMIT).is_some());
    assert_eq!(residue(&before, &now, &other), [(GateCause::Appeared, 300.0 / 32.0)]);
    // One more module, and batches of half the size.
    let causes = residue(&before, &other, &now);
    assert_eq!(causes, [(GateCause::Batches, 900.0 / 32.0), (GateCause::Appeared, 300.0 / 32.0)]);
}

/// If triggers decide the batches, another `batch` does not restore the earlier batches, and the causes cannot be
/// separated.
#[test]
fn without_the_earlier_batches_the_residues_causes_are_not_separated() {
    let of = |batch| {
        let module = Module { per_call: 1_000, per_packet: 50, packets: PACKETS, batch };
        pipeline(&[module], PACKETS.div_ceil(batch) * 300 + PACKETS * 20)
    };
    let causes = |other| {
        let compared = compare(&of(32), &of(8), Some(&of(other)), LIMIT);
        let found = compared
            .findings
            .into_iter()
            .find(|finding| finding.part == "(residue)")
            .expect("the residue has increased");
        found.why.into_iter().map(|why| why.cause).collect::<Vec<_>>()
    };
    assert_eq!(causes(4), [GateCause::CodeOrBatches]);
    assert_eq!(causes(32), [GateCause::Batches]);
}

#[test]
fn more_packets_on_an_expensive_path_are_reported_as_traffic() {
    let of = |packets| Module { per_call: 0, per_packet: 1_000, packets, batch: 32 };
    let compared = compare(&pipeline(&[of(1_000)], 100), &pipeline(&[of(8_000)], 100), None, LIMIT);
    let whole = compared.findings.last().expect("the whole has increased");
    assert_eq!((whole.verdict, whole.why[0].cause), (GateVerdict::Increased, GateCause::Traffic));
    assert_eq!(failing(&compared), Vec::<&str>::new(), "no module has increased by itself");
}

#[test]
fn causes_are_not_separated_without_another_count() {
    let of = |batch| Module { per_call: 3_000, per_packet: 100, packets: PACKETS, batch };
    let (before, now) = (pipeline(&[of(32)], 100), pipeline(&[of(8)], 100));
    assert_eq!(wants(&before, &now, LIMIT), Some(4.0));
    for other in [None, Some(&now)] {
        let compared = compare(&before, &now, other, LIMIT);
        assert_eq!(compared.findings[0].why[0].cause, GateCause::CodeOrBatches);
    }
    let compared = compare(&before, &now, Some(&pipeline(&[of(4)], 100)), LIMIT);
    assert_eq!(compared.findings[0].why.iter().map(|why| why.cause).collect::<Vec<_>>(), [GateCause::Batches]);
}

/// A function of three instructions per packet increased by 0.7 % whenever the sources were in another folder.
#[test]
fn differences_between_compilations_of_the_same_code_are_within_the_limit() {
    let of = |per_packet| Module { per_call: 0, per_packet, packets: PACKETS, batch: 32 };
    let (before, mut now) = (pipeline(&[of(3)], 100), pipeline(&[of(3)], 100));
    let old = now.modules[0].clone();
    let mut failing_at = |share: f64, limit: f64| {
        let more = (share * old.packets as f64) as u64;
        now.modules[0] = PartCounts::new(&old.name, &old.function, old.instructions + more, old.packets, old.calls);
        let now = case("usecase:gw", now.modules.clone(), 100, PACKETS);
        failing(&compare(&before, &now, None, limit)).len()
    };
    assert_eq!((failing_at(0.04, LIMIT), failing_at(0.04, 0.0) > 0, failing_at(0.06, LIMIT) > 0), (0, true, true));
}

proptest! {
    /// The code of one module changes by any share. The gate finds this module and no other, only beyond the limit.
    #[test]
    fn any_change_of_one_module_is_found_and_called_code(
        modules in modules(),
        which in any::<prop::sample::Index>(),
        per_mille in -200i64..200,
        residue in 0u64..1 << 30,
    ) {
        let before = pipeline(&modules, residue);
        let which = which.index(modules.len());
        let mut now = before.clone();
        let old = before.modules[which].clone();
        let instructions = old.instructions.saturating_add_signed(old.instructions as i64 * per_mille / 1_000);
        now.modules[which] = PartCounts::new(&old.name, &old.function, instructions, old.packets, old.calls);
        now = case("usecase:gw", now.modules, residue, PACKETS);
        let compared = compare(&before, &now, None, LIMIT);
        let [was, is] = [old.instructions, instructions].map(|all| all as f64 / old.packets as f64);
        let increased = is - was > LIMIT * was && is - was > LEAST;
        prop_assert_eq!(failing(&compared), if increased { vec![old.name.as_str()] } else { Vec::new() });
        prop_assert_eq!(wants(&before, &now, LIMIT), None);
        for finding in &compared.findings {
            prop_assert_eq!(finding.why.iter().map(|why| why.cause).collect::<Vec<_>>(), [GateCause::Code]);
            if finding.part == "(all)" {
                prop_assert_eq!(&finding.mostly[0].0, &old.name);
            }
        }
        prop_assert_eq!(compared.findings.is_empty(), per_mille == 0);
    }

    /// Smaller batches of one module, with the same code or with more code. Each cause gets its part.
    #[test]
    fn effects_of_batches_and_code_are_separated(
        modules in modules(), which in any::<prop::sample::Index>(), shrink in 2u64..8, more in 0u64..3_000,
    ) {
        let which = which.index(modules.len());
        let mut modules = modules;
        // All calls are full batches, whatever the batch size.
        modules[which].packets = PACKETS;
        modules[which].batch = 32;
        let before = pipeline(&modules, 1_000);
        modules[which].batch = (32 / shrink).next_power_of_two();
        modules[which].per_packet += more;
        let now = pipeline(&modules, 1_000);
        let old = modules[which];
        modules[which].batch *= 2;
        let other = pipeline(&modules, 1_000);
        let compared = compare(&before, &now, Some(&other), LIMIT);
        let name = format!("m{which}");
        let found = compared.findings.iter().find(|finding| finding.part == name);
        let found = found.expect("the module has more calls");
        let of = |cause| found.why.iter().filter(|why| why.cause == cause).map(|why| why.ipp).sum::<f64>();
        let batches = old.per_call as f64 * (1.0 / old.batch as f64 - 1.0 / 32.0);
        let delta = batches + more as f64;
        let near = |a: f64, b: f64| (a - b).abs() <= delta / 99.0 + 1e-6;
        prop_assert!(near(of(GateCause::Batches), batches), "{found:?}: {batches}");
        prop_assert!(near(of(GateCause::Code), more as f64), "{found:?}: {more}");
        prop_assert_eq!(found.fails(), delta > LIMIT * found.before.expect("it has packets"));
    }

    /// The causes of the change of the whole add up to it.
    #[test]
    fn causes_of_the_whole_add_up(before in modules(), now in modules(), residues in (0u64..1 << 28, 0u64..1 << 28)) {
        let (before, now) = (pipeline(&before, residues.0), pipeline(&now, residues.1));
        let compared = compare(&before, &now, None, 0.0);
        let Some(whole) = compared.findings.iter().find(|finding| finding.part == "(all)") else { return Ok(()) };
        let delta = whole.now.expect("packets") - whole.before.expect("packets");
        let sum: f64 = whole.why.iter().map(|why| why.ipp).sum();
        // There are up to six causes; each cause that is left out is at most one hundredth.
        prop_assert!((sum - delta).abs() <= 0.06 * delta.abs() + 1e-6, "{sum} of {delta}: {whole:?}");
    }
}

#[test]
fn two_builds_are_compared_by_their_common_pipelines_and_the_rest_is_listed() {
    // Functions register themselves when they are linked.
    use forebay_functions as _;

    let own = crate::cases::built_in("functions").into_iter().chain(crate::cases::built_in("usecases"));
    let own: BTreeSet<String> = own.map(|request| request.pipeline).collect();
    let mut others = own.clone();
    assert!(others.remove("function:ttl") && others.remove("usecase:gw"));
    others.extend(["function:old", "usecase:older"].map(str::to_owned));
    let of = |named: &[&str]| {
        let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
        let shared = run::shared(&named, &[], &own, &others);
        (shared.requests.len(), shared.new, shared.gone)
    };
    let (functions, usecases) = (forebay_graph::functions().len(), forebay_pipeline::usecases().len());
    let (ttl, old) = (vec!["function:ttl".to_owned()], vec!["function:old".to_owned()]);
    assert_eq!(of(&["functions"]), (functions - 1, ttl.clone(), old));
    let (compared, new, gone) = of(&["functions", "usecases"]);
    assert_eq!((compared, new.len(), gone.len()), (functions + usecases - 2, 2, 2));
    assert_eq!(of(&["function:ttl", "function:acl", "mine.yaml"]), (2, ttl, Vec::new()));
    assert_eq!(of(&["function:old", "function:acl"]), (1, Vec::new(), vec!["function:old".to_owned()]));
}
