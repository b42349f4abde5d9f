//! A router that Linux has for a neighbour on both sides: the example `router.yaml` between two network namespaces.

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

/// A network namespace that `ip` has made, and that goes with the value.
struct Namespace(String);

impl Namespace {
    fn new(what: &str) -> Result<Self, String> {
        let name = format!("forebay-{what}-{}", std::process::id());
        run("ip", &["netns", "add", &name])?;
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

    /// Runs a command in it.
    fn command(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        run("ip", &[&["netns", "exec", &self.0, program], arguments].concat())
    }

    /// Gives the host there its addresses, and the router for all else.
    fn settle(&self, interface: &str, network: u8) -> Result<(), String> {
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
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(shown(&output.stdout));
    }
    let (out, error) = (shown(&output.stdout), shown(&output.stderr));
    Err(format!("`{program} {}`: {out} {error}", arguments.join(" ")))
}

// Not `println`, which the test harness keeps to itself.
fn skip(what: &str, why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

/// Sends a datagram of this length from `local` to `peer` until something comes back, or an error; up to so many times.
fn ask(local: &str, peer: &str, length: usize, times: usize) -> Result<usize, ErrorKind> {
    let socket = UdpSocket::bind(local).expect("an own address");
    socket.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
    let peer: SocketAddr = peer.parse().expect("an address");
    socket.connect(peer).map_err(|error| error.kind())?;
    let mut bytes = vec![0; 4_000];
    let mut last = ErrorKind::TimedOut;
    for _ in 0..times {
        // An error that came for the datagram before is told at the next call, whichever that is.
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

/// What a client on the left sees of the router and of the host behind it.
fn talk() {
    // The first packets wait for two neighbours each.
    assert_eq!(ask("10.1.0.2:0", "10.2.0.2:7", 100, 5), Ok(100));
    assert_eq!(ask("[2001:db8:1::2]:0", "[2001:db8:2::2]:7", 100, 5), Ok(100));
    // A port of the router at which nobody is; on both of its addresses.
    for (local, router) in
        [("10.1.0.2:0", "10.1.0.1:9"), ("10.1.0.2:0", "10.2.0.1:9"), ("[2001:db8:1::2]:0", "[2001:db8:1::1]:9")]
    {
        assert_eq!(ask(local, router, 10, 3), Err(ErrorKind::ConnectionRefused), "{router}");
    }
    // Path MTU discovery: the kernel is told, and sends fragments from then on. These come back whole.
    assert_eq!(ask("10.1.0.2:0", "10.2.0.2:7", 1_450, 5), Ok(1_450));
    assert_eq!(ask("[2001:db8:1::2]:0", "[2001:db8:2::2]:7", 1_440, 5), Ok(1_440));
    // A megabyte each way by TCP, with segments that are too long at first.
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
        assert!(back == sent, "what came back is what was sent");
    }
}

/// Gives back all that comes.
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
fn linux_finds_the_router_and_hosts_behind_it() {
    let name = "linux_finds_the_router_and_hosts_behind_it";
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
    // The ports have made the interfaces.
    left.settle("left", 1).expect("addresses");
    right.settle("right", 2).expect("addresses");
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
            // Whatever becomes of it, the worker ends.
            struct Ends<'a>(&'a AtomicBool);
            impl Drop for Ends<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Relaxed);
                }
            }
            let _ends = Ends(&done);
            left.run(talk);
            commands(&left);
        });
        while !done.load(Ordering::Relaxed) {
            match worker.turn() {
                Next::Now => {}
                // There are other tests on this machine.
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        if let Err(panic) = client.join() {
            // Those that listen wait for nobody any more.
            for listener in &listeners {
                let address = listener.local_addr().expect("bound");
                let _ = right.run(|| TcpStream::connect(address));
            }
            std::panic::resume_unwind(panic);
        }
    });
    let census = worker.census();
    assert_eq!(census.missing(), 0, "{census:?}");
    assert_eq!(worker.wind_up(), Ok(()));
}

/// What the usual commands say, where they are installed.
fn commands(left: &Namespace) {
    for router_or_host in ["10.1.0.1", "10.2.0.1", "10.2.0.2", "2001:db8:1::1", "2001:db8:2::1", "2001:db8:2::2"] {
        match left.command("ping", &["-n", "-c", "3", "-i", "0.2", "-W", "5", router_or_host]) {
            Ok(said) => assert!(said.contains(" 0% packet loss"), "{said}"),
            Err(why) if why.contains("No such file") => return skip("ping", &why),
            Err(why) => panic!("{why}"),
        }
    }
    // Time to live 1; a network that nobody knows; a host that is not there, whose sender is told after three questions.
    for (words, told) in [
        ("-t 1 10.2.0.2", "From 10.1.0.1 icmp_seq=1 Time to live exceeded"),
        ("-t 1 2001:db8:2::2", "From 2001:db8:1::1 icmp_seq=1 Time exceeded: Hop limit"),
        ("10.9.0.2", "From 10.1.0.1 icmp_seq=1 Destination Net Unreachable"),
        ("2001:db8:9::2", "From 2001:db8:1::1 icmp_seq=1 Destination unreachable: No route"),
        ("10.2.0.99", "From 10.1.0.1 icmp_seq=1 Destination Host Unreachable"),
        ("2001:db8:2::99", "From 2001:db8:1::1 icmp_seq=1 Destination unreachable: Address unreachable"),
    ] {
        let words: Vec<_> = words.split(' ').collect();
        let said = left.command("ping", &[&["-n", "-c", "1", "-W", "10"], &words[..]].concat());
        let said = said.expect_err("nothing comes back");
        assert!(said.contains(told), "{said}");
    }
    for (host, router) in [("10.2.0.2", "10.1.0.1"), ("2001:db8:2::2", "2001:db8:1::1")] {
        match left.command("traceroute", &["-n", "-q", "1", "-w", "3", "-m", "4", host]) {
            Ok(said) => {
                let hops: Vec<_> = said.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
                assert_eq!(hops, [router, host], "{said}");
            }
            Err(why) if why.contains("No such file") => return skip("traceroute", &why),
            Err(why) => panic!("{why}"),
        }
    }
}
