//! `forebay profile`: what calls cost, kept and used again; what is wrong with what was kept.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Done, forebay};

/// The user's cache, as far as a test's commands see it.
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

    fn profile(&self, arguments: &[&str]) -> Done {
        done(&mut self.command(arguments))
    }

    fn folder(&self) -> PathBuf {
        self.0.path().join("forebay/profile")
    }

    /// The one file that there is.
    fn file(&self) -> PathBuf {
        let files: Vec<_> = fs::read_dir(self.folder()).expect("a folder").map(|file| file.expect("a file")).collect();
        assert_eq!(files.len(), 1, "{files:?}");
        files[0].path()
    }
}

fn done(command: &mut Command) -> Done {
    let output = command.output().expect("the command can be started");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Done { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn read(file: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(file).expect("it was kept")).expect("JSON")
}

/// Checks what is told of a function, and that its parts agree.
fn check(told: &Value, batch: f64, sizes: &[f64]) {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("{value} in {told}"));
    let [t0, t1, dispatch] = ["t0_s", "t1_s", "dispatch_s"].map(|name| number(&told[name]));
    assert!(t0 >= dispatch && dispatch >= 0.0 && t1 >= 0.0 && t0 + t1 > 0.0, "{told}");
    for (value, interval) in [(t0, "t0_95_s"), (t1, "t1_95_s")] {
        let [low, high] = [0, 1].map(|end| number(&told[interval][end]));
        assert!(0.0 <= low && low <= high, "{told}");
        assert!(low <= value && value <= high || t0 == 0.0 || t1 == 0.0, "{told}");
    }
    let batchiness = (t0 + batch * t1) / (batch * (t0 + t1));
    assert!((number(&told["batchiness"]) / batchiness - 1.0).abs() < 1e-9, "{told}");
    assert!(told["r2"].is_null() || (0.0..=1.0).contains(&number(&told["r2"])), "{told}");
    assert!((0.0..=1.0).contains(&number(&told["stalled"])) && told["samples"].is_u64() && told["at"].is_string());
    let measured: Vec<_> = told["sizes"].as_array().expect("a list").iter().collect();
    assert_eq!(measured.iter().map(|size| number(&size["packets"]).round()).collect::<Vec<_>>(), sizes, "{told}");
    assert!(measured.iter().all(|size| number(&size["call_s"]) > 0.0), "{told}");
}

/// Whether both are of one measurement. Decimal fractions need not be read back to the last bit.
fn is_same(one: &Value, other: &Value) -> bool {
    let t1 = |told: &Value| told["t1_s"].as_f64().expect("a number");
    one["at"] == other["at"] && (t1(one) - t1(other)).abs() <= t1(one).abs() * 1e-9
}

#[test]
fn what_is_measured_is_kept_and_added_to() {
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
    // Known: the same. Unknown: measured, and both are kept.
    let both = cache.profile(&[&["ttl", "mac_swap", "ttl"][..], &short].concat()).json();
    assert!(is_same(&both["functions"]["ttl"], &first["functions"]["ttl"]));
    check(&both["functions"]["mac_swap"], 8.0, &[1.0, 2.0, 4.0, 8.0]);
    assert_eq!(read(&cache.file()), both);
    let again = cache.profile(&[&["ttl", "--again"][..], &short].concat()).json();
    assert!(!is_same(&again["functions"]["ttl"], &first["functions"]["ttl"]));
    assert_eq!(again["functions"].as_object().expect("by name").len(), 1, "only what was asked for");
    let kept = read(&cache.file());
    for (name, last) in [("mac_swap", &both), ("ttl", &again)] {
        assert!(is_same(&kept["functions"][name], &last["functions"][name]), "{name}");
    }
}

#[test]
fn the_table_says_what_it_is_of_and_what_was_known() {
    let cache = Cache::new();
    let short = ["mac_swap", "--time", "10ms", "--batch", "4"];
    let table = cache.profile(&short).well();
    let head: Vec<_> = table.lines().next().expect("a head").split_whitespace().collect();
    assert_eq!(head, ["function", "T0,", "ns", "95", "%", "T1,", "ns", "95", "%", "R²", "batchiness"]);
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with("mac_swap ")), "{table}");
    assert!(table.contains("for batches of up to 4.") && table.ends_with("1 function measured, 0 known.\n"), "{table}");
    let known = cache.profile(&short).well();
    assert_eq!(known.lines().nth(1), table.lines().nth(1));
    let told = format!("0 functions measured, 1 known from {} (--again measures).\n", cache.file().display());
    assert!(known.ends_with(&told), "{known}");
}

#[test]
fn what_is_broken_is_told_and_measured_anew() {
    let cache = Cache::new();
    let short = ["ttl", "--time", "10ms", "--batch", "4"];
    cache.profile(&short).well();
    let file = cache.file();
    let text = fs::read_to_string(&file).expect("it was kept");
    let other = text.replacen("\"batch\": 4", "\"batch\": 5", 1);
    for (there, said) in [(&text[..100], "not a profile: EOF"), (&other, "it is not valid here")] {
        fs::write(&file, there).expect("our own file");
        let done = cache.profile(&short);
        assert!(done.err.contains(said) && done.err.ends_with(": measuring again\n"), "{}", done.err);
        assert!(done.well().contains("1 function measured, 0 known."));
        let done = cache.profile(&short);
        assert_eq!(done.err, "");
        assert!(done.well().contains("0 functions measured, 1 known"));
    }
}

/// An answer is an answer, whether or not it can be kept.
#[test]
fn without_a_place_it_is_measured_all_the_same() {
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
    assert_eq!((done.code, fs::read_to_string(&file).expect("it is there").as_str()), (Some(0), "precious"));
    let nowhere = crate::profile::done(cache.command(&short).env_remove("XDG_CACHE_HOME").env("HOME", "relative"));
    assert!(nowhere.code == Some(0) && nowhere.err.starts_with("no folder for profiles: "), "{}", nowhere.err);
    let home = crate::profile::done(cache.command(&short).env_remove("XDG_CACHE_HOME").env("HOME", folder.path()));
    assert_eq!((home.code, home.err.as_str()), (Some(0), ""));
    assert!(folder.path().join(".cache/forebay/profile").is_dir());
}

/// A measurement that is ended leaves no half of a file, and nothing that it wrote for its time.
#[test]
fn one_that_is_killed_leaves_nothing() {
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
fn what_is_no_function_is_refused_before_anything_is_measured() {
    let cache = Cache::new();
    let refused = cache.profile(&["ttl", "ip_lokup"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""));
    let said = "error: there is no function 'ip_lokup' (did you mean 'ip_lookup'?): `forebay list functions` has all\n";
    assert_eq!(refused.err, said);
    assert!(!cache.folder().exists());
    for (arguments, said) in [
        (&["--batch", "3"][..], "allowed are 4 to 256"),
        (&["--batch", "257"], "allowed are 4 to 256"),
        (&["--time", "1ms"], "allowed are 10ms to 60s"),
        (&["--time", "soon"], "--time"),
    ] {
        let refused = cache.profile(arguments);
        assert!(refused.code == Some(2) && refused.err.contains(said), "{}", refused.err);
    }
    let help = forebay(&["profile", "--help"]).well();
    assert!(help.contains("forebay profile --again acl") && help.contains("--batch"), "{help}");
}

/// `few` and `also` do the same; nothing comes to `never`.
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
    assert_eq!(first.code, Some(1), "one was not measured: {}", first.err);
    let first = first.json();
    let key = |module: &str| first["modules"][module].as_str().expect("a key").to_owned();
    assert!(key("few") == key("also") && key("few") != key("many") && key("few").starts_with("acl@"), "{first}");
    assert_eq!(first["functions"].as_object().expect("by key").len(), 3);
    for module in ["few", "many", "tags_of_the_neighbouring_network"] {
        check(&first["functions"][key(module)], 8.0, &[1.0, 2.0, 4.0, 8.0]);
    }
    assert_eq!(first["missing"], serde_json::json!({ "never": "no packet came to it" }));
    // Known: the same, and nothing else is printed of it.
    let table = cache.profile(&short);
    assert_eq!(table.code, Some(1), "{}", table.err);
    assert!(table.out.lines().take(4).all(|line| line.chars().count() <= 80), "{}", table.out);
    let rows: Vec<Vec<_>> = table.out.lines().map(|line| line.split_whitespace().take(3).collect()).collect();
    assert_eq!(rows[1], ["few", "+1", "acl"]);
    assert_eq!(rows[3][..2], ["tags_of_the_neighbour…", "vlan_split"]);
    for said in ["never was not measured: no packet came to it.\n", "0 modules measured, 3 known.\n"] {
        assert!(table.out.contains(said), "{}", table.out);
    }
}

#[test]
fn a_pipeline_that_cannot_be_measured_is_refused() {
    let (cache, folder) = (Cache::new(), TempDir::new().expect("a folder for the test"));
    let file = folder.path().join("some.yaml");
    fs::write(&file, PIPELINE.replace("never: { ttl: }", "never: { tap: { file: some.pcap } }"))
        .expect("a writable folder");
    let file = file.to_str().expect("UTF-8");
    for (arguments, said) in [
        (&[file][..], "'never' writes some.pcap: measuring would fill it with made-up packets"),
        (&[file, "--set", "batch=2"], "largest batch 2 is out of range (4 to 256); set another with `--batch N`"),
        (&[file, "ttl"], "name one pipeline, or functions"),
        (&["ttl", "--set", "batch=8"], "functions are measured with the parameters of their examples: name a pipeline"),
        (&["usecase:gv"], "did you mean 'gw'"),
        (&["./nowhere.yaml"], "No such file"),
    ] {
        let refused = cache.profile(arguments);
        assert!(
            refused.code == Some(2) && refused.out.is_empty() && refused.err.contains(said),
            "{arguments:?}: {}",
            refused.err
        );
    }
    assert!(!folder.path().join("some.pcap").exists());
}

/// Whoever reckons with what was measured says that it cannot, and not only that nothing is known.
#[test]
fn what_is_broken_is_told_by_a_simulation_too() {
    let cache = Cache::new();
    cache.profile(&["ttl", "--time", "10ms"]).well();
    fs::write(cache.file(), "garbage").expect("our own file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let told = done(command.args(["simulate", "usecase:gw"]).env("XDG_CACHE_HOME", cache.0.path()));
    let file = cache.file().display().to_string();
    assert!(told.code == Some(2) && told.out.is_empty(), "{}{}", told.out, told.err);
    for said in [file.as_str(), "not a profile: ", "is not taken from it", "what calls of acl"] {
        assert!(told.err.contains(said), "'{said}' is not in\n{}", told.err);
    }
}
