//! What a network function is, and what it declares of itself.
//!
//! A function lives in one file: its parameters, its code, and one [`register!`](crate::register) line that makes it known by name. Nothing
//! else lists functions, so that a crate outside this workspace can add some.

use std::any::Any;
use std::fmt;

use forebay_packet::Packet;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::context::Context;
use crate::effect::Effect;
use crate::setup::{Setup, SetupError};

/// Code that processes batches.
pub trait Function: Any + Send {
    /// Processes a batch: changes packets in place, and puts each on a gate through the context. A slice, because packets
    /// come and go through the context alone: so none is lost.
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>);

    /// Called at the instant that the function asked for ([`Context::wake_at`]): releases packets that are due, ages
    /// state.
    fn wake(&mut self, context: &mut Context<'_>) {
        let _ = context;
    }

    /// Whether the function is to be woken once when it begins, before it has seen a packet: it has something to say.
    fn begins(&self) -> bool {
        false
    }

    /// Called once when the worker ends: writes out what is buffered.
    ///
    /// # Errors
    /// What went wrong, now or earlier, in words for the user.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }

    /// What the function would do to this packet, as a value that can be replayed on later packets of the same
    /// session. `None` where it cannot be said in advance. Implemented where [`Declare::EFFECT`] is set.
    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        let _ = packet;
        None
    }
}

/// How a function's state is shared: it tells the compiler how the function may be replicated over workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateKind {
    /// None, or counters only.
    None,
    /// A table that is read while packets run and changed by nobody but the control plane.
    SharedReadOnly,
    /// Entries that belong to one session: private to the worker that owns the session.
    PerSession,
    /// State that every packet may change: one worker must own it.
    Global,
}

/// Why packets are dropped, created or consumed: its name in counters and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reason {
    /// `snake_case`, unique within the function.
    pub name: &'static str,
    /// One sentence for the documentation.
    pub help: &'static str,
}

/// What a function says of itself. Its numbers for [`Gate::drop`](crate::Gate::drop) and the like are positions in
/// the arrays of reasons.
pub trait Declare: Function + Sized + 'static {
    /// The parameters as they stand in the configuration. Their documentation comments are the help text; unknown
    /// keys must be refused (`#[serde(deny_unknown_fields)]`).
    type Params: DeserializeOwned + JsonSchema;

    /// The function's one name: in configurations, counters, errors and documentation.
    const NAME: &'static str;
    /// One line on what it does.
    const SUMMARY: &'static str;
    /// What more a user needs to know: semantics, gates, sources.
    const HELP: &'static str;
    /// The parameters of a working example, in YAML.
    const EXAMPLE: &'static str;
    /// The parameters of a `generator` whose packets take the example's way, in YAML: what the example is counted with.
    const TRAFFIC: &'static str = "{}";
    /// The reasons for which it drops.
    const DROPS: &'static [Reason] = &[];
    /// The reasons for which it creates packets.
    const CREATES: &'static [Reason] = &[];
    /// The reasons for which packets end in it.
    const CONSUMES: &'static [Reason] = &[];
    /// Names of the metadata words it reads.
    const READS: &'static [&'static str] = &[];
    /// Names of the metadata words it writes.
    const WRITES: &'static [&'static str] = &[];
    /// How its state is shared.
    const STATE: StateKind;
    /// The parameter that names a state whose sessions it looks up and never opens, as a JSON pointer (RFC 6901). A
    /// module with it runs on the workers of the modules that open them.
    const FOLLOWS: Option<&'static str> = None;
    /// Makes one function out of those of several modules, which do to each packet what the function of its branch
    /// ([`Context::branches`]) would do; drops but neither creates, holds nor consumes, and asks for no wake-up.
    const FOLD: Option<Fold<Self>> = None;
    /// Whether [`Function::effect`] is implemented.
    const EFFECT: bool = false;

    /// Makes the function.
    ///
    /// # Errors
    /// A parameter that makes no sense, named.
    fn new(params: Self::Params, setup: &mut Setup<'_>) -> Result<Self, SetupError>;
}

/// See [`Declare::FOLD`].
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
    /// Whether equal branches of it can become one.
    pub folds: bool,
    /// The parameters' JSON Schema.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    build: Build,
    fold: FoldAny,
}

/// Functions that cannot run as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the functions are none, not of one type, or of one that does not fold")]
pub struct NoFold;

impl Declaration {
    /// The declaration of a function type.
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

    /// Makes the function from its parameters as they stand in a configuration.
    ///
    /// # Errors
    /// A parameter that is not there, not known or makes no sense, by its path within the parameters.
    pub fn build(&self, params: &Value, setup: &mut Setup<'_>) -> Result<Box<dyn Function>, SetupError> {
        (self.build)(params, setup)
    }

    /// The state whose sessions a module with these parameters looks up, where it names one ([`Declare::FOLLOWS`]).
    #[must_use]
    pub fn followed<'p>(&self, params: &'p Value) -> Option<&'p str> {
        params.pointer(self.follows?)?.as_str()
    }

    /// Whether a module with these parameters must run on the worker that has the packet's session.
    #[must_use]
    pub fn is_keyed(&self, params: &Value) -> bool {
        self.state == StateKind::PerSession || self.followed(params).is_some()
    }

    /// Makes one function of several that this declaration [built](Self::build) ([`Declare::FOLD`]).
    ///
    /// # Errors
    /// [`NoFold`].
    pub fn fold(&self, functions: Vec<Box<dyn Function>>) -> Result<Box<dyn Function>, NoFold> {
        (self.fold)(functions)
    }
}

impl fmt::Debug for Declaration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Declaration({})", self.name)
    }
}

/// Reads parameters, naming the one that is wrong. A function without any may be written without.
pub(crate) fn read_params<P: DeserializeOwned>(params: &Value) -> Result<P, SetupError> {
    let none = Value::Object(serde_json::Map::new());
    let params = if params.is_null() { &none } else { params };
    serde_path_to_error::deserialize(params)
        .map_err(|error| SetupError::at(error.path().to_string(), in_words(&error.into_inner().to_string())))
}

/// What a generated reader says of a number that its type cannot hold, with what is allowed. Other messages stay as they are.
#[must_use]
pub fn in_words(message: &str) -> String {
    let (value, of) = ["invalid value: integer `", "invalid type: floating point `"]
        .iter()
        .find_map(|start| message.strip_prefix(start)?.split_once("`, expected "))
        .unwrap_or_default();
    let range = match of.split(' ').next().unwrap_or_default() {
        "u8" => "0 to 255",
        "u16" => "0 to 65535",
        "u32" => "0 to 4294967295",
        "u64" | "usize" => "0 to 18446744073709551615",
        "i8" => "-128 to 127",
        "i16" => "-32768 to 32767",
        "i32" => "-2147483648 to 2147483647",
        "i64" | "isize" => "-9223372036854775808 to 9223372036854775807",
        _ => return message.to_owned(),
    };
    format!("'{value}' is not allowed: allowed is a whole number from {range}, in digits alone")
}

inventory::collect!(Declaration);

/// All registered functions, by name.
#[must_use]
pub fn functions() -> Vec<&'static Declaration> {
    let mut all: Vec<_> = inventory::iter::<Declaration>.into_iter().collect();
    all.sort_by_key(|declaration| declaration.name);
    all
}

/// Makes a function, port, state or controller type known by its name: `register!(MacRewrite)`, `register!(port Generator)`,
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
