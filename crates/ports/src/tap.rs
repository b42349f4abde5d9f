//! A TAP device: the other end is an interface of the host, so that its own stack takes part.

mod device;
mod opener;
mod params;

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_graph::{DeclarePort, Intake, LinkState, Port, PortCounters, Ready, Setup, SetupError, register};
use forebay_measure::Nanos;
use forebay_packet::{ArrivalClock, Batch, MAX_BATCH, MAX_FRAME, Ticks};

pub use device::DeviceError;
pub use params::{AddressError, HostAddress, Params};

use crate::interface::namespace;

use device::{Before, Device, ExcessBuffer, ReadOutcome, Wanted};
use opener::Opener;

/// The longest frame of any pool, less an Ethernet header and two tags.
const MOST_MTU: u16 = MAX_FRAME as u16 - 14 - 8;
/// RFC 791: what every network must carry.
const LEAST_MTU: u16 = 68;
/// RFC 8200 section 5.
const LEAST_IPV6_MTU: u16 = 1_280;
/// How often it is asked whether an interface that was taken away is there again.
const LOOK: Nanos = Nanos(20_000_000);

/// A port to an interface of the host.
pub struct Tap {
    /// Gone once it failed, until it is made again, or was closed.
    device: Option<Arc<Device>>,
    /// Makes it again.
    opener: Option<Opener>,
    /// How it is made, by which port.
    slot: Arc<Slot>,
    port: String,
    wanted: Wanted,
    /// What the interface was set to before, until a packet is asked for or sent: a port that was only made, and never
    /// ran, leaves it as it was.
    before: Option<Before>,
    poll: Ticks,
    /// How often it is asked whether an interface is there again.
    look: Ticks,
    /// Takes what no packet holds, so that its length shows.
    beyond: ExcessBuffer,
    /// Frames that the host would not take, while a batch is sent.
    refused: Batch,
    /// What went wrong, for [`Port::close`].
    fault: Option<String>,
    counters: Arc<PortCounters>,
}

impl Tap {
    /// The interface does not work any more: another one is made in its place.
    #[cold]
    fn fail(&mut self, doing: &str, error: &io::Error) {
        self.counters.errors.add(1);
        self.counters.link.set(LinkState::Gone);
        self.device = None;
        self.fault = Some(format!("the interface '{}' is gone: {doing} it: {error}", self.wanted.name));
        self.opener = Some(Opener::start(Arc::clone(&self.slot), self.port.clone(), self.wanted.clone()));
    }

    /// Takes the interface that has been made again, if it has.
    #[cold]
    fn look_for_it(&mut self, now: Ticks) -> Ready {
        let Some(opener) = &self.opener else { return Ready::Never };
        match opener.made() {
            Some(device) => {
                (self.device, self.opener, self.fault) = (Some(device), None, None);
                self.counters.link.set(LinkState::Up);
                Ready::Now
            }
            None => Ready::At(now + self.look),
        }
    }
}

impl Port for Tap {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        self.before = None;
        let Some(device) = &self.device else { return self.look_for_it(intake.now) };
        let most = intake.most.min(batch.room());
        // Frames that are too long use up turns, too: a flood of them does not hold the worker.
        for _ in 0..most {
            let Some(mut packet) = intake.pool.take() else { break };
            let room = packet.tailroom();
            let Some(space) = packet.append(room) else { break };
            match device.read(space, &mut self.beyond) {
                Ok(ReadOutcome::Frame(length)) => {
                    packet.truncate(length);
                    packet.set_arrival(intake.now, ArrivalClock::Poll);
                    // There is room, as `most` says.
                    let _ = batch.push(packet);
                }
                Ok(ReadOutcome::TooLong(length)) => self.counters.drop_oversize(length),
                Ok(ReadOutcome::Nothing) => return Ready::At(intake.now + self.poll),
                Err(error) => {
                    self.fail("reading from", &error);
                    return Ready::At(intake.now + self.look);
                }
            }
        }
        Ready::Now
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        self.before = None;
        let Some(device) = &self.device else { return };
        let Self { refused, counters, .. } = self;
        let mut gone = None;
        batch.drain_each(|_, packet| {
            let Err(error) = device.write(packet.data()) else {
                if counters.link.state() == LinkState::Down {
                    counters.link.set(LinkState::Up);
                }
                return;
            };
            match error.raw_os_error() {
                // The interface was brought down (`tun_get_user` of Linux).
                Some(libc::EIO | libc::ENETDOWN) => counters.link.set(LinkState::Down),
                // The host is behind: no more than that the packet is not taken.
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {}
                Some(libc::EBADFD | libc::EBADF) => gone = Some(error),
                // A frame that is none, such as one shorter than an Ethernet header.
                _ => counters.errors.add(1),
            }
            // As many as there were in the batch.
            let _ = refused.push(packet);
        });
        batch.append(refused);
        if let Some(error) = gone {
            self.fail("writing to", &error);
        }
    }

    fn close(&mut self) -> Result<(), String> {
        self.device = None;
        let trouble = self.opener.take().and_then(|opener| opener.trouble());
        let Some(fault) = self.fault.take() else { return Ok(()) };
        Err(trouble.map_or(fault.clone(), |trouble| format!("{fault}; it could not be made again: {trouble}")))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let (Some(before), Some(device)) = (self.before.take(), &self.device) {
            device.undo(&before);
        }
    }
}

/// An interface with the port that has it: a port that is opened anew, while packets run, shares the device with the port
/// before it until that one is closed.
#[derive(Default)]
struct Slot(Mutex<(String, Weak<Device>)>);

/// An interface that a port has, and what it was set to before, if it has been set.
struct Taken {
    device: Arc<Device>,
    before: Option<Before>,
}

impl Slot {
    /// The interface for the port of this name.
    fn take(&self, port: &str, wanted: &Wanted) -> Result<Taken, DeviceError> {
        self.find(port, wanted, |device| device.change(wanted).map(Some))
    }

    /// The interface for a port of this name that had it: what has been made meanwhile, by the port that comes after it, stays as
    /// that one has set it.
    fn again(&self, port: &str, wanted: &Wanted) -> Result<Arc<Device>, DeviceError> {
        self.find(port, wanted, |_| Ok(None)).map(|taken| taken.device)
    }

    /// The interface, of which `there` is what is done where it is there already.
    fn find(
        &self,
        port: &str,
        wanted: &Wanted,
        there: impl FnOnce(&Device) -> Result<Option<Before>, DeviceError>,
    ) -> Result<Taken, DeviceError> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match slot.1.upgrade() {
            Some(device) if slot.0 == port => there(&device).map(|before| Taken { device, before }),
            Some(_) => Err(DeviceError::Taken { name: wanted.name.to_string(), port: slot.0.clone() }),
            None => {
                let (device, before) = Device::open(wanted)?;
                let device = Arc::new(device);
                *slot = (port.to_owned(), Arc::downgrade(&device));
                Ok(Taken { device, before: Some(before) })
            }
        }
    }
}

impl DeclarePort for Tap {
    type Params = Params;
    const NAME: &'static str = "tap";
    const SUMMARY: &'static str = "an interface of the host: its own stack sends and takes packets";
    const HELP: &'static str = "\
A TAP device: what leaves by this port comes in at an interface of the host, and what the host sends by that interface \
enters. With the function `punt` before it the host answers ARP, pings and routing protocols for a router's own addresses. \
(The function `tap` is something else: it writes captures.) Making the interface takes the right CAP_NET_ADMIN, unless it \
was prepared for the user (`ip tuntap add dev NAME mode tap user USER`, `ip link set NAME up`).

There is no knowing whether the host has sent anything but by asking: after a batch that was not full the interface is left \
alone for `poll`, so that a busy worker makes few system calls. One is made for every frame, so this is for the packets of a \
host, not for transit. Frames longer than the pool's packets are dropped and counted (`oversize`); those that the \
host does not take (its interface is down, its queue is full) are counted as `refused`. An interface that is taken \
away is made again, with its settings, within 100 ms, and counted in `errors`. Where other parameters change while \
packets run, the interface stays, with what waits in it; its settings change just before the pipeline does.";
    const EXAMPLE: &'static str = "{ interface: fb0, address: 192.0.2.1/24, mac: 02:00:00:00:00:01 }";

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        true
    }

    fn check(params: &Params, _: &mut Setup<'_>) -> Result<(), SetupError> {
        if !(1_000..=1_000_000_000).contains(&params.poll.0) {
            return Err(SetupError::at("poll", format!("{}: allowed are 1us to 1s", params.poll)));
        }
        let ipv6 = params.address.is_some_and(|address| address.address.is_ipv6());
        let least = if ipv6 { LEAST_IPV6_MTU } else { LEAST_MTU };
        if let Some(mtu) = params.mtu.filter(|mtu| !(least..=MOST_MTU).contains(mtu)) {
            let of = if ipv6 { " with an IPv6 address" } else { "" };
            return Err(SetupError::at("mtu", format!("{mtu}: allowed are {least} to {MOST_MTU} bytes{of}")));
        }
        Ok(())
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        if setup.simulated() {
            return Err(SetupError::new(
                "a tap port meets a host whose time is real: it cannot be part of a simulated run",
            ));
        }
        let wanted = Wanted {
            name: params.interface.clone(),
            address: params.address,
            mac: params.mac,
            mtu: params.mtu,
            namespace: params.namespace.map(|name| namespace::path(&name)),
        };
        let key = format!("tap {:?} {}", wanted.namespace, wanted.name);
        let slot = setup.lasting(&key, |_| Ok(Slot::default()))?;
        let Taken { device, before } = slot.take(setup.name(), &wanted).map_err(|error| {
            let parameter = if matches!(error, DeviceError::Namespace { .. }) { "namespace" } else { "interface" };
            SetupError::at(parameter, error.to_string())
        })?;
        Ok(Self {
            device: Some(device),
            opener: None,
            slot,
            port: setup.name().to_owned(),
            wanted,
            before,
            poll: setup.frequency().ticks(params.poll),
            look: setup.frequency().ticks(LOOK),
            beyond: ExcessBuffer::default(),
            refused: Batch::with_capacity(MAX_BATCH),
            fault: None,
            counters,
        })
    }
}

register!(port Tap);

#[cfg(test)]
mod tests;
