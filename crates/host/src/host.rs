//! The machine, described: CPUs, nodes, interfaces, interrupts, the kernel and this process.

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

/// The most CPUs that are looked at: as many as Linux can have on any machine of today.
pub(crate) const MOST_CPUS: usize = 8_192;

/// A machine, as its kernel tells of it.
///
/// ```
/// use forebay_host::{Host, Tree};
///
/// let host = Host::read(&Tree::default());
/// for cpu in &host.cpus {
///     // What the kernel does not tell is not known, and why that is so can be asked.
///     let governor = &cpu.frequency.governor;
///     match governor.value() {
///         Some(name) => println!("core {}: {name}", cpu.number),
///         None => println!("core {}: n/a ({})", cpu.number, governor.why().unwrap_or_default()),
///     }
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Host {
    /// CPUs that there are, switched on or not.
    pub present: Fact<KernelList>,
    /// CPUs that are switched on.
    pub online: Fact<KernelList>,
    /// These, one by one.
    pub cpus: Vec<Cpu>,
    /// NUMA nodes that there are.
    pub nodes_online: Fact<KernelList>,
    /// These, one by one.
    pub nodes: Vec<Node>,
    /// Memory of all nodes.
    pub memory: Memory,
    /// Network interfaces, by name.
    pub interfaces: Vec<Interface>,
    /// Its part in ARP.
    pub arp: Arp,
    /// Interrupts of devices.
    pub interrupts: Result<Vec<Interrupt>, Unknown>,
    /// The kernel.
    pub kernel: Kernel,
    /// This process.
    pub process: Process,
    /// Its control groups.
    pub groups: Groups,
    /// CPUs' times, as they were read.
    times: Result<BTreeMap<usize, CpuTimes>, Unknown>,
    /// How long the system has been running, in seconds.
    uptime_s: Fact<f64>,
    read_at: Instant,
}

impl Host {
    /// Reads what there is beneath `tree`. Nothing that is missing or makes no sense stops it.
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
        // Until somebody looks again: since the start.
        let times = host.times.clone();
        host.tell(&times, None, Duration::ZERO);
        host
    }

    /// Reads again what changes all the time, for loads and rates of the time since [`read`](Self::read). Where it does not
    /// advance, they stay those since the system's start.
    pub fn observe(&mut self, tree: &Tree) {
        let (times, interrupts) = (stat::read(tree), interrupts::counted(tree));
        let span = self.read_at.elapsed();
        let live = self.times.is_ok() && times.is_ok() && self.times != times;
        self.tell(&times, interrupts.ok().filter(|_| live).as_deref(), span);
    }

    fn tell(
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
            // They are listed in the same order, unless one has come or gone.
            let same = later.and_then(|later| {
                let there = later.get(at).filter(|counted| counted.number == interrupt.number);
                there.or_else(|| later.iter().find(|counted| counted.number == interrupt.number))
            });
            interrupt.observe(same, span, uptime);
        }
    }

    /// A CPU that is switched on.
    #[must_use]
    pub fn cpu(&self, number: usize) -> Option<&Cpu> {
        self.cpus.iter().find(|cpu| cpu.number == number)
    }

    /// A NUMA node.
    #[must_use]
    pub fn node(&self, number: usize) -> Option<&Node> {
        self.nodes.iter().find(|node| node.number == number)
    }

    /// A network interface.
    #[must_use]
    pub fn interface(&self, name: &str) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Why CPUs' loads are not known, if that is so.
    #[must_use]
    pub fn load_unknown(&self) -> Option<String> {
        self.times.as_ref().err().map(ToString::to_string)
    }
}
