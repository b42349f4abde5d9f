//! Tests on the machine that runs them: the evidence of each check must be in the machine's files.

use forebay_host::doctor::{Intent, State, Worker, examine};
use forebay_host::{Host, Origin, Tree};

#[test]
fn evidence_of_this_machine_is_in_its_files() {
    let tree = Tree::default();
    let host = Host::read(&tree);
    let core = host.process.cpus.value().and_then(|cpus| cpus.iter().last());
    let intent = Intent {
        pipeline: Some("here".to_owned()),
        workers: vec![Worker { core, shared: false }],
        pool_bytes: 18 << 21,
        ..Intent::default()
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    // Values may change between two readings, so the test tries again.
    let wrong = || {
        let mut host = Host::read(&tree);
        host.observe(&tree);
        let diagnosis = examine(&host, &intent);
        let evidence = diagnosis.checks.into_iter().flat_map(|outcome| outcome.evidence);
        let read = evidence.filter(|evidence| evidence.origin == Origin::Read);
        let stands = |path: &str, value: &str| {
            std::fs::read_to_string(path).is_ok_and(|text| words(&text).contains(&words(value)))
        };
        read.filter(|evidence| !stands(&evidence.path, &evidence.value)).collect::<Vec<_>>()
    };
    let seen: Vec<_> = (0..5).map(|_| wrong()).take_while(|wrong| !wrong.is_empty()).collect();
    assert!(seen.len() < 5, "{seen:#?}");
}

/// Any process must find the facts that every Linux system has.
#[test]
fn this_machine_is_described() {
    let host = Host::read(&Tree::default());
    if host.online.value().is_none() {
        drop(std::io::Write::write_fmt(
            &mut std::io::stderr(),
            format_args!("skipped: {}\n", host.online.why().unwrap_or_default()),
        ));
        return;
    }
    assert!(!host.cpus.is_empty());
    let allowed = host.process.cpus.value().expect("every process has a list");
    assert!(allowed.iter().all(|cpu| host.cpu(cpu).is_some()), "{allowed} of {:?}", host.online);
    assert_eq!(allowed.iter().collect::<Vec<_>>(), forebay_allowed(), "the kernel's list equals the other source");
    assert!(host.memory.total_kib.value().is_some_and(|kib| *kib > 0));
    assert!(host.cpus.iter().all(|cpu| cpu.load.is_some_and(|load| (0.0..=1.0).contains(&load.busy))));
    let diagnosis = examine(&host, &Intent::default());
    assert!(diagnosis.checks.iter().all(|outcome| outcome.state != State::Stops));
}

/// Returns the allowed CPUs, from another file than the crate uses.
fn forebay_allowed() -> Vec<usize> {
    let text = std::fs::read_to_string("/proc/thread-self/status").expect("Linux");
    let mask =
        text.lines().find_map(|line| line.strip_prefix("Cpus_allowed:")).expect("a mask").trim().replace(',', "");
    let bit = |cpu: usize| {
        let digit = mask.len().checked_sub(cpu / 4 + 1)?;
        Some(u32::from_str_radix(&mask[digit..=digit], 16).ok()? >> (cpu % 4) & 1 == 1)
    };
    (0..mask.len() * 4).filter(|cpu| bit(*cpu) == Some(true)).collect()
}
