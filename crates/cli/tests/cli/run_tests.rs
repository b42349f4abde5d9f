//! `scripts/run-tests` with a program in Cargo's place, whose test binaries are shell scripts.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts");

/// The result of `run-tests`.
struct Done {
    code: Option<i32>,
    out: String,
    err: String,
}

/// A workspace whose tests are the given shell scripts.
struct Workspace(TempDir);

impl Workspace {
    /// Creates a workspace. `documentation` is the exit code of the documentation tests.
    fn new(binaries: &[&str], documentation: i32) -> Self {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("crates/one")).expect("writable");
        fs::create_dir(at("scripts")).expect("writable");
        fs::copy(Path::new(SCRIPTS).join("run-tests"), at("scripts/run-tests")).expect("the script");
        fs::write(at("scripts/skips-allowed"), "# A reason.\n\n^this machine has no\n").expect("writable");
        let mut messages = String::from("not JSON\n{\"reason\":\"build-finished\",\"success\":true}\n");
        for (number, body) in binaries.iter().enumerate() {
            let executable = at(&format!("test{number}"));
            program(&executable, body);
            let message = serde_json::json!({
                "executable": executable,
                "manifest_path": at("crates/one/Cargo.toml"),
                "package_id": "path+file:///crates/one#forebay-one@0.1.0",
                "profile": { "test": true },
                "target": { "kind": ["test"], "name": format!("test{number}") },
            });
            messages += &format!("{message}\n");
        }
        fs::write(at("messages"), messages).expect("writable");
        let cargo = format!(
            "case \"$*\" in\n*--doc*) echo documentation; exit {documentation};;\n\
             *broken*) echo error >&2; exit 101;;\n*--no-run*) cat {};;\n*) exit 9;;\nesac",
            at("messages").display()
        );
        program(&at("cargo"), &cargo);
        Self(folder)
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Done {
        let path = std::env::var("PATH").expect("a path");
        let done = Command::new(self.0.path().join("scripts/run-tests"))
            .args(arguments)
            .env("PATH", format!("{}:{path}", self.0.path().display()))
            .env_remove("FOREBAY_REQUIRE")
            .env_remove("FOREBAY_TEST_JOBS")
            .env_remove("FOREBAY_TEST_SECONDS")
            .envs(environment.iter().copied())
            .stdin(Stdio::null())
            .output()
            .expect("python3 is installed");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        Done { code: done.status.code(), out: text(done.stdout), err: text(done.stderr) }
    }
}

/// Writes a shell script.
fn program(path: &Path, body: &str) {
    fs::write(path, format!("#!/bin/sh\n{body}\n")).expect("writable");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("its owner");
}

/// Returns whether Python is missing, and prints this.
fn lacks_python() -> bool {
    let found = Command::new("python3").arg("--version").output();
    if found.is_err() {
        let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: run-tests: no python3\n"));
    }
    found.is_err()
}

const PASSES: &str = "echo 'test result: ok. 3 passed'";
const FAILS: &str =
    "printf 'failures:\\n\\n---- a::b stdout ----\\n\\nat a.rs:1:\\nwhy\\nstack backtrace:\\n   0: main\\n\\n'
printf '\\nfailures:\\n    a::b\\n    c\\n\\ntest result: FAILED\\n'; exit 101";

#[test]
fn run_tests_reports_the_binaries_that_fail() {
    if lacks_python() {
        return;
    }
    let done = Workspace::new(&[PASSES, PASSES], 0).run(&[], &[]);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert_eq!(done.out.matches("test result: ok. 3 passed").count(), 2, "{}", done.out);
    assert!(done.out.contains("documentation\n") && done.out.ends_with("skipped: no test\n"), "{}", done.out);
    assert!(done.out.contains("time: 2 test binaries, 2 at a time: "), "{}", done.out);

    let done = Workspace::new(&[FAILS, PASSES, "exit 3"], 0).run(&[], &[("FOREBAY_TEST_JOBS", "1")]);
    assert_eq!(done.code, Some(1), "{}{}", done.out, done.err);
    let failure = "\nFAILED: one/test0: a::b, c\n  a::b\n    at a.rs:1:\n    why\n";
    assert!(done.out.contains(failure) && !done.out.contains("    why\n    "), "{}", done.out);
    assert!(done.out.contains("\nFAILED: one/test2: ended with 3\n"), "{}", done.out);
    assert!(done.out.contains("test result: ok. 3 passed"), "the others ran: {}", done.out);

    let done = Workspace::new(&[PASSES], 101).run(&[], &[]);
    assert_eq!(done.code, Some(1), "{}{}", done.out, done.err);
    assert!(done.out.contains("\nFAILED: documentation tests: ended with 101\n"), "{}", done.out);
}

#[test]
fn run_tests_ends_a_binary_that_does_not_end() {
    if lacks_python() {
        return;
    }
    // The processes that the binary starts end with it. Otherwise this would wait an hour for the other end of the
    // pipe.
    let done = Workspace::new(&["echo begun; sleep 3600 & sleep 3600"], 0).run(&[], &[("FOREBAY_TEST_SECONDS", "1")]);
    assert_eq!(done.code, Some(1), "{}{}", done.out, done.err);
    assert!(done.out.contains("begun\n") && done.out.contains("FAILED: one/test0: ended with -9"), "{}", done.out);
    assert!(done.err.contains("ended after 1 s (FOREBAY_TEST_SECONDS)"), "{}", done.err);
}

/// A skipped test is a failure if all are required, except those that `skips-allowed` names.
#[test]
fn run_tests_counts_what_is_skipped() {
    if lacks_python() {
        return;
    }
    const ALL: [(&str, &str); 1] = [("FOREBAY_REQUIRE", "all")];
    let allowed = "echo 'skipped: this machine has no counter' >&2";
    let done = Workspace::new(&[allowed, allowed], 0).run(&[], &ALL);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    let listed = "skipped: 1 tests or parts of tests:\n  this machine has no counter\n";
    assert!(done.out.ends_with(listed), "{}", done.out);

    let other = "echo 'test a ... skipped: needs this machine has no right' >&2";
    let workspace = Workspace::new(&[allowed, other], 0);
    assert_eq!(workspace.run(&[], &[]).code, Some(0));
    let done = workspace.run(&[], &ALL);
    assert_eq!(done.code, Some(1), "{}{}", done.out, done.err);
    let missing =
        "these must run here, or need a reason in scripts/skips-allowed:\n  needs this machine has no right\n";
    assert!(done.out.ends_with(missing), "{}", done.out);

    fs::write(workspace.0.path().join("scripts/skips-allowed"), "(\n").expect("writable");
    let done = workspace.run(&[], &ALL);
    assert!(done.code == Some(2) && done.err.contains("scripts/skips-allowed: '('"), "{}", done.err);
}

#[test]
fn run_tests_refuses_wrong_use() {
    if lacks_python() {
        return;
    }
    let workspace = Workspace::new(&[PASSES], 0);
    for (name, value) in [("FOREBAY_REQUIRE", "some"), ("FOREBAY_TEST_JOBS", "0"), ("FOREBAY_TEST_SECONDS", "x")] {
        let done = workspace.run(&[], &[(name, value)]);
        assert!(done.code == Some(2) && done.err.contains(&format!("{name}: '{value}': allowed")), "{}", done.err);
    }
    let done = workspace.run(&["-p", "broken"], &[]);
    assert!(done.code == Some(101) && done.err.contains("error"), "Cargo's exit code: {}", done.err);
    let done = Workspace::new(&[], 0).run(&[], &[]);
    assert!(done.code == Some(2) && done.err.contains("Cargo built no test binary"), "{}", done.err);
    // Options that select targets leave out the documentation tests. Arguments reach the binaries.
    let done = Workspace::new(&["echo \"given $1\""], 0).run(&["--lib", "--", "name"], &[]);
    assert!(done.out.contains("given name\n") && !done.out.contains("documentation\n"), "{}", done.out);
}
