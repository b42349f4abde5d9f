//! Network namespaces: where they are by name, and how something is done in one.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Where `ip netns` keeps namespaces by name.
const NAMESPACES: &str = "/run/netns";

/// Where a namespace is: a name is that of `ip netns`, a path is one.
pub(crate) fn path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMESPACES).join(name) }
}

/// Acts in a network namespace (where this process is without one): a thread goes there and ends, so that no other call
/// finds itself there. A socket that is made there stays of that namespace, whoever uses it.
///
/// # Errors
/// Those of `act`; `refused` says what it is that the namespace could not be entered.
pub(crate) fn within<T: Send, E: Send>(
    namespace: Option<&Path>,
    act: impl FnOnce() -> Result<T, E> + Send,
    refused: impl FnOnce(&Path, io::Error) -> E + Send,
) -> Result<T, E> {
    let Some(path) = namespace else { return act() };
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            enter(path).map_err(|source| refused(path, source))?;
            act()
        });
        there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Takes the calling thread to another network namespace.
fn enter(path: &Path) -> io::Result<()> {
    // A pipe of this name would wait for its writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let namespace = File::options().read(true).custom_flags(flags).open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}
