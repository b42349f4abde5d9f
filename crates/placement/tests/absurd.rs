//! Tests that absurd chains, servers and models give an answer, or an error that states the fault and the allowed
//! values.
//!
//! `FOREBAY_ABSURD=10000 cargo test -p forebay-placement --test absurd` tries more inputs than the default.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write;

use forebay_host::Topology;
use forebay_pipeline::Source;
use forebay_placement::answer::{AnswerOptions, answer};
use forebay_placement::chains::Chains;
use forebay_placement::pipeline::pipeline;
use forebay_placement::problem::{Objective, pose};
use forebay_placement::registry::Registry;
use forebay_placement::search::{Algorithm, SearchEffort, search};
use forebay_placement::server::Server;

/// A Xorshift generator (Marsaglia 2003), which gives the same numbers in every run. If the second number is n > 0, one
/// of n values is absurd. If it is 0, no value is absurd.
struct Random(u64, usize);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 11) % end as u64) as usize
    }

    fn is_absurd(&mut self) -> bool {
        self.1 > 0 && self.below(self.1) == 0
    }

    /// Returns one of the first `usual` values, or, if the value is to be absurd, any of the values.
    fn one<'t>(&mut self, all: &[&'t str], usual: usize) -> &'t str {
        if self.is_absurd() { all[self.below(all.len())] } else { all[self.below(usual)] }
    }

    fn chains(&mut self) -> String {
        let mut text = "chains:\n".to_owned();
        for number in 0..1 + self.below(6) {
            let name = if self.is_absurd() { "c0".to_owned() } else { format!("c{number}") };
            let count = [1, 2, 3, 4, 65][if self.is_absurd() { 4 } else { self.below(4) }];
            let functions: Vec<_> = (0..count)
                .map(|_| {
                    self.one(
                        &["ttl", "counter", "mac_swap", "ip_swap", "acl", "tll", "''", "[ttl]", "1", "ttl, ttl"],
                        4,
                    )
                })
                .collect();
            let _ = write!(text, "  - {{ name: {name}, functions: [{}]", functions.join(", "));
            let keys = [
                ("rate", &["1Mpps", "5Mpps", "100kpps", "0pps", "-1pps", "1e400Mpps", "5", ".inf", "null"][..], 3),
                ("weight", &["1", "0.5", "3", "0", "-1", ".nan", "1e308", "1e-320"], 3),
                ("slo", &["10ms", "1ms", "300us", "1us", "0us", "-1us", "1h"], 3),
                ("copies", &["0", "1", "3", "64", "65", "-1", "1.5", "99999999999999999999"], 3),
                ("interface", &["eth0", "eth1", "''", "eth9"], 1),
                ("home", &["0", "1", "7", "-1", "1e9"], 1),
                ("percentile", &["99", "mean", "0", "101"], 2),
                ("gate", &["1"], 1),
            ];
            for (at, (key, values, usual)) in keys.into_iter().enumerate() {
                // A percentile is only valid beside an objective.
                let is_present = if at >= 6 { self.is_absurd() } else { self.below(4) == 0 };
                if is_present {
                    let _ = write!(text, ", {key}: {}", self.one(values, usual));
                }
            }
            text.push_str(" }\n");
        }
        text
    }

    fn models(&mut self) -> String {
        let function = |random: &mut Self, name: &str| {
            let parts = ["0.1", "0.3", "0", "1", "-0.1", "1.5", "1e-320"];
            let mut drop = || {
                format!(
                    r#"{{ "shape": {}, "cache": {}, "memory": {}, "constant": {}, "error": {} }}"#,
                    random.one(&[r#""linear""#, r#"{ "saturating": 0.5 }"#, r#"{ "saturating": 0 }"#], 1),
                    random.one(&parts, 3),
                    random.one(&parts, 3),
                    random.one(&parts, 3),
                    random.one(&["0.01", "0", "-1"], 2),
                )
            };
            let (local, remote) = (drop(), drop());
            let remote = random.one(&[&remote, "null"], 1).to_owned();
            let rates = ["1e6", "2e7", "0", "-1", "1e300", "1e-300", "null"];
            format!(
                r#""{name}": {{ "rates": {{ "local": {}, "remote": {} }}, "metric": {}, "local": {local},
                "remote": {remote}, "packets_bytes": 60, "runs": 9 }}"#,
                random.one(&rates, 2),
                random.one(&rates, 2),
                random.one(&["1", "0.3", "3", "0", "1e308", "1e-308"], 3),
            )
        };
        let functions = ["ttl", "counter", "mac_swap", "ip_swap"].map(|name| function(self, name)).join(", ");
        format!(
            r#"{{ "schema": 1, "cpu": "", "build": "", "origin": "imported", "metric": "x",
            "limits": {{ "cache": {}, "memory": 8, "link": {}{} }}, "functions": {{ {functions} }} }}"#,
            self.one(&["4", "0", "1e308", "1e-308"], 1),
            self.one(&["4", "null", "-1"], 1),
            self.one(
                &["", r#", "cores": { "cache": 4, "memory": 8 }"#, r#", "cores": { "cache": 0, "memory": 8 }"#],
                2
            ),
        )
    }
}

/// Tries one input. Returns the text of the error if there is no answer.
fn attempt(random: &mut Random) -> Result<(), String> {
    let text = random.chains();
    let machine =
        random.one(&["2x4", "2x12", "1x2", "4x4:llc=2", "1x1", "2x3:nic=1", "0x4", "2x", "8x1:smt=2", "9x9999"], 6);
    let models = random.models();
    let chains = Chains::read(&Source::new(text, "chains.yaml", "")).map_err(|problems| problems.to_string())?;
    let topology = Topology::synthetic(machine).map_err(|error| error.to_string())?;
    let server = Server::of(&topology, random.below(2) == 0);
    let registry = Registry::parse(models.as_bytes(), "models.json").map_err(|error| error.to_string())?;
    let objective = [Objective::Served, Objective::Sum, Objective::Cores][random.below(3)];
    let algorithms =
        [Algorithm::Exact, Algorithm::Octans, Algorithm::NodeBalancing, Algorithm::NodeFirst, Algorithm::Random];
    let algorithm = if random.below(2) == 0 { Algorithm::Exact } else { algorithms[random.below(5)] };
    let posed = pose(&chains, &server, &registry, &BTreeMap::new(), objective).map_err(|error| error.to_string())?;
    let calls = Cell::new(0);
    // This limit of the effort does not depend on time.
    let is_over = || calls.replace(calls.get() + 1) > 3;
    let effort = SearchEffort { algorithm, objective, seed: 7, is_over: &is_over, from: None };
    let outcome = search(&posed.problem, &effort).map_err(|error| error.to_string())?;
    let options = AnswerOptions {
        topology: machine,
        objective,
        algorithm,
        rate_coupled: true,
        explain: true,
        earlier: None,
        is_over: &|| false,
    };
    let found = answer(&chains, &server, &registry, &posed, &outcome, options).map_err(|error| error.to_string())?;
    assert_eq!(found.chains.len() + found.rejected.len(), chains.chains.len());
    assert!(found.rejected.iter().all(|rejected| !rejected.reason.is_empty()));
    assert!(found.gap.is_none_or(|gap| (0.0..=1.0).contains(&gap)), "{found:?}");
    assert!(
        found.chains.iter().all(|chain| chain.predicted_pps.is_finite() && chain.predicted_pps >= 0.0),
        "{found:?}"
    );
    match pipeline(&chains, &found, random.below(2) == 0) {
        Ok(written) => drop(forebay_pipeline::check(&Source::new(written.text, "edge.yaml", ""))),
        Err(error) => assert!(error.to_string().contains("allowed") || found.chains.is_empty(), "{error}"),
    }
    Ok(())
}

#[test]
fn absurd_inputs_give_an_answer_or_an_error_that_says_what_is_allowed() {
    let count = std::env::var("FOREBAY_ABSURD").ok().and_then(|count| count.parse().ok()).unwrap_or(150_u64);
    let (mut answers, mut errors) = (0, 0);
    for seed in 0..count {
        let oddness = [0, 0, 80, 20][(seed % 4) as usize];
        let mut random = Random((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, oddness);
        match attempt(&mut random) {
            Ok(()) => answers += 1,
            Err(error) => {
                let words = [
                    "allowed",
                    "needs",
                    "is not ",
                    "expected",
                    "range",
                    "short",
                    "missing",
                    "has no",
                    "no model",
                    "put it in quotes",
                    "give each",
                ];
                assert!(words.iter().any(|word| error.contains(word)), "seed {seed}: {error}");
                errors += 1;
            }
        }
    }
    assert!(answers >= count / 10 && errors >= count / 10, "{answers} answers, {errors} errors");
}
