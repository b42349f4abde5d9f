//! Tests of the history: writing, joining to 5 minutes, reading, limits, and damaged rows.

mod model;

use std::path::Path;

use super::{windows::WINDOW, *};

/// A time that is a multiple of 5 minutes.
const START: i64 = 1_700_000_100_000;
const SECOND: i64 = 1000;

/// Opens a store that does not wait for the disk.
fn open(path: Option<&Path>, bytes: u64) -> Store {
    let store = Store::open(path, StoreLimits { bytes, ..StoreLimits::default() }).unwrap();
    store.connection.execute_batch("PRAGMA synchronous = OFF").unwrap();
    store
}

fn in_memory() -> Store {
    open(None, u64::MAX)
}

fn layout(modules: &[&str], flows: &[&str]) -> SampleLayout {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    SampleLayout { modules: names(modules), flows: names(flows) }
}

/// Returns a sample in which each module and flow has `packets` packets.
fn sample(layout: &SampleLayout, packets: u64) -> Sample {
    let module = ModulePoint { packets, dropped: 1, batches: 2, ticks_per_packet: Some(80.5) };
    let flow = FlowPoint { packets, violations: 3, p50_us: Some(10.25), p99_us: Some(40.0), chosen_us: None };
    Sample {
        interval_s: 10.0,
        modules: vec![module; layout.modules.len()],
        flows: vec![flow; layout.flows.len()],
        busy: vec![0.25, 0.75],
        entered: packets,
        out: packets,
        dropped: 0,
    }
}

fn query(subject: Subject, resolution: Resolution) -> HistoryQuery {
    HistoryQuery { instance: "edge".into(), subject, from: 0, to: i64::MAX, resolution, most: usize::MAX }
}

/// Returns the times and packets of a module.
fn module_packets(store: &mut Store, name: &str, resolution: Resolution) -> Vec<(i64, u64)> {
    let history = store.history(&query(Subject::Module(name.into()), resolution)).unwrap();
    let Figures::Module(figures) = history.figures else { panic!("the figures of a module") };
    history.at.into_iter().zip(figures.packets.into_iter().map(Option::unwrap)).collect()
}

fn count(store: &Store, table: &str) -> i64 {
    store.connection.query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0)).unwrap()
}

#[test]
fn figures_are_read_in_columns() {
    let mut store = in_memory();
    let layout = layout(&["in", "nat"], &["web"]);
    store.add_sample("edge", START, &layout, &sample(&layout, 5)).unwrap();
    let total = store.history(&query(Subject::Total, Resolution::TenSeconds)).unwrap();
    assert_eq!((total.at, total.interval_s, total.next), (vec![START], vec![Some(10.0)], None));
    let Figures::Total(figures) = total.figures else { panic!("the figures of a pipeline") };
    assert_eq!((figures.entered, figures.dropped), (vec![Some(5)], vec![Some(0)]));
    assert_eq!(figures.busy, [[Some(0.25)], [Some(0.75)]]);
    let flow = store.history(&query(Subject::Flow("web".into()), Resolution::TenSeconds)).unwrap();
    let Figures::Flow(figures) = flow.figures else { panic!("the figures of a flow") };
    assert_eq!((figures.packets, figures.violations), (vec![Some(5)], vec![Some(3)]));
    assert_eq!((figures.p50_us, figures.p99_us, figures.chosen_us), (vec![Some(10.25)], vec![Some(40.0)], vec![None]));
    assert!(module_packets(&mut store, "none", Resolution::TenSeconds).is_empty());
    assert_eq!(store.instances_with_history().unwrap(), ["edge"]);
}

#[test]
fn a_query_continues_where_the_last_one_stopped() {
    let mut store = in_memory();
    let layout = layout(&["nat"], &[]);
    for tick in 0..7 {
        store.add_sample("edge", START + tick * 10 * SECOND, &layout, &sample(&layout, tick as u64)).unwrap();
    }
    let mut query = HistoryQuery { most: 3, ..query(Subject::Total, Resolution::TenSeconds) };
    let mut pages = Vec::new();
    loop {
        let page = store.history(&query).unwrap();
        pages.push(page.at.len());
        let Some(next) = page.next else { break };
        query.from = next;
    }
    assert_eq!(pages, [3, 3, 1]);
    query = HistoryQuery { most: 0, from: 0, ..query };
    let page = store.history(&query).unwrap();
    assert_eq!((page.at, page.next), (vec![], Some(START)));
    query = HistoryQuery { most: 9, from: START + 10 * SECOND, to: START + 30 * SECOND, ..query };
    assert_eq!(store.history(&query).unwrap().at, [START + 10 * SECOND, START + 20 * SECOND]);
    query.instance = "none".into();
    assert!(store.history(&query).unwrap().at.is_empty());
}

#[test]
fn samples_with_the_same_time_become_one_row() {
    let mut store = in_memory();
    let layout = layout(&["nat"], &[]);
    for packets in [3, 4] {
        store.add_sample("edge", START, &layout, &sample(&layout, packets)).unwrap();
    }
    assert_eq!(module_packets(&mut store, "nat", Resolution::TenSeconds), [(START, 7)]);
}

#[test]
fn a_sample_must_fit_its_layout() {
    let mut store = in_memory();
    let (one, two) = (layout(&["nat"], &[]), layout(&["nat", "acl"], &[]));
    let error = store.add_sample("edge", START, &two, &sample(&one, 1)).unwrap_err().to_string();
    assert!(error.starts_with("a sample has 1 modules and 0 flows, but its layout has 2 modules"), "{error}");
    assert_eq!(count(&store, "instances"), 0);
}

#[test]
fn five_minutes_are_joined_also_when_the_server_restarts_in_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let layout = layout(&["nat"], &["web"]);
    for tick in 0..65 {
        // A restart before each sample, and so also in the middle and at the end of 5 minutes.
        let mut store = open(Some(&path), u64::MAX);
        store.add_sample("edge", START + tick * 10 * SECOND, &layout, &sample(&layout, 2)).unwrap();
    }
    let mut store = open(Some(&path), u64::MAX);
    let rows = [(START, 60), (START + WINDOW, 60)];
    assert_eq!(module_packets(&mut store, "nat", Resolution::FiveMinutes), rows);
    let total = store.history(&query(Subject::Total, Resolution::FiveMinutes)).unwrap();
    assert_eq!(total.interval_s, [Some(300.0), Some(300.0)]);
    // The last 5 minutes become a row when they have ended.
    store.prune(START + 3 * WINDOW - 1).unwrap();
    assert_eq!(module_packets(&mut store, "nat", Resolution::FiveMinutes), rows);
    store.prune(START + 3 * WINDOW).unwrap();
    assert_eq!(module_packets(&mut store, "nat", Resolution::FiveMinutes)[2], (START + 2 * WINDOW, 10));
}

#[test]
fn a_changed_configuration_has_rows_for_each_layout_and_a_query_adds_them() {
    let mut store = in_memory();
    let (old, new) = (layout(&["nat", "acl"], &[]), layout(&["nat"], &[]));
    let layouts = [&old, &old, &new, &old, &new];
    for (tick, layout) in (0i64..).zip(layouts) {
        store.add_sample("edge", START + tick * 10 * SECOND, layout, &sample(layout, 1 << tick)).unwrap();
    }
    store.add_sample("edge", START + WINDOW, &new, &sample(&new, 1)).unwrap();
    assert_eq!(count(&store, "five_minutes"), 2);
    assert_eq!(count(&store, "layouts"), 2);
    assert_eq!(module_packets(&mut store, "nat", Resolution::FiveMinutes), [(START, 0b11111)]);
    assert_eq!(module_packets(&mut store, "acl", Resolution::FiveMinutes), [(START, 0b01011)]);
}

#[test]
fn old_samples_are_removed_and_a_late_one_does_not_replace_their_row() {
    let mut store = in_memory();
    let layout = layout(&["nat"], &[]);
    for tick in 0..31 {
        store.add_sample("edge", START + tick * 10 * SECOND, &layout, &sample(&layout, 1)).unwrap();
    }
    store.prune(START + WINDOW + DAY - 1).unwrap();
    assert_eq!(count(&store, "ten_seconds"), 31);
    store.prune(START + WINDOW + DAY).unwrap();
    assert_eq!(count(&store, "ten_seconds"), 1);
    store.add_sample("edge", START + SECOND, &layout, &sample(&layout, 9)).unwrap();
    store.prune(START + 2 * WINDOW + DAY).unwrap();
    assert_eq!(count(&store, "ten_seconds"), 0);
    assert_eq!(module_packets(&mut store, "nat", Resolution::FiveMinutes), [(START, 30), (START + WINDOW, 1)]);
    store.prune(START + 3 * WINDOW + 7 * DAY).unwrap();
    assert_eq!(["five_minutes", "layouts", "instances"].map(|table| count(&store, table)), [0; 3]);
    assert!(store.instances_with_history().unwrap().is_empty());
    // Numbers are given again, and nothing of the old instance is used.
    store.add_sample("other", START, &layout, &sample(&layout, 1)).unwrap();
    assert_eq!(store.instances_with_history().unwrap(), ["other"]);
}

#[test]
fn the_limit_of_bytes_holds_and_the_oldest_samples_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let names: Vec<String> = (0..200).map(|number| format!("module{number}")).collect();
    let layout = SampleLayout { modules: names, flows: vec![] };
    let limit = 1_000_000;
    let mut store = open(Some(&path), limit);
    let write = WriteBegun { who: "alice".into(), ..WriteBegun::default() };
    let record = store.begin_write(&write, None).unwrap();
    let ticks = 1000;
    for tick in 0..ticks {
        for instance in ["edge", "core"] {
            store.add_sample(instance, START + tick * 10 * SECOND, &layout, &sample(&layout, 100_000)).unwrap();
        }
    }
    assert!(path.metadata().unwrap().len() > 2 * limit, "the samples need more than the limit");
    let now = START + ticks * 10 * SECOND;
    store.prune(now).unwrap();
    assert!(prune::used(&store.connection).unwrap() <= limit as i64);
    assert!(path.metadata().unwrap().len() <= limit, "the file is as small");
    let rest = module_packets(&mut store, "module7", Resolution::TenSeconds);
    assert!(!rest.is_empty());
    let expected: Vec<i64> =
        (0..ticks).map(|tick| START + tick * 10 * SECOND).skip(ticks as usize - rest.len()).collect();
    assert_eq!(rest.iter().map(|(at, _)| *at).collect::<Vec<_>>(), expected);
    assert_eq!(store.instances_with_history().unwrap(), ["core", "edge"]);
    // A limit below the size of an empty database removes all samples, and nothing else.
    store.limits.bytes = 1;
    store.prune(now).unwrap();
    assert_eq!(count(&store, "ten_seconds") + count(&store, "five_minutes"), 0);
    assert_eq!(store.audit(None, 9).unwrap()[0].id, record);
}

#[test]
fn the_error_of_a_damaged_row_names_it() {
    let mut store = in_memory();
    let layout = layout(&["nat"], &["web"]);
    for tick in 0..3 {
        store.add_sample("edge", START + tick * 10 * SECOND, &layout, &sample(&layout, 1)).unwrap();
    }
    let damage = |store: &Store, bytes: &str| {
        store.connection.execute_batch(&format!("UPDATE ten_seconds SET sample = x'{bytes}' WHERE id = 2")).unwrap();
    };
    for bytes in ["", "ff", "ffffffffffffffffffffffff", "00000000000000"] {
        damage(&store, bytes);
        for subject in [Subject::Total, Subject::Module("nat".into()), Subject::Flow("web".into())] {
            let read = store.history(&query(subject.clone(), Resolution::TenSeconds));
            // Zeros are a sample without modules and flows. Figures of the whole pipeline do not need them.
            if subject == Subject::Total && bytes == "00000000000000" {
                assert_eq!(read.unwrap().at.len(), 3);
                continue;
            }
            let error = read.unwrap_err().to_string();
            assert!(error.starts_with("store: row 2 of table 'ten_seconds' is damaged: "), "{bytes}: {error}");
        }
    }
    // The row is left out of the 5 minutes, and the instance can add more samples.
    store.add_sample("edge", START + WINDOW, &layout, &sample(&layout, 1)).unwrap();
    assert_eq!(module_packets(&mut store, "nat", Resolution::FiveMinutes), [(START, 2)]);
    store.connection.execute_batch("UPDATE layouts SET names = x'07'").unwrap();
    let error = store.history(&query(Subject::Total, Resolution::TenSeconds)).unwrap_err().to_string();
    assert!(error.starts_with("store: row 1 of table 'layouts' is damaged: "), "{error}");
    store.prune(START + 2 * WINDOW).unwrap();
    store.add_sample("edge", START + 2 * WINDOW, &layout, &sample(&layout, 1)).unwrap();
    assert_eq!(count(&store, "layouts"), 2);
}

/// Figures like those of a gateway with 64 chains at 10 million packets per second.
fn gateway_sample(layout: &SampleLayout, tick: u64, seconds: u64) -> Sample {
    // Any sequence that differs from module to module and from time to time.
    let noise = |index: usize| (index as u64 * 7_919 + tick * 104_729) % 997;
    let module = |index: usize| ModulePoint {
        packets: (150_000 + 40 * noise(index)) * seconds,
        dropped: if index.is_multiple_of(5) { noise(index) } else { 0 },
        batches: (5_000 + noise(index)) * seconds,
        ticks_per_packet: Some(60.0 + noise(index) as f32 / 8.0),
    };
    let flow = |index: usize| FlowPoint {
        packets: (150_000 + 40 * noise(index)) * seconds,
        violations: noise(index) * seconds,
        p50_us: Some(20.0 + noise(index) as f32 / 10.0),
        p99_us: Some(200.0 + noise(index) as f32 / 3.0),
        chosen_us: Some(250.0 + noise(index) as f32 / 3.0),
    };
    Sample {
        interval_s: seconds as f32,
        modules: (0..layout.modules.len()).map(module).collect(),
        flows: (0..layout.flows.len()).map(flow).collect(),
        busy: (0..8).map(|worker| 0.5 + worker as f32 / 17.0).collect(),
        entered: 10_000_000 * seconds,
        out: 9_990_000 * seconds,
        dropped: 10_000 * seconds,
    }
}

#[test]
fn a_large_pipeline_fits_in_the_default_limit() {
    let layout = SampleLayout {
        modules: (0..323).map(|number| format!("module{number}")).collect(),
        flows: (0..64).map(|number| format!("flow{number}")).collect(),
    };
    // All samples are in one window, so that the store adds no rows of 5 minutes.
    let bytes_per_row = |seconds: u64| {
        let mut store = in_memory();
        let before = prune::used(&store.connection).unwrap();
        let rows = 200;
        for tick in 0..rows {
            let sample = gateway_sample(&layout, tick as u64, seconds);
            store.add_sample("edge", START + tick * SECOND, &layout, &sample).unwrap();
        }
        (prune::used(&store.connection).unwrap() - before) / rows
    };
    let (ten_seconds, five_minutes) = (bytes_per_row(10), bytes_per_row(300));
    let day = 24 * 60 * 60;
    let whole = day / 10 * ten_seconds + 7 * day / 300 * five_minutes;
    println!("{ten_seconds} bytes in 10 seconds, {five_minutes} bytes in 5 minutes, {whole} bytes in all");
    assert!(whole <= StoreLimits::default().bytes as i64, "{whole} bytes");
    assert!(ten_seconds < 6_000, "{ten_seconds} bytes for 387 modules and flows");
}
