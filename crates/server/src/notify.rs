//! Messages to the service manager that started this process: systemd's protocol, sd_notify(3).
//!
//! A service manager names its socket in `$NOTIFY_SOCKET`. Without it, nothing is sent.

use std::env;
use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::time::Duration;

use forebay_protocol::event::on_one_line;
use sd_notify::NotifyState;

/// The longest time for which a message waits for a service manager that is busy.
const PATIENCE: Duration = Duration::from_secs(1);
/// The variables by which a service manager addresses the process that it started.
const VARIABLES: [&str; 6] =
    ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Removes the variables of the service manager from the environment of a child, because they are not meant for it.
pub fn hide_from(child: &mut Command) {
    for variable in VARIABLES {
        child.env_remove(variable);
    }
}

/// Lets a child send messages in place of this process, also those of the watchdog. Sockets that the service manager
/// has opened stay with this process.
pub fn hand_over(child: &mut Command) {
    let limit = limit();
    hide_from(child);
    if let Some(socket) = env::var_os("NOTIFY_SOCKET") {
        child.env("NOTIFY_SOCKET", socket);
    }
    // Without `$WATCHDOG_PID`, the limit holds for the process that has the variable.
    if let Some(limit) = limit {
        child.env("WATCHDOG_USEC", limit.as_micros().to_string());
    }
}

/// Returns the interval at which this process must report that it works: half the limit of the watchdog. `None` if the
/// service manager does not watch this process.
#[must_use]
pub fn keep_alive_interval() -> Option<Duration> {
    limit().map(|limit| limit / 2)
}

/// Returns the limit of the watchdog, if the service manager watches this process.
fn limit() -> Option<Duration> {
    sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())
}

/// The service manager, as the receiver of messages. A message that cannot be sent is discarded: the service manager
/// notices that it is missing.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    /// `None` if there is no service manager.
    socket: Option<SocketAddr>,
}

impl Notifier {
    /// Returns the service manager in `$NOTIFY_SOCKET`, if there is one.
    #[must_use]
    pub fn from_env() -> Self {
        Self { socket: env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name)) }
    }

    /// Reports that the process has started. `status` is one line for people.
    pub fn ready(&self, status: &str) {
        self.send(&[NotifyState::Ready, NotifyState::Status(&on_one_line(status))]);
    }

    /// Reports another state of the process: one line for people.
    pub fn status(&self, status: &str) {
        self.send(&[NotifyState::Status(&on_one_line(status))]);
    }

    /// Reports that a reload has begun. [`reloaded`](Self::reloaded) must follow, also if the reload is refused.
    pub fn reloading(&self) {
        // Without the time, the service manager cannot know which of its signals this reload belongs to.
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            self.send(&[NotifyState::Reloading, now]);
        }
    }

    /// Reports that a reload has ended.
    pub fn reloaded(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// Reports that the process finishes its work and then ends.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping, NotifyState::Status("ending")]);
    }

    /// Reports that the process works ([`keep_alive_interval`]).
    pub fn keep_alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        let Some(address) = &self.socket else { return };
        let text: String = states.iter().map(|state| format!("{state}\n")).collect();
        let send = || {
            let socket = UnixDatagram::unbound()?;
            socket.set_write_timeout(Some(PATIENCE))?;
            socket.send_to_addr(text.as_bytes(), address)
        };
        let _ = send();
    }
}

/// Returns the address of a socket: a path, or an abstract name that begins with `@`. `None` for other texts.
fn address(name: &OsStr) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(name).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the next message at a socket.
    fn next(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        let mut buffer = [0; 4_096];
        let length = socket.recv(&mut buffer).expect("a message");
        String::from_utf8(buffer[..length].to_vec()).expect("UTF-8")
    }

    #[test]
    fn messages_are_sent_to_paths_and_to_abstract_names() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("notify");
        let name = format!("forebay-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).expect("a short name");
        for (socket, name) in [
            (UnixDatagram::bind(&path), path.display().to_string()),
            (UnixDatagram::bind_addr(&abstract_address), format!("@{name}")),
        ] {
            let socket = socket.expect("a free name");
            let notifier = Notifier { socket: address(OsStr::new(&name)) };
            notifier.ready("at 127.0.0.1:1\nREADY=0");
            assert_eq!(next(&socket), "READY=1\nSTATUS=at 127.0.0.1:1\\u000aREADY=0\n");
            notifier.reloading();
            let text = next(&socket);
            let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect("two lines");
            assert!(time.trim_end().parse::<u64>().is_ok_and(|time| time > 0), "{text}");
            notifier.reloaded();
            assert_eq!(next(&socket), "READY=1\n");
            notifier.status("idle");
            assert_eq!(next(&socket), "STATUS=idle\n");
            notifier.stopping();
            assert_eq!(next(&socket), "STOPPING=1\nSTATUS=ending\n");
            notifier.keep_alive();
            assert_eq!(next(&socket), "WATCHDOG=1\n");
        }
        // Nothing listens there: the messages are discarded.
        Notifier { socket: address(path.as_os_str()) }.keep_alive();
        assert!(address(OsStr::new("vsock:2:1")).is_none());
    }
}
