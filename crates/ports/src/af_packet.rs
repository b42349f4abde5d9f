//! A port to a host interface. It uses packet sockets, with rings that are shared with the kernel.

#[doc(hidden)]
pub mod block;
mod error;
mod filter;
mod host;
mod offload;
mod params;
mod receiver;
mod sender;
mod socket;
mod stamps;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, Waits, register};
use forebay_packet::{Batch, MAX_BATCH};
use forebay_units::{Nanos, Ticks};

pub use error::OpenError;
pub use params::{Params, RingSizes};

use crate::interface::{Found, Watch, namespace};
use crate::simulated::refuse_simulated;
use host::Excluded;
use receiver::Receiver;
use sender::Sender;
use stamps::Stamps;

/// The interval between checks of the ring's loss counters and of the interface's state.
const CHECK_INTERVAL: Nanos = Nanos(100_000_000);
/// The length of an Ethernet header, in bytes: the length of a frame minus the length of its IP packet. The MTU does
/// not include a VLAN tag. A tag that the kernel removed is put back into the headroom of the packet, so it does not
/// reduce the bytes that a packet holds.
const HEADER: usize = 14;
/// The MTU that is assumed if the interface does not exist yet.
const DEFAULT_MTU: usize = 1_500;

/// The receivers of a port. On a reload, the old port and the new port for the same interface share them, so that
/// frames in the ring are not lost. The last of these ports that is closed counts the remaining frames as dropped.
struct Receivers {
    /// The receivers of replaced rings, each with the time until which the port reads it. The port empties these
    /// receivers before it reads `current`.
    former: VecDeque<(Receiver, Ticks)>,
    /// The receiver of the ring into which the kernel puts new frames.
    current: Receiver,
}

/// The receivers with their lock. The ports that share them each have an `Arc` of this value.
type Shared = Mutex<Receivers>;

/// A port to an interface of the host. One worker calls it. After a reload, the new port for the same interface shares
/// the receivers (`Claim`), and starts to read them when `receive` is first called.
pub struct AfPacket {
    /// `None` once the port is closed.
    shared: Option<Arc<Shared>>,
    /// The new receiver, if the ring size differs from that of the previous port. `None` once `receive` has been
    /// called: then the new receiver is in `shared`.
    new_receiver: Option<Receiver>,
    /// The descriptor of the receiver from which this port reads, for a parked worker. `shared` also owns the
    /// descriptor, but the worker cannot hold the lock of `shared` while it is parked. `None` once the port is closed.
    input: Option<Arc<OwnedFd>>,
    /// True once `receive` has been called.
    receives: bool,
    /// True once `send` has been called.
    sends: bool,
    /// The send socket with its ring.
    sender: Sender,
    /// The state of the interface, and its last fault. Read at each check.
    watch: Watch,
    /// Keeps the frames from the host's network stack. `None` with `host: true`, or once the port is closed.
    excluded: Option<Arc<Excluded>>,
    /// The error of attaching the program of `excluded` to a recreated interface. Until a later check succeeds, the
    /// host's stack receives the frames. `None` if there is no such error.
    not_excluded: Option<String>,
    /// Converts the kernel's time stamps to ticks.
    stamps: Stamps,
    /// True if the port also receives frames for other Ethernet addresses.
    promiscuous: bool,
    /// The interval between two readings of an empty ring.
    poll: Ticks,
    /// The time after which the kernel hands over an incomplete block: the longer one of this ring and the previous
    /// ring.
    retire: Ticks,
    /// [`CHECK_INTERVAL`] in ticks.
    check_interval: Ticks,
    /// The time of the next check. [`Ticks::NEVER`] until the port is first called.
    check_at: Ticks,
    /// The packets of the current batch that could not be sent. Empty between calls.
    refused: Batch,
    counters: Arc<PortCounters>,
}

impl AfPacket {
    /// Starts to receive, as the first port of the interface or as the successor of another port. `receive` calls this
    /// once. A system error is counted, and the next check reports the state of the interface.
    #[cold]
    fn start(&mut self, now: Ticks) {
        self.receives = true;
        let index = self.watch.last().map(|state| state.index);
        let Some(shared) = &self.shared else { return };
        let mut receivers = lock(shared);
        let mut failed = false;
        let former =
            self.new_receiver.take().map(|new_receiver| std::mem::replace(&mut receivers.current, new_receiver));
        if let Some(index) = index {
            failed |= receivers.current.bind(index, self.promiscuous).is_err();
        }
        if let Some(former) = former {
            // The old receiver stops only after the new one is bound. A frame that arrives between these two steps is
            // in both rings, and no frame is lost.
            failed |= former.stop().is_err();
            // The kernel hands over the last block of the old ring after the retire time. Three times this time is a
            // safe limit for reading the block.
            receivers.former.push_back((former, now + self.retire + self.retire + self.retire));
        }
        self.counters.errors.add(failed.into());
        self.watch.record(Found::default(), &self.counters.link);
        drop(receivers);
        self.check_at = now + self.check_interval;
    }

    /// Checks the state of the interface, attaches the port again if the interface was recreated, and reads the loss
    /// counters. `receive` and `send` call this every [`CHECK_INTERVAL`].
    #[cold]
    #[inline(never)]
    fn check_interface(&mut self, now: Ticks) {
        self.check_at = now + self.check_interval;
        self.stamps.refresh();
        let Some(shared) = &self.shared else { return };
        // The call waits for the lock. Only a successor that is being created, or a predecessor that has not ended yet,
        // may have it, and for a short time.
        let mut receivers = lock(shared);
        let receivers = self.receives.then_some(&mut receivers.current);
        let cut_off = receivers.as_ref().is_some_and(|receiver| receiver.was_cut_off());
        let found = self.watch.check(cut_off);
        self.counters.errors.add(found.is_new_fault.into());
        self.watch.record(found, &self.counters.link);
        // A recreated interface has no program that keeps its frames from the host. If attaching the program fails, the
        // next check tries again. Only the first of successive failures is counted.
        if let (Some(excluded), Some(state)) = (&self.excluded, self.watch.last()) {
            let error = excluded.follow(state.index).err().map(OpenError::exclude(self.watch.name()));
            self.counters.errors.add((error.is_some() && self.not_excluded.is_none()).into());
            self.not_excluded = error.map(|error| format!("since the interface was recreated: {error}"));
        }
        if let Some(state) = found.bind {
            self.sender.set_mtu(state.mtu);
            // `bind` fails if the interface has disappeared again. The next check detects that.
            let _ = self.sender.bind(state.index);
        }
        if let Some(receiver) = receivers {
            self.counters.dropped.add(receiver.drops());
            if let Some(state) = found.bind {
                let _ = receiver.bind(state.index, self.promiscuous);
            }
        }
    }
}

impl Port for AfPacket {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        if !self.receives {
            self.start(intake.now);
        }
        if intake.now >= self.check_at {
            self.check_interface(intake.now);
        }
        let Some(shared) = &self.shared else { return Ready::Never };
        // A successor that is being created, or a predecessor that has not ended yet, may have the lock for a short
        // time. The worker does not wait for the lock: it tries again in the next call.
        let mut receivers = match shared.try_lock() {
            Ok(receivers) => receivers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ready::At(intake.now + self.poll),
        };
        if let Some((former, until)) = receivers.former.front_mut() {
            // Former receivers are read first, because the frames in the current ring are newer.
            let more = former.fill(batch, intake, &self.stamps, &self.counters);
            if !more
                && intake.now >= *until
                && let Some((former, _)) = receivers.former.pop_front()
            {
                self.counters.dropped.add(former.end());
            }
            return if more { Ready::Now } else { Ready::At(intake.now + self.poll) };
        }
        let more = receivers.current.fill(batch, intake, &self.stamps, &self.counters);
        if more { Ready::Now } else { Ready::Input(intake.now + self.poll) }
    }

    fn wait_on(&self) -> Waits<'_> {
        self.input.as_ref().map_or(Waits::None, |input| Waits::On(vec![input.as_fd()]))
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        if self.shared.is_none() {
            return;
        }
        if !self.sends {
            self.sends = true;
            self.watch.record(Found::default(), &self.counters.link);
            self.check_at = if self.receives { self.check_at } else { now + self.check_interval };
        }
        if now >= self.check_at {
            self.check_interface(now);
        }
        // The next check reports the reason of a failure.
        let _ = self.sender.send(batch, &mut self.refused, &self.counters);
    }

    fn in_flight(&self) -> usize {
        if self.shared.is_some() { self.sender.in_flight() } else { 0 }
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(shared) = self.shared.take() else { return Ok(()) };
        (self.excluded, self.input) = (None, None);
        // Another owner continues with the frames in the rings. If this is the last owner, the frames are lost.
        if let Some(receivers) = Arc::into_inner(shared) {
            let Receivers { former, current } = receivers.into_inner().unwrap_or_else(PoisonError::into_inner);
            let receivers = former.into_iter().map(|(receiver, _)| receiver).chain([current]);
            self.counters.dropped.add(receivers.map(Receiver::end).sum());
        }
        self.watch.last_fault().or_else(|| self.not_excluded.take()).map_or(Ok(()), Err)
    }
}

/// Locks the receivers. If another thread has panicked with the lock, the state is valid nevertheless, because threads
/// with the lock only count frames and read memory.
fn lock(shared: &Shared) -> MutexGuard<'_, Receivers> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The record of the port that uses an interface. There is one record for each interface. It lasts as long as the
/// pipeline runs ([`Setup::lasting`]), so a new port finds the receivers of the port that it replaces.
#[derive(Default)]
struct Claim(Mutex<ClaimState>);

/// The state of a [`Claim`]. The next port that opens the interface replaces this state.
#[derive(Default)]
struct ClaimState {
    /// The name of the last port that opened the interface. While `shared` exists, only a port with this name may open
    /// the interface.
    owner: String,
    /// The receivers of the port. They no longer exist if all ports to the interface are closed.
    shared: Weak<Shared>,
    /// The exclusion of the host's stack, which the next port keeps. Empty with `host: true`.
    excluded: Weak<Excluded>,
}

/// The objects that are created in the interface's network namespace.
struct Opened {
    watch: Watch,
    sender: Sender,
    /// `None` if the previous port's receiver is used.
    receiver: Option<Receiver>,
    excluded: Option<Arc<Excluded>>,
}

/// The state that a port takes over with its interface, or the initial state of the first port.
struct Inherited {
    /// True if a running port has the interface, and the new port replaces it.
    takes_over: bool,
    /// The exclusion of the host's stack by the previous port.
    excluded: Option<Arc<Excluded>>,
    /// The network namespace of the interface. `None` for the namespace of the process.
    namespace_path: Option<PathBuf>,
}

impl Opened {
    /// Creates the sockets, and a receiver if `sizes` is given, in the network namespace of the calling thread. `frame`
    /// is the number of bytes that a packet of the pool holds.
    /// A port that takes over also accepts an interface that is missing or down, because its predecessor ran already.
    fn here(params: &Params, sizes: Option<&RingSizes>, frame: usize, before: &Inherited) -> Result<Self, OpenError> {
        let takes_over = before.takes_over;
        let name = &params.interface;
        let error_of = |doing| OpenError::of(name, doing);
        let watch = Watch::new(name).map_err(error_of("read the state of the interface"))?;
        let state = watch.last();
        match state {
            None if !takes_over => return Err(OpenError::Missing(name.to_string())),
            Some(state) if !state.ethernet => return Err(OpenError::NotEthernet(name.to_string())),
            Some(state) if !state.up && !takes_over => return Err(OpenError::Down(name.to_string())),
            Some(state) if state.mtu + HEADER > frame => {
                let (name, fits) = (name.to_string(), frame.saturating_sub(HEADER));
                return Err(OpenError::TooLong { name, mtu: state.mtu, frame: state.mtu + HEADER, holds: frame, fits });
            }
            _ => {}
        }
        let mtu = state.map_or(DEFAULT_MTU, |state| state.mtu);
        let mut sender =
            Sender::new(params.send_ring, mtu, params.bypass_queues).map_err(error_of("create the send ring"))?;
        if let Some(state) = state {
            sender.bind(state.index).map_err(error_of("bind the send socket"))?;
        }
        let receiver = sizes.map(Receiver::new).transpose().map_err(error_of("create the receive ring"))?;
        let index = state.map(|state| state.index);
        if let Some(index) = index.filter(|_| before.excluded.is_none()) {
            filter::remove_leftover(index);
        }
        let excluded = match (params.host, &before.excluded) {
            (true, _) => None,
            (false, Some(excluded)) => Some(Arc::clone(excluded)),
            (false, None) => {
                let excluded =
                    Excluded::from(before.namespace_path.as_deref(), index).map_err(OpenError::exclude(name))?;
                Some(Arc::new(excluded))
            }
        };
        Ok(Self { watch, sender, receiver, excluded })
    }
}

impl DeclarePort for AfPacket {
    type Params = Params;
    const NAME: &'static str = "af_packet";
    const SUMMARY: &'static str = "a host interface, by packet sockets with rings: any interface, any driver";
    const HELP: &'static str = "\
Receives the frames that come in at the interface, and sends frames by it. Frames pass through two rings that are \
shared with the kernel (PACKET_MMAP: TPACKET_V3 to receive). Receiving needs no system call, and sending needs one for \
each batch. The port needs the capability CAP_NET_RAW, and CAP_SYS_ADMIN if the interface is in another network \
namespace.

The host's own network stack still sees every received frame. It responds to frames for its addresses, including \
addresses of other interfaces (ARP). With `host: false` the host sees no frame: a program at the interface's ingress \
drops each frame after the packet sockets have received it. This needs the capabilities CAP_NET_ADMIN and CAP_BPF. The \
program is a tcx link, which the kernel removes when the process ends, for whatever reason. Kernels before 6.6 have no \
tcx links: there, the program is a clsact filter. If the process is killed, this filter remains until a port to the \
interface is opened again.

Received frames are complete and correct. A VLAN tag that the kernel removed is inserted again. A checksum that a \
sender on this host left to its interface is completed. A frame that stands for several frames (TCP and UDP \
segmentation, or frames that the kernel has merged) is split. If such a frame is in a tunnel, it cannot be split, and \
is counted as `dropped`. Frames longer than the pool's packets or than a block, and frames that find the ring full, \
are counted as `dropped`, too. The port sends every frame completely, and leaves no checksum or segmentation to the \
interface. Frames that the interface does not accept, because it is down, gone or overloaded, are counted as \
`refused`. A frame longer than the MTU of the interface is counted as `refused` and in `errors`.

The kernel hands frames over in blocks: when a block is full, or after `ring.retire`. With the default of \
`ring.retire`, a single frame therefore waits for 1 ms or 2 ms. The time of arrival is the kernel's. If an interface \
goes down, or is deleted and created again under its name, the port counts it in `errors` and continues within 100 ms. \
One worker reads the port, and hands over the packets of other workers' sessions. (If the kernel distributed packets, \
its hash would send the two directions of a session to different workers.) If a reload changes parameters, but the \
port's name and interface stay, the ring and the frames in it are kept. Exception: if `ring` changes, the port creates \
a new ring, and reads the rest of the old ring first.";
    const EXAMPLE: &'static str = "{ interface: eth1, ring: { blocks: 64, block: 64KiB } }";

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        true
    }

    fn check(params: &Params, _: &mut Setup<'_>) -> Result<(), SetupError> {
        params.check()
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        refuse_simulated(setup, Self::NAME)?;
        let namespace_path = params.namespace.as_deref().map(namespace::path);
        let key = format!("af_packet {namespace_path:?} {}", params.interface);
        let claim = setup.lasting(&key, |_| Ok(Claim::default()))?;
        let mut claim = claim.0.lock().unwrap_or_else(PoisonError::into_inner);
        let existing = claim.shared.upgrade();
        if existing.is_some() && claim.owner != setup.name() {
            let (name, port) = (params.interface.to_string(), claim.owner.clone());
            return Err(SetupError::at("interface", OpenError::Taken { name, port }.to_string()));
        }
        let sizes = existing.as_ref().map(|shared| lock(shared).current.sizes());
        let wanted = (sizes != Some(params.ring)).then_some(&params.ring);
        let refused = |path: &Path, source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM) => OpenError::NamespaceRight(path.to_owned()),
            _ => OpenError::Namespace { path: path.to_owned(), source },
        };
        let frame = setup.frame();
        let before = Inherited {
            takes_over: existing.is_some(),
            excluded: claim.excluded.upgrade(),
            namespace_path: namespace_path.clone(),
        };
        let make = || Opened::here(&params, wanted, frame, &before);
        let made = namespace::within(namespace_path.as_deref(), make, refused)
            .map_err(|error| SetupError::at(error.parameter(), error.to_string()))?;
        let Opened { watch, sender, receiver, excluded } = made;
        let (shared, new_receiver) = match existing {
            Some(shared) => (shared, receiver),
            None => {
                let current = receiver.expect("a receiver was requested, because none existed");
                (Arc::new(Mutex::new(Receivers { former: VecDeque::new(), current })), None)
            }
        };
        *claim = ClaimState {
            owner: setup.name().to_owned(),
            shared: Arc::downgrade(&shared),
            excluded: excluded.as_ref().map(Arc::downgrade).unwrap_or_default(),
        };
        let input = match &new_receiver {
            Some(receiver) => Arc::clone(receiver.descriptor()),
            None => Arc::clone(lock(&shared).current.descriptor()),
        };
        let before = sizes.map_or(0, |sizes| sizes.retire.0);
        let frequency = setup.frequency();
        Ok(Self {
            shared: Some(shared),
            new_receiver,
            input: Some(input),
            receives: false,
            sends: false,
            sender,
            watch,
            excluded,
            not_excluded: None,
            stamps: Stamps::new(frequency),
            promiscuous: params.promiscuous,
            poll: frequency.ticks(params.poll),
            retire: frequency.ticks(Nanos(params.ring.retire.0.max(before))),
            check_interval: frequency.ticks(CHECK_INTERVAL),
            check_at: Ticks::NEVER,
            refused: Batch::with_capacity(MAX_BATCH),
            counters,
        })
    }
}

register!(port AfPacket);

#[cfg(test)]
mod tests;
