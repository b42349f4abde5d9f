//! A router's own address answered by the host's stack: two network namespaces with Forebay between them. In one a client
//! knows nothing but a network; the other is the host behind `punt` and a TAP port.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_functions as _;
use forebay_graph::{Next, RunToCompletion, Worker};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::{Conditions, Source, load};
use forebay_ports as _;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace that `ip` has made, and that goes with the value.
struct Namespace(String);

impl Namespace {
    fn new(what: &str) -> Result<Self, String> {
        let name = format!("forebay-{what}-{}", std::process::id());
        ip(&["netns", "add", &name])?;
        Ok(Self(name))
    }

    /// Runs something on a thread in the namespace.
    fn run<T: Send>(&self, inside: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.0)).expect("it was made");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
                    .expect("the right to make it");
                inside()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = ip(&["netns", "del", &self.0]);
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("no command `ip`: {error}"))?;
    let text = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    output.status.success().then_some(()).ok_or_else(|| format!("`ip {}`: {}", arguments.join(" "), text()))
}

fn yaml(client: &Namespace, host: &Namespace) -> String {
    format!(
        "ports:
  eth: {{ tap: {{ interface: eth, namespace: {}, address: 192.0.2.2/24 }} }}
  host: {{ tap: {{ interface: fb0, namespace: {}, address: 192.0.2.1/24 }} }}
modules:
  punt: {{ punt: {{ addresses: [192.0.2.1] }} }}
pipeline:
  - eth -> punt
  - punt[host] -> host
  - punt[0] -> drop
  - host -> eth
",
        client.0, host.0
    )
}

#[test]
fn the_hosts_stack_answers_for_the_routers_address() {
    // Not `println`, which the test harness keeps to itself.
    let skip = |why: &str| {
        let _ = writeln!(std::io::stderr(), "skipped: the_hosts_stack_answers_for_the_routers_address: {why}");
    };
    let (client, host) = match (Namespace::new("client"), Namespace::new("host")) {
        (Ok(client), Ok(host)) => (client, host),
        (Err(why), _) | (_, Err(why)) => return skip(&why),
    };
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let plan = match load(&Source::new(yaml(&client, &host), "punt", "."), conditions) {
        Ok(mut loaded) => loaded.plans.remove(0),
        Err(problems) if !std::path::Path::new("/dev/net/tun").exists() => return skip(&problems.to_string()),
        Err(problems) => panic!("{problems}"),
    };
    let mut worker = Worker::<_, RunToCompletion>::new(plan, Tsc, Vec::new()).expect("a plan");
    // Bound on the host's side before anything is sent.
    let listener = host.run(|| TcpListener::bind("192.0.2.1:80").expect("the port gave it the address"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = [0; 4_000];
            stream.read_exact(&mut bytes).expect("what was sent");
            stream.write_all(&bytes).expect("a connection");
        });
        let talk = scope.spawn(|| {
            client.run(|| {
                let limit = Duration::from_secs(20);
                let mut stream = TcpStream::connect_timeout(&"192.0.2.1:80".parse().expect("an address"), limit)?;
                stream.set_read_timeout(Some(limit))?;
                let sent: Vec<u8> = (0..4_000).map(|n| n as u8).collect();
                let mut back = vec![0; sent.len()];
                stream.write_all(&sent)?;
                stream.read_exact(&mut back)?;
                assert_eq!(back, sent);
                // A port at which nobody is: the host says so by ICMP.
                let socket = UdpSocket::bind("192.0.2.2:0")?;
                socket.set_read_timeout(Some(limit))?;
                socket.connect("192.0.2.1:9")?;
                socket.send(b"anybody?")?;
                Ok::<_, std::io::Error>(socket.recv(&mut [0; 8]).expect_err("nobody is").kind())
            })
        });
        let waits = scope.spawn(|| {
            let outcome = talk.join();
            done.store(true, Ordering::Relaxed);
            outcome
        });
        while !done.load(Ordering::Relaxed) {
            match worker.turn() {
                Next::Now => {}
                // There are other tests on this machine.
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        let refused =
            waits.join().expect("it only waits").expect("the client's assertions").expect("the client's calls");
        assert_eq!(refused, std::io::ErrorKind::ConnectionRefused);
    });
    let census = worker.census();
    assert_eq!(census.missing(), 0, "{census:?}");
    assert!(census.left > 10, "{census:?}");
    assert_eq!(worker.wind_up(), Ok(()));
}
