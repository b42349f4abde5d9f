//! As many sessions as tables hold, with new ones all the time, through firewall, balancer and translation, both ways: memory
//! stays within what is stated, and every packet and every session is accounted for.
//!
//! Here on a small scale, in simulated time. `FOREBAY_CROWD_SECONDS` runs it at full size by the real clock, for so long
//! (`make soak-sessions`: a million sessions with 50 000 new ones a second for 60 s); with `FOREBAY_CROWD_SIMULATED=1` in simulated time,
//! for machines that are too slow or have other things to do.

mod clock;
mod echo;

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

/// What comes, and how many sessions each table may have.
#[derive(Clone, Copy)]
struct Crowd {
    /// Sessions that send at a time, in turns.
    at_once: u64,
    /// Packets of each.
    packets: u64,
    /// Packets a second.
    rate: u64,
    /// Packets in all.
    count: u64,
    /// Sessions of each table.
    capacity: u64,
    /// What happens when there are as many.
    when_full: &'static str,
}

/// Longer than a session ever waits for its next packet: two seconds.
const TIMEOUT: u64 = 5;

/// Bytes of a session at most, as docs/sessions.md and docs/balancer.md state them: of the firewall's two tables (either has as many
/// places), of translation, of the balancer.
const STATED: [u64; 4] = [74, 74, 157, 83];
/// Addresses of the translation's pool, and the bytes that each takes for its ports (docs/sessions.md).
const POOL: [u64; 2] = [512, 24 << 10];
/// Bytes that the generator has for each session: no part of what is looked at here.
const GENERATED: u64 = 16;

impl Crowd {
    /// A million sessions, each with a packet every two seconds and ten in all: 50 000 end and begin a second.
    fn full(seconds: u64) -> Self {
        let rate = 500_000;
        // Those that have ended are remembered for their time-out.
        let capacity = 1_300_000;
        Self { at_once: 1_000_000, packets: 10, rate, count: rate * seconds, capacity, when_full: "evict" }
    }

    /// The same, a twentieth.
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

    /// How many sessions have begun with so many packets: packet g is of the session whose place in the round is g modulo
    /// `at_once`, counted from the first that has not given way by that round.
    fn begun(&self, packets: u64) -> u64 {
        let Some(last) = packets.checked_sub(1) else { return 0 };
        let begins = |round: u64| (round * self.at_once).div_ceil(self.packets);
        let (round, place) = (last / self.at_once, last % self.at_once);
        let whole = round.checked_sub(1).map_or(0, |before| begins(before) + self.at_once);
        whole.max(begins(round) + place + 1)
    }

    fn source(&self) -> Source {
        let Self { at_once, packets, rate, count, capacity, when_full } = self;
        let seconds = count / rate + TIMEOUT + 4;
        let table = format!(
            "sessions: {capacity}, when_full: {when_full}, timeouts: {{ udp: {TIMEOUT}s, udp_unanswered: {TIMEOUT}s }}"
        );
        let sessions = self.known();
        let backends =
            "[{ address: 10.9.0.1, port: 8080 }, { address: 10.9.0.2, port: 8080 }, { address: 10.9.0.3, port: 8080 }]";
        // A frame of 70 bytes is made as it is sent: shorter ones are kept ready, all of them.
        let text = format!(
            "name: crowd
pool: {{ chunks: 8192, frame: 256 }}
ports:
  clients:
    generator:
      {{ rate: {rate}pps, count: {count}, size: 70, sessions: {sessions}, renewal: {{ at_once: {at_once}, packets: {packets} }}, \
       source: 10.0.0.0/8, destination: 192.0.2.10/32, destination_port: 80, queue: 262144 }}
  clock: {{ crowd_clock: {{ seconds: {seconds} }} }}
  out: {{ sink: }}
state:
  known: {{ connections: {{ {table} }} }}
  web: {{ balancer: {{ {table}, services: [{{ address: 192.0.2.10, protocol: udp, port: 80, backends: {backends} }}] }} }}
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

    /// Sessions that the generator knows.
    fn known(&self) -> u64 {
        self.begun(self.count) + self.at_once
    }

    /// What its tables may take, in bytes.
    fn stated(&self) -> u64 {
        STATED.iter().sum::<u64>() * self.capacity + POOL[0] * POOL[1]
    }
}

/// A table's counters.
struct Table {
    name: String,
    names: Vec<String>,
    counters: Arc<[Counter]>,
}

/// What they say at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Told {
    open: u64,
    opened: u64,
    ended: u64,
    evicted: u64,
    refused: u64,
}

impl Table {
    /// The tables of a pipeline: of firewall (IPv4), balancer and translation.
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

    fn told(&self) -> Told {
        let of = |name: &str| {
            let at =
                self.names.iter().position(|known| known == name).unwrap_or_else(|| panic!("{}: {name}", self.name));
            self.counters[at].get()
        };
        let read = || Told {
            open: of("open"),
            opened: of("opened"),
            ended: of("ended"),
            evicted: of("evicted"),
            refused: of("refused"),
        };
        // The worker may be writing them.
        let mut last = read();
        loop {
            let again = read();
            if again == last {
                return again;
            }
            last = again;
        }
    }

    /// Every session that was opened is there, has ended, or gave way; and there are no more than there may be.
    fn check(&self, crowd: &Crowd) -> Told {
        let told = self.told();
        assert_eq!(told.opened, told.open + told.ended + told.evicted, "{}: {told:?}", self.name);
        assert!(told.open <= crowd.capacity, "{}: {told:?}", self.name);
        told
    }
}

/// A line of this process' state, in KiB.
fn status(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(what)).expect("Linux");
    line.trim_start_matches(':').trim().trim_end_matches("kB").trim().parse().expect("a number")
}

/// What else may grow meanwhile: stacks, what is counted and read, packets' chunks.
const BESIDES: u64 = 24 << 20;

/// Memory has grown by no more than the tables may take since before they were made.
fn check_memory(crowd: &Crowd, before: u64) -> u64 {
    let grown = (status("VmRSS").saturating_sub(before) * 1024).saturating_sub(crowd.known() * GENERATED);
    assert!(grown <= crowd.stated() + BESIDES, "memory grew by {grown} bytes, stated are {}", crowd.stated());
    grown
}

/// In simulated time, from the first packet until the last session has ended; what the tables told last, and at most open.
fn simulated(crowd: &Crowd, what: &str) -> (Vec<Told>, Census, u64) {
    let frequency = Frequency::new(1e9);
    let before = status("VmRSS");
    let loaded = load(&crowd.source(), Conditions { frequency, simulated: true });
    let mut plan = loaded.unwrap_or_else(|problems| panic!("{problems}")).plans.remove(0);
    plan.meter = None;
    let tables = Table::all(&plan);
    // Turns that take their time: packets come in batches.
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
    worker.wind_up().expect("nothing goes wrong");
    let census = worker.census();
    assert_eq!((census.entered, census.missing()), (crowd.count, 0), "{what}: {census:?}");
    assert_eq!((census.queued, census.held, census.in_flight), (0, 0, 0), "{what}: {census:?}");
    let told: Vec<_> = tables.iter().map(|table| table.check(crowd)).collect();
    assert!(told.iter().all(|told| told.open == 0), "{what}: all end: {told:?}");
    let _ = writeln!(
        std::io::stderr(),
        "crowd, {what}: {} packets, {} sessions, at most {most} at a time of {}; memory grew by {:.1} MB, stated are {:.1} MB; \
         firewall, balancer, translation: {told:?}",
        crowd.count,
        crowd.begun(crowd.count),
        crowd.capacity,
        grown as f64 / 1e6,
        crowd.stated() as f64 / 1e6,
    );
    (told, census, most)
}

#[test]
fn sessions_come_and_go_within_bounds() {
    if let Ok(seconds) = std::env::var("FOREBAY_CROWD_SECONDS") {
        let seconds = seconds.parse().expect("FOREBAY_CROWD_SECONDS is a number");
        if std::env::var_os("FOREBAY_CROWD_SIMULATED").is_some() {
            let crowd = Crowd::full(seconds);
            let (told, census, most) = simulated(&crowd, "at full size");
            assert!(census.dropped == 0 && most >= crowd.at_once, "{census:?}, at most {most}");
            assert!(told.iter().all(|told| told.opened == crowd.begun(crowd.count) && told.evicted == 0), "{told:?}");
            return;
        }
        real(&Crowd::full(seconds), "with room for all");
        // Tables that are too small: sessions give way all the time, and memory stays as stated.
        real(&Crowd { capacity: 800_000, ..Crowd::full(seconds.div_ceil(3)) }, "with room for fewer");
        return;
    }
    let crowd = Crowd::small(20);
    let (told, census, most) = simulated(&crowd, "with room for all");
    assert_eq!(census.dropped, 0, "{census:?}");
    assert!(most >= crowd.at_once, "{most}");
    let begun = crowd.begun(crowd.count);
    for told in told {
        assert_eq!((told.opened, told.evicted, told.refused), (begun, 0, 0), "{told:?}");
    }
    // Too small ones: sessions give way to others, or others are refused.
    let crowd = Crowd { capacity: 40_000, ..Crowd::small(10) };
    let (told, _, most) = simulated(&crowd, "with room for fewer");
    assert_eq!(most, crowd.capacity);
    assert!(told.iter().all(|told| told.evicted > 0 && told.refused == 0), "{told:?}");
    let crowd = Crowd { when_full: "refuse", ..crowd };
    let (told, census, _) = simulated(&crowd, "with refusals");
    // Who is refused by the first is nobody's to the next ones.
    assert!(told[0].refused > 0 && told.iter().all(|told| told.evicted == 0), "{told:?}");
    let refused: u64 = told.iter().map(|told| told.refused).sum();
    assert_eq!(census.dropped, refused, "each packet that found no room is dropped: {census:?} {told:?}");
}

/// By the real clock, on a worker's thread.
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
    // Sessions end for some time after the last packet.
    for second in 1..=seconds + TIMEOUT + 4 {
        let next = begin + Duration::from_secs(second);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let census = instance.census().expect("the worker answers");
        assert_eq!(census.missing(), 0, "{what}, second {second}: {census:?}");
        let told: Vec<_> = tables.iter().map(|table| table.check(crowd)).collect();
        grown = grown.max(check_memory(crowd, before));
        for (at, told) in told.iter().enumerate() {
            most[at] = most[at].max(told.open);
        }
        if second % 10 == 0 {
            let new: Vec<_> = told.iter().zip(last).map(|(told, last)| (told.opened - last) / 10).collect();
            let _ = writeln!(
                std::io::stderr(),
                "crowd, {what}, second {second}: {} packets in, {} out, {} dropped; open {:?}, new a second {new:?}; memory grew by {} MB",
                census.entered,
                census.left,
                census.dropped,
                told.iter().map(|told| told.open).collect::<Vec<_>>(),
                grown / 1_000_000
            );
            told.iter().zip(&mut last).for_each(|(told, last)| *last = told.opened);
        }
    }
    let outcome = instance.end();
    assert!(outcome.troubles.is_empty(), "{:?}", outcome.troubles);
    let board = instance.board();
    let report = board.report(&board.nothing(), &board.read(outcome.at));
    assert_eq!((report.packets.missing(), report.packets.queued, report.packets.held), (0, 0, 0), "{what}");
    let lost: u64 = report.ports.iter().map(|port| port.dropped).sum();
    assert_eq!(report.packets.entered + lost, crowd.count, "{what}: every packet that was to come");
    let told: Vec<_> = tables.iter().map(|table| table.check(crowd)).collect();
    let begun = crowd.begun(crowd.count);
    let _ = writeln!(
        std::io::stderr(),
        "crowd, {what}: {seconds} s, {} packets in ({:.0} a second), {lost} lost before they entered, {} out, dropped {:?}; \
         {begun} sessions begun ({:.0} a second), at most open {most:?}; {told:?}; memory grew by {:.1} MB, stated are {:.1} MB; \
         peak of the process {} MB",
        report.packets.entered,
        report.packets.entered as f64 / seconds as f64,
        report.packets.out,
        report.packets.dropped,
        (begun - crowd.at_once.min(begun)) as f64 / seconds as f64,
        grown as f64 / 1e6,
        crowd.stated() as f64 / 1e6,
        status("VmHWM") / 1_000,
    );
    assert!(told.iter().all(|told| told.open == 0), "{what}: all end: {told:?}");
    if crowd.capacity > crowd.at_once {
        assert!(most.iter().all(|most| *most >= crowd.at_once), "{what}: {most:?} of {} sessions", crowd.at_once);
        assert!(told.iter().all(|told| told.evicted == 0 && told.refused == 0), "{what}: {told:?}");
    } else {
        assert!(told.iter().all(|told| told.evicted > 0), "{what}: {told:?}");
    }
}
