//! Ports, by which packets enter and leave, and the declarations that register them.

mod link;
mod schedule;

use std::collections::BTreeMap;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_measure::Counter;
use forebay_packet::{Batch, Pool};
use forebay_units::Ticks;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use link::{LinkCounters, LinkState};
pub use schedule::{Offer, Pace, ScheduledSource, Spread};

use crate::parameters::read_params;
use crate::setup::{Setup, SetupError};

/// When a port may have packets next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// At once.
    Now,
    /// Not before this instant.
    At(Ticks),
    /// When packets arrive from outside, at an unknown time. A worker that polls, instead of waiting for packets, need
    /// not call the port before this instant.
    Input(Ticks),
    /// Never again: the source is used up.
    Never,
}

/// The descriptors by which a parked worker learns that a port has packets.
#[derive(Debug)]
pub enum Waits<'p> {
    /// Each of these becomes readable (`poll(2)`) when packets arrive.
    On(Vec<BorrowedFd<'p>>),
    /// The port has no descriptor. Either it never returns [`Ready::Input`], or only a call of
    /// [`receive`](Port::receive) finds its packets. In the second case the worker does not park.
    None,
}

/// The counters of a port. The engine writes `received` and `sent`, and the port writes the others. Only the port's
/// worker writes them.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Packets that entered the worker.
    pub received: Counter,
    /// Packets that left the worker.
    pub sent: Counter,
    /// Packets lost at the port before they entered: the ingress queue was full, or the frame was longer than a chunk.
    pub dropped: Counter,
    /// Errors: unreadable records, failed writes.
    pub errors: Counter,
    /// The packets in [`dropped`](Self::dropped) for which the port gives a reason of its own, by reason.
    pub skipped: Reasons,
    /// The packets in [`dropped`](Self::dropped) whose frames were longer than a packet of the pool holds.
    pub oversize: Counter,
    /// The length of the longest frame in [`oversize`](Self::oversize), in bytes. 0 if unknown.
    pub longest: Counter,
    /// The packets in [`dropped`](Self::dropped) whose frames were longer than a block of the port's ring.
    pub over_block: Counter,
    /// The state and counters of the port's network interface. They keep their initial values if the port has no
    /// interface.
    pub link: LinkCounters,
}

/// The reason under which a port counts frames longer than a packet of the pool holds.
pub const OVERSIZE: &str = "oversize";

/// The reason under which a port counts frames longer than a block of its ring.
pub const OVER_BLOCK: &str = "over_block";

impl PortCounters {
    /// Counts a dropped frame that does not fit a block of the port's ring.
    #[cold]
    pub fn drop_over_block(&self) {
        self.dropped.add(1);
        self.over_block.add(1);
    }

    /// Counts a dropped frame of `length` bytes that does not fit a packet of the pool.
    #[cold]
    pub fn drop_oversize(&self, length: usize) {
        self.dropped.add(1);
        self.oversize.add(1);
        self.longest.set(self.longest.get().max(length as u64));
    }

    /// Returns the packets of [`dropped`](Self::dropped) that have reasons, by reason.
    pub(crate) fn by_reason(&self) -> BTreeMap<String, u64> {
        let mut counts = self.skipped.get();
        let of_length = [(OVERSIZE, self.oversize.get()), (OVER_BLOCK, self.over_block.get())];
        counts.extend(
            of_length.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)),
        );
        counts
    }
}

/// Packets by reason, for reasons that are found only while packets are read.
#[derive(Debug, Default)]
pub struct Reasons(Mutex<BTreeMap<String, u64>>);

impl Reasons {
    /// Adds `count` packets. It takes a lock, so it is not for the packet path.
    pub fn add(&self, reason: &str, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(reason.to_owned()).or_default() += count;
    }

    /// Returns the number of packets of each reason.
    #[must_use]
    pub fn get(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The arguments of a request for packets.
pub struct Intake<'a> {
    /// The time, read once for the turn.
    pub now: Ticks,
    /// The pool from which the port takes empty packets.
    pub pool: &'a Pool,
    /// The largest number of packets to return.
    pub most: usize,
}

/// A source and sink of packets. Either direction may be missing.
pub trait Port: Send {
    /// Adds up to `intake.most` arrived packets to `batch`, each with its bytes and arrival time. The batch is empty
    /// and has room for them. Returns when to request packets again.
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready;

    /// Returns the descriptors on which a worker can wait when the port has returned [`Ready::Input`].
    fn wait_on(&self) -> Waits<'_>;

    /// Sends packets. Packets that it leaves in `batch` could not be sent; the worker drops them and counts them as
    /// `refused`.
    fn send(&mut self, batch: &mut Batch, now: Ticks);

    /// Returns the number of packets that were sent, but that a kernel or device still uses.
    fn in_flight(&self) -> usize {
        0
    }

    /// Returns the port's schedule, if its packets have one. The packets of a device or of another program have none.
    fn schedule(&mut self) -> Option<&mut dyn ScheduledSource> {
        None
    }

    /// Returns whether the source never ends. If the source has an end, and the run ends before the source does,
    /// the report says that packets were not read.
    fn is_endless(&self) -> bool {
        true
    }

    /// Called once when the worker ends, or when a reload removes or replaces the port. Writes out buffered data.
    ///
    /// # Errors
    /// A text for the user about anything that went wrong with the port, now or earlier.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The static description of a port type.
pub trait DeclarePort: Port + Sized + 'static {
    /// The parameters in the form of the configuration. Their doc comments are the help text.
    type Params: DeserializeOwned + JsonSchema;
    /// The only name of the port type.
    const NAME: &'static str;
    /// One line that says what the port is.
    const SUMMARY: &'static str;
    /// Further help for the user.
    const HELP: &'static str;
    /// The parameters of a working example, in YAML.
    const EXAMPLE: &'static str;
    /// Whether several workers can have the port open at once, each with its [share](Setup::share) of the incoming
    /// sessions, like a device with several queues.
    const QUEUES: bool = false;

    /// Returns whether packets enter by the port, with these parameters.
    fn receives(params: &Self::Params) -> bool;
    /// Returns whether packets leave by the port, with these parameters.
    fn sends(params: &Self::Params) -> bool;

    /// Returns whether incoming packets wait outside until the worker takes them. This is so for a file that is read as
    /// fast as the worker takes packets.
    fn waits(params: &Self::Params) -> bool {
        let _ = params;
        false
    }

    /// Checks those parameters that can be checked without opening or creating anything, and claims the files that the
    /// port would use ([`Setup::claim`]). Runs when a configuration is checked, and before the port is created.
    ///
    /// # Errors
    /// An invalid parameter, with its name.
    fn check(params: &Self::Params, setup: &mut Setup<'_>) -> Result<(), SetupError> {
        let _ = (params, setup);
        Ok(())
    }

    /// Creates the port from parameters that have been [checked](Self::check). The port writes its `counters`, and
    /// reports read them.
    ///
    /// # Errors
    /// An invalid parameter or an unavailable resource, with its name.
    fn new(params: Self::Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError>;
}

/// An open port, and the directions in which packets pass it.
pub struct OpenPort {
    /// The port.
    pub port: Box<dyn Port>,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// Whether packets enter by the port.
    pub receives: bool,
    /// Whether packets leave by the port.
    pub sends: bool,
}

/// Checks parameters. Returns whether packets enter and whether packets leave by the port.
type Check = fn(&Value, &mut Setup<'_>) -> Result<(bool, bool), SetupError>;

/// A registered port type.
pub struct PortDeclaration {
    /// [`DeclarePort::NAME`].
    pub name: &'static str,
    /// [`DeclarePort::SUMMARY`].
    pub summary: &'static str,
    /// [`DeclarePort::HELP`].
    pub help: &'static str,
    /// [`DeclarePort::EXAMPLE`].
    pub example: &'static str,
    /// [`DeclarePort::QUEUES`].
    pub queues: bool,
    /// The parameters' JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    waits: fn(&Value) -> bool,
    check: Check,
    open: fn(&Value, &mut Setup<'_>) -> Result<OpenPort, SetupError>,
}

impl PortDeclaration {
    /// Returns the declaration of a port type.
    #[must_use]
    pub const fn of<P: DeclarePort>() -> Self {
        Self {
            name: P::NAME,
            summary: P::SUMMARY,
            help: P::HELP,
            example: P::EXAMPLE,
            queues: P::QUEUES,
            schema: |generator| generator.subschema_for::<P::Params>(),
            waits: |params| read_params(params).is_ok_and(|params| P::waits(&params)),
            check: |params, setup| {
                let params: P::Params = read_params(params)?;
                P::check(&params, setup)?;
                Ok((P::receives(&params), P::sends(&params)))
            },
            open: |params, setup| {
                let params: P::Params = read_params(params)?;
                P::check(&params, setup)?;
                let counters = Arc::new(PortCounters::default());
                let (receives, sends) = (P::receives(&params), P::sends(&params));
                let port = Box::new(P::new(params, setup, Arc::clone(&counters))?);
                Ok(OpenPort { port, counters, receives, sends })
            },
        }
    }

    /// Checks the parameters without opening anything. Returns whether packets enter and whether packets leave by the
    /// port.
    ///
    /// # Errors
    /// A missing, unknown or invalid parameter, with its path within the parameters.
    pub fn check(&self, params: &Value, setup: &mut Setup<'_>) -> Result<(bool, bool), SetupError> {
        (self.check)(params, setup)
    }

    /// Returns whether incoming packets wait for the worker ([`DeclarePort::waits`]).
    #[must_use]
    pub fn waits(&self, params: &Value) -> bool {
        (self.waits)(params)
    }

    /// Opens a port.
    ///
    /// # Errors
    /// Those of [`check`](Self::check), and an unavailable resource.
    pub fn open(&self, params: &Value, setup: &mut Setup<'_>) -> Result<OpenPort, SetupError> {
        (self.open)(params, setup)
    }
}

impl fmt::Debug for PortDeclaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PortDeclaration({})", self.name)
    }
}

inventory::collect!(PortDeclaration);

/// Returns all registered port types, sorted by name.
#[must_use]
pub fn ports() -> Vec<&'static PortDeclaration> {
    let mut all: Vec<_> = inventory::iter::<PortDeclaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}
