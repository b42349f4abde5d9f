//! Ten thousand requests per second, with and without a limit.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::http::{connect, read, request};
use crate::server::{Pipeline, Server, folder, wait_for};

/// The clients that send at the same time, each over one connection.
const CLIENTS: u32 = 4;
/// The requests that a client sends before it reads the responses.
const GROUP: u32 = 25;
/// The groups of a client per second: in all, 10 000 requests.
const GROUPS: u32 = 10_000 / CLIENTS / GROUP;

const READS: [&str; 4] = ["/healthz", "/metrics", "/api/v1/instances", "/api/v1/instances/edge/modules"];

/// The responses of each kind.
#[derive(Debug, Default)]
struct Counts {
    accepted: u32,
    refused: u32,
    /// The server had closed the connection, after a refusal.
    none: u32,
}

/// Sends groups of requests for `seconds`, at most [`GROUPS`] per second.
fn send(address: &str, seconds: u32) -> Counts {
    // Most requests are small, as are those of a client that repeats itself without end.
    let group: String = (0..GROUP as usize)
        .map(|number| if number < READS.len() { READS[number] } else { READS[0] })
        .map(|path| request("GET", path, &[], ""))
        .collect();
    let mut counts = Counts::default();
    let mut open = None;
    let start = Instant::now();
    for number in 0..seconds * GROUPS {
        let due = start + Duration::from_secs(1) / GROUPS * number;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut stream: BufReader<TcpStream> = open.take().unwrap_or_else(|| BufReader::new(connect(address)));
        // The server may have closed the connection.
        let _ = stream.get_mut().write_all(group.as_bytes());
        for left in (1..=GROUP).rev() {
            if stream.fill_buf().map_or(0, <[u8]>::len) == 0 {
                counts.none += left;
                break;
            }
            match read(&mut stream).status {
                200 => counts.accepted += 1,
                429 => counts.refused += 1,
                status => panic!("status {status}"),
            }
            if left == 1 {
                open = Some(stream);
                break;
            }
        }
    }
    counts
}

/// Sends requests for `FOREBAY_FLOOD_SECONDS` (1), and checks that the memory stays bounded, and that reads get a
/// response afterwards. Returns the responses, and the seconds that all requests took.
fn flood(limits: &str) -> (Counts, f64) {
    let seconds = std::env::var("FOREBAY_FLOOD_SECONDS").map_or(1, |text| text.parse().expect("a number of seconds"));
    let folder = folder();
    let pipeline = Pipeline::start(folder.path(), "edge");
    let server = Server::with(folder.path(), limits, &[]);
    server.wait_for("edge", "running");
    let is_served = || READS.iter().all(|path| server.get(path).status == 200);
    wait_for("a response to each read", is_served);
    let before = server.own_kb();
    let address = server.address.as_str();
    let start = Instant::now();
    let all = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| send(address, seconds))).collect();
        clients.into_iter().map(|client| client.join().expect("it ends")).fold(Counts::default(), |sum, one| Counts {
            accepted: sum.accepted + one.accepted,
            refused: sum.refused + one.refused,
            none: sum.none + one.none,
        })
    });
    let took = start.elapsed().as_secs_f64();
    let more = server.own_kb().saturating_sub(before);
    let Counts { accepted, refused, none } = all;
    crate::print(&format!(
        "{} requests in {took:.1} s ({limits}): {accepted} accepted, {refused} refused, {none} on closed connections; \
         {more} kB more memory",
        accepted + refused + none
    ));
    assert_eq!(accepted + refused + none, 10_000 * seconds);
    assert!(more < 8_000, "{more} kB");
    wait_for("a response to each read", is_served);
    assert_eq!(server.end(), Some(0));
    pipeline.end();
    (all, took)
}

#[test]
fn a_flood_is_served_if_the_limit_allows_it() {
    let (counts, _) = flood("limits: { requests_per_second: 1000000 }");
    assert_eq!((counts.refused, counts.none), (0, 0));
}

#[test]
fn a_flood_is_refused_by_default() {
    let (counts, took) = flood("");
    // 100 per second, and those of two seconds at once.
    assert!(counts.refused > 0 && f64::from(counts.accepted) <= 200.0 + 100.0 * took, "{counts:?} in {took} s");
}
