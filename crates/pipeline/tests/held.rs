//! Tests the limits of modules that hold packets of a pool.

use std::path::Path;

use forebay_functions as _;
use forebay_pipeline::{Conditions, Source, check, prepare};
use forebay_ports as _;
use forebay_units::Frequency;

/// Returns the errors of a configuration. Asserts that a check and a run have the same ones.
fn errors(yaml: &str) -> Option<String> {
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let source = Source::new(yaml, "held.yaml", Path::new("."));
    let checked = check(&source).err().map(|problems| problems.to_string());
    assert_eq!(prepare(&source, conditions, None).err().map(|problems| problems.to_string()), checked);
    checked
}

/// Returns the errors of a chain of modules behind a port.
fn chain(pool: &str, modules: &[&str], more: &str) -> Option<String> {
    let names: Vec<_> = (0..modules.len()).map(|number| format!("m{number}")).collect();
    let modules: String = names.iter().zip(modules).map(|(name, kind)| format!("  {name}: {{ {kind} }}\n")).collect();
    errors(&format!(
        "pool: {pool}\nports: {{ in: {{ generator: }}, out: {{ sink: }} }}\nmodules:\n{modules}\
         pipeline: [in -> {} -> out]\n{more}",
        names.join(" -> ")
    ))
}

/// Regression: with a pool of 1024 chunks, 2048 fragments could wait. A thousand incomplete fragments stopped all
/// traffic for 30 s.
#[test]
fn modules_that_could_hold_the_whole_pool_are_refused() {
    let errors = chain("{ chunks: 1024 }", &["reassemble:"], "").expect("no chunk remains");
    assert_eq!(
        errors,
        "held.yaml:4: modules.m0.reassemble.held: 2048 packets may wait here, but a worker's pool has 1024 chunks \
         (`pool.chunks`): allowed are up to 992 waiting packets in all, so that a batch of other packets can still \
         enter, or `pool: { chunks: 2080 }`"
    );
    for (chunks, held, valid) in [(1_024, 992, true), (1_024, 993, false), (2_080, 2_048, true), (2_079, 2_048, false)]
    {
        let errors = chain(&format!("{{ chunks: {chunks} }}"), &[&format!("reassemble: {{ held: {held} }}")], "");
        assert_eq!(errors.is_none(), valid, "{held} of {chunks}: {errors:?}");
    }
    let shaper = "shaper: { rate: 1Mbps, burst: 16KiB, held: 512 }";
    assert!(
        chain("{ chunks: 512 }", &[shaper], "")
            .expect("no chunk remains")
            .contains("modules.m0.shaper.held: 512 packets")
    );
}

/// Regression: modules that together can hold the whole pool were accepted if each module alone holds less.
#[test]
fn held_packets_of_all_modules_are_summed_up() {
    let two = ["reassemble: { held: 600 }", "shaper: { rate: 1Mbps, burst: 16KiB, held: 400 }"];
    assert_eq!(chain("{ chunks: 1032 }", &two, ""), None);
    let errors = chain("{ chunks: 1031 }", &two, "").expect("no batch remains");
    assert!(
        errors.contains(
            "modules.m0.reassemble.held: 600 packets may wait here (1000 in all: 'm0', 'm1'), but a worker's pool has \
             1031 chunks (`pool.chunks`): allowed are up to 999 waiting packets in all"
        ),
        "{errors}"
    );
    // Packets keep their chunk when they pass to another worker.
    let apart = "workers: [{ modules: [m0] }, { modules: [m1] }]\n";
    assert!(chain("{ chunks: 1031 }", &two, apart).is_some());
    assert_eq!(chain("{ chunks: 1032 }", &two, apart), None);
}

/// Each worker has its own pool. Workers that run the same module get different sessions.
#[test]
fn workers_that_share_nothing_are_counted_apart() {
    let with = |workers: &str| {
        errors(&format!(
            "pool: {{ chunks: 1024 }}\nports: {{ in: {{ generator: }}, other: {{ generator: }}, out: {{ sink: }} }}\n\
             modules:\n  m0: {{ reassemble: {{ held: 900 }} }}\n  m1: {{ reassemble: {{ held: 900 }} }}\n\
             pipeline: [in -> m0 -> out, other -> m1 -> out]\nworkers: {workers}\n"
        ))
    };
    assert!(with("[{}]").expect("one pool").contains("(1800 in all: 'm0', 'm1')"));
    assert_eq!(with("[{ modules: [m0] }, { modules: [m1] }]"), None);
    assert_eq!(chain("{ chunks: 1024 }", &["reassemble: { held: 900 }"], "workers: [{}, {}]\n"), None);
}

/// Regression: all packets of a port with one queue are in the pool of one worker, and each worker that they pass to
/// may hold the full number of packets. The check counted only the packets that one worker holds.
#[test]
fn packets_of_one_worker_count_on_each_worker_that_holds_them() {
    let with = |chunks: usize, workers: &str| {
        errors(&format!(
            "pool: {{ chunks: {chunks} }}\n\
             ports: {{ in: {{ pcap: {{ read: ../../examples/traffic.pcap }} }}, out: {{ sink: }} }}\n\
             modules: {{ m0: {{ reassemble: {{ held: 900 }} }} }}\npipeline: [in -> m0 -> out]\nworkers: {workers}\n"
        ))
    };
    let errors = with(1_831, "[{}, {}]").expect("no batch remains");
    assert!(
        errors.contains(
            "900 packets may wait here on each of 2 workers, but a worker's pool has 1831 chunks (`pool.chunks`): \
             allowed are up to 1799"
        ),
        "{errors}"
    );
    assert!(errors.ends_with("or `pool: { chunks: 1832 }`"), "{errors}");
    assert_eq!(with(1_832, "[{}, {}]"), None);
    assert_eq!(with(1_024, "[{}]"), None);
}

#[test]
fn the_defaults_leave_room() {
    assert_eq!(chain("{}", &["reassemble:", "shaper: { rate: 1Mbps, burst: 16KiB }"], ""), None);
}
