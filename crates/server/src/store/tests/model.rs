//! The history against a plain model: lists in memory, and sums with all digits.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use proptest::prelude::*;

use super::*;

const INSTANCES: [&str; 2] = ["edge", "core"];
const WORKERS: usize = 2;

/// The layouts that the configurations of an instance have. Their modules and flows overlap.
fn layouts() -> [SampleLayout; 3] {
    [layout(&["a", "b", "c"], &["web"]), layout(&["b", "d"], &["voice", "web"]), layout(&[], &[])]
}

fn subjects() -> Vec<Subject> {
    let modules = ["a", "b", "c", "d", "none"].map(|name| Subject::Module(name.into()));
    let flows = ["web", "voice", "none"].map(|name| Subject::Flow(name.into()));
    [Subject::Total].into_iter().chain(modules).chain(flows).collect()
}

/// Returns a sample that depends on the seed only. All figures are exact in the encoding. Means have a weight: without
/// packets, there are no ticks and no delays. With packets, all samples have them, because rows of several layouts in
/// one window are weighted by all their packets. A test of `sums` has samples without them.
fn seeded_sample(layout: &SampleLayout, seed: u64) -> Sample {
    let mut state = seed;
    let mut below = move |limit: u64| {
        // The constants of Knuth's MMIX. The upper half is the better one.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    let hundredths = |is_known: bool, value: u64| is_known.then(|| (value as f64 / 100.0) as f32);
    let interval_s = ((1 + below(12_000)) as f64 / 1e3) as f32;
    let modules = layout.modules.iter().map(|_| match below(3) {
        0 => ModulePoint::default(),
        _ => {
            let packets = below(4) * below(1_000_000);
            let ticks_per_packet = hundredths(packets > 0, below(100_000));
            ModulePoint { packets, dropped: below(10), batches: below(5000), ticks_per_packet }
        }
    });
    let modules = modules.collect();
    let flows = layout.flows.iter().map(|_| match below(3) {
        0 => FlowPoint::default(),
        _ => {
            let packets = below(4) * below(1_000_000);
            let mut delay = || hundredths(packets > 0 && below(4) > 0, below(100_000));
            let (p99_us, chosen_us) = (delay(), delay());
            let p50_us = hundredths(packets > 0, below(100_000));
            FlowPoint { packets, violations: below(10), p50_us, p99_us, chosen_us }
        }
    });
    let flows = flows.collect();
    Sample {
        interval_s,
        modules,
        flows,
        busy: (0..WORKERS).map(|_| (below(10_001) as f64 / 1e4) as f32).collect(),
        entered: below(1_000_000),
        out: below(1_000_000),
        dropped: below(1000),
    }
}

/// A sample that the model keeps.
struct Kept {
    instance: usize,
    at: i64,
    layout: usize,
    sample: Sample,
}

/// An instance, the beginning of 5 minutes, and a layout.
type Key = (usize, i64, usize);

/// A time, the length of its interval, and the figures of the subject.
type Row = (i64, Vec<Option<f64>>);

#[derive(Default)]
struct Model {
    samples: Vec<Kept>,
    /// The samples of each row of 5 minutes.
    rows: BTreeMap<Key, Vec<Sample>>,
}

fn window(at: i64) -> i64 {
    at - at.rem_euclid(WINDOW)
}

fn key(kept: &Kept) -> Key {
    (kept.instance, window(kept.at), kept.layout)
}

impl Model {
    fn close(&mut self, key_to_close: Key) {
        let samples = self.samples.iter().filter(|kept| key(kept) == key_to_close);
        let samples = samples.map(|kept| kept.sample.clone()).collect();
        self.rows.insert(key_to_close, samples);
    }

    /// Returns the key of the last sample of an instance.
    fn last(&self, instance: usize) -> Option<Key> {
        self.samples.iter().rfind(|kept| kept.instance == instance).map(key)
    }

    fn add(&mut self, new: Kept) {
        if let Some(last) = self.last(new.instance).filter(|last| *last != key(&new)) {
            self.close(last);
        }
        self.samples.push(new);
    }

    fn prune(&mut self, now: i64) {
        for instance in 0..INSTANCES.len() {
            if let Some(last) = self.last(instance).filter(|last| last.1 + WINDOW <= now) {
                self.close(last);
            }
        }
        self.samples.retain(|kept| kept.at >= window(now - DAY));
        self.rows.retain(|key, _| key.1 >= window(now - 7 * DAY));
    }

    fn instances(&self) -> Vec<String> {
        let kept = self.samples.iter().map(|kept| kept.instance).chain(self.rows.keys().map(|key| key.0));
        let names: BTreeSet<String> = kept.map(|instance| INSTANCES[instance].to_owned()).collect();
        names.into_iter().collect()
    }

    /// Returns the rows of a query, with their figures in the order of [`rows_of`].
    fn rows(&self, instance: usize, query: &HistoryQuery) -> Vec<Row> {
        let mut joined: BTreeMap<i64, Vec<(usize, Sample)>> = BTreeMap::new();
        match query.resolution {
            Resolution::TenSeconds => {
                for kept in self.samples.iter().filter(|kept| kept.instance == instance) {
                    joined.entry(kept.at).or_default().push((kept.layout, kept.sample.clone()));
                }
            }
            Resolution::FiveMinutes => {
                for ((_, begin, layout), samples) in self.rows.iter().filter(|(key, _)| key.0 == instance) {
                    let samples = samples.iter().map(|sample| (*layout, sample.clone()));
                    joined.entry(*begin).or_default().extend(samples);
                }
            }
        }
        let layouts = layouts();
        let has_subject = |layout: usize| match &query.subject {
            Subject::Total => true,
            Subject::Module(name) => layouts[layout].modules.contains(name),
            Subject::Flow(name) => layouts[layout].flows.contains(name),
        };
        let mut rows = Vec::new();
        for (at, samples) in joined.range(query.from..query.to) {
            let samples: Vec<_> = samples.iter().filter(|(layout, _)| has_subject(*layout)).collect();
            if !samples.is_empty() {
                rows.push((*at, figures(&query.subject, &samples)));
            }
        }
        rows
    }
}

/// Returns the mean of the values that exist, by their weights.
fn mean(values: impl Iterator<Item = (Option<f32>, f64)>) -> Option<f64> {
    let known: Vec<(f64, f64)> = values.filter_map(|(value, weight)| Some((f64::from(value?), weight))).collect();
    let weight: f64 = known.iter().map(|(_, weight)| weight).sum();
    (!known.is_empty()).then(|| known.iter().map(|(value, weight)| value * weight).sum::<f64>() / weight)
}

fn largest(values: impl Iterator<Item = Option<f32>>) -> Option<f64> {
    values.flatten().map(f64::from).reduce(f64::max)
}

fn sum(values: impl Iterator<Item = u64>) -> Option<f64> {
    Some(values.sum::<u64>() as f64)
}

/// Returns the figures of a row that joins these samples.
fn figures(subject: &Subject, samples: &[&(usize, Sample)]) -> Vec<Option<f64>> {
    let layouts = layouts();
    let interval = Some(samples.iter().map(|(_, sample)| f64::from(sample.interval_s)).sum());
    let mut figures = vec![interval];
    match subject {
        Subject::Total => {
            figures.push(sum(samples.iter().map(|(_, sample)| sample.entered)));
            figures.push(sum(samples.iter().map(|(_, sample)| sample.out)));
            figures.push(sum(samples.iter().map(|(_, sample)| sample.dropped)));
            for worker in 0..WORKERS {
                let share = |sample: &Sample| (sample.busy.get(worker).copied(), f64::from(sample.interval_s));
                figures.push(mean(samples.iter().map(|(_, sample)| share(sample))));
            }
        }
        Subject::Module(name) => {
            let point = |(layout, sample): &&(usize, Sample)| {
                let index = layouts[*layout].modules.iter().position(|one| one == name).unwrap();
                sample.modules[index]
            };
            let points: Vec<ModulePoint> = samples.iter().map(point).collect();
            figures.push(sum(points.iter().map(|point| point.packets)));
            figures.push(sum(points.iter().map(|point| point.dropped)));
            figures.push(sum(points.iter().map(|point| point.batches)));
            let ticks = points.iter().map(|point| (point.ticks_per_packet, point.packets as f64));
            figures.push(mean(ticks));
        }
        Subject::Flow(name) => {
            let point = |(layout, sample): &&(usize, Sample)| {
                let index = layouts[*layout].flows.iter().position(|one| one == name).unwrap();
                sample.flows[index]
            };
            let points: Vec<FlowPoint> = samples.iter().map(point).collect();
            figures.push(sum(points.iter().map(|point| point.packets)));
            figures.push(sum(points.iter().map(|point| point.violations)));
            let medians = points.iter().map(|point| (point.p50_us, point.packets as f64));
            figures.push(mean(medians));
            figures.push(largest(points.iter().map(|point| point.p99_us)));
            figures.push(largest(points.iter().map(|point| point.chosen_us)));
        }
    }
    figures
}

/// Returns the rows of a response.
fn rows_of(history: &History) -> Vec<Row> {
    let counts = |column: &[Option<u64>], row: usize| column[row].map(|count| count as f64);
    let values = |column: &[Option<f32>], row: usize| column[row].map(f64::from);
    let row = |row: usize| {
        let mut figures = vec![values(&history.interval_s, row)];
        match &history.figures {
            Figures::Total(columns) => {
                figures.extend([&columns.entered, &columns.out, &columns.dropped].map(|column| counts(column, row)));
                figures.extend((0..WORKERS).map(|worker| values(columns.busy.get(worker)?, row)));
            }
            Figures::Module(columns) => {
                let all = [&columns.packets, &columns.dropped, &columns.batches];
                figures.extend(all.map(|column| counts(column, row)));
                figures.push(values(&columns.ticks_per_packet, row));
            }
            Figures::Flow(columns) => {
                figures.extend([&columns.packets, &columns.violations].map(|column| counts(column, row)));
                let all = [&columns.p50_us, &columns.p99_us, &columns.chosen_us];
                figures.extend(all.map(|column| values(column, row)));
            }
        }
        (history.at[row], figures)
    };
    (0..history.at.len()).map(row).collect()
}

/// Returns true if the rows differ by rounding only. A row of 5 minutes is rounded to hundredths.
fn are_near(rows: &[Row], expected: &[Row]) -> bool {
    let is_near = |(one, other): (&Option<f64>, &Option<f64>)| match (one, other) {
        (Some(one), Some(other)) => (one - other).abs() <= 0.02,
        (None, None) => true,
        _ => false,
    };
    rows.len() == expected.len()
        && rows.iter().zip(expected).all(|(row, expected)| {
            row.0 == expected.0 && row.1.len() == expected.1.len() && row.1.iter().zip(&expected.1).all(is_near)
        })
}

#[derive(Clone, Debug)]
enum Operation {
    /// Time passes, in milliseconds.
    Wait(i64),
    /// Samples of an instance, 10 seconds apart.
    Add {
        instance: usize,
        layout: usize,
        count: usize,
        seed: u64,
    },
    Prune,
    Reopen,
}

fn operation() -> impl Strategy<Value = Operation> {
    let wait = prop_oneof![4 => 1..WINDOW, 2 => WINDOW..DAY, 1 => DAY..4 * DAY].prop_map(Operation::Wait);
    let add = (0..INSTANCES.len(), 0usize..3, prop_oneof![3 => 1usize..4, 1 => 20usize..40], any::<u64>());
    let add = add.prop_map(|(instance, layout, count, seed)| Operation::Add { instance, layout, count, seed });
    prop_oneof![3 => wait, 6 => add, 2 => Just(Operation::Prune), 1 => Just(Operation::Reopen)]
}

/// Compares all subjects of all instances, in whole and in parts.
fn compare(store: &mut Store, model: &Model, from: i64, to: i64, most: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(store.instances_with_history().unwrap(), model.instances());
    for (instance, name) in INSTANCES.iter().enumerate() {
        for resolution in [Resolution::TenSeconds, Resolution::FiveMinutes] {
            for subject in subjects() {
                for (from, to, most) in [(0, i64::MAX, usize::MAX), (from, to, most)] {
                    let instance_name = (*name).to_owned();
                    let query =
                        HistoryQuery { instance: instance_name, subject: subject.clone(), from, to, resolution, most };
                    let history = store.history(&query).unwrap();
                    let mut expected = model.rows(instance, &query);
                    let next = expected.get(most).map(|row| row.0);
                    expected.truncate(most);
                    let rows = rows_of(&history);
                    prop_assert!(are_near(&rows, &expected), "{query:?}: {rows:?} instead of {expected:?}");
                    prop_assert_eq!(history.next, next, "{:?}", query);
                }
            }
        }
    }
    Ok(())
}

fn reopen(path: &Path) -> Store {
    open(Some(path), u64::MAX)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn history_is_that_of_the_model(
        operations in prop::collection::vec(operation(), 1..40),
        first in 0i64..10 * DAY,
        length in 0i64..4 * DAY,
        most in 0usize..40,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut store = reopen(&path);
        let (mut model, layouts, mut now) = (Model::default(), layouts(), START);
        for operation in operations {
            match operation {
                Operation::Wait(time) => now += time,
                Operation::Add { instance, layout, count, seed } => {
                    for number in 0..count {
                        now += 10 * SECOND;
                        let sample = seeded_sample(&layouts[layout], seed.wrapping_add(number as u64));
                        store.add_sample(INSTANCES[instance], now, &layouts[layout], &sample).unwrap();
                        model.add(Kept { instance, at: now, layout, sample });
                    }
                }
                Operation::Prune => {
                    store.prune(now).unwrap();
                    model.prune(now);
                }
                Operation::Reopen => {
                    drop(store);
                    store = reopen(&path);
                }
            }
        }
        compare(&mut store, &model, START + first, START + first + length, most)?;
    }
}
