//! Filters compared with a model that reads lines, and requests to workers that are slow, gone or new.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_units::Frequency;
use proptest::prelude::*;

use super::testing::word;
use super::*;
use crate::connection::Phase;

static THINGS: TableType = TableType {
    name: "things",
    ends: &["from", "to"],
    tables: 0..2,
    syntax: "remove WHICH   ends things",
    ended: true,
};

/// Two tables of rows.
struct Things {
    tables: [BTreeMap<u32, Row>; 2],
    worker_side: WorkerSide,
}

impl WorkerTables for Things {
    fn worker_side(&mut self) -> &mut WorkerSide {
        &mut self.worker_side
    }

    fn index_limit(&self, table: u8) -> u32 {
        self.tables[usize::from(table)].keys().next_back().map_or(0, |last| last + 1)
    }

    fn row(&self, table: u8, index: u32) -> Option<Row> {
        self.tables[usize::from(table)].get(&index).copied()
    }

    fn end(&mut self, table: u8, index: u32) {
        self.tables[usize::from(table)].remove(&index);
    }
}

impl Things {
    fn publish(&self) {
        self.worker_side.publish([self.tables[0].len(), self.tables[1].len()]);
    }
}

fn thing(number: u32) -> Row {
    let end = |at: u32| Some(End::ipv4([10, 0, (number % 3) as u8, at as u8], (number % 7) as u16));
    let phase = Phase::ALL[number as usize % Phase::ALL.len()];
    let protocol = if number.is_multiple_of(2) { 6 } else { 17 };
    Row::new(protocol, [end(number % 5), end(number % 4), None], Some(Age { phase, idle: number, remaining: 9 }))
}

/// Makes workers' tables, and the view of all of them.
fn workers(indices: &[&[u32]]) -> (View, Vec<Things>, Vec<ServingModule>) {
    let listing = Arc::new(Listing::default());
    let clock = SlotClock::new(Frequency::new(1e9));
    let (mut all, mut modules) = (Vec::new(), Vec::new());
    let count = indices.len();
    for (worker, indices) in indices.iter().enumerate() {
        let operators = listing.operator_side((worker, count));
        let mut tables = [BTreeMap::new(), BTreeMap::new()];
        for index in *indices {
            tables[(*index % 2) as usize].insert(*index, thing(*index));
        }
        let things = Things { tables, worker_side: operators.worker_side() };
        things.publish();
        all.push(things);
        modules.push(ServingModule::new(operators, Frequency::new(1e9)));
    }
    (View { listing, table_type: &THINGS, clock }, all, modules)
}

/// Runs a request while the workers serve it, visiting `looks` entries at a time.
fn ask<T: Send>(all: &mut [Things], looks: u32, ask: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !asking.is_finished() {
            for things in &mut *all {
                if things.worker_side().has_request() {
                    requests::serve_request(things, looks);
                }
                things.publish();
            }
        }
        asking.join().expect("it does not panic")
    })
}

#[test]
fn all_are_listed_page_by_page_over_workers_and_tables() {
    let indices: Vec<u32> = (0..40).filter(|index| index % 3 != 1).collect();
    let (view, mut all, _modules) = workers(&[&indices, &[5, 100_000], &[]]);
    assert_eq!(view.len(), indices.len() + 2);
    let whole = ask(&mut all, 3, || view.entries(None, 1_000)).expect("an answer");
    assert_eq!(whole.len(), indices.len() + 2);
    let mut pages: Vec<String> = Vec::new();
    loop {
        let page = ask(&mut all, 7, || view.entries(pages.last().map(String::as_str), 4)).expect("an answer");
        if page.is_empty() {
            break;
        }
        pages.extend(page);
    }
    assert_eq!(pages, whole);
    assert_eq!(view.entries(None, 0), Ok(Vec::new()));
    assert!(view.entries(Some("x"), 1).is_err_and(|error| error.contains("not a line of this table")));
    let line = &whole[0];
    assert_eq!(line, "protocol=tcp from=10.0.0.0 to=10.0.0.0 state=opening idle=0s ends=1s worker=0 at=0.0.0");
}

#[test]
fn one_entry_or_all_that_match_are_ended() {
    let (view, mut all, _modules) = workers(&[&[0, 1, 2, 3, 4, 5, 6], &[1, 2]]);
    let lines = ask(&mut all, 100, || view.entries(None, 100)).expect("an answer");
    let line = lines.iter().find(|line| word(line, "at") == "1.1.1").expect("it was made");
    let changes =
        [format!("remove {line}"), format!("remove {line}"), "add x".to_owned(), "remove worker=0 udp".to_owned()];
    let changes: Vec<_> = changes.iter().map(String::as_str).collect();
    let outcome = ask(&mut all, 2, || view.apply(&changes));
    assert_eq!(outcome.made, 2);
    assert!(outcome.refused[0].message.contains("no longer exists"), "{outcome:?}");
    assert!(outcome.refused[1].message.contains("allowed is remove WHICH"), "{outcome:?}");
    let remaining =
        |all: &[Things]| all.iter().map(|it| it.tables.iter().map(BTreeMap::len).sum()).collect::<Vec<usize>>();
    assert_eq!(remaining(&all), [4, 1], "the odd ones are udp");
    // The entry that is at this index now is another one.
    all[1].tables[0].insert(2, thing(8));
    let gone = lines.iter().find(|line| word(line, "at") == "1.0.2").expect("it was made");
    let outcome = ask(&mut all, 2, || view.apply(&[&format!("remove {gone}"), "remove 203.0.113.1", "remove all"]));
    assert_eq!((outcome.made, outcome.refused.len()), (1, 2), "{outcome:?}");
    assert_eq!(remaining(&all), [0, 0]);
}

#[test]
fn workers_that_are_gone_or_have_no_entries_are_not_waited_for() {
    let (view, mut all, mut modules) = workers(&[&[0], &[0]]);
    drop(modules.remove(0));
    assert_eq!(ask(&mut all, 9, || view.entries(None, 9)).expect("an answer").len(), 1);
    all[1].tables[0].clear();
    all[1].publish();
    // No worker responds, and none gets a request.
    assert_eq!((view.entries(None, 9), view.len()), (Ok(Vec::new()), 0));
    // A worker that does not respond is reported. Its late response is dropped.
    all[1].tables[0].insert(3, thing(3));
    all[1].publish();
    assert_eq!(view.entries(None, 9), Err("worker 1 does not respond: try again later".to_owned()));
    assert_eq!(ask(&mut all, 9, || view.entries(None, 9)).expect("an answer").len(), 1);
    // The worker's successor starts with no entries.
    all[1] = Things { tables: Default::default(), worker_side: view.listing.operator_side((1, 2)).worker_side() };
    assert_eq!(view.entries(None, 9), Ok(Vec::new()));
}

/// A worker with a request keeps its own work going: each call visits a limited number of entries.
#[test]
fn a_call_is_bounded() {
    let indices: Vec<u32> = (0..5_000).map(|index| index * 2).collect();
    let (view, mut all, _modules) = workers(&[&indices]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let lines = view.chosen("10.0.1.0/24", None, 10_000);
            over.store(true, Ordering::Release);
            lines
        });
        let mut calls = 0;
        while !over.load(Ordering::Acquire) {
            let things = &mut all[0];
            if things.worker_side().has_request() {
                calls += 1;
                requests::serve_request(things, 50);
            }
        }
        assert_eq!(asking.join().expect("no panic").expect("an answer").len(), 1_666);
        assert!(calls >= 9_999 / 50, "{calls} calls for 10000 indices");
    });
}

/// Whether a line as text matches a filter.
fn matches(line: &str, filter: &str) -> bool {
    let ends = [word(line, "from"), word(line, "to")];
    let is = |end: &str, wanted: &str| {
        let (address, port) = end.split_once(':').unwrap_or((end, "0"));
        match wanted.split_once(':') {
            Some((other, wanted)) => other == address && wanted == port,
            None => wanted.parse::<ipnet::IpNet>().map_or(wanted == address, |net| {
                net.contains(&address.parse::<std::net::IpAddr>().expect("an address"))
            }),
        }
    };
    filter.split(' ').all(|wanted| match wanted.split_once('=') {
        None if wanted == "all" => true,
        None if ["tcp", "udp"].contains(&wanted) => word(line, "protocol") == wanted,
        None => ends.iter().any(|end| is(end, wanted)),
        Some(("from", wanted)) => is(ends[0], wanted),
        Some(("to", wanted)) => is(ends[1], wanted),
        Some((name, wanted)) => word(line, name) == wanted,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn filters_match_the_lines_that_they_describe(
        indices in prop::collection::btree_set(0u32..300, 0..60),
        words in prop::collection::vec(prop::sample::select(vec![
            "tcp", "udp", "10.0.1.3", "10.0.0.0/24", "10.0.0.0/23", "10.0.2.1:5", "from=10.0.1.2", "to=10.0.0.0/16",
            "state=closing", "state=seen", "protocol=udp", "worker=0", "worker=1", "to=10.0.2.2:2",
        ]), 1..4),
        looks in 1u32..40,
    ) {
        let indices: Vec<u32> = indices.into_iter().collect();
        let (view, mut all, _modules) = workers(&[&indices, &indices[..indices.len() / 2]]);
        let filter = words.join(" ");
        let lines = ask(&mut all, looks, || view.entries(None, 1_000)).expect("an answer");
        let expected: Vec<_> = lines.iter().filter(|line| matches(line, &filter)).cloned().collect();
        // Two values for one field are refused.
        let kinds = |prefix: &[&str]| words.iter().filter(|word| prefix.iter().any(|it| word.starts_with(it))).count();
        prop_assume!(kinds(&["tcp", "udp", "protocol"]) < 2 && kinds(&["state"]) < 2 && kinds(&["worker"]) < 2);
        prop_assert_eq!(ask(&mut all, looks, || view.chosen(&filter, None, 1_000)), Ok(expected));
    }

    #[test]
    fn no_filter_makes_it_panic(text in "[a-z0-9=:./ \\[\\]-]{0,60}") {
        fuzz_selector(text.as_bytes());
    }
}

/// Regression: `remove tcp udp` ended UDP sessions, and `worker=1 worker=0` those of worker 0: the last word won.
#[test]
fn two_values_of_one_field_are_refused_and_end_nothing() {
    let (view, mut all, _modules) = workers(&[&[0, 1, 2, 3], &[0, 1]]);
    for (first, second) in [
        ("tcp", "udp"),
        ("tcp", "protocol=17"),
        ("protocol=132", "tcp"),
        ("state=opening", "state=closing"),
        ("worker=5", "worker=0"),
    ] {
        let words = format!("{first} 10.0.0.0/8 {second}");
        let error = ask(&mut all, 9, || view.chosen(&words, None, 9)).expect_err(&words);
        assert!(error.starts_with(&format!("'{first}' and '{second}' contradict each other: ")), "{error}");
        let outcome = ask(&mut all, 9, || view.apply(&[&format!("remove {words}")]));
        assert_eq!((outcome.made, outcome.refused.len()), (0, 1), "{words}: {outcome:?}");
    }
    let lines = ask(&mut all, 9, || view.entries(None, 9)).expect("an answer");
    assert_eq!(lines.len(), 6);
    // A line with two different positions is refused, too.
    for more in ["worker=7", "at=0.0.2"] {
        let outcome = ask(&mut all, 9, || view.apply(&[&format!("remove {} {more}", lines[0])]));
        assert!(outcome.made == 0 && outcome.refused[0].message.contains(more), "{outcome:?}");
    }
    // A condition that is repeated is accepted.
    assert!(Selector::parse("tcp protocol=6 state=seen state=seen worker=1 worker=1", THINGS.ends).is_ok());
}

#[test]
fn invalid_filters_are_refused_with_the_allowed_ones() {
    let error = |text: &str| Selector::parse(text, THINGS.ends).expect_err(text);
    for text in ["", "x", "10.0.0.0/33", "from=", "inside=10.0.0.1", "worker=x", "all all", "protocol=256"] {
        assert!(error(text).contains("allowed are 'all', or addresses"), "{text}: {}", error(text));
    }
    assert!(error("state=open").contains("allowed are closing, established, opening, seen, unanswered"));
    assert!(error("::/0 ::/0 ::/0 ::/0 ::/0").contains("more than 4 addresses"));
    assert!(Selector::parse("[2001:db8::1]:80 icmpv6 to=2001:db8::/32", THINGS.ends).is_ok());
}
