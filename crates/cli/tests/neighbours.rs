//! The example `router.yaml` between two network namespaces, with Linux as its neighbour on both sides.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
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

const LIMIT: Duration = Duration::from_secs(20);
const EXAMPLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/router.yaml"));

/// A network namespace made with `ip`. It is removed when this value is dropped.
struct Namespace(String);

impl Namespace {
    fn new(what: &str) -> Result<Self, String> {
        let name = format!("forebay-{what}-{}", std::process::id());
        run("ip", &["netns", "add", &name])?;
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

    /// Runs a command in the namespace.
    fn command(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        run("ip", &[&["netns", "exec", &self.0, program], arguments].concat())
    }

    /// Gives the host in the namespace its addresses, and the router as default route.
    fn configure(&self, interface: &str, network: u8) -> Result<(), String> {
        let ip = |words: &str| {
            let words: Vec<_> = words.split(' ').collect();
            run("ip", &[&["-n", &self.0], &words[..]].concat())
        };
        ip("link set lo up")?;
        ip(&format!("link set {interface} up"))?;
        ip(&format!("addr add 10.{network}.0.2/24 dev {interface}"))?;
        ip(&format!("addr add 2001:db8:{network}::2/64 dev {interface} nodad"))?;
        ip(&format!("route add default via 10.{network}.0.1"))?;
        ip(&format!("route add default via 2001:db8:{network}::1"))?;
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.0]);
    }
}

fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("no `{program}`: {error}"))?;
    let trimmed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(trimmed(&output.stdout));
    }
    let (out, error) = (trimmed(&output.stdout), trimmed(&output.stderr));
    Err(format!("`{program} {}`: {out} {error}", arguments.join(" ")))
}

// Not with `println`, whose output the test harness hides.
fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

/// Sends a datagram of this length from `local` to `peer` until a reply or an error comes back, up to `times` times.
fn exchange(local: &str, peer: &str, length: usize, times: usize) -> Result<usize, ErrorKind> {
    let socket = UdpSocket::bind(local).expect("a local address");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
    let peer: SocketAddr = peer.parse().expect("an address");
    socket.connect(peer).map_err(|error| error.kind())?;
    let mut bytes = vec![0; 4_000];
    let mut last = ErrorKind::TimedOut;
    for _ in 0..times {
        // The kernel reports an error of an earlier datagram at the next call, whichever it is.
        if let Err(error) = socket.send(&vec![7; length]) {
            last = error.kind();
            continue;
        }
        match socket.recv(&mut bytes) {
            Ok(length) => return Ok(length),
            Err(error) => last = error.kind(),
        }
    }
    Err(last)
}

/// Tests the router and the host behind it as a client on the left.
fn run_client() {
    // The first packets wait until two neighbours are resolved each.
    assert_eq!(exchange("10.1.0.2:0", "10.2.0.2:7", 100, 5), Ok(100));
    assert_eq!(exchange("[2001:db8:1::2]:0", "[2001:db8:2::2]:7", 100, 5), Ok(100));
    // A closed port of the router, on both of its addresses.
    for (local, router) in
        [("10.1.0.2:0", "10.1.0.1:9"), ("10.1.0.2:0", "10.2.0.1:9"), ("[2001:db8:1::2]:0", "[2001:db8:1::1]:9")]
    {
        assert_eq!(exchange(local, router, 10, 3), Err(ErrorKind::ConnectionRefused), "{router}");
    }
    // Path MTU discovery: the router reports the MTU to the kernel, which then sends fragments. The replies are
    // reassembled.
    assert_eq!(exchange("10.1.0.2:0", "10.2.0.2:7", 1_450, 5), Ok(1_450));
    assert_eq!(exchange("[2001:db8:1::2]:0", "[2001:db8:2::2]:7", 1_440, 5), Ok(1_440));
    // A megabyte in both directions over TCP. The first segments are too long.
    for peer in ["10.2.0.2:80", "[2001:db8:2::2]:80"] {
        let mut stream = TcpStream::connect_timeout(&peer.parse().expect("an address"), LIMIT).expect("a connection");
        stream.set_read_timeout(Some(LIMIT)).expect("a time");
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| (n ^ n >> 8) as u8).collect();
        let mut reader = stream.try_clone().expect("a descriptor");
        let back = std::thread::scope(|scope| {
            let back = scope.spawn(move || {
                let mut back = vec![0; 1_000_000];
                reader.read_exact(&mut back).map(|()| back)
            });
            stream.write_all(&sent).expect("a connection");
            back.join().expect("it only reads").expect("all of it")
        });
        assert!(back == sent, "the reply is what was sent");
    }
}

/// Returns all received data to the senders.
fn echo(listeners: &[TcpListener], sockets: &[UdpSocket], done: &AtomicBool) {
    std::thread::scope(|scope| {
        for listener in listeners {
            scope.spawn(move || {
                let (mut stream, _) = listener.accept().expect("a connection");
                let mut bytes = [0; 65_536];
                loop {
                    match stream.read(&mut bytes) {
                        Ok(0) | Err(_) => break,
                        Ok(length) => stream.write_all(&bytes[..length]).expect("a connection"),
                    }
                }
            });
        }
        for socket in sockets {
            scope.spawn(move || {
                let mut bytes = [0; 4_000];
                while !done.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut bytes) {
                        let _ = socket.send_to(&bytes[..length], from);
                    }
                }
            });
        }
    });
}

#[test]
fn linux_reaches_the_router_and_hosts_behind_it() {
    let name = "linux_reaches_the_router_and_hosts_behind_it";
    let (left, right) = match (Namespace::new("left"), Namespace::new("right")) {
        (Ok(left), Ok(right)) => (left, right),
        (Err(why), _) | (_, Err(why)) => return skip(name, &why),
    };
    let within = |text: String, interface: &str, namespace: &Namespace| {
        let inside = format!("interface: {interface}, namespace: {} }}", namespace.0);
        let text = text.replace(&format!("interface: {interface} }}"), &inside);
        assert!(text.contains(&inside), "the example has an interface {interface}");
        text
    };
    let yaml = within(within(EXAMPLE.to_owned(), "left", &left), "right", &right);
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let plan = match load(&Source::new(yaml, "router", "."), conditions) {
        Ok(mut loaded) => loaded.plans.remove(0),
        Err(problems) if !std::path::Path::new("/dev/net/tun").exists() => return skip(name, &problems.to_string()),
        Err(problems) => panic!("{problems}"),
    };
    let mut worker = Worker::<_, RunToCompletion>::new(plan, Tsc, Vec::new()).expect("a plan");
    // The ports have created the interfaces.
    left.configure("left", 1).expect("addresses");
    right.configure("right", 2).expect("addresses");
    let bind = |address: &str| {
        let socket = UdpSocket::bind(address).expect("the right host's address");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
        socket
    };
    let (listeners, sockets) = right.run(|| {
        let listen = |address: &str| TcpListener::bind(address).expect("the right host's address");
        (["10.2.0.2:80", "[2001:db8:2::2]:80"].map(listen), ["10.2.0.2:7", "[2001:db8:2::2]:7"].map(bind))
    });
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| echo(&listeners, &sockets, &done));
        let client = scope.spawn(|| {
            // Ends the worker when the client ends, also by a panic.
            struct EndGuard<'a>(&'a AtomicBool);
            impl Drop for EndGuard<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _guard = EndGuard(&done);
            left.run(run_client);
            commands(&left);
        });
        while !done.load(Ordering::Relaxed) {
            match worker.turn() {
                Next::Now => {}
                // Leaves the core to other tests.
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        if let Err(panic) = client.join() {
            // Connects to the listeners, so that they do not wait any longer.
            for listener in &listeners {
                let address = listener.local_addr().expect("bound");
                let _ = right.run(|| TcpStream::connect(address));
            }
            std::panic::resume_unwind(panic);
        }
    });
    let census = worker.census();
    assert_eq!(census.missing(), 0, "{census:?}");
    assert_eq!(worker.shut_down(), Ok(()));
}

/// Checks the output of `ping` and `traceroute`, if they are installed.
fn commands(left: &Namespace) {
    for router_or_host in ["10.1.0.1", "10.2.0.1", "10.2.0.2", "2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::2"] {
        match left.command("ping", &["-n", "-c", "3", "-i", "0.2", "-W", "5", router_or_host]) {
            Ok(output) => assert!(output.contains(" 0% packet loss"), "{output}"),
            Err(why) if why.contains("No such file") => return skip("ping", &why),
            Err(why) => panic!("{why}"),
        }
    }
    // Time to live 1; an unknown network; a missing host, which the router reports after three requests.
    for (words, expected) in [
        ("-t 1 10.2.0.2", "From 10.1.0.1 icmp_seq=1 Time to live exceeded"),
        ("-t 1 2001:db8:2::2", "From 2001:db8:1::1 icmp_seq=1 Time exceeded: Hop limit"),
        ("10.9.0.2", "From 10.1.0.1 icmp_seq=1 Destination Net Unreachable"),
        ("2001:db8:9::2", "From 2001:db8:1::1 icmp_seq=1 Destination unreachable: No route"),
        ("10.2.0.99", "From 10.1.0.1 icmp_seq=1 Destination Host Unreachable"),
        ("2001:db8:2::99", "From 2001:db8:1::1 icmp_seq=1 Destination unreachable: Address unreachable"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let output = left.command("ping", &[&["-n", "-c", "1", "-W", "10"], &words[..]].concat());
        let output = output.expect_err("no reply comes back");
        assert!(output.contains(expected), "{output}");
    }
    for (host, router) in [("10.2.0.2", "10.1.0.1"), ("2001:db8:2::2", "2001:db8:1::1")] {
        match left.command("traceroute", &["-n", "-q", "1", "-w", "3", "-m", "4", host]) {
            Ok(output) => {
                let hops: Vec<_> = output.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
                assert_eq!(hops, [router, host], "{output}");
            }
            Err(why) if why.contains("No such file") => return skip("traceroute", &why),
            Err(why) => panic!("{why}"),
        }
    }
}
