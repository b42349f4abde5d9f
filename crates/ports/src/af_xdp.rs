//! AF_XDP ports: the kernel or the device writes an interface's frames directly into packet memory, so a frame passes
//! from one interface to another without a copy.

mod checksum;
mod claim;
mod device;
mod error;
mod ethtool;
mod opener;
mod params;
mod program;
mod queue;
mod ring;
mod shared;
mod socket;
mod umem;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use forebay_graph::{DeclarePort, Intake, LinkState, Port, PortCounters, Ready, Setup, SetupError, Waits, register};
use forebay_packet::{Batch, MAX_BATCH};
use forebay_units::{Nanos, Ticks};

pub use error::XdpOpenError;
pub use params::{Checksums, CopyMode, Memory, Mode, Params};

use claim::{DeviceSource, Hold, InterfaceClaim};
use device::{Device, DeviceOptions};
use opener::{OpenEvent, Opener};
use queue::{Losses, SendState};
use shared::SharedMemory;
use umem::Umem;

use crate::interface::{Watch, namespace};
use crate::simulated::refuse_simulated;

/// The interval between checks of the interface's state and of the kernel's counters.
const CHECK_INTERVAL: Nanos = Nanos(100_000_000);
/// The pause before the next attempt to send to an interface that is down or has no carrier, and before the next check
/// for a missing device.
const PAUSE: Nanos = Nanos(1_000_000);
/// The pause before the port wakes the kernel again, after the kernel had no room for more frames.
const FULL_PAUSE: Nanos = Nanos(20_000);
/// When the port is closed, it waits at most this many times for frames that the kernel has not sent yet.
const MAX_FINISH_WAITS: usize = 200;
/// The length of one of these waits.
const FINISH_WAIT: Duration = Duration::from_millis(1);

/// A port to an interface, by AF_XDP sockets. One worker calls it. On a reload, the next port with its name takes over
/// the device when this port is closed (`claim.rs`).
pub struct AfXdp {
    /// The open interface. `None` while the port waits for it (`pending`), and once the port is closed.
    device: Option<Device>,
    /// True if the port completes the partial checksums of received frames. A sender on this host leaves a TCP or UDP
    /// checksum partial if it expects that a device completes the checksum (`checksum.rs`).
    completes_checksums: bool,
    /// The parameter `checksums`. For each new device, it determines `completes_checksums` again.
    checksums: Checksums,
    /// The origin of the device while the port waits for it. `None` while `device` is present, and once the port is
    /// closed.
    pending: Option<PendingDevice>,
    /// The port's claim on the interface.
    hold: Hold,
    /// The options with which the interface is opened, also after it was lost.
    options: DeviceOptions,
    /// The memory that all `af_xdp` ports share.
    umem: Arc<Umem>,
    /// [`CHECK_INTERVAL`] in ticks.
    check_interval: Ticks,
    /// The time of the next check.
    check_at: Ticks,
    /// [`PAUSE`] in ticks.
    pause: Ticks,
    /// [`FULL_PAUSE`] in ticks.
    full_pause: Ticks,
    /// The time before which the port does not wake the kernel to send. If `stuck` is set, the port also accepts no
    /// packets before this time.
    wake_at: Ticks,
    /// True if the interface is down, has no carrier or is missing, as of the last attempt to send.
    stuck: bool,
    /// The number of the queue that the next call of `receive` reads first. It advances with each call, so that no
    /// queue is always the last one.
    first: usize,
    /// The packets of the current batch that could not be sent. Empty between calls.
    refused: Batch,
    counters: Arc<PortCounters>,
}

/// The origin of a device that a port waits for.
enum PendingDevice {
    /// The previous port of the interface hands the device over. `None` in the channel means that the previous port has
    /// no device: this port then opens the interface.
    Before(std::sync::mpsc::Receiver<Option<Device>>),
    /// A thread opens the interface again.
    Opened(Opener),
}

/// Adds the losses of a queue or device to the port's counters.
fn count(counters: &PortCounters, losses: Losses) {
    counters.dropped.add(losses.dropped);
    counters.oversize.add(losses.oversize);
    counters.errors.add(losses.errors);
}

impl AfXdp {
    /// Checks the state of the interface, and reads the kernel's counters. Starts to open the interface again if it is
    /// lost.
    #[cold]
    fn check_interface(&mut self, now: Ticks) {
        self.check_at = now + self.check_interval;
        let Some(device) = &mut self.device else { return };
        let mut gone = false;
        for queue in &mut device.queues {
            let (state, losses) = queue.check();
            gone |= state == SendState::Gone;
            count(&self.counters, losses);
        }
        if gone {
            return self.handle_loss();
        }
        if let Some(watch) = &mut device.watch {
            let found = watch.check(false);
            // If the interface is missing, its state is not recorded here: a later check of the queues reports
            // [`SendState::Gone`], and `handle_loss` records the state.
            if watch.last().is_some() {
                watch.record(found, &self.counters.link);
            }
        }
    }

    /// Closes a device that no other port takes over, and counts its losses.
    fn close_device(&self, device: Option<Device>) {
        if let Some(device) = device {
            count(&self.counters, device.close());
        }
    }

    /// Handles the loss of the interface: closes the device, and starts a thread that opens an interface with this name
    /// as soon as it exists.
    #[cold]
    fn handle_loss(&mut self) {
        let Some(mut device) = self.device.take() else { return };
        device.queues.iter_mut().for_each(queue::Queue::complete);
        self.counters.link.set(LinkState::Gone);
        // Counts one error for the loss of the interface, and one for each frame that was not sent.
        self.counters.errors.add(1 + device.in_flight() as u64);
        self.pending =
            Some(PendingDevice::Opened(Opener::start(self.options.clone(), Arc::clone(&self.umem), Some(device))));
    }

    /// Checks, without waiting, whether the device has arrived from the previous port or from the thread. If the
    /// previous port had no device, or one with other options, starts a thread that opens the interface.
    #[cold]
    fn await_device(&mut self) {
        let device = match &self.pending {
            Some(PendingDevice::Before(before)) => match before.try_recv() {
                Ok(Some(device)) if device.options == self.options => Some(device),
                Ok(former) => {
                    let opener = Opener::start(self.options.clone(), Arc::clone(&self.umem), former);
                    self.pending = Some(PendingDevice::Opened(opener));
                    None
                }
                Err(_) => None,
            },
            Some(PendingDevice::Opened(opener)) => match opener.next_event() {
                Some(OpenEvent::Open(device)) => Some(device),
                Some(OpenEvent::Closed(losses)) => {
                    count(&self.counters, losses);
                    None
                }
                None => None,
            },
            None => None,
        };
        if let Some(device) = &device {
            self.counters.link.set(device.watch.as_ref().map_or(LinkState::Up, Watch::link));
            self.completes_checksums = completes_checksums(self.checksums, Some(device));
        }
        if device.is_some() {
            (self.device, self.pending, self.stuck) = (device, None, false);
        }
    }

    /// Wakes the kernel, if necessary, to send the frames in TX (the ring of frames to send). Takes back the chunks
    /// whose frames were sent. Clears `stuck` once the pause after an error has ended and no new error occurs.
    #[inline]
    fn wake(&mut self, now: Ticks) {
        let Some(queue) = self.device.as_mut().and_then(|device| device.queues.first_mut()) else { return };
        let may = now >= self.wake_at;
        let sent = if may && queue.has_waiting_frames() { queue.notify() } else { SendState::Accepted };
        queue.complete();
        if sent != SendState::Accepted {
            return self.handle_send_error(sent, now);
        }
        self.stuck &= !may;
    }

    /// Handles a state other than [`SendState::Accepted`] after an attempt to send: sets the pause before the next
    /// attempt, and handles the loss of the interface.
    #[cold]
    fn handle_send_error(&mut self, sent: SendState, now: Ticks) {
        self.wake_at = now + if sent == SendState::Full { self.full_pause } else { self.pause };
        self.stuck = sent != SendState::Full;
        if sent == SendState::Gone {
            self.handle_loss();
        }
    }

    /// Closes the port: waits until the kernel has sent its frames, then hands the device over to the next port, or
    /// closes the device. Does nothing if it was called before. Returns an error for the user if frames may not have
    /// been sent, or if the lost interface could not be opened again.
    fn finish(&mut self) -> Result<(), String> {
        let Some(mut device) = self.device.take() else {
            let mut opener = match self.pending.take() {
                Some(PendingDevice::Opened(opener)) => opener,
                Some(PendingDevice::Before(before)) => {
                    // The previous port may have sent the device already. This port was not called since then, so the
                    // device is still in the channel.
                    let device = before.try_recv().ok().and_then(|device| self.hold.pass_on(device));
                    self.close_device(device);
                    return Ok(());
                }
                None => return Ok(()),
            };
            opener.stop();
            let mut error = opener.last_error();
            while let Some(event) = opener.next_event() {
                match event {
                    OpenEvent::Closed(losses) => count(&self.counters, losses),
                    OpenEvent::Open(device) => {
                        error = None;
                        count(&self.counters, device.close());
                    }
                }
            }
            drop(self.hold.pass_on(None));
            let name = &self.options.name;
            return error
                .map_or(Ok(()), |error| Err(format!("'{name}' was lost and could not be opened again: {error}")));
        };
        for _ in 0..MAX_FINISH_WAITS {
            device.queues.iter_mut().for_each(queue::Queue::complete);
            if device.in_flight() == 0 {
                break;
            }
            let sent = device.queues.first_mut().map(queue::Queue::notify);
            if sent == Some(SendState::Gone) {
                break;
            }
            thread::sleep(FINISH_WAIT);
        }
        let unsent = device.in_flight();
        self.device = Some(device);
        // This check counts the losses since the last check.
        self.check_interface(Ticks::ZERO);
        if self.device.is_none() {
            // The check has found that the interface no longer exists.
            return self.finish();
        }
        self.counters.errors.add(unsent as u64);
        let mut device = self.device.take();
        if unsent == 0 {
            device = self.hold.pass_on(device);
        } else {
            // A device with unsent frames is closed and not handed over, because the next port would count these frames
            // as its frames in flight. The next port then opens the interface itself.
            drop(self.hold.pass_on(None));
        }
        self.close_device(device);
        let name = &self.options.name;
        match unsent {
            0 => Ok(()),
            _ => Err(format!(
                "{unsent} frames for '{name}' were possibly not sent: the interface is down or has no carrier"
            )),
        }
    }
}

impl Port for AfXdp {
    #[inline]
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let now = intake.now;
        if now >= self.check_at {
            self.check_interface(now);
        }
        let Some(device) = &mut self.device else {
            self.await_device();
            return if self.pending.is_some() { Ready::At(now + self.pause) } else { Ready::Now };
        };
        let most = intake.most.min(batch.room());
        let queues = device.queues.len();
        for at in (self.first..queues).chain(0..self.first) {
            if let Some(queue) = device.queues.get_mut(at)
                && batch.len() < most
            {
                queue.receive(batch, most - batch.len(), now);
            }
        }
        self.first = if self.first + 1 < queues { self.first + 1 } else { 0 };
        if self.completes_checksums {
            // The kernel may have written the packets on another core, so they are not in this core's cache. Therefore,
            // all packets are prefetched before the first is read.
            batch.prefetch(umem::FIRST);
            batch.iter_mut().for_each(|packet| _ = checksum::complete(packet));
        }
        self.wake(now);
        if batch.len() == most { Ready::Now } else { Ready::Input(now) }
    }

    fn wait_on(&self) -> Waits<'_> {
        let device = self.device.as_ref();
        device.map_or(Waits::None, |device| Waits::On(device.queues.iter().map(queue::Queue::descriptor).collect()))
    }

    #[inline]
    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        if self.device.is_none() {
            self.await_device();
        }
        if self.stuck {
            // No frames are added while the interface is stuck.
            self.wake(now);
            if self.stuck {
                return;
            }
        }
        let Self { device, refused, .. } = self;
        let Some(queue) = device.as_mut().and_then(|device| device.queues.first_mut()) else { return };
        batch.drain_each(|_, packet| {
            if let Err(packet) = queue.send(packet) {
                // `refused` has as much room as the batch.
                let _ = refused.push(packet);
            }
        });
        queue.publish();
        batch.append(refused);
        self.wake(now);
        // A port that only sends has no calls of `receive`. So this call also checks the interface.
        if now >= self.check_at {
            self.check_interface(now);
        }
    }

    fn in_flight(&self) -> usize {
        self.device.as_ref().map_or(0, Device::in_flight)
    }

    fn close(&mut self) -> Result<(), String> {
        self.finish()
    }
}

impl Drop for AfXdp {
    fn drop(&mut self) {
        // A caller that needs the result calls `close` first.
        let _ = self.finish();
    }
}

/// Returns true if the port must complete partial checksums. With `auto`, returns true if the interface has no physical
/// device. While the interface is not open (`device` is `None`), `auto` returns false: the port calls this again when
/// it has opened the interface.
fn completes_checksums(checksums: Checksums, device: Option<&Device>) -> bool {
    match checksums {
        Checksums::Complete => true,
        Checksums::Leave => false,
        Checksums::Auto => device.is_some_and(|device| device.is_virtual),
    }
}

impl DeclarePort for AfXdp {
    type Params = Params;
    const NAME: &'static str = "af_xdp";
    const SUMMARY: &'static str =
        "an interface by AF_XDP sockets: frames bypass the host's network stack, and Forebay does not copy them";
    const HELP: &'static str = "\
A program of five instructions on the interface redirects the interface's frames to sockets. The memory of these \
sockets is Forebay's packet memory. Forebay does not copy a frame that is received by one `af_xdp` port and sent by \
another. A packet from elsewhere (a generator, another port type) is copied once, when it is sent. The host then \
receives none of the interface's frames, except those of queues beyond `queues`. The program is detached when the port \
closes or the process ends, for whatever reason. In `mode: native` the driver runs the program; in `mode: generic` the \
kernel runs it after the driver. With zero-copy, the device itself reads and writes packet memory; otherwise the \
kernel copies each frame once in each direction. The port needs the capabilities CAP_NET_RAW, CAP_NET_ADMIN and \
CAP_BPF, and permission to lock its memory (`ulimit -l`).

One worker reads all receive queues that the port uses, and hands over the packets of other workers' sessions. (A \
device distributes frames over queues by a hash, which usually separates the two directions of a session.) Frames are \
sent by the first queue. Frames lost before reception (no chunk was free, the ring was full, or the frame was longer \
than a chunk) are counted as `dropped`. Frames that the kernel accepted and did not send are counted in `errors`. A \
frame that cannot be sent, because there is no room, no carrier or no interface, is counted as `refused`. If an \
interface is deleted and created again, the port uses the new interface.";
    const EXAMPLE: &'static str = "{ interface: eth1 }";

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        true
    }

    fn check(params: &Params, _: &mut Setup<'_>) -> Result<(), SetupError> {
        params.check()?;
        params.sizes()?;
        params.shape().map(|_| ())
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        refuse_simulated(setup, Self::NAME)?;
        let (sizes, stated) = (params.sizes()?, params.shape()?);
        let options = DeviceOptions {
            name: params.interface,
            namespace: params.namespace.as_deref().map(namespace::path),
            queues: params.queues,
            mode: params.mode,
            copy: params.copy,
            sizes,
            busy_poll: params.busy_poll,
        };
        let key = format!("af_xdp {:?} {}", options.namespace, options.name);
        let claim = setup.lasting(&key, |_| Ok(InterfaceClaim::default()))?;
        let (name, owner) = (options.name.to_string(), setup.name().to_owned());
        let (hold, device_source) = claim
            .take(&owner)
            .map_err(|port| SetupError::at("interface", XdpOpenError::Taken { name, port }.to_string()))?;
        let shared = setup.lasting("af_xdp memory", |_| Ok(SharedMemory::default()))?;
        let umem = shared.take(&owner, stated)?;
        let refused = |error: XdpOpenError| {
            let parameter = match error {
                XdpOpenError::Namespace { .. } => "namespace",
                XdpOpenError::Native { .. } => "mode",
                XdpOpenError::ZeroCopy { .. } => "copy",
                XdpOpenError::Queues { .. } | XdpOpenError::Busy { .. } => "queues",
                XdpOpenError::Locked { .. } | XdpOpenError::Chunks { .. } => "memory",
                _ => "interface",
            };
            SetupError::at(parameter, error.to_string())
        };
        let (device, pending) = match device_source {
            DeviceSource::First => (Some(Device::open(&options, &umem).map_err(refused)?), None),
            DeviceSource::Next(before) => {
                Device::check(&options).map_err(refused)?;
                (None, Some(PendingDevice::Before(before)))
            }
        };
        let completes_checksums = completes_checksums(params.checksums, device.as_ref());
        Ok(Self {
            device,
            completes_checksums,
            checksums: params.checksums,
            pending,
            hold,
            options,
            umem,
            check_interval: setup.frequency().ticks(CHECK_INTERVAL),
            check_at: Ticks::ZERO,
            pause: setup.frequency().ticks(PAUSE),
            full_pause: setup.frequency().ticks(FULL_PAUSE),
            wake_at: Ticks::ZERO,
            stuck: false,
            first: 0,
            refused: Batch::with_capacity(MAX_BATCH),
            counters,
        })
    }
}

register!(port AfXdp);

#[cfg(test)]
mod tests;
