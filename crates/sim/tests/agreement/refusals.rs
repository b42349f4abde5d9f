//! Checks that pipelines that cannot be simulated are rejected, and that the error names the cause.

use forebay_instance::Simulation;
use forebay_pipeline::{Conditions, Source, load};
use forebay_sim::{LearnError, Scene};

fn learn(text: &str) -> LearnError {
    let source = Source::new(text.to_owned(), "pipeline.yaml", "");
    let conditions = Conditions { frequency: Simulation::frequency(), simulated: true };
    let loaded = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    match Scene::learn(loaded.plans, 64) {
        Ok(_) => panic!("learning this pipeline must fail:\n{text}"),
        Err(error) => error,
    }
}

fn pipeline(generator: &str, module: &str, more: &str) -> String {
    format!(
        "ports:\n  in: {{ generator: {{ {generator} }} }}\n  out: {{ sink: {{}} }}\nmodules:\n  one: {{ {module} }}\n\
         pipeline:\n  - in -> one -> out\n{more}"
    )
}

#[test]
fn pipelines_that_cannot_be_simulated_are_rejected() {
    let ends = learn(&pipeline("rate: 1Mpps, count: 100", "ttl: {}", ""));
    assert!(matches!(&ends, LearnError::Source { port } if port == "in"), "{ends}");
    let holds = learn(&pipeline("rate: 1Mpps", "shaper: { rate: 1Mbps, burst: 2KiB }", ""));
    assert!(matches!(&holds, LearnError::Holds { module } if module == "one"), "{holds}");
    let limited = "scheduler: weighted-fair\nshares:\n  one: { rate: 10kpps }\n";
    let limited = learn(&pipeline("rate: 1Mpps", "ttl: {}", limited));
    assert!(matches!(&limited, LearnError::Limit { module } if module == "one"), "{limited}");
}
