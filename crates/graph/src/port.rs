//! Where packets enter and leave: what a port is, and what it declares of itself.

mod link;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_measure::Counter;
use forebay_packet::{Batch, Pool};
use forebay_units::Ticks;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use link::{LinkCounters, LinkState};

use crate::function::read_params;
use crate::setup::{Setup, SetupError};

/// When a port may have packets next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// At once.
    Now,
    /// Not before this instant.
    At(Ticks),
    /// When the outside sends some: nobody knows when.
    Input,
    /// Never again: the source is used up.
    Never,
}

/// What a port counts by itself; the engine counts what it receives from and sends to it. One worker writes.
#[derive(Debug, Default)]
pub struct PortCounters {
    /// Packets that entered the worker.
    pub received: Counter,
    /// Packets that left.
    pub sent: Counter,
    /// Packets lost at the port before they entered (ingress queue overrun, longer than a chunk holds).
    pub dropped: Counter,
    /// Things that went wrong: unreadable records, failed writes.
    pub errors: Counter,
    /// Of [`dropped`](Self::dropped), those that have reasons of their own.
    pub skipped: Reasons,
    /// Of [`dropped`](Self::dropped), frames longer than a packet of the pool holds.
    pub oversize: Counter,
    /// The length of the longest of them, in bytes; 0 where it is not known.
    pub longest: Counter,
    /// Frames longer than a block of the port's ring holds.
    pub over_block: Counter,
    /// Its interface, where it has one.
    pub link: LinkCounters,
}

/// The reason under which a port counts frames longer than a packet of the pool holds.
pub const OVERSIZE: &str = "oversize";

/// The reason under which a port counts frames longer than a block of its ring holds.
pub const OVER_BLOCK: &str = "over_block";

impl PortCounters {
    /// Counts a frame that no block of the port's ring holds, and that is dropped.
    #[cold]
    pub fn drop_over_block(&self) {
        self.dropped.add(1);
        self.over_block.add(1);
    }

    /// Counts a frame of `length` bytes that no packet of the pool holds, and that is dropped.
    #[cold]
    pub fn drop_oversize(&self, length: usize) {
        self.dropped.add(1);
        self.oversize.add(1);
        self.longest.set(self.longest.get().max(length as u64));
    }

    /// The packets of [`dropped`](Self::dropped) that have reasons, by reason.
    pub(crate) fn by_reason(&self) -> BTreeMap<String, u64> {
        let mut counts = self.skipped.get();
        let of_length = [(OVERSIZE, self.oversize.get()), (OVER_BLOCK, self.over_block.get())];
        counts.extend(
            of_length.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name.to_owned(), count)),
        );
        counts
    }
}

/// Packets by reason, for reasons that show only while packets are read.
#[derive(Debug, Default)]
pub struct Reasons(Mutex<BTreeMap<String, u64>>);

impl Reasons {
    /// Adds `count` packets. It takes a lock: not for the packet path.
    pub fn add(&self, reason: &str, count: u64) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(reason.to_owned()).or_default() += count;
    }

    /// Every reason with its packets.
    #[must_use]
    pub fn get(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a port is given when it is asked for packets.
pub struct Intake<'a> {
    /// The time, read once for the turn.
    pub now: Ticks,
    /// Where packets come from.
    pub pool: &'a Pool,
    /// The most packets wanted.
    pub most: usize,
}

/// What a source offers by a schedule of its own, whether or not anybody is there to take it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Packets a second, on average.
    pub pps: f64,
    /// How many may come in one burst, and wait, though on average they are carried; 0 where they come one by one.
    pub burst: f64,
}

/// When a source's packets come, where that has no end: for who reckons with them and takes none.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// How they are spread over time.
    pub spread: Spread,
    /// How many may wait to be taken.
    pub queue: usize,
}

/// How packets are spread over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// As many are there as are asked for.
    Saturating,
    /// Evenly.
    Constant {
        /// Packets a second.
        pps: f64,
    },
    /// Independently of each other: exponential gaps.
    Poisson {
        /// Packets a second, on average.
        pps: f64,
    },
    /// Evenly in bursts, by turns with silence.
    OnOff {
        /// Packets a second, on average over both.
        pps: f64,
        /// How long a burst lasts, in seconds.
        on_s: f64,
        /// How long nothing comes after it, in seconds.
        off_s: f64,
    },
}

/// A source and sink of packets. Either direction may be missing.
pub trait Port: Send {
    /// Adds up to `intake.most` packets that have arrived to `batch`, which is empty and has room for them, each with
    /// its bytes and arrival time. Returns when to ask again.
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready;

    /// Takes packets that leave. What it leaves in `batch` could not be sent, and is dropped and counted as
    /// `refused`.
    fn send(&mut self, batch: &mut Batch, now: Ticks);

    /// From now on packets are there whenever they are asked for, whatever schedule they had: for who asks what a busy
    /// worker costs. A port of the outside's packets, which come when they come, leaves it be.
    fn saturate(&mut self) {}

    /// Packets given to a kernel or device that it has not finished with.
    fn in_flight(&self) -> usize {
        0
    }

    /// What it offers as it is configured, where that has no end and its rate [can be set](Self::set_offer).
    fn offer(&self) -> Option<Offer> {
        None
    }

    /// When its packets come as it is configured, where it knows and that has no end.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// Offers so many times its configured rate from now on, in a schedule that begins anew; with 0, nothing but what has
    /// arrived already. Whether it can: others go on as they do.
    fn set_offer(&mut self, factor: f64) -> bool {
        let _ = factor;
        false
    }

    /// Whether it has no last packet.
    fn is_endless(&self) -> bool {
        true
    }

    /// Called once when the worker ends: writes out what is buffered.
    ///
    /// # Errors
    /// What went wrong with the port, now or earlier, in words for its user.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// What a port says of itself.
pub trait DeclarePort: Port + Sized + 'static {
    /// The parameters as they stand in the configuration; their documentation comments are the help text.
    type Params: DeserializeOwned + JsonSchema;
    /// The port's one name.
    const NAME: &'static str;
    /// One line on what it is.
    const SUMMARY: &'static str;
    /// What more a user needs to know.
    const HELP: &'static str;
    /// The parameters of a working example, in YAML.
    const EXAMPLE: &'static str;
    /// Whether the port can be open on several workers at once, each with its [share](Setup::share) of the sessions that
    /// enter, as a device with several queues is.
    const QUEUES: bool = false;

    /// Whether packets enter by it, with these parameters.
    fn receives(params: &Self::Params) -> bool;
    /// Whether packets leave by it, with these parameters.
    fn sends(params: &Self::Params) -> bool;

    /// Whether packets that would enter stay where they are until the worker takes them: those of a file that is read
    /// as fast as they are taken.
    fn waits(params: &Self::Params) -> bool {
        let _ = params;
        false
    }

    /// Looks at what of the parameters can be told without opening or making anything, and says which files would be used
    /// ([`Setup::claim`]): for who checks a configuration, and before the port is made.
    ///
    /// # Errors
    /// A parameter that makes no sense, named.
    fn check(params: &Self::Params, setup: &mut Setup<'_>) -> Result<(), SetupError> {
        let _ = (params, setup);
        Ok(())
    }

    /// Makes the port, of parameters that have been [checked](Self::check). `counters` are the port's own, shared with whoever shows them.
    ///
    /// # Errors
    /// A parameter that makes no sense or a resource that cannot be had, named.
    fn new(params: Self::Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError>;
}

/// A port that has been made, and which ways packets go through it.
pub struct OpenPort {
    /// The port.
    pub port: Box<dyn Port>,
    /// Its counters.
    pub counters: Arc<PortCounters>,
    /// Whether packets enter by it.
    pub receives: bool,
    /// Whether packets leave by it.
    pub sends: bool,
}

/// Whether packets enter and leave by a port with these parameters, which make sense.
type Check = fn(&Value, &mut Setup<'_>) -> Result<(bool, bool), SetupError>;

/// A registered kind of port.
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
    /// The declaration of a kind of port.
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

    /// Reads the parameters without opening anything: whether packets would enter and leave by the port.
    ///
    /// # Errors
    /// A parameter that is not there, not known or makes no sense, by its path within the parameters.
    pub fn check(&self, params: &Value, setup: &mut Setup<'_>) -> Result<(bool, bool), SetupError> {
        (self.check)(params, setup)
    }

    /// Whether packets that would enter wait for the worker ([`DeclarePort::waits`]).
    #[must_use]
    pub fn waits(&self, params: &Value) -> bool {
        (self.waits)(params)
    }

    /// Opens a port.
    ///
    /// # Errors
    /// As [`check`](Self::check), or a resource that cannot be had.
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

/// All registered kinds of port, by name.
#[must_use]
pub fn ports() -> Vec<&'static PortDeclaration> {
    let mut all: Vec<_> = inventory::iter::<PortDeclaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}
