//! A healthy server's kernel files: two nodes of four physical cores with two threads each, and a network card on the
//! second node. Tests change the files that they need.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The number of CPUs.
const CPUS: usize = 16;
/// The card's folder.
const CARD: &str = "/sys/devices/pci0000:80/0000:81:00.0";

/// Creates a folder for the server's hundreds of files, in memory if possible.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_| tempfile::tempdir()).expect("a folder for the test")
}

/// Files and links by path.
#[derive(Clone)]
pub struct Server {
    files: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
}

impl Server {
    /// Returns a server without faults for workers on cores 5 and 6.
    pub fn healthy() -> Self {
        let mut server = Self { files: BTreeMap::new(), links: BTreeMap::new() };
        server.cpus();
        server.nodes();
        server.card();
        server.interrupts();
        server.kernel();
        server.process();
        server
    }

    /// Writes a file, or replaces it.
    pub fn set(&mut self, path: impl Into<String>, text: impl Into<String>) -> &mut Self {
        self.files.insert(path.into(), text.into());
        self
    }

    /// Removes a file, or everything in a folder.
    pub fn remove(&mut self, path: &str) -> &mut Self {
        let below = format!("{path}/");
        let stays = |name: &String| name != path && !name.starts_with(&below);
        self.files.retain(|name, _| stays(name));
        self.links.retain(|name, _| stays(name));
        self
    }

    /// Replaces a part of a file that must exist.
    pub fn replace(&mut self, path: &str, from: &str, to: &str) -> &mut Self {
        let text = self.files.get_mut(path).unwrap_or_else(|| panic!("{path} is laid out"));
        assert!(text.contains(from), "{path} has no {from:?}:\n{text}");
        *text = text.replace(from, to);
        self
    }

    /// Returns the paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &String> {
        self.files.keys()
    }

    /// Writes all files beneath `root`.
    pub fn lay_out(&self, root: &Path) {
        let place = |path: &str| root.join(path.trim_start_matches('/'));
        let make_room = |path: &Path| fs::create_dir_all(path.parent().expect("beneath the root")).expect("a folder");
        for (path, text) in &self.files {
            make_room(&place(path));
            fs::write(place(path), text).expect("a file");
        }
        for (path, target) in &self.links {
            make_room(&place(path));
            symlink(target, place(path)).expect("a link");
        }
    }

    fn cpus(&mut self) {
        let folder = "/sys/devices/system/cpu";
        for name in ["online", "present", "possible"] {
            self.set(format!("{folder}/{name}"), "0-15\n");
        }
        self.set(format!("{folder}/isolated"), "4-7,12-15\n").set(format!("{folder}/nohz_full"), "4-7,12-15\n");
        let mut stat = String::from("cpu  100 0 100 10000 0 0 0 0 0 0\n");
        for cpu in 0..CPUS {
            let mut file = |name: &str, text: String| {
                self.set(format!("{folder}/cpu{cpu}/{name}"), text + "\n");
            };
            let physical = cpu % 8;
            file("topology/thread_siblings_list", format!("{physical},{}", physical + 8));
            file("topology/physical_package_id", format!("{}", physical / 4));
            file("cpufreq/scaling_driver", "intel_pstate".to_owned());
            file("cpufreq/scaling_governor", "performance".to_owned());
            file("cpufreq/scaling_max_freq", "3500000".to_owned());
            file("cpufreq/cpuinfo_max_freq", "3500000".to_owned());
            for (state, (name, latency)) in [("POLL", 0), ("C1", 2), ("C6", 133)].into_iter().enumerate() {
                file(&format!("cpuidle/state{state}/name"), name.to_owned());
                file(&format!("cpuidle/state{state}/latency"), latency.to_string());
                let off = u8::from(name == "C6" && physical >= 4);
                file(&format!("cpuidle/state{state}/disable"), off.to_string());
            }
            file("power/pm_qos_resume_latency_us", "0".to_owned());
            let (busy, idle) = if physical < 4 { (40_000, 60_000) } else { (100, 99_900) };
            stat += &format!("cpu{cpu} {busy} 0 0 {idle} 0 0 0 0 0 0\n");
        }
        stat += "intr 5 0 0\nctxt 7\n";
        self.set("/proc/stat", stat).set("/proc/uptime", "1000.00 15000.00\n");
    }

    fn nodes(&mut self) {
        let folder = "/sys/devices/system/node";
        self.set(format!("{folder}/online"), "0-1\n");
        for (node, cpus) in ["0-3,8-11", "4-7,12-15"].into_iter().enumerate() {
            self.set(format!("{folder}/node{node}/cpulist"), format!("{cpus}\n"));
            let meminfo = format!("Node {node} MemTotal:       65805000 kB\nNode {node} MemFree:        60000000 kB\n");
            self.set(format!("{folder}/node{node}/meminfo"), meminfo);
            for (file, pages) in [("nr_hugepages", 512), ("free_hugepages", 500)] {
                self.set(format!("{folder}/node{node}/hugepages/hugepages-2048kB/{file}"), format!("{pages}\n"));
            }
        }
        let meminfo = "\
MemTotal:       131610000 kB
MemFree:        120000000 kB
HugePages_Total:    1024
HugePages_Free:     1000
HugePages_Rsvd:        0
HugePages_Surp:        0
Hugepagesize:       2048 kB
";
        self.set("/proc/meminfo", meminfo);
        self.set("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    }

    /// Puts the interface into the device's folder, with links in `class`, as the kernel does.
    fn card(&mut self) {
        self.set(format!("{CARD}/numa_node"), "1\n").set(format!("{CARD}/local_cpulist"), "4-7,12-15\n");
        for number in [40, 41] {
            self.set(format!("{CARD}/msi_irqs/{number}"), "msix\n");
        }
        let interface = format!("{CARD}/net/eth1");
        self.set(format!("{interface}/operstate"), "up\n");
        for queue in ["rx-0", "rx-1", "tx-0", "tx-1"] {
            self.set(format!("{interface}/queues/{queue}/uevent"), "");
        }
        self.set("/sys/devices/virtual/net/lo/operstate", "unknown\n");
        self.links.insert(format!("{interface}/device"), "../../../0000:81:00.0".to_owned());
        self.links.insert("/sys/class/net/eth1".to_owned(), format!("../../{}/net/eth1", &CARD["/sys/".len()..]));
        self.links.insert("/sys/class/net/lo".to_owned(), "../../devices/virtual/net/lo".to_owned());
    }

    fn interrupts(&mut self) {
        let cpus = |text: &dyn Fn(usize) -> String| (0..CPUS).map(text).collect::<Vec<_>>().concat();
        let mut listing = cpus(&|cpu| format!("       CPU{cpu}")) + "\n";
        for (number, on, count, device) in
            [(40, 0, 900_000, "eth1-TxRx-0"), (41, 1, 800_000, "eth1-TxRx-1"), (9, 0, 3, "acpi")]
        {
            let counts = cpus(&|cpu| format!(" {:10}", if cpu == on { count } else { 0 }));
            listing += &format!(" {number}:{counts}  IR-PCI-MSI-0000:81:00.0    {number}-edge      {device}\n");
            self.set(format!("/proc/irq/{number}/smp_affinity_list"), "0-3,8-11\n");
            self.set(format!("/proc/irq/{number}/effective_affinity_list"), format!("{on}\n"));
        }
        listing += &(String::from("LOC:") + &cpus(&|_| " 99".to_owned()) + "   Local timer interrupts\n");
        self.set("/proc/interrupts", listing);
    }

    fn kernel(&mut self) {
        let clock = "/sys/devices/system/clocksource/clocksource0";
        self.set(format!("{clock}/current_clocksource"), "tsc\n");
        self.set(format!("{clock}/available_clocksource"), "tsc hpet acpi_pm \n");
        self.set("/proc/sys/kernel/perf_event_paranoid", "2\n");
        self.set("/proc/sys/kernel/numa_balancing", "0\n");
        self.set("/proc/sys/net/ipv4/conf/all/arp_ignore", "0\n");
        self.set("/proc/sys/net/ipv4/conf/eth1/arp_ignore", "1\n");
        for name in ["all", "default", "eth1", "fb0"] {
            self.set(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "1\n");
            self.set(format!("/proc/sys/net/ipv4/conf/{name}/arp_announce"), "0\n");
        }
        self.routes("fb0", "fb0");
        self.set("/proc/net/fib_trie", "Local:\n     |-- 192.0.2.1\n        /32 host LOCAL\n");
        self.set("/sys/bus/event_source/devices/cpu/type", "4\n");
        self.set("/proc/cmdline", "isolcpus=managed_irq,domain,4-7,12-15 nohz_full=4-7,12-15\n");
        let flags = "flags\t\t: fpu tsc constant_tsc nonstop_tsc avx2";
        let cpus: Vec<_> = (0..CPUS).map(|cpu| format!("processor\t: {cpu}\n{flags}\n\n")).collect();
        self.set("/proc/cpuinfo", cpus.concat());
    }

    /// Sets a default route through the interface `default`, and another route through the interface `other`.
    pub fn routes(&mut self, default: &str, other: &str) -> &mut Self {
        let head = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n";
        let line = |name: &str, to: &str, mask: &str| format!("{name}\t{to}\t0\t0001\t0\t0\t0\t{mask}\t0\t0\t0\n");
        let text = [head, &line(default, "00000000", "00000000"), &line(other, "000200C0", "00FFFFFF")].concat();
        self.set("/proc/net/route", text)
    }

    fn process(&mut self) {
        let status = "\
Name:\tforebay
Uid:\t1000\t1000\t1000\t1000
CapEff:\t0000000000003000
Cpus_allowed:\tffff
Cpus_allowed_list:\t0-15
Mems_allowed_list:\t0-1
";
        self.set("/proc/self/status", status);
        self.set("/proc/self/cgroup", "0::/system.slice/forebay.service\n");
        self.set("/proc/self/mounts", "proc /proc proc rw 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n");
        let groups = "/sys/fs/cgroup";
        self.set(format!("{groups}/cgroup.controllers"), "cpuset cpu io memory\n");
        for folder in ["system.slice", "system.slice/forebay.service"] {
            self.set(format!("{groups}/{folder}/cpu.max"), "max 100000\n");
            self.set(format!("{groups}/{folder}/cpu.stat"), "usage_usec 1\nnr_periods 0\nnr_throttled 0\n");
            self.set(format!("{groups}/{folder}/cpuset.cpus.partition"), "member\n");
            self.set(format!("{groups}/{folder}/cpuset.cpus.effective"), "0-15\n");
        }
    }
}
