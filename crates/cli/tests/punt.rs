//! The host's network stack responds for a router's own address. Forebay is between two network namespaces: one with a
//! client, the other with the host behind `punt` and a TAP port.

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

/// A network namespace made with `ip`. It is removed when this value is dropped.
struct Namespace(String);

impl Namespace {
    fn new(what: &str) -> Result<Self, String> {
        let name = format!("forebay-{what}-{}", std::process::id());
        ip(&["netns", "add", &name])?;
        Ok(Self(name))
    }

    /// Runs a function on a thread in the namespace.
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
fn the_hosts_stack_responds_for_the_routers_address() {
    // Not with `println`, whose output the test harness hides.
    let skip = |why: &str| {
        let _ = writeln!(std::io::stderr(), "skipped: the_hosts_stack_responds_for_the_routers_address: {why}");
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
    // Binds the host's socket before the client sends anything.
    let listener = host.run(|| TcpListener::bind("192.0.2.1:80").expect("the port gave it the address"));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = [0; 4_000];
            stream.read_exact(&mut bytes).expect("the sent data");
            stream.write_all(&bytes).expect("a connection");
        });
        let client_thread = scope.spawn(|| {
            client.run(|| {
                let limit = Duration::from_secs(20);
                let mut stream = TcpStream::connect_timeout(&"192.0.2.1:80".parse().expect("an address"), limit)?;
                stream.set_read_timeout(Some(limit))?;
                let sent: Vec<u8> = (0..4_000).map(|n| n as u8).collect();
                let mut back = vec![0; sent.len()];
                stream.write_all(&sent)?;
                stream.read_exact(&mut back)?;
                assert_eq!(back, sent);
                // A closed port: the host responds with an ICMP error.
                let socket = UdpSocket::bind("192.0.2.2:0")?;
                socket.set_read_timeout(Some(limit))?;
                socket.connect("192.0.2.1:9")?;
                socket.send(b"anybody?")?;
                Ok::<_, std::io::Error>(socket.recv(&mut [0; 8]).expect_err("the port is closed").kind())
            })
        });
        let waiting = scope.spawn(|| {
            let outcome = client_thread.join();
            done.store(true, Ordering::Relaxed);
            outcome
        });
        while !done.load(Ordering::Relaxed) {
            match worker.turn() {
                Next::Now => {}
                // Leaves the core to other tests.
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        let refused =
            waiting.join().expect("it only waits").expect("the client's assertions").expect("the client's calls");
        assert_eq!(refused, std::io::ErrorKind::ConnectionRefused);
    });
    let census = worker.census();
    assert_eq!(census.missing(), 0, "{census:?}");
    assert!(census.out > 10, "{census:?}");
    assert_eq!(worker.shut_down(), Ok(()));
}
