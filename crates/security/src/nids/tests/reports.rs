//! Tests of reports: lines in a file, within the limits.

use super::*;

/// A folder for one test's files. It is removed when the value is dropped.
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("forebay-nids-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a writable folder for temporary files");
        Self(path)
    }

    pub(super) fn environment(&self) -> SetupEnvironment {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        (environment.files.base, environment.simulated, environment.batch) = (self.0.clone(), true, 32);
        environment
    }

    fn lines(&self) -> Vec<Value> {
        self.lines_of("alerts.json")
    }

    pub(super) fn lines_of(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.0.join(file)).expect("the file");
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn alerts_are_lines_in_a_file() {
    let folder = Folder::new("lines");
    let params = json!({ "alerts": { "file": "alerts.json", "rate": 3 }, "rules": [
        "alert udp any any -> any 53 (msg:\"one \\\"q\\\"\"; content:\"x\"; classtype:trojan-activity; \
         reference:url,a.b; rev:2; sid:1;)",
        "drop icmp any any -> any any (msg:\"two\"; sid:2;)",
    ] });
    let mut rig = Rig::within::<Nids>(&params, &mut folder.environment()).unwrap_or_else(|error| panic!("{error}"));
    rig.now = Ticks(1_500_000_000);
    rig.run(&udp(b"xyz", 1, 9, 53));
    assert_eq!(rig.run(&ping(b"")).0, DENIED);
    for _ in 0..5 {
        rig.run(&udp(b"x", 1, 9, 53));
    }
    rig.now = Ticks(2_000_000_000);
    rig.run(&udp(b"x", 1, 9, 53));
    rig.function.close().expect("it can be written");
    let lines = folder.lines();
    assert_eq!(lines.len(), 4, "three in the first second");
    assert_eq!(
        lines[0],
        json!({
            "time": "1970-01-01T00:00:01.500000000Z", "module": "rig", "action": "alert", "sid": 1, "rev": 2,
            "msg": "one \"q\"",
            "class": "trojan-activity", "priority": 1, "references": ["url,a.b"], "protocol": 17,
            "source": "10.0.0.1", "source_port": 9, "destination": "192.0.2.1", "destination_port": 53, "payload": 3,
        })
    );
    assert_eq!(
        (&lines[1]["action"], &lines[1]["source"], lines[1].get("source_port")),
        (&json!("drop"), &json!("101:101:101:101:101:101:101:101"), None)
    );
    let counts: Vec<_> = rig.counters("alerts").into_iter().collect();
    assert_eq!(counts, [("limited", 0), ("lost", 0), ("over rate", 4), ("unwritten", 0), ("written", 4)]);
}

#[test]
fn every_alert_is_written_or_counted_as_lost_and_workers_share_the_file() {
    let folder = Folder::new("flood");
    let rules = ["alert ip any any -> any any (sid:1;)"];
    let params = json!({ "alerts": { "file": "alerts.json", "rate": 1_000_000 }, "rules": rules });
    let mut environment = folder.environment();
    let mut rigs: Vec<Rig> = (0..2)
        .map(|_| Rig::within::<Nids>(&params, &mut environment).unwrap_or_else(|error| panic!("{error}")))
        .collect();
    let frame = udp(b"", 1, 2, 3);
    for rig in &mut rigs {
        let mut batch = Batch::with_capacity(32);
        (0..32).for_each(|_| batch.push(rig.packet(&frame)).expect("room"));
        for _ in 0..1_000 {
            rig.process(&mut batch);
        }
    }
    rigs.iter_mut().for_each(|rig| rig.function.close().expect("it can be written"));
    let count = |name: &str| rigs.iter().map(|rig| rig.counters("alerts")[name]).sum::<u64>();
    assert_eq!(count("written") + count("lost"), 64_000);
    assert_eq!(folder.lines().len() as u64, count("written"));
    // A new run appends to the file.
    drop((rigs, environment));
    let mut rig = Rig::within::<Nids>(&params, &mut folder.environment()).unwrap_or_else(|error| panic!("{error}"));
    let before = folder.lines().len();
    rig.run(&frame);
    drop(rig);
    assert_eq!(folder.lines().len(), before + 1);
}

/// After a reload, the module continues the file of its predecessor. Another module may not write the same file.
#[test]
fn changed_rules_continue_the_file() {
    let folder = Folder::new("changed");
    let mut environment = folder.environment();
    let params = |sid: u32| {
        let rules = [format!("alert ip any any -> any any (sid:{sid};)")];
        json!({ "alerts": { "file": "alerts.json" }, "rules": rules })
    };
    let mut rigs =
        [5, 6].map(|sid| Rig::within::<Nids>(&params(sid), &mut environment).unwrap_or_else(|error| panic!("{error}")));
    let other =
        Nids::new(serde_json::from_value(params(7)).expect("parameters"), &mut Setup::new("another", &mut environment));
    let error = other.err().expect("refused").to_string();
    assert!(error.contains("'rig' already writes this file"), "{error}");
    for (rig, source) in rigs.iter_mut().zip([1, 2]) {
        rig.run(&udp(b"", source, 2, 3));
        rig.function.close().expect("it can be written");
    }
    let reported: Vec<_> = folder.lines().iter().map(|line| (line["sid"].clone(), line["source"].clone())).collect();
    assert_eq!(reported, [(json!(5), json!("10.0.0.1")), (json!(6), json!("10.0.0.2"))]);
}

#[test]
fn a_file_that_cannot_be_written_is_refused() {
    let folder = Folder::new("faults");
    for (file, expected) in [("no/such/folder/a", "no/such/folder/a"), (".", "allowed are regular files")] {
        let params = json!({ "alerts": { "file": file }, "rules": [] });
        let error = Rig::within::<Nids>(&params, &mut folder.environment()).err().expect("refused").to_string();
        assert!(error.starts_with("alerts.file: ") && error.contains(expected), "{error}");
    }
    for (params, expected) in [
        (json!({ "rules": [], "trackers": 0 }), "trackers: 0: allowed are 1 to 4194304"),
        (json!({ "rules": [], "alerts": { "file": "x", "rate": 0 } }), "alerts.rate: 0: allowed are 1 to 1000000"),
        (json!({ "rules": "none.rules" }), "none.rules: "),
        (json!({ "rules": ["alert"] }), "rules[0]: the rule has no '('"),
    ] {
        let error = Rig::within::<Nids>(&params, &mut folder.environment()).err().expect("refused").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

/// Limits, second by second, against windows that are counted by hand.
#[test]
fn limits_count_within_windows() {
    for (kind, expected) in [
        ("detection_filter: track by_src, count 2, seconds 10;", [false, false, true, true, true, false]),
        ("threshold: type limit, track by_src, count 2, seconds 10;", [true, true, false, false, false, true]),
        ("threshold: type threshold, track by_src, count 2, seconds 10;", [false, true, false, true, false, false]),
        ("threshold: type both, track by_src, count 2, seconds 10;", [false, true, false, false, false, false]),
    ] {
        let folder = Folder::new("limits");
        let rule = format!("alert udp any any -> any any ({kind} sid:1;)");
        let params = json!({ "alerts": { "file": "alerts.json" }, "rules": [rule] });
        let mut rig = Rig::within::<Nids>(&params, &mut folder.environment()).unwrap_or_else(|error| panic!("{error}"));
        let mut reported = Vec::new();
        for second in [0, 1, 2, 3, 9, 10] {
            rig.now = Ticks(second * 1_000_000_000);
            let before = rig.counters("alerts")["written"];
            rig.run(&udp(b"", 1, 2, 3));
            reported.push(rig.counters("alerts")["written"] > before);
            // Another source is counted separately.
            let other = udp(b"", 10 + second as u8, 2, 3);
            rig.run(&other);
        }
        assert_eq!(reported, expected, "{kind}");
    }
}

#[test]
fn addresses_beyond_the_table_are_reported_without_limit_and_never_pass_a_filter() {
    let rules = [
        "alert udp any any -> any 1 (threshold: type limit, track by_src, count 1, seconds 10; sid:1;)",
        "alert udp any any -> any 2 (detection_filter: track by_src, count 1, seconds 10; sid:2;)",
    ];
    let folder = Folder::new("room");
    let params = json!({ "alerts": { "file": "alerts.json" }, "rules": rules, "trackers": 1 });
    let mut rig = Rig::within::<Nids>(&params, &mut folder.environment()).unwrap_or_else(|error| panic!("{error}"));
    for source in [1, 2, 2, 2] {
        rig.run(&udp(b"", source, 9, 1));
        rig.run(&udp(b"", source, 9, 2));
    }
    assert_eq!((rig.counters("alerts")["written"], matched(&rig)), (4, vec!["4 1 rule 1".to_owned()]));
}

/// Each line of a file with `format: eve` is an event that matches the schema.
#[test]
fn alerts_are_events_of_eve_json() {
    let folder = Folder::new("eve");
    let rules = b"config classification: own, Of our own, 7\n\
        alert udp any any -> any 53 (msg:\"caf\xe9 \\\"q\\\"\\\\\"; classtype:trojan-activity; rev:2; sid:1;)\n\
        drop icmp any any -> any any (msg:\"two\"; classtype:own; gid:1000001; sid:2;)\n\
        alert ip any any -> any any (ip_proto:99; priority:4; sid:3;)\n\
        log tcp any any -> any any (classtype:misc-activity; sid:4;)\n";
    std::fs::write(folder.0.join("own.rules"), rules).expect("a file");
    let params = json!({ "alerts": { "file": "alerts.json", "format": "eve" }, "rules": "own.rules" });
    let mut rig = Rig::within::<Nids>(&params, &mut folder.environment()).unwrap_or_else(|error| panic!("{error}"));
    rig.now = Ticks(1_500_000_999);
    let mut other = udp(b"x", 1, 9, 53);
    other[23] = 99;
    for frame in [udp(b"xyz", 1, 9, 53), ping(b""), other, tcp(b"", 1, 2, 2)] {
        rig.run(&frame);
    }
    rig.function.close().expect("it can be written");
    let lines = folder.lines();
    let schema = include_str!("../../../../../schema/nids-eve.schema.json");
    let schema = jsonschema::validator_for(&serde_json::from_str(schema).expect("JSON")).expect("a schema");
    for line in &lines {
        let faults: Vec<_> = schema.iter_errors(line).map(|error| error.to_string()).collect();
        assert!(faults.is_empty(), "{line}: {faults:?}");
    }
    assert_eq!(
        lines[0],
        json!({
            "timestamp": "1970-01-01T00:00:01.500000+0000", "event_type": "alert", "src_ip": "10.0.0.1", "src_port": 9,
            "dest_ip": "192.0.2.1", "dest_port": 53, "proto": "UDP",
            "alert": {
                "action": "allowed", "gid": 1, "signature_id": 1, "rev": 2, "signature": "café \"q\"\\",
                "category": "Traffic of a trojan", "severity": 1,
            },
        })
    );
    let shown: Vec<_> = lines.iter().map(|line| (line["proto"].clone(), line["alert"]["action"].clone())).collect();
    let expected = [("UDP", "allowed"), ("IPv6-ICMP", "blocked"), ("099", "allowed"), ("TCP", "allowed")];
    assert_eq!(shown, expected.map(|(protocol, action)| (json!(protocol), json!(action))));
    assert_eq!((&lines[1]["icmp_type"], &lines[1]["icmp_code"]), (&json!(128), &json!(0)));
    assert!(lines[1].get("src_port").is_none() && lines[2].get("dest_port").is_none());
    let described = |at: usize| (&lines[at]["alert"]["category"], &lines[at]["alert"]["severity"]);
    assert_eq!(described(1), (&json!("Of our own"), &json!(7)));
    assert_eq!(described(2), (&json!(""), &json!(4)));
    assert_eq!(described(3), (&json!("Other activity"), &json!(3)));
    assert_eq!(lines[1]["alert"]["gid"], 1_000_001);
    for (key, value) in [("event_type", json!("flow")), ("src_port", json!(70_000)), ("timestamp", json!("now"))] {
        let mut wrong = lines[0].clone();
        wrong[key] = value;
        assert!(!schema.is_valid(&wrong), "{key}");
    }
}

/// A worker waits for the file if no packet is lost by that. Otherwise alerts above the default rate are only counted.
#[test]
fn alerts_of_packets_that_wait_are_all_written() {
    let frame = udp(b"", 1, 2, 3);
    for (waits, written) in [(true, 9_600), (false, 1_000)] {
        let folder = Folder::new(if waits { "waits" } else { "live" });
        let params = json!({ "alerts": { "file": "alerts.json" }, "rules": ["alert ip any any -> any any (sid:1;)"] });
        let mut environment = folder.environment();
        (environment.simulated, environment.input_waits) = (false, waits);
        let mut rig = Rig::within::<Nids>(&params, &mut environment).unwrap_or_else(|error| panic!("{error}"));
        let mut batch = Batch::with_capacity(32);
        (0..32).for_each(|_| batch.push(rig.packet(&frame)).expect("room"));
        for _ in 0..300 {
            rig.process(&mut batch);
        }
        rig.function.close().expect("it can be written");
        let counts = rig.counters("alerts");
        assert_eq!((counts["written"], counts["over rate"], counts["lost"]), (written, 9_600 - written, 0), "{waits}");
        assert_eq!(folder.lines().len() as u64, written);
    }
}
