//! Interfaces for tests, in a network namespace that ends with the test's thread.

#![expect(unsafe_code, reason = "a thread moves to its own namespace, which the compiler cannot check")]

use std::io::{self, Write as _};
use std::process::Command;
use std::time::Duration;

use rustix::thread::UnshareFlags;

use super::Control;

/// Reports why a test does not run. It does not use `println`, whose output the test harness captures.
pub(crate) fn skip(name: &str, why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {name}: {why}");
}

/// Runs the command `ip` in the calling thread's namespace. Returns true if it succeeded.
pub(crate) fn ip(arguments: &str) -> bool {
    Command::new("ip").args(arguments.split_whitespace()).status().is_ok_and(|status| status.success())
}

/// Runs a test on a thread in its own network namespace, with a veth pair `va`, `vb` that is up and sends nothing by
/// itself. Skips the test, with a message, if a capability or a command is missing.
pub(crate) fn with_pair(name: &str, test: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: only this thread's network namespace changes, and no file descriptor is closed.
            if let Err(error) = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) } {
                return skip(name, &format!("cannot create a network namespace: {error}"));
            }
            if Command::new("ip").arg("-V").output().is_err() {
                return skip(name, "the command `ip`, which creates interfaces, is missing");
            }
            if !make_pair() {
                return skip(name, "cannot create a veth pair: a capability or the kernel module is missing");
            }
            test();
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Creates the pair of [`with_pair`] in the calling thread's namespace. Returns true if both ends have a carrier.
pub(crate) fn make_pair() -> bool {
    // `/proc/sys/net` shows the namespace of the thread that opens it.
    let disable_ipv6 = |interface: &str| {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1").is_ok()
            || !interface.starts_with("def")
    };
    disable_ipv6("default")
        && ip("link add name va address 02:00:00:00:00:0a type veth peer name vb address 02:00:00:00:00:0b")
        && ["va", "vb"].iter().all(|name| ip(&format!("link set {name} up")))
        && await_carrier("va")
        && await_carrier("vb")
}

/// Waits up to 10 seconds until the kernel reports a carrier for an interface. Returns true if it does.
fn await_carrier(name: &str) -> bool {
    let name = name.to_owned().try_into().expect("a name");
    let control = Control::new().expect("a socket");
    (0..2_000).any(|_| {
        std::thread::sleep(Duration::from_millis(5));
        control.state(&name).is_ok_and(|state| state.is_some_and(|state| state.running))
    })
}
