//! Messages to the service manager that started this process: systemd's protocol, sd_notify(3).
//!
//! A service manager names its socket in `$NOTIFY_SOCKET`. Without it, nothing is sent.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use forebay_protocol::event::on_one_line;
use sd_notify::NotifyState;

/// The largest number of messages that wait for a service manager that is busy. The last ones say in which state the
/// process is, so few are enough.
const WAITING: usize = 8;
/// The beginning of a message that is only for people.
const STATUS: &str = "STATUS=";
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

/// The service manager, as the receiver of messages. Sending never waits: if the service manager is busy, messages
/// about the state are kept, and [`flush`](Self::flush) sends them later. If nobody listens, they are discarded.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    /// `None` if there is no service manager.
    socket: Option<SocketAddr>,
    /// The messages that the service manager has not accepted yet, oldest first.
    waiting: Arc<Mutex<VecDeque<String>>>,
}

impl Notifier {
    /// Returns the service manager in `$NOTIFY_SOCKET`, if there is one.
    #[must_use]
    pub fn from_env() -> Self {
        Self { socket: env::var_os("NOTIFY_SOCKET").and_then(|name| address(&name)), ..Self::default() }
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

    /// Reports that the process works ([`keep_alive_interval`]), after the messages that wait.
    pub fn keep_alive(&self) {
        self.flush();
        // The next one is due soon, so that this one need not wait.
        self.accepts(&text(&[NotifyState::Watchdog]));
    }

    /// Sends the messages that wait for the service manager. Must be called every few seconds.
    pub fn flush(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.front().is_some_and(|text| self.accepts(text)) {
            waiting.pop_front();
        }
    }

    fn send(&self, states: &[NotifyState<'_>]) {
        if self.socket.is_none() {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let text = text(states);
        // A new line for people replaces an older one. The other messages must not be lost.
        if text.starts_with(STATUS) {
            waiting.retain(|waiting| !waiting.starts_with(STATUS));
        }
        if waiting.len() == WAITING {
            waiting.pop_front();
        }
        waiting.push_back(text);
        drop(waiting);
        self.flush();
    }

    /// Sends a message. Returns false if the service manager is busy.
    fn accepts(&self, text: &str) -> bool {
        let Some(address) = &self.socket else { return true };
        let send = || {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to_addr(text.as_bytes(), address)
        };
        !send().is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

/// Returns the text of a message.
fn text(states: &[NotifyState<'_>]) -> String {
    states.iter().map(|state| format!("{state}\n")).collect()
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
    use std::path::Path;

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
            let notifier = Notifier { socket: address(OsStr::new(&name)), ..Notifier::default() };
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
        let nobody = Notifier { socket: address(Path::new("/nowhere/notify").as_os_str()), ..Notifier::default() };
        nobody.ready("at 127.0.0.1:1");
        assert!(nobody.waiting.lock().expect("one thread").is_empty());
        assert!(address(OsStr::new("vsock:2:1")).is_none());
    }

    #[test]
    fn messages_wait_for_a_busy_service_manager() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a free name");
        let notifier = Notifier { socket: address(path.as_os_str()), ..Notifier::default() };
        let mut queued = 0;
        while notifier.accepts("WATCHDOG=1\n") {
            queued += 1;
        }
        // The queue of the socket is full.
        notifier.ready("idle");
        notifier.keep_alive();
        for _ in 0..queued {
            assert_eq!(next(&manager), "WATCHDOG=1\n");
        }
        notifier.keep_alive();
        assert_eq!(next(&manager), "READY=1\nSTATUS=idle\n");
        assert_eq!(next(&manager), "WATCHDOG=1\n");

        // Many lines for people displace no other message, and the newest of many messages stay.
        while notifier.accepts("WATCHDOG=1\n") {}
        notifier.ready("idle");
        for at in 0..WAITING + 3 {
            notifier.status(&at.to_string());
        }
        let waiting = || Vec::from(notifier.waiting.lock().expect("one thread").clone());
        assert_eq!(waiting(), ["READY=1\nSTATUS=idle\n", "STATUS=10\n"]);
        for _ in 0..WAITING {
            notifier.reloading();
            notifier.reloaded();
        }
        assert_eq!((waiting().len(), waiting().last().map(String::as_str)), (WAITING, Some("READY=1\n")));
    }
}
