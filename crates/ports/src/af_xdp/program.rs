//! The program that redirects an interface's frames to sockets: five instructions.

use std::io;
use std::os::fd::RawFd;

use crate::bpf::{Instruction, Link, Map, Program, instruction};

/// Constants of `bpf(2)` (`include/uapi/linux/bpf.h`).
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE` (`include/uapi/linux/if_link.h`).
const GENERIC: u32 = 1 << 1;
/// `XDP_FLAGS_DRV_MODE`.
const NATIVE: u32 = 1 << 2;

/// Returns the program for the map with this descriptor (RFC 9669 for the instructions):
///
/// ```text
/// r2 = *(u32 *)(r1 + 16)                    xdp_md.rx_queue_index
/// r1 = map                                  a wide instruction: two slots
/// r3 = 2                                    XDP_PASS: frames of a queue without a socket go to the host
/// call 51                                   bpf_redirect_map
/// exit
/// ```
fn redirect(map: RawFd) -> [Instruction; 6] {
    /// Marks the value of a wide instruction as a map's descriptor (`BPF_PSEUDO_MAP_FD`).
    const OF_MAP: u8 = 1;
    [
        instruction(0x61, 0x12, 16, 0),
        instruction(0x18, OF_MAP << 4 | 0x01, 0, map),
        instruction(0, 0, 0, 0),
        instruction(0xb7, 0x03, 0, 2),
        instruction(0x85, 0, 0, 51),
        instruction(0x95, 0, 0, 0),
    ]
}

/// The part of the kernel that runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, before the kernel allocates a buffer for the frame.
    Native,
    /// In the generic receive path of the kernel. Every interface supports this, but it is slower.
    Generic,
}

/// A program that is attached to an interface as long as the value exists, and the sockets to which it redirects
/// frames.
pub struct Redirect {
    /// The attachment. Dropping it detaches the program.
    _link: Link,
    /// The sockets by queue number.
    map: Map,
}

/// The step that failed, and the system's error.
#[derive(Debug)]
pub struct Failure {
    /// The failed step.
    pub step: AttachStep,
    /// The system's error.
    pub source: io::Error,
}

/// A step of attaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachStep {
    /// Creating the map of sockets.
    Map,
    /// Loading the program.
    Load,
    /// Attaching the program.
    Attach,
}

impl Redirect {
    /// Attaches a program to the interface with this index, in the network namespace of the calling thread. The map has
    /// room for the sockets of `queues` queues. The map is empty at first, so the host receives all frames until
    /// [`add_socket`](Self::add_socket) is called.
    ///
    /// # Errors
    /// Returns the step that failed.
    pub fn attach(interface: u32, queues: u32, attach_mode: AttachMode) -> Result<Self, Failure> {
        let failure = |step| move |source| Failure { step, source };
        let map =
            Map::new(MAP_TYPE_XSKMAP, queues.max(1), *b"forebay_xsks\0\0\0\0").map_err(failure(AttachStep::Map))?;
        let code = redirect(map.descriptor());
        let program = Program::load(PROG_TYPE_XDP, ATTACH_XDP, &code).map_err(failure(AttachStep::Load))?;
        let flags = if attach_mode == AttachMode::Native { NATIVE } else { GENERIC };
        let link = program.attach(interface, ATTACH_XDP, flags).map_err(failure(AttachStep::Attach))?;
        Ok(Self { _link: link, map })
    }

    /// Redirects the frames of a queue to a socket that is bound to this queue.
    ///
    /// # Errors
    /// Returns the system's error.
    pub fn add_socket(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        self.map.set(queue, socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the bytes that an assembler produces for the same five lines.
    #[test]
    fn the_program_is_these_bytes() {
        let bytes: Vec<u8> = redirect(0x0102_0304)
            .iter()
            .flat_map(|it| [&[it.code, it.registers][..], &it.offset.to_le_bytes(), &it.value.to_le_bytes()].concat())
            .collect();
        let expected = [
            [0x61, 0x12, 0x10, 0x00, 0x00, 0x00, 0x00, 0x00],
            [0x18, 0x11, 0x00, 0x00, 0x04, 0x03, 0x02, 0x01],
            [0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],
            [0xb7, 0x03, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00],
            [0x85, 0x00, 0x00, 0x00, 0x33, 0x00, 0x00, 0x00],
            [0x95, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00],
        ];
        assert_eq!(bytes, expected.concat());
    }
}
