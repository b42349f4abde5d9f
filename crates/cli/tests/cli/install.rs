//! Installation: the files of `make install` and of the units, and the checks before a release.

use std::fs;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use crate::{CommandResult, forebay};

const PROGRAM: &str = env!("CARGO_BIN_EXE_forebay");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

fn read(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs `scripts/install` with these arguments and the program.
fn install(options: &[&str], prefix: &str, destination: &Path, home: &str) -> CommandResult {
    // With another home folder, Cargo does not find its files. The list of licences needs Cargo, so it is made before.
    CommandResult::of(Command::new(root().join("scripts/third-party-licences")).output().expect("python3")).success();
    let mut command = Command::new(root().join("scripts/install"));
    command.args(options).arg(PROGRAM).env("PREFIX", prefix).env("DESTDIR", destination).env("HOME", home);
    CommandResult::of(command.env_remove("ZSHDIR").output().expect("bash"))
}

/// Lists the files below a folder, by their paths in it.
fn files(folder: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                folders.push(entry);
            } else {
                all.push(entry.strip_prefix(folder).expect("below it").display().to_string());
            }
        }
    }
    all.sort();
    all
}

#[test]
fn an_installation_is_complete_and_can_be_removed() {
    let folder = TempDir::new().expect("a folder for the test");
    let at = |path: &str| folder.path().join(path);
    install(&[], "/opt/fb", folder.path(), "/root").success();
    let version = Command::new(at("opt/fb/bin/forebay")).arg("--version").output().expect("an installed program");
    assert_eq!(CommandResult::of(version).success(), forebay(&["--version"]).success());
    let shown = |arguments: &[&str]| forebay(arguments).success();
    let completions = [
        ("bash", "bash-completion/completions/forebay"),
        ("zsh", "zsh/site-functions/_forebay"),
        ("fish", "fish/vendor_completions.d/forebay.fish"),
    ];
    for (shell, path) in completions {
        assert_eq!(read(at("opt/fb/share").join(path)), shown(&["completions", shell]), "{shell}");
    }
    assert!(read(at("opt/fb/share/man/man1/forebay-run.1")).contains(".SH OPTIONS"));
    let documents = at("opt/fb/share/doc/forebay");
    for document in ["README.md", "SECURITY.md", "LICENSE", "docs/install.md", "examples/gateway.yaml"] {
        assert_eq!(read(documents.join(document)), read(root().join(document)), "{document}");
    }
    // Licences of a crate and of a library of the page.
    let licences = read(documents.join("third-party-licences.txt"));
    for part in ["    serde_json 1.", "## svelte - ", "Permission is hereby granted", "TERMS AND CONDITIONS"] {
        assert!(licences.contains(part), "{part}");
    }
    assert!(documents.join("prometheus/rules.yaml").exists() && documents.join("grafana/forebay.json").exists());
    for unit in ["forebay@.service", "forebay-serve.service"] {
        let text = read(at("opt/fb/lib/systemd/system").join(unit));
        assert!(text.contains("\nExecStart=/opt/fb/bin/forebay ") && !text.contains("/usr/bin/forebay"), "{text}");
    }
    // A further installation removes files that only the earlier version had, and keeps settings. Removal keeps only
    // the settings.
    let old = "opt/fb/share/man/man1/forebay-gone.1";
    let list = documents.join("installed-files");
    fs::write(at(old), "").expect("a folder of the installation");
    fs::write(&list, format!("/{old}\n{}", read(&list))).expect("a writable file");
    let settings = at("etc/forebay/serve.yaml");
    assert_eq!(read(&settings), read(root().join("deploy/serve.yaml")));
    fs::write(&settings, "listen: [\"127.0.0.1:1\"]\n").expect("a writable file");
    install(&[], "/opt/fb", folder.path(), "/root").success();
    assert!(!at(old).exists(), "a file of the earlier version stays");
    assert_eq!(read(&settings), "listen: [\"127.0.0.1:1\"]\n");
    // Regression: a removal also removed files of others in the same folders.
    let foreign = ["opt/fb/share/doc/forebay/notes.md", "opt/fb/share/man/man1/forebay-exporter.1"];
    foreign.iter().for_each(|path| fs::write(at(path), "").expect("a folder of the installation"));
    install(&["--remove"], "/opt/fb", folder.path(), "/root").success();
    assert_eq!(files(folder.path()), [&["etc/forebay/serve.yaml"][..], &foreign].concat());
    let again = install(&["--remove"], "/opt/fb", folder.path(), "/root");
    assert!(again.code == Some(2) && again.err.contains("nothing is installed"), "{}", again.err);
}

#[test]
fn an_installation_for_one_user_has_no_units() {
    let folder = TempDir::new().expect("a folder for the test");
    install(&[], "/home/user/.local", folder.path(), "/home/user").success();
    let all = files(folder.path());
    assert!(all.iter().all(|path| path.starts_with("home/user/.local/")), "{all:?}");
    assert!(all.iter().any(|path| path == "home/user/.local/bin/forebay"), "{all:?}");
    assert!(!all.iter().any(|path| path.contains("/lib/")), "{all:?}");
    for prefix in ["relative", "/with space", "/with|bar", "/with%n"] {
        let refused = install(&[], prefix, folder.path(), "/root");
        assert!(refused.code == Some(2) && refused.err.contains("PREFIX must begin with /"), "{}", refused.err);
    }
    assert_eq!(files(folder.path()), all, "nothing was installed");
}

/// Regression: the program was installed into a folder of its name, and other files before the error.
#[test]
fn nothing_is_installed_if_a_folder_is_in_the_way() {
    let folder = TempDir::new().expect("a folder for the test");
    fs::create_dir_all(folder.path().join("opt/fb/bin/forebay")).expect("a writable folder");
    let refused = install(&[], "/opt/fb", folder.path(), "/root");
    assert!(refused.code == Some(2) && refused.err.contains("bin/forebay is a folder"), "{}", refused.err);
    assert!(files(folder.path()).is_empty());
}

/// Also with the settings that are comments.
#[test]
fn the_installed_settings_of_the_server_are_valid() {
    let text = read(root().join("deploy/serve.yaml"));
    let uncommented = |line: &str| {
        let setting = line.strip_prefix("# ").filter(|rest| rest.starts_with(|letter: char| letter.is_lowercase()));
        setting.filter(|rest| rest.contains(": ") && rest.contains('/')).unwrap_or(line).to_owned()
    };
    let all = text.lines().map(uncommented).collect::<Vec<_>>().join("\n");
    let schema: Value = serde_json::from_str(&forebay(&["schema", "serve"]).success()).expect("JSON");
    for (text, least) in [(&text, 1), (&all, 3)] {
        let settings: Value = serde_saphyr::from_str(text).expect("YAML");
        assert!(settings.as_object().is_some_and(|settings| settings.len() >= least), "{settings}");
        let validator = jsonschema::draft202012::new(&schema).expect("a schema");
        assert!(validator.is_valid(&settings), "{settings}");
    }
}

/// `systemd-analyze` accepts the units, and rates their rights. SECURITY.md has the ratings.
#[test]
fn the_units_are_valid_and_have_few_rights() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        let line = "skipped: the_units_are_valid_and_have_few_rights: systemd-analyze is missing";
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
        return;
    }
    let check = |folder: &Path| {
        let mut command = Command::new(folder.join("scripts/check-units"));
        CommandResult::of(command.arg(PROGRAM).output().expect("bash"))
    };
    let rated = check(&root()).success();
    assert_eq!(rated.matches("Overall exposure level").count(), 2, "{rated}");
    // A wrong unit is found, and so is one with many rights.
    let copy = TempDir::new().expect("a folder for the test");
    for folder in ["scripts", "deploy/systemd"] {
        fs::create_dir_all(copy.path().join(folder)).expect("a writable folder");
    }
    for file in ["scripts/check-units", "scripts/install-debian"] {
        fs::copy(root().join(file), copy.path().join(file)).expect("a writable folder");
    }
    let unit = copy.path().join("deploy/systemd/a.service");
    let write =
        |rest: &str| fs::write(&unit, format!("[Service]\nExecStart=/usr/bin/forebay run a\n{rest}")).expect("a file");
    write("ProtectClok=yes\n");
    let wrong = check(copy.path());
    assert!(wrong.code == Some(1) && wrong.err.contains("ProtectClok"), "{} {}", wrong.out, wrong.err);
    write("");
    let open = check(copy.path());
    assert!(open.code == Some(1) && open.err.contains("allowed are ratings up to 3.0"), "{} {}", open.out, open.err);
}

/// The commands of docs/install.md, which `make test-vm-install` runs as they stand.
#[test]
fn the_page_needs_at_most_five_commands() {
    let page = read(root().join("docs/install.md"));
    let section = page.split("## Debian package\n").nth(1).expect("a section");
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("commands");
    assert!((1..=5).contains(&block.lines().count()), "{block}");
    // The second command makes the pipeline that the third one starts.
    let template =
        block.lines().find_map(|line| line.strip_prefix("forebay ")?.split(" > ").next()).expect("a template");
    let text = forebay(&template.split(' ').collect::<Vec<_>>()).success();
    let file = crate::File::new(&text);
    forebay(&["check", file.path()]).success();
}

/// A repository with the files that `scripts/release` checks, and its version 1.2.3.
fn repository(changelog: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder for the test");
    fs::create_dir(folder.path().join("scripts")).expect("a writable folder");
    fs::copy(root().join("scripts/release"), folder.path().join("scripts/release")).expect("a writable folder");
    fs::write(folder.path().join("Cargo.toml"), "[workspace.package]\nversion = \"1.2.3\"\n").expect("a file");
    fs::write(folder.path().join("CHANGELOG.md"), changelog).expect("a file");
    for arguments in [&["init", "-q"][..], &["add", "-A"], &["commit", "-q", "-m", "first"]] {
        git(folder.path(), arguments);
    }
    folder
}

fn git(folder: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false", "-C"]);
    CommandResult::of(command.arg(folder).args(arguments).output().expect("git")).success();
}

#[test]
fn a_release_with_other_versions_or_uncommitted_changes_is_refused() {
    // A release whose checks pass ends when it starts Cargo, because these are all programs that it finds.
    let programs = TempDir::new().expect("a folder for the test");
    let path = std::env::var_os("PATH").expect("a path");
    for name in ["bash", "dirname", "git", "sed", "head", "grep", "awk", "tr"] {
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
        std::os::unix::fs::symlink(found.expect(name), programs.path().join(name)).expect("a writable folder");
    }
    let release = |folder: &TempDir| {
        let mut command = Command::new(folder.path().join("scripts/release"));
        CommandResult::of(command.env("PATH", programs.path()).output().expect("bash"))
    };
    let refused = |folder: &TempDir, why: &str| {
        let done = release(folder);
        assert!(done.code == Some(1) && done.err.contains(why), "{} {}", done.out, done.err);
    };
    refused(&repository("## [Unreleased]\n\n- a\n"), "no section '## [1.2.3] - YYYY-MM-DD'");
    refused(&repository("## [1.2.3] - 2026-01-31\n\n## [1.2.2] - 2026-01-01\n\n- a\n"), "the section 1.2.3 is empty");
    let good = repository("## [Unreleased]\n\n## [1.2.3] - 2026-01-31\n\n- a\n");
    let passed = |tag: &str| {
        let done = release(&good);
        // The code of bash for a program that it does not find.
        assert!(done.code == Some(127) && done.err.contains("cargo"), "{:?} {}", done.code, done.err);
        assert_eq!(done.out, format!("the tag v1.2.3 {tag}\n"));
    };
    passed("does not exist yet");
    git(good.path(), &["tag", "v1.2.3"]);
    passed("exists, at this commit");
    fs::write(good.path().join("other"), "").expect("a file");
    refused(&good, "changes that are not committed");
    git(good.path(), &["add", "-A"]);
    git(good.path(), &["commit", "-q", "-m", "second"]);
    refused(&good, "the tag v1.2.3 exists and points to another commit");
}
