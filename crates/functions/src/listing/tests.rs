//! Filters against a model that reads lines, and desks whose workers are slow, gone or new.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use forebay_units::Frequency;
use proptest::prelude::*;

use super::testing::word;
use super::*;
use crate::connection::Phase;

static KIND: Kind =
    Kind { name: "things", ends: &["from", "to"], tables: 0..2, syntax: "remove WHICH   ends things", ended: true };

/// Two tables of rows.
struct Things {
    tables: [BTreeMap<u32, Row>; 2],
    desk: Desk,
}

impl Shown for Things {
    fn desk(&mut self) -> &mut Desk {
        &mut self.desk
    }

    fn places(&self, table: u8) -> u32 {
        self.tables[usize::from(table)].keys().next_back().map_or(0, |last| last + 1)
    }

    fn row(&self, table: u8, place: u32) -> Option<Row> {
        self.tables[usize::from(table)].get(&place).copied()
    }

    fn end(&mut self, table: u8, place: u32) {
        self.tables[usize::from(table)].remove(&place);
    }
}

impl Things {
    fn tell(&self) {
        self.desk.tell([self.tables[0].len(), self.tables[1].len()]);
    }
}

fn thing(number: u32) -> Row {
    let end = |at: u32| Some(End::ipv4([10, 0, (number % 3) as u8, at as u8], (number % 7) as u16));
    let phase = Phase::ALL[number as usize % Phase::ALL.len()];
    let protocol = if number.is_multiple_of(2) { 6 } else { 17 };
    Row::new(protocol, [end(number % 5), end(number % 4), None], Some(Age { phase, idle: number, left: 9 }))
}

/// Workers' things, and the table over them.
fn workers(places: &[&[u32]]) -> (View, Vec<Things>, Vec<Attendant>) {
    let listing = Arc::new(Listing::default());
    let clock = SlotClock::new(Frequency::new(1e9));
    let (mut all, mut attendants) = (Vec::new(), Vec::new());
    let count = places.len();
    for (worker, places) in places.iter().enumerate() {
        let part = listing.part((worker, count));
        let mut tables = [BTreeMap::new(), BTreeMap::new()];
        for place in *places {
            tables[(*place % 2) as usize].insert(*place, thing(*place));
        }
        let things = Things { tables, desk: part.desk() };
        things.tell();
        all.push(things);
        attendants.push(Attendant::new(part, Frequency::new(1e9)));
    }
    (View { listing, kind: &KIND, clock }, all, attendants)
}

/// Asks while workers answer, a few looks at a time.
fn ask<T: Send>(all: &mut [Things], looks: u32, ask: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let asking = scope.spawn(ask);
        while !asking.is_finished() {
            for things in &mut *all {
                if things.desk().is_asked() {
                    desk::answer(things, looks);
                }
                things.tell();
            }
        }
        asking.join().expect("it does not panic")
    })
}

#[test]
fn all_are_listed_page_by_page_over_workers_and_tables() {
    let places: Vec<u32> = (0..40).filter(|place| place % 3 != 1).collect();
    let (view, mut all, _attendants) = workers(&[&places, &[5, 100_000], &[]]);
    assert_eq!(view.len(), places.len() + 2);
    let whole = ask(&mut all, 3, || view.entries(None, 1_000)).expect("an answer");
    assert_eq!(whole.len(), places.len() + 2);
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
    assert!(view.entries(Some("x"), 1).is_err_and(|told| told.contains("no line of this table")));
    let line = &whole[0];
    assert_eq!(line, "protocol=tcp from=10.0.0.0 to=10.0.0.0 state=opening idle=0s ends=1s worker=0 at=0.0.0");
}

#[test]
fn one_is_ended_or_all_that_are_meant() {
    let (view, mut all, _attendants) = workers(&[&[0, 1, 2, 3, 4, 5, 6], &[1, 2]]);
    let lines = ask(&mut all, 100, || view.entries(None, 100)).expect("an answer");
    let line = lines.iter().find(|line| word(line, "at") == "1.1.1").expect("it was made");
    let changes =
        [format!("remove {line}"), format!("remove {line}"), "add x".to_owned(), "remove worker=0 udp".to_owned()];
    let changes: Vec<_> = changes.iter().map(String::as_str).collect();
    let outcome = ask(&mut all, 2, || view.apply(&changes));
    assert_eq!(outcome.made, 2);
    assert!(outcome.refused[0].message.contains("is there no more"), "{outcome:?}");
    assert!(outcome.refused[1].message.contains("allowed is remove WHICH"), "{outcome:?}");
    let left = |all: &[Things]| all.iter().map(|it| it.tables.iter().map(BTreeMap::len).sum()).collect::<Vec<usize>>();
    assert_eq!(left(&all), [4, 1], "the odd ones are udp");
    // What has come to its place since is another one.
    all[1].tables[0].insert(2, thing(8));
    let gone = lines.iter().find(|line| word(line, "at") == "1.0.2").expect("it was made");
    let outcome = ask(&mut all, 2, || view.apply(&[&format!("remove {gone}"), "remove 203.0.113.1", "remove all"]));
    assert_eq!((outcome.made, outcome.refused.len()), (1, 2), "{outcome:?}");
    assert_eq!(left(&all), [0, 0]);
}

#[test]
fn who_is_gone_or_has_nothing_is_not_waited_for() {
    let (view, mut all, mut attendants) = workers(&[&[0], &[0]]);
    drop(attendants.remove(0));
    assert_eq!(ask(&mut all, 9, || view.entries(None, 9)).expect("an answer").len(), 1);
    all[1].tables[0].clear();
    all[1].tell();
    // Nobody answers, and nobody is asked.
    assert_eq!((view.entries(None, 9), view.len()), (Ok(Vec::new()), 0));
    // A worker that does not look is told of, and its late answer is nobody's.
    all[1].tables[0].insert(3, thing(3));
    all[1].tell();
    assert_eq!(view.entries(None, 9), Err("worker 1 does not answer".to_owned()));
    assert_eq!(ask(&mut all, 9, || view.entries(None, 9)).expect("an answer").len(), 1);
    // Its successor begins with nothing.
    all[1] = Things { tables: Default::default(), desk: view.listing.part((1, 2)).desk() };
    assert_eq!(view.entries(None, 9), Ok(Vec::new()));
}

/// A worker that is asked all the time goes on with its own: no call looks at more places than it may.
#[test]
fn a_call_is_bounded() {
    let places: Vec<u32> = (0..5_000).map(|place| place * 2).collect();
    let (view, mut all, _attendants) = workers(&[&places]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let told = view.chosen("10.0.1.0/24", None, 10_000);
            over.store(true, Ordering::Release);
            told
        });
        let mut calls = 0;
        while !over.load(Ordering::Acquire) {
            let things = &mut all[0];
            if things.desk().is_asked() {
                calls += 1;
                desk::answer(things, 50);
            }
        }
        assert_eq!(asking.join().expect("no panic").expect("an answer").len(), 1_666);
        assert!(calls >= 9_999 / 50, "{calls} calls for 10000 places");
    });
}

/// What a filter means, of lines as they are read.
fn means(line: &str, filter: &str) -> bool {
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
    fn filters_mean_what_lines_say(
        places in prop::collection::btree_set(0u32..300, 0..60),
        words in prop::collection::vec(prop::sample::select(vec![
            "tcp", "udp", "10.0.1.3", "10.0.0.0/24", "10.0.0.0/23", "10.0.2.1:5", "from=10.0.1.2", "to=10.0.0.0/16", "state=closing",
            "state=seen", "protocol=udp", "worker=0", "worker=1", "to=10.0.2.2:2",
        ]), 1..4),
        looks in 1u32..40,
    ) {
        let places: Vec<u32> = places.into_iter().collect();
        let (view, mut all, _attendants) = workers(&[&places, &places[..places.len() / 2]]);
        let filter = words.join(" ");
        let lines = ask(&mut all, looks, || view.entries(None, 1_000)).expect("an answer");
        let expected: Vec<_> = lines.iter().filter(|line| means(line, &filter)).cloned().collect();
        // Two values of one kind are refused.
        let kinds = |prefix: &[&str]| words.iter().filter(|word| prefix.iter().any(|it| word.starts_with(it))).count();
        prop_assume!(kinds(&["tcp", "udp", "protocol"]) < 2 && kinds(&["state"]) < 2 && kinds(&["worker"]) < 2);
        prop_assert_eq!(ask(&mut all, looks, || view.chosen(&filter, None, 1_000)), Ok(expected));
    }

    #[test]
    fn no_filter_makes_it_fall(text in "[a-z0-9=:./ \\[\\]-]{0,60}") {
        fuzz_selector(text.as_bytes());
    }
}

/// `remove tcp udp` ended what is UDP, and `worker=1 worker=0` what worker 0 had: the last word won.
#[test]
fn two_values_of_one_field_are_refused_and_end_nothing() {
    let (view, mut all, _attendants) = workers(&[&[0, 1, 2, 3], &[0, 1]]);
    for (first, second) in [
        ("tcp", "udp"),
        ("tcp", "protocol=17"),
        ("protocol=132", "tcp"),
        ("state=opening", "state=closing"),
        ("worker=5", "worker=0"),
    ] {
        let words = format!("{first} 10.0.0.0/8 {second}");
        let told = ask(&mut all, 9, || view.chosen(&words, None, 9)).expect_err(&words);
        assert!(told.starts_with(&format!("'{first}' and '{second}': nothing is both")), "{told}");
        let outcome = ask(&mut all, 9, || view.apply(&[&format!("remove {words}")]));
        assert_eq!((outcome.made, outcome.refused.len()), (0, 1), "{words}: {outcome:?}");
    }
    let lines = ask(&mut all, 9, || view.entries(None, 9)).expect("an answer");
    assert_eq!(lines.len(), 6);
    // Nor does a line say two things of where it is.
    for more in ["worker=7", "at=0.0.2"] {
        let outcome = ask(&mut all, 9, || view.apply(&[&format!("remove {} {more}", lines[0])]));
        assert!(outcome.made == 0 && outcome.refused[0].message.contains(more), "{outcome:?}");
    }
    // What is said twice is said.
    assert!(Selector::parse("tcp protocol=6 state=seen state=seen worker=1 worker=1", KIND.ends).is_ok());
}

#[test]
fn what_is_no_filter_is_told_with_what_is_allowed() {
    let told = |text: &str| Selector::parse(text, KIND.ends).expect_err(text);
    for text in ["", "x", "10.0.0.0/33", "from=", "inside=10.0.0.1", "worker=x", "all all", "protocol=256"] {
        assert!(told(text).contains("allowed are 'all', or addresses"), "{text}: {}", told(text));
    }
    assert!(told("state=open").contains("allowed are closing, established, opening, seen, unanswered"));
    assert!(told("::/0 ::/0 ::/0 ::/0 ::/0").contains("more than 4 addresses"));
    assert!(Selector::parse("[2001:db8::1]:80 icmpv6 to=2001:db8::/32", KIND.ends).is_ok());
}
