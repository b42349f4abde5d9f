//! Tests faults that depend on the intent, settings that are equivalent to the recommended settings, and facts that
//! cannot be read.

use forebay_host::doctor::State;

use crate::server::Server;
use crate::{diagnosed, intent, outcome};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";
const GROUP: &str = "/sys/fs/cgroup/system.slice";
/// Workers on two nodes: a fault that needs another intent and causes a second finding.
#[test]
fn workers_on_two_nodes_cause_two_findings() {
    let mut intent = intent();
    intent.workers[1].core = Some(2);
    let diagnosis = diagnosed(&Server::healthy(), &intent);
    assert_eq!(outcome(&diagnosis, "numa-workers").state, State::May);
    assert_eq!(outcome(&diagnosis, "numa-mismatch").state, State::Costs, "the card's packets go to both");
    assert!(outcome(&diagnosis, "numa-mismatch").says.contains("core 2"), "{diagnosis:#?}");
    // A port that only the worker on the near node uses is ok.
    intent.ports[0].workers = vec![0];
    assert_eq!(outcome(&diagnosed(&Server::healthy(), &intent), "numa-mismatch").state, State::Ok);
}

/// Regression test: the verb agreed with the number of all workers' cores.
#[test]
fn the_verb_agrees_with_the_number_of_far_cores() {
    for (cores, expected) in
        [([5, 2], "eth1 is on node 1, but core 2 is not"), ([2, 3], "eth1 is on node 1, but cores 2-3 are not")]
    {
        let mut intent = intent();
        intent.workers.iter_mut().zip(cores).for_each(|(worker, core)| worker.core = Some(core));
        assert_eq!(outcome(&diagnosed(&Server::healthy(), &intent), "numa-mismatch").says, expected);
    }
}

#[test]
fn a_machine_without_a_pipeline_is_judged_for_what_could_run() {
    let (mut server, mut intent) = (Server::healthy(), intent());
    (intent.pipeline, intent.ports) = (None, Vec::new());
    let diagnosis = diagnosed(&server, &intent);
    assert_eq!(diagnosis.findings().count(), 0, "{:#?}", diagnosis.findings().collect::<Vec<_>>());
    assert_eq!(outcome(&diagnosis, "capabilities").state, State::NotAvailable);
    server.set("/sys/devices/pci0000:80/0000:81:00.0/numa_node", "0\n");
    // Without a pipeline, it is unknown whether that card will be used.
    assert_eq!(outcome(&diagnosed(&server, &intent), "numa-mismatch").state, State::May);
    server.replace("/sys/devices/pci0000:80/0000:81:00.0/net/eth1/operstate", "up", "down");
    assert_eq!(outcome(&diagnosed(&server, &intent), "numa-mismatch").state, State::NotAvailable);
}

#[test]
fn equivalent_settings_are_ok() {
    // A partition of the process' own group replaces isolated cores.
    let mut server = Server::healthy();
    server.set(format!("{CPU}/isolated"), "\n");
    server.set(format!("{GROUP}/forebay.service/cpuset.cpus.partition"), "isolated\n");
    server.set(format!("{GROUP}/forebay.service/cpuset.cpus.effective"), "5-6\n");
    assert_eq!(diagnosed(&server, &intent()).findings().count(), 0);
    server.set(
        format!("{GROUP}/forebay.service/cpuset.cpus.partition"),
        "isolated invalid (Parent is not a partition root)\n",
    );
    assert_eq!(outcome(&diagnosed(&server, &intent()), "isolated-cores").state, State::May);

    // A limit on the wake-up time replaces disabled idle states.
    let mut server = Server::healthy();
    server.set(format!("{CPU}/cpu5/cpuidle/state2/disable"), "0\n");
    for limit in ["10", "n/a"] {
        server.set(format!("{CPU}/cpu5/power/pm_qos_resume_latency_us"), format!("{limit}\n"));
        assert_eq!(diagnosed(&server, &intent()).findings().count(), 0, "{limit}");
    }

    // An interface prepared for the user replaces the capability.
    let mut server = Server::healthy();
    server.replace("/proc/self/status", "CapEff:\t0000000000003000", "CapEff:\t0000000000002000");
    server.set("/sys/class/net/fb0/owner", "1000\n");
    assert_eq!(diagnosed(&server, &intent()).findings().count(), 0);
    server.set("/sys/class/net/fb0/owner", "1001\n");
    assert_eq!(outcome(&diagnosed(&server, &intent()), "capabilities").state, State::Stops);

    // The quota is sufficient. The machine has one node, and its firmware does not report the card's node.
    let mut server = Server::healthy();
    server.set(format!("{GROUP}/cpu.max"), "200000 100000\n");
    server.set(format!("{NODE}/online"), "0\n").set(format!("{NODE}/node0/cpulist"), "0-15\n");
    server.set("/sys/devices/pci0000:80/0000:81:00.0/numa_node", "-1\n");
    server.set("/proc/sys/kernel/numa_balancing", "1\n");
    assert_eq!(diagnosed(&server, &intent()).findings().count(), 0);
}

/// Without the files that a check reads, its result is "not available", and not "ok" or a finding.
#[test]
fn unreadable_facts_are_not_available() {
    let removed: &[(&str, &[&str])] = &[
        ("/proc/self/status", &["worker-cores", "capabilities", "numa-memory"]),
        ("/proc/self/cgroup", &["cpu-quota"]),
        ("/proc/self/mounts", &["cpu-quota"]),
        ("/proc/stat", &["core-load", "smt-sibling", "steal"]),
        ("/proc/interrupts", &["irq-affinity"]),
        ("/proc/meminfo", &["huge-pages"]),
        ("/proc/cpuinfo", &["invariant-tsc"]),
        ("/proc/sys", &["arp-flux", "numa-balancing", "hardware-counters"]),
        ("/proc/net", &["arp-flux", "arp-announce", "rp-filter"]),
        ("/sys/devices/system/cpu/isolated", &["isolated-cores"]),
        ("/sys/devices/system/cpu/nohz_full", &["timer-tick"]),
        ("/sys/devices/system/cpu/cpu5/topology/thread_siblings_list", &["smt-sibling"]),
        ("/sys/devices/system/cpu/cpu5/cpufreq", &["governor", "frequency-limit"]),
        ("/sys/devices/system/cpu/cpu5/cpuidle", &["c-states"]),
        ("/sys/devices/system/node", &["numa-mismatch", "numa-memory", "numa-workers", "numa-balancing"]),
        ("/sys/devices/pci0000:80/0000:81:00.0/numa_node", &["numa-mismatch"]),
        ("/sys/class/net/eth1", &["arp-flux", "numa-mismatch"]),
        ("/sys/devices/system/clocksource", &["clocksource"]),
        ("/sys/bus", &["hardware-counters"]),
    ];
    for (path, checks) in removed {
        let mut server = Server::healthy();
        server.remove(path);
        let diagnosis = diagnosed(&server, &intent());
        let unknown: Vec<_> = diagnosis.checks.iter().filter(|it| it.state == State::NotAvailable).collect();
        let names: Vec<_> = unknown.iter().map(|outcome| outcome.id).collect();
        assert_eq!(names, *checks, "without {path}: {:#?}", diagnosis.findings().collect::<Vec<_>>());
        assert!(unknown.iter().all(|outcome| outcome.says.len() > 10), "without {path}: {unknown:#?}");
        assert_eq!(diagnosis.findings().count(), 0, "without {path}");
    }
}

#[test]
fn a_virtual_machine_is_not_blamed_for_what_its_host_does() {
    let mut server = Server::healthy();
    server.replace("/proc/cpuinfo", "constant_tsc", "hypervisor constant_tsc");
    for cpu in [5, 6] {
        server.remove(&format!("{CPU}/cpu{cpu}/cpufreq"));
        server.set(format!("{CPU}/cpu{cpu}/topology/thread_siblings_list"), format!("{cpu}\n"));
    }
    server.remove("/sys/bus/event_source/devices/cpu").set("/sys/bus/event_source/devices/software/type", "1\n");
    let diagnosis = diagnosed(&server, &intent());
    for id in ["smt-sibling", "governor", "frequency-limit", "c-states"] {
        assert_eq!(outcome(&diagnosis, id).state, State::NotAvailable, "{id}");
    }
    let found: Vec<_> = diagnosis.findings().map(|outcome| (outcome.id, outcome.state)).collect();
    assert_eq!(found, [("hardware-counters", State::Info)]);
    assert!(!diagnosis.has_cost());
}
