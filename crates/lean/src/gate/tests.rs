//! Changes that are planted, and what the gate says of them.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::baseline::tests::case;

const LIMIT: f64 = 0.005;

/// A module by what its code costs a call and a packet.
#[derive(Clone, Copy, Debug)]
struct Module {
    per_call: u64,
    per_packet: u64,
    packets: u64,
    batch: u64,
}

impl Module {
    fn part(self, at: usize) -> Part {
        let calls = self.packets.div_ceil(self.batch);
        let instructions = self.per_call * calls + self.per_packet * self.packets;
        Part::new(&format!("m{at}"), "acl", instructions, self.packets, calls)
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
fn what_is_the_same_is_not_found() {
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
    let whole = compared.findings.last().expect("the whole is dearer");
    assert_eq!((whole.why[0].cause, whole.mostly[0].0.as_str()), (Cause::Appeared, "m2"));
    let compared = compare(&three, &two, None, LIMIT);
    assert!(!compared.fails());
    assert_eq!((compared.findings[0].verdict, compared.findings[0].why[0].cause), (Verdict::Cheaper, Cause::Vanished));
}

/// What handing on takes is a call's, and there are more calls: no batch is smaller for it.
#[test]
fn a_module_more_is_no_smaller_batch_for_the_residue() {
    let all = |count: usize, batch| {
        let modules = vec![Module { per_call: 1_000, per_packet: 50, packets: PACKETS, batch }; count];
        let calls = count as u64 * PACKETS.div_ceil(batch);
        pipeline(&modules, calls * 300 + PACKETS * 20)
    };
    let (before, now, other) = (all(2, 32), all(3, 32), all(3, 16));
    let residue = |before, now, other| {
        let compared = compare(before, now, Some(other), LIMIT);
        let found = compared.findings.into_iter().find(|finding| finding.part == "(residue)").expect("it is dearer");
        found.why.into_iter().map(|why| (why.cause, (why.ipp * 1e3).round() / 1e3)).collect::<Vec<_>>()
    };
    assert!(wants(&before, &now, LIMIT).is_some());
    assert_eq!(residue(&before, &now, &other), [(Cause::Appeared, 300.0 / 32.0)]);
    // A module more, and batches of half the size.
    let told = residue(&before, &other, &now);
    assert_eq!(told, [(Cause::Batches, 900.0 / 32.0), (Cause::Appeared, 300.0 / 32.0)]);
}

/// Where triggers decide the batches, another `batch` does not bring those of before back, and nothing tells the causes apart.
#[test]
fn without_the_batches_of_before_the_residue_s_causes_are_not_told_apart() {
    let of = |batch| {
        let module = Module { per_call: 1_000, per_packet: 50, packets: PACKETS, batch };
        pipeline(&[module], PACKETS.div_ceil(batch) * 300 + PACKETS * 20)
    };
    let causes = |other| {
        let compared = compare(&of(32), &of(8), Some(&of(other)), LIMIT);
        let found = compared.findings.into_iter().find(|finding| finding.part == "(residue)").expect("it is dearer");
        found.why.into_iter().map(|why| why.cause).collect::<Vec<_>>()
    };
    assert_eq!(causes(4), [Cause::CodeOrBatches]);
    assert_eq!(causes(32), [Cause::Batches]);
}

#[test]
fn more_packets_on_a_dear_way_are_told_as_that() {
    let of = |packets| Module { per_call: 0, per_packet: 1_000, packets, batch: 32 };
    let compared = compare(&pipeline(&[of(1_000)], 100), &pipeline(&[of(8_000)], 100), None, LIMIT);
    let whole = compared.findings.last().expect("the whole is dearer");
    assert_eq!((whole.verdict, whole.why[0].cause), (Verdict::Dearer, Cause::Traffic));
    assert_eq!(failing(&compared), Vec::<&str>::new(), "no module is dearer by itself");
}

#[test]
fn what_cannot_be_told_apart_is_not() {
    let of = |batch| Module { per_call: 3_000, per_packet: 100, packets: PACKETS, batch };
    let (before, now) = (pipeline(&[of(32)], 100), pipeline(&[of(8)], 100));
    assert_eq!(wants(&before, &now, LIMIT), Some(4.0));
    for other in [None, Some(&now)] {
        let compared = compare(&before, &now, other, LIMIT);
        assert_eq!(compared.findings[0].why[0].cause, Cause::CodeOrBatches);
    }
    let compared = compare(&before, &now, Some(&pipeline(&[of(4)], 100)), LIMIT);
    assert_eq!(compared.findings[0].why.iter().map(|why| why.cause).collect::<Vec<_>>(), [Cause::Batches]);
}

/// A function of three instructions a packet was dearer by 0.7 % wherever the sources lay elsewhere.
#[test]
fn what_compilers_make_of_the_same_code_is_within_the_limit() {
    let of = |per_packet| Module { per_call: 0, per_packet, packets: PACKETS, batch: 32 };
    let (before, mut now) = (pipeline(&[of(3)], 100), pipeline(&[of(3)], 100));
    let old = now.modules[0].clone();
    let mut failing_at = |share: f64, limit: f64| {
        let more = (share * old.packets as f64) as u64;
        now.modules[0] = Part::new(&old.name, &old.function, old.instructions + more, old.packets, old.calls);
        let now = case("usecase:gw", now.modules.clone(), 100, PACKETS);
        failing(&compare(&before, &now, None, limit)).len()
    };
    assert_eq!((failing_at(0.04, LIMIT), failing_at(0.04, 0.0) > 0, failing_at(0.06, LIMIT) > 0), (0, true, true));
}

proptest! {
    /// One module's code dearer or cheaper by any share: that one is found, and no other; beyond the limit and not below.
    #[test]
    fn any_change_of_one_module_is_found_and_called_code(
        modules in modules(), which in any::<prop::sample::Index>(), per_mille in -200i64..200, residue in 0u64..1 << 30,
    ) {
        let before = pipeline(&modules, residue);
        let which = which.index(modules.len());
        let mut now = before.clone();
        let old = before.modules[which].clone();
        let instructions = old.instructions.saturating_add_signed(old.instructions as i64 * per_mille / 1_000);
        now.modules[which] = Part::new(&old.name, &old.function, instructions, old.packets, old.calls);
        now = case("usecase:gw", now.modules, residue, PACKETS);
        let compared = compare(&before, &now, None, LIMIT);
        let [was, is] = [old.instructions, instructions].map(|all| all as f64 / old.packets as f64);
        let dearer = is - was > LIMIT * was && is - was > LEAST;
        prop_assert_eq!(failing(&compared), if dearer { vec![old.name.as_str()] } else { Vec::new() });
        prop_assert_eq!(wants(&before, &now, LIMIT), None);
        for finding in &compared.findings {
            prop_assert_eq!(finding.why.iter().map(|why| why.cause).collect::<Vec<_>>(), [Cause::Code]);
            if finding.part == "(all)" {
                prop_assert_eq!(&finding.mostly[0].0, &old.name);
            }
        }
        prop_assert_eq!(compared.findings.is_empty(), per_mille == 0);
    }

    /// Smaller batches of one module with the same code, or with dearer code beside: each gets its part.
    #[test]
    fn batches_are_told_from_code(
        modules in modules(), which in any::<prop::sample::Index>(), shrink in 2u64..8, more in 0u64..3_000,
    ) {
        let which = which.index(modules.len());
        let mut modules = modules;
        // So that calls are whole, and any batch divides.
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
        let found = found.expect("it has changed, its calls are more");
        let of = |cause| found.why.iter().filter(|why| why.cause == cause).map(|why| why.ipp).sum::<f64>();
        let batches = old.per_call as f64 * (1.0 / old.batch as f64 - 1.0 / 32.0);
        let delta = batches + more as f64;
        let near = |a: f64, b: f64| (a - b).abs() <= delta / 99.0 + 1e-6;
        prop_assert!(near(of(Cause::Batches), batches), "{found:?}: {batches}");
        prop_assert!(near(of(Cause::Code), more as f64), "{found:?}: {more}");
        prop_assert_eq!(found.fails(), delta > LIMIT * found.before.expect("it has packets"));
    }

    /// The parts of the whole's change add up to it.
    #[test]
    fn causes_of_the_whole_add_up(before in modules(), now in modules(), residues in (0u64..1 << 28, 0u64..1 << 28)) {
        let (before, now) = (pipeline(&before, residues.0), pipeline(&now, residues.1));
        let compared = compare(&before, &now, None, 0.0);
        let Some(whole) = compared.findings.iter().find(|finding| finding.part == "(all)") else { return Ok(()) };
        let delta = whole.now.expect("packets") - whole.before.expect("packets");
        let sum: f64 = whole.why.iter().map(|why| why.ipp).sum();
        // Up to six causes, of which each that is left out is a hundredth at most.
        prop_assert!((sum - delta).abs() <= 0.06 * delta.abs() + 1e-6, "{sum} of {delta}: {whole:?}");
    }
}

#[test]
fn of_two_builds_what_both_have_is_compared_and_the_rest_is_told() {
    // Functions make themselves known by being linked.
    use forebay_functions as _;

    let here = crate::cases::built_in("functions").into_iter().chain(crate::cases::built_in("usecases"));
    let here: BTreeSet<String> = here.map(|asked| asked.pipeline).collect();
    let mut there = here.clone();
    assert!(there.remove("function:ttl") && there.remove("usecase:gw"));
    there.extend(["function:old", "usecase:older"].map(str::to_owned));
    let of = |named: &[&str]| {
        let named: Vec<_> = named.iter().map(|name| (*name).to_owned()).collect();
        let told = run::shared(&named, &[], &here, &there);
        (told.asked.len(), told.new, told.gone)
    };
    let (functions, usecases) = (forebay_graph::functions().len(), forebay_pipeline::usecases().len());
    let (ttl, old) = (vec!["function:ttl".to_owned()], vec!["function:old".to_owned()]);
    assert_eq!(of(&["functions"]), (functions - 1, ttl.clone(), old));
    let (asked, new, gone) = of(&["functions", "usecases"]);
    assert_eq!((asked, new.len(), gone.len()), (functions + usecases - 2, 2, 2));
    assert_eq!(of(&["function:ttl", "function:acl", "mine.yaml"]), (2, ttl, Vec::new()));
    assert_eq!(of(&["function:old", "function:acl"]), (1, Vec::new(), vec!["function:old".to_owned()]));
}
