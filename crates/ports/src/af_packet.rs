//! An interface of the host by packet sockets: frames are taken from and put into rings that are shared with the kernel.

#[doc(hidden)]
pub mod block;
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
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, register};
use forebay_measure::Nanos;
use forebay_packet::{Batch, MAX_BATCH, MAX_FRAME, Ticks};

pub use params::{Params, Ring};

use crate::interface::{Found, InterfaceName, Watch, namespace};
use host::Excluded;
use receiver::Receiver;
use sender::Sender;
use stamps::Stamps;

/// How often the kernel is asked what the ring has lost and how the interface is.
const LOOK_EVERY: Nanos = Nanos(100_000_000);
/// An Ethernet header: what a frame is longer than the IP packet in it. A tag that the kernel took out goes into headroom.
const HEADER: usize = 14;
/// The MTU for which room is made where the interface is not there to be asked.
const USUAL_MTU: usize = 1_500;

/// Why there is no port, for its user.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The right is missing.
    #[error(
        "'{0}' needs the right CAP_NET_RAW: run as root, or give it to the program once with `setcap cap_net_raw+ep forebay`"
    )]
    Right(String),
    /// A right to keep frames from the host's stack is missing.
    #[error(
        "to keep the frames of '{0}' from the host's stack takes the rights CAP_NET_ADMIN and CAP_BPF: run as root, or \
         give them to the program once with `setcap cap_net_raw,cap_net_admin,cap_bpf+ep forebay`"
    )]
    ExcludeRight(String),
    /// The kernel cannot keep frames from the host's stack.
    #[error(
        "cannot keep the frames of '{name}' from the host's stack: {source}; allowed is `host: true` with an interface \
         without addresses in the host, and `sysctl net.ipv4.conf.{name}.arp_ignore=1`"
    )]
    Exclude {
        /// The interface.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error("the network namespace {0} needs the right CAP_SYS_ADMIN to be entered: run as root")]
    NamespaceRight(PathBuf),
    /// The namespace is not there.
    #[error("no network namespace at {path}: {source} (`ip netns add NAME` makes /run/netns/NAME)")]
    Namespace {
        /// Where it should be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another port has it.
    #[error(
        "the interface '{name}' is in use by the port '{port}': while packets run only a port of that name takes it over"
    )]
    Taken {
        /// The interface.
        name: String,
        /// The port.
        port: String,
    },
    /// There is none of that name.
    #[error("there is no interface '{0}': `ip link` lists those that there are")]
    Missing(String),
    /// It was not brought up.
    #[error("the interface '{0}' is down: `ip link set {0} up`")]
    Down(String),
    /// Its frames are something else.
    #[error("the interface '{0}' is no Ethernet interface")]
    NotEthernet(String),
    /// Frames do not fit into packet memory.
    #[error(
        "the interface '{name}' has an MTU of {mtu} bytes, and frames of {frame}; a packet holds {holds}: {}`ip link \
         set {name} mtu {fits}`",
        if *frame > MAX_FRAME { String::new() } else { format!("write `pool: {{ frame: {frame} }}`, or ") }
    )]
    TooLong {
        /// The interface.
        name: String,
        /// Its MTU.
        mtu: usize,
        /// The frames that go with it.
        frame: usize,
        /// What a packet holds.
        holds: usize,
        /// The MTU that would do.
        fits: usize,
    },
    /// Anything else.
    #[error("cannot {doing} for '{name}': {source}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// The interface.
        name: String,
        /// What the system said.
        source: io::Error,
    },
}

impl OpenError {
    fn of(name: &InterfaceName, doing: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Right(name.to_string()),
            _ => Self::System { doing, name: name.to_string(), source },
        }
    }

    fn exclude(name: &InterfaceName) -> impl Fn(io::Error) -> Self {
        move |source| match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::ExcludeRight(name.to_string()),
            _ => Self::Exclude { name: name.to_string(), source },
        }
    }

    fn parameter(&self) -> &'static str {
        match self {
            Self::NamespaceRight(_) | Self::Namespace { .. } => "namespace",
            Self::ExcludeRight(_) | Self::Exclude { .. } => "host",
            _ => "interface",
        }
    }
}

/// What receives: shared by a port and the one that is opened anew in its place while packets run, so that frames in the ring
/// are not lost.
struct Intakes {
    /// Of rings of another size, until they are empty: what was received before.
    former: VecDeque<(Receiver, Ticks)>,
    current: Receiver,
}

type Shared = Mutex<Intakes>;

/// A port to an interface of the host.
pub struct AfPacket {
    /// Gone once it is closed.
    shared: Option<Arc<Shared>>,
    /// What is to receive from now on, where the ring has another size than that of the port before.
    fresh: Option<Receiver>,
    /// Whether it has been asked for packets.
    receives: bool,
    /// Whether it has been asked to send.
    sends: bool,
    sender: Sender,
    watch: Watch,
    /// Keeps the frames from the host's stack.
    excluded: Option<Arc<Excluded>>,
    /// Why the host's stack gets the frames nevertheless, since the interface was made again.
    not_excluded: Option<String>,
    stamps: Stamps,
    promiscuous: bool,
    poll: Ticks,
    /// How long the kernel goes on filling a block, of this ring or of the one before.
    retire: Ticks,
    look_every: Ticks,
    look_at: Ticks,
    /// Packets that could not be sent, while a batch is.
    refused: Batch,
    counters: Arc<PortCounters>,
}

impl AfPacket {
    /// Begins to receive, as the first port or in place of the one before.
    #[cold]
    fn start(&mut self, now: Ticks) {
        self.receives = true;
        let index = self.watch.last().map(|state| state.index);
        let Some(shared) = &self.shared else { return };
        let mut intakes = lock(shared);
        let mut failed = false;
        let former = self.fresh.take().map(|fresh| std::mem::replace(&mut intakes.current, fresh));
        if let Some(index) = index {
            failed |= intakes.current.bind(index, self.promiscuous).is_err();
        }
        if let Some(former) = former {
            // Only now: a frame that comes in between is in both rings, but none is in neither.
            failed |= former.silence().is_err();
            // The kernel hands the last block over when its time has come, and it is read then.
            intakes.former.push_back((former, now + self.retire + self.retire + self.retire));
        }
        self.counters.errors.add(failed.into());
        self.watch.note(Found::default(), &self.counters.link);
        drop(intakes);
        self.look_at = now + self.look_every;
    }

    /// Asks the kernel how the interface is, and what was lost.
    #[cold]
    #[inline(never)]
    fn look(&mut self, now: Ticks) {
        self.look_at = now + self.look_every;
        self.stamps.set();
        let Some(shared) = &self.shared else { return };
        // Nobody else has it for long: a port that was here before is closed.
        let mut intakes = lock(shared);
        let intakes = self.receives.then_some(&mut intakes.current);
        let cut_off = intakes.as_ref().is_some_and(|receiver| receiver.was_cut_off());
        let found = self.watch.look(cut_off);
        self.counters.errors.add(found.is_new_trouble.into());
        self.watch.note(found, &self.counters.link);
        // At each look: a failure is tried again.
        if let (Some(excluded), Some(state)) = (&self.excluded, self.watch.last()) {
            let error = excluded.follow(state.index).err().map(OpenError::exclude(self.watch.name()));
            self.counters.errors.add((error.is_some() && self.not_excluded.is_none()).into());
            self.not_excluded = error.map(|error| format!("since the interface was made again: {error}"));
        }
        if let Some(state) = found.bind {
            self.sender.set_mtu(state.mtu);
            // What fails now, the interface having gone again, is seen at the next look.
            let _ = self.sender.bind(state.index);
        }
        if let Some(receiver) = intakes {
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
        if intake.now >= self.look_at {
            self.look(intake.now);
        }
        let Some(shared) = &self.shared else { return Ready::Never };
        // Nobody else wants it but a port that this one has replaced, once, when it is closed.
        let mut intakes = match shared.try_lock() {
            Ok(intakes) => intakes,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ready::At(intake.now + self.poll),
        };
        if let Some((former, until)) = intakes.former.front_mut() {
            // In order: what came later is behind it.
            let more = former.fill(batch, intake, &self.stamps, &self.counters);
            if !more
                && intake.now >= *until
                && let Some((former, _)) = intakes.former.pop_front()
            {
                self.counters.dropped.add(former.end());
            }
            return if more { Ready::Now } else { Ready::At(intake.now + self.poll) };
        }
        let more = intakes.current.fill(batch, intake, &self.stamps, &self.counters);
        if more { Ready::Now } else { Ready::At(intake.now + self.poll) }
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        if self.shared.is_none() {
            return;
        }
        if !self.sends {
            self.sends = true;
            self.watch.note(Found::default(), &self.counters.link);
            self.look_at = if self.receives { self.look_at } else { now + self.look_every };
        }
        if now >= self.look_at {
            self.look(now);
        }
        // Why is seen at the next look.
        let _ = self.sender.send(batch, &mut self.refused, &self.counters);
    }

    fn in_flight(&self) -> usize {
        if self.shared.is_some() { self.sender.in_flight() } else { 0 }
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(shared) = self.shared.take() else { return Ok(()) };
        self.excluded = None;
        // Whoever else has it goes on with what is in the rings. With the last one that is lost.
        if let Some(intakes) = Arc::into_inner(shared) {
            let Intakes { former, current } = intakes.into_inner().unwrap_or_else(PoisonError::into_inner);
            let receivers = former.into_iter().map(|(receiver, _)| receiver).chain([current]);
            self.counters.dropped.add(receivers.map(Receiver::end).sum());
        }
        self.watch.last_fault().or_else(|| self.not_excluded.take()).map_or(Ok(()), Err)
    }
}

/// What one panicked over is whole: it counts frames, and reads memory.
fn lock(shared: &Shared) -> MutexGuard<'_, Intakes> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An interface with the port that has it.
#[derive(Default)]
struct Claim(Mutex<Claimed>);

#[derive(Default)]
struct Claimed {
    /// The port's name.
    owner: String,
    shared: Weak<Shared>,
    excluded: Weak<Excluded>,
}

/// What is made in the interface's own network namespace.
struct Made {
    watch: Watch,
    sender: Sender,
    receiver: Option<Receiver>,
    excluded: Option<Arc<Excluded>>,
}

/// The state that a port takes over with its interface, or that the first port makes.
struct Before {
    takes_over: bool,
    excluded: Option<Arc<Excluded>>,
    place: Option<PathBuf>,
}

impl Made {
    /// Makes sockets; a receiver where `sizes` says that one is needed. Who takes over has run, and finds the interface
    /// as it may be.
    fn here(params: &Params, sizes: Option<&Ring>, frame: usize, before: &Before) -> Result<Self, OpenError> {
        let takes_over = before.takes_over;
        let name = &params.interface;
        let told = |doing| OpenError::of(name, doing);
        let watch = Watch::new(name).map_err(told("look at the interface"))?;
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
        let mtu = state.map_or(USUAL_MTU, |state| state.mtu);
        let mut sender =
            Sender::new(params.send_ring, mtu, params.bypass_queues).map_err(told("make the ring for sending"))?;
        if let Some(state) = state {
            sender.bind(state.index).map_err(told("bind the socket for sending"))?;
        }
        let receiver = sizes.map(Receiver::new).transpose().map_err(told("make the ring for receiving"))?;
        let index = state.map(|state| state.index);
        if let Some(index) = index.filter(|_| before.excluded.is_none()) {
            filter::remove_leftover(index);
        }
        let excluded = match (params.host, &before.excluded) {
            (true, _) => None,
            (false, Some(excluded)) => Some(Arc::clone(excluded)),
            (false, None) => {
                let excluded = Excluded::from(before.place.as_deref(), index).map_err(OpenError::exclude(name))?;
                Some(Arc::new(excluded))
            }
        };
        Ok(Self { watch, sender, receiver, excluded })
    }
}

impl DeclarePort for AfPacket {
    type Params = Params;
    const NAME: &'static str = "af_packet";
    const SUMMARY: &'static str = "an interface of the host, by packet sockets with rings: any interface, any driver";
    const HELP: &'static str = "\
What comes in at the interface enters, and what leaves goes out by it. Frames pass through two rings that are shared with the \
kernel (PACKET_MMAP: TPACKET_V3 to receive): to receive takes no system call, to send takes one a batch. It takes the right \
CAP_NET_RAW, and CAP_SYS_ADMIN where the interface is in another network namespace.

The host's own stack still sees every frame that comes in, and answers what is for its addresses, those of other interfaces \
among them (ARP). With `host: false` it sees none: a program at the interface's ingress drops each frame once packet sockets \
have it. It takes the rights CAP_NET_ADMIN and CAP_BPF, and ends with the process, however that ends (a tcx link). Kernels before \
6.6 have a filter instead (clsact), which stays behind a process that was killed until a port to the interface is opened \
again.

Frames enter whole and right: a VLAN tag that the kernel took out is put back, a checksum that a sender on this host left to its \
interface is completed, and what was to be cut into several frames (TCP and UDP segmentation, or what the kernel has put together) \
is cut. Tunnelled frames of that kind, frames that are longer than the pool's packets or than a block, and what finds the ring \
full are counted as `dropped`. On sending nothing is left to the interface. What it would not take, being down, gone or behind, \
is counted as `refused`; a frame longer than its MTU as `refused` and in `errors`.

The kernel hands frames over by blocks: when one is full, or after `ring.retire`, so that a lone frame waits for 1 ms or two. \
The time of arrival is the kernel's. An interface that goes down, or is deleted and made again under its name, is counted in \
`errors`, and taken up again within 100 ms. One worker has the port, and hands over what is others': the kernel would spread \
sessions by a hash in which the two directions of one differ. Where parameters change while packets run, the ring stays with what \
waits in it, and where its size changes it is emptied first.";
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
        if setup.simulated() {
            return Err(SetupError::new(
                "an af_packet port meets a network whose time is real: it cannot be part of a simulated run",
            ));
        }
        let place = params.namespace.as_deref().map(namespace::path);
        let key = format!("af_packet {place:?} {}", params.interface);
        let claim = setup.lasting(&key, |_| Ok(Claim::default()))?;
        let mut claim = claim.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there = claim.shared.upgrade();
        if there.is_some() && claim.owner != setup.name() {
            let (name, port) = (params.interface.to_string(), claim.owner.clone());
            return Err(SetupError::at("interface", OpenError::Taken { name, port }.to_string()));
        }
        let sizes = there.as_ref().map(|shared| lock(shared).current.sizes());
        let wanted = (sizes != Some(params.ring)).then_some(&params.ring);
        let refused = |path: &Path, source: io::Error| match source.raw_os_error() {
            Some(libc::EPERM) => OpenError::NamespaceRight(path.to_owned()),
            _ => OpenError::Namespace { path: path.to_owned(), source },
        };
        let frame = setup.frame();
        let before = Before { takes_over: there.is_some(), excluded: claim.excluded.upgrade(), place: place.clone() };
        let make = || Made::here(&params, wanted, frame, &before);
        let made = namespace::within(place.as_deref(), make, refused)
            .map_err(|error| SetupError::at(error.parameter(), error.to_string()))?;
        let Made { watch, sender, receiver, excluded } = made;
        let (shared, fresh) = match there {
            Some(shared) => (shared, receiver),
            None => {
                let current = receiver.expect("one was asked for, since there is none");
                (Arc::new(Mutex::new(Intakes { former: VecDeque::new(), current })), None)
            }
        };
        *claim = Claimed {
            owner: setup.name().to_owned(),
            shared: Arc::downgrade(&shared),
            excluded: excluded.as_ref().map(Arc::downgrade).unwrap_or_default(),
        };
        let before = sizes.map_or(0, |sizes| sizes.retire.0);
        let frequency = setup.frequency();
        Ok(Self {
            shared: Some(shared),
            fresh,
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
            look_every: frequency.ticks(LOOK_EVERY),
            look_at: Ticks::NEVER,
            refused: Batch::with_capacity(MAX_BATCH),
            counters,
        })
    }
}

register!(port AfPacket);

#[cfg(test)]
mod tests;
