//! Crashes and full disks while a changed configuration replaces the state of the last accepted one.
//!
//! The kernel records each operation of a run on the folder of its state. The test recreates the folder after each
//! operation, and after half of each write, and starts a run from it.

use std::collections::BTreeMap;
use std::fs;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::alone;
use crate::forebay::{CommandResult, FOREBAY, done};
use crate::namespaces::{run, skip};

/// Contents of files by name.
type Folder = BTreeMap<String, Vec<u8>>;

/// An operation on a file of the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Operation {
    Create(String),
    Write(String),
    Rename { from: String, to: String },
    Remove(String),
}

fn configuration(name: &str, comment: usize) -> String {
    let ports = "ports: { in: { generator: { rate: 1kpps } }, out: { sink: } }";
    format!("name: {name}\n{ports}\npipeline: [in -> out]\n# {}\n", "x".repeat(comment))
}

fn start(file: &Path, state: &Path, more: &[&str]) -> CommandResult {
    let mut command = Command::new(FOREBAY);
    command.args(["run", "--no-live", "--no-socket", "--json", "--duration", "10ms"]).args(more);
    done(command.arg("--state").arg(state).arg(file))
}

fn pipeline(result: &CommandResult) -> String {
    let report = result.out.lines().last().and_then(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    report.and_then(|report| report["pipeline"].as_str().map(str::to_owned)).unwrap_or_else(|| panic!("{result:?}"))
}

fn read(folder: &Path) -> Folder {
    let entries = fs::read_dir(folder).expect("it exists").map(|entry| entry.expect("it exists"));
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().expect("UTF-8");
    entries.map(|entry| (name(&entry), fs::read(entry.path()).expect("readable"))).collect()
}

/// Returns the file operations in `folder` during `work`, in order.
fn operations(folder: &Path, work: impl FnOnce()) -> Vec<Operation> {
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("the kernel has inotify");
    let all = WatchFlags::CREATE | WatchFlags::MODIFY | WatchFlags::MOVE | WatchFlags::DELETE;
    inotify::add_watch(&watch, folder, all).expect("it exists");
    work();
    let mut buffer = [MaybeUninit::uninit(); 65_536];
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    let (mut operations, mut from) = (Vec::new(), None);
    // Reading ends when there are no more events.
    while let Ok(event) = reader.next() {
        let name = event.file_name().and_then(|name| name.to_str().ok()).unwrap_or_default().to_owned();
        let kind = event.events();
        if kind.contains(ReadFlags::CREATE) {
            operations.push(Operation::Create(name));
        } else if kind.contains(ReadFlags::MODIFY) {
            operations.push(Operation::Write(name));
        } else if kind.contains(ReadFlags::MOVED_FROM) {
            from = Some(name);
        } else if kind.contains(ReadFlags::MOVED_TO) {
            operations.push(Operation::Rename { from: from.take().expect("within the folder"), to: name });
        } else if kind.contains(ReadFlags::DELETE) {
            operations.push(Operation::Remove(name));
        }
    }
    operations
}

/// Returns the folder after each operation, and in the middle of each write. `whole` returns the final content of a
/// file.
fn crash_points(before: &Folder, operations: &[Operation], whole: impl Fn(&str) -> Vec<u8>) -> Vec<Folder> {
    let (mut now, mut points) = (before.clone(), vec![before.clone()]);
    for operation in operations {
        match operation {
            Operation::Create(name) => drop(now.insert(name.clone(), Vec::new())),
            Operation::Write(name) => {
                let bytes = whole(name);
                let half = [(name.clone(), bytes[..bytes.len() / 2].to_vec())];
                points.push(now.clone().into_iter().chain(half).collect());
                now.insert(name.clone(), bytes);
            }
            Operation::Rename { from, to } => {
                let bytes = now.remove(from).expect("it was created");
                now.insert(to.clone(), bytes);
            }
            Operation::Remove(name) => drop(now.remove(name)),
        }
        points.push(now.clone());
    }
    points
}

/// A crash between two operations must not lose the old configuration, nor leave a partial one from which a run starts.
#[test]
fn a_start_finds_a_complete_state_after_a_crash_at_any_point() {
    let _alone = alone();
    let place = tempfile::tempdir().expect("a writable folder for temporary files");
    let (file, folder) = (place.path().join("edge.yaml"), place.path().join("states"));
    fs::create_dir(&folder).expect("a writable folder");
    let state = folder.join("state");
    let write = |name: &str| fs::write(&file, configuration(name, 0)).expect("a writable folder");
    write("first");
    assert_eq!(start(&file, &state, &[]).code, Some(0));
    let before = read(&folder);
    let first = before["state"].clone();
    write("second");
    let operations = operations(&folder, || assert_eq!(pipeline(&start(&file, &state, &[])), "second"));
    let after = read(&folder);
    let second = after["state"].clone();
    assert_eq!(after["state.old"], first);
    // Precondition: both files are written under temporary names, and renamed.
    let renamed = |name: &str| {
        let is = |operation: &&Operation| matches!(operation, Operation::Rename { to, .. } if to == name);
        operations.iter().filter(is).count()
    };
    assert_eq!((renamed("state.old"), renamed("state")), (1, 1), "{operations:?}");
    let is_in_place = |operation: &Operation| match operation {
        Operation::Write(name) => ["state", "state.old"].contains(&name.as_str()),
        _ => false,
    };
    assert!(!operations.iter().any(is_in_place), "{operations:?}");

    let whole = |name: &str| match name {
        "state.lock" => b"4194303\n".to_vec(),
        _ if name.starts_with("state.old.") => first.clone(),
        _ => second.clone(),
    };
    let points = crash_points(&before, &operations, whole);
    assert!(points.len() >= 12 && points.last() == Some(&after), "{operations:?}");
    for (number, point) in points.iter().enumerate() {
        let crashed = format!("crash {number} of {operations:?}");
        // The old state is complete in one of its files, and neither file is partial.
        assert!([&point["state"]].into_iter().chain(point.get("state.old")).any(|bytes| *bytes == first), "{crashed}");
        let make = || {
            fs::remove_dir_all(&folder).and_then(|()| fs::create_dir(&folder)).expect("a writable folder");
            point.iter().for_each(|(name, bytes)| fs::write(folder.join(name), bytes).expect("a writable folder"));
        };
        make();
        let used = pipeline(&start(&file, &state, &["--prefer", "state"]));
        assert_eq!(used, if point["state"] == first { "first" } else { "second" }, "{crashed}");
        make();
        assert_eq!(pipeline(&start(&file, &state, &[])), "second", "{crashed}");
        let now = read(&folder);
        assert!(now["state"] == second && now["state.old"] == first, "{crashed}");
    }
}

/// Runs the first and then the second configuration with a state on a disk of `$0` KiB, and copies the disk.
const TWO_STARTS: &str = r#"
mount -t tmpfs -o size="$0"k forebay-test disk || exit 77
run() { "$1" run --no-live --no-socket --json --duration 10ms --state disk/state "$2"; }
run "$1" first.yaml >/dev/null 2>&1 || exit 78
cp disk/state first.state
run "$1" second.yaml; code=$?
rm -rf kept; cp -a disk kept; exit $code
"#;

#[test]
fn a_full_disk_leaves_the_old_state_complete() {
    const NAME: &str = "a_full_disk_leaves_the_old_state_complete";
    let _alone = alone();
    let place = tempfile::tempdir().expect("a writable folder for temporary files");
    let path = |name: &str| -> PathBuf { place.path().join(name) };
    fs::create_dir(path("disk")).expect("a writable folder");
    for name in ["first", "second"] {
        let text = configuration(name, 100_000);
        fs::write(path(&format!("{name}.yaml")), text).expect("a writable folder");
    }
    if let Err(why) = run("unshare", &["-m", "true"]) {
        return skip(NAME, &why);
    }
    // Room for one state, for two, for three: the third is written before the first is removed.
    for (size, failing) in [(160, Some("state.old")), (260, Some("state")), (400, None)] {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", TWO_STARTS, &size.to_string(), FOREBAY]).current_dir(place.path());
        let result = done(&mut command);
        if result.code == Some(77) {
            return skip(NAME, &result.err);
        }
        let (first, kept) = (fs::read(path("first.state")).expect("it was copied"), read(&path("kept")));
        let names: Vec<_> = kept.keys().map(String::as_str).filter(|name| name.ends_with(".new")).collect();
        assert!(names.is_empty(), "partial files take room: {names:?}");
        match failing {
            Some(failing) => {
                let expected = format!("--state disk/{failing}: No space left on device");
                assert!(result.code == Some(2) && result.err.contains(&expected), "{size} KiB: {}", result.err);
                assert!(kept["state"] == first, "{size} KiB");
            }
            None => assert_eq!(pipeline(&result), "second", "{}", result.err),
        }
        assert!(kept.get("state.old").is_none_or(|old| *old == first), "{size} KiB");
        assert_eq!(kept.contains_key("state.old"), failing != Some("state.old"), "{size} KiB");
    }
}
