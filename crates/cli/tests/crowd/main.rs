//! Fills session tables and renews sessions all the time, through firewall, balancer and NAT, in both directions.
//! Memory stays within the documented limits, and every packet and every session is accounted for.
//!
//! By default on a small scale, in simulated time. `FOREBAY_CROWD_SECONDS` sets a duration at full size in real time
//! (`make soak-sessions`: a million sessions with 50 000 new ones a second for 60 s). `FOREBAY_CROWD_SIMULATED=1` uses
//! simulated time instead, for slow or busy machines.

mod clock;
mod echo;
#[path = "../../../instance/tests/census/responses.rs"]
mod responses;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_functions as _;
use forebay_graph::{Cost, OwnCounters, Plan, RunToCompletion, Worker, drive};
use forebay_instance::{choose, start};
use forebay_measure::{Clock, Counter, Simulated, Tsc};
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_ports as _;
use forebay_protocol::Census;
use forebay_units::{Frequency, Ticks};

use responses::Responses;

/// The traffic, and the capacity of each session table.
#[derive(Clone, Copy)]
struct Crowd {
    /// Sessions that send concurrently, in turns.
    at_once: u64,
    /// Packets per session.
    packets: u64,
    /// Packets per second.
    rate: u64,
    /// Total number of packets.
    count: u64,
    /// Capacity of each table, in sessions.
    capacity: u64,
    /// The tables' action when they are full.
    when_full: &'static str,
}

/// Session time-out in seconds: longer than the time between two packets of a session, which is two seconds.
const TIMEOUT: u64 = 5;

/// Maximum bytes per session according to docs/sessions.md and docs/balancer.md: of the firewall's two tables (each has
/// this capacity), of NAT, of the balancer.
const DOCUMENTED: [u64; 4] = [74, 74, 157, 83];
/// Number of addresses in the NAT's pool, and the bytes that each takes for its ports (docs/sessions.md).
const POOL: [u64; 2] = [512, 24 << 10];
/// Bytes per session in the generator. They do not count for the limit.
const GENERATED: u64 = 16;

impl Crowd {
    /// A million sessions, each with a packet every two seconds and ten in all. In a second 50 000 sessions end and as
    /// many begin.
    fn full(seconds: u64) -> Self {
        let rate = 500_000;
        // Ended sessions stay in the table until their time-out.
        let capacity = 1_300_000;
        Self { at_once: 1_000_000, packets: 10, rate, count: rate * seconds, capacity, when_full: "evict" }
    }

    /// A twentieth of [`full`](Self::full).
    fn small(seconds: u64) -> Self {
        let full = Self::full(seconds);
        Self {
            at_once: full.at_once / 20,
            rate: full.rate / 20,
            count: full.count / 20,
            capacity: full.capacity / 20,
            ..full
        }
    }

    /// Returns the number of sessions that have begun after `packets` packets. In each round, `at_once` sessions send
    /// one packet each. Packet g is of session g modulo `at_once` of the round, counted from the first session that was
    /// not replaced before that round.
    fn begun(&self, packets: u64) -> u64 {
        let Some(last) = packets.checked_sub(1) else { return 0 };
        let first_session = |round: u64| (round * self.at_once).div_ceil(self.packets);
        let (round, index) = (last / self.at_once, last % self.at_once);
        let whole = round.checked_sub(1).map_or(0, |before| first_session(before) + self.at_once);
        whole.max(first_session(round) + index + 1)
    }

    fn source(&self) -> Source {
        let Self { at_once, packets, rate, count, capacity, when_full } = self;
        let seconds = count / rate + TIMEOUT + 4;
        let table = format!(
            "sessions: {capacity}, when_full: {when_full}, timeouts: {{ udp: {TIMEOUT}s, udp_unanswered: {TIMEOUT}s }}"
        );
        let sessions = self.generated_sessions();
        let backends =
            "[{ address: 10.9.0.1, port: 8080 }, { address: 10.9.0.2, port: 8080 }, { address: 10.9.0.3, port: 8080 }]";
        // The generator makes a frame of 70 bytes when it sends it. Shorter frames are all prepared in advance, which
        // takes memory.
        let text = format!(
            "name: crowd
pool: {{ chunks: 8192, frame: 256 }}
ports:
  clients:
    generator:
      {{ rate: {rate}pps, count: {count}, size: 70, sessions: {sessions}, renewal: {{ at_once: {at_once}, \
          packets: {packets} }}, \
       source: 10.0.0.0/8, destination: 192.0.2.10/32, destination_port: 80, queue: 262144 }}
  clock: {{ crowd_clock: {{ seconds: {seconds} }} }}
  out: {{ sink: }}
state:
  known: {{ connections: {{ {table} }} }}
  web: {{ balancer: {{ {table}, services: [{{ address: 192.0.2.10, protocol: udp, port: 80, \
      backends: {backends} }}] }} }}
  nat1: {{ nat: {{ pool: 203.0.112.0/23, {table} }} }}
modules:
  fw-out: {{ firewall: {{ state: known, rules: ['@10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x11/0xff permit'] }} }}
  lb: {{ balance: {{ state: web, others: drop }} }}
  nat-out: {{ nat_out: {{ state: nat1 }} }}
  servers: {{ crowd_echo: }}
  nat-in: {{ nat_in: {{ state: nat1 }} }}
  lb-back: {{ balance_back: {{ state: web, others: drop }} }}
  fw-in: {{ firewall: {{ state: known }} }}
pipeline:
  - clients -> fw-out -> lb -> nat-out -> servers -> nat-in -> lb-back -> fw-in -> out
  - clock -> out
"
        );
        Source::new(text, "crowd", ".")
    }

    /// Returns the number of sessions that the generator knows.
    fn generated_sessions(&self) -> u64 {
        self.begun(self.count) + self.at_once
    }

    /// Returns the maximum bytes of all tables.
    fn limit(&self) -> u64 {
        DOCUMENTED.iter().sum::<u64>() * self.capacity + POOL[0] * POOL[1]
    }
}

/// The counters of a session table.
struct Table {
    name: String,
    names: Vec<String>,
    counters: Arc<[Counter]>,
}

/// Values of a table's counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableCounts {
    open: u64,
    opened: u64,
    ended: u64,
    evicted: u64,
    refused: u64,
}

impl Table {
    /// Returns the tables of a pipeline: of firewall (IPv4), balancer and NAT.
    fn all(plan: &Plan) -> Vec<Self> {
        let counters = plan.modules.iter().flat_map(|module| {
            module.counters.iter().map(|OwnCounters { heading, counters, names, .. }| Self {
                name: format!("{}, {heading}", module.name),
                names: names.clone(),
                counters: Arc::clone(counters),
            })
        });
        let tables: Vec<_> = counters
            .filter(|table| {
                let first = ["fw-out, connections, IPv4", "lb, ", "nat-out, "];
                table.names.iter().any(|name| name == "opened") && first.iter().any(|it| table.name.starts_with(it))
            })
            .collect();
        let names: Vec<_> = tables.iter().map(|table| &table.name).collect();
        assert_eq!(tables.len(), 3, "{names:?}");
        tables
    }

    fn counts(&self) -> TableCounts {
        let count = |name: &str| {
            let at = self
                .names
                .iter()
                .position(|counter| counter == name)
                .unwrap_or_else(|| panic!("{}: {name}", self.name));
            self.counters[at].get()
        };
        let read = || TableCounts {
            open: count("open"),
            opened: count("opened"),
            ended: count("ended"),
            evicted: count("evicted"),
            refused: count("refused"),
        };
        // The worker may update the counters at the same time. Reads until two readings are equal.
        let mut last = read();
        loop {
            let again = read();
            if again == last {
                return again;
            }
            last = again;
        }
    }

    /// Checks that each opened session is open, has ended or was evicted, and that the table is within its capacity.
    fn check(&self, crowd: &Crowd) -> TableCounts {
        let counts = self.counts();
        assert_eq!(counts.opened, counts.open + counts.ended + counts.evicted, "{}: {counts:?}", self.name);
        assert!(counts.open <= crowd.capacity, "{}: {counts:?}", self.name);
        counts
    }
}

/// Returns a value of this process' state, in KiB.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("Linux");
    line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// Other memory that may grow in the meantime: stacks, counters and reports, packets' chunks.
const OTHER_MEMORY: u64 = 24 << 20;

/// Checks that memory has grown by at most the tables' limit since the time before they were created.
fn check_memory(crowd: &Crowd, before: u64) -> u64 {
    let grown = (status("VmRSS").saturating_sub(before) * 1024).saturating_sub(crowd.generated_sessions() * GENERATED);
    assert!(grown <= crowd.limit() + OTHER_MEMORY, "memory grew by {grown} bytes, the limit is {}", crowd.limit());
    grown
}

/// Runs in simulated time, from the first packet until the last session has ended. Returns the last counters of the
/// tables, the census, and the largest number of open sessions.
fn simulated(crowd: &Crowd, what: &str) -> (Vec<TableCounts>, Census, u64) {
    let frequency = Frequency::new(1e9);
    let before = status("VmRSS");
    let loaded = load(&crowd.source(), Conditions { frequency, simulated: true });
    let mut plan = loaded.unwrap_or_else(|problems| panic!("{problems}")).plans.remove(0);
    plan.meter = None;
    let tables = Table::all(&plan);
    // Modules take their time, so that packets come in batches.
    let turn = 20 * 1_000_000_000 / crowd.rate / plan.modules.len() as u64;
    let costs: Vec<_> = plan.modules.iter().map(|_| Cost { per_batch: turn, per_packet: 0 }).collect();
    let mut worker: Worker<_, RunToCompletion> =
        Worker::new(plan, Simulated::new(frequency), costs).expect("a sound plan");
    let (mut second, mut most, mut grown) = (0, 0, 0);
    loop {
        second += 1;
        assert!(second < 100_000, "{what}: it does not end");
        let ended = drive::simulate(&mut worker, Ticks(second * 1_000_000_000));
        let census = worker.census();
        assert_eq!(census.missing(), 0, "{what}, second {second}: {census:?}");
        for table in &tables {
            most = most.max(table.check(crowd).open);
        }
        grown = grown.max(check_memory(crowd, before));
        if ended == drive::Ended::Finished {
            break;
        }
    }
    worker.shut_down().expect("no port has an error");
    let census = worker.census();
    assert_eq!((census.entered, census.missing()), (crowd.count, 0), "{what}: {census:?}");
    assert_eq!((census.queued, census.held, census.in_flight), (0, 0, 0), "{what}: {census:?}");
    let counts: Vec<_> = tables.iter().map(|table| table.check(crowd)).collect();
    assert!(counts.iter().all(|table| table.open == 0), "{what}: all sessions end: {counts:?}");
    let _ = writeln!(
        std::io::stderr(),
        "crowd, {what}: {} packets, {} sessions, at most {most} at a time of {}; memory grew by {:.1} MB, \
        limit {:.1} MB; firewall, balancer, NAT: {counts:?}",
        crowd.count,
        crowd.begun(crowd.count),
        crowd.capacity,
        grown as f64 / 1e6,
        crowd.limit() as f64 / 1e6,
    );
    (counts, census, most)
}

#[test]
fn memory_of_many_sessions_stays_within_limits() {
    if let Ok(seconds) = std::env::var("FOREBAY_CROWD_SECONDS") {
        let seconds = seconds.parse().expect("FOREBAY_CROWD_SECONDS is a number");
        if std::env::var_os("FOREBAY_CROWD_SIMULATED").is_some() {
            let crowd = Crowd::full(seconds);
            let (counts, census, most) = simulated(&crowd, "at full size");
            assert!(census.dropped == 0 && most >= crowd.at_once, "{census:?}, at most {most}");
            assert!(
                counts.iter().all(|table| table.opened == crowd.begun(crowd.count) && table.evicted == 0),
                "{counts:?}"
            );
            return;
        }
        real(&Crowd::full(seconds), "with room for all");
        // With tables that are too small, sessions are evicted all the time, and memory stays within its limit.
        real(&Crowd { capacity: 800_000, ..Crowd::full(seconds.div_ceil(3)) }, "with room for fewer");
        return;
    }
    let crowd = Crowd::small(20);
    let (counts, census, most) = simulated(&crowd, "with room for all");
    assert_eq!(census.dropped, 0, "{census:?}");
    assert!(most >= crowd.at_once, "{most}");
    let begun = crowd.begun(crowd.count);
    for table in counts {
        assert_eq!((table.opened, table.evicted, table.refused), (begun, 0, 0), "{table:?}");
    }
    // With tables that are too small, sessions are evicted, or new ones are refused.
    let crowd = Crowd { capacity: 40_000, ..Crowd::small(10) };
    let (counts, _, most) = simulated(&crowd, "with room for fewer");
    assert_eq!(most, crowd.capacity);
    assert!(counts.iter().all(|table| table.evicted > 0 && table.refused == 0), "{counts:?}");
    let crowd = Crowd { when_full: "refuse", ..crowd };
    let (counts, census, _) = simulated(&crowd, "with refusals");
    // Packets that the first table refuses do not reach the other tables.
    assert!(counts[0].refused > 0 && counts.iter().all(|table| table.evicted == 0), "{counts:?}");
    let refused: u64 = counts.iter().map(|table| table.refused).sum();
    assert_eq!(census.dropped, refused, "each packet without room in the table is dropped: {census:?} {counts:?}");
}

/// Runs in real time, on a worker's thread.
fn real(crowd: &Crowd, what: &str) {
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let before = status("VmRSS");
    let Loaded { plans, cores, made, .. } =
        load(&crowd.source(), conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let tables = Table::all(&plans[0]);
    let cores = choose(&cores).expect("a core for the worker");
    let instance =
        start(plans, &cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default()).expect("it starts");
    let begin = Instant::now();
    let seconds = crowd.count / crowd.rate;
    let (mut most, mut grown, mut last) = ([0; 3], 0, [0; 3]);
    let mut responses = Responses::with_late(10);
    // Sessions end for some time after the last packet.
    for second in 1..=seconds + TIMEOUT + 4 {
        let next = begin + Duration::from_secs(second);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let census = responses.census(&*instance);
        assert_eq!(census.missing(), 0, "{what}, second {second}: {census:?}");
        let counts: Vec<_> = tables.iter().map(|table| table.check(crowd)).collect();
        grown = grown.max(check_memory(crowd, before));
        for (at, table) in counts.iter().enumerate() {
            most[at] = most[at].max(table.open);
        }
        if second % 10 == 0 {
            let new: Vec<_> = counts.iter().zip(last).map(|(table, last)| (table.opened - last) / 10).collect();
            let _ = writeln!(
                std::io::stderr(),
                "crowd, {what}, second {second}: {} packets in, {} out, {} dropped; open {:?}, new a second {new:?}; \
                memory grew by {} MB",
                census.entered,
                census.out,
                census.dropped,
                counts.iter().map(|table| table.open).collect::<Vec<_>>(),
                grown / 1_000_000
            );
            counts.iter().zip(&mut last).for_each(|(table, last)| *last = table.opened);
        }
    }
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued, report.packets.held), (0, 0, 0), "{what}");
    let lost: u64 = report.ports.iter().map(|port| port.dropped).sum();
    assert_eq!(report.packets.entered + lost, crowd.count, "{what}: all generated packets");
    let counts: Vec<_> = tables.iter().map(|table| table.check(crowd)).collect();
    let begun = crowd.begun(crowd.count);
    let _ = writeln!(
        std::io::stderr(),
        "crowd, {what}: {seconds} s, {} packets in ({:.0} a second), {lost} lost before they entered, {} out, \
        dropped {:?}; {begun} sessions begun ({:.0} a second), at most open {most:?}; {counts:?}; \
        memory grew by {:.1} MB, limit {:.1} MB; peak of the process {} MB",
        report.packets.entered,
        report.packets.entered as f64 / seconds as f64,
        report.packets.out,
        report.packets.dropped,
        (begun - crowd.at_once.min(begun)) as f64 / seconds as f64,
        grown as f64 / 1e6,
        crowd.limit() as f64 / 1e6,
        status("VmHWM") / 1_000,
    );
    assert!(counts.iter().all(|table| table.open == 0), "{what}: all sessions end: {counts:?}");
    if crowd.capacity > crowd.at_once {
        assert!(most.iter().all(|most| *most >= crowd.at_once), "{what}: {most:?} of {} sessions", crowd.at_once);
        assert!(counts.iter().all(|table| table.evicted == 0 && table.refused == 0), "{what}: {counts:?}");
    } else {
        assert!(counts.iter().all(|table| table.evicted > 0), "{what}: {counts:?}");
    }
}
