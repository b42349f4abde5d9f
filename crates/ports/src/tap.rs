//! A TAP device. Its other end is a host interface, so the host's own network stack sends and receives packets.

mod device;
mod opener;
mod params;

use std::io;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_graph::{DeclarePort, Intake, LinkState, Port, PortCounters, Ready, Setup, SetupError, Waits, register};
use forebay_packet::{ArrivalClock, Batch, MAX_BATCH, MAX_FRAME};
use forebay_units::{Nanos, Ticks};

pub use device::DeviceError;
pub use params::{AddressError, HostAddress, Params};

use crate::interface::namespace;
use crate::simulated::refuse_simulated;

use device::{ExcessBuffer, PreviousSettings, ReadOutcome, Settings, TapDevice};
use opener::Opener;

/// The largest MTU: the longest frame of any pool, minus an Ethernet header and two tags.
const MAX_MTU: u16 = MAX_FRAME as u16 - 14 - 8;
/// The smallest MTU: every network must carry IPv4 packets of this length (RFC 791).
const MIN_MTU: u16 = 68;
/// The smallest MTU with IPv6 (RFC 8200 section 5).
const MIN_IPV6_MTU: u16 = 1_280;
/// The interval at which the port checks whether a removed interface has been created again.
const CHECK_INTERVAL: Nanos = Nanos(20_000_000);

/// A port to a host interface.
pub struct Tap {
    /// The interface. `None` from a failure until the interface is created again, and after `close`.
    device: Option<Arc<TapDevice>>,
    /// Creates a removed interface again. `None` while the interface exists, and after `close`.
    opener: Option<Opener>,
    /// The claim on the interface.
    claim: Arc<InterfaceClaim>,
    /// The name of the port.
    port: String,
    /// The settings with which a removed interface is created again.
    settings: Settings,
    /// The interface's previous settings. `None` once `receive` or `send` has been called. Until then, dropping the
    /// port restores these settings.
    before: Option<PreviousSettings>,
    /// The pause before the port reads the interface again, after the interface had no more frames.
    poll: Ticks,
    /// The interval at which the port checks whether the interface has been created again.
    check_interval: Ticks,
    /// The buffer for the part of a frame that does not fit into a packet. The kernel writes this part here, so that
    /// the read reports the length of the whole frame.
    excess: ExcessBuffer,
    /// The frames of the current batch that the host did not accept. Empty between calls.
    refused: Batch,
    /// The fault to report in [`Port::close`].
    fault: Option<String>,
    counters: Arc<PortCounters>,
}

impl Tap {
    /// Handles the loss of the interface: counts the error, closes the device, and starts to create the interface
    /// again. `doing` is the failed operation, for example `reading from`.
    #[cold]
    fn fail(&mut self, doing: &str, error: &io::Error) {
        self.counters.errors.add(1);
        self.counters.link.set(LinkState::Gone);
        self.device = None;
        self.fault = Some(format!("the interface '{}' is gone: {doing} it failed: {error}", self.settings.name));
        self.opener = Some(Opener::start(Arc::clone(&self.claim), self.port.clone(), self.settings.clone()));
    }

    /// Takes the recreated interface, if the opener has it. Returns the time of the next call of `receive`.
    #[cold]
    fn await_device(&mut self, now: Ticks) -> Ready {
        let Some(opener) = &self.opener else { return Ready::Never };
        match opener.device() {
            Some(device) => {
                (self.device, self.opener, self.fault) = (Some(device), None, None);
                self.counters.link.set(LinkState::Up);
                Ready::Now
            }
            None => Ready::At(now + self.check_interval),
        }
    }
}

impl Port for Tap {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        self.before = None;
        let Some(device) = &self.device else { return self.await_device(intake.now) };
        let most = intake.most.min(batch.room());
        // Frames that are too long also count in this loop. Otherwise a flood of such frames would occupy the worker.
        for _ in 0..most {
            let Some(mut packet) = intake.pool.take() else { break };
            let room = packet.tailroom();
            let Some(space) = packet.append(room) else { break };
            match device.read(space, &mut self.excess) {
                Ok(ReadOutcome::Frame(length)) => {
                    packet.truncate(length);
                    packet.set_arrival(intake.now, ArrivalClock::Poll);
                    // There is room, because `most` is at most the batch's room.
                    let _ = batch.push(packet);
                }
                Ok(ReadOutcome::TooLong(length)) => self.counters.drop_oversize(length),
                Ok(ReadOutcome::Nothing) => return Ready::Input(intake.now + self.poll),
                Err(error) => {
                    self.fail("reading from", &error);
                    return Ready::At(intake.now + self.check_interval);
                }
            }
        }
        Ready::Now
    }

    fn wait_on(&self) -> Waits<'_> {
        self.device.as_ref().map_or(Waits::None, |device| Waits::On(vec![device.descriptor()]))
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
                // The interface was brought down (`tun_get_user` in Linux).
                Some(libc::EIO | libc::ENETDOWN) => counters.link.set(LinkState::Down),
                // The host is overloaded, so it does not accept this packet.
                Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => {}
                Some(libc::EBADFD | libc::EBADF) => gone = Some(error),
                // The frame is not valid: for example, it is shorter than an Ethernet header.
                _ => counters.errors.add(1),
            }
            // `refused` has as much room as the batch.
            let _ = refused.push(packet);
        });
        batch.append(refused);
        if let Some(error) = gone {
            self.fail("writing to", &error);
        }
    }

    fn close(&mut self) -> Result<(), String> {
        self.device = None;
        let error = self.opener.take().and_then(|opener| opener.last_error());
        let Some(fault) = self.fault.take() else { return Ok(()) };
        Err(error.map_or(fault.clone(), |error| format!("{fault}; the interface could not be created again: {error}")))
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let (Some(before), Some(device)) = (self.before.take(), &self.device) {
            device.undo(&before);
        }
    }
}

/// The name of the port that has an interface, and the device, which exists as long as a port has it. On a reload, the
/// new port shares the device with the old port until the old port is closed. There is one claim for each interface, as
/// long as the pipeline runs.
#[derive(Default)]
struct InterfaceClaim(Mutex<(String, Weak<TapDevice>)>);

/// A claimed interface, and its previous settings if this claim has changed them.
struct Claimed {
    device: Arc<TapDevice>,
    /// The previous settings. `None` if the settings were not changed.
    before: Option<PreviousSettings>,
}

impl InterfaceClaim {
    /// Returns the interface for the port with this name, and applies the settings. Fails if a port with another name
    /// has the interface.
    fn take(&self, port: &str, settings: &Settings) -> Result<Claimed, DeviceError> {
        self.find(port, settings, |device| device.change(settings).map(Some))
    }

    /// Returns the interface for a port that has lost it. Creates and configures the interface if no port has it. If a
    /// successor of the port has created the interface in the meantime, the successor's settings remain.
    fn retake(&self, port: &str, settings: &Settings) -> Result<Arc<TapDevice>, DeviceError> {
        self.find(port, settings, |_| Ok(None)).map(|taken| taken.device)
    }

    /// Returns the interface for the port with this name. Opens the interface, or calls `existing` if it is open
    /// already.
    fn find(
        &self,
        port: &str,
        settings: &Settings,
        existing: impl FnOnce(&TapDevice) -> Result<Option<PreviousSettings>, DeviceError>,
    ) -> Result<Claimed, DeviceError> {
        let mut claim = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match claim.1.upgrade() {
            Some(device) if claim.0 == port => existing(&device).map(|before| Claimed { device, before }),
            Some(_) => Err(DeviceError::Taken { name: settings.name.to_string(), port: claim.0.clone() }),
            None => {
                let (device, before) = TapDevice::open(settings)?;
                let device = Arc::new(device);
                *claim = (port.to_owned(), Arc::downgrade(&device));
                Ok(Claimed { device, before: Some(before) })
            }
        }
    }
}

impl DeclarePort for Tap {
    type Params = Params;
    const NAME: &'static str = "tap";
    const SUMMARY: &'static str = "a host interface: the host's network stack sends and receives packets";
    const HELP: &'static str = "\
A TAP device, which is an interface of the host. The host receives packets that leave by this port. Packets that the \
host sends by the interface enter by this port. With the function `punt` before it, the host responds to ARP, pings \
and routing protocols for a router's own addresses. (The function `tap` is different: it writes capture files.) \
Creating the interface needs the capability CAP_NET_ADMIN, unless the interface was prepared for the user (`ip tuntap \
add dev NAME mode tap user USER`, `ip link set NAME up`).

Only a system call shows whether the host has sent a packet. After a batch that was not full, the port does not read \
the interface for the time `poll`, so that a busy worker makes few system calls. Each frame needs one system call, so \
this port is meant for packets of the host, not for transit traffic. Frames longer than the pool's packets are dropped \
and counted (`oversize`). Frames that the host does not accept (the interface is down, its queue is full) are counted \
as `refused`. An interface that is removed is created again with its settings within 100 ms, and counted in `errors`. \
If a reload changes parameters, but the port's name and interface stay, the interface remains, with the frames that \
wait in it. The interface's settings change just before the new pipeline starts.";
    const EXAMPLE: &'static str = "{ interface: fb0, address: 192.0.2.1/24, mac: 02:00:00:00:00:01 }";

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        true
    }

    fn check(params: &Params, _: &mut Setup<'_>) -> Result<(), SetupError> {
        if !(1_000..=1_000_000_000).contains(&params.poll.0) {
            return Err(SetupError::not_allowed("poll", params.poll, "1us to 1s"));
        }
        let ipv6 = params.address.is_some_and(|address| address.address.is_ipv6());
        let least = if ipv6 { MIN_IPV6_MTU } else { MIN_MTU };
        if let Some(mtu) = params.mtu.filter(|mtu| !(least..=MAX_MTU).contains(mtu)) {
            let of = if ipv6 { " with an IPv6 address" } else { "" };
            return Err(SetupError::not_allowed("mtu", mtu, format!("{least} to {MAX_MTU} bytes{of}")));
        }
        Ok(())
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        refuse_simulated(setup, Self::NAME)?;
        let settings = Settings {
            name: params.interface.clone(),
            address: params.address,
            mac: params.mac,
            mtu: params.mtu,
            namespace: params.namespace.map(|name| namespace::path(&name)),
        };
        let key = format!("tap {:?} {}", settings.namespace, settings.name);
        let claim = setup.lasting(&key, |_| Ok(InterfaceClaim::default()))?;
        let Claimed { device, before } = claim.take(setup.name(), &settings).map_err(|error| {
            let parameter = if matches!(error, DeviceError::Namespace { .. }) { "namespace" } else { "interface" };
            SetupError::at(parameter, error.to_string())
        })?;
        Ok(Self {
            device: Some(device),
            opener: None,
            claim,
            port: setup.name().to_owned(),
            settings,
            before,
            poll: setup.frequency().ticks(params.poll),
            check_interval: setup.frequency().ticks(CHECK_INTERVAL),
            excess: ExcessBuffer::default(),
            refused: Batch::with_capacity(MAX_BATCH),
            fault: None,
            counters,
        })
    }
}

register!(port Tap);

#[cfg(test)]
mod tests;
