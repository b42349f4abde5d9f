//! The parameters of an AF_XDP port.

use forebay_graph::SetupError;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::socket::Sizes;
use super::umem::Shape;
use crate::interface::InterfaceName;

/// The largest number of queues.
const MAX_QUEUES: u32 = 256;
/// The largest number of chunks in the memory.
const MAX_CHUNKS: usize = 1 << 24;
/// The largest number of entries in a ring.
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
    /// The number of the interface's receive queues that the port uses, starting with the first; all queues by default.
    /// The host receives the frames of the other queues.
    #[schemars(range(min = 1, max = 256))]
    pub(super) queues: Option<u32>,
    /// The part of the kernel that runs the program for received frames: the driver (`native`), or a later step of the
    /// kernel (`generic`). Every interface supports `generic`, which is slower.
    #[serde(default)]
    pub(super) mode: Mode,
    /// The way in which frames get to and from packet memory: copied by the kernel, or read and written by the device
    /// itself.
    #[serde(default)]
    pub(super) copy: CopyMode,
    /// The treatment of checksums that a sender on this host has left to a device.
    #[serde(default)]
    pub(super) checksums: Checksums,
    /// The largest number of frames that each queue can receive before the port reads them: a power of two from 32 to
    /// 32768; 2048 by default. This is the size of two rings, for empty chunks and for received frames.
    #[schemars(range(min = 32, max = 32_768))]
    #[schemars(extend("default" = 2_048))]
    pub(super) receive: Option<u32>,
    /// The largest number of frames that wait to be sent: a power of two from 32 to 32768; 2048 by default.
    #[schemars(range(min = 32, max = 32_768))]
    #[schemars(extend("default" = 2_048))]
    pub(super) send: Option<u32>,
    /// The largest number of frames for which the kernel polls the device at each reading of the port, 8 to 1024 (Linux
    /// 5.11 and later). Without this parameter, the device uses interrupts. Polling helps on zero-copy devices whose
    /// interrupts are deferred (`napi_defer_hard_irqs`, `gro_flush_timeout`).
    #[schemars(range(min = 8, max = 1_024))]
    pub(super) busy_poll: Option<u32>,
    /// The memory that all `af_xdp` ports share. The first port determines its values. Other ports may only repeat the
    /// same values.
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

/// The part of the kernel that runs the program for received frames.
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

/// The way in which frames get to and from packet memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyMode {
    /// The device reads and writes packet memory, if the driver supports this. Otherwise the kernel copies each frame.
    #[default]
    Auto,
    /// The kernel copies each frame.
    Copy,
    /// The device reads and writes packet memory.
    Zero,
}

/// The treatment of partial checksums.
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
    /// Returns the sizes of the rings, or an error that names the parameter and the allowed values.
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

    /// Returns the required shape of the memory, or `None` if the port accepts any shape. An error names the parameter
    /// and the allowed values.
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

    /// Checks the parameters that [`sizes`](Self::sizes) and [`shape`](Self::shape) do not check.
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
