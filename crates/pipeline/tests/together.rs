//! Tests the workers of modules that share sessions.

use std::path::Path;

use forebay_functions as _;
use forebay_pipeline::{Conditions, Source, prepare};
use forebay_ports as _;
use forebay_units::Frequency;

/// Returns the errors of a translation whose two directions are on these workers.
fn errors(workers: &str) -> Option<String> {
    let yaml = format!(
        "ports:\n  inside: {{ generator: {{ source: 10.0.0.0/24 }} }}\n  \
         outside: {{ generator: {{ destination: 192.0.2.0/28 }} }}\n  sink: {{ sink: }}\n\
         state:\n  nat1: {{ nat: {{ pool: 192.0.2.0/28 }} }}\n\
         modules:\n  out: {{ nat_out: {{ state: nat1 }} }}\n  back: {{ nat_in: {{ state: nat1 }} }}\n\
         pipeline:\n  - inside -> out -> sink\n  - outside -> back -> sink\nworkers: {workers}\n"
    );
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let source = Source::new(yaml, "nat.yaml", Path::new("."));
    prepare(&source, conditions, None).err().map(|problems| problems.to_string())
}

#[test]
fn both_directions_of_a_translation_need_the_same_workers() {
    for valid in ["[{}]", "[{}, {}]", "[{ modules: [out, back] }]"] {
        assert_eq!(errors(valid), None, "{valid}");
    }
    let errors = errors("[{ modules: [out] }, { modules: [back] }]").expect("different workers");
    assert!(
        errors.contains("'nat1' is shared with 'out', which is on worker 0, and this module is on worker 1"),
        "{errors}"
    );
    assert!(errors.contains("nat.yaml:9"), "{errors}");
}

/// Returns the errors of a `nids` that looks up the sessions of `named`, before a module `opens`, on these workers.
fn followed(named: &str, opens: &str, workers: &str) -> Option<String> {
    let vips = "  vips: { balancer: { replies: endpoint, services: [{ address: 192.0.2.1, protocol: tcp, port: 80, \
                backends: [{ address: 10.0.0.1 }] }] } }\n";
    let more = match named {
        "vips" => vips,
        "nta" => "  nat: { nat: { pool: 192.0.2.0/28 } }\n",
        _ => "",
    };
    let rule = "alert ip any any -> any any (flow:established; sid:1;)";
    let ids = format!("nids: {{ flow: {{ state: {named} }}, rules: ['{rule}'] }}");
    let yaml = format!(
        "ports: {{ inside: {{ generator: }}, sink: {{ sink: }} }}\nstate:\n  known: {{ connections: }}\n{more}\
         modules:\n  ids: {{ {ids} }}\n  fw: {opens}\n\
         pipeline: [inside -> ids -> fw -> sink]\nworkers: {workers}\n"
    );
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let source = Source::new(yaml, "nids.yaml", Path::new("."));
    prepare(&source, conditions, None).err().map(|problems| problems.to_string())
}

const OPENS: &str = "{ firewall: { state: known, default: permit } }";

#[test]
fn rules_may_look_up_sessions_of_a_module_on_the_same_workers() {
    for valid in ["[{}]", "[{}, {}]", "[{ modules: [ids, fw] }]"] {
        assert_eq!(followed("known", OPENS, valid), None, "{valid}");
    }
}

#[test]
fn rules_cannot_look_up_sessions_of_other_workers() {
    let error = followed("known", OPENS, "[{ modules: [ids] }, { modules: [fw] }]").expect("another table");
    assert!(
        error.contains("'known' is shared with 'ids', which is on worker 0, and this module is on worker 1"),
        "{error}"
    );
    assert!(error.contains("nids.yaml:"), "{error}");
}

#[test]
fn rules_cannot_look_up_sessions_that_no_module_opens() {
    let error = followed("known", "{ counter: }", "[{}]").expect("no module");
    let expected = "modules.ids.nids.flow.state: no module opens sessions in the state 'known': \
                    name a state in which a module opens sessions";
    assert!(error.starts_with("nids.yaml:") && error.contains(expected), "{error}");
}

#[test]
fn rules_cannot_look_up_a_missing_state_or_one_without_connections() {
    let error = followed("none", OPENS, "[{}]").expect("no such state");
    assert!(error.contains("modules.ids.nids.flow.state: no state is called 'none': allowed is known"), "{error}");
    assert_eq!(error.matches("flow.state").count(), 1, "{error}");
    let error = followed("nta", OPENS, "[{}]").expect("no such state");
    let expected = "flow.state: no state is called 'nta' (did you mean 'nat'?): allowed are known, nat";
    assert!(error.contains(expected), "{error}");
    let error = followed("vips", OPENS, "[{}]").expect("another type");
    let expected =
        "modules.ids.nids.flow.state: the state 'vips' is a 'balancer': allowed are a 'connections', a 'nat'";
    assert!(error.contains(expected), "{error}");
    assert_eq!(error.matches("flow.state").count(), 1, "{error}");
    // The parameter is not a name.
    for wrong in ["[known]", "7", "null", "''"] {
        let error = followed(wrong, OPENS, "[{}]").expect(wrong);
        assert!(error.contains("modules.ids.nids.flow"), "{wrong}: {error}");
    }
}
