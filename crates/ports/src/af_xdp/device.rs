//! An interface as AF_XDP has it: the program on it and a socket for each of its queues.

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::error::OpenError;
use super::ethtool;
use super::params::{CopyMode, Mode};
use super::program::{Place, Redirect, Step};
use super::queue::{Losses, Queue};
use super::socket::{Rings, Sizes, Socket};
use super::umem::Umem;
use crate::interface::{Control, InterfaceName, Watch, namespace};

/// For how long a queue may be in use by who had it before.
const LET_GO: Duration = Duration::from_secs(1);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// What is to be opened, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The interface.
    pub name: InterfaceName,
    /// Where it is, if not where this process is.
    pub namespace: Option<PathBuf>,
    /// How many queues, if not all.
    pub queues: Option<u32>,
    /// Where frames are taken.
    pub mode: Mode,
    /// Who writes them to memory.
    pub copy: CopyMode,
    /// The rings.
    pub sizes: Sizes,
    /// How many frames the kernel polls for.
    pub busy_poll: Option<u32>,
}

/// An interface that is open.
pub struct Device {
    /// Before the queues: it goes first.
    redirect: Redirect,
    /// By number. The first one sends.
    pub queues: Vec<Queue>,
    /// How it was opened.
    pub wanted: Wanted,
    /// Where the program runs.
    #[cfg_attr(not(test), expect(dead_code, reason = "nobody asks but tests"))]
    pub place: Place,
    /// Whether there is no device behind it.
    pub is_virtual: bool,
    /// Tells how it is.
    pub watch: Option<Watch>,
}

impl Device {
    /// Opens the interface, where it is: a thread goes to its namespace and ends.
    ///
    /// # Errors
    /// [`OpenError`]; everything is as it was then.
    pub fn open(wanted: &Wanted, umem: &Arc<Umem>) -> Result<Self, OpenError> {
        within(wanted, || Self::open_here(wanted, umem))
    }

    /// Whether the interface is there, and has so many queues.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn check(wanted: &Wanted) -> Result<(), OpenError> {
        within(wanted, || find(wanted).map(drop))
    }

    fn open_here(wanted: &Wanted, umem: &Arc<Umem>) -> Result<Self, OpenError> {
        umem.settle();
        let (interface, count) = find(wanted)?;
        let (redirect, place) = attach(wanted, interface, count)?;
        let is_virtual = ethtool::is_virtual(&wanted.name);
        let (queues, wanted) = (Vec::with_capacity(count as usize), wanted.clone());
        // Without it there are no events of its link.
        let watch = Watch::new(&wanted.name).ok();
        let mut device = Self { redirect, queues, wanted, place, is_virtual, watch };
        for queue in 0..count {
            let fill = device.wanted.sizes.fill as usize;
            umem.promise(fill).map_err(|left| {
                // Those that were opened have theirs.
                let (open, chunks) = (fill * queue as usize, umem.shape().chunks);
                OpenError::Chunks { wanted: fill * count as usize, chunks, left: left + open }
            })?;
            let opened = open_patiently(&device.wanted, interface, queue, place, umem);
            let (socket, rings, zero) = opened.inspect_err(|_| umem.release(fill))?;
            let descriptor = socket.descriptor().as_raw_fd();
            let busy = device.wanted.busy_poll.is_some();
            device.queues.push(Queue::new(socket, rings, Arc::clone(umem), fill, zero, busy));
            let entered = device.redirect.enter(queue, descriptor);
            entered.map_err(|source| tell(&device.wanted, "give its frames to the socket", source))?;
        }
        Ok(device)
    }

    /// Closes it: what is lost with it, or was and has not been told.
    #[must_use]
    pub fn close(self) -> Losses {
        let Self { redirect, queues, .. } = self;
        // Nothing more comes from here on.
        drop(redirect);
        let mut sum = Losses::default();
        for mut queue in queues {
            let (_, losses) = queue.look();
            sum.dropped += losses.dropped + queue.left() as u64;
            sum.oversize += losses.oversize;
            sum.errors += losses.errors;
        }
        sum
    }

    /// Frames that the kernel was given and has not finished with.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queues.iter().map(Queue::in_flight).sum()
    }
}

/// Does what is to be done where the interface is.
fn within<T: Send>(wanted: &Wanted, act: impl FnOnce() -> Result<T, OpenError> + Send) -> Result<T, OpenError> {
    namespace::within(wanted.namespace.as_deref(), act, |path, source| match source.raw_os_error() {
        Some(libc::EPERM) => right(wanted, "enter its network namespace"),
        _ => OpenError::Namespace { path: path.to_owned(), source },
    })
}

/// The interface's number, and how many of its queues are wanted.
fn find(wanted: &Wanted) -> Result<(u32, u32), OpenError> {
    let index = Control::here().and_then(|control| control.index(&wanted.name));
    let index = index.map_err(|source| tell(wanted, "find the number", source))?;
    let interface = index.ok_or_else(|| missing(wanted))?;
    let there = ethtool::queues(&wanted.name);
    let count = wanted.queues.unwrap_or(there);
    if count > there {
        return Err(OpenError::Queues { name: wanted.name.to_string(), there, wanted: count });
    }
    Ok((interface, count))
}

/// Attaches the program where it can be.
fn attach(wanted: &Wanted, interface: u32, queues: u32) -> Result<(Redirect, Place), OpenError> {
    let at = |place| Redirect::attach(interface, queues, place).map(|redirect| (redirect, place));
    let first = if wanted.mode == Mode::Generic { Place::Generic } else { Place::Native };
    let mut outcome = at(first);
    if wanted.mode == Mode::Auto {
        let falls_back = |error: &io::Error| {
            !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::ENODEV))
        };
        if outcome.as_ref().is_err_and(|failure| failure.step == Step::Attach && falls_back(&failure.source)) {
            outcome = at(Place::Generic);
        }
    }
    outcome.map_err(|failure| {
        let name = wanted.name.to_string();
        match (failure.step, failure.source.raw_os_error()) {
            (_, Some(libc::EPERM | libc::EACCES)) => right(wanted, "load a program (`bpf`)"),
            (_, Some(libc::ENOSYS)) => OpenError::Kernel("no bpf(2)"),
            (Step::Map, Some(libc::EINVAL)) => OpenError::Kernel("no map of sockets"),
            (Step::Attach, Some(libc::EBUSY | libc::EEXIST)) => OpenError::Occupied(name),
            (Step::Attach, Some(libc::ENODEV)) => missing(wanted),
            (Step::Attach, _) if wanted.mode == Mode::Native => OpenError::Native { name, source: failure.source },
            (Step::Map, _) => tell(wanted, "make the map of sockets", failure.source),
            (Step::Load, _) => tell(wanted, "load the program", failure.source),
            (Step::Attach, _) => tell(wanted, "attach the program", failure.source),
        }
    })
}

/// Opens a queue that somebody may just have let go of: the kernel forgets a socket's tie to it a little after the socket was
/// closed (`xp_release_deferred`).
fn open_patiently(
    wanted: &Wanted,
    interface: u32,
    queue: u32,
    place: Place,
    umem: &Arc<Umem>,
) -> Result<Open, OpenError> {
    let start = Instant::now();
    loop {
        match open_queue(wanted, interface, queue, place, umem) {
            Err(OpenError::Busy { .. }) if start.elapsed() < LET_GO => thread::sleep(LOOK_AGAIN),
            outcome => return outcome,
        }
    }
}

/// A socket that is bound to a queue, its rings, and whether the device itself writes to the memory.
type Open = (Socket, Rings, bool);

fn open_queue(wanted: &Wanted, interface: u32, queue: u32, place: Place, umem: &Arc<Umem>) -> Result<Open, OpenError> {
    let zero_copy = match wanted.copy {
        CopyMode::Zero => &[true][..],
        CopyMode::Auto if place == Place::Native => &[true, false],
        CopyMode::Auto | CopyMode::Copy => &[false],
    };
    for (at, &zero) in zero_copy.iter().enumerate() {
        let mut step = "open a socket";
        let mut rings = None;
        let tied = umem.tie(zero, |shared| {
            step = "open a socket";
            let socket = Socket::new()?;
            if shared.is_none() {
                step = "register the memory";
                socket.register(umem)?;
            }
            step = "make the rings";
            rings = Some(socket.rings(wanted.sizes, queue == 0)?);
            if let Some(budget) = wanted.busy_poll {
                step = "have it polled (`busy_poll`)";
                socket.prefer_busy_poll(budget)?;
            }
            step = "bind a socket to a queue";
            socket.bind(interface, queue, if zero { libc::XDP_ZEROCOPY } else { libc::XDP_COPY }, shared)?;
            Ok(socket)
        });
        match (tied, rings) {
            (Ok(socket), Some(rings)) => return Ok((socket, rings, zero)),
            (Err(error), _) if zero && at + 1 < zero_copy.len() && is_refusal(&error) => {}
            (Err(source), _) => return Err(refused(wanted, queue, zero, step, source, umem)),
            (Ok(_), None) => {}
        }
    }
    Err(tell(wanted, "bind a socket to a queue", io::ErrorKind::Unsupported.into()))
}

/// Whether a driver said no, and not the system for another reason.
fn is_refusal(error: &io::Error) -> bool {
    let other = [libc::EBUSY, libc::EPERM, libc::ENOBUFS, libc::ENOMEM, libc::ENODEV, libc::ENETDOWN];
    error.raw_os_error().is_none_or(|code| !other.contains(&code))
}

fn refused(wanted: &Wanted, queue: u32, zero: bool, step: &'static str, source: io::Error, umem: &Umem) -> OpenError {
    let name = wanted.name.to_string();
    match (step, source.raw_os_error()) {
        ("open a socket", Some(libc::EAFNOSUPPORT)) => OpenError::Kernel("CONFIG_XDP_SOCKETS is off"),
        (_, Some(libc::EPERM | libc::EACCES)) => right(wanted, step),
        ("register the memory", Some(libc::ENOBUFS | libc::ENOMEM)) => {
            OpenError::Locked { bytes: umem.bytes(), source }
        }
        ("bind a socket to a queue", Some(libc::EBUSY)) => OpenError::Busy { name, queue },
        ("bind a socket to a queue", Some(libc::ENODEV)) => missing(wanted),
        ("bind a socket to a queue", _) if zero => {
            let aligned = if umem.shape().aligned { "" } else { ", or try `memory: { aligned: true }`" };
            OpenError::ZeroCopy { name, queue, source, aligned }
        }
        _ => tell(wanted, step, source),
    }
}

fn missing(wanted: &Wanted) -> OpenError {
    let place = wanted.namespace.as_ref().map(|path| format!(" in {}", path.display())).unwrap_or_default();
    OpenError::Missing(wanted.name.to_string(), place)
}

fn right(wanted: &Wanted, doing: &'static str) -> OpenError {
    OpenError::Right { name: wanted.name.to_string(), doing }
}

fn tell(wanted: &Wanted, doing: &'static str, source: io::Error) -> OpenError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => right(wanted, doing),
        _ => OpenError::System { doing, name: wanted.name.to_string(), source },
    }
}
