//! Changes of tables, values and workers, and the audit log of all changes.

use serde_json::{Value, json};

use super::{EDGE, INSTANCE, JSON, QUIET, Site, TEXT, YAML, headers, list};
use crate::http::{connect, exchange, request};

const CHANGES: &str = "/tables/route/routes/changes";

#[test]
fn changes_of_a_table_are_made_and_refused_ones_are_numbered() {
    let site = Site::start(EDGE);
    let entries = || site.read("/tables/route/routes")["entries"].clone();
    let before = (entries(), site.version());
    let body = "add 10.9.0.0/16 1\nadd 10.9.0.0/16 1\nnonsense\n\n  \nremove 11.0.0.0/8\nadd 10.8.0.0/33 1\n\
                replace 10.0.0.0/8 0\n";
    let response = site.post(&site.tokens.operator, CHANGES, TEXT, &[], body);
    assert_eq!(response.status, 200, "{}", response.body);
    let result = response.json();
    assert_eq!((&result["made"], &result["refusals"]), (&json!(2), &json!(4)));
    let refused: Vec<(u64, String)> = serde_json::from_value(result["refused"].clone()).expect("numbers and reasons");
    // Empty lines are no changes: they have no numbers.
    assert_eq!(refused.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3, 4, 5]);
    for ((_, reason), part) in refused.iter().zip(["already exists", "allowed are", "no route 11.0.0.0/8", "0 to 32"]) {
        assert!(reason.contains(part), "{reason}");
    }
    assert_eq!(entries(), json!(["0.0.0.0/0 0", "10.0.0.0/8 0", "10.9.0.0/16 1"]));
    let printed = site.command(&["show", "table", "route"]);
    assert_eq!(entries(), json!(printed.lines().collect::<Vec<_>>()));
    assert_eq!(site.read("/tables/route/routes?most=1")["entries"], json!(["0.0.0.0/0 0"]));
    assert_eq!(site.read("/tables/route/routes?after=10.0.0.0/8%200")["entries"], json!(["10.9.0.0/16 1"]));
    let back = site.post(&site.tokens.admin, CHANGES, TEXT, &[], "remove 10.9.0.0/16\nreplace 10.0.0.0/8 1");
    assert_eq!((&back.json()["made"], &back.json()["refused"]), (&json!(2), &json!([])));
    assert_eq!((entries(), site.version()), before, "a change of a table is no change of the configuration");
    for body in ["", "\n \n"] {
        let detail = site.post(&site.tokens.operator, CHANGES, TEXT, &[], body).problem(422);
        assert!(detail.contains("no change"), "{detail}");
    }
    assert!(site.post(&site.tokens.viewer, CHANGES, TEXT, &[], "add 10.7.0.0/16 1").problem(403).contains("operator"));
    site.post(&site.tokens.operator, CHANGES, JSON, &[], "add 10.7.0.0/16 1").problem(415);
    assert_eq!(entries(), before.0);
}

#[test]
fn an_action_sets_a_value_and_a_wrong_one_is_refused() {
    let site = Site::start(EDGE);
    let act = |body: &str| site.post(&site.tokens.operator, "/actions", JSON, &[], body);
    let trigger = |of: &str| {
        let modules = list(&site.read("/modules"), "modules");
        modules.iter().find(|module| module["name"] == of).map(|module| module["trigger"].clone())
    };
    let set = |module: &str, trigger: u32| {
        act(&json!({ "module": module, "action": { "set_trigger": { "module": 0, "trigger": trigger } } }).to_string())
    };
    let done = set("route", 8);
    assert_eq!((done.status, done.json()), (200, json!({ "done": true })));
    // The module is the one of that name, not the one of that index.
    assert_eq!((trigger("route"), trigger("fw")), (Some(json!(8)), Some(json!(0))));
    let detail = set("route", 100_000).problem(422);
    assert!(detail.contains("100000") && detail.contains("allowed are 0 to 32"), "{detail}");
    let detail = set("nope", 8).problem(422);
    assert!(detail.contains("'nope'") && detail.contains("fw, route, a, b"), "{detail}");
    let weight = json!({ "module": "route", "action": { "set_weight": { "module": 0, "weight": 3 } } }).to_string();
    assert!(act(&weight).problem(422).contains("weights"));
    for (wrong, status) in [
        ("", 400),
        ("{", 400),
        ("[]", 400),
        (r#"["route",{"set_trigger":{"module":0,"trigger":1}}]"#, 400),
        (r#"{"module":"route"}"#, 422),
        (r#"{"module":"route","action":{"explode":{}}}"#, 422),
        (r#"{"module":"route","action":{"set_trigger":{"module":0,"trigger":-1}}}"#, 422),
    ] {
        assert!(act(wrong).problem(status).starts_with("the body: "), "{wrong}");
    }
    assert_eq!(trigger("route"), Some(json!(8)));
    site.pipeline.end();
}

#[test]
fn an_action_cannot_end_the_run() {
    let site = Site::start(EDGE);
    // Without packets from its only source, the run would end. The API sets values of modules, not rates of sources.
    let offer = r#"{"module":"a","action":{"set_offer":{"factor":0}}}"#;
    site.post(&site.tokens.operator, "/actions", JSON, &[], offer).problem(422);
    site.pipeline.end();
}

#[test]
fn modules_move_to_other_workers_and_wrong_moves_are_refused() {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        return crate::print("skipped: modules_move_to_other_workers_and_wrong_moves_are_refused: it needs two cores");
    }
    let site = Site::start(&format!("{EDGE}workers: [{{ modules: [fw, route] }}, {{ modules: [a, b] }}]\n"));
    let wanted = |modules: Value| {
        site.post(&site.tokens.operator, "/moves", JSON, &[], &json!({ "modules": modules }).to_string())
    };
    let workers = |of: &str| {
        let modules = list(&site.read("/graph"), "modules");
        modules.iter().find(|module| module["name"] == of).map(|module| module["workers"].clone())
    };
    assert_eq!((workers("route"), workers("b")), (Some(json!([0])), Some(json!([1]))));
    let before = site.version();
    let moved = wanted(json!([{ "module": "route", "to": [1] }]));
    assert_eq!(moved.status, 200, "{}", moved.body);
    assert_eq!(moved.json()["moves"], json!([{ "module": "route", "from": [0], "to": [1] }]));
    assert_eq!(workers("route"), Some(json!([1])));
    assert_ne!(site.version(), before, "the workers are a part of the configuration");
    let none = wanted(json!([{ "module": "route", "to": [1] }]));
    assert_eq!((none.status, &none.json()["moves"]), (200, &json!([])));
    for (modules, part) in [
        (json!([{ "module": "a", "to": [7] }]), "there is no worker 7"),
        (json!([{ "module": "nope", "to": [0] }]), "there are fw, route, a, b"),
        (json!([{ "module": "a", "to": [] }]), "at least one worker"),
    ] {
        let detail = wanted(modules).problem(422);
        assert!(detail.contains(part), "{detail}");
    }
    let wrong = r#"{"modules":[{"module":"a","to":[0]}],"force":true}"#;
    assert!(site.post(&site.tokens.operator, "/moves", JSON, &[], wrong).problem(422).contains("force"));
    site.pipeline.end();
}

#[test]
fn the_audit_log_has_one_complete_record_of_each_change_in_order() {
    let site = Site::start(QUIET);
    let versions = |site: &Site| site.version().trim_matches('"').to_owned();
    let send = |token: &str, method: &str, path: &str, content_type: &str, body: &str| {
        let mut stream = connect(&site.server.address);
        let peer = stream.local_addr().expect("it is connected").to_string();
        let authorization = format!("Bearer {token}");
        let more = headers(&authorization, content_type, &[("If-Match", "*")]);
        let response = exchange(&mut stream, request(method, path, &more, body).as_bytes());
        (peer, response.status, versions(&site))
    };
    let [config, changes, actions, moves] =
        ["config", "tables/fw/rules/changes", "actions", "moves"].map(|path| format!("{INSTANCE}/{path}"));
    let (admin, operator) = (&site.tokens.admin, &site.tokens.operator);
    let other = QUIET.replace("10s", "11s");
    let trigger = r#"{"module":"a","action":{"set_trigger":{"module":1,"trigger":4}}}"#;
    let wrong = r#"{"module":"a","action":{"set_trigger":{"module":1,"trigger":400}}}"#;
    let still = r#"{"modules":[{"module":"a","to":[0]}]}"#;
    let sent = [
        (admin, "PUT", &config, YAML, other.as_str(), 200),
        (admin, "PUT", &config, YAML, "modules: {}\n", 422),
        (operator, "POST", &changes, TEXT, "add 0 deny ip tcp from any to any port 23\nnonsense", 200),
        (operator, "POST", &actions, JSON, trigger, 200),
        (operator, "POST", &actions, JSON, wrong, 422),
        (admin, "POST", &moves, JSON, still, 200),
    ];
    let mut before = versions(&site);
    let mut expected = Vec::new();
    for (token, method, path, content_type, body, wanted) in sent {
        let (peer, status, after) = send(token, method, path, content_type, body);
        assert_eq!(status, wanted, "{method} {path} {body}");
        let name = if token == admin { "admin" } else { "operator" };
        expected.push(json!({
            "who": format!("{name}-1"), "user": null, "role": name, "peer": peer, "method": method, "path": path,
            "instance": "edge", "version_before": before, "status": status,
            // A refused change has no version of its own: the one before it stays.
            "version_after": if status == 200 { json!(after) } else { Value::Null },
        }));
        before = after;
    }
    let records = site.audit();
    let found = |record: &Value| {
        let mut found =
            json!({ "status": record["ended"]["status"], "version_after": record["ended"]["version_after"] });
        for key in ["who", "user", "role", "peer", "method", "path", "instance", "version_before"] {
            found[key] = record[key].clone();
        }
        found
    };
    assert_eq!(records.iter().map(found).collect::<Vec<_>>(), expected);
    for (at, record) in records.iter().enumerate() {
        assert_eq!(record["id"], json!(at + 1), "the numbers have no gaps");
        assert!(record["ended"]["at_ms"].as_i64() >= record["at_ms"].as_i64(), "{record}");
        assert!(record["ended"]["result"].as_str().is_some_and(|result| !result.is_empty()), "{record}");
    }
    // A configuration may have secrets: only its length and its hash are recorded.
    assert!(
        records[0]["request"]
            .as_str()
            .is_some_and(|text| text.starts_with(&format!("{} bytes, SHA-256 ", other.len())))
    );
    assert!(records[2]["request"].as_str().is_some_and(|text| text.contains("add 0 deny ip tcp")));
    assert!(records[2]["ended"]["result"].as_str().is_some_and(|text| text.starts_with("1 made, 1 refused")));
    assert!(records[4]["ended"]["result"].as_str().is_some_and(|text| text.contains("allowed are 0 to 32")));
    let page = |query: &str| {
        list(&site.server.get_as(&site.tokens.admin, &format!("/api/v1/audit?{query}")).json(), "records")
    };
    let ids = |records: Vec<Value>| records.iter().filter_map(|record| record["id"].as_u64()).collect::<Vec<_>>();
    assert_eq!(ids(page("most=2")), [6, 5]);
    assert_eq!(ids(page("most=2&before=5")), [4, 3]);
    assert_eq!(ids(page("before=2")), [1]);
    assert!(page("before=1").is_empty());
}

#[test]
fn a_request_that_is_no_change_has_no_record() {
    let site = Site::start(QUIET);
    site.post(&site.tokens.viewer, "/actions", JSON, &[], "{}").problem(403);
    site.post("forebay_0", "/actions", JSON, &[], "{}").problem(401);
    site.post(&site.tokens.admin, "/actions", JSON, &[], "{").problem(400);
    site.put("\"0\"", QUIET).problem(412);
    assert_eq!(site.put_at("/config?dry_run=true", &[("If-Match", "*")], QUIET).status, 200);
    site.server.get_as(&site.tokens.viewer, "/api/v1/audit").problem(403);
    assert!(site.audit().is_empty(), "{:?}", site.audit());
}
