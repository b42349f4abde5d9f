//! Programs that the kernel runs on frames: loaded and attached by `bpf(2)`.
//!
//! They are small enough to be written as they are, so no compiler and no library has a part in them. A link
//! (`BPF_LINK_CREATE`) is gone with its last descriptor: whichever way the process ends, the interface is left without
//! the program.

#![expect(unsafe_code, reason = "bpf(2) takes structures by address")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Commands of `bpf(2)` (`include/uapi/linux/bpf.h`).
const MAP_CREATE: libc::c_long = 0;
const MAP_UPDATE_ELEM: libc::c_long = 2;
const PROG_LOAD: libc::c_long = 5;
const LINK_CREATE: libc::c_long = 28;
const LINK_DETACH: libc::c_long = 34;

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

/// One instruction (`struct bpf_insn`; RFC 9669).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    pub code: u8,
    /// The destination register, and the source in the upper half.
    pub registers: u8,
    pub offset: i16,
    pub value: i32,
}

pub(crate) const fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers, offset, value }
}

/// A map from numbers to descriptors.
pub(crate) struct Map(OwnedFd);

impl Map {
    /// An empty one of the map type `kind`, for so many entries.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn new(kind: u32, entries: u32, name: [u8; 16]) -> io::Result<Self> {
        let (key_size, value_size) = (4, 4);
        let create =
            MapCreate { kind, key_size, value_size, max_entries: entries, flags: 0, inner_map: 0, numa_node: 0, name };
        descriptor(bpf(MAP_CREATE, &create)).map(Self)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Puts `value` under `key`.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn put(&self, key: u32, value: RawFd) -> io::Result<()> {
        let value = value as u32;
        let update = MapUpdate {
            map: self.0.as_raw_fd() as u32,
            _gap: 0,
            key: (&raw const key).addr() as u64,
            value: (&raw const value).addr() as u64,
            flags: 0,
        };
        bpf(MAP_UPDATE_ELEM, &update).map(drop)
    }
}

/// A program that the kernel has checked and taken.
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads one of the program type `kind`, to be attached as `attach_type`.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn load(kind: u32, attach_type: u32, code: &[Instruction]) -> io::Result<Self> {
        let license = c"Apache-2.0";
        let load = ProgLoad {
            kind,
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
            attach_type,
        };
        descriptor(bpf(PROG_LOAD, &load)).map(Self)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Attaches it to the interface with this index, in the network namespace of the calling thread.
    ///
    /// # Errors
    /// The system's error.
    pub(crate) fn attach(&self, interface: u32, attach_type: u32, flags: u32) -> io::Result<Link> {
        let link = LinkCreate { program: self.0.as_raw_fd() as u32, interface, attach_type, flags };
        descriptor(bpf(LINK_CREATE, &link)).map(Link)
    }
}

/// Keeps a program attached as long as it lives.
pub(crate) struct Link(OwnedFd);

impl Drop for Link {
    /// Not only by closing the descriptor: a process that is being started may have a copy of it for a moment.
    fn drop(&mut self) {
        let _ = bpf(LINK_DETACH, &(self.0.as_raw_fd() as u32));
    }
}

/// The system call. `attributes` is one of the structures above, whose addresses are those of values that live until it
/// returns.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads as many bytes as it is told, all of them initialised (the structures have no padding),
    // and what the addresses in them lead to: code, licence, key and value of the sizes said, alive in the callers.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer as RawFd) }
}

fn descriptor(answer: io::Result<RawFd>) -> io::Result<OwnedFd> {
    // SAFETY: these commands answer with a new descriptor, which nobody else has.
    answer.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
}
