//! Mistakes of new users, and the errors of `check` and `run`.

use std::io::Write as _;

use assert_cmd::Command;

use crate::{CommandResult, File, ROUTER, forebay};

/// Returns the error of `check` for a configuration that it must refuse.
fn refused(text: &str) -> String {
    let file = File::new(text);
    let done = forebay(&["check", file.path()]);
    assert_eq!(done.code, Some(2), "{text}\n{}{}", done.out, done.err);
    done.err
}

fn assert_error(text: &str, expected: &str) {
    let err = refused(text);
    assert!(err.contains(expected), "'{expected}' is not in\n{err}");
}

/// Returns a pipeline with this port `in`, this module `m`, and the lines `more`.
fn pipeline(port: &str, module: &str, more: &str) -> String {
    format!("ports:\n  in: {port}\n  out: {{ sink: }}\nmodules:\n  m: {module}\npipeline: [in -> m -> out]\n{more}")
}

#[test]
fn missing_files_are_refused_with_line_and_key() {
    let read = |name: &str| pipeline(&format!("{{ pcap: {{ read: {name} }} }}"), "{ ttl: }", "");
    assert_error(&read("missing.pcap"), "test.yaml:2: ports.in.pcap.read: ");
    assert_error(&read("missing.pcap"), "missing.pcap: cannot open the capture: No such file or directory");
    assert_error(&read("/"), "test.yaml:2: ports.in.pcap.read: /: ");
    let write = ROUTER.replace("out: { sink: {} }", "out: { pcap: { write: nowhere/x.pcap } }");
    assert_error(&write, "test.yaml:3: ports.out.pcap.write: ");
    assert_error(
        &pipeline("{ generator: }", "{ tap: { file: nowhere/x.pcap } }", ""),
        "test.yaml:5: modules.m.tap.file: ",
    );
    assert_error(&pipeline("{ generator: }", "{ acl: { rules: none } }", ""), "test.yaml:5: modules.m.acl.rules: ");
}

#[test]
fn two_ports_cannot_share_an_interface() {
    let two = |more: &str| {
        format!(
            "ports:\n  a: {{ af_packet: {{ interface: lo }} }}\n  b: {{ af_packet: {{ interface: lo{more} }} }}\n\
             modules:\n  m: {{ ttl: }}\npipeline: [a -> m -> b, b -> drop]\n"
        )
    };
    assert_error(&two(""), "test.yaml:3: ports.b.af_packet.interface: 'lo' is the interface of port 'a' already");
    let file = File::new(&two(", namespace: other"));
    forebay(&["check", file.path()]).success();
}

#[test]
fn a_flow_cannot_have_the_name_of_the_remaining_packets() {
    let flow = ROUTER.to_owned() + "flows:\n  - { name: other, path: kind }\n";
    assert_error(&flow, "the name 'other' is reserved for the flow of all other packets: choose another name");
}

#[test]
fn numbers_with_a_missing_or_wrong_unit_get_a_suggestion() {
    let rate = |rate: &str| pipeline(&format!("{{ generator: {{ rate: {rate} }} }}"), "{ ttl: }", "");
    assert_error(
        &rate("100000"),
        "'100000' has no unit: write a number with a unit, such as 100000pps (units: pps, kpps,",
    );
    assert_error(&rate("1M"), "'1M' is not a rate above 0 (did you mean 1Mpps or 1Mbps?)");
    assert_error(&rate("10Gbit/s"), "(did you mean 10Gbps?)");
    // Regression: the suggestion was the value itself, and the error for a large rate did not have the maximum.
    assert_error(&rate("0pps"), "'0pps' is not a rate above 0: write a number and a unit");
    assert_error(&pipeline("{ generator: { tunnel: { gre: {} } } }", "{ ttl: }", ""), "allowed are gtpu, vxlan");
    assert_error(&rate("9999999Gpps"), "'9999999Gpps' is too large for a packet rate: the largest is 9000000Gpps");
    let hold = |hold: &str| {
        pipeline("{ generator: }", "{ ttl: }", &format!("buffers: {{ m: {{ trigger: 4, hold: {hold} }} }}\n"))
    };
    assert_error(&hold("5m"), "'5m' is not a span of time (did you mean 5min or 5ms?)");
    let file = File::new(&hold("0.5min"));
    forebay(&["check", file.path()]).success();
}

#[test]
fn names_from_other_programs_get_a_suggestion() {
    for (name, suggestion) in [
        ("nat", "'nat_out' or 'nat_in' or 'static_nat'"),
        ("route", "'ip_lookup'"),
        ("lookup", "'ip_lookup' or 'exact_match'"),
        ("router", "'ip_lookup'"),
        ("vlan", "'vlan_split' or 'vlan_push' or 'vlan_pop'"),
        ("fw", "'firewall' or 'acl'"),
        ("load-balancer", "'balance'"),
        ("firewal", "'firewall'"),
    ] {
        let text = pipeline("{ generator: }", &format!("{{ {name}: }}"), "");
        assert_error(&text, &format!("modules.m: there is no function '{name}' (did you mean {suggestion}?)"));
    }
    assert_error(
        &pipeline("{ dpdk: }", "{ ttl: }", ""),
        "there is no kind of port 'dpdk' (did you mean 'af_xdp' or 'af_packet'?)",
    );
}

#[test]
fn short_forms_are_refused_with_the_full_form() {
    assert_error(
        &pipeline("{ af_packet: eth0 }", "{ ttl: }", ""),
        "'eth0' is not a mapping: write `af_packet: { interface: eth0 }`",
    );
    assert_error(
        &pipeline("{ generator: }", "ttl", ""),
        "'ttl' is not a mapping: write `m: { ttl: }`, or with parameters",
    );
    assert_error(&pipeline("sink", "{ ttl: }", ""), "'sink' is not a mapping: write `in: { sink: }`");
    assert_error(
        &pipeline("{ generator: }", "tll", ""),
        "write `m: { ... }` with a function in it (did you mean 'ttl'?)",
    );
}

#[test]
fn the_error_shows_the_route_with_a_wrong_prefix_length() {
    let text = pipeline("{ generator: }", "{ ip_lookup: { routes: ['10.0.0.0/33 0'] } }", "");
    assert_error(
        &text,
        "test.yaml:5: modules.m.ip_lookup.routes[0]: 10.0.0.0/33: prefix length 33 is out of range (0 to 32)",
    );
}

#[test]
fn a_missing_core_is_refused_with_line_and_key() {
    let file = File::new(&pipeline("{ generator: { count: 10 } }", "{ ttl: }", "workers: [{ core: 4000 }]\n"));
    let done = forebay(&["run", file.path(), "--no-socket"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("test.yaml:7: workers[0].core: this process may not run on core 4000"), "{}", done.err);
}

fn run_with_input(arguments: &[&str], input: impl Into<Vec<u8>>) -> CommandResult {
    let output = Command::new(env!("CARGO_BIN_EXE_forebay")).args(arguments).write_stdin(input).output();
    CommandResult::of(output.expect("the command can be started"))
}

#[test]
fn standard_input_is_refused_if_empty_and_accepted_as_a_setting() {
    for command in ["check", "run"] {
        let done = run_with_input(&[command, "-"], "\n");
        assert!(
            done.code == Some(2) && done.err.contains("the standard input is empty: write a configuration"),
            "{}",
            done.err
        );
    }
    let file = File::new(&pipeline("{ pcap: { read: none.pcap } }", "{ ttl: }", ""));
    run_with_input(&["check", file.path(), "--set", "ports.in.pcap.read=-"], "").success();
}

#[test]
fn a_capture_is_refused_as_a_configuration() {
    let file = File::new("");
    let name = file.beside("x.pcap");
    for beginning in [[0xd4, 0xc3, 0xb2, 0xa1], [0x0a, 0x0d, 0x0d, 0x0a]] {
        let mut capture = std::fs::File::create(&name).expect("a file");
        capture.write_all(&[&beginning[..], &[0; 40]].concat()).expect("room");
        // Larger than any configuration.
        capture.set_len(20 << 20).expect("room");
        let done = forebay(&["run", &name]);
        assert_eq!(done.code, Some(2));
        assert!(
            done.err.contains(&format!(
                "it is a capture, not a configuration: write a configuration with a port that plays it, such as \
                 `in: {{ pcap: {{ read: {name}"
            )),
            "{}",
            done.err
        );
    }
}

#[test]
fn check_of_several_files_names_each_file_and_prints_each_problem() {
    let (good, bad) =
        (File::new(ROUTER), File::new(&ROUTER.replace("ttl:", "tll:").replace("mac_rewrite", "mac_rewirte")));
    let done = forebay(&["check", good.path(), bad.path(), "usecase:gw", "/nonexistent.yaml"]);
    assert_eq!(done.code, Some(2));
    let named: Vec<_> = done.out.lines().map(|line| line.split(": in order").next().expect("a name")).collect();
    assert_eq!(named, [good.path(), "usecase:gw"]);
    assert!(done.err.lines().count() == 3 && done.err.lines().all(|line| line.starts_with("error: ")), "{}", done.err);
}

#[test]
fn a_trace_without_packets_is_reported() {
    let file = File::new(ROUTER);
    let trace = |filter: &str| forebay(&["run", file.path(), "--no-socket", "--trace", "2", "--filter", filter]);
    let done = trace("tcp port 80");
    assert_eq!(done.code, Some(0));
    assert!(done.err.contains("--trace: no packet matched --filter"), "{}", done.err);
    let done = trace("udp dst net 0.0.0.0/0");
    assert!(done.out.contains("packet 1 from in") && !done.err.contains("no packet"), "{}", done.err);
}
