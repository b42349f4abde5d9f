//! Network namespaces: finds one by name, and runs code in it.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fd::AsFd;
use rustix::fs::OFlags;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// The folder in which `ip netns` keeps named namespaces.
const NAMESPACES: &str = "/run/netns";

/// Returns the path of a namespace. A name without a slash is a name of `ip netns`.
pub(crate) fn path(name: &str) -> PathBuf {
    if name.contains('/') { PathBuf::from(name) } else { Path::new(NAMESPACES).join(name) }
}

/// Runs `act` in a network namespace and returns its result. If `namespace` is `None`, `act` runs on the calling
/// thread, in the namespace of that thread. Otherwise, a separate thread enters the namespace, runs `act` and ends, so
/// that no other code runs there by mistake. A socket that `act` creates stays in that namespace, and any thread may
/// use it.
///
/// # Errors
/// Returns the errors of `act`. If the namespace cannot be entered, returns the result of `refused` for its path and
/// the system's error.
pub(crate) fn within<T: Send, E: Send>(
    namespace: Option<&Path>,
    act: impl FnOnce() -> Result<T, E> + Send,
    refused: impl FnOnce(&Path, io::Error) -> E + Send,
) -> Result<T, E> {
    let Some(path) = namespace else { return act() };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(path).map_err(|source| refused(path, source))?;
            act()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves the calling thread to another network namespace.
fn enter(path: &Path) -> io::Result<()> {
    // Without this flag, the call would wait for a writer if the path is a named pipe.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let namespace = File::options().read(true).custom_flags(flags).open(path)?;
    Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
}
