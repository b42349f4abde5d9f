//! Modules, gates, buffers, schedulers, workers and telemetry: the engine.

#![deny(unsafe_code)]

mod context;
mod controller;
pub mod drive;
pub mod effect;
pub mod files;
mod flow;
mod fold;
mod function;
mod gate;
mod input;
mod layout;
mod links;
mod live;
mod meter;
mod names;
mod observer;
mod own;
mod own_counters;
mod parameters;
mod placement;
mod plan;
mod port;
pub mod report;
mod rig;
#[allow(unsafe_code, reason = "two threads share the slots")]
pub mod ring;
mod sampler;
mod scheduler;
mod setup;
mod shelf;
mod sync;
mod table;
mod team;
pub mod telemetry;
mod wake;
mod worker;

pub use context::Context;
pub use controller::{Controller, ControllerDeclaration, DeclareController, controllers};
pub use effect::Effect;
pub use files::Files;
pub use flow::FlowError;
pub use fold::{Branches, PerBranch, Places};
pub use forebay_units::secret;
pub use forebay_units::text::{on_one_line, short};
pub use function::{Declaration, Declare, Fold, Function, NoFold, Reason, StateKind, functions};
pub use gate::{Decision, Gate, MAX_GATES};
pub use inventory;
pub use links::{Links, links};
pub use live::{Live, Read, Reader, Replay};
pub use meter::Meter;
pub use names::{allowed_names, existing_names, known_names, listed, nearest};
pub use observer::{DropSite, Observer, Visit};
pub use own::{Lent, Own};
pub use own_counters::OwnCounters;
pub use parameters::unreadable;
pub use placement::{Origin, Placement, share};
pub use plan::{FlowPlan, Module, Plan, PortPlan, Step, Target};
pub use port::{
    DeclarePort, Intake, LinkCounters, LinkState, OVER_BLOCK, OVERSIZE, Offer, OpenPort, Pace, Port, PortCounters,
    PortDeclaration, Ready, Reasons, ScheduledSource, Spread, Waits, ports,
};
pub use rig::Rig;
pub use sampler::Sampler;
pub use scheduler::{
    MAX_QUEUE, MAX_WEIGHT, Marks, RunToCompletion, Scheduler, Share, ShareError, Took, Topology, WeightedFair, WhenFull,
};
pub use setup::{
    Claim, DeclareState, Declared, HandedOver, ObjectKey, Setup, SetupEnvironment, SetupError, SetupFiles,
    SharedObjects, SharedState, StateDeclaration, states,
};
pub use shelf::Key;
pub use table::{NO_CHANGE, NamedTable, Outcome, Refused, Table, Verb, foreign_words};
pub use team::Team;
pub use telemetry::Telemetry;
pub use wake::Wake;
pub use worker::{ActionError, Cost, Exchange, Former, MakeError, Next, Worker};
