//! Loads programs that the kernel runs on frames, and attaches them by `bpf(2)`.
//!
//! The programs are so short that they are written as instructions, without a compiler or a library. A link
//! (`BPF_LINK_CREATE`) attaches a program to an interface until the last descriptor of the link is closed. So the
//! program is detached when the process ends, even if the process is killed.

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

/// `struct bpf_attr` for `BPF_MAP_CREATE`. Like each of the following structures, it ends after the fields that the
/// command needs. The kernel takes the other fields as 0.
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

/// `struct bpf_attr` for `BPF_MAP_UPDATE_ELEM`.
#[repr(C)]
struct MapUpdate {
    map: u32,
    _gap: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `struct bpf_attr` for `BPF_PROG_LOAD`.
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

/// `struct bpf_attr` for `BPF_LINK_CREATE`.
#[repr(C)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

/// An instruction (`struct bpf_insn`; RFC 9669).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    /// The operation.
    pub code: u8,
    /// The number of the destination register in the lower four bits, and of the source register in the upper four
    /// bits.
    pub registers: u8,
    /// The offset of a memory access or jump.
    pub offset: i16,
    /// The immediate operand.
    pub value: i32,
}

/// Creates an instruction from the fields of [`Instruction`].
pub(crate) const fn instruction(code: u8, registers: u8, offset: i16, value: i32) -> Instruction {
    Instruction { code, registers, offset, value }
}

/// A map from numbers of four bytes to descriptors.
pub(crate) struct Map(OwnedFd);

impl Map {
    /// Creates an empty map of the map type `kind` for `entries` entries.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn new(kind: u32, entries: u32, name: [u8; 16]) -> io::Result<Self> {
        let (key_size, value_size) = (4, 4);
        let create =
            MapCreate { kind, key_size, value_size, max_entries: entries, flags: 0, inner_map: 0, numa_node: 0, name };
        descriptor(bpf(MAP_CREATE, &create)).map(Self)
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Sets the entry `key` to `value`, and replaces a previous value.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn set(&self, key: u32, value: RawFd) -> io::Result<()> {
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

/// A program that the kernel has verified and loaded.
pub(crate) struct Program(OwnedFd);

impl Program {
    /// Loads a program of the type `kind` (`BPF_PROG_TYPE_…`). `attach_type` is the `expected_attach_type` of the
    /// program, or 0 if the program type requires none.
    ///
    /// # Errors
    /// Returns the system's error.
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

    /// Attaches the program to the interface with this index, in the network namespace of the calling thread.
    /// `attach_type` must be allowed for the program's type. If the program was loaded with an attach type other than
    /// 0, it must be the same. `flags` are the flags of this attach type.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(crate) fn attach(&self, interface: u32, attach_type: u32, flags: u32) -> io::Result<Link> {
        let link = LinkCreate { program: self.0.as_raw_fd() as u32, interface, attach_type, flags };
        descriptor(bpf(LINK_CREATE, &link)).map(Link)
    }
}

/// Keeps a program attached as long as the value exists.
pub(crate) struct Link(OwnedFd);

impl Drop for Link {
    /// Detaches the program explicitly. Closing the descriptor is not sufficient, because a child process that is being
    /// started may have a copy of the descriptor for a short time.
    fn drop(&mut self) {
        let _ = bpf(LINK_DETACH, &(self.0.as_raw_fd() as u32));
    }
}

/// Makes the system call. `attributes` is one of the structures above. The values to which its addresses point must
/// live until the call returns.
fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<RawFd> {
    // SAFETY: the kernel reads `size_of::<T>()` initialised bytes (the structures have no padding), and the values at
    // the addresses in them: code, licence, key and value, of the stated sizes, which live in the callers.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as RawFd) }
}

/// Takes ownership of the descriptor that a command has returned. The command must return a new descriptor.
fn descriptor(result: io::Result<RawFd>) -> io::Result<OwnedFd> {
    // SAFETY: these commands return a new descriptor, which nothing else owns.
    result.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
}
