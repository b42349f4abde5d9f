//! Checks of healthy, faulty and hostile trees, and of the machine that runs the tests.

mod faults;
mod here;
mod hostile;
mod judgement;
mod neighbours;
mod server;
mod topology;

use forebay_host::doctor::{CHECKS, Diagnosis, Intent, Outcome, Port, State, Worker, examine};
use forebay_host::{Host, Tree};

use server::{Server, folder};

/// Returns an intent with two workers on the card's node, a port on the card, and a port to the host.
fn intent() -> Intent {
    let worker = |core| Worker { core: Some(core), shared: false };
    let port = |name: &str, kind: &str, interface: &str, workers: &[usize]| Port {
        name: name.to_owned(),
        kind: kind.to_owned(),
        interface: Some(interface.to_owned()),
        elsewhere: false,
        workers: workers.to_vec(),
        host: true,
        address: (kind == "tap").then_some("192.0.2.1".parse().expect("an address")),
    };
    Intent {
        pipeline: Some("edge".to_owned()),
        workers: vec![worker(5), worker(6)],
        ports: vec![port("wire", "af_packet", "eth1", &[0, 1]), port("host", "tap", "fb0", &[0])],
        pool_bytes: 18 << 21,
        addresses: vec!["192.0.2.1".parse().expect("an address")],
    }
}

/// Writes the server's files to a folder and diagnoses it.
fn diagnosed(server: &Server, intent: &Intent) -> Diagnosis {
    let folder = folder();
    server.lay_out(folder.path());
    let tree = Tree::at(folder.path());
    let mut host = Host::read(&tree);
    host.observe(&tree);
    examine(&host, intent)
}

fn outcome<'d>(diagnosis: &'d Diagnosis, id: &str) -> &'d Outcome {
    diagnosis.checks.iter().find(|outcome| outcome.id == id).unwrap_or_else(|| panic!("no check is called {id}"))
}

#[test]
fn a_healthy_server_is_in_order_in_everything() {
    let diagnosis = diagnosed(&Server::healthy(), &intent());
    for outcome in &diagnosis.checks {
        assert_eq!(outcome.state, State::Ok, "{outcome:#?}");
        assert!(!outcome.says.is_empty(), "{outcome:#?}");
    }
    assert!(!diagnosis.has_cost() && diagnosis.findings().next().is_none());
    assert_eq!(diagnosis.checks.len(), CHECKS.len());
}

/// docs/doctor.md must have one row per check with the texts of the code.
#[test]
fn every_check_is_documented() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let text = std::fs::read_to_string(&page).expect("the page is part of the repository");
    let checks = text.split_once("## Checks").expect("the page has this section").1;
    let rows = checks.lines().filter(|line| line.starts_with("| `")).count();
    for check in CHECKS {
        let row =
            format!("| `{}` | {} | {} | {} |", check.id, check.looks_at, check.cost, check.fix.replace('|', "\\|"));
        assert!(text.lines().any(|line| line == row), "docs/doctor.md lacks the line\n{row}");
    }
    assert_eq!(rows, CHECKS.len(), "docs/doctor.md has rows of checks that there are not");
}

#[test]
fn checks_have_names_of_their_own() {
    let mut ids: Vec<_> = CHECKS.iter().map(|check| check.id).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), CHECKS.len());
    assert!(ids.iter().all(|id| id.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')));
}
