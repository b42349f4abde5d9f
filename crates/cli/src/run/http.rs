//! `run --http`: starts the server as a child process that ends with the run.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use forebay_host::users;
use forebay_instance::events::{EventLog, NewEvent};
use forebay_protocol::event::EventName;
use forebay_server::{Listen, check_address, notify};
use rustix::process::{Pid, Signal, geteuid, kill_process};

/// The user of the HTTP process, if root runs the pipeline and the host has no user of the server: the number that most
/// systems give to the user without rights.
const NO_RIGHTS: &str = "65534";
/// The time in which the server must end.
const PATIENCE: Duration = Duration::from_secs(2);

/// Checks that a server could listen at an address. When it starts, packets run already.
pub(super) fn check(listen: &Listen) -> anyhow::Result<()> {
    if listen.is_public() {
        bail!(
            "--http {listen}: it can be reached from other machines: listen at 127.0.0.1, or start `forebay serve` \
             with `tls` and `tokens`"
        );
    }
    check_address(listen).with_context(|| format!("--http {listen}"))
}

/// The server of a run. It ends when this value is dropped.
pub(super) struct HttpServer {
    child: Child,
    reader: Option<JoinHandle<()>>,
    /// Set before the server receives the signal to end.
    is_ending: Arc<AtomicBool>,
}

impl HttpServer {
    /// Starts the server at `listen` for the pipeline whose socket is at `socket`. Returns when the server accepts
    /// connections.
    pub(super) fn start(listen: &Listen, socket: &Path, log: &Arc<EventLog>) -> anyhow::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.args(["serve", "--store", "memory", "--listen"]).arg(listen.to_string()).arg("--only").arg(socket);
        command.arg("--parent").arg(std::process::id().to_string());
        // The service manager has started the run, and not this server.
        notify::hide_from(&mut command);
        if geteuid().is_root() {
            let known = users::find(Path::new("/"), super::super::serve::USER).map(|user| user.name);
            command.arg("--user").arg(known.unwrap_or_else(|_| NO_RIGHTS.to_owned()));
        }
        // In a process group of its own, the server does not receive Ctrl-C: it ends after the run.
        command.process_group(0);
        // The server's log would disturb the live table and lines of JSON, so a thread reads and discards it.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("--http {listen}"))?;
        let Some(stderr) = child.stderr.take() else { bail!("--http {listen}: the server has no standard error") };
        let mut server = Self { child, reader: None, is_ending: Arc::default() };
        let mut lines = BufReader::new(stderr);
        // If the port is 0, the system has chosen one.
        let listen = server.wait_for_start(&mut lines).with_context(|| format!("--http {listen}"))?;
        let message = format!("the API and the metrics of this run are at {listen}");
        log.record(NewEvent::new(EventName::HttpStarted, message).with("listen", listen.as_str()));
        let (log, is_ending) = (Arc::clone(log), Arc::clone(&server.is_ending));
        let follow = move || {
            let mut line = Vec::new();
            while lines.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
                line.clear();
            }
            if is_ending.load(Ordering::Relaxed) {
                return;
            }
            let message = "the server of --http has ended; the pipeline continues";
            log.record(NewEvent::new(EventName::HttpEnded, message).with("listen", listen));
        };
        server.reader = Some(std::thread::Builder::new().name("http".to_owned()).spawn(follow)?);
        Ok(server)
    }

    /// Reads the log of the server until it accepts connections. Returns its address.
    fn wait_for_start(&mut self, lines: &mut BufReader<ChildStderr>) -> anyhow::Result<String> {
        let mut all = String::new();
        loop {
            let start = all.len();
            if lines.read_line(&mut all)? == 0 {
                bail!("{}", all.trim_end().trim_start_matches("error: "));
            }
            let line = all[start..].trim_end();
            if let Some((_, address)) =
                line.split_once(" event=serving ").and_then(|(_, rest)| rest.split_once("\"at "))
            {
                return Ok(address.trim_end_matches('"').to_owned());
            }
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_ending.store(true, Ordering::Relaxed);
        // The child's exit status is taken only here, so its process ID belongs to it.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() >= until {
                let _ = self.child.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
