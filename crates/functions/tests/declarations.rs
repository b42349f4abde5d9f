//! Requirements of every registered function: its documentation is complete, its example works, and no frame makes it
//! panic or lose a packet.

use std::collections::BTreeSet;

use etherparse::PacketBuilder;
use forebay_functions as _;
use forebay_graph::{Decision, Declaration, Gate, Rig, Setup, SetupEnvironment, functions, states};
use forebay_packet::Batch;
use forebay_units::Frequency;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

/// Parses an example's YAML as a configuration would.
fn read(name: &str, example: &str) -> Value {
    serde_saphyr::from_str(example).unwrap_or_else(|error| panic!("{name}: its example is not YAML: {error}"))
}

/// Returns a setup environment with a state of every type, under the name of the type, so that examples can refer to
/// it. Files that examples name are in a folder for this run.
fn environment() -> SetupEnvironment {
    let mut all = SetupEnvironment::new(Frequency::new(1e9));
    all.files.base = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for state in states() {
        let mut setup = Setup::new(state.name, &mut all);
        let built = state.build(&read(state.name, state.example), &mut setup);
        let built = built.unwrap_or_else(|error| panic!("state {}: its example does not build: {error}", state.name));
        all.objects.states.insert(state.name.to_owned(), built);
    }
    all
}

fn rig(function: &Declaration) -> Rig {
    let mut environment = environment();
    let mut setup = Setup::new(function.name, &mut environment);
    let built = function.build(&read(function.name, function.example), &mut setup);
    let built = built.unwrap_or_else(|error| panic!("{}: its example does not build: {error}", function.name));
    Rig::over(built, setup.finish(), function.creates.len())
}

#[test]
fn every_example_builds() {
    assert!(!functions().is_empty(), "functions register themselves");
    for function in functions() {
        let gates = rig(function).declared.gates;
        assert!(!gates.is_empty(), "{}", function.name);
    }
}

#[test]
fn names_are_unique_and_all_is_documented() {
    let named = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
    };
    let mut names = BTreeSet::new();
    for function in functions() {
        let name = function.name;
        assert!(named(name) && names.insert(name), "'{name}' is snake_case and unique");
        assert!(
            !function.summary.is_empty() && !function.summary.contains('\n') && !function.summary.ends_with('.'),
            "{name}: one line"
        );
        assert!(function.help.len() > 40, "{name}: help");
        for reasons in [function.drops, function.creates, function.consumes] {
            let unique: BTreeSet<_> = reasons.iter().map(|reason| reason.name).collect();
            assert_eq!(unique.len(), reasons.len(), "{name}: reasons are unique");
            for reason in reasons {
                assert!(named(reason.name) && reason.help.ends_with('.'), "{name}: reason '{}'", reason.name);
            }
        }
    }
}

#[test]
fn every_parameter_has_help() {
    for function in functions() {
        let schema = serde_json::to_value((function.schema)(&mut schemars::SchemaGenerator::new(
            schemars::generate::SchemaSettings::default().with(|settings| settings.inline_subschemas = true),
        )))
        .expect("a schema is JSON");
        for (key, parameter) in schema["properties"].as_object().into_iter().flatten() {
            assert!(
                parameter["description"].is_string(),
                "{}: parameter '{key}' has no documentation: {parameter}",
                function.name
            );
        }
    }
}

#[test]
fn unknown_keys_are_refused() {
    for function in functions() {
        let mut environment = environment();
        let mut params = read(function.name, function.example);
        params.as_object_mut().expect("parameters are a map").insert("no_such_key".to_owned(), json!(1));
        let refused = function.build(&params, &mut Setup::new(function.name, &mut environment)).err();
        let error = refused.unwrap_or_else(|| panic!("{}: takes any key", function.name)).to_string();
        assert!(error.contains("no_such_key"), "{}: {error}", function.name);
    }
}

/// Returns complete frames of the types that functions look into.
fn complete_frames() -> Vec<Vec<u8>> {
    let ethernet = || PacketBuilder::ethernet2([2; 6], [2, 0, 0, 0, 0, 1]);
    let mut frames = vec![Vec::new(); 7];
    ethernet().ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64).udp(53, 53).write(&mut frames[0], b"payload").expect("memory");
    ethernet().ipv4([10, 0, 0, 1], [192, 0, 2, 1], 2).tcp(80, 443, 1, 2).write(&mut frames[1], b"").expect("memory");
    ethernet().ipv6([1; 16], [2; 16], 64).udp(1, 2).write(&mut frames[2], b"payload").expect("memory");
    ethernet().ipv6([1; 16], [2; 16], 64).tcp(1, 2, 3, 4).write(&mut frames[3], b"payload").expect("memory");
    let quoted = frames[0][14..].to_vec();
    ethernet()
        .ipv4([10, 0, 0, 1], [192, 0, 2, 1], 64)
        .icmpv4_raw(3, 1, [0; 4])
        .write(&mut frames[4], &quoted)
        .expect("memory");
    let vlan = |id| etherparse::VlanId::try_new(id).expect("an identifier");
    ethernet().single_vlan(vlan(100)).ipv4([1; 4], [2; 4], 64).udp(1, 2).write(&mut frames[5], b"abc").expect("memory");
    ethernet()
        .double_vlan(vlan(100), vlan(200))
        .ipv6([1; 16], [2; 16], 1)
        .udp(1, 2)
        .write(&mut frames[6], b"abc")
        .expect("memory");
    frames
}

/// Generates random bytes, or a complete frame with some bytes changed, cut at any offset.
fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let mutated =
        (prop::sample::select(complete_frames()), vec((any::<prop::sample::Index>(), any::<u8>()), 0..6), 0usize..200)
            .prop_map(|(mut frame, changes, cut)| {
                for (at, value) in changes {
                    let at = at.index(frame.len());
                    frame[at] = value;
                }
                frame.truncate(cut);
                frame
            });
    prop_oneof![vec(any::<u8>(), 0..200), mutated]
}

#[test]
fn no_frame_makes_a_function_panic_or_lose_a_packet() {
    for function in functions() {
        let rig = std::cell::RefCell::new(rig(function));
        let mut runner = TestRunner::new(Config { cases: 256, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&vec(hostile(), 1..40), |frames| {
            let rig = &mut *rig.borrow_mut();
            let mut batch = Batch::with_capacity(frames.len());
            for frame in &frames {
                batch.push(rig.packet(frame)).expect("room");
            }
            let made = |rig: &Rig| rig.created().iter().sum::<u64>() as usize;
            let (held, created) = (rig.held(), made(rig));
            let gates = rig.process(&mut batch);
            let emitted = rig.emitted();
            // Packets held before may be released.
            let released = emitted.len() - (made(rig) - created);
            prop_assert_eq!(gates.len(), frames.len(), "every packet has a gate");
            prop_assert_eq!(
                batch.len() + rig.held() + released,
                frames.len() + held,
                "every packet is forwarded or held"
            );
            for gate in gates.into_iter().flatten().chain(emitted.into_iter().map(|(_, gate)| gate)) {
                prop_assert!(exists(function, gate, rig.declared.gates.len()), "{gate:?} does not exist");
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", function.name));
    }
}

/// Returns true if the module has the gate, or if the drop reason is declared.
fn exists(function: &Declaration, gate: Gate, gates: usize) -> bool {
    match gate.decision() {
        Decision::Out(number) => number < gates,
        Decision::Drop(reason) => reason < function.drops.len(),
        Decision::Consume(reason) => reason < function.consumes.len(),
        Decision::Hold => true,
    }
}

/// A function's predicted effect on a packet equals its processing, for any frame.
#[test]
fn replayed_effects_equal_processing() {
    let with_effect: Vec<_> = functions().into_iter().filter(|function| function.effect).collect();
    assert!(with_effect.len() >= 2, "static_nat and ttl have effects");
    for function in with_effect {
        let rig = std::cell::RefCell::new(rig(function));
        let mut runner = TestRunner::new(Config { cases: 512, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&hostile(), |frame| {
            let rig = &mut *rig.borrow_mut();
            let mut packet = rig.packet(&frame);
            if let Some(effect) = rig.function.effect(&mut packet) {
                let gate = effect.replay(&mut packet);
                prop_assert_eq!((gate, packet.data().to_vec()), {
                    let (gate, frame) = rig.run(&frame);
                    (Some(gate), frame)
                });
            }
            Ok(())
        });
        outcome.unwrap_or_else(|error| panic!("{}: {error}", function.name));
    }
}
