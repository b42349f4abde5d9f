//! What makes an interface give its frames to sockets: five instructions, loaded and attached by `bpf(2)`.
//!
//! The program is small enough to be written as it is, so no compiler and no library has a part in it. It is attached by a
//! link (`BPF_LINK_CREATE`), which is gone with its last descriptor: whichever way the process ends, the interface is left
//! without a program.

#![expect(unsafe_code, reason = "bpf(2) takes structures by address")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Commands of `bpf(2)`, and the kinds of things that they are asked for here (`include/uapi/linux/bpf.h`).
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const LINK_DETACH: libc::c_long = 34;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// `XDP_FLAGS_SKB_MODE` and `XDP_FLAGS_DRV_MODE` (`include/uapi/linux/if_link.h`).
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// `struct bpf_attr` for each command: what is behind a command's own fields the kernel takes for 0.
#[repr(C)]
struct MapCreate {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
}

#[repr(C)]
struct MapUpdate {
    map: u32,
    _gap: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// One instruction (`struct bpf_insn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
struct Instruction {
    code: u8,
    /// The destination register, and the source in the upper half.
    registers: u8,
    offset: i16,
    value: i32,
}

const fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers, offset, value }
}

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
    map: OwnedFd,
    _program: OwnedFd,
    link: OwnedFd,
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
        let name = *b"forebay_xsks\0\0\0\0";
        let create = MapCreate {
            kind: MAP_TYPE_XSKMAP,
            key_size: 4,
            value_size: 4,
            max_entries: queues.max(1),
            flags: 0,
            inner_map: 0,
            numa_node: 0,
            name,
        };
        let map = descriptor(bpf(MAP_CREATE, &create)).map_err(failure(Step::Map))?;
        let (code, license) = (redirect(map.as_raw_fd()), c"Apache-2.0");
        let load = ProgLoad {
            kind: PROG_TYPE_XDP,
            instructions: code.len() as u32,
            code: code.as_ptr().addr() as u64,
            license: license.as_ptr().addr() as u64,
            log_level: 0,
            log_size: 0,
            log: 0,
            kernel_version: 0,
            flags: 0,
            name: *b"forebay\0\0\0\0\0\0\0\0\0",
            interface: 0,
            attach_type: ATTACH_XDP,
        };
        let program = descriptor(bpf(PROG_LOAD, &load)).map_err(failure(Step::Load))?;
        let flags = if place == Place::Native { NATIVE } else { GENERIC };
        let link = LinkCreate { program: program.as_raw_fd() as u32, interface, attach_type: ATTACH_XDP, flags };
        let link = descriptor(bpf(LINK_CREATE, &link)).map_err(failure(Step::Attach))?;
        Ok(Self { map, _program: program, link })
    }

    /// Gives the frames of a queue to a socket that is bound to it.
    ///
    /// # Errors
    /// What the system says.
    pub fn enter(&self, queue: u32, socket: RawFd) -> io::Result<()> {
        let (key, value) = (queue, socket as u32);
        let update = MapUpdate {
            map: self.map.as_raw_fd() as u32,
            _gap: 0,
            key: (&raw const key).addr() as u64,
            value: (&raw const value).addr() as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE_ELEM, &update).map(drop)
    }
}

impl Drop for Redirect {
    /// Not only by closing the link's descriptor: a process that is being started may have a copy of it for a moment.
    fn drop(&mut self) {
        let _ = bpf(LINK_DETACH, &(self.link.as_raw_fd() as u32));
    }
}

/// The system call. `attributes` is one of the structures above, whose addresses are those of values that live until it
/// returns.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads as many bytes as it is told, all of them initialised (the structures have no padding), and
    // what the addresses in them lead to: code, licence, key and value of the sizes said, alive in the callers.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as RawFd) }
}

fn descriptor(answer: io::Result<RawFd>) -> io::Result<OwnedFd> {
    // SAFETY: these commands answer with a new descriptor, which nobody else has.
    answer.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
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
