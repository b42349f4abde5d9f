//! `forebay profile`: stored costs of calls, and stored files that are damaged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{CommandResult, forebay, undisturbed};

/// The user's cache folder for the commands of a test.
struct Cache(TempDir);

impl Cache {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder for the test"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.arg("profile").args(arguments).env("XDG_CACHE_HOME", self.0.path()).stdin(Stdio::null());
        command
    }

    fn profile(&self, arguments: &[&str]) -> CommandResult {
        done(&mut self.command(arguments))
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("forebay/profile")
    }

    /// Returns the only file of the cache.
    fn file(&self) -> PathBuf {
        let files: Vec<_> = fs::read_dir(self.folder()).expect("a folder").map(|file| file.expect("a file")).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].path()
    }
}

fn done(command: &mut Command) -> CommandResult {
    undisturbed(|| CommandResult::of(command.output().expect("the command can be started")))
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).expect("it was stored")).expect("JSON")
}

/// Checks the entry of a function, and that its parts agree.
fn check(entry: &Value, batch: f64, sizes: &[f64]) {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {entry}"));
    let [t0, t1, dispatch] = ["t0_s", "t1_s", "dispatch_s"].map(|name| number(&entry[name]));
    assert!(t0 >= dispatch && dispatch >= 0.0 && t1 >= 0.0 && t0 + t1 > 0.0, "{entry}");
    for (value, interval) in [(t0, "t0_95_s"), (t1, "t1_95_s")] {
        let [low, high] = [0, 1].map(|end| number(&entry[interval][end]));
        assert!(0.0 <= low && low <= high, "{entry}");
        assert!(low <= value && value <= high || t0 == 0.0 || t1 == 0.0, "{entry}");
    }
    let batchiness = (t0 + batch * t1) / (batch * (t0 + t1));
    assert!((number(&entry["batchiness"]) / batchiness - 1.0).abs() < 1e-9, "{entry}");
    assert!(entry["r2"].is_null() || (0.0..=1.0).contains(&number(&entry["r2"])), "{entry}");
    assert!((0.0..=1.0).contains(&number(&entry["stalled"])) && entry["samples"].is_u64() && entry["at"].is_string());
    let measured: Vec<_> = entry["sizes"].as_array().expect("a list").iter().collect();
    assert_eq!(measured.iter().map(|size| number(&size["packets"]).round()).collect::<Vec<_>>(), sizes, "{entry}");
    assert!(measured.iter().all(|size| number(&size["call_s"]) > 0.0), "{entry}");
}

/// Returns true if both are of the same measurement. A decimal fraction may differ in the last bit after parsing.
fn is_same(one: &Value, other: &Value) -> bool {
    let t1 = |entry: &Value| entry["t1_s"].as_f64().expect("a number");
    one["at"] == other["at"] && (t1(one) - t1(other)).abs() <= t1(one).abs() * 1e-9
}

#[test]
fn measured_costs_are_stored_and_extended() {
    let cache = Cache::new();
    let short = ["--time", "10ms", "--batch", "8", "--json"];
    let first = cache.profile(&[&["ttl"][..], &short].concat());
    assert_eq!(first.code, Some(0), "{}", first.err);
    let first = first.json();
    assert_eq!((&first["schema"], &first["batch"]), (&1.into(), &8.into()));
    assert!(first["cpu"].is_string() && first["build"]["program"].as_str().is_some_and(|hash| hash.len() == 16));
    assert_eq!(first["build"]["forebay"], env!("CARGO_PKG_VERSION"));
    assert_eq!(first["functions"].as_object().expect("by name").len(), 1);
    check(&first["functions"]["ttl"], 8.0, &[1.0, 2.0, 4.0, 8.0]);
    assert_eq!(read(&cache.file()), first);
    // A known function is not measured again. An unknown one is measured, and both are stored.
    let both = cache.profile(&[&["ttl", "mac_swap", "ttl"][..], &short].concat()).json();
    assert!(is_same(&both["functions"]["ttl"], &first["functions"]["ttl"]));
    check(&both["functions"]["mac_swap"], 8.0, &[1.0, 2.0, 4.0, 8.0]);
    assert_eq!(read(&cache.file()), both);
    let again = cache.profile(&[&["ttl", "--again"][..], &short].concat()).json();
    assert!(!is_same(&again["functions"]["ttl"], &first["functions"]["ttl"]));
    assert_eq!(again["functions"].as_object().expect("by name").len(), 1, "only the requested function");
    let stored = read(&cache.file());
    for (name, last) in [("mac_swap", &both), ("ttl", &again)] {
        assert!(is_same(&stored["functions"][name], &last["functions"][name]), "{name}");
    }
}

#[test]
fn the_table_names_the_measured_batches_and_the_known_functions() {
    let cache = Cache::new();
    let short = ["mac_swap", "--time", "10ms", "--batch", "4"];
    let table = cache.profile(&short).success();
    let head: Vec<_> = table.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["function", "T0,", "ns", "95", "%", "T1,", "ns", "95", "%", "R²", "batchiness"]);
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with("mac_swap ")), "{table}");
    assert!(table.contains("for batches of up to 4.") && table.ends_with("1 function measured, 0 known.\n"), "{table}");
    let known = cache.profile(&short).success();
    assert_eq!(known.lines().nth(1), table.lines().nth(1));
    let expected = format!("0 functions measured, 1 known from {} (--again measures).\n", cache.file().display());
    assert!(known.ends_with(&expected), "{known}");
}

#[test]
fn a_damaged_profile_is_reported_and_measured_again() {
    let cache = Cache::new();
    let short = ["ttl", "--time", "10ms", "--batch", "4"];
    cache.profile(&short).success();
    let file = cache.file();
    let text = fs::read_to_string(&file).expect("it was stored");
    let other = text.replacen("\"batch\": 4", "\"batch\": 5", 1);
    for (damaged, expected) in [(&text[..100], "not a profile: EOF"), (&other, "it is not valid here")] {
        // Also before a repeated run: a run that other programs disturb replaces the file.
        let done = undisturbed(|| {
            fs::write(&file, damaged).expect("a writable folder");
            CommandResult::of(cache.command(&short).output().expect("the command can be started"))
        });
        assert!(done.err.contains(expected) && done.err.ends_with(": measuring again\n"), "{}", done.err);
        assert!(done.success().contains("1 function measured, 0 known."));
        let done = cache.profile(&short);
        assert_eq!(done.err, "");
        assert!(done.success().contains("0 functions measured, 1 known"));
    }
}

/// A measurement is printed even if it cannot be stored.
#[test]
fn without_a_folder_for_profiles_the_measurement_is_only_printed() {
    let folder = TempDir::new().expect("a folder for the test");
    let file = folder.path().join("file");
    fs::write(&file, "precious").expect("a writable folder");
    let cache = Cache::new();
    let short = ["ttl", "--time", "10ms", "--batch", "4", "--json"];
    let done = done(cache.command(&short).env("XDG_CACHE_HOME", &file));
    assert!(
        done.err.contains("Not a directory") && done.err.contains(": the measured costs are not stored\n"),
        "{}",
        done.err
    );
    check(&done.json()["functions"]["ttl"], 4.0, &[1.0, 2.0, 4.0]);
    assert_eq!((done.code, fs::read_to_string(&file).expect("it exists").as_str()), (Some(0), "precious"));
    let nowhere = crate::profile::done(cache.command(&short).env_remove("XDG_CACHE_HOME").env("HOME", "relative"));
    assert!(nowhere.code == Some(0) && nowhere.err.starts_with("no folder for profiles: "), "{}", nowhere.err);
    let home = crate::profile::done(cache.command(&short).env_remove("XDG_CACHE_HOME").env("HOME", folder.path()));
    assert_eq!((home.code, home.err.as_str()), (Some(0), ""));
    assert!(folder.path().join(".cache/forebay/profile").is_dir());
}

/// A measurement that is killed leaves no partial profile and no temporary file.
#[test]
fn a_killed_measurement_leaves_no_files() {
    let cache = Cache::new();
    let temporary = TempDir::new().expect("a folder for the test");
    let mut running = cache.command(&["--time", "60s"]).env("TMPDIR", temporary.path()).spawn().expect("it starts");
    while fs::read_dir(temporary.path()).expect("a folder").next().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&running);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(!running.wait().expect("it ends").success());
    assert_eq!(fs::read_dir(cache.folder()).expect("it was made").count(), 0);
    assert_eq!(fs::read_dir(temporary.path()).expect("a folder").count(), 0);
}

#[test]
fn unknown_functions_are_refused_before_a_measurement() {
    let cache = Cache::new();
    let refused = cache.profile(&["ttl", "ip_lokup"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""));
    let expected = "error: there is no function 'ip_lokup' (did you mean 'ip_lookup'?): `forebay list functions` lists \
                    all functions\n";
    assert_eq!(refused.err, expected);
    assert!(!cache.folder().exists());
    for (arguments, expected) in [
        (&["--batch", "3"][..], "allowed are 4 to 256"),
        (&["--batch", "257"], "allowed are 4 to 256"),
        (&["--time", "1ms"], "allowed are 10ms to 60s"),
        (&["--time", "soon"], "--time"),
    ] {
        let refused = cache.profile(arguments);
        assert!(refused.code == Some(2) && refused.err.contains(expected), "{}", refused.err);
    }
    let help = forebay(&["profile", "--help"]).success();
    assert!(help.contains("forebay profile --again acl") && help.contains("--batch"), "{help}");
}

/// `few` and `also` are equal. `never` gets no packet.
const PIPELINE: &str = "ports: { in: { generator: }, out: { sink: } }\nmodules:\n  \
                        few: { acl: { rules: { synthetic: 4 }, default: permit } }\n  \
                        also: { acl: { rules: { synthetic: 4 }, default: permit } }\n  \
                        many: { acl: { rules: { synthetic: 500 }, default: permit } }\n  \
                        tags_of_the_neighbouring_network: { vlan_split: { ids: [9] } }\n  never: { ttl: }\n\
                        pipeline: [in -> few -> also -> many -> tags_of_the_neighbouring_network, \
                        'tags_of_the_neighbouring_network[9] -> never -> out', \
                        'tags_of_the_neighbouring_network[other] -> out']\n";

#[test]
fn modules_of_a_pipeline_are_measured_with_their_parameters() {
    let (cache, folder) = (Cache::new(), TempDir::new().expect("a folder for the test"));
    let file = folder.path().join("some.yaml");
    fs::write(&file, PIPELINE).expect("a writable folder");
    let file = file.to_str().expect("UTF-8");
    let short = [file, "--time", "10ms", "--batch", "8"];
    let first = cache.profile(&[&short[..], &["--json"]].concat());
    assert_eq!(first.code, Some(1), "one module was not measured: {}", first.err);
    let first = first.json();
    let key = |module: &str| first["modules"][module].as_str().expect("a key").to_owned();
    assert!(key("few") == key("also") && key("few") != key("many") && key("few").starts_with("acl@"), "{first}");
    assert_eq!(first["functions"].as_object().expect("by key").len(), 3);
    for module in ["few", "many", "tags_of_the_neighbouring_network"] {
        check(&first["functions"][key(module)], 8.0, &[1.0, 2.0, 4.0, 8.0]);
    }
    assert_eq!(first["missing"], serde_json::json!({ "never": "no packet came to it" }));
    // Known modules are not measured again, and the command prints nothing else.
    let table = cache.profile(&short);
    assert_eq!(table.code, Some(1), "{}", table.err);
    assert!(table.out.lines().take(4).all(|line| line.chars().count() <= 80), "{}", table.out);
    let rows: Vec<Vec<_>> = table.out.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows[1], ["few", "+1", "acl"]);
    assert_eq!(rows[3][..2], ["tags_of_the_neighbour…", "vlan_split"]);
    for expected in ["never was not measured: no packet came to it.\n", "0 modules measured, 3 known.\n"] {
        assert!(table.out.contains(expected), "{}", table.out);
    }
}

#[test]
fn a_pipeline_that_cannot_be_measured_is_refused() {
    let (cache, folder) = (Cache::new(), TempDir::new().expect("a folder for the test"));
    let file = folder.path().join("some.yaml");
    fs::write(&file, PIPELINE.replace("never: { ttl: }", "never: { tap: { file: some.pcap } }"))
        .expect("a writable folder");
    let file = file.to_str().expect("UTF-8");
    for (arguments, expected) in [
        (&[file][..], "'never' writes some.pcap: measuring would fill the file with generated packets"),
        (&[file, "--set", "batch=2"], "largest batch 2 is out of range (4 to 256); set another with `--batch N`"),
        (&[file, "ttl"], "name one pipeline, or functions"),
        (
            &["ttl", "--set", "batch=8"],
            "functions are measured with the parameters of their examples: to use --set, name a pipeline",
        ),
        (&["usecase:gv"], "did you mean 'gw'"),
        (&["./nowhere.yaml"], "No such file"),
    ] {
        let refused = cache.profile(arguments);
        assert!(
            refused.code == Some(2) && refused.out.is_empty() && refused.err.contains(expected),
            "{arguments:?}: {}",
            refused.err
        );
    }
    assert!(!folder.path().join("some.pcap").exists());
}

/// A simulation reports why it cannot use a damaged profile, not only that the costs are unknown.
#[test]
fn a_simulation_reports_a_damaged_profile() {
    let cache = Cache::new();
    cache.profile(&["ttl", "--time", "10ms"]).success();
    fs::write(cache.file(), "garbage").expect("a writable folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let done = done(command.args(["simulate", "usecase:gw"]).env("XDG_CACHE_HOME", cache.0.path()));
    let file = cache.file().display().to_string();
    assert!(done.code == Some(2) && done.out.is_empty(), "{}{}", done.out, done.err);
    for expected in [file.as_str(), "not a profile: ", "are ignored", "the cost of calls of acl"] {
        assert!(done.err.contains(expected), "'{expected}' is not in\n{}", done.err);
    }
}
