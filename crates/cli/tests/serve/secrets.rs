//! Secrets of pipelines and tokens: no response, log or file of the server contains one.

use std::cell::RefCell;
use std::io::{Read, Write};
use std::path::Path;

use rustix::process::Signal;
use serde_json::Value;

use crate::http::{Response, connect, request};
use crate::server::{Pipeline, Server, Tokens, folder, give, wait_for};

/// Keys in force: of two modules, of a tunnel, and in a file.
const SEAL: &str = "a7c1e94b5d2f8036914e7ab3c5d80f62";
const TUNNEL: &str = "5e8b13f7c92a4d6071b8e3a95fc40d2796e1d83b";
const IN_FILE: &str = "d4096b8f2ea751c3b80fe64297d15ac3";
/// Keys in changes: valid ones, and one that only a person can recognise as a secret.
const NEW: &str = "38f5d0a96c7be2419f03c86d5ab7e412";
const NEW_TUNNEL: &str = "c61d7a028eb94f53d80a6e2b91f5c7340b6ea9d2";
const WORD: &str = "correcthorsebatterystaple";

const PIPELINE: &str = "
ports:
  in: { generator: { rate: 10kpps, destination: 10.0.0.0/16 } }
  out: { sink: }
modules:
  seal: { aes_gcm_encrypt: { keys: [{ id: 1, key: SEAL }, { id: 2, file: keyfile }], use: 1 } }
  open: { aes_gcm_decrypt: { keys: [{ id: 1, key: SEAL }, { id: 2, file: keyfile }] } }
  esp:
    esp_encrypt:
      source: 192.0.2.1
      associations: ['0x1001 key=TUNNEL peer=192.0.2.2 for=0.0.0.0/0']
  route: { ip_lookup: { routes: ['0.0.0.0/0 0'] } }
pipeline: [in -> seal -> open -> route -> esp -> out]
flows:
  - { name: video, path: 'route[0] -> esp', slo: 100ms }
";

/// Modules, each with the name of a table that it has, or might have.
const MODULES: [(&str, &str); 4] = [("seal", "keys"), ("open", "keys"), ("esp", "associations"), ("route", "routes")];

fn pipeline() -> String {
    PIPELINE.replace("SEAL", &format!("'{SEAL}'")).replace("TUNNEL", TUNNEL)
}

/// A client with the token of an administrator. It keeps all that it has received.
struct Client<'s> {
    server: &'s Server,
    authorization: String,
    received: RefCell<Vec<(String, String)>>,
}

impl Client<'_> {
    fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Response {
        let own = [("Authorization", self.authorization.as_str())];
        let response = self.server.send(method, path, &[&own[..], headers].concat(), body);
        let text = format!("{:?} {}", response.headers, response.body);
        self.received.borrow_mut().push((format!("{method} {path}: {}", response.status), text));
        response
    }

    fn get(&self, path: &str) -> Response {
        self.send("GET", path, &[], "")
    }

    fn put(&self, text: &str, query: &str) -> Response {
        let headers = [("If-Match", "*"), ("Content-Type", "application/yaml")];
        self.send("PUT", &format!("/api/v1/instances/edge/config{query}"), &headers, text)
    }
}

/// Returns whether a text contains a part of a secret: any 15 consecutive characters of it, or half of its bytes.
fn shows(text: &[u8], secret: &str) -> bool {
    let has = |part: &[u8]| text.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part));
    if secret.as_bytes().chunks_exact(8).any(has) {
        return true;
    }
    let byte = |at: usize| u8::from_str_radix(secret.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<_>> = (0..16).step_by(2).map(byte).collect();
    bytes.is_some_and(|bytes| text.windows(bytes.len()).any(|window| window == bytes))
}

/// Returns a valid value of a parameter in the query.
fn value_of(parameter: &Value) -> &'static str {
    let is_number = parameter["schema"]["type"] == "integer";
    match parameter["name"].as_str().expect("a name") {
        "after" if is_number => "0",
        "after" => "0x00001001",
        "all_modules" => "true",
        "before" => "1000",
        "count" => "2",
        "filter" => "udp",
        "flow" => "video",
        "for_ms" => "500",
        "from" => "0",
        "instance" => "*",
        "module" => "seal",
        "most" => "10",
        "resolution" => "5m",
        "to" => "4000000000",
        other => panic!("this test knows no value of the parameter '{other}'"),
    }
}

/// Sends every request that reads, with each of its parameters, and with a key in place of each value and name.
fn read_everything(client: &Client) {
    let description = client.get("/api/v1/openapi.json").json();
    for (template, operations) in description["paths"].as_object().expect("paths") {
        // The stream has no end. Another client reads it.
        if operations["get"].is_null() || template == "/api/v1/events" {
            continue;
        }
        let mut paths: Vec<_> = MODULES.map(|names| filled(template, "edge", names)).to_vec();
        paths.dedup();
        for path in paths {
            client.get(&path);
            for parameter in operations["get"]["parameters"].as_array().into_iter().flatten() {
                if parameter["in"] == "query" {
                    for value in [value_of(parameter), NEW] {
                        client.get(&format!("{path}?{}={value}", parameter["name"].as_str().expect("a name")));
                    }
                }
            }
        }
        if template.contains("{name}") {
            for (instance, module, table) in [(NEW, "seal", "keys"), ("edge", NEW, "keys"), ("edge", "esp", NEW)] {
                client.get(&filled(template, instance, (module, table)));
            }
        }
        client.get(&format!("{}?{NEW}=1", filled(template, "edge", MODULES[0])));
    }
    for format in [
        "text/plain;version=0.0.4",
        "application/openmetrics-text;version=1.0.0",
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    ] {
        assert_eq!(client.send("GET", "/metrics", &[("Accept", format)], "").status, 200);
    }
}

fn filled(template: &str, instance: &str, (module, table): (&str, &str)) -> String {
    template.replace("{name}", instance).replace("{module}", module).replace("{table}", table)
}

/// Sends configurations with `***`, with other keys, and with faults.
fn change_the_configuration(client: &Client) {
    let shown = client.get("/api/v1/instances/edge/config").json()["text"].as_str().expect("a text").to_owned();
    assert_eq!(shown.matches("***").count(), 3, "{shown}");
    let text = pipeline();
    for wrong in [
        text.replace(SEAL, &NEW[1..]),
        text.replace(SEAL, WORD),
        text.replace(&format!("key: '{SEAL}'"), &format!("key: [{NEW}]")),
        text.replace(&format!("'{SEAL}'"), &format!("'{NEW}' x")),
        text.replace("use: 1", &format!("use: {NEW}")),
        text.replace("keys: [", &format!("{NEW}: [")),
        text.replace("route:", "rout:").replace(SEAL, NEW),
        text.replace(TUNNEL, NEW),
        text.replace(TUNNEL, WORD),
        text.replace("peer=192.0.2.2", NEW_TUNNEL),
        text.replace("source: 192.0.2.1", "source: [192.0.2.1").replace(SEAL, NEW),
        shown.replace("id: 1", "id: 9"),
        format!("{text}\nbatch: {NEW}\n"),
    ] {
        for query in ["?dry_run=true", ""] {
            let response = client.put(&wrong, query);
            assert_eq!(response.status, 422, "{wrong}: {response:?}");
        }
    }
    let version = format!("\"{NEW}\"");
    let stale = [("If-Match", version.as_str()), ("Content-Type", "application/yaml")];
    assert_eq!(client.send("PUT", "/api/v1/instances/edge/config", &stale, &text).status, 412);
    // A valid one with another key, twice with one key of repetition.
    let again = [("If-Match", "*"), ("Content-Type", "application/yaml"), ("Idempotency-Key", "again")];
    for replayed in [None, Some("true")] {
        let text = text.replace(SEAL, NEW).replace(TUNNEL, NEW_TUNNEL);
        let response = client.send("PUT", "/api/v1/instances/edge/config", &again, &text);
        assert_eq!((response.status, response.header("idempotent-replayed")), (200, replayed), "{response:?}");
    }
    assert_eq!(client.put(&text, "").status, 200);
}

/// Changes tables and values, with keys in right and wrong places.
fn change_parts(client: &Client) {
    for (change, made) in [
        (format!("add 0x1002 key={NEW_TUNNEL} peer=192.0.2.3 for=10.0.0.0/8"), 1),
        (format!("replace 0x1002 key={NEW_TUNNEL} peer=192.0.2.4 for=10.0.0.0/8"), 1),
        (format!("add 0x1003 key={} peer=192.0.2.3", &NEW_TUNNEL[1..]), 0),
        (format!("add 0x1003 key={WORD} peer=192.0.2.3"), 0),
        (format!("add 0x1003 {NEW_TUNNEL} peer=192.0.2.3"), 0),
        (format!("add 0x1003 key={NEW_TUNNEL} peer={NEW_TUNNEL}"), 0),
        (format!("add {NEW_TUNNEL}"), 0),
        (format!("remove {NEW_TUNNEL}"), 0),
        (NEW_TUNNEL.to_owned(), 0),
    ] {
        let path = "/api/v1/instances/edge/tables/esp/associations/changes";
        let response = client.send("POST", path, &[("Content-Type", "text/plain")], &change);
        assert_eq!(response.status, 200, "{change}: {response:?}");
        assert!(response.json()["made"] == made, "{change}: {response:?}");
    }
    for (module, table) in [("esp", NEW), (NEW, "associations"), ("seal", "keys")] {
        let path = format!("/api/v1/instances/edge/tables/{module}/{table}/changes");
        client.send("POST", &path, &[("Content-Type", "text/plain")], &format!("add 3 key={NEW_TUNNEL}"));
    }
    for (path, body) in [
        ("actions", format!(r#"{{"module":"{NEW}","action":{{"set_trigger":{{"module":0,"trigger":8}}}}}}"#)),
        ("actions", format!(r#"{{"module":"seal","action":{{"{NEW}":1}}}}"#)),
        ("actions", format!(r#"{{"module":"seal","{NEW}":1}}"#)),
        ("actions", format!(r#"{{"module":"seal","action":"{NEW}"}}"#)),
        ("actions", format!(r#"{{"module":{NEW}}}"#)),
        ("moves", format!(r#"{{"modules":[{{"module":"{NEW}","to":[0]}}]}}"#)),
        ("moves", format!(r#"{{"modules":"{NEW}"}}"#)),
    ] {
        let path = format!("/api/v1/instances/edge/{path}");
        let response = client.send("POST", &path, &[("Content-Type", "application/json")], &body);
        assert!([400, 422].contains(&response.status), "{body}: {response:?}");
    }
}

/// Returns all files in a folder, with their bytes.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).expect("it can be read").map(|entry| entry.expect("it can be read"));
    entries.map(|entry| (entry.path().display().to_string(), std::fs::read(entry.path()).expect("a file"))).collect()
}

#[test]
fn no_response_log_or_file_of_the_server_contains_a_secret() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    std::fs::write(folder.path().join("keyfile"), IN_FILE).expect("a writable folder");
    let database = folder.path().join("database");
    std::fs::create_dir(&database).expect("a writable folder");
    give(&database);
    let _pipeline = Pipeline::of(folder.path(), "edge", &pipeline(), &[]);
    let settings = format!(
        "{}\nstore: '{}'\nconfig_paths: ['{}']\nlimits: {{ requests_per_second: 1000000 }}",
        tokens.setting(),
        database.join("serve.db").display(),
        folder.path().display()
    );
    let server = Server::with(folder.path(), &settings, &[]);
    server.wait_for("edge", "running");
    let authorization = format!("Bearer {}", tokens.admin);
    let client = Client { server: &server, authorization: authorization.clone(), received: RefCell::default() };
    // The stream ends with the server.
    let mut stream = connect(&server.address);
    let bytes = request("GET", "/api/v1/events?instance=*", &[("Authorization", &authorization)], "");
    stream.write_all(bytes.as_bytes()).expect("the server reads");
    let events = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // The server may end without the last chunk.
        let _ = stream.read_to_end(&mut bytes);
        bytes
    });
    change_the_configuration(&client);
    change_parts(&client);
    read_everything(&client);
    for token in [&tokens.viewer, &tokens.operator, &tokens.expired, &format!("forebay_{}", &tokens.admin[9..])] {
        let response = server.get_as(token, "/api/v1/audit");
        assert!([401, 403].contains(&response.status), "{response:?}");
        client.received.borrow_mut().push(("a refusal".to_owned(), format!("{response:?}")));
    }
    let audit = client.get("/api/v1/audit?most=1000").json();
    let records = audit["records"].as_array().expect("records");
    assert!(records.len() > 20, "{audit}");
    let received = client.received.take();
    drop(client);
    let mut all: Vec<_> = received.into_iter().map(|(what, text)| (what, text.into_bytes())).collect();
    // The signal makes a line that ends the log so far.
    server.signal(Signal::HUP);
    loop {
        let line = server.line("");
        let is_last = line.contains("event=settings_read");
        all.push(("the log".to_owned(), line.into_bytes()));
        if is_last {
            break;
        }
    }
    assert_eq!(server.end(), Some(0));
    let events = events.join().expect("no panic");
    let text = String::from_utf8_lossy(&events).into_owned();
    assert!(text.contains("event: report") && text.contains("reload_accepted"), "{text}");
    all.push(("the stream of events".to_owned(), events));
    let stored = files(&database);
    assert!(stored.iter().any(|(_, bytes)| shows(bytes, "associations/changes")), "the store has the changes");
    all.extend(stored);
    let tokens = [&tokens.viewer, &tokens.operator, &tokens.admin, &tokens.expired];
    let tokens = tokens.map(|token| token.strip_prefix("forebay_").expect("a token"));
    let mut found = Vec::new();
    for (what, bytes) in &all {
        for secret in [SEAL, TUNNEL, IN_FILE, NEW, NEW_TUNNEL, WORD].into_iter().chain(tokens) {
            if shows(bytes, secret) {
                found.push(format!("{what}: {secret}"));
            }
        }
    }
    assert!(found.is_empty(), "{} places show a secret:\n{}", found.len(), found.join("\n"));
}

#[test]
fn asterisks_in_a_new_configuration_keep_the_secret_in_force() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    std::fs::write(folder.path().join("keyfile"), IN_FILE).expect("a writable folder");
    let _pipeline = Pipeline::of(folder.path(), "edge", &pipeline(), &[]);
    let settings = format!("{}\nconfig_paths: ['{}']", tokens.setting(), folder.path().display());
    let server = Server::with(folder.path(), &format!("{settings}\nlimits: {{ requests_per_second: 1000000 }}"), &[]);
    server.wait_for("edge", "running");
    let authorization = format!("Bearer {}", tokens.admin);
    let client = Client { server: &server, authorization, received: RefCell::default() };
    let shown = || client.get("/api/v1/instances/edge/config").json()["text"].as_str().expect("a text").to_owned();
    let packets = || server.get("/api/v1/instances/edge/drops").json();
    let undecrypted = || {
        let packets = packets();
        let dropped = packets["dropped"].as_object().expect("reasons");
        dropped.iter().filter(|(reason, _)| reason.starts_with("open.")).map(|(_, count)| count.as_u64()).max()
    };
    let passes = || {
        let before = packets()["out"].as_u64();
        wait_for("packets to leave", || packets()["out"].as_u64() > before);
    };
    let with_asterisks = shown();
    let changed = |text: &str| {
        let response = client.put(text, "");
        assert_eq!(response.status, 200, "{response:?}");
        response.json()["reloaded"]["changed"].clone()
    };
    assert_eq!(changed(&with_asterisks), Value::Array(Vec::new()));
    // One of the two modules has `***`, and the other has the key itself: they still understand each other.
    let seal = with_asterisks.replacen("***", SEAL, 1);
    assert_eq!(changed(&seal), Value::Array(Vec::new()));
    passes();
    assert_eq!(undecrypted(), None, "{}", packets());
    // Another key, and `***` for the present one: packets cannot be decrypted any more.
    let other = shown().replacen("***", NEW, 1);
    assert_eq!(changed(&other), serde_json::json!(["seal"]));
    wait_for("packets that cannot be decrypted", || undecrypted().is_some());
    // Now `***` stands for the new key.
    let both = shown().replacen("\"***\"", "'SECOND'", 2).replacen("'SECOND'", "\"***\"", 1).replace("SECOND", NEW);
    assert_eq!(changed(&both), serde_json::json!(["open"]));
    passes();
    // The tunnel has kept its key, too: its module was never changed.
    let entries = client.get("/api/v1/instances/edge/tables/esp/associations").json();
    let entry = entries["entries"][0].as_str().expect("an entry");
    assert!(entry.starts_with("0x00001001 key=(hidden) peer=192.0.2.2"), "{entry}");
}
