//! Network interfaces, with their devices, NUMA nodes and queues (`/sys/class/net`, Linux
//! `Documentation/ABI/testing/sysfs-class-net`).

use crate::arp::Setting;
use crate::fact::Fact;
use crate::list::KernelList;
use crate::tree::Tree;

/// The kernel's folder of interfaces.
pub const FOLDER: &str = "/sys/class/net";
/// The largest number of interfaces that are read.
const MOST: usize = 1_024;

/// A network interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// The interface's name.
    pub name: String,
    /// True if the interface has a device, so that it is not purely virtual.
    pub has_device: bool,
    /// The interface's state: `up`, `down`, `unknown`, …
    pub state: Fact<String>,
    /// The NUMA node of the device. `None` if the firmware reports no node.
    pub node: Fact<Option<usize>>,
    /// The CPUs near the device.
    pub cpus: Fact<KernelList>,
    /// The number of receive queues.
    pub receive_queues: usize,
    /// The number of send queues.
    pub send_queues: usize,
    /// The numbers of the device's interrupts.
    pub interrupts: Vec<u32>,
    /// The user that owns a prepared TUN or TAP interface. `None` if it has no owner.
    pub owner: Fact<Option<u32>>,
    /// The addresses for which the interface replies to ARP requests (`arp_ignore`).
    pub arp_ignore: Fact<u32>,
    /// The source address of ARP requests at the interface (`arp_announce`).
    pub arp_announce: Fact<u32>,
    /// The check of the sources of packets that arrive at the interface (`rp_filter`).
    pub rp_filter: Fact<u32>,
}

impl Interface {
    /// Reads all interfaces, in the order of their names.
    pub(crate) fn read_all(tree: &Tree) -> Vec<Self> {
        tree.names(FOLDER).into_iter().take(MOST).map(|name| Self::read(tree, name)).collect()
    }

    fn read(tree: &Tree, name: String) -> Self {
        let path = |file: &str| format!("{FOLDER}/{name}/{file}");
        // The device of a virtio interface is on a separate bus. Its parent, a PCI device, reports the node.
        let near = ["device", "device/.."].into_iter().find(|device| tree.has(&path(&format!("{device}/numa_node"))));
        let device = near.unwrap_or("device");
        let queues = tree.names(&path("queues"));
        let count = |kind: &str| queues.iter().filter(|queue| queue.starts_with(kind)).count();
        let interrupts = tree.names(&path(&format!("{device}/msi_irqs")));
        Self {
            has_device: tree.has(&path("device")),
            state: crate::cpu::name(tree, &path("operstate")),
            node: tree.fact(&path(&format!("{device}/numa_node")), "a node or -1", node),
            cpus: tree.fact(&path(&format!("{device}/local_cpulist")), "a list of CPUs", |text| text.parse().ok()),
            receive_queues: count("rx-"),
            send_queues: count("tx-"),
            interrupts: interrupts.iter().filter_map(|number| number.parse().ok()).collect(),
            owner: tree.fact(&path("owner"), "a user or -1", |text| match text {
                "-1" => Some(None),
                text => text.parse().ok().map(Some),
            }),
            arp_ignore: Setting::Ignore.of(tree, &name),
            arp_announce: Setting::Announce.of(tree, &name),
            rp_filter: Setting::ReversePath.of(tree, &name),
            name,
        }
    }
}

/// Parses a node. -1 means that the firmware reports no node.
fn node(text: &str) -> Option<Option<usize>> {
    if text == "-1" { Some(None) } else { text.parse().ok().map(Some) }
}
