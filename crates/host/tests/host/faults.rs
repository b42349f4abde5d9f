//! Each fault is added alone to a healthy server. The check for this fault must find it, and no other check may have a
//! finding.

use forebay_host::doctor::{Intent, State};
use forebay_host::{Evidence, Origin};

use crate::server::{Server, folder};
use crate::{diagnosed, intent, outcome};

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";
const GROUP: &str = "/sys/fs/cgroup/system.slice";

/// A fault, and the expected result.
struct Fault {
    description: &'static str,
    id: &'static str,
    state: State,
    /// The file that must be in the evidence, and its expected value.
    path: String,
    value: &'static str,
    /// Part of the expected remedy.
    remedy: &'static str,
    plant: fn(&mut Server, &mut Intent),
}

fn faults() -> Vec<Fault> {
    let fault = |description, id, state, path: &str, value, remedy, plant| Fault {
        description,
        id,
        state,
        path: path.to_owned(),
        value,
        remedy,
        plant,
    };
    let cpu = |file: &str| format!("{CPU}/{file}");
    vec![
        fault(
            "a card on the other node",
            "numa-mismatch",
            State::Costs,
            "/sys/class/net/eth1/device/numa_node",
            "0",
            "0-3,8-11",
            |server, _| {
                server.set("/sys/devices/pci0000:80/0000:81:00.0/numa_node", "0\n");
            },
        ),
        fault(
            "no huge pages",
            "huge-pages",
            State::May,
            "/proc/meminfo",
            "HugePages_Free: 0",
            "echo 36 > /sys/devices/system/node/node1/hugepages",
            |server, _| {
                server.replace("/proc/meminfo", "HugePages_Total:    1024", "HugePages_Total:    0");
                server.replace("/proc/meminfo", "HugePages_Free:     1000", "HugePages_Free:     0");
                for node in 0..2 {
                    for file in ["nr_hugepages", "free_hugepages"] {
                        server.set(format!("{NODE}/node{node}/hugepages/hugepages-2048kB/{file}"), "0\n");
                    }
                }
            },
        ),
        fault(
            "no huge pages, and no transparent ones",
            "huge-pages",
            State::Costs,
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always madvise [never]",
            "nr_hugepages",
            |server, _| {
                server.replace("/proc/meminfo", "HugePages_Free:     1000", "HugePages_Free:     30");
                server.set("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
            },
        ),
        fault(
            "huge pages that are promised to others",
            "huge-pages",
            State::May,
            "/proc/meminfo",
            "HugePages_Rsvd: 990",
            "nr_hugepages",
            |server, _| {
                server.replace("/proc/meminfo", "HugePages_Rsvd:        0", "HugePages_Rsvd:        990");
            },
        ),
        fault(
            "a busy sibling",
            "smt-sibling",
            State::Costs,
            &cpu("cpu6/topology/thread_siblings_list"),
            "6,14",
            "echo 0 > /sys/devices/system/cpu/cpu14/online",
            |server, _| {
                server.replace("/proc/stat", "cpu14 100 0 0 99900", "cpu14 60000 0 0 40000");
            },
        ),
        fault(
            "workers on one physical core",
            "smt-sibling",
            State::Costs,
            &cpu("cpu5/topology/thread_siblings_list"),
            "5,13",
            "give the worker on core 13 another core",
            |_, intent| {
                intent.workers[1].core = Some(13);
            },
        ),
        fault(
            "a governor that saves power",
            "governor",
            State::May,
            &cpu("cpu5/cpufreq/scaling_governor"),
            "powersave",
            "echo performance > ",
            |server, _| {
                server.set(format!("{CPU}/cpu5/cpufreq/scaling_governor"), "powersave\n");
            },
        ),
        fault(
            "the lowest frequency",
            "governor",
            State::Costs,
            &cpu("cpu6/cpufreq/scaling_driver"),
            "acpi-cpufreq",
            "echo performance > ",
            |server, _| {
                server.set(format!("{CPU}/cpu6/cpufreq/scaling_governor"), "powersave\n");
                server.set(format!("{CPU}/cpu6/cpufreq/scaling_driver"), "acpi-cpufreq\n");
            },
        ),
        fault(
            "a limit on the frequency",
            "frequency-limit",
            State::Costs,
            &cpu("cpu6/cpufreq/scaling_max_freq"),
            "1200000",
            "echo 3500000 > ",
            |server, _| {
                server.set(format!("{CPU}/cpu6/cpufreq/scaling_max_freq"), "1200000\n");
            },
        ),
        fault(
            "a deep idle state",
            "c-states",
            State::May,
            &cpu("cpu5/cpuidle/state2/latency"),
            "133",
            "cpu5/power/pm_qos_resume_latency_us",
            |server, _| {
                server.set(format!("{CPU}/cpu5/cpuidle/state2/disable"), "0\n");
            },
        ),
        fault(
            "interrupts of the card on a worker's core",
            "irq-affinity",
            State::Costs,
            "/proc/irq/40/effective_affinity_list",
            "5",
            "echo 0-4,7-15 > /proc/irq/40/smp_affinity_list",
            |server, _| {
                server.set("/proc/irq/40/smp_affinity_list", "5\n").set("/proc/irq/40/effective_affinity_list", "5\n");
                let zeros = |number: usize| format!(" {:10}", 0).repeat(number);
                let (old, new) =
                    (format!(" 40: {:10}{}", 900_000, zeros(5)), format!(" 40:{} {:10}", zeros(5), 900_000));
                server.replace("/proc/interrupts", &old, &new);
            },
        ),
        fault(
            "interrupts that may go to any core",
            "irq-affinity",
            State::May,
            "/proc/irq/40/smp_affinity_list",
            "0-15",
            "/proc/irq/40/smp_affinity_list",
            |server, _| {
                server.remove("/proc/irq/40/effective_affinity_list").set("/proc/irq/40/smp_affinity_list", "0-15\n");
            },
        ),
        fault(
            "cores that are not isolated",
            "isolated-cores",
            State::May,
            &cpu("isolated"),
            "12-15",
            "taskset -c 12-15",
            |server, _| {
                server.set(format!("{CPU}/isolated"), "12-15\n");
            },
        ),
        fault(
            "no core isolated at all",
            "isolated-cores",
            State::May,
            &cpu("isolated"),
            "",
            "isolcpus=managed_irq,domain,5-6 nohz_full=5-6",
            |server, _| {
                server.set(format!("{CPU}/isolated"), "\n");
            },
        ),
        fault("the tick", "timer-tick", State::May, &cpu("nohz_full"), "(null)", "nohz_full=5-6", |server, _| {
            server.set(format!("{CPU}/nohz_full"), "(null)\n");
        }),
        fault(
            "a missing right",
            "capabilities",
            State::Stops,
            "/proc/self/status",
            "CapEff: 0000000000002000",
            "setcap cap_net_admin+ep",
            |server, _| {
                server.replace("/proc/self/status", "CapEff:\t0000000000003000", "CapEff:\t0000000000002000");
            },
        ),
        fault(
            "a namespace without the right to enter it",
            "capabilities",
            State::Stops,
            "/proc/self/status",
            "CapEff: 0000000000003000",
            "setcap cap_sys_admin+ep",
            |_, intent| {
                intent.ports[1].elsewhere = true;
            },
        ),
        fault(
            "a quota below the workers",
            "cpu-quota",
            State::Costs,
            &format!("{GROUP}/cpu.max"),
            "150000 100000",
            "echo max > /sys/fs/cgroup/system.slice/cpu.max",
            |server, _| {
                server.set(format!("{GROUP}/cpu.max"), "150000 100000\n");
            },
        ),
        fault(
            "a quota of the older kind",
            "cpu-quota",
            State::Costs,
            "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us",
            "100000",
            "echo -1 > ",
            |server, _| {
                server.replace("/proc/self/cgroup", "0::", "4:cpu,cpuacct:/box\n0::");
                server.replace(
                    "/proc/self/mounts",
                    "proc /proc",
                    "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\nproc /proc",
                );
                server.set("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000\n");
                server.set("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
            },
        ),
        fault(
            "something on a worker's core",
            "core-load",
            State::Costs,
            "/proc/stat",
            "cpu5 busy 30 % since the start",
            "ps -eLo",
            |server, _| {
                server.replace("/proc/stat", "cpu5 100 0 0 99900", "cpu5 30000 0 0 70000");
            },
        ),
        fault(
            "time that is stolen",
            "steal",
            State::Costs,
            "/proc/stat",
            "cpu6 stolen 2.0 % since the start",
            "vcpupin",
            |server, _| {
                server.replace("/proc/stat", "cpu6 100 0 0 99900 0 0 0 0", "cpu6 100 0 0 97900 0 0 0 2000");
            },
        ),
        fault(
            "a core that is not the process'",
            "worker-cores",
            State::Stops,
            "/proc/self/status",
            "Cpus_allowed_list: 0-5",
            "taskset -c 0-6 forebay run",
            |server, _| {
                server.replace("/proc/self/status", "Cpus_allowed_list:\t0-15", "Cpus_allowed_list:\t0-5");
            },
        ),
        fault(
            "too many workers",
            "worker-cores",
            State::Stops,
            "/proc/self/status",
            "Cpus_allowed_list: 0-15",
            "at most 16",
            |_, intent| {
                intent.workers.push(forebay_host::doctor::Worker::default());
            },
        ),
        fault(
            "a core that is offline",
            "worker-cores",
            State::Stops,
            &cpu("online"),
            "0-5,7-15",
            "echo 1 > /sys/devices/system/cpu/cpu6/online",
            |server, _| {
                server.set(format!("{CPU}/online"), "0-5,7-15\n");
            },
        ),
        fault(
            "a core that does not exist",
            "worker-cores",
            State::Stops,
            &cpu("present"),
            "0-15",
            "cores of 0-15",
            |_, intent| {
                intent.workers[1].core = Some(16);
            },
        ),
        fault(
            "huge pages on the other node only",
            "numa-memory",
            State::Costs,
            &format!("{NODE}/node1/hugepages/hugepages-2048kB/free_hugepages"),
            "35",
            "echo 513 > /sys/devices/system/node/node1",
            |server, _| {
                server.set(format!("{NODE}/node1/hugepages/hugepages-2048kB/free_hugepages"), "35\n");
            },
        ),
        fault(
            "memory of the other node only",
            "numa-memory",
            State::Costs,
            "/proc/self/status",
            "Mems_allowed_list: 0",
            "cpuset.mems",
            |server, _| {
                server.replace("/proc/self/status", "Mems_allowed_list:\t0-1", "Mems_allowed_list:\t0");
            },
        ),
        fault(
            "memory that is moved about",
            "numa-balancing",
            State::May,
            "/proc/sys/kernel/numa_balancing",
            "1",
            "sysctl -w kernel.numa_balancing=0",
            |server, _| {
                server.set("/proc/sys/kernel/numa_balancing", "1\n");
            },
        ),
        fault(
            "a counter that stops",
            "invariant-tsc",
            State::May,
            "/proc/cpuinfo",
            "flags without nonstop_tsc",
            "measure on another machine",
            |server, _| {
                server.replace("/proc/cpuinfo", " nonstop_tsc", "");
            },
        ),
        fault(
            "a counter that changes its rate",
            "invariant-tsc",
            State::Costs,
            "/proc/cpuinfo",
            "flags without constant_tsc nonstop_tsc",
            "measure on another machine",
            |server, _| {
                server.replace("/proc/cpuinfo", " constant_tsc nonstop_tsc", "");
            },
        ),
        fault(
            "a slow clock",
            "clocksource",
            State::Costs,
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            "hpet",
            "dmesg",
            |server, _| {
                let clock = "/sys/devices/system/clocksource/clocksource0";
                server.set(format!("{clock}/current_clocksource"), "hpet\n");
                server.set(format!("{clock}/available_clocksource"), "hpet acpi_pm\n");
            },
        ),
        fault(
            "counters that may not be read",
            "hardware-counters",
            State::Info,
            "/proc/sys/kernel/perf_event_paranoid",
            "4",
            "perf_event_paranoid=2",
            |server, _| {
                server.set("/proc/sys/kernel/perf_event_paranoid", "4\n");
            },
        ),
        fault(
            "no counters",
            "hardware-counters",
            State::Info,
            "/sys/bus/event_source/devices",
            "no folder of the processor's counters",
            "",
            |server, _| {
                server
                    .remove("/sys/bus/event_source/devices/cpu")
                    .set("/sys/bus/event_source/devices/software/type", "1\n");
            },
        ),
    ]
}

#[test]
fn each_fault_is_found_alone_with_its_evidence_and_remedy() {
    for fault in faults() {
        let (mut server, mut intent) = (Server::healthy(), intent());
        (fault.plant)(&mut server, &mut intent);
        let diagnosis = diagnosed(&server, &intent);
        let found: Vec<_> = diagnosis.findings().map(|outcome| (outcome.id, outcome.state)).collect();
        assert_eq!(
            found,
            [(fault.id, fault.state)],
            "{}: {:#?}",
            fault.description,
            diagnosis.findings().collect::<Vec<_>>()
        );
        let outcome = outcome(&diagnosis, fault.id);
        // Separators belong to the file, not to its words.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let is_it = |it: &Evidence| it.path == fault.path && words(&it.value) == fault.value;
        assert!(outcome.evidence.iter().any(is_it), "{}: {:#?}", fault.description, outcome.evidence);
        assert!(outcome.remedy.join("\n").contains(fault.remedy), "{}: {:#?}", fault.description, outcome.remedy);
        assert!(outcome.cost.is_some_and(|cost| !cost.is_empty()));
        let costs = matches!(fault.state, State::Costs | State::Stops);
        assert_eq!(diagnosis.has_cost(), costs, "{}", fault.description);
        let folder = folder();
        server.lay_out(folder.path());
        for evidence in outcome.evidence.iter().filter(|it| it.origin == Origin::Read) {
            let file = folder.path().join(evidence.path.trim_start_matches('/'));
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", evidence.path));
            assert!(words(&text).contains(&words(&evidence.value)), "{}: {evidence:?}", fault.description);
        }
    }
}
