//! `forebay place`: placements as text, picture, JSON and pipeline, and invalid inputs.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;

use crate::moves::two_workers_of;
use crate::running::{json as read, packets, wait_for};
use crate::{CommandResult, File, forebay};

/// The example of chains.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/chains.yaml");
/// Models made up for these tests.
const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/place/models.json");

fn place(chains: &str, arguments: &[&str]) -> CommandResult {
    forebay(&[&["place", chains, "--models", MODELS], arguments].concat())
}

fn placed(chains: &str, arguments: &[&str]) -> Value {
    let done = place(chains, &[arguments, &["--json"]].concat());
    assert!(matches!(done.code, Some(0 | 1)), "{}", done.err);
    let report = done.json();
    check(&report);
    report
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value[name].as_array().map(Vec::as_slice).unwrap_or_else(|| panic!("{name} is a list: {value}"))
}

/// Checks an output against its schema, and the consistency of its parts.
fn check(report: &Value) {
    let schema: Value = serde_json::from_str(&forebay(&["schema", "place"]).success()).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let wrong: Vec<_> = validator.iter_errors(report).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}: {report}");
    let mut used = 0;
    for chain in list(report, "chains") {
        let predicted = chain["predicted_pps"].as_f64().expect("a rate");
        let interval: Vec<_> = list(chain, "interval_95_pps").iter().filter_map(Value::as_f64).collect();
        assert!(interval[0] <= predicted && predicted <= interval[1], "{chain}");
        for seat in list(chain, "seats") {
            assert!(seat["rate_pps"].as_f64() >= Some(predicted), "{chain}");
            let domain = &report["domains"][seat["domain"].as_u64().expect("a number") as usize];
            let core = list(domain, "cores").iter().find(|core| core["core"] == seat["core"]).expect("its core");
            assert_eq!((&core["chain"], &core["functions"]), (&chain["chain"], &seat["functions"]));
            used += 1;
        }
        let seats = list(chain, "seats").len();
        let functions = list(chain, "functions").len();
        assert!(chain["form"] == "fused" || seats == functions, "{chain}");
    }
    assert_eq!(report["cores_used"].as_u64(), Some(used));
    if let Some(bound) = report["bound"].as_f64() {
        let value = report["value"].as_f64().expect("a value");
        assert!(if report["objective"] == "cores" { bound <= value } else { bound >= value }, "{report}");
    }
}

#[test]
fn the_example_is_placed_and_its_moves_are_explained() {
    let text = place(EXAMPLE, &["--topology", "2x12", "--explain"]).success();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!(text, @r"
    3 chains on 2x12: 8 of 24 cores in use, 9.09 Mpps served by weight; search
      `exact`
    Proved: no placement is worth more.
    Models: simulated, a CPU of a test, by stall_ticks_per_packet

    domain 0 (node 0, eth0)
      core  0  web: ip_validate, fw, ids, route, ttl
      core  1  web: ip_validate, fw, ids, route, ttl
      core  2  voice: fw
      core  3  voice: route
      core  4  voice: ttl
      core  5  backup: counter
      free: 6, 7, 8, 9, 10, 11

    domain 1 (node 1)
      core 12  backup: ip_validate
      core 13  backup: route
      10 cores free

    chain       comes  predicted  95 %               home  runs
    web     1.00 Mpps  1.25 Mpps  1.21 to 1.29 Mpps     0  fused ×2
    voice   2.00 Mpps  5.85 Mpps  5.67 to 6.03 Mpps     0  pipelined
    backup        any  9.42 Mpps  9.21 to 9.62 Mpps     0  pipelined

    web forwards all packets; slowest is ip_validate, fw, ids, route, ttl: 37.3 %
      slower than alone: contention for the last-level cache of domain 0 takes 22.7
      % of the solo rate
    voice forwards all packets; slowest is fw: 35.0 % slower than alone:
      contention for the last-level cache of domain 0 takes 20.0 % of the solo rate
    backup is limited by route: 7.7 % slower than alone: the model's constant
      takes 6.0 % of the solo rate

    web: the whole chain on domain 0: moving it to domain 1 costs 0.5 %
    web: the whole chain on domain 0: moving it to domain 1 costs 0.5 %
    voice: the whole chain on domain 0: moving it to domain 1 costs 0.2 %
    backup: ip_validate, route on domain 1: moving it to domain 0 costs 0.4 %
    backup: counter on domain 0: moving it to domain 1 costs nothing

    note: chains web, voice, backup: no interface of its own, taken as 'eth0'
    note: models with example parameters are used for these functions: ip_validate
      and 10 more
    ");
    let small = place(EXAMPLE, &["--topology", "2x4"]).success();
    assert!(small.contains("web     1.00 Mpps  1.19 Mpps") && small.contains("fused ×2"), "{small}");
}

#[test]
fn json_conforms_to_its_schema_for_every_search_and_objective() {
    let best = placed(EXAMPLE, &["--topology", "2x12"]);
    let value = |report: &Value| report["value"].as_f64().expect("a value");
    assert_eq!(best["gap"], 0.0);
    for search in ["octans", "node-balancing", "node-first", "random"] {
        let report = placed(EXAMPLE, &["--topology", "2x12", "--search", search, "--explain", "--rate-coupled"]);
        assert!(value(&report) <= value(&best) * (1.0 + 1e-9) && report["bound"].is_null(), "{search}: {report}");
        assert!(report["coupled"]["converged"] == true, "{report}");
    }
    let few = File::new(
        "chains:\n  - { name: a, functions: [ttl, counter], home: 0 }\n  \
         - { name: b, functions: [ip_validate, ttl], home: 1 }\n",
    );
    let all = placed(few.path(), &["--topology", "2x3", "--search", "brute-force"]);
    let exact = placed(few.path(), &["--topology", "2x3"]);
    assert!((value(&all) / value(&exact) - 1.0).abs() < 1e-9 && all["gap"] == 0.0, "{all} {exact}");
    let sum = placed(EXAMPLE, &["--topology", "2x12", "--objective", "sum"]);
    assert!(value(&sum) > 0.0 && sum["objective"] == "sum");
    // One copy of `web` cannot forward as much as the example demands, so the rates are lower here.
    let rates = ["--set", "chains.0.rate=400kpps", "--set", "chains.2.rate=1Mpps", "--objective", "cores"];
    let cores = placed(EXAMPLE, &[&["--topology", "2x12"], &rates[..]].concat());
    assert_eq!((cores["value"].as_f64(), cores["bound"].as_f64()), (Some(7.0), Some(7.0)), "{cores}");
    let chain = &cores["chains"][0];
    assert!(chain["form"] == "fused" && chain["predicted_pps"].as_f64() >= Some(4e5), "{chain}");
}

#[test]
fn only_the_allowed_number_of_functions_moves() {
    let file = File::new("");
    let now = file.beside("now.json");
    let before = placed(EXAMPLE, &["--topology", "2x12", "--search", "node-first"]);
    std::fs::write(&now, before.to_string()).expect("a file");
    let core = |report: &Value, chain: usize, seat: usize| report["chains"][chain]["seats"][seat]["core"].clone();
    let mut last = before["value"].as_f64().expect("a value");
    for moves in 0..4 {
        let after = placed(EXAMPLE, &["--topology", "2x12", "--from", &now, "--moves", &moves.to_string()]);
        let moved = list(&after, "moved");
        assert!(moved.len() <= moves && after["value"].as_f64() >= Some(last * (1.0 - 1e-9)), "{after}");
        last = after["value"].as_f64().expect("a value");
        let mut others = 0;
        for (chain, placed) in list(&after, "chains").iter().enumerate() {
            let seats = if placed["form"] == "pipelined" { list(placed, "seats").len() } else { 0 };
            others += (0..seats).filter(|seat| core(&before, chain, *seat) != core(&after, chain, *seat)).count();
        }
        assert!(others <= moves, "{after}");
    }
    let text = place(EXAMPLE, &["--topology", "2x12", "--from", &now, "--moves", "1"]).success();
    assert!(text.contains("moves: ") && text.contains("from domain 0 to domain 1"), "{text}");
    let wrong = place(EXAMPLE, &["--topology", "2x12", "--from", MODELS, "--moves", "1"]);
    assert!(
        wrong.code == Some(2) && wrong.err.contains("allowed is the output of `forebay place --json`"),
        "{}",
        wrong.err
    );
}

#[test]
fn chains_without_room_are_named() {
    let few = place(EXAMPLE, &["--topology", "1x3", "--set", "chains.0.copies=0"]);
    assert_eq!(few.code, Some(1), "{}", few.err);
    assert!(
        few.out.contains("rejected: web: it needs 5 cores: there are 3: `copies: 1` runs it on one core"),
        "{}",
        few.out
    );
    assert!(few.out.contains("rejected: backup: it needs 3 cores: the other chains leave 0"), "{}", few.out);
    let late = place(EXAMPLE, &["--topology", "2x12", "--set", "chains.0.slo=20us"]);
    assert_eq!(late.code, Some(1), "{}", late.err);
    let message = "rejected: web: its objectives need 16.0 Mpps: alone it would forward";
    assert!(late.out.contains(message), "{}", late.out);
    let none = place(EXAMPLE, &["--topology", "1x1", "--search", "node-first", "--json"]);
    assert_eq!((none.code, list(&none.json(), "rejected").len()), (Some(1), 3));
}

#[test]
fn the_written_pipeline_is_valid_and_runs() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let examples = Path::new(EXAMPLE).parent().expect("a folder");
    for name in ["chains.yaml", "inspection.rules"] {
        std::fs::copy(examples.join(name), folder.path().join(name)).expect("a file");
    }
    let inside = |name: &str| folder.path().join(name).to_str().expect("a plain name").to_owned();
    let (chains, written) = (inside("chains.yaml"), inside("edge.yaml"));
    place(&chains, &["--topology", "2x4", "--write", &written]).success();
    assert!(forebay(&["check", &written]).success().contains("edge: in order (11 modules"), "{written}");
    let ran = forebay(&["run", &written, "--virtual", "--duration", "2ms", "--no-socket", "--json"]);
    let report = ran.json();
    assert_eq!(list(&report, "workers").len(), 8, "{}", ran.err);
    assert!(list(&report, "flows").iter().all(|flow| flow["packets"].as_u64() > Some(0)), "{report}");
    // File names in the pipeline are relative to the chains' folder.
    let elsewhere = tempfile::TempDir::new().expect("a folder");
    let other = elsewhere.path().join("edge.yaml");
    let refused = place(&chains, &["--topology", "2x4", "--write", other.to_str().expect("a plain name")]);
    assert!(refused.code == Some(2) && refused.err.contains("names of files in it are relative"), "{}", refused.err);
    assert!(!other.exists());
    // A placement on this machine, on one of its cores.
    let one = File::new("chains:\n  - { name: a, functions: [ip_validate, ttl], rate: 10kpps, copies: 1 }\n");
    let local = one.beside("local.yaml");
    place(one.path(), &["--objective", "cores", "--write", &local]).success();
    let refused = forebay(&["place", one.path(), "--no-profile"]);
    assert!(refused.code == Some(2) || refused.err.is_empty(), "{}", refused.err);
    let ran = forebay(&["run", &local, "--duration", "100ms", "--no-socket", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.json()["packets"]["out"].as_u64() > Some(0), "{}", ran.out);
}

#[test]
fn interfaces_become_ports() {
    let file = File::new(
        "chains:\n  - { name: a, functions: [ttl], interface: eth0, to: eth1 }\n  \
         - { name: b, functions: [ttl], interface: eth1 }\n",
    );
    let written = file.beside("edge.yaml");
    place(file.path(), &["--topology", "2x4:nic=0:nic=1", "--write", &written]).success();
    let text = std::fs::read_to_string(&written).expect("a pipeline");
    assert!(text.contains("  eth0: { af_packet: { interface: eth0 } }\n"), "{text}");
    assert!(text.contains("  - eth0 -> a-ttl -> eth1\n") && text.contains("  - eth1 -> b-ttl -> eth1\n"), "{text}");
    let shared = place(
        file.path(),
        &["--topology", "2x4", "--set", "chains.1.interface=eth0", "--set", "chains.0.to=eth0", "--write", &written],
    );
    let message = "chains 'a' and 'b' both receive from interface 'eth0': allowed is one chain for each";
    assert!(shared.code == Some(2) && shared.err.contains(message), "{}", shared.err);
}

#[test]
fn invalid_inputs_are_refused_with_the_allowed_values() {
    let on = ["--topology", "2x4"];
    let set = |setting: &str| place(EXAMPLE, &[&on[..], &["--set", setting]].concat());
    for (setting, message) in [
        ("chains.0.name=voice", "chain 'voice': chain 0 has this name already"),
        ("chains.0.functions=[fwall]", "chain 'web': there is no module and no function 'fwall'"),
        ("chains.0.functions=[fv, ids, ttl]", "there is no module and no function 'fv' (did you mean 'fw'?)"),
        ("chains.0.home=2", "chain 'web': home domain 2: allowed are 0 to 1"),
        ("chains.0.interface=eth7", "chain 'web': the topology has no interface 'eth7' (did you mean 'eth0'?)"),
        ("chains.0.rate=.nan", "'.nan' is not a number with a unit"),
        ("chains.0.rate=2000Gpps", "allowed are 1pps to 1000Gpps"),
        ("chains.0.weight=0", "'0' is out of range"),
        ("chains.0.copies=1000000", "chains[0].copies: '1000000' is out of range: allowed is a whole number from 0 to"),
        ("chains.0.slo=0us", "chain 'web': slo 0ns: allowed are 1us to 10s"),
        ("chains=[]", "chains: the list is empty: at least 1 item is needed"),
        ("models.ids=no", "function 'ids' (nids): there is no model 'no'"),
        ("models.isd=nids", "no chain uses 'isd' (did you mean 'ids'?)"),
        ("modules.more={ttl: }", "no chain uses the module 'more'"),
    ] {
        let done = set(setting);
        assert!(done.code == Some(2) && done.err.contains(message), "{setting}: {:?} {}", done.code, done.err);
    }
    for (arguments, message) in [
        (&["--topology", "0x4"][..], "place: --topology: 0x4: '0x4': allowed is NODESxCORES"),
        (&["--topology", "no.xml"], "place: --topology: no.xml: there is no such file"),
        (&["--topology", "2x4", "--root", "/"], "--root /: --root needs"),
        (&["--topology", "2x4", "--limit", "0s"], "allowed are 1ms to 1h"),
        (&["--topology", "2x4", "--search", "best"], "possible values"),
        (
            &["--topology", "2x4", "--objective", "cores"],
            "chain 'backup': it has no rate: `--objective cores` needs one",
        ),
        (&["--topology", "8x8", "--search", "brute-force"], "--search brute-force would examine 8589934592 placements"),
        (&["--topology", "2x4", "--models", "no.json"], "place: --models no.json: No such file or directory"),
    ] {
        let done = place(EXAMPLE, arguments);
        assert!(done.code == Some(2) && done.err.contains(message), "{arguments:?}: {:?} {}", done.code, done.err);
    }
}

#[test]
fn functions_without_models_are_named_with_a_remedy() {
    let file =
        File::new("chains:\n  - { name: a, functions: [ttl, mac_swap] }\n  - { name: b, functions: [ip_swap] }\n");
    let done = place(file.path(), &["--topology", "1x4"]);
    assert_eq!(done.code, Some(2));
    assert!(done.err.contains("chain 'a': function 'mac_swap' (mac_swap): no model of its contention"), "{}", done.err);
    assert!(done.err.contains("error: ") && done.err.contains("function 'ip_swap'"), "{}", done.err);
    assert!(done.err.contains("`--models FILE` reads others"), "{}", done.err);
    let text = std::fs::read_to_string(MODELS).expect("models");
    for (find, replacement, message) in [
        (
            "\"link\": 6.0",
            "\"link\": null",
            "the models are of one memory domain (limits.link is null), and the server has 2",
        ),
        (
            "\"metric\": 3.0",
            "\"metric\": -3.0",
            "function 'counter': metric is -3: allowed is a number from 1e-6 to 1e6",
        ),
        ("\"schema\": 1", "\"schema\": 7", "schema 7: allowed is 1"),
    ] {
        let sorted: Value = serde_json::from_str(&text).expect("JSON");
        let models = file.beside("models.json");
        let text = serde_json::to_string_pretty(&sorted).expect("JSON");
        assert!(text.contains(find), "{find} in {text}");
        std::fs::write(&models, text.replacen(find, replacement, 1)).expect("a file");
        let done = forebay(&["place", EXAMPLE, "--topology", "2x4", "--models", &models]);
        assert!(done.code == Some(2) && done.err.contains(message), "{find}: {}", done.err);
    }
    // Regression: a line feed in a model's name began another line, which looked like another error.
    let models = file.beside("models.json");
    std::fs::write(&models, text.replacen("\"ip_validate\": {", "\"x\\nerror: y\": {", 1)).expect("a file");
    let stated = File::new("chains: [{ name: a, functions: [ttl] }]\nmodels: { ttl: \"z\\nerror: y\" }\n");
    for chains in [file.path(), stated.path()] {
        let done = forebay(&["place", chains, "--topology", "1x4", "--models", &models]);
        assert!(done.code == Some(2) && done.err.contains("x\\u000aerror: y"), "{}", done.err);
        assert!(!done.err.contains("\nerror: y"), "{}", done.err);
        assert_eq!(done.err.contains("there is no model 'z\\u000aerror: y'"), chains == stated.path(), "{}", done.err);
    }
}

#[test]
fn files_that_the_command_reads_are_not_overwritten() {
    let file = File::new(
        "modules: { route: { ip_lookup: { routes: routes.txt } } }\nchains: [{ name: a, functions: [route, ttl] }]\n",
    );
    let routes = file.beside("routes.txt");
    std::fs::write(&routes, "10.0.0.0/8 0\n").expect("a file");
    let models = file.beside("models.json");
    std::fs::copy(MODELS, &models).expect("a file");
    let text = || [file.path(), &routes, &models].map(|file| std::fs::read(file).expect("a file"));
    let before = text();
    for (option, written, what) in [
        ("--write", file.path(), "the file of chains"),
        ("--svg", file.path(), "the file of chains"),
        ("--write", &routes, "a file that a module reads"),
        ("--svg", &models, "a file of models"),
    ] {
        let done = forebay(&["place", file.path(), "--topology", "2x4", "--models", &models, option, written]);
        let error = format!("place: {option} {written}: the file is {what}; name another file");
        assert!(done.code == Some(2) && done.err.contains(&error), "{}", done.err);
    }
    assert!(text() == before);
}

/// All packets of a chain count for its objective, whichever gates they take.
#[test]
fn each_path_through_gates_is_a_flow() {
    let file = File::new(
        "modules:\n  route: { ip_lookup: { routes: { synthetic: 10, next_hops: 3 } } }\n  \
         many: { ip_lookup: { routes: { synthetic: 40, next_hops: 20 } } }\n\
         chains: [{ name: a, functions: [route, ttl], slo: 1ms }, { name: a-2, functions: [route, ttl] }, \
         { name: b, functions: [many, ttl] }]\n",
    );
    let written = file.beside("edge.yaml");
    let done = place(file.path(), &["--topology", "1x6", "--write", &written]);
    assert!(done.err.ends_with(": the pipeline of 3 of 3 chains\n"), "{}", done.err);
    let text = std::fs::read_to_string(&written).expect("a file");
    let pipeline: Value = serde_saphyr::from_str(&text).expect("YAML");
    let flows = pipeline["flows"].as_array().expect("flows");
    let names: Vec<_> = flows.iter().map(|flow| flow["name"].as_str().expect("a name")).collect();
    assert_eq!(names[..3], ["a", "a-3", "a-4"], "{text}");
    assert_eq!(flows.iter().filter(|flow| flow["slo"] == "1ms").count(), 3, "{text}");
    assert_eq!(names.iter().filter(|name| name.starts_with('b')).count(), 16, "{text}");
    assert!(text.starts_with("# The placement of") && text.contains("# Each generator makes"), "{text}");
}

#[test]
fn secrets_of_a_chain_are_not_shown_and_only_the_owner_can_read_the_pipeline() {
    let key = "a0b1c2d3e4f506172839405162738495";
    let file = File::new(&format!(
        "modules:\n  seal: {{ aes_gcm_encrypt: {{ keys: [{{ id: 1, key: \"{key}\" }}], use: 1 }} }}\nchains:\n  \
            - {{ name: a, functions: [seal] }}\n"
    ));
    let written = file.beside("edge.yaml");
    let done = place(file.path(), &["--topology", "1x4", "--write", &written, "--json"]);
    assert!(done.code == Some(0) && !done.out.contains(key) && !done.err.contains(key), "{} {}", done.out, done.err);
    let mode = std::fs::metadata(&written).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let wrong = place(file.path(), &["--topology", "1x4", "--set", &format!("chains.0.functions=[{key}]")]);
    assert!(wrong.code == Some(2) && !wrong.err.contains(key), "{}", wrong.err);
}

#[test]
fn the_picture_shows_functions_in_cores() {
    let folder = tempfile::TempDir::new().expect("a folder");
    let file = folder.path().join("edge.svg");
    place(EXAMPLE, &["--topology", "2x12", "--svg", file.to_str().expect("a plain name")]).success();
    let text = std::fs::read_to_string(&file).expect("a picture");
    let document = roxmltree::Document::parse(&text).expect("XML");
    let words: Vec<_> = document.descendants().filter_map(|node| node.text()).map(str::trim).collect();
    for word in ["domain 0 (node 0), eth0", "core 12", "route", "free core", "voice"] {
        assert!(words.contains(&word), "{word}: {words:?}");
    }
}

#[test]
fn the_stored_schemas_are_current() {
    for name in ["chains", "place", "request", "response"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../schema/{name}.schema.json"));
        let stored: Value = serde_json::from_str(&std::fs::read_to_string(&path).expect("a file")).expect("JSON");
        let current: Value = serde_json::from_str(&forebay(&["schema", name]).success()).expect("JSON");
        assert!(stored == current, "schema/{name}.schema.json is not current: run `make schema`");
    }
    let example: Value = serde_saphyr::from_str(&std::fs::read_to_string(EXAMPLE).expect("a file")).expect("YAML");
    let schema: Value = serde_json::from_str(&forebay(&["schema", "chains"]).success()).expect("JSON");
    let validator = jsonschema::draft202012::new(&schema).expect("a schema");
    let wrong: Vec<_> = validator.iter_errors(&example).map(|error| error.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// A chain whose second function has sessions.
const SESSIONS: &str = "
name: two
state: { shared: { nat: { pool: 203.0.113.0/28 } } }
modules: { nat: { nat_out: { state: shared } } }
chains:
  - { name: web, functions: [ip_validate, nat], rate: 20kpps, copies: 1 }
";

#[test]
fn a_placement_is_applied_to_a_running_pipeline_and_moves_its_sessions() {
    let chains = File::new(SESSIONS);
    let written = chains.beside("two.yaml");
    const FEWEST: [&str; 2] = ["--objective", "cores"];
    let pipeline = || {
        place(chains.path(), &[&FEWEST[..], &["--write", &written, "--spare"]].concat()).success();
        std::fs::read_to_string(&written).expect("it was written")
    };
    let name = "a_placement_is_applied_to_a_running_pipeline_and_moves_its_sessions";
    let Some(running) = two_workers_of(name, pipeline) else { return };
    let text = std::fs::read_to_string(&written).expect("it was written");
    assert!(text.contains("modules: [web-ip_validate, web-nat] }") && text.contains("modules: [] }"), "{text}");
    let socket = running.socket();
    let apply = |more: &[&str]| place(chains.path(), &[&["--apply", "--socket", &socket], more].concat());
    let apply_as_json = |more: &[&str]| {
        let report = apply(&[more, &["--json"]].concat()).json();
        check(&report);
        report["applied"].clone()
    };
    let nat = || read(&running.request(&["show", "modules", "web-nat", "--json"]))[0].clone();
    let opened = || nat()["counters"]["sessions"]["opened"].as_u64().expect("a number");
    wait_for("all sessions", || opened() == 4_096);
    let before = (opened(), packets(&Value::from(vec![nat()]), "web-nat"));

    // More packets than one core is predicted to forward.
    let more = ["--set", "chains.0.rate=5.5Mpps"];
    assert_eq!(
        apply_as_json(&[&more[..], &["--moves", "0"]].concat())["moved"],
        Value::from(vec![(); 0]),
        "none is allowed"
    );
    let text = apply(&more).success();
    assert!(
        text.contains("\nApplied: 1 module moved; packets waited for ") && text.contains("\nmoved: web-"),
        "{text}"
    );
    assert!(apply(&more).success().contains("Applied: all modules were already on their cores."));
    let applied = apply_as_json(&FEWEST);
    assert_eq!((applied["moved"].as_array().map(Vec::len), &applied["missing"]), (Some(1), &0.into()), "{applied}");
    let after = (opened(), packets(&Value::from(vec![nat()]), "web-nat"));
    assert!(before.0 == after.0 && before.1 <= after.1, "{before:?} {after:?}");
    let events = running.request(&["show", "events"]).success();
    assert_eq!(events.matches("event=moved").count(), 2, "{events}");

    // A placement that cannot be applied moves nothing.
    for (arguments, code, why) in [
        (&["--set", "chains.0.name=other"][..], 2, "chain 'other': the running pipeline 'two' has no module 'other-"),
        (
            &["--topology", "2x1000", "--set", "chains.0.home=1", "--search", "node-first"],
            2,
            "core 1000, where the pipeline 'two' has no worker",
        ),
        // A second copy would receive a part of the sessions.
        (&["--set", "chains.0.rate=9Mpps", "--set", "chains.0.copies=2"], 2, "the sessions of 'web-nat' would be lost"),
        (&["--set", "chains.0.copies=0", "--topology", "1x1"], 1, "Not applied, because chains do not fit"),
    ] {
        let done = apply(arguments);
        assert_eq!(done.code, Some(code), "{arguments:?}: {}{}", done.out, done.err);
        assert!(done.out.contains(why) || done.err.contains(why), "{arguments:?}: {}{}", done.out, done.err);
    }
    let applied = apply_as_json(&["--set", "chains.0.rate=9Mpps", "--set", "chains.0.copies=2", "--lose-sessions"]);
    assert_eq!((applied["moved"].as_array().map(Vec::len), &applied["missing"]), (Some(2), &0.into()), "{applied}");
    let refused = place(chains.path(), &["--socket", &socket]);
    assert!(refused.code == Some(2) && refused.err.contains("need --apply"), "{}", refused.err);
    let report = running.end();
    assert_eq!(report["packets"]["in"], report["packets"]["out"], "{report}");
}

/// Regression: functions that moved only within their domain did not count, except those of split chains.
#[test]
fn moves_away_from_a_core_that_chains_share_count() {
    let chain = |name: &str| format!("  - {{ name: {name}, functions: [ttl], rate: 20kpps }}\n");
    let chains = File::new(&format!("name: two\nchains:\n{}{}", chain("a"), chain("b")));
    let written = chains.beside("two.yaml");
    let pipeline = || {
        place(chains.path(), &["--write", &written, "--spare"]).success();
        std::fs::read_to_string(&written).expect("it was written")
    };
    let Some(running) = two_workers_of("moves_away_from_a_core_that_chains_share_count", pipeline) else { return };
    let socket = running.socket();
    running.request(&["move", "a-ttl=0", "b-ttl=0"]).success();
    let apply = |moves: &str| place(chains.path(), &["--apply", "--socket", &socket, "--moves", moves]);
    let refused = apply("0");
    let why =
        "place: --moves 0: the placement needs 1 move ('b-ttl' changes workers), because functions share a core now: ";
    assert!(refused.code == Some(2) && refused.err.contains(why), "{}{}", refused.out, refused.err);
    assert!(apply("1").success().contains("\nmoved: b-ttl from core "));
}
