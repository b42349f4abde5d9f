//! Paths of requests, and files that a configuration names. The server reads and makes no file that a client chooses.

use std::path::Path;

use super::server_with;
use crate::http::Response;
use crate::server::{Pipeline, Server, Tokens, folder, wait_for};

/// Text that no response may contain.
const MARKER: &str = "zebra crossing";

/// A pipeline in which each of four lines can name a file.
const FILES: &str = "
ports:
  in: { generator: { rate: 1kpps, source: 10.0.0.0/16 } }
  out: { sink: }
state:
  n: { nat: { pool: 192.0.2.0/28 } }
modules:
  fw: { acl: { rules: [permit any] } }
  translate: { nat_out: { state: n } }
pipeline: [in -> fw -> translate -> out]
";

/// The ways in which the pipeline can name a file in `FOLDER`: the line, the text that it replaces, the text, and the
/// file.
const WAYS: &[(u32, &str, &str, &str)] = &[
    (4, "{ sink: }", "{ pcap: { write: 'FOLDER/capture.pcap' } }", "capture.pcap"),
    (6, "192.0.2.0/28", "192.0.2.0/28, log: { file: 'FOLDER/nat.log' }", "nat.log"),
    (8, "[permit any]", "'FOLDER/rules'", "rules"),
    (8, "acl: { rules: [permit any] }", "tap: { file: 'FOLDER/tap.pcap' }", "tap.pcap"),
];

/// Returns the pipeline with one of the [`WAYS`].
fn naming(way: usize, folder: &str) -> String {
    let (_, before, after, _) = WAYS[way];
    let text = FILES.replace(before, &after.replace("FOLDER", folder));
    assert_ne!(text, FILES);
    text
}

fn put(server: &Server, tokens: &Tokens, text: &str, query: &str) -> Response {
    let token = format!("Bearer {}", tokens.admin);
    let headers = [("Authorization", token.as_str()), ("If-Match", "*"), ("Content-Type", "application/yaml")];
    server.send("PUT", &format!("/api/v1/instances/edge/config{query}"), &headers, text)
}

/// Returns the names of the files in a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("it can be read");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("it can be read").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_configuration_may_name_only_files_in_the_allowed_folders() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let (inside, outside) = (folder.path().join("inside"), folder.path().join("outside"));
    for (of, text) in [(&inside, "permit any\n"), (&outside, MARKER)] {
        std::fs::create_dir(of).expect("a writable folder");
        std::fs::write(of.join("rules"), text).expect("a writable folder");
    }
    std::os::unix::fs::symlink(&outside, inside.join("link")).expect("a writable folder");
    let _pipeline = Pipeline::of(folder.path(), "edge", FILES, &[]);
    let server = server_with(folder.path(), &tokens, &format!("config_paths: ['{}']", inside.display()));
    let path = |path: &Path| path.display().to_string();
    let foreign = [
        path(&outside),
        path(&inside.join("../outside")),
        path(&inside.join("link")),
        path(&inside.join("missing/../../outside")),
        // A relative name is relative to the folder of the file that the run was started from.
        "outside".to_owned(),
        "/proc/self/root".to_owned() + &path(&outside),
    ];
    for (way, (line, .., file)) in WAYS.iter().enumerate() {
        for named in &foreign {
            for query in ["", "?dry_run=true"] {
                let response = put(&server, &tokens, &naming(way, named), query);
                response.problem(422);
                let problem = response.json();
                let faults = problem["faults"].as_array().expect("faults");
                assert!(faults.len() == 1 && faults[0]["line"] == *line, "{named}: {faults:?}");
                let message = faults[0]["message"].as_str().expect("a message");
                assert!(message.contains(file) && message.contains("outside the folders"), "{named}: {message}");
                assert!(!response.body.contains(MARKER), "{response:?}");
            }
        }
    }
    assert_eq!(files(&outside), ["rules"]);
    assert_eq!(std::fs::read_to_string(outside.join("rules")).expect("it exists"), MARKER);
    assert_eq!(files(&inside), ["link", "rules"]);
    for (way, (.., file)) in WAYS.iter().enumerate() {
        for named in [path(&inside), "inside".to_owned()] {
            let response = put(&server, &tokens, &naming(way, &named), "");
            assert_eq!(response.status, 200, "{named}: {response:?}");
            wait_for(file, || inside.join(file).exists());
            // A file has one writer: the next one must wait until this one is closed.
            assert_eq!(put(&server, &tokens, FILES, "").status, 200);
        }
    }
    assert_eq!(files(&outside), ["rules"]);
}

#[test]
fn without_allowed_folders_a_configuration_may_name_no_file() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let own = folder.path().join("own");
    std::fs::create_dir(&own).expect("a writable folder");
    std::fs::write(own.join("rules"), "permit any\n").expect("a writable folder");
    // A configuration that comes from a file may name files. A changed text of it may name them no more.
    let text = naming(2, "own");
    let _pipeline = Pipeline::of(folder.path(), "edge", &text, &[]);
    let server = server_with(folder.path(), &tokens, "");
    for (way, (line, ..)) in WAYS.iter().enumerate() {
        let response = put(&server, &tokens, &naming(way, &own.display().to_string()), "");
        assert!(response.problem(422).contains("1 fault"), "{response:?}");
        let problem = response.json();
        let fault = &problem["faults"][0];
        assert!(fault["line"] == *line, "{response:?}");
        assert!(fault["message"].as_str().is_some_and(|text| text.contains("may name: none")), "{response:?}");
    }
    assert_eq!(files(&own), ["rules"]);
}

#[test]
fn a_path_that_leads_elsewhere_names_nothing() {
    let folder = folder();
    let tokens = Tokens::make(folder.path());
    let secret = folder.path().join("secret");
    std::fs::write(&secret, MARKER).expect("a writable folder");
    let _pipeline = Pipeline::start(folder.path(), "edge");
    let server = server_with(folder.path(), &tokens, "");
    let authorization = format!("Bearer {}", tokens.admin);
    let absolute = secret.display().to_string().replace('/', "%2f");
    let long = "x".repeat(8_000);
    for segment in [
        "..",
        ".",
        "%2e%2e",
        "%2e%2e%2f",
        "..%2f..%2f..%2fetc%2fpasswd",
        "%2e%2e%5c",
        &absolute,
        &format!("..%2f..%2f..%2f..%2f..{absolute}"),
        "%00",
        "edge%00",
        "edge%2f..%2fedge",
        "%0d%0aX-Forged:%20yes",
        "%ff",
        "%zz",
        "*",
        &long,
    ] {
        let mut paths: Vec<_> = [
            "/SEGMENT",
            "/api/v1/SEGMENT",
            "/api/v1/instances/SEGMENT",
            "/api/v1/instances/SEGMENT/config",
            "/api/v1/instances/SEGMENT/history",
            "/api/v1/instances/SEGMENT/tables/route/routes",
            "/api/v1/instances/edge/SEGMENT",
            "/api/v1/instances/edge/modules/SEGMENT",
            "/api/v1/instances/edge/tables/SEGMENT/routes",
            "/api/v1/instances/edge/tables/route/SEGMENT",
        ]
        .map(|path| ("GET", path))
        .to_vec();
        paths.push(("POST", "/api/v1/instances/edge/tables/SEGMENT/routes/changes"));
        paths.push(("POST", "/api/v1/instances/edge/tables/route/SEGMENT/changes"));
        for (method, path) in paths {
            let headers = [("Authorization", authorization.as_str()), ("Content-Type", "text/plain")];
            let body = if method == "POST" { "add 10.9.0.0/16 1" } else { "" };
            let response = server.send(method, &path.replace("SEGMENT", segment), &headers, body);
            let start = &segment[..segment.len().min(40)];
            assert!([400, 404].contains(&response.status), "{method} {path} {start}: {response:?}");
            response.problem(response.status);
            assert!(
                !response.body.contains(MARKER) && !response.body.contains("root:"),
                "{path} {start}: {response:?}"
            );
            assert_eq!(response.header("x-forged"), None, "{path} {start}");
            // A long name is not repeated.
            assert!(response.body.len() < 1_000, "{path} {start}: {} bytes", response.body.len());
        }
    }
}
