//! Changes of the configuration over HTTP: only of the version that the client knows, completely or not at all.

use serde_json::{Value, json};

use super::{EDGE, INSTANCE, QUIET, Site, YAML, at_once, headers, list};
use crate::http::request;

/// The pipeline with another objective.
fn edited(objective: &str) -> String {
    EDGE.replace("slo: 10s", &format!("slo: {objective}"))
}

/// Returns the objective of the flow in force, in microseconds.
fn objective(site: &Site) -> Option<f64> {
    site.read("/flows")["flows"][0]["slo_us"].as_f64()
}

#[test]
fn a_change_names_the_version_that_it_replaces() {
    let site = Site::start(EDGE);
    let before = site.version();
    let detail = site.put_at("/config", &[], &edited("11s")).problem(428);
    assert!(detail.contains("If-Match"), "{detail}");
    let stale = site.put("\"000000000000\"", &edited("11s"));
    assert!(stale.problem(412).contains(before.trim_matches('"')));
    assert_eq!(stale.header("etag"), Some(before.as_str()), "the client can repeat the change");
    for wrong in [before.trim_matches('"'), "", "\"\"", "\"", "W/\"1\"", "\"a\", \"b\"", "**"] {
        let detail = site.put(wrong, &edited("11s")).problem(400);
        assert!(detail.contains("allowed is one ETag in quotes, or *"), "{wrong}: {detail}");
    }
    assert_eq!((objective(&site), site.version()), (Some(1e7), before));
    assert!(site.audit().is_empty(), "none of these is a change: {:?}", site.audit());
    assert_eq!(site.put("*", &edited("11s")).status, 200);
    assert_eq!(objective(&site), Some(1.1e7));
}

#[test]
fn an_accepted_change_is_in_force_and_is_kept_by_state() {
    let folder = crate::server::folder();
    let state = folder.path().join("edge.state");
    let site = Site::with(EDGE, &["--state", state.to_str().expect("a plain name")]);
    let before = site.version();
    let text = edited("12s").replace("  b: { counter: }\n", "  b: { counter: }\n  c: { counter: }\n");
    let text = text.replace("route[0] -> a -> out", "route[0] -> a -> c -> out");
    let response = site.put(&before, &text);
    assert_eq!(response.status, 200, "{}", response.body);
    let result = response.json();
    assert_eq!(
        (&result["dry_run"], &result["reloaded"]["added"], &result["reloaded"]["missing"]),
        (&json!(false), &json!(["c"]), &json!(0))
    );
    assert_eq!(result["checked"]["faults"], json!([]));
    let after = site.version();
    assert_ne!(after, before);
    assert_eq!((response.header("etag"), &result["version"]), (Some(after.as_str()), &json!(after.trim_matches('"'))));
    assert_eq!(site.read("/config")["version"], result["version"]);
    assert_eq!(objective(&site), Some(1.2e7));
    assert!(list(&site.read("/graph"), "modules").iter().any(|module| module["name"] == "c"));
    let kept: Value = serde_json::from_slice(&std::fs::read(&state).expect("the state")).expect("JSON");
    assert_eq!(kept["text"], json!(text));
    // The version changes with each accepted change, also if the text is the former one.
    assert_eq!(site.put(&after, EDGE).status, 200);
    assert!(site.version() != before && site.version() != after);
    site.pipeline.end();
}

#[test]
fn all_faults_are_reported_with_their_lines_and_nothing_changes() {
    let site = Site::start(EDGE);
    let before = (site.version(), site.read("/graph"));
    let text =
        edited("12 parsecs").replace("a: { counter: }", "a: { countr: }").replace("permit any", "permit nonsense");
    let numbered: Vec<&str> = text.lines().collect();
    let line_of = |part: &str| numbered.iter().position(|line| line.contains(part)).expect("a line") as u64 + 1;
    let expected = [line_of("nonsense"), line_of("countr"), line_of("parsecs")];
    for path in ["/config", "/config?dry_run=true"] {
        let response = site.put_at(path, &[("If-Match", &before.0)], &text);
        assert!(response.problem(422).contains("3 faults"), "{}", response.body);
        let faults = list(&response.json(), "faults");
        let lines: Vec<_> = faults.iter().filter_map(|fault| fault["line"].as_u64()).collect();
        assert_eq!(lines, expected, "{path}: {faults:#?}");
        let is_complete = |fault: &Value| fault["column"].as_u64() > Some(0) && fault["message"].is_string();
        assert!(faults.iter().all(is_complete), "{faults:#?}");
        assert!(
            faults
                .iter()
                .any(|fault| fault["message"].as_str().is_some_and(|text| text.contains("did you mean 'counter'")))
        );
    }
    for text in ["modules: [\n", "", "- a\n- b\n"] {
        let faults = list(&site.put("*", text).json(), "faults");
        assert!(!faults.is_empty() && faults[0]["line"].is_u64(), "{text}: {faults:?}");
    }
    assert_eq!((site.version(), site.read("/graph")), before);
}

#[test]
fn a_dry_run_changes_nothing_and_is_no_change() {
    let folder = crate::server::folder();
    let state = folder.path().join("edge.state");
    let site = Site::with(EDGE, &["--state", state.to_str().expect("a plain name")]);
    let (before, kept) = (site.version(), std::fs::read(&state).ok());
    let events = list(&site.read("/events"), "events").len();
    let response = site.put_at("/config?dry_run=true", &[("If-Match", &before)], &edited("12s"));
    assert_eq!((response.status, response.header("etag")), (200, Some(before.as_str())), "{}", response.body);
    let result = response.json();
    assert_eq!(
        (&result["dry_run"], &result["reloaded"], &result["checked"]["faults"]),
        (&json!(true), &Value::Null, &json!([]))
    );
    assert_eq!((site.version(), std::fs::read(&state).ok()), (before.clone(), kept));
    assert_eq!((objective(&site), list(&site.read("/events"), "events").len()), (Some(1e7), events));
    assert!(site.audit().is_empty());
    let stale = site.put_at("/config?dry_run=true", &[("If-Match", "\"000000000000\"")], &edited("12s"));
    stale.problem(412);
    assert_eq!(site.put_at("/config?dry_run=false", &[("If-Match", &before)], &edited("12s")).status, 200);
    assert_eq!(objective(&site), Some(1.2e7));
}

#[test]
fn exactly_one_of_several_changes_of_one_version_succeeds() {
    const CLIENTS: usize = 4;
    let site = Site::start(EDGE);
    let (authorization, path) = (format!("Bearer {}", site.tokens.admin), format!("{INSTANCE}/config"));
    for round in 0..3 {
        let before = site.version();
        let seconds = |client: usize| 20 + round * CLIENTS + client;
        let change = |client: usize| {
            let headers = headers(&authorization, YAML, &[("If-Match", &before)]);
            request("PUT", &path, &headers, &edited(&format!("{}s", seconds(client))))
        };
        let requests: Vec<String> = (0..CLIENTS).map(change).collect();
        let responses = at_once(&site.server.address, &requests).into_iter().enumerate();
        let (made, refused): (Vec<_>, Vec<_>) = responses.partition(|(_, response)| response.status == 200);
        assert_eq!((made.len(), refused.len()), (1, CLIENTS - 1), "{refused:?}");
        refused.iter().for_each(|(_, response)| drop(response.problem(412)));
        assert_eq!(made[0].1.header("etag"), Some(site.version().as_str()));
        assert_eq!(objective(&site), Some(seconds(made[0].0) as f64 * 1e6));
    }
}

#[test]
fn a_reload_by_another_program_is_not_overwritten() {
    let site = Site::start(EDGE);
    let before = site.version();
    let file = site.folder.path().join("other.yaml");
    std::fs::write(&file, edited("30s")).expect("a writable folder");
    site.command(&["reload", file.to_str().expect("a plain name")]);
    site.put(&before, &edited("31s")).problem(412);
    assert_eq!(objective(&site), Some(3e7));
    assert_eq!(site.put(&site.version(), &edited("31s")).status, 200);
    assert_eq!(objective(&site), Some(3.1e7));
}

#[test]
fn a_change_that_the_pipeline_refuses_has_the_reason() {
    let site = Site::start(QUIET);
    let before = site.version();
    let text = format!("batch: 8\n{QUIET}");
    // The text has no fault: only the running pipeline cannot change to it.
    assert_eq!(site.put_at("/config?dry_run=true", &[("If-Match", &before)], &text).status, 200);
    let detail = site.put(&before, &text).problem(422);
    assert!(detail.contains("batch: 32 cannot become 8 while packets run"), "{detail}");
    assert_eq!(site.version(), before);
    let records = site.audit();
    assert_eq!(records.len(), 1, "{records:?}");
    assert_eq!((&records[0]["ended"]["status"], &records[0]["ended"]["result"]), (&json!(422), &json!(detail)));
}

#[test]
fn a_change_needs_an_administrator_and_the_media_type_of_yaml() {
    let site = Site::start(QUIET);
    let path = format!("{INSTANCE}/config");
    for token in [&site.tokens.viewer, &site.tokens.operator] {
        let authorization = format!("Bearer {token}");
        let more = headers(&authorization, YAML, &[("If-Match", "*")]);
        assert!(site.server.send("PUT", &path, &more, QUIET).problem(403).contains("admin"));
    }
    let authorization = format!("Bearer {}", site.tokens.admin);
    for (content_type, status) in [("text/plain", 415), ("application/json", 415), ("Text/YAML; charset=utf-8", 200)] {
        let more = headers(&authorization, content_type, &[("If-Match", "*")]);
        assert_eq!(site.server.send("PUT", &path, &more, QUIET).status, status, "{content_type}");
    }
}
