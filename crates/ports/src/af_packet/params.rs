//! The parameters of an `af_packet` port. Each parameter is checked when it is read or by [`Params::check`].

use forebay_graph::SetupError;
use forebay_units::{Bytes, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::interface::InterfaceName;

/// Parameters of `af_packet`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The interface's name, as `ip link` shows it.
    pub(super) interface: InterfaceName,
    /// The network namespace of the interface: a name as in `ip netns`, or a path. By default, the namespace of
    /// Forebay.
    pub(super) namespace: Option<String>,
    /// Whether the port also receives frames whose destination is not the Ethernet address of the interface; on by
    /// default.
    #[serde(default = "yes")]
    pub(super) promiscuous: bool,
    /// Whether the host's own network stack receives the frames too; on by default. With `false` the kernel drops each
    /// frame after the port has received it, so the host does not respond to Forebay's traffic, and does not forward
    /// it. This lasts until the process ends, and needs the capabilities CAP_NET_ADMIN and CAP_BPF.
    #[serde(default = "yes")]
    pub(super) host: bool,
    /// The size of the receive ring.
    #[serde(default)]
    pub(super) ring: RingSizes,
    /// The largest number of frames that wait to be sent, 32 to 32768, a power of two; 1024 by default.
    #[serde(default = "send_ring")]
    #[schemars(range(min = 32, max = 32_768))]
    pub(super) send_ring: u32,
    /// Whether frames bypass the interface's queueing discipline, its filters and packet taps (`tcpdump` does not see
    /// them then); off by default.
    #[serde(default)]
    pub(super) bypass_queues: bool,
    /// The time after which the port reads an empty ring again, 1us to 1s; 10us by default. A reading needs no system
    /// call.
    #[serde(default = "poll")]
    pub(super) poll: Nanos,
}

fn yes() -> bool {
    true
}

fn send_ring() -> u32 {
    1_024
}

fn poll() -> Nanos {
    Nanos(10_000)
}

/// The size of a receive ring. The kernel hands over whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct RingSizes {
    /// The number of blocks, 2 to 4096; 64 by default. With little traffic, each block holds few frames. The worker
    /// must then read the ring at least once per `blocks` times `retire`, or frames are lost.
    #[schemars(range(min = 2, max = 4_096))]
    pub(super) blocks: u32,
    /// The length of a block, 4KiB to 4MiB, a power of two; 128KiB by default. The kernel cuts off a frame that is
    /// longer than a block, and the port drops it. Frames that a TCP sender leaves to its interface to split have up to
    /// 64KiB.
    pub(super) block: Bytes,
    /// The longest time for which the kernel fills a block before it hands the block over, in whole milliseconds, 1ms
    /// to 1s; 1ms by default. The kernel hands over a full block at once, so short blocks reduce the delay under load.
    pub(super) retire: Nanos,
}

impl Default for RingSizes {
    fn default() -> Self {
        Self { blocks: 64, block: Bytes(128 << 10), retire: Nanos(1_000_000) }
    }
}

impl Params {
    /// Checks the limits of all numbers. The error names the parameter and the values that are allowed.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        let Self { ring: RingSizes { blocks, block, retire }, send_ring, poll, .. } = self;
        let allowed = |path: &str, right: bool, value: &dyn std::fmt::Display, allowed: &str| {
            if right { Ok(()) } else { Err(SetupError::not_allowed(path, value, allowed)) }
        };
        allowed("poll", (1_000..=1_000_000_000).contains(&poll.0), poll, "1us to 1s")?;
        let sizes = 4 << 10..=4 << 20;
        let right = sizes.contains(&block.0) && block.0.is_power_of_two();
        allowed("ring.block", right, block, "powers of two from 4KiB to 4MiB")?;
        allowed("ring.blocks", (2..=4_096).contains(blocks), blocks, "2 to 4096")?;
        let memory = u64::from(*blocks) * block.0;
        let most = format!("2 to {} with blocks of {block} (1GiB in total)", (1_u64 << 30) / block.0);
        allowed("ring.blocks", memory <= 1 << 30, blocks, &most)?;
        let right = retire.0 % 1_000_000 == 0 && (1_000_000..=1_000_000_000).contains(&retire.0);
        allowed("ring.retire", right, retire, "1ms to 1s, in whole milliseconds")?;
        let right = (32..=32_768).contains(send_ring) && send_ring.is_power_of_two();
        allowed("send_ring", right, send_ring, "powers of two from 32 to 32768")
    }
}
