//! A host on the left, a device in the middle, a host on the right: network namespaces of this process, and failures of
//! their interfaces.

use std::fs::File;
use std::io::{self, Write as _};
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Maximum time to wait for a condition on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Prints why a test is skipped. Not with `println`, whose output the test harness hides.
pub fn skip(what: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skipped: faults::{what}: {why}");
}

/// Skips a test because Forebay lacks a right, a kernel feature or a device. Other errors are failures.
pub fn skip_without(what: &str, err: &str) {
    const MISSING: [&str; 7] = [
        "needs the right",
        "takes the rights",
        "raise the limit",
        "the kernel has no",
        "/dev/net/tun",
        "Operation not permitted",
        "Function not implemented",
    ];
    assert!(MISSING.iter().any(|missing| err.contains(missing)), "{what}: it does not start: {err}");
    skip(what, err);
}

/// Waits until `is` returns true.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "timed out waiting until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Runs a command. Returns its standard output, or an error with its standard error.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(arguments).output().map_err(|error| format!("no `{program}`: {error}"))?;
    let trimmed = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(trimmed(&output.stdout));
    }
    Err(format!("`{program} {}`: {}", arguments.join(" "), trimmed(&output.stderr)))
}

/// A network namespace. It is removed when this value is dropped.
pub struct Namespace(pub String);

impl Namespace {
    fn new(what: &str) -> Result<Self, String> {
        let name = format!("forebay-{what}-{}", std::process::id());
        run("ip", &["netns", "add", &name])?;
        Ok(Self(name))
    }

    /// Runs the command `ip` in the namespace.
    pub fn ip(&self, words: &str) -> Result<String, String> {
        let words: Vec<_> = words.split_whitespace().collect();
        run("ip", &[&["-n", &self.0], &words[..]].concat())
    }

    /// Returns the command prefix that runs a command in the namespace.
    pub fn by(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.0]
    }

    /// Runs a function on a thread in the namespace.
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

    /// Returns true if the namespace has an interface with this name.
    pub fn has(&self, interface: &str) -> bool {
        self.ip(&format!("link show {interface}")).is_ok()
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = run("ip", &["netns", "del", &self.0]);
    }
}

/// Three namespaces in a row: `l0` on the left is connected to the device's `d0`, `r0` on the right to its `d1`. The
/// left has the address 10.0.0.1, the right 10.0.0.2. Both have static neighbour entries, so the device needs no
/// address.
pub struct Row {
    pub left: Namespace,
    pub device: Namespace,
    pub right: Namespace,
}

const MAC: [&str; 2] = ["02:00:00:00:00:01", "02:00:00:00:00:02"];

impl Row {
    /// Creates the namespaces. If a right or a command is missing, prints the reason and returns `None`.
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

    /// Creates the pair of interfaces on the left.
    pub fn connect_left(&self) -> Result<(), String> {
        let right_exists = self.right.has("r0");
        pair(&self.left, "l0", 0, &self.device, "d0")?;
        // A static neighbour entry is removed together with the interface.
        if right_exists { neighbour(&self.left, "l0", 1) } else { Ok(()) }
    }

    /// Creates the pair of interfaces on the right.
    pub fn connect_right(&self) -> Result<(), String> {
        pair(&self.right, "r0", 1, &self.device, "d1")?;
        neighbour(&self.right, "r0", 0)?;
        neighbour(&self.left, "l0", 1)
    }
}

fn pair(host: &Namespace, name: &str, number: usize, device: &Namespace, other: &str) -> Result<(), String> {
    // Without `address` the kernel chooses one. IPv6 is off because it would send packets by itself.
    for namespace in [host, device] {
        run("ip", &["netns", "exec", &namespace.0, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1"])?;
    }
    host.ip(&format!("link add {name} address {} type veth peer name {other} netns {}", MAC[number], device.0))?;
    host.ip(&format!("addr add 10.0.0.{}/24 dev {name}", number + 1))?;
    host.ip(&format!("link set {name} up"))?;
    device.ip(&format!("link set {other} up"))?;
    // The kernel computes checksums itself, because a virtual interface does not.
    run("ip", &["netns", "exec", &host.0, "ethtool", "-K", name, "tx", "off"]).map(drop).or(Ok::<_, String>(()))?;
    // The kernel reports the carrier up to a second later. A run has to handle that.
    Ok(())
}

fn neighbour(host: &Namespace, name: &str, number: usize) -> Result<(), String> {
    host.ip(&format!("neigh replace 10.0.0.{} lladdr {} dev {name}", number + 1, MAC[number])).map(drop)
}

/// Traffic from left to right during a test.
pub struct Traffic<'a> {
    received: &'a AtomicU64,
}

impl Traffic<'_> {
    /// Waits until packets that are sent from now on arrive.
    pub fn until_received(&self, what: &str) {
        // After this time no earlier packet is under way.
        std::thread::sleep(Duration::from_millis(50));
        let before = self.received.load(Ordering::Relaxed);
        until(what, || self.received.load(Ordering::Relaxed) > before + 20);
    }
}

/// Runs `test` while datagrams go from left to right: bursts of `burst` with pauses between them. With a pause of 0
/// there is none.
pub fn with_traffic(row: &Row, burst: usize, pause: Duration, test: impl FnOnce(&Traffic<'_>)) {
    let (received, over) = (AtomicU64::new(0), AtomicBool::new(false));
    /// Ends the threads when the test ends, also by a panic.
    struct EndGuard<'a>(&'a AtomicBool);
    impl Drop for EndGuard<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            row.left.inside(|| {
                let (mut socket, mut number) = (None, 0u64);
                while !over.load(Ordering::Relaxed) {
                    // The interface may be removed: then the kernel refuses.
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
                let socket = UdpSocket::bind("0.0.0.0:7001").expect("the port is free");
                socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a time");
                let mut bytes = [0; 64];
                while !over.load(Ordering::Relaxed) {
                    if let Ok(length) = socket.recv(&mut bytes) {
                        assert_eq!(
                            (length, &bytes[..8]),
                            (32, &bytes[8..16]),
                            "received packets are those that were sent"
                        );
                        received.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        });
        let _over = EndGuard(&over);
        test(&Traffic { received: &received });
    });
}
