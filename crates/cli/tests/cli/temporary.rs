//! What a command that starts others leaves when it is ended: no process, and no temporary file.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::forebay;
use crate::measure::has_valgrind;
use crate::running::temporary;

/// How long something may take to come about on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `is` is something.
fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match is() {
            Some(value) => return value,
            None => assert!(start.elapsed() < PATIENCE, "{what}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A command with a folder for its temporary files.
struct Started {
    process: Child,
    folder: TempDir,
}

impl Started {
    /// Starts it, and waits until it has started others: it, and those.
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

    /// What is in the folder for temporary files.
    fn left(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).expect("a folder");
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has mostly ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The processes that the threads of `id` have started.
fn children(id: u32) -> Vec<Pid> {
    let tasks = std::fs::read_dir(Path::new("/proc").join(id.to_string()).join("task"));
    let lists = tasks.into_iter().flatten().flatten();
    let lists = lists.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect::<Vec<_>>())
        .collect()
}

/// Whether a process is there, and not only what nobody has asked of how it ended.
fn runs(process: Pid) -> bool {
    let told = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_pid())).unwrap_or_default();
    let state = told.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// Whether this process, and so what it starts, ignores a signal.
fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("proc_pid_status(5)");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a mask");
    mask >> (signal.as_raw() - 1) & 1 == 1
}

/// Ends it with `signal`, which its children end with too.
fn ends(started: &mut Started, children: &[Pid], signal: Signal) {
    use std::os::unix::process::ExitStatusExt;
    assert!(started.left().iter().any(|name| name.starts_with("forebay-")), "{:?}", started.left());
    started.signal(signal);
    let status = started.process.wait().expect("a child");
    assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
    for child in children {
        until("the processes that it started end", || (!runs(*child)).then_some(()));
    }
}

#[test]
fn a_gate_that_is_ended_leaves_nothing() {
    if !has_valgrind() {
        return;
    }
    let folder = temporary();
    let baseline = folder.path().join("baseline.json");
    let arguments = ["gate", "--baseline", baseline.to_str().expect("UTF-8"), "--update", "usecases"];
    // Those that whoever runs the tests has made them ignore end nothing (nohup, the background of a script).
    for signal in [Signal::TERM, Signal::INT, Signal::HUP].into_iter().filter(|signal| !is_ignored(*signal)) {
        let (mut started, children) = Started::new(&arguments);
        ends(&mut started, &children, signal);
        assert_eq!(started.left(), [""; 0]);
    }
    // It can put nothing in order, but what it started ends.
    let (mut started, children) = Started::new(&arguments);
    ends(&mut started, &children, Signal::KILL);
    assert!(!baseline.exists(), "nothing half done");
}

#[test]
fn a_comparison_that_is_ended_leaves_nothing() {
    let folder = temporary();
    let store = folder.path().to_str().expect("UTF-8");
    for name in ["a", "b"] {
        let saved = ["measure", "usecase:l2l3", "--no-count", "--duration", "50ms", "--save", name, "--store", store];
        // That the machine was too busy is an answer too; it is saved.
        assert!(matches!(forebay(&saved).code, Some(0 | 1)));
    }
    let (mut started, children) = Started::new(&["compare", "a", "b", "--store", store]);
    ends(&mut started, &children, Signal::TERM);
    assert_eq!(started.left(), [""; 0]);
}
