//! Measures the modules of a pipeline, each with its own parameters and at its position in the pipeline.
//!
//! The example of a function does not show the cost of an ACL of ten thousand rules, or of a packet that has already
//! passed twenty other modules. So the pipeline itself runs, at its full rate. All modules wait for full batches,
//! except one, whose trigger changes while packets run. Modules of the same function with similar parameters are
//! measured together.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_graph::files::read_text;
use forebay_instance::{Instance, choose};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, is_kind_with_secrets, parameters, shown_text};
use forebay_protocol::SchedulerKind;
use schemars::Schema;
use serde_json::Value;

use super::bench::{self, Measured};
use super::{Costed, Effort, Profile, ProfileError, Progress};

/// The time for which a pipeline runs to find out which modules receive packets.
const LOOK: Duration = Duration::from_millis(100);
/// Types of ports that are not replaced. Ports of type `pcap` that read a file are not replaced either.
const PLAYED: &[&str] = &["generator", "sink", "ring"];
/// The largest file whose contents are included in a key, in bytes.
const LARGEST_FILE: u64 = 1 << 28;

/// A pipeline whose modules are measured.
#[derive(Clone, Debug)]
pub struct Pipeline {
    source: Source,
    /// The modules: name, function, and the key of the costs.
    pub modules: Vec<(String, String, String)>,
    /// The largest batch.
    pub batch: usize,
    /// Ports that are replaced by generators, each with the configured port type.
    pub replaced: Vec<(String, String)>,
}

/// The results for a pipeline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Modules that were measured now, one for each key.
    pub measured: Vec<String>,
    /// Modules that could not be measured, each with the reason.
    pub missing: BTreeMap<String, String>,
}

/// Returns, for each module of a configuration, its name, its function, and the key of its costs.
#[must_use]
pub fn keys(source: &Source) -> Vec<(String, String, String)> {
    // Secrets are removed first: a stored key must not contain even a hash of them.
    let shown = Source::new(shown_text(source), source.file(), source.base());
    // Errors were reported when the configuration was loaded.
    let written = parameters(&shown, |_| Schema::default()).unwrap_or_default();
    let Some(modules) = written["modules"].as_object() else { return Vec::new() };
    let one = |(name, module): (&String, &Value)| {
        let (function, params) = module.as_object()?.iter().next()?;
        Some((name.clone(), function.clone(), key(function, params, &written["state"], source.base())))
    };
    modules.iter().filter_map(one).collect()
}

/// Returns the key of a function with these parameters. Parameters that give the same costs have the same key:
/// addresses do not count, and of each number only the first two digits and the magnitude count. `state` contains the
/// parameters of all states; file names are relative to `base`. A profile belongs to one build, so the form of a key
/// may change from build to build.
fn key(function: &str, params: &Value, state: &Value, base: &Path) -> String {
    let mut shape = Shape { state, base: base.to_owned(), hasher: DefaultHasher::new() };
    if is_kind_with_secrets(function) {
        // A function with secrets names key files, which must not be read here.
        shape.base = PathBuf::new();
    }
    // `ttl:` and `ttl: {}` have the same key.
    let none = Value::Object(serde_json::Map::new());
    shape.add(if params.is_null() { &none } else { params });
    format!("{function}@{:016x}", shape.hasher.finish())
}

/// A hash of those parameters that determine the cost of calls.
struct Shape<'a> {
    state: &'a Value,
    /// The folder of files; empty if no file may be read.
    base: PathBuf,
    hasher: DefaultHasher,
}

impl Shape<'_> {
    /// Adds a value to the hash. Each type has its own first byte, so that values of different types differ.
    fn add(&mut self, value: &Value) {
        match value {
            Value::Null => self.hasher.write_u8(0),
            Value::Bool(is) => self.hasher.write(&[1, u8::from(*is)]),
            Value::Number(number) => {
                self.hasher.write_u8(2);
                self.hasher.write(format!("{:.1e}", number.as_f64().unwrap_or(0.0)).as_bytes());
            }
            Value::String(text) => self.text(text),
            Value::Array(list) => {
                self.hasher.write_u8(4);
                self.hasher.write_usize(list.len());
                list.iter().for_each(|item| self.add(item));
            }
            Value::Object(map) => {
                self.hasher.write_u8(5);
                self.hasher.write_usize(map.len());
                for (key, value) in map {
                    self.hasher.write(without_addresses(key).as_bytes());
                    match value {
                        // `file` is a file that a function writes: neither its name nor its contents count.
                        Value::String(_) if key == "file" => {}
                        _ => self.add(value),
                    }
                }
            }
        }
    }

    /// Adds a text. If the text is the name of a state, adds the parameters of the state instead. If the text is the
    /// name of a file, adds the contents of the file too.
    fn text(&mut self, text: &str) {
        if let Some(state) = self.state.get(text) {
            // A state does not refer to other states, so a text in its parameters is not the name of a state.
            let states = std::mem::replace(&mut self.state, &Value::Null);
            self.add(state);
            self.state = states;
            return;
        }
        self.hasher.write_u8(3);
        self.hasher.write(without_addresses(text).as_bytes());
        self.hasher.write_u8(0xff);
        let is_name = !self.base.as_os_str().is_empty() && !text.is_empty() && !text.contains('\n');
        if let Some(bytes) = is_name.then(|| read_text(&self.base.join(text), LARGEST_FILE)).and_then(Result::ok) {
            self.hasher.write(&bytes);
        }
    }
}

/// Returns the text without addresses, because all addresses cost the same. The rest stays, for example the length of a
/// prefix.
fn without_addresses(text: &str) -> String {
    let end = |c: char| c.is_whitespace() || matches!(c, ',' | '/' | '=' | '[' | ']' | '(' | ')');
    let word = |word: &str| {
        let of_ethernet = word.len() == 17 && word.split(':').all(|pair| u8::from_str_radix(pair, 16).is_ok());
        of_ethernet || word.parse::<IpAddr>().is_ok() || word.parse::<SocketAddr>().is_ok()
    };
    let parts = text.split_inclusive(end).map(|part| {
        let bare = part.trim_end_matches(end);
        if word(bare) { &part[bare.len()..] } else { part }
    });
    parts.collect()
}

/// The lines of `pipeline`.
#[derive(Default)]
struct Ways {
    lines: Vec<String>,
    /// The first elements of the lines. A port among them receives packets.
    starts: BTreeSet<String>,
    /// The last elements of the lines. A port among them sends packets.
    ends: BTreeSet<String>,
}

impl Ways {
    /// Reads the lines of the section `pipeline` of a configuration.
    fn of(written: &Value) -> Self {
        let lines: Vec<_> =
            written.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let stop = |stop: Option<&str>| stop.map(|stop| stop.trim().to_owned());
        let starts = lines.iter().filter_map(|line| stop(line.split("->").next())).collect();
        let ends = lines.iter().filter_map(|line| stop(line.rsplit("->").next())).collect();
        Self { lines, starts, ends }
    }

    /// Returns the lines as JSON. Each of `ports` at the end of a line is replaced by [its sink](out_of).
    fn with_ends(&self, ports: &[&str]) -> Value {
        let line = |line: &String| match line.rsplit_once("->") {
            Some((before, end)) if ports.contains(&end.trim()) => format!("{before}-> {}", out_of(end.trim())),
            _ => line.clone(),
        };
        self.lines.iter().map(line).collect()
    }
}

/// Returns the name of the sink for packets that would leave through a port that is now a generator.
fn out_of(port: &str) -> String {
    format!("{port}__out")
}

impl Pipeline {
    /// Prepares a configuration. Removes its controller, buffers, workers, scheduler, shares and minimum rates, and
    /// disables folding. Captures are replayed in a loop. Interfaces are replaced by generators and sinks. `batch` is
    /// the largest batch; `None` keeps the configured one.
    ///
    /// # Errors
    /// [`ProfileError::Pipeline`]: the configuration is invalid.
    pub fn new(source: Source, batch: Option<usize>) -> Result<Self, ProfileError> {
        let mut modules = keys(&source);
        let written = parameters(&source, |_| Schema::default())?;
        let without = ["fold=off", "control=null", "buffers=null", "workers=null", "scheduler=null", "shares=null"];
        let mut source = without.into_iter().fold(source, Source::set);
        if let Some(batch) = batch {
            source = source.set(format!("batch={batch}"));
        }
        let flows = written["flows"].as_array().map_or(0, Vec::len);
        for flow in (0..flows).filter(|flow| !written["flows"][flow]["min_rate"].is_null()) {
            source = source.set(format!("flows.{flow}.min_rate=null"));
        }
        let ways = Ways::of(&written["pipeline"]);
        let (mut replaced, mut of_both) = (Vec::new(), Vec::new());
        for (port, kinds) in written["ports"].as_object().into_iter().flatten() {
            let (kind, params) = kinds
                .as_object()
                .and_then(|kinds| kinds.iter().next())
                .map_or(("", &Value::Null), |(kind, params)| (kind.as_str(), params));
            let is_played = params["write"].is_null() && params["read"].as_str().is_some_and(|file| file != "-");
            if kind == "pcap" && is_played {
                source =
                    source.set(format!("ports.{port}.pcap.speed=fast")).set(format!("ports.{port}.pcap.loops=forever"));
                continue;
            }
            let (enters, leaves) = (ways.starts.contains(port), ways.ends.contains(port));
            if !PLAYED.contains(&kind) {
                source = source.set(format!("ports.{port}={{ {}: {{}} }}", if enters { "generator" } else { "sink" }));
            }
            if !PLAYED.contains(&kind) && enters {
                replaced.push((port.clone(), kind.to_owned()));
            }
            // A generator cannot send packets, so the packets that leave through this port go to an additional sink.
            if enters && leaves && (!PLAYED.contains(&kind) || kind == "generator") {
                source = source.set(format!("ports.{}={{ sink: {{}} }}", out_of(port)));
                of_both.push(port.as_str());
            }
        }
        if !of_both.is_empty() {
            source = source.set(format!("pipeline={}", ways.with_ends(&of_both)));
        }
        // Sorts the modules in the order of the configuration.
        let checked = forebay_pipeline::check(&source)?;
        modules.sort_by_key(|(name, ..)| checked.modules.iter().position(|(written, _)| written == name));
        let batch = batch.or_else(|| usize::try_from(written["batch"].as_u64()?).ok()).unwrap_or(32);
        Ok(Self { source, modules, batch, replaced })
    }

    /// Returns the modules to measure, each with its key. There is one module for each key that `profile` does not
    /// have, or with `again`, one for each key.
    #[must_use]
    pub fn wanted(&self, profile: &Profile, again: bool) -> Vec<(String, String)> {
        let mut wanted: Vec<(String, String)> = Vec::new();
        for (module, _, key) in self.modules.iter().filter(|(_, _, key)| again || !profile.functions.contains_key(key))
        {
            if wanted.iter().all(|(_, known)| known != key) {
                wanted.push((module.clone(), key.clone()));
            }
        }
        wanted
    }
}

impl Profile {
    /// Measures these modules of a pipeline, each with its key ([`Pipeline::wanted`]), and stores their costs in the
    /// profile. Calls `begins` at the beginning of each step. If a module cannot be measured, the other modules still
    /// are.
    ///
    /// # Errors
    /// [`ProfileError`]. Then no cost is replaced.
    pub fn measure_pipeline(
        &mut self,
        pipeline: &Pipeline,
        wanted: &[(String, String)],
        effort: &Effort,
        begins: &mut dyn FnMut(Progress<'_>),
    ) -> Result<Found, ProfileError> {
        let mut found = Found::default();
        let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
        let prepared = forebay_pipeline::prepare(&pipeline.source, conditions, None)?;
        if let Some((who, file)) = prepared.writes().first() {
            return Err(ProfileError::Writes { who: who.clone(), file: file.clone() });
        }
        let Loaded { mut plans, cores, made, .. } = prepared.open()?;
        for plan in &mut plans {
            plan.scheduler = SchedulerKind::RunToCompletion;
            plan.scheduled_sources().for_each(|source| source.saturate());
        }
        let names: Vec<_> = plans[0].modules.iter().map(|module| module.name.clone()).collect();
        let alike = |key: &str| {
            let of_key: Vec<_> =
                pipeline.modules.iter().filter(|(_, _, of)| of == key).map(|(name, ..)| name).collect();
            (0..names.len()).filter(|at| of_key.contains(&&names[*at])).collect()
        };
        let targets: Vec<_> = wanted.iter().map(|(module, key)| Target { module, key, alike: alike(key) }).collect();
        let control_inputs = forebay_instance::ControlInputs::default();
        let instance = forebay_instance::start(plans, choose(&cores)?, made, Box::new(|_| None), control_inputs)?;
        let measured = bench::fill(&*instance, names.len(), effort.batch)
            .map(|()| passes(&*instance, &targets, effort, &mut found, begins));
        if let Some((part, trouble)) = instance.end().troubles.into_iter().next() {
            return Err(ProfileError::Trouble { function: part, reason: trouble });
        }
        let whole = |reason| ProfileError::Trouble { function: "the pipeline".to_owned(), reason };
        for (Target { module, key, .. }, measured) in measured.map_err(whole)? {
            match Costed::of(&measured, effort, Tsc.frequency().hertz()) {
                Some(costed) => {
                    self.functions.insert((*key).to_owned(), costed);
                    found.measured.push((*module).to_owned());
                }
                None => {
                    let why = "other programs used the core too much to find the cost of its calls: measure again";
                    found.missing.insert((*module).to_owned(), why.to_owned());
                }
            }
        }
        Ok(found)
    }
}

/// The modules of one key, which are measured together.
struct Target<'a> {
    /// The module for which progress and results are reported.
    module: &'a str,
    key: &'a str,
    /// The indices of all modules with this key.
    alike: Vec<usize>,
}

/// Measures each target in several passes. Returns the targets that could be measured. The others are added to
/// `found.missing`, with the reason.
fn passes<'a>(
    instance: &dyn Instance,
    targets: &'a [Target<'_>],
    effort: &Effort,
    found: &mut Found,
    begins: &mut dyn FnMut(Progress<'_>),
) -> Vec<(&'a Target<'a>, Measured)> {
    let mut measured: Vec<_> = targets.iter().map(|target| (target, Measured::default())).collect();
    let is_reached = bench::reached(instance, LOOK);
    for pass in 0..effort.passes {
        for (at, (target, measured)) in measured.iter_mut().enumerate() {
            let (done, all) = (pass * targets.len() + at, effort.passes * targets.len());
            begins(Progress { function: target.module, done, all });
            if found.missing.contains_key(target.module) {
                continue;
            }
            // Among equal modules, a module that receives packets is timed.
            let mut alike = target.alike.clone();
            alike.sort_by_key(|at| !is_reached[*at]);
            let more = match alike.first() {
                Some(at) if is_reached[*at] => bench::rounds(instance, effort, &alike),
                _ => Err("no packet came to it".to_owned()),
            };
            match more {
                Ok(more) => measured.add(more),
                Err(why) => drop(found.missing.insert(target.module.to_owned(), why)),
            }
        }
    }
    measured.retain(|(target, _)| !found.missing.contains_key(target.module));
    measured
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;
    use crate::profile::{Effort, Key};

    /// Addresses and small differences of numbers do not change the key; all other differences do.
    #[test]
    fn like_parameters_have_one_key() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let state = json!({ "t": { "routes": { "n": 5 } }, "u": { "routes": { "n": 500 } } });
        let of = |params: Value| key("f", &params, &state, folder.path());
        assert_eq!(of(json!({ "inside": "10.0.0.0/24" })), of(json!({ "inside": "172.16.31.0/24" })));
        assert_eq!(of(json!({ "to": ["02:00:00:00:00:01"] })), of(json!({ "to": ["02:aa:00:00:00:01"] })));
        assert_eq!(of(json!({ "n": 4097 })), of(json!({ "n": 4110 })));
        let different = [
            [json!({ "rules": { "synthetic": 100 } }), json!({ "rules": { "synthetic": 1000 } })],
            [json!({ "list": [1] }), json!({ "list": [1, 2] })],
            [json!({ "default": "permit" }), json!({ "default": "deny" })],
            [json!({ "state": "t" }), json!({ "state": "u" })],
            [json!({ "inside": "10.0.0.0/8" }), json!({ "inside": "10.0.0.0/24" })],
            [json!({ "size": "10k" }), json!({ "size": "20k" })],
            [json!({ "rules": "rules-10" }), json!({ "rules": "rules-1000" })],
            [json!({ "states": ["t", "t"] }), json!({ "states": ["t", "u"] })],
            [json!({ "flow3": 1 }), json!({ "flow4": 1 })],
        ];
        for [one, other] in different {
            assert_ne!(of(one.clone()), of(other.clone()), "{one} and {other}");
        }
        assert!(of(json!({})).starts_with("f@") && key("g", &json!({}), &state, folder.path()) != of(json!({})));
    }

    #[test]
    fn the_key_includes_the_contents_of_files_and_excludes_secrets() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let file = folder.path().join("some.rules");
        let of = |text: &str| keys(&Source::new(text, "test.yaml", folder.path()))[0].2.clone();
        let acl = "modules: { few: { acl: { rules: some.rules } } }";
        let without = of(acl);
        std::fs::write(&file, "permit all").expect("our own folder");
        let with = of(acl);
        std::fs::write(&file, "deny all").expect("our own folder");
        assert!(without != with && with != of(acl));
        // A file that a function writes grows while the function runs.
        let log = "modules: { copy: { tap: { file: some.rules } } }";
        let before = of(log);
        std::fs::write(&file, "more").expect("our own folder");
        assert_eq!(of(log), before);
        let seal = |key: &str| {
            of(&format!("modules: {{ seal: {{ aes_gcm_encrypt: {{ keys: [{{ id: 1, key: '{key}' }}], use: 1 }} }} }}"))
        };
        assert_eq!(seal("00112233445566778899aabbccddeeff"), seal("ffeeddccbbaa99887766554433221100"));
    }

    /// A thousand rules cost more than ten, in one pipeline. Modules with known costs are not measured again.
    #[test]
    fn modules_are_measured_with_their_parameters() {
        let text = "ports: { in: { generator: }, out: { sink: } }\n\
                    modules:\n  few: { acl: { rules: { synthetic: 4 }, default: permit } }\n  \
                    also: { acl: { rules: { synthetic: 4 }, default: permit } }\n  \
                    work: { bypass: { cycles_per_batch: 20000, cycles_per_packet: 0 } }\n  \
                    tags: { vlan_split: { ids: [9] } }\n  never: { ttl: }\n\
                    pipeline: [in -> few -> also -> work -> tags, 'tags[9] -> never -> out', 'tags[other] -> out']\n";
        let source = Source::new(text, "test.yaml", "").set("batch=4");
        let pipeline = Pipeline::new(source, None).expect("a valid configuration");
        let effort = Effort { batch: pipeline.batch, passes: 1, rounds: 4, time: Duration::from_millis(20) };
        assert_eq!(effort.batch, 4);
        let mut profile = Profile::empty(Key::this(4).expect("this program"));
        let wanted = pipeline.wanted(&profile, false);
        assert_eq!(
            wanted.iter().map(|(module, _)| module.as_str()).collect::<Vec<_>>(),
            ["few", "work", "tags", "never"],
            "two modules have the same key"
        );
        let found = profile.measure_pipeline(&pipeline, &wanted, &effort, &mut |_| {}).expect("it runs");
        assert_eq!(found.missing["never"], "no packet came to it");
        // 20 000 ticks per call, if the machine does not stall in every call.
        let work = &profile.functions[&wanted[1].1];
        assert!(work.t0_s * Tsc.frequency().hertz() > 10_000.0, "{work:?}");
        assert_eq!((found.measured, found.missing.len()), (["few", "work", "tags"].map(str::to_owned).to_vec(), 1));
        assert_eq!(
            pipeline.wanted(&profile, false),
            [wanted[3].clone()],
            "modules with known costs are not measured again"
        );
        assert_eq!(pipeline.wanted(&profile, true), wanted);
    }

    /// Ports that packets also leave through were replaced by generators, which cannot send.
    #[test]
    fn ports_are_replaced_by_generators_and_sinks() {
        let text = "ports: { lan: { af_packet: { interface: nowhere } }, \
                    wan: { af_packet: { interface: nowhere_else } } }\n\
                    modules: { tags: { vlan_split: { ids: [9] } }, there: { counter: } }\n\
                    pipeline: [lan -> tags, 'tags[9] -> lan', 'tags[other] -> there -> wan']\n";
        let pipeline =
            Pipeline::new(Source::new(text, "test.yaml", ""), None).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(pipeline.replaced, [("lan".to_owned(), "af_packet".to_owned())]);
        let written = parameters(&pipeline.source, |_| Schema::default()).expect("a valid configuration");
        assert!(
            written["ports"]["lan"]["generator"].is_object() && written["ports"]["wan"]["sink"].is_object(),
            "{written}"
        );
        assert!(written["ports"]["lan__out"]["sink"].is_object(), "{written}");
    }

    #[test]
    fn a_module_that_writes_a_file_is_refused_and_interfaces_are_replaced() {
        let text = "ports: { in: { af_packet: { interface: nowhere } }, out: { sink: } }\n\
                    modules: { tap: { tap: { file: some.pcap } } }\npipeline: [in -> tap -> out]\n";
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let pipeline =
            Pipeline::new(Source::new(text, "test.yaml", folder.path()), None).expect("a valid configuration");
        assert_eq!(pipeline.replaced, [("in".to_owned(), "af_packet".to_owned())]);
        let mut profile = Profile::empty(Key::this(32).expect("this program"));
        let wanted = pipeline.wanted(&profile, false);
        let refused = profile.measure_pipeline(&pipeline, &wanted, &Effort::new(32), &mut |_| {}).expect_err("a file");
        let expected = "'tap' writes some.pcap: measuring would fill the file with generated packets: replace it by \
                        /dev/null with `--set`";
        assert_eq!(refused.to_string(), expected);
        assert!(std::fs::read_dir(folder.path()).expect("the folder exists").next().is_none());
    }
}
