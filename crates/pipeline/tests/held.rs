//! Modules that hold packets, beside the pool that these are of.

use std::path::Path;

use forebay_functions as _;
use forebay_pipeline::{Conditions, Source, check, prepare};
use forebay_ports as _;
use forebay_units::Frequency;

/// What is wrong with a configuration: the same for who checks it as for who runs it.
fn told(yaml: &str) -> Option<String> {
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let source = Source::new(yaml, "held.yaml", Path::new("."));
    let checked = check(&source).err().map(|problems| problems.to_string());
    assert_eq!(prepare(&source, conditions, None).err().map(|problems| problems.to_string()), checked);
    checked
}

/// Modules one after the other behind a port.
fn chain(pool: &str, modules: &[&str], more: &str) -> Option<String> {
    let names: Vec<_> = (0..modules.len()).map(|at| format!("m{at}")).collect();
    let modules: String = names.iter().zip(modules).map(|(name, kind)| format!("  {name}: {{ {kind} }}\n")).collect();
    told(&format!(
        "pool: {pool}\nports: {{ in: {{ generator: }}, out: {{ sink: }} }}\nmodules:\n{modules}pipeline: [in -> {} -> out]\n{more}",
        names.join(" -> ")
    ))
}

/// Of a pool of 1024 chunks 2048 fragments could wait: a thousand that nothing came after stopped all traffic for 30 s.
#[test]
fn modules_that_could_hold_the_whole_pool_are_refused() {
    let told = chain("{ chunks: 1024 }", &["reassemble:"], "").expect("no chunk is left");
    assert_eq!(
        told,
        "held.yaml:4: modules.m0.reassemble.held: 2048 packets may wait here, and a worker has 1024 (`pool.chunks`): allowed \
         are 992 in all, so that a batch of other packets can still enter, or `pool: { chunks: 2080 }`"
    );
    for (chunks, held, right) in [(1_024, 992, true), (1_024, 993, false), (2_080, 2_048, true), (2_079, 2_048, false)]
    {
        let told = chain(&format!("{{ chunks: {chunks} }}"), &[&format!("reassemble: {{ held: {held} }}")], "");
        assert_eq!(told.is_none(), right, "{held} of {chunks}: {told:?}");
    }
    let shaper = "shaper: { rate: 1Mbps, burst: 16KiB, held: 512 }";
    assert!(
        chain("{ chunks: 512 }", &[shaper], "")
            .expect("no chunk is left")
            .contains("modules.m0.shaper.held: 512 packets")
    );
}

/// Each of them left something of the pool, and both together nothing.
#[test]
fn what_all_modules_hold_counts_together() {
    let two = ["reassemble: { held: 600 }", "shaper: { rate: 1Mbps, burst: 16KiB, held: 400 }"];
    assert_eq!(chain("{ chunks: 1032 }", &two, ""), None);
    let told = chain("{ chunks: 1031 }", &two, "").expect("no batch is left");
    assert!(
        told.contains(
            "modules.m0.reassemble.held: 600 packets may wait here (1000 in all: 'm0', 'm1'), and a worker has 1031 (`pool.chunks`): \
             allowed are 999 in all"
        ),
        "{told}"
    );
    // Packets keep their chunk when another worker goes on with them.
    let apart = "workers: [{ modules: [m0] }, { modules: [m1] }]\n";
    assert!(chain("{ chunks: 1031 }", &two, apart).is_some());
    assert_eq!(chain("{ chunks: 1032 }", &two, apart), None);
}

/// Each worker has a pool, and what several workers run is shared out among them.
#[test]
fn workers_that_share_nothing_are_counted_apart() {
    let with = |workers: &str| {
        told(&format!(
            "pool: {{ chunks: 1024 }}\nports: {{ in: {{ generator: }}, other: {{ generator: }}, out: {{ sink: }} }}\nmodules:\n  \
             m0: {{ reassemble: {{ held: 900 }} }}\n  m1: {{ reassemble: {{ held: 900 }} }}\npipeline: [in -> m0 -> out, other -> m1 -> \
             out]\nworkers: {workers}\n"
        ))
    };
    assert!(with("[{}]").expect("one pool").contains("(1800 in all: 'm0', 'm1')"));
    assert_eq!(with("[{ modules: [m0] }, { modules: [m1] }]"), None);
    assert_eq!(chain("{ chunks: 1024 }", &["reassemble: { held: 900 }"], "workers: [{}, {}]\n"), None);
}

/// Packets of a port with one queue are all of one worker's pool, and each worker that they go on to may hold as many:
/// only what one of them holds was counted.
#[test]
fn what_comes_in_on_one_worker_counts_on_each_that_it_waits_on() {
    let with = |chunks: usize, workers: &str| {
        told(&format!(
            "pool: {{ chunks: {chunks} }}\nports: {{ in: {{ pcap: {{ read: ../../examples/traffic.pcap }} }}, out: {{ sink: }} }}\nmodules: {{ m0: {{ \
             reassemble: {{ held: 900 }} }} }}\npipeline: [in -> m0 -> out]\nworkers: {workers}\n"
        ))
    };
    let told = with(1_831, "[{}, {}]").expect("no batch is left");
    assert!(
        told.contains(
            "900 packets may wait here on each of 2 workers, and a worker has 1831 (`pool.chunks`): allowed are 1799"
        ),
        "{told}"
    );
    assert!(told.ends_with("or `pool: { chunks: 1832 }`"), "{told}");
    assert_eq!(with(1_832, "[{}, {}]"), None);
    assert_eq!(with(1_024, "[{}]"), None);
}

#[test]
fn what_nothing_is_said_of_leaves_room() {
    assert_eq!(chain("{}", &["reassemble:", "shaper: { rate: 1Mbps, burst: 16KiB }"], ""), None);
}
