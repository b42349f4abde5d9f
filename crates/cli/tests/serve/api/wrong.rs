//! Requests with names, values and keys that do not exist: the response says which ones do.

use std::collections::BTreeSet;
use std::io::{BufReader, Write};

use super::{EDGE, INSTANCE, JSON, Site, TEXT, YAML, headers};
use crate::http::{connect, read_head, request};

#[test]
fn an_unknown_name_gives_404_with_the_names_that_exist() {
    let site = Site::start(EDGE);
    let description = site.server.get("/api/v1/openapi.json").json();
    let paths = description["paths"].as_object().expect("paths").keys().filter(|path| path.contains("{name}"));
    for path in
        paths.filter(|path| !path.ends_with("/changes") && !path.ends_with("/actions") && !path.ends_with("/moves"))
    {
        let path = path.replace("{name}", "nope").replace("{module}", "fw").replace("{table}", "rules");
        let detail = site.server.get_as(&site.tokens.admin, &path).problem(404);
        assert_eq!(detail, "no pipeline is called 'nope': there are edge", "{path}");
    }
    let admin = format!("Bearer {}", site.tokens.admin);
    let nope = "/api/v1/instances/nope";
    let put = site.server.send("PUT", &format!("{nope}/config"), &headers(&admin, YAML, &[("If-Match", "*")]), EDGE);
    assert!(put.problem(404).contains("there are edge"));
    for path in ["actions", "moves", "tables/fw/rules/changes"] {
        let content_type = if path.ends_with("changes") { TEXT } else { JSON };
        let response = site.server.send("POST", &format!("{nope}/{path}"), &headers(&admin, content_type, &[]), "{}");
        assert!(response.problem(404).contains("there are edge"), "{path}");
    }
    let read = |path: &str| site.server.get_as(&site.tokens.admin, &format!("{INSTANCE}{path}"));
    let detail = read("/modules/nope").problem(404);
    assert_eq!(detail, "no module is called 'nope': there are fw, route, a, b");
    assert!(site.audit().is_empty(), "nothing was changed: {:?}", site.audit());
}

#[test]
fn an_unknown_table_gives_404_with_the_tables_that_exist() {
    let site = Site::start(EDGE);
    for path in ["/tables/nope/rules", "/tables/fw/nope", "/tables/a/a"] {
        let detail = site.server.get_as(&site.tokens.admin, &format!("{INSTANCE}{path}")).problem(404);
        assert!(detail.contains("fw.rules") || detail.contains("no table"), "{path}: {detail}");
        let detail = site.post(&site.tokens.operator, &format!("{path}/changes"), TEXT, &[], "add x").problem(404);
        assert!(detail.contains("fw.rules") || detail.contains("no table"), "{path}: {detail}");
    }
}

#[test]
fn the_history_of_an_unknown_module_or_flow_gives_404() {
    let site = Site::start(EDGE);
    for (query, known) in [("module=nope", "fw"), ("flow=nope", "video")] {
        let detail = site.server.get(&format!("{INSTANCE}/history?{query}")).problem(404);
        assert!(detail.contains("'nope'") && detail.contains(known), "{detail}");
    }
}

#[test]
fn a_wrong_value_in_the_query_gives_400_with_what_is_allowed() {
    let site = Site::start(EDGE);
    let read = |path: &str| site.server.get_as(&site.tokens.admin, path);
    for (query, allowed) in [
        ("history?most=0", "1 to 10000"),
        ("history?most=10001", "1 to 10000"),
        ("history?resolution=1m", "10s and 5m"),
        ("history?module=a&flow=video", "`module` or `flow`"),
        ("trace?count=0", "1 to 100"),
        ("trace?count=101", "1 to 100"),
        ("trace?for_ms=0", "1 to 9000"),
        ("tables/fw/rules?most=0", "1 to 10000"),
    ] {
        let detail = read(&format!("{INSTANCE}/{query}")).problem(400);
        assert!(detail.contains("allowed") && detail.contains(allowed), "{query}: {detail}");
    }
    assert!(read("/api/v1/audit?most=1001").problem(400).contains("allowed are 1 to 1000"));
    assert!(read(&format!("{INSTANCE}/trace?filter=nonsense")).problem(422).contains("allowed"));
    for (path, key) in [
        (format!("{INSTANCE}/history?most=many"), "most"),
        (format!("{INSTANCE}/history?from=now"), "from"),
        (format!("{INSTANCE}/events?after=-1"), "after"),
        ("/api/v1/audit?before=x".to_owned(), "before"),
        ("/metrics?all_modules=maybe".to_owned(), "all_modules"),
    ] {
        let detail = read(&path).problem(400);
        assert!(detail.contains(key) && detail.contains("allowed"), "{path}: {detail}");
    }
    let response = site.put_at("/config?dry_run=maybe", &[("If-Match", "*")], EDGE);
    assert!(response.problem(400).contains("dry_run"));
}

#[test]
fn an_unknown_key_in_the_query_gives_400_everywhere() {
    let site = Site::start(EDGE);
    let description = site.server.get("/api/v1/openapi.json").json();
    let mut wrong = BTreeSet::new();
    for (path, operations) in description["paths"].as_object().expect("paths") {
        let filled = path.replace("{name}", "edge").replace("{module}", "fw").replace("{table}", "rules");
        if operations["get"].is_null() {
            continue;
        }
        // A request that is not refused may be a stream, which does not end: only the head is read.
        let token = format!("Bearer {}", site.tokens.admin);
        let mut stream = connect(&site.server.address);
        let bytes = request("GET", &format!("{filled}?unknown=1"), &[("Authorization", &token)], "");
        stream.write_all(bytes.as_bytes()).expect("the server listens");
        let (status, _) = read_head(&mut BufReader::new(stream));
        if status != 400 {
            wrong.insert(format!("{path}: {status}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
