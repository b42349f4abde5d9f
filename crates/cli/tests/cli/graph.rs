//! `forebay graph`: a pipeline as a tree, as Graphviz text, and as JSON.

use std::path::Path;

use serde_json::Value;

use crate::running::{PIPELINE, Running, json};
use crate::{File, forebay};

/// 64 branches fit on a screen, with the function of each module.
const GATEWAY: &str = "\
gw-64: 323 modules, 2 ports, 64 flows
batch 32, run-to-completion, worker 0

in                             generator
→ ether                        ether_split
├─ [ipv4] → l2                 mac_table
│  → route                     ip_lookup
│  └─ [0 … 63] → acl0 … acl63  acl × 64, run as one
│     → nat0 … nat63           static_nat × 64, run as one
│     → ttl0 … ttl63           ttl × 64, run as one
│     → mac0 … mac63           mac_rewrite × 64, run as one
│     → sum0 … sum63           ip_checksum × 64, run as one
│     → out                    sink
└─ [other] → drop
";

#[test]
fn equal_branches_are_drawn_once() {
    assert_eq!(forebay(&["graph", "usecase:gw", "--set", "n=64"]).success(), GATEWAY);
    let full = forebay(&["graph", "usecase:gw", "--set", "n=64", "--full"]).success();
    assert!(full.contains("├─ [7] → acl7") && full.lines().count() > 323, "{full}");
    let mgw = forebay(&["graph", "usecase:mgw"]).success();
    assert!(mgw.contains("[0 … 3] → up_service0_0 … 3_3 "), "{mgw}");
}

/// A module with several predecessors is drawn once, below all modules that lead to it.
#[test]
fn paths_that_meet_are_drawn_once_below_their_branches() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let tree = forebay(&["graph", examples.join("router.yaml").to_str().expect("UTF-8")]).success();
    let at = |line: &str| tree.lines().position(|it| it.starts_with(line)).unwrap_or_else(|| panic!("{line}: {tree}"));
    assert!(tree.contains("   → back (below)"), "{tree}");
    assert!(at("back ") < at("left_out ") && at("left_out ") < at("silent "), "{tree}");
    assert!(!tree.contains("(above)"), "{tree}");
}

#[test]
fn every_use_case_and_example_fits_eighty_columns() {
    let cases = forebay(&["list", "usecases", "--json"]).json();
    let cases =
        cases.as_array().expect("a list").iter().map(|it| format!("usecase:{}", it["name"].as_str().expect("a name")));
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let files = std::fs::read_dir(examples).expect("the examples").map(|entry| entry.expect("an entry").path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    // Files of chains are not a pipeline.
    let files = files.filter(|path| !path.ends_with("chains.yaml"));
    let all: Vec<_> = cases.chain(files.map(|path| path.display().to_string())).collect();
    assert!(all.len() > 20, "{all:?}");
    for pipeline in &all {
        let tree = forebay(&["graph", pipeline]).success();
        let wide = tree.lines().find(|line| line.chars().count() > 80);
        assert!(wide.is_none() && !tree.contains('\t'), "{pipeline}: {wide:?}");
        let dot = forebay(&["graph", pipeline, "--dot"]).success();
        assert!(dot.starts_with("digraph \"") && dot.ends_with("}\n"), "{dot}");
    }
}

/// Quotes and backslashes in a name do not end a Graphviz string.
#[test]
fn names_are_quoted_for_graphviz() {
    let file = File::new(&PIPELINE.replacen("ports:", "name: 'a\"; b [x=\\\"'\nports:", 1));
    let dot = forebay(&["graph", file.path(), "--dot"]).success();
    assert!(dot.starts_with("digraph \"a\\\"; b [x=\\\\\\\"\" {\n"), "{dot}");
    assert!(
        dot.contains("m0 -> m1 [label=\"[0, 1]\"];") && dot.contains("out1 [shape=cds, label=\"out\\nsink\"];"),
        "{dot}"
    );
}

/// Checks the fields that programs need to draw the graph.
fn check(graph: &Value) {
    assert_eq!(graph["version"], 1);
    for (list, fields) in [
        ("modules", &["name", "function", "workers", "folded", "gates"][..]),
        ("ports", &["name", "kind", "workers"]),
        ("edges", &["from", "gate", "to"]),
        ("workers", &["id", "core"]),
        ("flows", &["name", "path", "slo_us", "percentile", "min_rate_pps"]),
    ] {
        let all = graph[list].as_array().unwrap_or_else(|| panic!("no {list}"));
        assert!(list == "flows" || !all.is_empty(), "{list}");
        for element in all {
            let mut names: Vec<_> = element.as_object().expect("an object").keys().map(String::as_str).collect();
            let mut fields = fields.to_vec();
            names.sort_unstable();
            fields.sort_unstable();
            assert_eq!(names, fields, "{list}");
        }
    }
}

#[test]
fn files_and_running_pipelines_have_the_same_json() {
    let running = Running::start();
    let of_running = json(&running.request(&["graph", "--json"]));
    let file = running.path("pipeline.yaml");
    let of_file = forebay(&["graph", file.to_str().expect("UTF-8"), "--json"]).json();
    check(&of_running);
    check(&of_file);
    // The core is chosen when the run starts.
    assert!(of_running["workers"][0]["core"].is_u64() && of_file["workers"][0]["core"].is_null());
    for part in ["pipeline", "modules", "ports", "edges", "flows", "batch", "scheduler"] {
        assert_eq!(of_running[part], of_file[part], "{part}");
    }
    assert_eq!(of_running["edges"][3], serde_json::json!({ "from": "a", "gate": "0", "to": "out" }));
    let tree = running.request(&["graph", "running"]).success();
    assert!(tree.contains("on core ") && tree.contains("└─ [0, 1] → a, b"), "{tree}");
    // A reload changes the graph.
    running.write(&PIPELINE.replace("a -> out", "a -> drop"));
    running.request(&["reload"]).success();
    let changed = json(&running.request(&["graph", "--json"]));
    assert_eq!(changed["edges"][3]["to"], Value::Null);
    let gw = json(&forebay(&["graph", "usecase:gw", "--json"]));
    assert!(gw["modules"].as_array().expect("a list").iter().any(|module| module["folded"] == "acl0"), "{gw}");
    assert_eq!(gw["flows"][0]["path"][0], "route[0]");
}

#[test]
fn a_graph_that_cannot_be_drawn_is_an_error() {
    let file = File::new("ports: {}\n");
    for (arguments, expected) in [
        (&["graph", file.path()][..], "pipeline"),
        (&["graph", "gw"], "did you mean 'usecase:gw'"),
        (&["graph", "usecase:gw", "--socket", "/nowhere"], "omit it to draw a running pipeline"),
        (&["graph", "running", "--set", "n=1"], "use `reload`"),
        (&["graph", "--socket", "/nowhere"], "no socket is there"),
    ] {
        let done = forebay(arguments);
        assert!(done.code == Some(2) && done.err.contains(expected), "{arguments:?}: {}", done.err);
    }
}
