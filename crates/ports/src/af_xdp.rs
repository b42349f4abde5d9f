//! AF_XDP sockets: frames of an interface lie in the packets' own memory, and pass from one interface to another uncopied.

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
mod socket;
mod umem;

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use forebay_graph::{DeclarePort, Intake, LinkState, Port, PortCounters, Ready, Setup, SetupError, register};
use forebay_measure::Nanos;
use forebay_packet::{Batch, MAX_BATCH, Ticks};

pub use error::OpenError;
pub use params::{Checksums, CopyMode, Memory, Mode, Params};

use claim::{Hold, Right, Slot};
use device::{Device, Wanted};
use opener::{News, Opener};
use queue::{Losses, Sent};
use umem::{Shape, Umem};

use crate::interface::{Watch, namespace};

/// How often the kernel is asked how the interface is and what it has counted.
const LOOK: Nanos = Nanos(100_000_000);
/// For how long nothing is sent to an interface that is down or has no carrier, or looked for from one that is not there.
const PAUSE: Nanos = Nanos(1_000_000);
/// For how long the kernel is left alone when it had no room for more.
const BREATH: Nanos = Nanos(20_000);
/// At the end, frames that the kernel has not sent yet are waited for, so many times.
const WAITS: usize = 200;
const WAIT: Duration = Duration::from_millis(1);

/// A port to an interface, by AF_XDP.
pub struct AfXdp {
    device: Option<Device>,
    /// Whether checksums that are only begun are completed.
    completes: bool,
    checksums: Checksums,
    /// Where the device comes from, if it is not there.
    coming: Option<Coming>,
    hold: Hold,
    wanted: Wanted,
    umem: Arc<Umem>,
    look_every: Ticks,
    look_at: Ticks,
    pause: Ticks,
    breath: Ticks,
    /// Before when the kernel is not woken to send, and nothing is taken if it is `stuck`.
    wake_at: Ticks,
    stuck: bool,
    /// Which queue is asked first for packets.
    first: usize,
    refused: Batch,
    counters: Arc<PortCounters>,
}

enum Coming {
    /// From the port before.
    Before(std::sync::mpsc::Receiver<Option<Device>>),
    /// It is opened anew.
    Opened(Opener),
}

fn count(counters: &PortCounters, losses: Losses) {
    counters.dropped.add(losses.dropped);
    counters.oversize.add(losses.oversize);
    counters.errors.add(losses.errors);
}

impl AfXdp {
    /// Asks the kernel how things are.
    #[cold]
    fn look(&mut self, now: Ticks) {
        self.look_at = now + self.look_every;
        let Some(device) = &mut self.device else { return };
        let mut gone = false;
        for queue in &mut device.queues {
            let (state, losses) = queue.look();
            gone |= state == Sent::Gone;
            count(&self.counters, losses);
        }
        if gone {
            return self.lose();
        }
        if let Some(watch) = &mut device.watch {
            let found = watch.look(false);
            // An interface that is gone is for the queues to find: they are closed then.
            if watch.last().is_some() {
                watch.note(found, &self.counters.link);
            }
        }
    }

    /// Closes a device that nobody takes over.
    fn close_device(&self, device: Option<Device>) {
        if let Some(device) = device {
            count(&self.counters, device.close());
        }
    }

    /// The interface is gone: it is opened again when there is one of its name.
    #[cold]
    fn lose(&mut self) {
        let Some(mut device) = self.device.take() else { return };
        device.queues.iter_mut().for_each(queue::Queue::complete);
        self.counters.link.set(LinkState::Gone);
        // That it has gone, and what went with it.
        self.counters.errors.add(1 + device.in_flight() as u64);
        self.coming = Some(Coming::Opened(Opener::start(self.wanted.clone(), Arc::clone(&self.umem), Some(device))));
    }

    /// Looks whether the device has come.
    #[cold]
    fn await_device(&mut self) {
        let device = match &self.coming {
            Some(Coming::Before(before)) => match before.try_recv() {
                Ok(Some(device)) if device.wanted == self.wanted => Some(device),
                Ok(former) => {
                    let opener = Opener::start(self.wanted.clone(), Arc::clone(&self.umem), former);
                    self.coming = Some(Coming::Opened(opener));
                    None
                }
                Err(_) => None,
            },
            Some(Coming::Opened(opener)) => match opener.news() {
                Some(News::Open(device)) => Some(device),
                Some(News::Closed(losses)) => {
                    count(&self.counters, losses);
                    None
                }
                None => None,
            },
            None => None,
        };
        if let Some(device) = &device {
            self.counters.link.set(device.watch.as_ref().map_or(LinkState::Up, Watch::link));
            self.completes = completes(self.checksums, Some(device));
        }
        if device.is_some() {
            (self.device, self.coming, self.stuck) = (device, None, false);
        }
    }

    /// Wakes the kernel, if it wants that, to send what it was given.
    #[inline]
    fn wake(&mut self, now: Ticks) {
        let Some(queue) = self.device.as_mut().and_then(|device| device.queues.first_mut()) else { return };
        let may = now >= self.wake_at;
        let sent = if may && queue.waits() { queue.kick() } else { Sent::Well };
        queue.complete();
        if sent != Sent::Well {
            return self.trouble(sent, now);
        }
        self.stuck &= !may;
    }

    /// After what the kernel said of frames to be sent.
    #[cold]
    fn trouble(&mut self, sent: Sent, now: Ticks) {
        self.wake_at = now + if sent == Sent::Full { self.breath } else { self.pause };
        self.stuck = sent != Sent::Full;
        if sent == Sent::Gone {
            self.lose();
        }
    }

    /// Waits until what was given to the kernel is sent; then the device goes to the port that comes after this one, or is closed.
    fn finish(&mut self) -> Result<(), String> {
        let Some(mut device) = self.device.take() else {
            let mut opener = match self.coming.take() {
                Some(Coming::Opened(opener)) => opener,
                Some(Coming::Before(before)) => {
                    // It may have come, and this port was never asked for anything.
                    let device = before.try_recv().ok().and_then(|device| self.hold.pass_on(device));
                    self.close_device(device);
                    return Ok(());
                }
                None => return Ok(()),
            };
            opener.stop();
            let mut trouble = opener.trouble();
            while let Some(news) = opener.news() {
                match news {
                    News::Closed(losses) => count(&self.counters, losses),
                    News::Open(device) => {
                        trouble = None;
                        count(&self.counters, device.close());
                    }
                }
            }
            drop(self.hold.pass_on(None));
            let name = &self.wanted.name;
            return trouble
                .map_or(Ok(()), |trouble| Err(format!("'{name}' was lost, and could not be opened again: {trouble}")));
        };
        for _ in 0..WAITS {
            device.queues.iter_mut().for_each(queue::Queue::complete);
            if device.in_flight() == 0 {
                break;
            }
            let sent = device.queues.first_mut().map(queue::Queue::kick);
            if sent == Some(Sent::Gone) {
                break;
            }
            thread::sleep(WAIT);
        }
        let left = device.in_flight();
        self.device = Some(device);
        // Once more, for what has been counted since.
        self.look(Ticks::ZERO);
        if self.device.is_none() {
            // It was found to be gone just now.
            return self.finish();
        }
        self.counters.errors.add(left as u64);
        let mut device = self.device.take();
        if left == 0 {
            device = self.hold.pass_on(device);
        } else {
            // What has not left would count for the next port.
            drop(self.hold.pass_on(None));
        }
        self.close_device(device);
        let name = &self.wanted.name;
        match left {
            0 => Ok(()),
            _ => Err(format!(
                "{left} frames that were given to '{name}' may not have left: it is down, or has no carrier"
            )),
        }
    }
}

impl Port for AfXdp {
    #[inline]
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let now = intake.now;
        if now >= self.look_at {
            self.look(now);
        }
        let Some(device) = &mut self.device else {
            self.await_device();
            return if self.coming.is_some() { Ready::At(now + self.pause) } else { Ready::Now };
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
        if self.completes {
            // The kernel may have written them on another core: all are asked for before the first is read.
            batch.prefetch(umem::FIRST);
            batch.iter_mut().for_each(|packet| _ = checksum::complete(packet));
        }
        self.wake(now);
        if batch.len() == most { Ready::Now } else { Ready::Input }
    }

    #[inline]
    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        if self.device.is_none() {
            self.await_device();
        }
        if self.stuck {
            // Nothing is added to what waits for the interface.
            self.wake(now);
            if self.stuck {
                return;
            }
        }
        let Self { device, refused, .. } = self;
        let Some(queue) = device.as_mut().and_then(|device| device.queues.first_mut()) else { return };
        batch.drain_each(|_, packet| {
            if let Err(packet) = queue.send(packet) {
                // As many as there were in the batch.
                let _ = refused.push(packet);
            }
        });
        queue.publish();
        batch.append(refused);
        self.wake(now);
        // A port that is not asked for packets looks here.
        if now >= self.look_at {
            self.look(now);
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
        // Whoever wants to know closes it first.
        let _ = self.finish();
    }
}

/// Whether checksums are to be completed that are only begun.
fn completes(checksums: Checksums, device: Option<&Device>) -> bool {
    match checksums {
        Checksums::Complete => true,
        Checksums::Leave => false,
        Checksums::Auto => device.is_some_and(|device| device.is_virtual),
    }
}

/// The memory of all ports, as long as one of them is there, and which port it was made for.
#[derive(Default)]
struct Shared(Mutex<(String, Weak<Umem>)>);

impl Shared {
    /// The memory, for the port of this name, which says so much of it.
    fn take(&self, port: &str, stated: Option<Shape>) -> Result<Arc<Umem>, SetupError> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(umem) = shared.1.upgrade() {
            let Shape { chunks, frame, aligned } = umem.shape();
            return match stated.filter(|stated| *stated != umem.shape()) {
                None => Ok(umem),
                Some(_) => Err(SetupError::at(
                    "memory",
                    format!(
                        "all `af_xdp` ports share one memory, which the port '{}' has with `chunks: {chunks}`, `frame: {frame}`, \
                         `aligned: {aligned}`: say the same at all of them; it cannot be changed while packets run",
                        shared.0
                    ),
                )),
            };
        }
        let umem = Umem::new(stated.unwrap_or_default());
        let umem = Arc::new(umem.map_err(|error| SetupError::at("memory", error.to_string()))?);
        *shared = (port.to_owned(), Arc::downgrade(&umem));
        Ok(umem)
    }
}

impl DeclarePort for AfXdp {
    type Params = Params;
    const NAME: &'static str = "af_xdp";
    const SUMMARY: &'static str =
        "an interface by AF_XDP sockets: frames bypass the host's stack, and are not copied by Forebay";
    const HELP: &'static str = "\
A program of five instructions on the interface gives its frames to sockets whose memory is packet memory: what is received \
by one `af_xdp` port and leaves by another is not copied by Forebay. A packet from elsewhere (a generator, another kind of \
port) is copied once, when it leaves. The host sees none of the interface's frames then, but for those of queues beyond \
`queues`; the program goes with the port, however the process ends. In `mode: native` the driver runs it, in `generic` the \
kernel behind the driver; with zero-copy the device itself reads and writes the packets' memory, else the kernel copies once \
each way. It takes the rights CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, and memory that may be locked (`ulimit -l`).

A port has all receive queues of its interface, on the one worker that it belongs to, which hands over what is of other \
workers' sessions: a device spreads frames by a hash that keeps the two directions of a session together by chance only. \
Frames are sent by the first queue. Those lost before they came here (no chunk was free to receive into, the ring was full, \
longer than a chunk holds) are `dropped`; those that were given to the kernel and not sent are `errors`; those that find no \
room to be sent, no link or no interface are `refused`. An interface that is deleted and made again is taken up again.";
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
        if setup.simulated() {
            return Err(SetupError::new(
                "an af_xdp port meets a host whose time is real: it cannot be part of a simulated run",
            ));
        }
        let (sizes, stated) = (params.sizes()?, params.shape()?);
        let wanted = Wanted {
            name: params.interface,
            namespace: params.namespace.as_deref().map(namespace::path),
            queues: params.queues,
            mode: params.mode,
            copy: params.copy,
            sizes,
            busy_poll: params.busy_poll,
        };
        let key = format!("af_xdp {:?} {}", wanted.namespace, wanted.name);
        let slot = setup.lasting(&key, |_| Ok(Slot::default()))?;
        let (name, owner) = (wanted.name.to_string(), setup.name().to_owned());
        let (hold, right) = slot
            .take(&owner)
            .map_err(|port| SetupError::at("interface", OpenError::Taken { name, port }.to_string()))?;
        let shared = setup.lasting("af_xdp memory", |_| Ok(Shared::default()))?;
        let umem = shared.take(&owner, stated)?;
        let refused = |error: OpenError| {
            let parameter = match error {
                OpenError::Namespace { .. } => "namespace",
                OpenError::Native { .. } => "mode",
                OpenError::ZeroCopy { .. } => "copy",
                OpenError::Queues { .. } | OpenError::Busy { .. } => "queues",
                OpenError::Locked { .. } | OpenError::Chunks { .. } => "memory",
                _ => "interface",
            };
            SetupError::at(parameter, error.to_string())
        };
        let (device, coming) = match right {
            Right::First => (Some(Device::open(&wanted, &umem).map_err(refused)?), None),
            Right::Next(before) => {
                Device::check(&wanted).map_err(refused)?;
                (None, Some(Coming::Before(before)))
            }
        };
        let completes = completes(params.checksums, device.as_ref());
        Ok(Self {
            device,
            completes,
            checksums: params.checksums,
            coming,
            hold,
            wanted,
            umem,
            look_every: setup.frequency().ticks(LOOK),
            look_at: Ticks::ZERO,
            pause: setup.frequency().ticks(PAUSE),
            breath: setup.frequency().ticks(BREATH),
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
