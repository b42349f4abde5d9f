//! Runs on a pseudo-terminal: in the foreground, in the background, and after the terminal is closed.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::forebay;
use crate::running::{PIPELINE, temporary, wait_for};

/// A shell on its own terminal, which runs a pipeline. Both are killed when this value is dropped.
pub(crate) struct Terminal {
    /// script(1), which has the other end of the terminal.
    script: Child,
    /// The terminal's input.
    keyboard: ChildStdin,
    folder: TempDir,
}

impl Terminal {
    /// Runs `command` in bash with job control. In it, `$forebay` is a run of [`PIPELINE`]. Without script(1), prints
    /// the reason and returns `None`.
    pub(crate) fn start(test: &str, command: &str) -> Option<Self> {
        let folder = temporary();
        std::fs::write(folder.path().join("pipeline.yaml"), format!("name: first\n{PIPELINE}"))
            .expect("a writable folder");
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--flush", "--command"]);
        // Under nohup(1), tests ignore SIGHUP. So would the shell, whose end the run must notice.
        let shell = format!("stty rows 24 cols 80; exec env --default-signal=HUP bash -mc '{command}'");
        script.arg(shell).arg(folder.path().join("screen"));
        script.env("forebay", format!("{} run pipeline.yaml --duration 60s --socket s", env!("CARGO_BIN_EXE_forebay")));
        script.current_dir(folder.path()).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        match script.spawn() {
            Ok(mut script) => {
                let keyboard = script.stdin.take().expect("piped");
                Some(Self { script, keyboard, folder })
            }
            Err(error) => {
                // Writes to standard error itself, because the test harness hides `eprintln!` of passing tests.
                let _ = writeln!(std::io::stderr(), "skipped: {test}: script(1): {error}");
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path(name)).unwrap_or_default()).into_owned()
    }

    /// Waits until the run listens, and returns its process.
    pub(crate) fn run(&self) -> Pid {
        wait_for("a run that listens", || self.packets().is_some());
        self.read("pid").trim().parse().ok().and_then(Pid::from_raw).expect("the shell wrote it before")
    }

    /// Returns the number of packets so far; `None` if no run listens.
    fn packets(&self) -> Option<u64> {
        let shown = forebay(&["show", "modules", "--json", "--socket", self.path("s").to_str().expect("UTF-8")]);
        let rows: serde_json::Value = serde_json::from_str(&shown.out).ok().filter(|_| shown.code == Some(0))?;
        rows.as_array()?.iter().find(|row| row["name"] == "route")?["packets"].as_u64()
    }

    /// Waits until the run has forwarded more packets.
    fn forwards(&self) {
        let before = self.packets().expect("it listens");
        wait_for("more packets", || self.packets().is_some_and(|now| now > before));
    }

    /// Closes the terminal when the run is in its foreground: before `fg`, a run gets no SIGHUP.
    pub(crate) fn close(&mut self) {
        let run = self.run();
        wait_for("the run in the foreground", || is_in_foreground(run));
        self.script.kill().expect("it runs");
    }

    fn type_keys(&mut self, keys: &[u8]) {
        self.keyboard.write_all(keys).and_then(|()| self.keyboard.flush()).expect("the terminal reads");
    }
}

/// Returns true if a process belongs to the foreground group of its terminal: fields 5 and 8 of proc_pid_stat(5).
fn is_in_foreground(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero())).expect("it runs");
    // The name may contain blanks.
    let fields: Vec<_> = status.rsplit(") ").next().into_iter().flat_map(str::split_whitespace).collect();
    fields[2] == fields[5]
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Usually both have ended already.
        let _ = self.script.kill();
        let _ = self.script.wait();
        let run = self.read("pid").trim().parse().ok().and_then(Pid::from_raw);
        let _ = run.map(|run| kill_process(run, Signal::KILL));
    }
}

/// Regression: the kernel stopped a background run that drew the live table or read a key (SIGTTOU, SIGTTIN).
#[test]
fn a_background_job_of_a_shell_forwards_and_does_not_use_the_terminal() {
    let command = "$forebay & echo $! >pid; wait; echo $? >code";
    let Some(terminal) = Terminal::start("a_background_job_of_a_shell_forwards", command) else { return };
    let run = terminal.run();
    for _ in 0..3 {
        terminal.forwards();
    }
    // This signal neither ends nor stops the run.
    kill_process(run, Signal::USR2).expect("it runs");
    terminal.forwards();
    assert!(!terminal.read("screen").contains("modules"), "{}", terminal.read("screen"));
    kill_process(run, Signal::TERM).expect("it runs");
    wait_for("its end", || terminal.read("code") == "0\n");
    // On a busy machine the generator loses packets.
    wait_for("the sum of packets", || terminal.read("screen").contains("in flight"));
    assert!(!terminal.read("screen").contains("UNACCOUNTED"), "{}", terminal.read("screen"));
}

/// A background run draws the live table after `fg` moves it to the foreground.
#[test]
fn a_run_draws_its_table_once_it_is_in_the_foreground() {
    let command = "$forebay & echo $! >pid; read line; fg; echo $? >code";
    let Some(mut terminal) = Terminal::start("a_run_draws_its_table_in_the_foreground", command) else { return };
    terminal.run();
    terminal.forwards();
    assert!(!terminal.read("screen").contains("modules"));
    terminal.type_keys(b"\n");
    wait_for("a table", || terminal.read("screen").contains("modules"));
    // Escape does not end the run, and `q` asks for confirmation. The screen has words between cursor movements.
    terminal.type_keys(b"\x1b");
    terminal.forwards();
    terminal.type_keys(b"q");
    wait_for("a question", || terminal.read("screen").contains("again"));
    terminal.forwards();
    terminal.type_keys(b"q");
    wait_for("its end", || terminal.read("code") == "0\n");
}

/// Regression: events waited for the end of the table even if standard error was a file. A killed run wrote none.
#[test]
fn a_file_has_events_while_the_table_is_drawn() {
    let command = "$forebay 2>err & echo $! >pid; fg; echo $? >code";
    let Some(terminal) = Terminal::start("a_file_has_events_while_the_table_is_drawn", command) else { return };
    let run = terminal.run();
    wait_for("a table", || terminal.read("screen").contains("modules"));
    forebay(&["reload", "--socket", terminal.path("s").to_str().expect("UTF-8")]).success();
    wait_for("the event", || terminal.read("err").contains("event=reload_accepted"));
    assert!(!terminal.read("screen").contains("\x1b[?1049l"), "the table is still drawn");
    kill_process(run, Signal::KILL).expect("it runs");
    wait_for("its end", || terminal.read("code") == "137\n");
}

/// A closed terminal sends SIGHUP. The run continues, and does not reload.
#[test]
fn a_run_continues_without_its_terminal() {
    let command = "$forebay --no-live --json >out 2>err & echo $! >pid; fg";
    let Some(mut terminal) = Terminal::start("a_run_continues_without_its_terminal", command) else { return };
    let run = terminal.run();
    std::fs::write(terminal.path("pipeline.yaml"), format!("name: second\n{PIPELINE}")).expect("a writable folder");
    terminal.close();
    let lost = "event=terminal_lost";
    wait_for("an event of the terminal", || terminal.read("err").contains(lost));
    terminal.forwards();
    kill_process(run, Signal::TERM).expect("it runs");
    wait_for("a report", || terminal.read("out").ends_with("}\n"));
    let report: serde_json::Value = serde_json::from_str(&terminal.read("out")).expect("JSON");
    assert_eq!(report["pipeline"], "first");
    assert!(!terminal.read("err").contains("event=reload_"), "{}", terminal.read("err"));
}

/// Regression: Ctrl-Z was a key of the table without effect.
#[test]
fn ctrl_z_suspends_a_run_and_fg_brings_its_table_back() {
    let command = "$forebay & echo $! >pid; fg; echo >stopped; read line; fg; echo $? >code";
    let Some(mut terminal) = Terminal::start("ctrl_z_suspends_a_run", command) else { return };
    let run = terminal.run();
    wait_for("a table", || terminal.read("screen").contains("modules"));
    terminal.type_keys(b"\x1a");
    wait_for("the shell", || terminal.path("stopped").exists());
    let status = std::fs::read_to_string(format!("/proc/{}/stat", run.as_raw_nonzero())).expect("it exists");
    assert!(status.contains(") T "), "{status}");
    // The run leaves the alternate screen, so that the shell's screen is visible. The recording may be late.
    wait_for("the shell's screen", || terminal.read("screen").contains("\x1b[?1049l"));
    terminal.type_keys(b"\n");
    wait_for("the table again", || terminal.read("screen").matches("\x1b[?1049h").count() == 2);
    terminal.forwards();
    terminal.type_keys(b"qq");
    wait_for("its end", || terminal.read("code") == "0\n");
}
