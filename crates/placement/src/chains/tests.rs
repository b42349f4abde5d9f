//! Tests the reading of chain files, and errors with their places.

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Chains, String> {
    Chains::read(&Source::new(text, "chains.yaml", "")).map_err(|problems| problems.to_string())
}

#[test]
fn chains_are_read_with_a_module_for_each_use() {
    let chains = read(
        "
modules:
  fw: { acl: { rules: [permit any], denied: gate } }
chains:
  - { name: web, functions: [ip_validate, fw, ttl, ttl], rate: 5Mpps, slo: 300us, interface: eth0, copies: 2 }
  - { name: voice, functions: [fw], weight: 2.5, home: 1 }
",
    )
    .expect("it is valid");
    let modules: Vec<_> = chains.functions().map(|function| function.module.as_str()).collect();
    assert_eq!(modules, ["web-ip_validate", "web-fw", "web-ttl", "web-ttl-2", "voice-fw"]);
    let web = &chains.chains[0];
    assert_eq!((web.rate, web.slo, web.copies, web.home), (Some(5e6), Some(300e-6), 2, None));
    assert_eq!(web.functions[1].gates, ["0", "denied"]);
    assert_eq!((chains.name.as_str(), chains.batch, chains.chains[1].weight), ("chains", 32, 2.5));
}

#[test]
fn an_error_names_its_place_the_chain_and_the_allowed_values() {
    let web = "chains:\n  - name: web\n    functions: [ttl]\n";
    let cases = [
        (format!("{web}    rate: 0pps\n"), "chains.yaml:4: chain 'web': rate 0 pps: allowed are 1pps to 1000Gpps"),
        (format!("{web}    slo: 1ns\n"), "chains.yaml:4: chain 'web': slo 1ns: allowed are 1us to 10s"),
        (
            format!("{web}    copies: 65\n"),
            "chains.yaml:4: chains[0].copies: '65' is out of range: allowed is a whole number from 0 to 64",
        ),
        (
            format!("{web}    copies: -1\n"),
            "chains.yaml:4: chains[0].copies: '-1' is out of range: allowed is a whole number from 0 to 64",
        ),
        (
            format!("{web}  - {{ name: web, functions: [ttl] }}\n"),
            "chains.yaml:4: chain 'web': chain 0 has this name already: give each chain its own name",
        ),
        (
            "chains:\n  - { name: web, functions: [tll] }\n".to_owned(),
            "chains.yaml:2: chain 'web': there is no module and no function 'tll' (did you mean 'ttl'?): \
             allowed are acl",
        ),
        (
            "chains:\n  - { name: web, functions: [acl] }\n".to_owned(),
            "chains.yaml:2: chain 'web': function 'acl' needs parameters (rules): write `modules: { NAME: { acl: ",
        ),
        (
            "modules:\n  fw: { ttl: }\nchains:\n  - { name: web, functions: [ttl] }\n".to_owned(),
            "chains.yaml:2: no chain uses the module 'fw'",
        ),
        (
            "modules:\n  fw: { acl: { rules: [prmit any] } }\nchains:\n  - { name: web, functions: [fw] }\n".to_owned(),
            "chains.yaml:2: modules.fw.acl.rules[0]: ",
        ),
        (format!("{web}    weight: .nan\n"), "chains.yaml:4: chains[0].weight: '.nan' is not a number"),
        (format!("{web}    weight: -1\n"), "chains.yaml:4: chains[0].weight: '-1' is out of range: allowed is"),
        ("chains: []\n".to_owned(), "chains.yaml:1: chains: the list is empty: at least 1 item is needed"),
        (format!("{web}    gate: 1\n"), "chains.yaml:4: chains[0]: unknown key 'gate'"),
    ];
    for (text, message) in cases {
        let error = read(&text).expect_err(message);
        assert!(error.starts_with(message), "{text}: {error}");
    }
    let many = format!("chains:\n  - {{ name: web, functions: [{}] }}\n", vec!["ttl"; 100_000].join(", "));
    let expected = "chains.yaml:2: chain 'web': 100000 functions: allowed are 1 to 64";
    assert_eq!(read(&many).expect_err("too many"), expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Written modules are read unchanged.
    #[test]
    fn written_modules_are_read_the_same(
        names in prop::collection::btree_set("[a-z][a-z0-9_]{0,6}", 1..4),
        lengths in prop::collection::vec(1_usize..4, 4),
        rate in 1_u32..1_000_000,
    ) {
        let mut text = "modules:\n  fw: { acl: { rules: [permit any] } }\nchains:\n".to_owned();
        for (name, length) in names.iter().zip(&lengths) {
            let functions = vec!["fw"; *length].join(", ");
            text.push_str(&format!("  - {{ name: \"{name}\", functions: [{functions}], rate: {rate}pps }}\n"));
        }
        let chains = read(&text).expect("it is valid");
        let written = Document::read(&chains.modules(), &Rules::new(Value::Bool(true))).expect("YAML").value();
        prop_assert_eq!(written["modules"].as_object().map(serde_json::Map::len), Some(chains.functions().count()));
        prop_assert!(chains.chains.iter().all(|chain| chain.rate == Some(f64::from(rate))));
    }
}
