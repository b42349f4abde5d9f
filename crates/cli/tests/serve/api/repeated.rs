//! Changes that a client repeats with an idempotency key: they are made once.

use std::io::Write;

use serde_json::{Value, json};

use super::{EDGE, INSTANCE, Site, TEXT, at_once, headers, list};
use crate::http::{Response, connect, request};
use crate::imitation::serve_as_pipeline;
use crate::server::{Server, Tokens, folder, wait_for};

const CHANGES: &str = "/tables/route/routes/changes";
const KEY: &str = "Idempotency-Key";

/// Returns whether the server has sent the response before.
fn is_repeated(response: &Response) -> bool {
    response.header("idempotent-replayed") == Some("true")
}

#[test]
fn a_repeated_request_is_made_once_and_has_the_same_response() {
    let site = Site::start(EDGE);
    let change = |token: &str, key: &str, body: &str| site.post(token, CHANGES, TEXT, &[(KEY, key)], body);
    let (operator, admin) = (&site.tokens.operator, &site.tokens.admin);
    let first = change(operator, "k1", "add 10.1.0.0/16 1");
    assert_eq!((first.status, &first.json()["made"], is_repeated(&first)), (200, &json!(1), false));
    for _ in 0..2 {
        let again = change(operator, "k1", "add 10.1.0.0/16 1");
        assert!(is_repeated(&again), "{again:?}");
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert_eq!(again.header("content-type"), first.header("content-type"));
    }
    let detail = change(operator, "k1", "add 10.2.0.0/16 1").problem(422);
    assert!(detail.contains("another request has this Idempotency-Key"), "{detail}");
    // The path is a part of the request, too.
    site.post(operator, "/tables/fw/rules/changes", TEXT, &[(KEY, "k1")], "add 10.1.0.0/16 1").problem(422);
    let other = change(admin, "k1", "add 10.3.0.0/16 1");
    assert_eq!(
        (other.status, &other.json()["made"], is_repeated(&other)),
        (200, &json!(1), false),
        "keys of another token"
    );
    let without = site.post(operator, CHANGES, TEXT, &[], "add 10.1.0.0/16 1");
    assert_eq!((&without.json()["made"], is_repeated(&without)), (&json!(0), false));
    for wrong in ["", "a b", &"k".repeat(129)] {
        assert!(change(operator, wrong, "add 10.4.0.0/16 1").problem(400).contains("1 to 128"), "{wrong}");
    }
    let entries = site.read("/tables/route/routes")["entries"].clone();
    assert_eq!(entries, json!(["0.0.0.0/0 0", "10.0.0.0/8 1", "10.1.0.0/16 1", "10.3.0.0/16 1"]));
    assert_eq!(site.audit().len(), 3, "a repeated request is no further change");
}

#[test]
fn a_repeated_configuration_is_not_stale() {
    let site = Site::start(EDGE);
    let (before, text) = (site.version(), EDGE.replace("10s", "11s"));
    let put = || site.put_at("/config", &[("If-Match", &before), (KEY, "k1")], &text);
    let (first, again) = (put(), put());
    assert_eq!((first.status, again.status, is_repeated(&again)), (200, 200, true), "{}", again.body);
    assert_eq!(again.body, first.body);
    assert_eq!(again.header("etag"), first.header("etag"), "the client needs the version for its next change");
    assert_eq!((first.header("etag"), site.audit().len()), (Some(site.version().as_str()), 1));
    // A refused change was not made: it can be tried again with the same key.
    let refused = || site.put_at("/config", &[("If-Match", "*"), (KEY, "k2")], "modules: {}\n");
    assert!((refused().status, refused().status) == (422, 422) && !is_repeated(&refused()));
}

#[test]
fn requests_with_one_key_at_the_same_time_are_made_once() {
    let site = Site::start(EDGE);
    let authorization = format!("Bearer {}", site.tokens.operator);
    for round in 0..4 {
        let key = format!("at-once-{round}");
        let headers = headers(&authorization, TEXT, &[(KEY, &key)]);
        let body = format!("add 10.{}.0.0/16 1", 20 + round);
        let change = request("POST", &format!("{INSTANCE}{CHANGES}"), &headers, &body);
        let responses = at_once(&site.server.address, &vec![change; 4]);
        let made: Vec<Value> = responses.iter().map(|response| response.json()["made"].clone()).collect();
        assert_eq!(made, vec![json!(1); 4], "{responses:?}");
        assert_eq!(responses.iter().filter(|response| is_repeated(response)).count(), 3);
    }
    assert_eq!(site.audit().len(), 4);
}

#[test]
fn a_change_whose_client_goes_away_is_remembered() {
    let site = Site::start(EDGE);
    let authorization = format!("Bearer {}", site.tokens.operator);
    for round in 0..6 {
        let key = format!("away-{round}");
        let body = format!("add 10.{}.0.0/16 1", 40 + round);
        let headers = headers(&authorization, TEXT, &[(KEY, &key)]);
        let change = request("POST", &format!("{INSTANCE}{CHANGES}"), &headers, &body);
        let mut stream = connect(&site.server.address);
        stream.write_all(change.as_bytes()).expect("the server listens");
        let records = || {
            let response = site.server.get_as(&site.tokens.admin, "/api/v1/audit?most=1000");
            list(&response.json(), "records").into_iter().filter(|record| record["request"] == body.as_str()).count()
        };
        // The change has begun when it is in the audit log.
        wait_for("the record of the change", || records() > 0);
        drop(stream);
        let again = site.post(&site.tokens.operator, CHANGES, TEXT, &[(KEY, &key)], &body);
        assert_eq!((&again.json()["made"], is_repeated(&again)), (&json!(1), true), "{}", again.body);
        assert_eq!(records(), 1);
    }
}

/// Regression: a request whose response was lost had no record, and was made a second time with the same key.
#[test]
fn a_change_of_unknown_effect_is_not_made_again() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let _followers = serve_as_pipeline(&folder.path().join("source.sock"));
    let server = Server::with(folder.path(), &tokens.setting(), &[]);
    let instance = "/api/v1/instances/source";
    wait_for("the pipeline", || server.get(instance).status == 200);
    let authorization = format!("Bearer {}", tokens.operator);
    let act = |module: &str, key: &str| {
        let headers = headers(&authorization, "application/json", &[(KEY, key)]);
        let body = json!({ "module": module, "action": { "set_trigger": { "module": 0, "trigger": 8 } } });
        server.send("POST", &format!("{instance}/actions"), &headers, &body.to_string())
    };
    let ended = act("a", "k1").problem(503);
    assert!(ended.contains("it is unknown whether it made the change"), "{ended}");
    act("wrong", "k2").problem(502);
    for (module, key) in [("a", "k1"), ("a", "k1"), ("wrong", "k2")] {
        assert!(act(module, key).problem(409).contains("the change may have been made"), "{module}");
    }
    assert!(act("b", "k1").problem(422).contains("another request has this Idempotency-Key"));
    // A change that was refused was not made.
    for _ in 0..2 {
        assert_eq!(act("refused", "k3").problem(422), "the value is too large");
    }
    let audit = server.get_as(&tokens.admin, "/api/v1/audit").json();
    assert_eq!(list(&audit, "records").len(), 4, "{audit}");
}

#[test]
fn a_dry_run_does_not_use_a_key() {
    let site = Site::start(EDGE);
    let (before, text) = (site.version(), EDGE.replace("10s", "11s"));
    let put = |path: &str| site.put_at(path, &[("If-Match", &before), (KEY, "k1")], &text);
    assert_eq!(put("/config?dry_run=true").json()["dry_run"], json!(true));
    let made = put("/config");
    assert_eq!((made.status, is_repeated(&made), &made.json()["dry_run"]), (200, false, &json!(false)));
}
