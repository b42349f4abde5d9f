//! The stream of events: its order, how it continues after a break, and the counters in it.

use std::collections::BTreeMap;
use std::io::{BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use super::{EDGE, QUIET, Site, list};
use crate::http::{connect, read_chunk, read_head, request};
use crate::server::{PIPELINE, Pipeline, Server, folder, wait_for};

/// An event of the stream.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Event {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) data: Value,
}

impl Event {
    /// Returns the number in the identity.
    fn number(&self) -> u64 {
        let number = self.id.rsplit_once('-').and_then(|(_, number)| number.parse().ok());
        number.unwrap_or_else(|| panic!("{self:?}"))
    }

    /// Returns the name of the pipeline's event, if it is one.
    fn recorded(&self) -> &str {
        if self.name == "event" { self.data["event"]["event"].as_str().unwrap_or_default() } else { "" }
    }
}

/// A client of the stream.
pub(super) struct Viewer {
    stream: BufReader<TcpStream>,
    /// The part of the stream that is not read yet.
    text: String,
}

impl Viewer {
    /// Connects, with a query, and with the identity of the last event that it knows.
    pub(super) fn open(server: &Server, query: &str, last: Option<&str>) -> Self {
        let mut stream = connect(&server.address);
        let headers: Vec<_> = last.map(|last| ("Last-Event-ID", last)).into_iter().collect();
        let bytes = request("GET", &format!("/api/v1/events{query}"), &headers, "");
        stream.write_all(bytes.as_bytes()).expect("the server listens");
        let mut stream = BufReader::new(stream);
        let (status, headers) = read_head(&mut stream);
        assert_eq!(status, 200);
        assert!(headers.contains(&("content-type".to_owned(), "text/event-stream".to_owned())), "{headers:?}");
        Self { stream, text: String::new() }
    }

    /// Waits for the next event.
    pub(super) fn next(&mut self) -> Event {
        loop {
            if let Some((event, rest)) = self.text.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.text = rest;
                let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
                // A comment keeps the connection open, and has no data.
                let Some(data) = field("data: ") else { continue };
                let data = serde_json::from_str(&data).expect("JSON");
                return Event { id: field("id: ").expect("an id"), name: field("event: ").expect("a name"), data };
            }
            let chunk = read_chunk(&mut self.stream);
            assert!(!chunk.is_empty(), "the stream has ended");
            self.text += &String::from_utf8(chunk).expect("UTF-8");
        }
    }

    /// Returns the events up to the first one for which `is_last` is true.
    pub(super) fn until(&mut self, what: &str, mut is_last: impl FnMut(&Event) -> bool) -> Vec<Event> {
        let mut events = Vec::new();
        while !events.last().is_some_and(&mut is_last) {
            assert!(events.len() < 1_000, "no {what}: {events:?}");
            events.push(self.next());
        }
        events
    }

    /// Returns the events up to the `count`th reload.
    fn reloads(&mut self, count: usize) -> Vec<Event> {
        let mut seen = 0;
        self.until("reload", |event| {
            seen += usize::from(event.recorded() == "reload_accepted");
            seen == count
        })
    }
}

fn reload(site: &Site) {
    site.command(&["reload"]);
}

#[test]
fn a_stream_begins_with_the_state_and_numbers_increase() {
    let site = Site::start(EDGE);
    let mut viewer = Viewer::open(&site.server, "?instance=edge", None);
    let (state, report) = (viewer.next(), viewer.next());
    assert_eq!((state.name.as_str(), report.name.as_str()), ("state", "report"));
    assert_eq!(list(&state.data, "instances")[0]["name"], "edge");
    assert!(state.data["alarms"].is_array() && state.data["forebay"].is_string(), "{state:?}");
    assert!(report.data["instance"] == "edge" && report.data["report"]["packets"]["in"].is_u64(), "{report:?}");
    let tick = viewer.until("tick", |event| event.name == "tick").pop().expect("a tick");
    assert!(tick.data["instance"] == "edge" && tick.data["tick"]["interval_s"].as_f64() > Some(0.0), "{tick:?}");
    reload(&site);
    let mut numbers = vec![state.number(), report.number(), tick.number()];
    let mut is_reloaded = (false, false);
    let later = viewer.until("tick after the reload", |event| {
        is_reloaded.0 |= event.recorded() == "reload_accepted";
        is_reloaded.1 |= event.name == "report";
        is_reloaded == (true, true) && event.name == "tick"
    });
    numbers.extend(later.iter().map(Event::number));
    // The first events have the number of the last one before them. All others have numbers of their own.
    assert!(numbers.windows(2).all(|pair| pair[0] <= pair[1]), "{numbers:?}");
    assert!(numbers[1..].windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    let of_edge = |event: &Event| event.name == "alarm" || event.data["instance"] == "edge";
    assert!(later.iter().all(of_edge), "{later:?}");
}

#[test]
fn the_first_report_has_no_number_before_that_of_the_state() {
    let site = Site::start(EDGE);
    let mut viewer = Viewer::open(&site.server, "", None);
    for _ in 0..3 {
        reload(&site);
        let last = viewer.reloads(1).pop().expect("an event");
        // The counters are older than the event: the client would receive the event again after a break.
        let mut other = Viewer::open(&site.server, "?instance=edge", None);
        let numbers = [last.number(), other.next().number(), other.next().number()];
        assert!(numbers.is_sorted(), "{numbers:?}");
    }
}

#[test]
fn counters_are_only_sent_to_viewers_that_want_them() {
    let site = Site::start(EDGE);
    let mut others = [Viewer::open(&site.server, "", None), Viewer::open(&site.server, "?instance=other", None)];
    let mut all = Viewer::open(&site.server, "?instance=*", None);
    all.until("tick", |event| event.name == "tick");
    reload(&site);
    all.reloads(1);
    for viewer in &mut others {
        let events = viewer.reloads(1);
        assert!(
            events.iter().all(|event| !["report", "tick", "decisions"].contains(&event.name.as_str())),
            "{events:?}"
        );
    }
}

#[test]
fn a_viewer_continues_after_a_break_without_loss_or_repetition() {
    let site = Site::start(EDGE);
    let mut steady = Viewer::open(&site.server, "", None);
    let mut broken = Viewer::open(&site.server, "", None);
    steady.next();
    broken.next();
    let mut all = Vec::new();
    let mut received = Vec::new();
    for round in 1..4 {
        for _ in 0..round {
            reload(&site);
        }
        all.extend(steady.reloads(round));
        // The connection breaks after the first event of the round, and the others come meanwhile.
        received.extend(broken.reloads(1));
        let last = received.last().map(|event: &Event| event.id.clone());
        drop(broken);
        reload(&site);
        all.extend(steady.reloads(1));
        broken = Viewer::open(&site.server, "", last.as_deref());
        received.extend(broken.reloads(round));
    }
    assert_eq!(received, all);
    assert!(all.iter().all(|event| event.name != "state"), "{all:?}");
}

#[test]
fn an_identity_that_the_server_does_not_know_gives_the_state() {
    let site = Site::start(EDGE);
    let known = Viewer::open(&site.server, "", None).next();
    let epoch = known.id.rsplit_once('-').expect("two parts").0;
    let future = format!("{epoch}-{}", known.number() + 1_000_000);
    for last in ["0-1", "", "nonsense", "-1", &future, &format!("{epoch}-"), &format!("{epoch}-x")] {
        assert_eq!(Viewer::open(&site.server, "", Some(last)).next().name, "state", "{last}");
    }
}

/// The counts that ticks carry.
#[derive(Debug, Default, PartialEq)]
struct Counts {
    entered: u64,
    out: u64,
    waiting: u64,
    dropped: BTreeMap<String, u64>,
    modules: Vec<u64>,
    flows: Vec<u64>,
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("a number: {value}"))
}

impl Counts {
    /// Returns the counts of a report.
    fn of(report: &Value) -> Self {
        let mut counts = Self::default();
        counts.read(&report["packets"]);
        counts.modules = list(report, "modules").iter().map(|module| count(&module["packets"])).collect();
        counts.flows = list(report, "flows").iter().map(|flow| count(&flow["packets"])).collect();
        counts
    }

    /// Reads where the packets are.
    fn read(&mut self, packets: &Value) {
        (self.entered, self.out) = (count(&packets["in"]), count(&packets["out"]));
        self.waiting = ["queued", "held", "in_flight"].iter().map(|state| count(&packets[*state])).sum();
        self.dropped = serde_json::from_value(packets["dropped"].clone()).expect("counts by reason");
    }

    fn add(&mut self, tick: &Value) {
        self.entered += count(&tick["in"]);
        self.out += count(&tick["out"]);
        self.waiting = list(tick, "waiting").iter().map(count).sum();
        for (reason, dropped) in tick["dropped"].as_object().into_iter().flatten() {
            *self.dropped.entry(reason.clone()).or_default() += count(dropped);
        }
        for (sums, columns) in [(&mut self.modules, &tick["modules"]), (&mut self.flows, &tick["flows"])] {
            for (index, packets) in list(columns, "index").iter().zip(list(columns, "packets")) {
                sums[count(index) as usize] += count(&packets);
            }
        }
    }
}

#[test]
fn a_report_and_the_ticks_after_it_are_the_later_counters() {
    const PACKETS: u64 = 20_000;
    let site = Site::start(QUIET);
    wait_for("both packets", || site.read("/drops")["in"] == 2);
    let mut viewer = Viewer::open(&site.server, "?instance=edge", None);
    let first = viewer.until("report", |event| event.name == "report").pop().expect("a report");
    let mut counts = Counts::of(&first.data["report"]);
    // The generator ends after these packets; the other one keeps the pipeline running.
    let text = QUIET.replacen("0.001pps", &format!("10kpps, queue: 32768, count: {PACKETS}"), 1);
    let put = site.put("*", &text);
    assert_eq!(put.status, 200, "{}", put.body);
    let mut ticks = 0;
    viewer.until("end of the packets", |event| {
        match event.name.as_str() {
            "report" => (counts, ticks) = (Counts::of(&event.data["report"]), 0),
            "tick" => {
                counts.add(&event.data["tick"]);
                ticks += u32::from(count(&event.data["tick"]["in"]) > 0);
            }
            _ => {}
        }
        let dropped: u64 = counts.dropped.values().sum();
        assert!(counts.entered <= PACKETS + 2, "{counts:?}");
        counts.entered == PACKETS + 2 && counts.out + dropped == counts.entered && counts.waiting == 0
    });
    assert!(ticks > 0, "the packets came after the report");
    // Reports for reading are up to a second old.
    wait_for("the counters", || {
        let drops = site.read("/drops");
        drops["in"] == json!(PACKETS + 2) && drops["out"] == json!(counts.out) && drops["in_flight"] == 0
    });
    let packets = site.read("/drops");
    let mut read = Counts::of(&json!({
        "packets": packets, "modules": site.read("/modules")["modules"], "flows": site.read("/flows")["flows"],
    }));
    assert_eq!(counts, read);
    read.read(&site.pipeline.end()["packets"]);
    assert_eq!(counts, read, "and so is the report of the run");
}

/// Regression: the full report of the stream had the decisions of the controller.
#[test]
fn a_viewer_without_a_token_sees_no_decisions() {
    let folder = folder();
    let text = format!("{PIPELINE}control: {{ batching: optimal }}\n");
    let pipeline = Pipeline::of(folder.path(), "edge", &text, &[]);
    let server = Server::start(folder.path());
    server.wait_for("edge", "running");
    let mut viewer = Viewer::open(&server, "?instance=edge", None);
    let events = viewer.until("a tick after a report", |event| event.name == "tick");
    let report = events.iter().find(|event| event.name == "report").expect("it comes before ticks");
    assert!(report.data["report"]["modules"].as_array().is_some_and(|modules| modules.len() == 4), "{report:?}");
    assert!(report.data["report"]["control"].is_null(), "{}", report.data["report"]["control"]);
    assert!(!events.iter().any(|event| event.name == "decisions"));
    assert_eq!(server.get("/api/v1/instances/edge/decisions").status, 401);
    pipeline.end();
}

#[test]
fn pipelines_report_at_the_interval_of_the_settings() {
    let folder = folder();
    let pipeline = Pipeline::start(folder.path(), "edge");
    for (interval, expected) in [("250ms", 0.2..0.9), ("2s", 1.9..f64::MAX)] {
        let server = Server::with(folder.path(), &format!("interval: {interval}"), &[]);
        server.wait_for("edge", "running");
        let mut viewer = Viewer::open(&server, "?instance=edge", None);
        // The time between two reports, as the pipeline has measured it. Some reports may be late.
        viewer.until(&format!("tick of {interval}"), |event| {
            event.data["tick"]["interval_s"].as_f64().is_some_and(|span| expected.contains(&span))
        });
        assert_eq!(server.end(), Some(0));
    }
    pipeline.end();
}
