//! The [`Function`] trait, and the declaration that registers a function by name.
//!
//! A function lives in one file: its parameters, its code, and one [`register!`](crate::register) line. No central list
//! names the functions, so a crate outside this workspace can add more.

use std::any::Any;
use std::fmt;

use forebay_packet::Packet;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::Context;
use crate::effect::Effect;
use crate::parameters::read_params;
use crate::setup::{Setup, SetupError};

/// A network function: processes packets in batches.
pub trait Function: Any + Send {
    /// Processes a batch. Changes packets in place, and selects a gate for each packet through the context. The batch
    /// is a slice, because packets are added and removed only through the context. So a function cannot lose a packet.
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>);

    /// Called at the instant that the function requested with [`Context::wake_at`] or [`Context::look_at`]. Releases
    /// packets that are due, and removes state that has expired.
    fn wake(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// Returns whether the worker wakes the function once at its start, before the first packet. A function that sends
    /// packets without receiving any needs this.
    fn begins(&self) -> bool {
        false
    }

    /// Called once when the worker ends, or when a reload removes or replaces the function. Writes out buffered data.
    /// The function is not called after that.
    ///
    /// # Errors
    /// A text for the user about anything that went wrong, now or earlier.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// Returns the effect of the function on this packet, as a value that can be replayed on later packets of the same
    /// session. `None` if the effect cannot be known in advance. Implemented if [`Declare::EFFECT`] is set.
    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        let _ = packet;
        None
    }
}

/// How a function's state is shared. From this the compiler derives how the function may be replicated over workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// No state, or counters only.
    None,
    /// A table that workers read while packets run. Only the control plane changes it.
    SharedReadOnly,
    /// Entries that belong to one session. They are private to the worker that owns the session.
    PerSession,
    /// State that every packet may change. One worker must own it.
    Global,
}

/// Why a function drops, creates or consumes packets: the reason's name in counters, and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// `snake_case`, unique within the function.
    pub name: &'static str,
    /// One sentence for the documentation.
    pub help: &'static str,
}

/// The static description of a function. The reason numbers of [`Gate::drop`](crate::Gate::drop),
/// [`Gate::consume`](crate::Gate::consume) and [`Context::create`] are indices into the arrays of reasons.
pub trait Declare: Function + Sized + 'static {
    /// The parameters in the form of the configuration. Their doc comments are the help text. The type must refuse
    /// unknown keys (`#[serde(deny_unknown_fields)]`).
    type Params: DeserializeOwned + JsonSchema;

    /// The function's only name, in configurations, counters, errors and documentation.
    const NAME: &'static str;
    /// One line that says what the function does.
    const SUMMARY: &'static str;
    /// Further help for the user: semantics, gates, sources.
    const HELP: &'static str;
    /// The parameters of a working example, in YAML.
    const EXAMPLE: &'static str;
    /// The parameters, in YAML, of a `generator` whose packets pass through the example. The example is measured with
    /// this traffic.
    const TRAFFIC: &'static str = "{}";
    /// The reasons for which the function drops packets.
    const DROPS: &'static [Reason] = &[];
    /// The reasons for which the function creates packets.
    const CREATES: &'static [Reason] = &[];
    /// The reasons for which the function consumes packets.
    const CONSUMES: &'static [Reason] = &[];
    /// Names of the metadata words that the function reads.
    const READS: &'static [&'static str] = &[];
    /// Names of the metadata words that the function writes.
    const WRITES: &'static [&'static str] = &[];
    /// How the function's state is shared.
    const STATE: StateKind;
    /// JSON pointer (RFC 6901) to the parameter that names a shared state. The function looks up sessions of that state
    /// and never opens one. A module with the parameter runs on the workers of the modules that open the sessions.
    const FOLLOWS: Option<&'static str> = None;
    /// Folds the functions of several modules into one function. The folded function does the same to each packet as
    /// the function of the packet's branch ([`Context::branches`]) would do. It may drop packets, but it must not
    /// create, hold or consume packets, and it must not request a wake-up. `None`: the function cannot be folded.
    const FOLD: Option<Fold<Self>> = None;
    /// Whether [`Function::effect`] is implemented.
    const EFFECT: bool = false;

    /// Creates the function.
    ///
    /// # Errors
    /// An invalid parameter, with its name.
    fn new(params: Self::Params, setup: &mut Setup<'_>) -> Result<Self, SetupError>;
}

/// The type of [`Declare::FOLD`].
pub type Fold<F> = fn(Vec<F>) -> Box<dyn Function>;

type Build = fn(&Value, &mut Setup<'_>) -> Result<Box<dyn Function>, SetupError>;
type FoldAny = fn(Vec<Box<dyn Function>>) -> Result<Box<dyn Function>, NoFold>;

/// A registered function.
pub struct Declaration {
    /// [`Declare::NAME`].
    pub name: &'static str,
    /// [`Declare::SUMMARY`].
    pub summary: &'static str,
    /// [`Declare::HELP`].
    pub help: &'static str,
    /// [`Declare::EXAMPLE`].
    pub example: &'static str,
    /// [`Declare::TRAFFIC`].
    pub traffic: &'static str,
    /// [`Declare::DROPS`].
    pub drops: &'static [Reason],
    /// [`Declare::CREATES`].
    pub creates: &'static [Reason],
    /// [`Declare::CONSUMES`].
    pub consumes: &'static [Reason],
    /// [`Declare::READS`].
    pub reads: &'static [&'static str],
    /// [`Declare::WRITES`].
    pub writes: &'static [&'static str],
    /// [`Declare::STATE`].
    pub state: StateKind,
    /// [`Declare::FOLLOWS`].
    pub follows: Option<&'static str>,
    /// [`Declare::EFFECT`].
    pub effect: bool,
    /// Whether branches with equal functions can be folded ([`Declare::FOLD`]).
    pub folds: bool,
    /// The parameters' JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    build: Build,
    fold: FoldAny,
}

/// The functions cannot be folded into one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the functions cannot be folded: allowed are one or more functions of one type that supports folding")]
pub struct NoFold;

impl Declaration {
    /// Returns the declaration of a function type.
    #[must_use]
    pub const fn of<F: Declare>() -> Self {
        Self {
            name: F::NAME,
            summary: F::SUMMARY,
            help: F::HELP,
            example: F::EXAMPLE,
            traffic: F::TRAFFIC,
            drops: F::DROPS,
            creates: F::CREATES,
            consumes: F::CONSUMES,
            reads: F::READS,
            writes: F::WRITES,
            state: F::STATE,
            follows: F::FOLLOWS,
            effect: F::EFFECT,
            folds: F::FOLD.is_some(),
            schema: |generator| generator.subschema_for::<F::Params>(),
            build: |params, setup| Ok(Box::new(F::new(read_params(params)?, setup)?)),
            fold: |functions| {
                let own = |function: Box<dyn Function>| (function as Box<dyn Any>).downcast().map(|own: Box<F>| *own);
                let own: Vec<F> = functions.into_iter().map(own).collect::<Result<_, _>>().map_err(|_| NoFold)?;
                if own.is_empty() { Err(NoFold) } else { Ok(F::FOLD.ok_or(NoFold)?(own)) }
            },
        }
    }

    /// Creates the function from its parameters in the form of the configuration.
    ///
    /// # Errors
    /// A missing, unknown or invalid parameter, with its path within the parameters.
    pub fn build(&self, params: &Value, setup: &mut Setup<'_>) -> Result<Box<dyn Function>, SetupError> {
        (self.build)(params, setup)
    }

    /// Returns the name of the state whose sessions a module with these parameters looks up. `None` if the parameters
    /// name no state ([`Declare::FOLLOWS`]).
    #[must_use]
    pub fn followed<'p>(&self, params: &'p Value) -> Option<&'p str> {
        params.pointer(self.follows?)?.as_str()
    }

    /// Returns whether a module with these parameters must run on the worker that owns the packet's session.
    #[must_use]
    pub fn is_keyed(&self, params: &Value) -> bool {
        self.state == StateKind::PerSession || self.followed(params).is_some()
    }

    /// Folds several functions that this declaration [built](Self::build) into one ([`Declare::FOLD`]).
    ///
    /// # Errors
    /// [`NoFold`] if the functions cannot be folded.
    pub fn fold(&self, functions: Vec<Box<dyn Function>>) -> Result<Box<dyn Function>, NoFold> {
        (self.fold)(functions)
    }
}

impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Declaration({})", self.name)
    }
}

inventory::collect!(Declaration);

/// Returns all registered functions, sorted by name.
#[must_use]
pub fn functions() -> Vec<&'static Declaration> {
    let mut all: Vec<_> = inventory::iter::<Declaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}

/// Registers a function, port, state or controller type: `register!(MacRewrite)`, `register!(port Generator)`,
/// `register!(state StaticMappings)`, `register!(controller Optimal)`.
#[macro_export]
macro_rules! register {
    (port $port:ty) => {
        $crate::inventory::submit! { $crate::PortDeclaration::of::<$port>() }
    };
    (state $state:ty) => {
        $crate::inventory::submit! { $crate::StateDeclaration::of::<$state>() }
    };
    (controller $controller:ty) => {
        $crate::inventory::submit! { $crate::ControllerDeclaration::of::<$controller>() }
    };
    ($function:ty) => {
        $crate::inventory::submit! { $crate::Declaration::of::<$function>() }
    };
}
