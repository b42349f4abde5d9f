//! A service manager's end of the protocol sd_notify(3).

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A service manager's end of the messages.
pub struct Manager {
    socket: UnixDatagram,
    pub path: PathBuf,
}

impl Manager {
    pub fn in_folder(folder: &Path) -> Self {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).expect("a writable folder");
        // The HTTP process has another user than the tests.
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("own file");
        Self { socket, path }
    }

    /// Returns the next message; `None` if none comes for so long.
    pub fn next(&self, patience: Duration) -> Option<String> {
        self.socket.set_read_timeout(Some(patience)).expect("a socket");
        let mut buffer = [0; 4_096];
        let length = self.socket.recv(&mut buffer).ok()?;
        Some(String::from_utf8(buffer[..length].to_vec()).expect("UTF-8"))
    }

    /// Returns the next message that is not about the watchdog.
    pub fn state(&self) -> String {
        loop {
            let message = self.next(Duration::from_secs(60)).expect("a message");
            if message != "WATCHDOG=1\n" {
                return message;
            }
        }
    }

    /// Waits for a message about the watchdog.
    pub fn alive(&self) {
        while self.next(Duration::from_secs(60)).expect("a message") != "WATCHDOG=1\n" {}
    }
}
