//! A description of the machine: CPUs, nodes, interfaces, interrupts, the kernel and this process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::arp::Arp;
use crate::cgroup::Groups;
use crate::cpu::{Cpu, FOLDER};
use crate::fact::Fact;
use crate::interface::Interface;
use crate::interrupts::{self, Counted, Interrupt};
use crate::kernel::Kernel;
use crate::list::KernelList;
use crate::memory::{Memory, Node};
use crate::process::Process;
use crate::stat::{self, CpuTimes, Load};
use crate::tree::{Tree, Unknown};

/// The largest number of CPUs that are read. Linux supports no more on any current machine.
pub(crate) const MOST_CPUS: usize = 8_192;

/// A machine, as its kernel describes it.
///
/// ```
/// use forebay_host::{Host, Tree};
///
/// let host = Host::read(&Tree::default());
/// for cpu in &host.cpus {
///     // A value that the kernel does not report is unknown, and `why` gives the reason.
///     let governor = &cpu.frequency.governor;
///     match governor.value() {
///         Some(name) => println!("core {}: {name}", cpu.number),
///         None => println!("core {}: n/a ({})", cpu.number, governor.why().unwrap_or_default()),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    /// The CPUs that exist, online or offline.
    pub present: Fact<KernelList>,
    /// The CPUs that are online.
    pub online: Fact<KernelList>,
    /// The online CPUs, in ascending order. Empty if the online CPUs are unknown.
    pub cpus: Vec<Cpu>,
    /// The NUMA nodes that are online.
    pub nodes_online: Fact<KernelList>,
    /// The NUMA nodes, in ascending order. Empty if they are unknown.
    pub nodes: Vec<Node>,
    /// The memory of all nodes together.
    pub memory: Memory,
    /// The network interfaces, in the order of their names.
    pub interfaces: Vec<Interface>,
    /// The host's addresses and ARP settings.
    pub arp: Arp,
    /// The interrupts of devices.
    pub interrupts: Result<Vec<Interrupt>, Unknown>,
    /// The kernel.
    pub kernel: Kernel,
    /// This process.
    pub process: Process,
    /// The control groups of this process.
    pub groups: Groups,
    /// The CPUs' times at the first reading.
    times: Result<BTreeMap<usize, CpuTimes>, Unknown>,
    /// The time since the system's start, in seconds.
    uptime_s: Fact<f64>,
    /// The time of the first reading.
    read_at: Instant,
}

impl Host {
    /// Reads the description beneath `tree`. A missing or invalid file does not stop the reading: its values are
    /// unknown.
    #[must_use]
    pub fn read(tree: &Tree) -> Self {
        let list = |file: &str| tree.fact(&format!("{FOLDER}/{file}"), "a list of CPUs", |text| text.parse().ok());
        let (present, online): (_, Fact<KernelList>) = (list("present"), list("online"));
        let memory = Memory::read(tree);
        let (nodes_online, nodes) = Node::read_all(tree, memory.huge_kib.value().copied());
        let node_of = |cpu: usize| {
            let of = |node: &&Node| node.cpus.value().is_some_and(|cpus| cpus.contains(cpu));
            nodes.iter().find(of).map(|node| node.number)
        };
        let numbers: Vec<usize> = online.value().map(|list| list.iter().take(MOST_CPUS).collect()).unwrap_or_default();
        let cpus = numbers.into_iter().map(|number| Cpu::read(tree, number, node_of(number))).collect();
        let mut host = Self {
            present,
            online,
            cpus,
            nodes_online,
            memory,
            interfaces: Interface::read_all(tree),
            arp: Arp::read(tree),
            interrupts: interrupts::read(tree),
            kernel: Kernel::read(tree),
            process: Process::read(tree),
            groups: Groups::read(tree),
            times: stat::read(tree),
            uptime_s: tree.fact("/proc/uptime", "a number of seconds", |text| {
                text.split_ascii_whitespace().next()?.parse().ok().filter(|seconds: &f64| seconds.is_finite())
            }),
            nodes,
            read_at: Instant::now(),
        };
        // Loads and rates are averages since the system's start until `observe` is called.
        let times = host.times.clone();
        host.update_loads(&times, None, Duration::ZERO);
        host
    }

    /// Reads the changing files again, and computes loads and rates for the time since [`read`](Self::read). `tree`
    /// must be the same. If the files have not changed, loads and rates remain the averages since the system's start.
    pub fn observe(&mut self, tree: &Tree) {
        let (times, interrupts) = (stat::read(tree), interrupts::counted(tree));
        let span = self.read_at.elapsed();
        let live = self.times.is_ok() && times.is_ok() && self.times != times;
        self.update_loads(&times, interrupts.ok().filter(|_| live).as_deref(), span);
    }

    /// Computes the loads of CPUs and the rates of interrupts from a later reading, `span` after the first. Without
    /// `interrupts`, rates are averages since the system's start.
    fn update_loads(
        &mut self,
        times: &Result<BTreeMap<usize, CpuTimes>, Unknown>,
        interrupts: Option<&[Counted]>,
        span: Duration,
    ) {
        for cpu in &mut self.cpus {
            let earlier = self.times.as_ref().ok().and_then(|times| times.get(&cpu.number));
            let later = times.as_ref().ok().and_then(|times| times.get(&cpu.number));
            cpu.load = later.and_then(|later| Load::between(earlier, later, span));
        }
        let uptime = self.uptime_s.value().copied();
        let later = interrupts;
        for (at, interrupt) in self.interrupts.iter_mut().flatten().enumerate() {
            // The order of the interrupts is the same in both readings, except if an interrupt was added or removed.
            let same = later.and_then(|later| {
                let same_index = later.get(at).filter(|counted| counted.number == interrupt.number);
                same_index.or_else(|| later.iter().find(|counted| counted.number == interrupt.number))
            });
            interrupt.observe(same, span, uptime);
        }
    }

    /// Returns an online CPU, or `None` if there is no online CPU with this number.
    #[must_use]
    pub fn cpu(&self, number: usize) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.number == number)
    }

    /// Returns a NUMA node.
    #[must_use]
    pub fn node(&self, number: usize) -> Option<&Node> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// Returns a network interface.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Returns the reason why the CPUs' loads are unknown, or `None` if they are known.
    #[must_use]
    pub fn load_unknown(&self) -> Option<String> {
        self.times.as_ref().err().map(ToString::to_string)
    }
}
