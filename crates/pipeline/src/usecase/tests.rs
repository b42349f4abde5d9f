//! Sizes, parameters and refusals of the use cases.

use super::*;

fn sets(sets: &[&str]) -> Vec<String> {
    sets.iter().map(|set| (*set).to_owned()).collect()
}

fn modules(name: &str, given: &[&str]) -> usize {
    let source = usecase(name, &sets(given)).unwrap_or_else(|problems| panic!("{problems}"));
    let checked = crate::check(&source).unwrap_or_else(|problems| panic!("{problems}\n{}", source.text()));
    // The prefix of the last module of each branch.
    let last = match name {
        "rc" => "work",
        "forward" | "firewall" | "nids" | "dpi" | "vpn" | "aes" => "mac",
        _ => "sum",
    };
    assert!(
        checked.flows.len()
            == checked
                .modules
                .iter()
                .filter(|(name, _)| name.starts_with(last) || name == "control" || name == "other")
                .count(),
        "a flow for each branch"
    );
    checked.modules.len()
}

#[test]
fn module_counts_are_those_of_the_definition() {
    for n in [1, 4, 16, 64, 600] {
        assert_eq!(modules("l2l3", &[&format!("n={n}")]), 3 + 3 * n);
        assert_eq!(modules("gw", &[&format!("n={n}")]), 3 + 5 * n);
    }
    for (m, n) in [(1, 1), (2, 4), (4, 8), (16, 4)] {
        assert_eq!(modules("vrf", &[&format!("m={m}"), &format!("n={n}")]), 3 + 2 * m + 5 * m * n);
    }
    for n in [2, 16, 300] {
        assert_eq!(modules("rc", &[&format!("n={n}")]), n + 1);
    }
    for stages in ["stages=1", "stages=2"] {
        for n in [1, 4, 600] {
            assert_eq!(modules("sfc_a", &[&format!("n={n}"), stages]), 5 + 3 * n);
            assert_eq!(modules("sfc_b", &[&format!("n={n}"), "servers=7", stages]), 3 + 3 * n);
        }
    }
}

#[test]
fn named_functions_forward_to_next_hops() {
    for n in [1, 4, 300] {
        let n_set = format!("n={n}");
        for (name, given, more) in [
            ("forward", "slo=1ms", 1),
            ("firewall", "rules=10", 4),
            ("nids", "rules=20", 2),
            ("dpi", "patterns=20", 3),
            ("vpn", "stages=1", 3),
            ("vpn", "stages=2", 3),
            ("aes", "ends=1", 2),
            ("aes", "ends=2", 3),
        ] {
            assert_eq!(modules(name, &[&n_set, given]), more + n, "{name} {given}");
        }
        assert_eq!(modules("router", &[&n_set, "routes=2000"]), 2 + 3 * n);
    }
}

#[test]
fn made_up_patterns_follow_from_the_seed_and_payloads_end_with_them() {
    let text = |name: &str, given: &[&str]| usecase(name, &sets(given)).expect("in order").text().to_owned();
    assert_eq!(text("dpi", &["seed=5"]), text("dpi", &["seed=5"]));
    assert_ne!(text("dpi", &["seed=5"]), text("dpi", &["seed=6"]).replace("seed: 6", "seed: 5"));
    for (name, of, size) in [("dpi", "patterns=8", 1_514), ("nids", "rules=9", 60), ("sfc_a", "patterns=1", 61)] {
        let text = text(name, &[of, &format!("size={size}"), "matching=10"]);
        let payloads: Vec<_> = text.split("payload: '").skip(1).filter_map(|it| it.split('\'').next()).collect();
        assert!((2..=5).contains(&payloads.len()), "{name}: {payloads:?}");
        for (number, payload) in payloads.iter().enumerate() {
            assert_eq!(payload.len(), size - 44, "{name}");
            let last = payload.rsplit(' ').next().expect("a word");
            // The first payload contains no whole pattern: patterns are longer than any of its words.
            assert!(payload.split(' ').all(|word| word.len() <= 4) == (number == 0) || number > 0, "{payload}");
            assert!(number == 0 || last.len() >= 8, "{name}: {payload}");
        }
    }
    for (given, payloads) in [("matching=0", 1), ("matching=100", 4)] {
        assert_eq!(text("dpi", &[given]).matches("payload: '").count(), payloads, "{given}");
    }
}

#[test]
fn parameters_of_named_functions_are_checked() {
    let refused = |name: &str, given: &[&str]| usecase(name, &sets(given)).expect_err("refused").to_string();
    assert_eq!(
        refused("router", &["n=9", "routes=8"]),
        "--set routes=8: routes: 8 routes are too few for 9 next hops: allowed are 9 to 65536"
    );
    assert_eq!(
        refused("vpn", &["backend=gpu"]),
        "--set backend=gpu: backend: 'gpu' is not a backend: allowed are auto, hardware and software"
    );
    assert!(refused("dpi", &["matching=101"]).contains("from 0 to 100"));
    assert!(refused("nids", &["rules=1"]).contains("from 2 to 10000"));
    // Only one worker may have the tunnel's sequence numbers.
    let source = usecase("vpn", &sets(&["workers=[{}, {}]"])).expect("in order");
    let error = crate::check(&source).expect_err("refused").to_string();
    assert!(error.contains("module 'seal' is on 2 workers"), "{error}");
    for case in usecases().iter().filter(|case| case.name != "vpn") {
        let source = usecase(case.name, &sets(&["workers=[{}, {}]"])).expect("in order");
        assert!(crate::check(&source).is_ok(), "{} on two workers", case.name);
    }
}

#[test]
fn parameters_come_first_and_settings_then() {
    let given = [
        "n=2",
        "trigger=16",
        "hold=50us",
        "slo=100us",
        "batch=64",
        "rate=max",
        "size=128",
        "seed=9",
        "sessions=10",
        "ports.in.generator.sessions=6",
    ];
    let source = usecase("gw", &sets(&given)).unwrap_or_else(|problems| panic!("{problems}"));
    crate::check(&source).unwrap_or_else(|problems| panic!("{problems}\n{}", source.text()));
    assert_eq!(source.sets, ["ports.in.generator.sessions=6"]);
    for part in ["batch: 64", "seed: 9", "size: 128", "sessions: 10", "acl1: { trigger: 16, hold: 50us }", "slo: 100us"]
    {
        assert!(source.text().contains(part), "{part} in\n{}", source.text());
    }
    assert!(!source.text().contains("rate"), "no rate limit");
}

#[test]
fn defaults_are_allowed_and_wrong_values_named() {
    for case in usecases() {
        assert!(usecase(case.name, &[]).is_ok(), "{}", case.name);
    }
    let refused = |name: &str, given: &[&str]| usecase(name, &sets(given)).expect_err("refused").to_string();
    assert_eq!(
        refused("gx", &[]),
        "usecase:gx: there is no use case 'gx' (did you mean 'gw'?): there are l2l3, gw, vrf, mgw, rc, sfc_a, sfc_b, \
         forward, router, firewall, nids, dpi, vpn, aes"
    );
    assert_eq!(refused("gw", &["n=0"]), "--set n=0: n: '0' is not allowed: allowed is a whole number from 1 to 4096");
    assert_eq!(
        refused("rc", &["rate=fast"]),
        "--set rate=fast: rate: 'fast' is not a rate above 0: write a rate such as 1Mpps (units: pps, kpps, Mpps, \
         Gpps), or max"
    );
    let large =
        "--set rate=9999999Gpps: rate: '9999999Gpps' is too large for a packet rate: the largest is 9000000Gpps";
    assert_eq!(refused("rc", &["rate=9999999Gpps"]), large);
    assert_eq!(
        refused("vrf", &["m=1000", "n=5"]),
        "--set n=5: n: 1000 routers with 5 next hops each are 5000 branches: allowed are up to 4096"
    );
    assert_eq!(
        refused("gw", &["nn=3", "batsh=4", "batch=8", "pool.chunks=9000"]),
        "--set nn=3: usecase:gw has no parameter 'nn' (did you mean 'n'?): its parameters are n, rate, slo, batch, \
         trigger, hold, sessions, size, seed; the sections of its configuration are batch, buffers, control, flows, \
         fold, modules, name, pipeline, pool, ports, scheduler, seed, shares, state, workers\n\
         --set batsh=4: usecase:gw has no parameter 'batsh' (did you mean 'batch'?): its parameters are n, rate, slo, \
         batch, trigger, hold, sessions, size, seed; the sections of its configuration are batch, buffers, control, \
         flows, fold, modules, name, pipeline, pool, ports, scheduler, seed, shares, state, workers"
    );
    assert!(refused("gw", &["slo=3"]).starts_with("--set slo=3: slo: '3' is not a span of time"));
    assert!(refused("gw", &["trigger=33"]).contains("from 0 to 32"));
}

#[test]
fn chains_are_cut_into_stages() {
    for name in ["sfc_a", "sfc_b", "vpn"] {
        let workers = |stages: &str| {
            let source = usecase(name, &sets(&[stages])).unwrap_or_else(|problems| panic!("{problems}"));
            source.text().matches("- { modules: [").count()
        };
        assert_eq!((workers("stages=1"), workers("stages=2")), (0, 2));
    }
    let refused = usecase("sfc_a", &sets(&["stages=3"])).expect_err("refused").to_string();
    assert_eq!(refused, "--set stages=3: stages: '3' is not allowed: allowed is a whole number from 1 to 2");
}

#[test]
fn a_mobile_gateway_has_a_flow_for_each_bearer_either_way() {
    for tunnel in ["gtpu", "vxlan"] {
        for (m, n) in [(1, 1), (4, 4), (16, 2)] {
            let given = [format!("m={m}"), format!("n={n}"), format!("tunnel={tunnel}"), "slo=1ms".to_owned()];
            let source = usecase("mgw", &given).unwrap_or_else(|problems| panic!("{problems}"));
            let checked = crate::check(&source).unwrap_or_else(|problems| panic!("{problems}\n{}", source.text()));
            assert_eq!(checked.modules.len(), 8 + 2 * n + 9 * m * n, "{tunnel} {m} {n}");
            assert_eq!(checked.flows.len(), 2 * m * n, "{tunnel} {m} {n}");
        }
    }
    let refused = |given: &[&str]| usecase("mgw", &sets(given)).expect_err("refused").to_string();
    assert_eq!(
        refused(&["tunnel=gre"]),
        "--set tunnel=gre: tunnel: 'gre' is not a kind of tunnel: allowed are gtpu and vxlan"
    );
    assert_eq!(
        refused(&["m=2048", "n=2"]),
        "--set n=2: n: 2048 users with 2 bearers each are 4096 bearers: allowed are up to 2048"
    );
}
