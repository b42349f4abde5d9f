//! Measures changes per second of tables that change while packets run: routes, mappings, rules, users' sessions.
//!
//! One thread, no readers. The changes are text, as the control plane receives them, in batches of several sizes. Every
//! second change undoes the one before it, so that tables keep their sizes. Run with `cargo bench -p forebay-functions
//! --bench changes`.

use std::net::Ipv4Addr;
use std::time::Instant;

use forebay_functions as _;
use forebay_functions::tables::{acl, lpm::synthetic};
use forebay_graph::{Declaration, Setup, SetupEnvironment, functions, states};
use forebay_units::Frequency;
use serde_json::{Value, json};

/// A table to change: a name, a function with its parameters, and pairs of changes. The second change of a pair undoes
/// the first.
struct Subject {
    name: String,
    function: &'static str,
    params: Value,
    /// A state that the parameters name `state`: its declaration's name and its own parameters.
    state: Option<(&'static str, Value)>,
    pairs: Vec<[String; 2]>,
}

fn routes<A: synthetic::Family>(family: &str, count: u32) -> Subject {
    let routes = synthetic::routes::<A>(count as usize, 16, 1);
    let lines: Vec<_> = routes.iter().map(|(prefix, next_hop)| format!("{prefix} {next_hop}")).collect();
    // The changes are spread over the table, in random order.
    let indexes = (0..lines.len()).map(|at| at * 7_919 % lines.len());
    let pairs = indexes.take(100_000).map(|at| [format!("remove {}", routes[at].0), format!("add {}", lines[at])]);
    Subject {
        name: format!("routes, {family}, {count}"),
        function: "ip_lookup",
        params: json!({ "routes": lines, "next_hops": 16 }),
        state: None,
        pairs: pairs.collect(),
    }
}

fn mappings(count: u32) -> Subject {
    let pair = |at: u32| (Ipv4Addr::from_bits(0x0a00_0000 + at), Ipv4Addr::from_bits(0xc612_0000 + at));
    let list: Vec<_> = (0..count)
        .map(pair)
        .map(|(inside, outside)| json!({ "inside": inside.to_string(), "outside": outside.to_string() }))
        .collect();
    let pairs = (0..100_000u32).map(|at| {
        let (inside, outside) = pair((u64::from(at) * 7_919 % u64::from(count)) as u32);
        [format!("remove {inside}"), format!("add {inside} {outside}")]
    });
    Subject {
        name: format!("mappings, {count}"),
        function: "static_nat",
        params: json!({ "direction": "out", "mappings": list }),
        state: None,
        pairs: pairs.collect(),
    }
}

fn rules<A: acl::RuleAddress>(family: &str, count: usize) -> Subject {
    let list: Vec<_> = acl::synthetic::rules::<A>(count, 1).iter().map(ToString::to_string).collect();
    let more = acl::synthetic::rules::<A>(20_000, 2);
    let pairs = more
        .iter()
        .enumerate()
        .map(|(at, rule)| [format!("add {} {rule}", at % count), format!("remove {} {rule}", at % count)]);
    Subject {
        name: format!("rules, {family}, {count}"),
        function: "acl",
        params: json!({ "rules": list }),
        state: None,
        pairs: pairs.collect(),
    }
}

/// Rules of one pair of prefixes that are equal or differ only in their source ports.
fn rules_alike(name: &str, count: usize, source_port: impl Fn(usize) -> usize) -> Subject {
    let rule = |at: usize| {
        let port = source_port(at);
        format!("@10.0.0.0/8 0.0.0.0/0 {port} : {port} 22 : 22 0x06/0xff deny")
    };
    let list: Vec<_> = (0..count).map(rule).collect();
    // The changes are spread over the list, by position and by content in turn.
    let pairs = (0..20_000).map(|turn| {
        let at = turn * 7_919 % count;
        match turn % 2 {
            0 => [format!("add {at} {}", rule(at)), format!("remove {at} {}", rule(at))],
            _ => [format!("remove {}", rule(at)), format!("add {at} {}", rule(at))],
        }
    });
    Subject {
        name: format!("rules, {name}, {count}"),
        function: "acl",
        params: json!({ "rules": list }),
        state: None,
        pairs: pairs.collect(),
    }
}

/// Users' sessions with limits and two bearers.
fn sessions(count: u32) -> Subject {
    let line = |at: u32| {
        let user = Ipv4Addr::from_bits(0x0a00_0001 + at);
        let teid = at + 1;
        format!(
            "{user} teid={teid} peer=192.0.2.10 peer-teid={teid} qfi=9 ambr-up=50Mbps ambr-down=200Mbps bearer qfi=1 \
             gbr mbr-down=1Mbps filter=10,udp,net=198.51.100.0/24,port=5060"
        )
    };
    let list: Vec<_> = (0..count).map(line).collect();
    let pairs = (0..100_000u32).map(|turn| {
        let at = (u64::from(turn) * 7_919 % u64::from(count)) as u32;
        [format!("remove {}", Ipv4Addr::from_bits(0x0a00_0001 + at)), format!("add {}", line(at))]
    });
    Subject {
        name: format!("sessions, {count}"),
        function: "upf_downlink",
        params: json!({ "state": "state" }),
        state: Some(("pdu_sessions", json!({ "sessions": list, "limit": count + 10 }))),
        pairs: pairs.collect(),
    }
}

/// Returns the seconds that this thread has run on a processor. Unlike elapsed time, this does not grow with other load
/// on the machine. NaN if Linux does not report it.
fn processor_seconds() -> f64 {
    let statistics = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    statistics
        .split_whitespace()
        .next()
        .and_then(|nanos| nanos.parse::<f64>().ok())
        .map_or(f64::NAN, |nanos| nanos / 1e9)
}

/// Returns the resident memory of the process in MB. NaN if Linux does not report it.
fn resident_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok()).map_or(f64::NAN, |kb| kb / 1e3)
}

fn measure(subject: &Subject) {
    let function: &Declaration = functions().into_iter().find(|it| it.name == subject.function).expect("registered");
    let mut environment = SetupEnvironment::new(Frequency::new(1e9));
    if let Some((kind, params)) = &subject.state {
        let kind = states().into_iter().find(|it| it.name == *kind).expect("registered");
        let state = kind.build(params, &mut Setup::new("state", &mut environment)).expect("its own parameters");
        environment.objects.states.insert("state".to_owned(), state);
    }
    let mut setup = Setup::new("bench", &mut environment);
    let built = function.build(&subject.params, &mut setup).expect("its own parameters");
    let (_, table) = setup.finish().tables.remove(0);
    let changes: Vec<&str> = subject.pairs.iter().flatten().map(String::as_str).collect();
    let before = resident_mb();
    let [first, second] = [(); 2].map(|()| {
        let start = Instant::now();
        table.apply(&changes[..2]);
        start.elapsed().as_secs_f64() * 1e3
    });
    let copies = resident_mb() - before;
    println!("{}: first changes in {first:.1} and {second:.1} ms, their copies take {copies:.1} MB", subject.name);
    for size in [2, 100, 10_000] {
        let (start, before) = (Instant::now(), processor_seconds());
        let (mut made, mut count) = (0, 0);
        for batch in changes.chunks(size).cycle() {
            made += table.apply(batch).made;
            count += batch.len();
            if start.elapsed().as_secs_f64() > 1.0 {
                break;
            }
        }
        assert_eq!(made, count, "{}: a change was refused", subject.name);
        let [clock, processor] =
            [start.elapsed().as_secs_f64(), processor_seconds() - before].map(|time| count as f64 / time);
        println!("  in batches of {size}: {clock:.0} changes a second, {processor:.0} a second of processor time");
    }
    drop(built);
}

/// Builds a subject when it is about to be measured.
type Make = fn() -> Subject;

fn main() {
    let only = std::env::args().nth(1).filter(|word| !word.starts_with('-'));
    let subjects: [(&str, Make); 14] = [
        ("routes", || routes::<u32>("IPv4", 10_000)),
        ("routes", || routes::<u32>("IPv4", 1_000_000)),
        ("routes", || routes::<u128>("IPv6", 1_000_000)),
        ("mappings", || mappings(1_000)),
        ("mappings", || mappings(100_000)),
        ("rules", || rules::<u32>("IPv4", 100)),
        ("rules", || rules::<u32>("IPv4", 1_000)),
        ("rules", || rules::<u32>("IPv4", 10_000)),
        ("rules", || rules::<u32>("IPv4", 100_000)),
        ("rules", || rules::<u128>("IPv6", 10_000)),
        ("rules, alike", || rules_alike("equal", 100_000, |_| 7)),
        ("rules, alike", || rules_alike("of other source ports", 60_000, |at| at)),
        ("sessions", || sessions(10_000)),
        ("sessions", || sessions(600_000)),
    ];
    for (name, subject) in subjects {
        if only.as_deref().is_none_or(|only| name.starts_with(only)) {
            measure(&subject());
        }
    }
}
