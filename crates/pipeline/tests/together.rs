//! Modules that share sessions, on workers.

use std::path::Path;

use forebay_functions as _;
use forebay_measure::Frequency;
use forebay_pipeline::{Conditions, Source, prepare};
use forebay_ports as _;

/// What is wrong with a translation whose ways are on these workers.
fn told(workers: &str) -> Option<String> {
    let yaml = format!(
        "ports:\n  inside: {{ generator: {{ source: 10.0.0.0/24 }} }}\n  outside: {{ generator: {{ destination: 192.0.2.0/28 }} }}\n  \
         sink: {{ sink: }}\nstate:\n  nat1: {{ nat: {{ pool: 192.0.2.0/28 }} }}\nmodules:\n  out: {{ nat_out: {{ state: nat1 }} }}\n  \
         back: {{ nat_in: {{ state: nat1 }} }}\npipeline:\n  - inside -> out -> sink\n  - outside -> back -> sink\nworkers: {workers}\n"
    );
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let source = Source::new(yaml, "nat.yaml", Path::new("."));
    prepare(&source, conditions, None).err().map(|problems| problems.to_string())
}

#[test]
fn both_ways_of_a_translation_need_the_same_workers() {
    for right in ["[{}]", "[{}, {}]", "[{ modules: [out, back] }]"] {
        assert_eq!(told(right), None, "{right}");
    }
    let told = told("[{ modules: [out] }, { modules: [back] }]").expect("sessions that nobody would find");
    assert!(
        told.contains("'nat1' is shared with 'out', which is on worker 0, and this module is on worker 1"),
        "{told}"
    );
    assert!(told.contains("nat.yaml:9"), "{told}");
}
