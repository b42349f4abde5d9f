//! The parameters of an AF_XDP port.

use forebay_graph::SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::socket::Sizes;
use super::umem::Shape;
use crate::interface::InterfaceName;

/// Limits of the parameters.
const MAX_QUEUES: u32 = 256;
const MAX_CHUNKS: usize = 1 << 24;
const MAX_ENTRIES: u32 = 1 << 15;

/// Parameters of `af_xdp`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The interface's name, up to 15 characters. The interface must exist at the start.
    pub(super) interface: InterfaceName,
    /// The network namespace of the interface: a name as in `ip netns`, or a path. By default, the namespace of
    /// Forebay.
    pub(super) namespace: Option<String>,
    /// How many of the interface's receive queues the port uses, starting with the first; all of them by default. The
    /// host receives the frames of the other queues.
    #[schemars(range(min = 1, max = 256))]
    pub(super) queues: Option<u32>,
    /// Where the program that takes frames runs: in the driver (`native`), or after it (`generic`). Every interface
    /// supports `generic`, which is slower.
    #[serde(default)]
    pub(super) mode: Mode,
    /// Whether the kernel copies frames to and from packet memory, or the device itself reads and writes them there.
    #[serde(default)]
    pub(super) copy: CopyMode,
    /// How to treat checksums that a sender on this host has left to a device.
    #[serde(default)]
    pub(super) checksums: Checksums,
    /// How many frames the kernel may receive on each queue before the port reads it, and how many received frames may
    /// wait for the port: a power of two up to 32768; 2048 by default.
    #[schemars(range(min = 32, max = 32_768))]
    #[schemars(extend("default" = 2_048))]
    pub(super) receive: Option<u32>,
    /// How many frames may wait to be sent: a power of two up to 32768; 2048 by default.
    #[schemars(range(min = 32, max = 32_768))]
    #[schemars(extend("default" = 2_048))]
    pub(super) send: Option<u32>,
    /// Makes the kernel poll the device on each read of the port, for up to this many frames, instead of using
    /// interrupts (Linux 5.11 and later): 8 to 1024. This helps on zero-copy devices whose interrupts are deferred
    /// (`napi_defer_hard_irqs`, `gro_flush_timeout`).
    #[schemars(range(min = 8, max = 1_024))]
    pub(super) busy_poll: Option<u32>,
    /// The memory that all `af_xdp` ports share. The first port determines it; other ports may only repeat the same
    /// values.
    pub(super) memory: Option<Memory>,
}

/// The memory of all `af_xdp` ports of a pipeline.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Memory {
    /// The number of packets in the memory, in the sockets' rings and in the pipeline together: up to 16777216; 16384
    /// by default.
    #[schemars(range(min = 64, max = 16_777_216))]
    #[schemars(extend("default" = 16_384))]
    pub(super) chunks: Option<usize>,
    /// The longest frame, in bytes: up to 3840 (3776 if `aligned`); 2048 by default.
    #[schemars(range(min = 64, max = 3_840))]
    #[schemars(extend("default" = 2_048))]
    pub(super) frame: Option<usize>,
    /// Uses chunks of 2 or 4 KiB, for devices that require them. They are slower, because the starts of packets share
    /// few sets of the processor's cache.
    #[serde(default)]
    pub(super) aligned: bool,
}

/// Where the program that takes frames runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// In the driver if it supports XDP, otherwise after it.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// In the kernel, after the driver.
    Generic,
}

/// How frames are copied to and from packet memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyMode {
    /// The device reads and writes packet memory if it can; otherwise the kernel copies.
    #[default]
    Auto,
    /// The kernel copies each frame.
    Copy,
    /// The device reads and writes packet memory.
    Zero,
}

/// How to treat partial checksums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Checksums {
    /// Complete them on interfaces without a physical device, for example veth.
    #[default]
    Auto,
    /// Complete them.
    Complete,
    /// Leave frames as they are.
    Leave,
}

impl Params {
    /// Returns the sizes of the rings.
    pub(super) fn sizes(&self) -> Result<Sizes, SetupError> {
        let size = |path: &str, stated: Option<u32>| {
            let size = stated.unwrap_or(2_048);
            if size.is_power_of_two() && (32..=MAX_ENTRIES).contains(&size) {
                return Ok(size);
            }
            Err(SetupError::not_allowed(path, size, format!("powers of two from 32 to {MAX_ENTRIES}")))
        };
        let receive = size("receive", self.receive)?;
        Ok(Sizes { fill: receive, receive, send: size("send", self.send)? })
    }

    /// Returns the required shape of the memory, or `None` if the parameters do not state it.
    pub(super) fn shape(&self) -> Result<Option<Shape>, SetupError> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let shape = Shape {
            chunks: memory.chunks.unwrap_or(Shape::default().chunks),
            frame: memory.frame.unwrap_or(Shape::default().frame),
            aligned: memory.aligned,
        };
        if !(64..=MAX_CHUNKS).contains(&shape.chunks) {
            return Err(SetupError::not_allowed("memory.chunks", shape.chunks, format!("64 to {MAX_CHUNKS}")));
        }
        let longest = Shape::longest(memory.aligned);
        if !(64..=longest).contains(&shape.frame) {
            let kind = if memory.aligned { "aligned" } else { "unaligned" };
            return Err(SetupError::not_allowed(
                "memory.frame",
                shape.frame,
                format!("64 to {longest} bytes in {kind} chunks"),
            ));
        }
        Ok(Some(shape))
    }

    /// Checks the other parameters.
    pub(super) fn check(&self) -> Result<(), SetupError> {
        if let Some(queues) = self.queues.filter(|queues| !(1..=MAX_QUEUES).contains(queues)) {
            return Err(SetupError::not_allowed("queues", queues, format!("1 to {MAX_QUEUES}")));
        }
        if let Some(budget) = self.busy_poll.filter(|budget| !(8..=1_024).contains(budget)) {
            return Err(SetupError::not_allowed("busy_poll", budget, "8 to 1024"));
        }
        if self.mode == Mode::Generic && self.copy == CopyMode::Zero {
            let message =
                "zero: in the mode `generic` the kernel copies frames; use `mode: native`, or remove `copy` or `mode`";
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
