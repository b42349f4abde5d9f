//! Keeps an interface's frames from the host's own stack: packet sockets get theirs before the kernel asks this
//! program, which drops every frame.
//!
//! A link of the kind `tcx` ends with the process, however that ends. Kernels before 6.6 have none: there a filter
//! stays behind a process that was killed, and the next port to the interface removes it, unless its process lives.

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

/// How the program is attached. It is detached when this is dropped.
enum Attached {
    /// By a link.
    Link { _link: Link },
    /// By a filter.
    Filter { _filter: Filter },
}

/// An interface whose frames the host's stack does not get, as long as this lives.
pub(super) struct Excluded {
    place: Option<PathBuf>,
    /// The interface's index, and what is there.
    now: Mutex<Option<(u32, Attached)>>,
}

impl Excluded {
    /// Excludes the host from the interface with this index, in the network namespace of the calling thread, which is
    /// at `place`. Without an index there is no interface yet: [`Excluded::follow`] waits for it.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn from(place: Option<&Path>, index: Option<u32>) -> io::Result<Self> {
        let now = index.map(|index| Ok::<_, io::Error>((index, attach(index)?))).transpose()?;
        Ok(Self { place: place.map(Path::to_owned), now: Mutex::new(now) })
    }

    /// The interface was made again, and has this index now.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn follow(&self, index: u32) -> io::Result<()> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        if now.as_ref().is_some_and(|(before, _)| *before == index) {
            return Ok(());
        }
        *now = None;
        let attached = namespace::within(self.place.as_deref(), || attach(index), |_, error| error)?;
        *now = Some((index, attached));
        Ok(())
    }
}

fn attach(index: u32) -> io::Result<Attached> {
    let program = Program::load(PROG_TYPE_SCHED_CLS, 0, &DROP)?;
    match program.attach(index, ATTACH_TCX_INGRESS, 0) {
        Ok(link) => Ok(Attached::Link { _link: link }),
        // The kernel knows no such link (before 6.6, or built without CONFIG_NET_XGRESS).
        Err(error) if matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | ENOTSUPP)) => {
            Ok(Attached::Filter { _filter: Filter::put(index, program.descriptor())? })
        }
        Err(error) => Err(error),
    }
}

/// The kernel's own number for "not supported", which libc does not have.
const ENOTSUPP: i32 = 524;

#[cfg(test)]
pub(super) fn exclude_by_filter(index: u32) -> io::Result<Filter> {
    Filter::put(index, Program::load(PROG_TYPE_SCHED_CLS, 0, &DROP)?.descriptor())
}
