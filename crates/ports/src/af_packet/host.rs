//! Keeps an interface's frames from the host's own network stack. Packet sockets receive a frame before the kernel runs
//! this program, which drops every frame.
//!
//! A `tcx` link ends with the process, for whatever reason the process ends. Kernels before 6.6 have no such link.
//! There a filter remains after a process was killed, and the next port to the interface removes it, unless its process
//! is alive.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::filter::Filter;
use crate::bpf::{Instruction, Link, Program, instruction};
use crate::interface::namespace;

/// Constants of `bpf(2)` (`include/uapi/linux/bpf.h`).
const PROG_TYPE_SCHED_CLS: u32 = 3;
const ATTACH_TCX_INGRESS: u32 = 46;

/// `r0 = 2` (`TC_ACT_SHOT`, `TCX_DROP`), `exit`.
const DROP: [Instruction; 2] = [instruction(0xb7, 0, 0, 2), instruction(0x95, 0, 0, 0)];

/// How the program is attached. Dropping the value detaches it.
enum Attached {
    /// By a link.
    Link { _link: Link },
    /// By a filter.
    Filter { _filter: Filter },
}

/// Keeps the frames of an interface from the host's stack as long as the value exists.
pub(super) struct Excluded {
    namespace_path: Option<PathBuf>,
    /// The interface's index, and the attachment.
    attached_to: Mutex<Option<(u32, Attached)>>,
}

impl Excluded {
    /// Excludes the host from the interface with this index, in the network namespace of the calling thread, which is
    /// at `namespace_path`. Without an index the interface does not exist yet; [`Excluded::follow`] attaches the
    /// program later.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn from(namespace_path: Option<&Path>, index: Option<u32>) -> io::Result<Self> {
        let attached_to = index.map(|index| Ok::<_, io::Error>((index, attach(index)?))).transpose()?;
        Ok(Self { namespace_path: namespace_path.map(Path::to_owned), attached_to: Mutex::new(attached_to) })
    }

    /// Attaches the program to the interface with this index after the interface was recreated.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn follow(&self, index: u32) -> io::Result<()> {
        let mut attached_to = self.attached_to.lock().unwrap_or_else(PoisonError::into_inner);
        if attached_to.as_ref().is_some_and(|(before, _)| *before == index) {
            return Ok(());
        }
        *attached_to = None;
        let attached = namespace::within(self.namespace_path.as_deref(), || attach(index), |_, error| error)?;
        *attached_to = Some((index, attached));
        Ok(())
    }
}

fn attach(index: u32) -> io::Result<Attached> {
    let program = Program::load(PROG_TYPE_SCHED_CLS, 0, &DROP)?;
    match program.attach(index, ATTACH_TCX_INGRESS, 0) {
        Ok(link) => Ok(Attached::Link { _link: link }),
        // The kernel does not support this link (before 6.6, or built without CONFIG_NET_XGRESS).
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | ENOTSUPP)) => {
            Ok(Attached::Filter { _filter: Filter::attach(index, program.descriptor())? })
        }
        Err(error) => Err(error),
    }
}

/// The kernel's internal number for "not supported", which libc does not define.
const ENOTSUPP: i32 = 524;

#[cfg(test)]
pub(super) fn exclude_by_filter(index: u32) -> io::Result<Filter> {
    Filter::attach(index, Program::load(PROG_TYPE_SCHED_CLS, 0, &DROP)?.descriptor())
}
