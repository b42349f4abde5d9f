//! The program by which an interface gives its frames to sockets: five instructions.

use std::io;
use std::os::fd::RawFd;

use crate::bpf::{Instruction, Link, Map, Program, instruction};

/// Constants of `bpf(2)` (`include/uapi/linux/bpf.h`).
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` (`include/uapi/linux/if_link.h`).
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// The program, for a map that has this descriptor (RFC 9669 for the instructions):
///
/// ```text
/// r2 = *(u32 *)(r1 + 16)                    xdp_md.rx_queue_index
/// r1 = map                                  a wide instruction: two places
/// r3 = 2                                    XDP_PASS: of a queue without a socket the host has the frames, as it always had
/// call 51                                   bpf_redirect_map
/// exit
/// ```
fn redirect(map: RawFd) -> [Instruction; 6] {
    /// Says of a wide instruction that its value is a map's descriptor (`BPF_PSEUDO_MAP_FD`).
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

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the driver, before the kernel has made anything of the frame.
    Native,
    /// In the kernel's general way of frames: any interface, slower.
    Generic,
}

/// A program that is attached to an interface as long as this lives, and the sockets that it gives frames to.
pub struct Redirect {
    _link: Link,
    map: Map,
}

/// What could not be done, and what the system said.
#[derive(Debug)]
pub struct Failure {
    /// Which step.
    pub step: Step,
    /// What the system said.
    pub source: io::Error,
}

/// A step of attaching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Making the map of sockets.
    Map,
    /// Loading the program.
    Load,
    /// Attaching it.
    Attach,
}

impl Redirect {
    /// Attaches a program to the interface with this index, in the network namespace of the calling thread. There is room for
    /// the sockets of so many queues; there are none yet, so that the host has all frames.
    ///
    /// # Errors
    /// Which step failed.
    pub fn attach(interface: u32, queues: u32, place: Place) -> Result<Self, Failure> {
        let failure = |step| move |source| Failure { step, source };
        let map = Map::new(MAP_TYPE_XSKMAP, queues.max(1), *b"forebay_xsks\0\0\0\0").map_err(failure(Step::Map))?;
        let code = redirect(map.descriptor());
        let program = Program::load(PROG_TYPE_XDP, ATTACH_XDP, &code).map_err(failure(Step::Load))?;
        let flags = if place == Place::Native { NATIVE } else { GENERIC };
        let link = program.attach(interface, ATTACH_XDP, flags).map_err(failure(Step::Attach))?;
        Ok(Self { _link: link, map })
    }

    /// Gives the frames of a queue to a socket that is bound to it.
    ///
    /// # Errors
    /// What the system says.
    pub fn enter(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        self.map.put(queue, socket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the bytes that an assembler gives for the same five lines.
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
