//! Tests with complete and with broken recordings.

use forebay_protocol::{
    FlowLayout, ModuleLayout,
    snapshot::{DelaySnapshot, FlowSnapshot, ModuleSnapshot, WorkerSnapshot},
};
use proptest::prelude::*;

use super::*;
use crate::testing::{flow, layout, module};

/// Returns a recording of two modules and one flow through both, with this number of periods.
fn recorded(periods: usize) -> String {
    let module = |name: &str, before: &[usize]| ModuleLayout { leader: before.len(), ..module(name, before) };
    let all = FlowLayout { min_rate: Some(1e5), ..flow("all", &[0, 1], Some(1e-3)) };
    let layout = layout(vec![module("a", &[]), module("b", &[0])], vec![all]);
    let module = ModuleSnapshot {
        packets: 10_000,
        calls: 5_000,
        came: 10_000,
        arrived: (10_000, 5_000),
        timed: (10, 20, 5e-6),
        cost_s: (3e-7, 5e-8),
        ..ModuleSnapshot::default()
    };
    let delay = DelaySnapshot { mean: 5e-6, p95: 1e-5, p99: 2e-5, chosen: 2e-5 };
    let snapshot = |at: usize| Snapshot {
        at_s: at as f64 * 0.1,
        exact: false,
        period_s: 0.1,
        modules: vec![module; 2],
        flows: vec![FlowSnapshot { packets: 10_000, delay_s: Some(delay), ..FlowSnapshot::default() }],
        workers: vec![WorkerSnapshot {
            busy_s: 0.05,
            busy_turns: 5_000,
            port_wait_s: Some(delay),
            ..WorkerSnapshot::default()
        }],
    };
    let optimal = controllers().into_iter().find(|it| it.name == "optimal").expect("registered");
    let settings =
        Settings { controller: optimal, params: Value::Null, period: Nanos(100_000_000), guard: 0.05, workers: 1 };
    let mut written = Vec::new();
    {
        let mut recorder = Recorder::new(&mut written, |error| panic!("{error}"));
        recorder.begin(&settings, &layout);
        let mut runner =
            crate::ControllerRunner::new(&settings, layout.clone(), crate::Costs::Recorded).expect("no parameters");
        for at in 0..periods {
            let mut snapshot = snapshot(at);
            let actions = runner.decide(&mut snapshot).clone();
            recorder.period(&snapshot, &actions);
        }
    }
    String::from_utf8(written).expect("JSON")
}

#[test]
fn a_recording_is_read_and_replayed_with_the_same_decisions() {
    let Recorded { parts, cut } = read(recorded(5).as_bytes()).expect("as it was written");
    assert!(!cut);
    let (begin, periods) = &parts[0];
    assert_eq!((parts.len(), periods.len(), begin.controller.as_str()), (1, 5, "optimal"));
    let optimal = controllers().into_iter().find(|it| it.name == "optimal").expect("registered");
    let settings =
        Settings { controller: optimal, params: Value::Null, period: Nanos(100_000_000), guard: 0.05, workers: 1 };
    let summary = Summary::of(&replay(begin, periods, &settings).expect("no parameters"));
    assert_eq!((summary.periods, summary.different, summary.recorded), (5, 0, summary.replayed));
    assert!(summary.recorded.changes > 0 && summary.recorded.load > Some(0.0), "{summary:?}");
}

#[test]
fn a_cut_recording_is_read_up_to_its_last_whole_line() {
    let text = recorded(3);
    let last = text.trim_end().rfind('\n').expect("lines") + 1;
    for end in [last, last + 1, text.len() - 2] {
        let Recorded { parts, cut } = read(&text.as_bytes()[..end]).unwrap_or_else(|error| panic!("{end}: {error}"));
        assert_eq!((parts[0].1.len(), cut), (2, end > last), "{end}");
    }
    // The file ends within a character, in the line of a new configuration.
    let name = text.lines().next().expect("a line").replace("test", "zweitürig");
    let end = name.find('ü').expect("the name contains it") + 1;
    let cut = [text.as_bytes(), &name.as_bytes()[..end]].concat();
    let read = super::read(&cut[..]).expect("cut off");
    assert_eq!((read.parts.len(), read.cut), (1, true));
}

#[test]
fn errors_name_compressed_files() {
    let error = read(&b"\x1f\x8b\x08\0rest\n"[..]).expect_err("no lines of JSON").to_string();
    assert!(error.contains("gzip") && error.contains("gunzip"), "{error}");
}

#[test]
fn errors_for_figures_name_their_line() {
    let text = recorded(2);
    for (from, to, expected) in [
        ("\"batch\":32", "\"batch\":0", "line 1: batches of 0: allowed are 1 to 256"),
        ("\"leader\":1", "\"leader\":2", "line 1: module 2 does not exist: allowed are numbers below 2"),
        (
            "\"before\":[0]",
            "\"before\":[1]",
            "line 1: module 'b': its packets come from module 1: allowed is an earlier module",
        ),
        ("\"path\":[0,1]", "\"path\":[1,1]", "line 1: flow 'all': its modules are not in ascending order"),
        ("\"slo_s\":0.001", "\"slo_s\":0.0", "line 1: flow 'all': an objective of 0.0 s"),
        ("\"min_rate\":100000.0", "\"min_rate\":0.0", "line 1: flow 'all': a rate of 0.0 pps"),
        ("\"guard\":0.05", "\"guard\":1.5", "line 1: a guard of 1.5: allowed is 0 to less than 1"),
        ("\"cost_s\":[3e-7", "\"cost_s\":[-3e-7", "line 2: a module's time of -3e-7 s: allowed are 0 to"),
        ("\"trigger\":0", "\"trigger\":33", "line 2: a trigger of 33: allowed are 0 to 32, the largest batch"),
        (
            "\"came\":10000",
            "\"came\":18446744073709551615",
            "line 2: a module's packets: 18446744073709551615: allowed",
        ),
        ("\"busy_turns\":5000", "\"busy_turns\":281474976710657", "line 2: a worker's turns: 281474976710657: allowed"),
        (
            "\"changes\":[{\"module\":0",
            "\"changes\":[{\"module\":7",
            "line 2: module 7 does not exist: allowed are numbers below 2",
        ),
    ] {
        assert!(text.contains(from), "'{from}' is not in\n{text}");
        let wrong = text.replacen(from, to, 1);
        let error = read(wrong.as_bytes()).expect_err(to).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// A change of a recording: a byte or a number is replaced; a part is removed, repeated, or moved to the end.
#[derive(Clone, Debug)]
enum Edit {
    Byte(u8),
    Number(&'static str),
    Cut(usize),
    Twice(usize),
    Line,
}

impl Edit {
    /// Makes the change at the part `at` of the length of `text`.
    fn make(&self, text: &mut Vec<u8>, at: f64) {
        if text.is_empty() {
            return;
        }
        let position = (at * text.len() as f64) as usize;
        let end = |len: usize| (position + len).min(text.len());
        match self {
            Self::Byte(byte) => text[position] = *byte,
            Self::Number(number) => {
                let is_part = |byte: &u8| byte.is_ascii_digit() || b"-+.e".contains(byte);
                let Some(start) = (position..text.len()).find(|at| text[*at].is_ascii_digit()) else { return };
                let len = text[start..].iter().take_while(|byte| is_part(byte)).count();
                drop(text.splice(start..start + len, number.bytes()));
            }
            Self::Cut(len) => drop(text.drain(position..end(*len))),
            Self::Twice(len) => {
                let stretch = text[position..end(*len)].to_vec();
                drop(text.splice(position..position, stretch));
            }
            // Moves the whole line to the end.
            Self::Line => {
                let start = text[..position].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                let len = text[start..].iter().position(|byte| *byte == b'\n').map_or(text.len() - start, |at| at + 1);
                let line: Vec<_> = text.drain(start..start + len).collect();
                text.extend(line);
            }
        }
    }
}

/// Returns the fuzz target's corpus.
fn corpus() -> Vec<Vec<u8>> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/recording");
    let files = std::fs::read_dir(folder).expect("the corpus is part of the repository");
    let mut files: Vec<_> = files.map(|file| file.expect("a readable folder").path()).collect();
    files.sort();
    files.iter().map(|file| std::fs::read(file).expect("a readable file")).collect()
}

/// Regression test: a file without line ends was read into memory completely.
#[test]
fn the_length_of_a_line_is_limited() {
    let read = |text: &'static [u8]| super::lines(text, 4).collect::<io::Result<Vec<_>>>();
    assert_eq!(read(b"abc\n\nde").expect("short lines"), [&b"abc"[..], b"", b"de"]);
    let error = read(b"abc\nabcde").expect_err("too long").to_string();
    assert!(error.contains("4 bytes"), "{error}");
}

/// Numbers that replace a number of a recording.
const NUMBERS: &[&str] =
    &["0", "1", "-1", "1e-300", "1e308", "1e15", "0.999999", "255", "281474976710656", "18446744073709551615", "null"];

proptest! {
    /// With `PROPTEST_CASES=300000`, this test replaces some minutes of the fuzz target on machines where the fuzz
    /// target cannot be built.
    #[test]
    fn no_edit_of_a_recording_makes_a_controller_panic(
        which in any::<prop::sample::Index>(),
        edits in prop::collection::vec((0.0..1.0f64, prop_oneof![
            any::<u8>().prop_map(Edit::Byte),
            prop::sample::select(NUMBERS).prop_map(Edit::Number),
            (1..40usize).prop_map(Edit::Cut),
            (1..400usize).prop_map(Edit::Twice),
            Just(Edit::Line),
        ]), 1..5),
    ) {
        thread_local! {
            static CORPUS: Vec<Vec<u8>> = corpus();
        }
        let mut text = CORPUS.with(|corpus| which.get(corpus).clone());
        edits.iter().for_each(|(at, edit)| edit.make(&mut text, *at));
        fuzz_recording(&text);
    }

    /// A changed file is refused, or every controller decides on it.
    #[test]
    fn no_recording_makes_a_controller_panic(
        at in 0.0..1.0f64,
        number in prop::sample::select(&["", "0", "1e308", "-1", "9", "99999999999999999999"][..]),
    ) {
        let text = recorded(3);
        // Replaces one digit.
        let digits: Vec<usize> = text.char_indices().filter(|(_, it)| it.is_ascii_digit()).map(|(at, _)| at).collect();
        let position = digits[(at * digits.len() as f64) as usize];
        let changed = [&text[..position], number, &text[position + 1..]].concat();
        fuzz_recording(changed.as_bytes());
    }
}
