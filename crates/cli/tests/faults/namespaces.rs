//! A host on the left, a device in the middle, a host on the right: network namespaces of this process' own, with what goes
//! wrong with interfaces.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// How long something may take to come about on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Says why a test does not run: not by `println`, which the test harness keeps to itself.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skipped: faults::{what}: {why}");
}

/// The same where Forebay did not start: for want of a right, of something in the kernel or of a device. All else is a failure.
pub fn skip_without(what: &str, said: &str) {
    const MISSING: [&str; 7] = [
        "needs the right",
        "takes the rights",
        "raise the limit",
        "the kernel has no",
        "/dev/net/tun",
        "Operation not permitted",
        "Function not implemented",
    ];
    assert!(MISSING.iter().any(|missing| said.contains(missing)), "{what}: it does not start: {said}");
    skip(what, said);
}

/// Waits until `is` holds.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "it takes too long until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command; what it printed, or what it said.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("no `{program}`: {error}"))?;
    let shown = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(shown(&output.stdout));
    }
    Err(format!("`{program} {}`: {}", arguments.join(" "), shown(&output.stderr)))
}

/// A network namespace that goes with the value.
pub struct Namespace(pub String);

impl Namespace {
    fn new(what: &str) -> Result<Self, String> {
        let name = format!("forebay-{what}-{}", std::process::id());
        run("ip", &["netns", "add", &name])?;
        Ok(Self(name))
    }

    /// The command `ip` in it.
    pub fn ip(&self, words: &str) -> Result<String, String> {
        let words: Vec<_> = words.split_whitespace().collect();
        run("ip", &[&["-n", &self.0], &words[..]].concat())
    }

    /// What runs a command in it.
    pub fn by(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.0]
    }

    /// Runs something on a thread in it.
    pub fn inside<T: Send>(&self, what: impl FnOnce() -> T + Send) -> T {
        let file = File::open(format!("/run/netns/{}", self.0)).expect("it was made");
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("the right to");
                what()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Whether there is an interface of this name in it.
    pub fn has(&self, interface: &str) -> bool {
        self.ip(&format!("link show {interface}")).is_ok()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.0]);
    }
}

/// Three namespaces in a row: `l0` on the left is connected to the device's `d0`, `r0` on the right to its `d1`. The left has
/// 10.0.0.1, the right 10.0.0.2, and they know each other's Ethernet addresses: the device needs none.
pub struct Row {
    pub left: Namespace,
    pub device: Namespace,
    pub right: Namespace,
}

const MAC: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

impl Row {
    /// `None` where a right or a command is missing, which is said.
    pub fn new(what: &str, short: &str) -> Option<Self> {
        let row = || {
            let row = Self {
                left: Namespace::new(&format!("{short}-l"))?,
                device: Namespace::new(&format!("{short}-d"))?,
                right: Namespace::new(&format!("{short}-r"))?,
            };
            row.connect_left()?;
            row.connect_right()?;
            Ok(row)
        };
        row().map_err(|why: String| skip(what, &why)).ok()
    }

    /// Makes the pair on the left.
    pub fn connect_left(&self) -> Result<(), String> {
        let there = self.right.has("r0");
        pair(&self.left, "l0", 0, &self.device, "d0")?;
        // A neighbour that is known stays only as long as the interface does.
        if there { neighbour(&self.left, "l0", 1) } else { Ok(()) }
    }

    /// Makes the pair on the right.
    pub fn connect_right(&self) -> Result<(), String> {
        pair(&self.right, "r0", 1, &self.device, "d1")?;
        neighbour(&self.right, "r0", 0)?;
        neighbour(&self.left, "l0", 1)
    }
}

fn pair(host: &Namespace, name: &str, number: usize, device: &Namespace, other: &str) -> Result<(), String> {
    // Without `address` the kernel makes one up; IPv6 would say things by itself.
    for namespace in [host, device] {
        run("ip", &["netns", "exec", &namespace.0, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])?;
    }
    host.ip(&format!("link add {name} address {} type veth peer name {other} netns {}", MAC[number], device.0))?;
    host.ip(&format!("addr add 10.0.0.{}/24 dev {name}", number + 1))?;
    host.ip(&format!("link set {name} up"))?;
    device.ip(&format!("link set {other} up"))?;
    // The kernel sums checksums itself: nothing is left to an interface that there is not.
    run("ip", &["netns", "exec", &host.0, "ethtool", "-K", name, "tx", "off"]).map(drop).or(Ok::<_, String>(()))?;
    // The kernel reports the carrier up to a second later: a run has to do with that.
    Ok(())
}

fn neighbour(host: &Namespace, name: &str, number: usize) -> Result<(), String> {
    host.ip(&format!("neigh replace 10.0.0.{} lladdr {} dev {name}", number + 1, MAC[number])).map(drop)
}

/// Traffic from left to right that goes on as long as a test does: what has come.
pub struct Traffic<'a> {
    came: &'a AtomicU64,
}

impl Traffic<'_> {
    /// Waits until something that is sent from now on comes.
    pub fn until_it_comes(&self, what: &str) {
        // Nothing of before waits that long anywhere.
        std::thread::sleep(Duration::from_millis(50));
        let before = self.came.load(Ordering::Relaxed);
        until(what, || self.came.load(Ordering::Relaxed) > before + 20);
    }
}

/// Runs `test` while datagrams go from left to right: so many at a time, then a pause (0: none at all).
pub fn with_traffic(row: &Row, burst: usize, pause: Duration, test: impl FnOnce(&Traffic<'_>)) {
    let (came, over) = (AtomicU64::new(0), AtomicBool::new(false));
    /// However the test ends, the threads do.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            row.left.inside(|| {
                let (mut socket, mut number) = (None, 0u64);
                while !over.load(Ordering::Relaxed) {
                    // The interface may be away: then the kernel refuses.
                    let open = socket.take().or_else(|| UdpSocket::bind("0.0.0.0:7000").ok());
                    if let Some(open) = open {
                        for _ in 0..burst {
                            number += 1;
                            if open.send_to(&number.to_be_bytes().repeat(4), "10.0.0.2:7001").is_err() {
                                std::thread::sleep(Duration::from_millis(1));
                            }
                        }
                        socket = Some(open);
                    }
                    if !pause.is_zero() {
                        std::thread::sleep(pause);
                    }
                }
            });
        });
        scope.spawn(|| {
            row.right.inside(|| {
                let socket = UdpSocket::bind("0.0.0.0:7001").expect("nobody else has it");
                socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
                let mut bytes = [0; 64];
                while !over.load(Ordering::Relaxed) {
                    if let Ok(length) = socket.recv(&mut bytes) {
                        assert_eq!((length, &bytes[..8]), (32, &bytes[8..16]), "what comes is what was sent");
                        came.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        });
        let _over = Over(&over);
        test(&Traffic { came: &came });
    });
}
