//! `forebay topology`: text, picture and JSON of machines from all three sources, and invalid sources.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::doctor::laid_out;
use crate::doctor::server::Server;
use crate::{CommandResult, forebay};

fn topology(arguments: &[&str]) -> CommandResult {
    forebay(&[&["topology"], arguments].concat())
}

/// Returns files with the topologies of real machines, if they exist.
fn real() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/topologies");
    let entries = fs::read_dir(&folder).map(|entries| entries.flatten().map(|entry| entry.path()).collect());
    let mut files: Vec<PathBuf> = entries.unwrap_or_default();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "xml"));
    if files.is_empty() {
        let _ = writeln!(std::io::stderr(), "skipped: real topologies: {} has none", folder.display());
    }
    files
}

/// Returns valid descriptions: one of the fuzz target's corpus, and the real ones.
fn described() -> Vec<PathBuf> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/topology");
    std::iter::once(corpus.join("two-nodes")).chain(real()).collect()
}

fn schema() -> Value {
    serde_json::from_str(&forebay(&["schema", "topology"]).success()).expect("JSON")
}

/// Checks an output against the schema, and that the indices in it are valid.
fn check(report: &Value) {
    let validator = jsonschema::draft202012::new(&schema()).expect("a schema");
    let wrong: Vec<_> = validator.iter_errors(report).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report}");
    let list = |name: &str| report[name].as_array().unwrap_or_else(|| panic!("{name} is a list"));
    for processor in list("processors").iter().chain(list("domains")) {
        let cache = processor["cache"].as_u64();
        assert!(cache.is_none_or(|cache| (cache as usize) < list("caches").len()), "{processor}");
    }
    assert!(list("distances").is_empty() || list("distances").len() == list("nodes").len());
}

#[test]
fn a_described_machine_is_drawn() {
    insta::assert_snapshot!(topology(&["4x10:llc=5:smt=2"]).success(), @r"
    4 packages, 4 memory nodes, 8 last-level caches, 40 cores, 80 threads;
    1 network interface

    package 0
    └─ node 0: eth0
       ├─ L3: cores 0+40 … 4+44
       └─ L3: cores 5+45 … 9+49
    package 1
    └─ node 1
       ├─ L3: cores 10+50 … 14+54
       └─ L3: cores 15+55 … 19+59
    package 2
    └─ node 2
       ├─ L3: cores 20+60 … 24+64
       └─ L3: cores 25+65 … 29+69
    package 3
    └─ node 3
       ├─ L3: cores 30+70 … 34+74
       └─ L3: cores 35+75 … 39+79

    distances between nodes; 10 is a node's own memory (ACPI SLIT):
           0   1   2   3
       0  10  20  20  20
       1  20  10  20  20
       2  20  20  10  20
       3  20  20  20  10
    ");
    insta::assert_snapshot!(topology(&["1x4"]).success(), @r"
    1 package, 1 memory node, 1 last-level cache, 4 cores, 4 threads;
    1 network interface

    package 0
    └─ node 0: eth0
       └─ L3: cores 0-3
    ");
}

#[test]
fn a_simulated_server_is_drawn_with_processors_that_workers_cannot_use() {
    let mut server = Server::healthy();
    let distance = |node: usize| format!("/sys/devices/system/node/node{node}/distance");
    server.set(distance(0), "10 21\n").set(distance(1), "21 10\n");
    for cpu in 0..16 {
        let cache = format!("/sys/devices/system/cpu/cpu{cpu}/cache/index0");
        let shared = if cpu % 8 < 4 { "0-3,8-11\n" } else { "4-7,12-15\n" };
        for (file, text) in [("level", "3\n"), ("type", "Unified\n"), ("size", "36864K\n"), ("shared_cpu_list", shared)]
        {
            server.set(format!("{cache}/{file}"), text);
        }
    }
    let root = laid_out(&server);
    let root = root.path().to_str().expect("a plain name");
    insta::assert_snapshot!(topology(&["--root", root]).success(), @r"
    2 packages, 2 memory nodes, 2 last-level caches, 8 cores, 16 threads;
    1 network interface

    package 0
    └─ node 0, 62.8 GiB
       └─ L3, 36 MiB: cores 0+8 … 3+11
    package 1
    └─ node 1, 62.8 GiB: eth1
       └─ L3, 36 MiB: cores 4+12 … 7+15

    distances between nodes; 10 is a node's own memory (ACPI SLIT):
           0   1
       0  10  21
       1  21  10
    ");

    // One processor is off, two are not allowed, one node has only memory, and the card's node is unknown.
    server.set("/sys/devices/system/cpu/online", "0-14\n").remove("/sys/devices/system/cpu/cpu15");
    server.replace("/proc/self/status", "Cpus_allowed_list:\t0-15", "Cpus_allowed_list:\t0-3,5-11,13-15");
    server.set("/sys/devices/system/node/online", "0-2\n").set("/sys/devices/system/node/node2/cpulist", "\n");
    server.set("/sys/devices/system/node/node2/meminfo", "Node 2 MemTotal:       134217728 kB\n");
    server.set("/sys/devices/pci0000:80/0000:81:00.0/numa_node", "-1\n");
    for (node, row) in ["10 21 28\n", "21 10 28\n", "28 28 10\n"].into_iter().enumerate() {
        server.set(distance(node), row);
    }
    let root = laid_out(&server);
    let root = root.path().to_str().expect("a plain name");
    insta::assert_snapshot!(topology(&["host", "--root", root]).success(), @r"
    2 packages, 3 memory nodes, 2 last-level caches, 8 cores, 15 threads;
    1 network interface

    package 0
    └─ node 0, 62.8 GiB
       └─ L3, 36 MiB: cores 0+8 … 3+11
    package 1
    └─ node 1, 62.8 GiB
       └─ L3, 36 MiB: cores 4+12 … 6+14, 7
    node 2, 128 GiB, memory only
    eth1: node unknown (-1)
    off: 15
    not in this process' CPU set: 4, 12

    distances between nodes; 10 is a node's own memory (ACPI SLIT):
           0   1   2
       0  10  21  28
       1  21  10  28
       2  28  28  10
    ");
    let report = topology(&["--root", root, "--json"]).json();
    check(&report);
    let usable = |number: usize| report["processors"][number]["usable"].as_str().expect("a word");
    assert_eq!([3, 4, 12, 15].map(usable), ["yes", "not_allowed", "not_allowed", "off"]);
    assert_eq!(report["interfaces"], json!([{ "name": "eth1", "node": null }]));
    assert_eq!(report["nodes"][2], json!({ "number": 2, "bytes": 137_438_953_472_u64 }));
    assert_eq!(report["domains"][1]["cores"], json!([5, 6, 7]));
}

#[test]
fn every_text_fits_eighty_columns_and_every_picture_has_each_processor() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let picture = folder.path().join("machine.svg");
    let picture = picture.to_str().expect("a plain name");
    let files = described();
    let files = files.iter().map(|file| file.to_str().expect("a plain name"));
    for source in files.chain(["host", "1x1", "1x128:smt=2", "40x3:llc=1:nic=39", "8x64:llc=4:smt=4"]) {
        let text = topology(&[source, "--svg", picture]).success();
        let wide = text.lines().find(|line| line.chars().count() > 80);
        assert!(wide.is_none() && !text.contains('\t'), "{source}: {wide:?}");
        assert!(text.lines().all(|line| line.trim_end() == line), "{source}: spaces at the end of a line:\n{text}");
        let report = topology(&[source, "--json"]).json();
        check(&report);
        let svg = fs::read_to_string(picture).expect("it is written");
        let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{source}: {error}"));
        let words: Vec<_> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
        for processor in report["processors"].as_array().expect("a list") {
            let number = processor["number"].to_string();
            assert!(processor["usable"] == "off" || words.contains(&number.as_str()), "{source}: {number}");
        }
    }
}

#[test]
fn real_machines_show_shared_caches_and_nodes() {
    for (name, lines) in [
        ("96em64t-4n4d3ca2co-pci.xml", &["node 3, 47.8 GiB: eth6, eth7\n├─ package 12\n"][..]),
        ("24em64t-2n6c2t-pci.xml", &["2 packages, 2 memory nodes, 2 last-level caches, 12 cores, 24 threads;"]),
        (
            "16em64t-4s2c2t-offlines.xml",
            &["node 0\n├─ package 0\n│  └─ L3, 4 MiB: cores 0, 4+12\n", "off: 2, 5, 7-11, 13, 14"],
        ),
        ("16amd64-8n2c-cpusets.xml", &["node 4, 8 GiB, memory only", "off: 4, 7-11"]),
        ("8intel64-4n2t-memattrs.xml", &["last-level cache unknown: cores 6, 7"]),
    ] {
        for file in real().iter().filter(|file| file.ends_with(name)) {
            let text = topology(&[file.to_str().expect("a plain name")]).success();
            assert!(lines.iter().all(|line| text.contains(line)), "{name}:\n{text}");
        }
    }
}

#[test]
fn the_stored_schema_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schema/topology.schema.json");
    let stored = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let stored: Value = serde_json::from_str(&stored).expect("JSON");
    assert!(stored == schema(), "schema/topology.schema.json is not current: run `make schema`");
    let configuration = forebay(&["schema", "configuration"]).success();
    assert!(
        configuration == forebay(&["schema"]).success() && configuration != forebay(&["schema", "topology"]).success()
    );
    let report = topology(&["2x2:smt=2:nic=1", "--json"]);
    assert_eq!(report.out.lines().count(), 1);
    let report = report.json();
    check(&report);
    assert_eq!((&report["version"], &report["source"]["type"]), (&1.into(), &"synthetic".into()));
    assert_eq!(report["processors"][5]["core"], 1);
    assert_eq!(report["domains"][1], json!({ "node": 1, "cache": 1, "cores": [2, 3], "siblings": [6, 7] }));
    assert_eq!(report["interfaces"], json!([{ "name": "eth0", "node": 1 }]));
}

#[test]
fn invalid_sources_are_refused_with_the_position_and_the_allowed_ones() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = |name: &str| folder.path().join(name).to_str().expect("a plain name").to_owned();
    let file = |name: &str, bytes: &[u8]| {
        fs::write(path(name), bytes).expect("a file for the test");
        path(name)
    };
    let machine = "<topology><object type=\"Machine\">\n<object type=\"PU\"/>\n</object></topology>";
    let not_xml = file("notes.txt", b"a\nb\n");
    let truncated = file("cut.xml", b"<topology>\n<object type=\"Machine\">\n<object\n");
    let unclosed = file("unclosed.xml", b"<topology>\n<object type=\"Machine\">\n");
    let other = file("other.xml", b"<a>\n</a>");
    let unnumbered = file("unnumbered.xml", machine.as_bytes());
    let none = file("none.xml", b"<topology><object type=\"Machine\"/></topology>");
    let latin = file("latin.xml", b"<topology>\n<info value=\"\xe9\"/></topology>");
    let utf_16 = file("wide.xml", b"\xff\xfe<\0");
    file("server.xml", b"");
    fs::File::create(path("long.xml")).and_then(|long| long.set_len((64 << 20) + 1)).expect("a file for the test");
    let pipe = path("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a pipe");
    let root = folder.path().to_str().expect("a plain name");
    let missing = path("missing/picture.svg");
    for (arguments, expected) in [
        (&["2x"][..], "topology: 2x: '2x': allowed is "),
        (&["2x4:llc=3"], "topology: 2x4:llc=3: 'llc=3': allowed is "),
        (&["2x4:nic=2"], "'nic=2': allowed is "),
        (&["99x99999"], "topology: 99x99999: 9899901 processors: allowed are 1 to 8192"),
        (&[""], "topology: : neither a file nor a machine description: allowed is `host`, "),
        (&["hots"], "topology: hots: neither a file nor a machine description (did you mean 'host'?): allowed is "),
        (
            &[&path("sever.xml")],
            &format!("there is no such file (did you mean '{}'?): allowed is ", path("server.xml")),
        ),
        (&[&path("server")], &format!("(did you mean '{}'?)", path("server.xml"))),
        (&["nowhere.xml"], "topology: nowhere.xml: there is no such file: allowed is "),
        (&[&not_xml], &format!("topology: {not_xml}:1: not XML (")),
        (&[&truncated], &format!("topology: {truncated}:3: not XML (")),
        (&[&unclosed], &format!("topology: {unclosed}:2: not XML (")),
        (&[&other], &format!("topology: {other}:1: <a>: allowed is a <topology>")),
        (&[&unnumbered], &format!("topology: {unnumbered}:2: os_index: ")),
        (&[&none], &format!("topology: {none}: 0 processors: allowed are 1 to 8192")),
        (&[&latin], &format!("topology: {latin}:2: a byte is not UTF-8: allowed is XML")),
        (&[&utf_16], "it is UTF-16 (its byte-order mark is FF FE): allowed is UTF-8"),
        (&[&path("server.xml")], "server.xml:1: not XML ("),
        (&[&path("long.xml")], "long.xml: it is longer than 64 MiB: it has 64.0 MiB"),
        (&[root], "a folder"),
        (&[&pipe], "a pipe"),
        (&["--root", root], "that contains a machine's proc and sys"),
        (&["2x4", "--root", root], "--root needs `host`, not 2x4"),
        (&["2x4", "--svg", &missing], &format!("topology: --svg {missing}: ")),
        (&["2x4", "2x4"], "unexpected argument"),
    ] {
        let done = topology(arguments);
        assert!(done.code == Some(2) && done.err.contains(expected), "{arguments:?}: {:?} {}", done.code, done.err);
        assert!(done.out.is_empty(), "{arguments:?}: {}", done.out);
    }
}

/// Control characters in a name from a file do not reach the terminal.
#[test]
fn names_in_files_are_escaped() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let file = folder.path().join("names.xml");
    let device = "<object type=\"OSDev\" osdev_type=\"2\" name=\"&#x9b;2J&lt;b&gt;\"/>";
    let text =
        format!("<topology><object type=\"Machine\"><object type=\"PU\" os_index=\"0\"/>{device}</object></topology>");
    fs::write(&file, text).expect("a file for the test");
    let (file, picture) = (file.to_str().expect("a plain name"), folder.path().join("names.svg"));
    let shown = topology(&[file, "--svg", picture.to_str().expect("a plain name")]).success();
    assert!(shown.contains("\\u009b2J<b>: node unknown\n") && !shown.contains('\u{9b}'), "{shown}");
    let svg = fs::read_to_string(picture).expect("it is written");
    assert!(svg.contains("2J&lt;b&gt;") && !svg.contains('\u{9b}'), "{svg}");
}
