//! A command that starts other processes leaves no process and no temporary file when it is ended.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::forebay;
use crate::measure::has_valgrind;
use crate::running::temporary;

/// Maximum time to wait for a condition on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is` returns a value, and returns the value.
fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match is() {
            Some(value) => return value,
            None => assert!(start.elapsed() < PATIENCE, "timed out waiting until {what}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A command with its own folder for temporary files.
struct Started {
    process: Child,
    folder: TempDir,
}

impl Started {
    /// Starts the command and waits until it has started child processes. Returns both.
    fn new(arguments: &[&str]) -> (Self, Vec<Pid>) {
        let folder = temporary();
        let process = Command::new(env!("CARGO_BIN_EXE_forebay"))
            .args(arguments)
            .env("TMPDIR", folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command can be started");
        let mut started = Self { process, folder };
        let children = until("it starts others", || {
            assert_eq!(started.process.try_wait().expect("a child"), None, "it has ended");
            Some(children(started.process.id())).filter(|children| !children.is_empty())
        });
        (started, children)
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        kill_process(id.expect("a process number"), signal).expect("it runs");
    }

    /// Returns the names in the folder for temporary files.
    fn temporary_files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("a folder");
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // Usually the process has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the child processes of all threads of `id`.
fn children(id: u32) -> Vec<Pid> {
    let tasks = std::fs::read_dir(Path::new("/proc").join(id.to_string()).join("task"));
    let lists = tasks.into_iter().flatten().flatten();
    let lists = lists.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect::<Vec<_>>())
        .collect()
}

/// Returns true if a process exists and is not a zombie.
fn runs(process: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Returns true if this process, and therefore its children, ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("proc_pid_status(5)");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask");
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Ends the command with `signal`, and checks that its children end, too.
fn assert_ends(started: &mut Started, children: &[Pid], signal: Signal) {
    use std::os::unix::process::ExitStatusExt;
    assert!(
        started.temporary_files().iter().any(|name| name.starts_with("forebay-")),
        "{:?}",
        started.temporary_files()
    );
    started.signal(signal);
    let status = started.process.wait().expect("a child");
    assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
    for child in children {
        until("the processes that it started end", || (!runs(*child)).then_some(()));
    }
}

#[test]
fn an_ended_gate_leaves_no_files() {
    if !has_valgrind() {
        return;
    }
    let folder = temporary();
    let baseline = folder.path().join("baseline.json");
    let arguments = ["gate", "--baseline", baseline.to_str().expect("UTF-8"), "--update", "usecases"];
    // Skips signals that this process ignores, for example under nohup or in the background of a script.
    for signal in [Signal::TERM, Signal::INT, Signal::HUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        let (mut started, children) = Started::new(&arguments);
        assert_ends(&mut started, &children, signal);
        assert_eq!(started.temporary_files(), [""; 0]);
    }
    // After SIGKILL the command cannot clean up, but its children end.
    let (mut started, children) = Started::new(&arguments);
    assert_ends(&mut started, &children, Signal::KILL);
    assert!(!baseline.exists(), "no partial baseline");
}

#[test]
fn an_ended_comparison_leaves_no_files() {
    let folder = temporary();
    let store = folder.path().to_str().expect("UTF-8");
    for name in ["a", "b"] {
        let saved = ["measure", "usecase:l2l3", "--no-count", "--duration", "50ms", "--save", name, "--store", store];
        // If the machine is busy, the exit code is 1, and the measurement is saved anyway.
        assert!(matches!(forebay(&saved).code, Some(0 | 1)));
    }
    let (mut started, children) = Started::new(&["compare", "a", "b", "--store", store]);
    assert_ends(&mut started, &children, Signal::TERM);
    assert_eq!(started.temporary_files(), [""; 0]);
}
