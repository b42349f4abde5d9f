//! The parameters of an AF_XDP port.

use forebay_graph::SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::socket::Sizes;
use super::umem::Shape;
use crate::interface::InterfaceName;

/// The most queues of an interface.
const MOST_QUEUES: u32 = 256;
const MOST_CHUNKS: usize = 1 << 24;
const MOST_ENTRIES: u32 = 1 << 15;

/// Parameters of `af_xdp`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The interface's name, up to 15 characters. It must be there at the start.
    pub(super) interface: InterfaceName,
    /// The network namespace that the interface is in: a name as `ip netns` knows it, or a path. Without one it is where
    /// Forebay is.
    pub(super) namespace: Option<String>,
    /// How many of its receive queues the port has, from the first on; all of them by default. Frames of the others go to the
    /// host.
    #[schemars(range(min = 1, max = 256))]
    pub(super) queues: Option<u32>,
    /// Where frames are taken from the kernel: in the driver, or behind it, which any interface can and is slower.
    #[serde(default)]
    pub(super) mode: Mode,
    /// Whether the kernel copies frames to and from the memory that packets are in, or the device itself writes and reads them
    /// there.
    #[serde(default)]
    pub(super) copy: CopyMode,
    /// What to do about checksums that a sender on this host has left to a device.
    #[serde(default)]
    pub(super) checksums: Checksums,
    /// How many frames the kernel may receive on each queue before the port looks, and how many may wait for it then: a power
    /// of two up to 32768; 2048 by default.
    #[schemars(range(min = 32, max = 32_768))]
    #[schemars(extend("default" = 2_048))]
    pub(super) receive: Option<u32>,
    /// How many frames may wait to be sent: a power of two up to 32768; 2048 by default.
    #[schemars(range(min = 32, max = 32_768))]
    #[schemars(extend("default" = 2_048))]
    pub(super) send: Option<u32>,
    /// Has the kernel poll the device each time that the port is asked for packets, for so many frames at the most, in place of
    /// interrupts (Linux 5.11 and later): 8 to 1024. It pays on devices with zero-copy whose interrupts are put off
    /// (`napi_defer_hard_irqs`, `gro_flush_timeout`).
    #[schemars(range(min = 8, max = 1_024))]
    pub(super) busy_poll: Option<u32>,
    /// The memory that all `af_xdp` ports share. The first of them says how it is; others that say something say the same.
    pub(super) memory: Option<Memory>,
}

/// The memory of all `af_xdp` ports of a pipeline.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// How many packets there can be in it at once, in the sockets' rings and in the pipeline: up to 16777216; 16384 by default.
    #[schemars(range(min = 64, max = 16_777_216))]
    #[schemars(extend("default" = 16_384))]
    pub(super) chunks: Option<usize>,
    /// The longest frame, in bytes: up to 3840 (3776 where `aligned`); 2048 by default.
    #[schemars(range(min = 64, max = 3_840))]
    #[schemars(extend("default" = 2_048))]
    pub(super) frame: Option<usize>,
    /// Chunks of 2 or 4 KiB, for devices that write to no others. They are slower: the beginnings of packets share few places of
    /// the processor's cache.
    #[serde(default)]
    pub(super) aligned: bool,
}

/// Where frames are taken from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In the driver where it can, else behind it.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// Behind it.
    Generic,
}

/// Who writes frames to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyMode {
    /// The device where it can, else the kernel.
    #[default]
    Auto,
    /// The kernel, by a copy.
    Copy,
    /// The device.
    Zero,
}

/// What to do about checksums that are only begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// Complete them on interfaces that have no device behind them, such as veth.
    #[default]
    Auto,
    /// Complete them.
    Complete,
    /// Take frames as they are.
    Leave,
}

impl Params {
    /// The rings' sizes.
    pub(super) fn sizes(&self) -> Result<Sizes, SetupError> {
        let size = |path: &str, stated: Option<u32>| {
            let size = stated.unwrap_or(2_048);
            if size.is_power_of_two() && (32..=MOST_ENTRIES).contains(&size) {
                return Ok(size);
            }
            Err(SetupError::at(path, format!("{size}: allowed are powers of two from 32 to {MOST_ENTRIES}")))
        };
        let receive = size("receive", self.receive)?;
        Ok(Sizes { fill: receive, receive, send: size("send", self.send)? })
    }

    /// What it says of the memory: nothing, or how it is to be.
    pub(super) fn shape(&self) -> Result<Option<Shape>, SetupError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let shape = Shape {
            chunks: memory.chunks.unwrap_or(Shape::default().chunks),
            frame: memory.frame.unwrap_or(Shape::default().frame),
            aligned: memory.aligned,
        };
        if !(64..=MOST_CHUNKS).contains(&shape.chunks) {
            let message = format!("{}: allowed are 64 to {MOST_CHUNKS}", shape.chunks);
            return Err(SetupError::at("memory.chunks", message));
        }
        let longest = Shape::longest(memory.aligned);
        if !(64..=longest).contains(&shape.frame) {
            let kind = if memory.aligned { "aligned" } else { "unaligned" };
            let message = format!("{}: allowed are 64 to {longest} bytes in {kind} chunks", shape.frame);
            return Err(SetupError::at("memory.frame", message));
        }
        Ok(Some(shape))
    }

    /// Looks at the rest.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        if let Some(queues) = self.queues.filter(|queues| !(1..=MOST_QUEUES).contains(queues)) {
            return Err(SetupError::at("queues", format!("{queues}: allowed are 1 to {MOST_QUEUES}")));
        }
        if let Some(budget) = self.busy_poll.filter(|budget| !(8..=1_024).contains(budget)) {
            return Err(SetupError::at("busy_poll", format!("{budget}: allowed are 8 to 1024")));
        }
        if self.mode == Mode::Generic && self.copy == CopyMode::Zero {
            let message =
                "zero: in the mode `generic` the kernel copies frames; write `mode: native`, or leave one of them out";
            return Err(SetupError::at("copy", message));
        }
        Ok(())
    }
}

impl Default for Shape {
    fn default() -> Self {
        Self { chunks: 16_384, frame: 2_048, aligned: false }
    }
}
