//! An interface opened by AF_XDP: the program on it, and a socket for each of its queues.

use std::io;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::error::XdpOpenError;
use super::ethtool;
use super::params::{CopyMode, Mode};
use super::program::{AttachMode, AttachStep, Redirect};
use super::queue::{Losses, Queue};
use super::socket::{Rings, Sizes, XdpSocket};
use super::umem::Umem;
use crate::interface::{Control, InterfaceName, Watch, namespace};

/// How long a queue may still be in use by its previous socket.
const MAX_BUSY: Duration = Duration::from_secs(1);
const RETRY_AFTER: Duration = Duration::from_millis(2);

/// The options for opening an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The name of the interface.
    pub name: InterfaceName,
    /// The network namespace of the interface, if it is not that of this process.
    pub namespace: Option<PathBuf>,
    /// The number of queues; all if `None`.
    pub queues: Option<u32>,
    /// Where the program runs.
    pub mode: Mode,
    /// How frames are copied to and from packet memory.
    pub copy: CopyMode,
    /// The sizes of the rings.
    pub sizes: Sizes,
    /// The number of frames for which the kernel polls.
    pub busy_poll: Option<u32>,
}

/// An open interface.
pub struct Device {
    /// Declared before the queues, because the program must be detached first.
    redirect: Redirect,
    /// By queue number. The first queue sends.
    pub queues: Vec<Queue>,
    /// The options with which it was opened.
    pub options: DeviceOptions,
    /// Where the program runs.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests read this"))]
    pub attach_mode: AttachMode,
    /// True if there is no physical device behind the interface.
    pub is_virtual: bool,
    /// Watches the state of the interface.
    pub watch: Option<Watch>,
}

impl Device {
    /// Opens the interface in its namespace, on a separate thread.
    ///
    /// # Errors
    /// On an error ([`XdpOpenError`]) nothing has changed.
    pub fn open(options: &DeviceOptions, umem: &Arc<Umem>) -> Result<Self, XdpOpenError> {
        within(options, || Self::open_in_this_namespace(options, umem))
    }

    /// Checks that the interface exists and has enough queues.
    ///
    /// # Errors
    /// [`XdpOpenError`].
    pub fn check(options: &DeviceOptions) -> Result<(), XdpOpenError> {
        within(options, || find(options).map(drop))
    }

    fn open_in_this_namespace(options: &DeviceOptions, umem: &Arc<Umem>) -> Result<Self, XdpOpenError> {
        umem.recycle();
        let (interface, count) = find(options)?;
        let (redirect, attach_mode) = attach(options, interface, count)?;
        let is_virtual = ethtool::is_virtual(&options.name);
        let (queues, options) = (Vec::with_capacity(count as usize), options.clone());
        // Without a watch there are no link events.
        let watch = Watch::new(&options.name).ok();
        let mut device = Self { redirect, queues, options, attach_mode, is_virtual, watch };
        for queue in 0..count {
            let fill = device.options.sizes.fill as usize;
            umem.reserve(fill).map_err(|available| {
                // The queues opened so far have their chunks.
                let (open, chunks) = (fill * queue as usize, umem.shape().chunks);
                XdpOpenError::Chunks { wanted: fill * count as usize, chunks, available: available + open }
            })?;
            let opened = open_patiently(&device.options, interface, queue, attach_mode, umem);
            let (socket, rings, zero) = opened.inspect_err(|_| umem.release(fill))?;
            let descriptor = socket.descriptor().as_raw_fd();
            let busy = device.options.busy_poll.is_some();
            device.queues.push(Queue::new(socket, rings, Arc::clone(umem), fill, zero, busy));
            let entered = device.redirect.add_socket(queue, descriptor);
            entered.map_err(|source| system_error(&device.options, "add the socket to the map", source))?;
        }
        Ok(device)
    }

    /// Closes the device. Returns the frames lost with it, and earlier losses that were not reported yet.
    #[must_use]
    pub fn close(self) -> Losses {
        let Self { redirect, queues, .. } = self;
        // No more frames come from here on.
        drop(redirect);
        let mut sum = Losses::default();
        for mut queue in queues {
            let (_, losses) = queue.check();
            sum.dropped += losses.dropped + queue.unread() as u64;
            sum.oversize += losses.oversize;
            sum.errors += losses.errors;
        }
        sum
    }

    /// Returns the number of frames that the kernel has and has not finished sending.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queues.iter().map(Queue::in_flight).sum()
    }
}

/// Runs `act` in the interface's namespace.
fn within<T: Send>(
    options: &DeviceOptions,
    act: impl FnOnce() -> Result<T, XdpOpenError> + Send,
) -> Result<T, XdpOpenError> {
    namespace::within(options.namespace.as_deref(), act, |path, source| match source.raw_os_error() {
        Some(libc::EPERM) => missing_right(options, "enter its network namespace"),
        _ => XdpOpenError::Namespace { path: path.to_owned(), source },
    })
}

/// Returns the interface's index, and the number of queues to open.
fn find(options: &DeviceOptions) -> Result<(u32, u32), XdpOpenError> {
    let index = Control::new().and_then(|control| control.index(&options.name));
    let index = index.map_err(|source| system_error(options, "find the index", source))?;
    let interface = index.ok_or_else(|| missing(options))?;
    let existing = ethtool::queues(&options.name);
    let count = options.queues.unwrap_or(existing);
    if count > existing {
        return Err(XdpOpenError::Queues { name: options.name.to_string(), existing, wanted: count });
    }
    Ok((interface, count))
}

/// Attaches the program in the first supported place.
fn attach(options: &DeviceOptions, interface: u32, queues: u32) -> Result<(Redirect, AttachMode), XdpOpenError> {
    let at = |attach_mode| Redirect::attach(interface, queues, attach_mode).map(|redirect| (redirect, attach_mode));
    let first = if options.mode == Mode::Generic { AttachMode::Generic } else { AttachMode::Native };
    let mut outcome = at(first);
    if options.mode == Mode::Auto {
        let is_unsupported = |error: &io::Error| {
            !matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::ENODEV))
        };
        if outcome.as_ref().is_err_and(|failure| failure.step == AttachStep::Attach && is_unsupported(&failure.source))
        {
            outcome = at(AttachMode::Generic);
        }
    }
    outcome.map_err(|failure| {
        let name = options.name.to_string();
        match (failure.step, failure.source.raw_os_error()) {
            (_, Some(libc::EPERM | libc::EACCES)) => missing_right(options, "load a program (`bpf`)"),
            (_, Some(libc::ENOSYS)) => XdpOpenError::Kernel("no bpf(2)"),
            (AttachStep::Map, Some(libc::EINVAL)) => XdpOpenError::Kernel("the map type XSKMAP is missing"),
            (AttachStep::Attach, Some(libc::EBUSY | libc::EEXIST)) => XdpOpenError::Occupied(name),
            (AttachStep::Attach, Some(libc::ENODEV)) => missing(options),
            (AttachStep::Attach, _) if options.mode == Mode::Native => {
                XdpOpenError::Native { name, source: failure.source }
            }
            (AttachStep::Map, _) => system_error(options, "create the map of sockets", failure.source),
            (AttachStep::Load, _) => system_error(options, "load the program", failure.source),
            (AttachStep::Attach, _) => system_error(options, "attach the program", failure.source),
        }
    })
}

/// Opens a queue, and retries while it is busy: the kernel releases a queue a little after its previous socket was
/// closed (`xp_release_deferred`).
fn open_patiently(
    options: &DeviceOptions,
    interface: u32,
    queue: u32,
    attach_mode: AttachMode,
    umem: &Arc<Umem>,
) -> Result<OpenQueue, XdpOpenError> {
    let start = Instant::now();
    loop {
        match open_queue(options, interface, queue, attach_mode, umem) {
            Err(XdpOpenError::Busy { .. }) if start.elapsed() < MAX_BUSY => thread::sleep(RETRY_AFTER),
            outcome => return outcome,
        }
    }
}

/// A socket that is bound to a queue, its rings, and true for zero-copy.
type OpenQueue = (XdpSocket, Rings, bool);

fn open_queue(
    options: &DeviceOptions,
    interface: u32,
    queue: u32,
    attach_mode: AttachMode,
    umem: &Arc<Umem>,
) -> Result<OpenQueue, XdpOpenError> {
    let zero_copy = match options.copy {
        CopyMode::Zero => &[true][..],
        CopyMode::Auto if attach_mode == AttachMode::Native => &[true, false],
        CopyMode::Auto | CopyMode::Copy => &[false],
    };
    for (at, &zero) in zero_copy.iter().enumerate() {
        let mut step = "open a socket";
        let mut rings = None;
        let bound = umem.bind_with(zero, |shared| {
            step = "open a socket";
            let socket = XdpSocket::new()?;
            if shared.is_none() {
                step = "register the memory";
                socket.register(umem)?;
            }
            step = "create the rings";
            rings = Some(socket.rings(options.sizes, queue == 0)?);
            if let Some(budget) = options.busy_poll {
                step = "enable busy polling (`busy_poll`)";
                socket.prefer_busy_poll(budget)?;
            }
            step = "bind a socket to a queue";
            socket.bind(interface, queue, if zero { libc::XDP_ZEROCOPY } else { libc::XDP_COPY }, shared)?;
            Ok(socket)
        });
        match (bound, rings) {
            (Ok(socket), Some(rings)) => return Ok((socket, rings, zero)),
            (Err(error), _) if zero && at + 1 < zero_copy.len() && is_refusal(&error) => {}
            (Err(source), _) => return Err(bind_error(options, queue, zero, step, source, umem)),
            (Ok(_), None) => {}
        }
    }
    Err(system_error(options, "bind a socket to a queue", io::ErrorKind::Unsupported.into()))
}

/// Returns true if the driver rejected the request, and false if the system failed for another reason.
fn is_refusal(error: &io::Error) -> bool {
    let other = [libc::EBUSY, libc::EPERM, libc::ENOBUFS, libc::ENOMEM, libc::ENODEV, libc::ENETDOWN];
    error.raw_os_error().is_none_or(|code| !other.contains(&code))
}

fn bind_error(
    options: &DeviceOptions,
    queue: u32,
    zero: bool,
    step: &'static str,
    source: io::Error,
    umem: &Umem,
) -> XdpOpenError {
    let name = options.name.to_string();
    match (step, source.raw_os_error()) {
        ("open a socket", Some(libc::EAFNOSUPPORT)) => XdpOpenError::Kernel("CONFIG_XDP_SOCKETS is off"),
        (_, Some(libc::EPERM | libc::EACCES)) => missing_right(options, step),
        ("register the memory", Some(libc::ENOBUFS | libc::ENOMEM)) => {
            XdpOpenError::Locked { bytes: umem.bytes(), source }
        }
        ("bind a socket to a queue", Some(libc::EBUSY)) => XdpOpenError::Busy { name, queue },
        ("bind a socket to a queue", Some(libc::ENODEV)) => missing(options),
        ("bind a socket to a queue", _) if zero => {
            let aligned = if umem.shape().aligned { "" } else { ", or try `memory: { aligned: true }`" };
            XdpOpenError::ZeroCopy { name, queue, source, aligned }
        }
        _ => system_error(options, step, source),
    }
}

fn missing(options: &DeviceOptions) -> XdpOpenError {
    let location = options.namespace.as_ref().map(|path| format!(" in {}", path.display())).unwrap_or_default();
    XdpOpenError::Missing(options.name.to_string(), location)
}

fn missing_right(options: &DeviceOptions, doing: &'static str) -> XdpOpenError {
    XdpOpenError::Right { name: options.name.to_string(), doing }
}

fn system_error(options: &DeviceOptions, doing: &'static str, source: io::Error) -> XdpOpenError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => missing_right(options, doing),
        _ => XdpOpenError::System { doing, name: options.name.to_string(), source },
    }
}
