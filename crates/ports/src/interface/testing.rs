//! Interfaces for tests: a network namespace of the test's own, which goes with its thread.

#![expect(unsafe_code, reason = "a thread leaves for a namespace of its own, which Rust cannot vouch for")]

use std::io::{self, Write as _};
use std::process::Command;
use std::time::Duration;

use rustix::thread::UnshareFlags;

use super::Control;

/// Says why a test does not run: not by `println`, which the test harness keeps to itself.
pub(crate) fn skip(name: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {name}: {why}");
}

/// The command `ip` in the calling thread's namespace; whether it did what it was told.
pub(crate) fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).status().is_ok_and(|status| status.success())
}

/// Runs a test on a thread in a network namespace of its own, in which a veth pair `va`, `vb` is up and says nothing by itself;
/// not where a right or a command for that is missing, which is said.
pub(crate) fn with_pair(name: &str, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread's network namespace changes, and no file descriptor is closed.
            if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
                return skip(name, &format!("no network namespace of its own: {error}"));
            }
            if Command::new("ip").arg("-V").output().is_err() {
                return skip(name, "the command `ip` is missing, which makes interfaces");
            }
            if !make_pair() {
                return skip(name, "no veth pair: a right or the kernel's module is missing");
            }
            test();
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Makes the pair.
pub(crate) fn make_pair() -> bool {
    // `/proc/sys/net` is the namespace's of who opens it.
    let quiet = |which: &str| {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1").is_ok()
            || !which.starts_with("def")
    };
    quiet("default")
        && ip("link add name va address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b")
        && ["va", "vb"].iter().all(|name| ip(&format!("link set {name} up")))
        && has_link("va")
        && has_link("vb")
}

/// Waits until the kernel says that an interface has a link, which takes it a moment.
fn has_link(name: &str) -> bool {
    let name = name.to_owned().try_into().expect("a name");
    let control = Control::here().expect("a socket");
    (0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        control.state(&name).is_ok_and(|state| state.is_some_and(|state| state.running))
    })
}
