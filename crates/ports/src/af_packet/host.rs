//! Keeps an interface's frames from the host's own network stack. Packet sockets receive a frame before the kernel runs
//! this program, which drops every frame.
//!
//! A `tcx` link ends with the process, even if the process is killed. Kernels before 6.6 have no such link. There, a
//! filter of traffic control attaches the program. If the process is killed, the filter remains, and the next port to
//! the interface removes it. The port does not remove a filter whose process is alive.

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

/// The attachment of the program. Dropping the value detaches the program.
enum Attached {
    /// By a link (Linux 6.6 and later).
    Link { _link: Link },
    /// By a filter (earlier kernels).
    Filter { _filter: Filter },
}

/// Keeps the frames of an interface from the host's stack as long as the value exists.
pub(super) struct Excluded {
    /// The network namespace of the interface. `None` for the namespace of the process.
    namespace_path: Option<PathBuf>,
    /// The interface's index, and the attachment. `None` if the interface does not exist yet, or if the last attempt to
    /// attach the program failed.
    attached_to: Mutex<Option<(u32, Attached)>>,
}

impl Excluded {
    /// Keeps the frames of the interface with this index from the host's stack. The interface must be in the network
    /// namespace of the calling thread. `namespace_path` is the path of this namespace. If `index` is `None`, the
    /// interface does not exist yet: [`Excluded::follow`] attaches the program later.
    ///
    /// # Errors
    /// Returns the system's error.
    pub(super) fn from(namespace_path: Option<&Path>, index: Option<u32>) -> io::Result<Self> {
        let attached_to = index.map(|index| Ok::<_, io::Error>((index, attach(index)?))).transpose()?;
        Ok(Self { namespace_path: namespace_path.map(Path::to_owned), attached_to: Mutex::new(attached_to) })
    }

    /// Attaches the program to the interface with this index. Does nothing if the program is attached to this interface
    /// already. The port calls this at each check, because a recreated interface has another index. It may be called
    /// from any network namespace.
    ///
    /// # Errors
    /// Returns the system's error. The host then receives the frames until a later call succeeds.
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

/// Loads the program and attaches it to an interface in the network namespace of the calling thread: by a link, or by a
/// filter if the kernel does not support the link.
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
