//! Tests trees that no kernel would create. No check may panic or hang, and every check must have a result.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use forebay_host::doctor::{CHECKS, Diagnosis, State, examine};
use forebay_host::{Host, Tree};
use proptest::prelude::*;

use crate::intent;
use crate::server::{Server, folder};

/// Diagnoses the machine below a folder. Every check must have a result.
fn survived(root: &Path) -> Diagnosis {
    let tree = Tree::at(root);
    let mut host = Host::read(&tree);
    host.observe(&tree);
    let diagnosis = examine(&host, &intent());
    assert_eq!(diagnosis.checks.len(), CHECKS.len());
    assert!(diagnosis.checks.iter().all(|outcome| !outcome.says.is_empty()), "{diagnosis:#?}");
    diagnosis
}

/// Diagnoses a server after `spoil` has replaced each of its files.
fn spoilt(spoil: impl Fn(&Path)) -> Diagnosis {
    let folder = folder();
    let server = Server::healthy();
    server.lay_out(folder.path());
    for path in server.paths() {
        let file = folder.path().join(path.trim_start_matches('/'));
        fs::remove_file(&file).expect("it was laid out");
        spoil(&file);
    }
    survived(folder.path())
}

/// Checks that every result is "not available", because without facts, no result may be "ok" or a finding.
fn nothing_is_known(diagnosis: &Diagnosis) {
    for outcome in &diagnosis.checks {
        assert_eq!(outcome.state, State::NotAvailable, "{outcome:#?}");
    }
}

#[test]
fn an_empty_folder_gives_no_facts() {
    let folder = folder();
    nothing_is_known(&survived(folder.path()));
    nothing_is_known(&survived(&folder.path().join("none")));
}

#[test]
fn folders_loops_and_pipes_in_place_of_files_give_no_facts() {
    let only_quota = |diagnosis: &Diagnosis| {
        let known: Vec<_> = diagnosis.checks.iter().filter(|it| it.state != State::NotAvailable).collect();
        // The folder of the processor's counters still exists.
        assert!(known.iter().all(|outcome| outcome.id == "hardware-counters"), "{known:#?}");
    };
    only_quota(&spoilt(|file| fs::create_dir(file).expect("a folder")));
    only_quota(&spoilt(|file| symlink(file.file_name().expect("a name"), file).expect("a link")));
    only_quota(&spoilt(|file| {
        let made = std::process::Command::new("mkfifo").arg(file).status().expect("mkfifo is everywhere");
        assert!(made.success());
    }));
}

#[test]
fn huge_files_are_not_read_whole() {
    spoilt(|file| fs::File::create(file).and_then(|file| file.set_len(1 << 40)).expect("a sparse file"));
}

#[test]
fn empty_files_and_garbage_are_no_facts() {
    for garbage in [
        &b""[..],
        b"\n",
        b"\0\0\0",
        b"-1",
        b"99999999999999999999999",
        b"\xff\xfe\xfd",
        b"0-65535",
        b"a b c: d",
        b"[",
        b"%s%n",
    ] {
        let diagnosis = spoilt(|file| fs::write(file, garbage).expect("a file"));
        // An empty list is valid, because the kernel writes it if no CPU is isolated. A list of all numbers is also
        // valid.
        let right: &[&str] = match garbage {
            b"" | b"\n" => &["isolated-cores", "timer-tick"],
            b"0-65535" => &["irq-affinity", "smt-sibling"],
            _ => &[],
        };
        let blamed: Vec<_> = diagnosis.findings().filter(|outcome| !right.contains(&outcome.id)).collect();
        assert!(blamed.is_empty(), "{garbage:?}: {blamed:#?}");
    }
}

#[test]
fn a_thousand_cpus_are_read_and_more_than_there_can_be_are_not() {
    let mut server = Server::healthy();
    let cpus = 1_024;
    server.set("/sys/devices/system/cpu/online", format!("0-{}\n", cpus - 1));
    let stat: Vec<_> = (0..cpus).map(|cpu| format!("cpu{cpu} 1 0 0 999 0 0 0 0 0 0\n")).collect();
    server.set("/proc/stat", stat.concat());
    let heading: Vec<_> = (0..cpus).map(|cpu| format!(" CPU{cpu}")).collect();
    let line = |number: usize| format!(" {number}:{} PCI-MSI {number}-edge nvme\n", " 1".repeat(cpus));
    server.set("/proc/interrupts", heading.concat() + "\n" + &(0..200).map(line).collect::<String>());
    let folder = folder();
    server.lay_out(folder.path());
    let host = Host::read(&Tree::at(folder.path()));
    assert_eq!((host.cpus.len(), host.interrupts.as_ref().map(Vec::len)), (cpus, Ok(200)));
    assert!(host.cpu(1_023).is_some_and(|cpu| cpu.load.is_some() && cpu.node.is_none()));
    survived(folder.path());
    server.set("/sys/devices/system/cpu/online", "0-65535\n");
    let folder = crate::server::folder();
    server.lay_out(folder.path());
    assert_eq!(Host::read(&Tree::at(folder.path())).cpus.len(), 8_192);
}

#[test]
fn loads_cover_the_time_between_two_readings() {
    let (folder, mut server) = (folder(), Server::healthy());
    server.lay_out(folder.path());
    let tree = Tree::at(folder.path());
    let mut host = Host::read(&tree);
    server.replace("/proc/stat", "cpu5 100 0 0 99900", "cpu5 130 0 0 99970");
    fs::write(folder.path().join("proc/stat"), {
        let text = fs::read_to_string(folder.path().join("proc/stat")).expect("it was laid out");
        text.replace("cpu5 100 0 0 99900", "cpu5 130 0 0 99970")
    })
    .expect("a file");
    std::thread::sleep(Duration::from_millis(1));
    host.observe(&tree);
    let load = host.cpu(5).and_then(|cpu| cpu.load).expect("the load is known");
    assert!((load.busy - 0.3).abs() < 1e-9, "{load:?}");
    assert!(load.over.to_string().starts_with("over "), "{load:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Any text in any of the files.
    #[test]
    fn any_words_in_any_files_are_survived(
        spoils in prop::collection::vec((any::<prop::sample::Index>(), "(\\PC|[\n\t 0-9,:-]){0,40}"), 1..6),
    ) {
        let mut server = Server::healthy();
        let paths: Vec<_> = server.paths().cloned().collect();
        for (which, text) in spoils {
            server.set(which.get(&paths).clone(), text);
        }
        let folder = folder();
        server.lay_out(folder.path());
        survived(folder.path());
    }
}
