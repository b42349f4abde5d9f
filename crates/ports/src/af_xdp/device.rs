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

/// The longest time for which a queue can remain busy after its previous socket was closed.
const MAX_BUSY: Duration = Duration::from_secs(1);
/// The pause between two attempts to open a busy queue.
const RETRY_AFTER: Duration = Duration::from_millis(2);

/// The options for opening an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceOptions {
    /// The name of the interface.
    pub name: InterfaceName,
    /// The path of the network namespace of the interface. `None` for the namespace of this process.
    pub namespace: Option<PathBuf>,
    /// The number of queues, starting with the first. `None` for all queues.
    pub queues: Option<u32>,
    /// The part of the kernel that runs the program.
    pub mode: Mode,
    /// The way in which frames get to and from packet memory.
    pub copy: CopyMode,
    /// The sizes of the rings.
    pub sizes: Sizes,
    /// The largest number of frames per poll of the device. `None` for interrupts instead of polling.
    pub busy_poll: Option<u32>,
}

/// An open interface.
pub struct Device {
    /// The attached program. It is declared before the queues, so that it is detached first when the device is dropped.
    redirect: Redirect,
    /// The queues, by number. Only the first queue sends.
    pub queues: Vec<Queue>,
    /// The options with which the device was opened. A port with other options opens the interface again.
    pub options: DeviceOptions,
    /// The part of the kernel that runs the program.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests read this"))]
    pub attach_mode: AttachMode,
    /// True if there is no physical device behind the interface.
    pub is_virtual: bool,
    /// Reads the state of the interface. `None` if the watch could not be created: then there are no link events.
    pub watch: Option<Watch>,
}

impl Device {
    /// Opens the interface in its namespace. If a namespace is given, this happens on a separate thread.
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

    /// Opens the interface in the network namespace of the calling thread. On an error, the queues that were opened are
    /// closed again.
    fn open_in_this_namespace(options: &DeviceOptions, umem: &Arc<Umem>) -> Result<Self, XdpOpenError> {
        umem.recycle();
        let (interface, count) = find(options)?;
        let (redirect, attach_mode) = attach(options, interface, count)?;
        let is_virtual = ethtool::is_virtual(&options.name);
        let (queues, options) = (Vec::with_capacity(count as usize), options.clone());
        // A watch is not necessary: without it, there are no link events.
        let watch = Watch::new(&options.name).ok();
        let mut device = Self { redirect, queues, options, attach_mode, is_virtual, watch };
        for queue in 0..count {
            let fill = device.options.sizes.fill as usize;
            umem.reserve(fill).map_err(|available| {
                // The error states the number of chunks available for all queues of this device. So the chunks of the
                // queues that are already open are added.
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

    /// Closes the device. Returns the losses since the last check, and counts the received frames that were not read as
    /// dropped. Frames that were not sent are not included.
    #[must_use]
    pub fn close(self) -> Losses {
        let Self { redirect, queues, .. } = self;
        // After this, no more frames arrive.
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

    /// Returns the number of frames that the kernel has accepted and has not finished sending.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.queues.iter().map(Queue::in_flight).sum()
    }
}

/// Runs `act` in the interface's network namespace, and returns its result.
fn within<T: Send>(
    options: &DeviceOptions,
    act: impl FnOnce() -> Result<T, XdpOpenError> + Send,
) -> Result<T, XdpOpenError> {
    namespace::within(options.namespace.as_deref(), act, |path, source| match source.raw_os_error() {
        Some(libc::EPERM) => missing_right(options, "enter its network namespace"),
        _ => XdpOpenError::Namespace { path: path.to_owned(), source },
    })
}

/// Returns the interface's index, and the number of queues to open. Must be called in the interface's network
/// namespace.
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

/// Attaches the program: after the driver in [`Mode::Generic`], in the driver in the other modes. If the driver does
/// not support XDP and the mode is [`Mode::Auto`], a second attempt attaches the program after the driver.
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

/// Opens a queue, and retries for up to [`MAX_BUSY`] while the queue is busy. The kernel releases a queue some time
/// after its previous socket was closed (`xp_release_deferred`).
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

/// Opens a socket for a queue, and binds the socket to the queue, with zero-copy if the options and the driver allow
/// that. With `copy: auto`, a refusal of zero-copy leads to a second attempt with copies. A socket that cannot share
/// the memory of another socket registers the memory itself ([`Umem::bind_with`]).
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

/// Returns true if the driver rejected zero-copy, and false if the system failed for another reason.
fn is_refusal(error: &io::Error) -> bool {
    let other = [libc::EBUSY, libc::EPERM, libc::ENOBUFS, libc::ENOMEM, libc::ENODEV, libc::ENETDOWN];
    error.raw_os_error().is_none_or(|code| !other.contains(&code))
}

/// Returns the error for a failed step of [`open_queue`]. The texts of the steps must be those in that function.
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

/// Returns the error for an interface that does not exist.
fn missing(options: &DeviceOptions) -> XdpOpenError {
    let location = options.namespace.as_ref().map(|path| format!(" in {}", path.display())).unwrap_or_default();
    XdpOpenError::Missing(options.name.to_string(), location)
}

/// Returns the error for a missing capability. `doing` is the failed operation, as a verb: `to {doing}`.
fn missing_right(options: &DeviceOptions, doing: &'static str) -> XdpOpenError {
    XdpOpenError::Right { name: options.name.to_string(), doing }
}

/// Returns the error for a failed operation: a missing capability, or another system error.
fn system_error(options: &DeviceOptions, doing: &'static str, source: io::Error) -> XdpOpenError {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => missing_right(options, doing),
        _ => XdpOpenError::System { doing, name: options.name.to_string(), source },
    }
}
