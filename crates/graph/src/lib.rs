//! Modules, gates, buffers, schedulers, workers and telemetry: the engine.

#![deny(unsafe_code)]

mod action;
mod actions;
mod context;
mod controller;
pub mod drive;
pub mod effect;
pub mod event;
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
mod nearest;
mod observer;
mod own;
mod placement;
mod plan;
mod port;
pub mod report;
mod rig;
#[allow(unsafe_code, reason = "two threads share the slots")]
pub mod ring;
mod scheduler;
pub mod secret;
mod setup;
mod shelf;
pub mod snapshot;
mod sync;
mod table;
mod team;
pub mod telemetry;
mod worker;

pub use action::Action;
pub use actions::{Actions, Change, Short, ShortCause, Unkept, UnkeptCause, Why};
pub use context::Context;
pub use controller::{Controller, ControllerDeclaration, DeclareController, controllers};
pub use effect::Effect;
pub use files::Files;
pub use flow::FlowError;
pub use fold::{Branches, PerBranch, Places};
pub use function::{Declaration, Declare, Fold, Function, NoFold, Reason, StateKind, functions, in_words};
pub use gate::{Decision, Gate, MAX_GATES};
pub use inventory;
pub use layout::{FlowLayout, Layout, ModuleLayout};
pub use links::{Links, links};
pub use live::{Live, Read, Reader, Replay};
pub use meter::Meter;
pub use nearest::nearest;
pub use observer::{Observer, Place, Visit};
pub use own::{Lent, Own};
pub use placement::{Origin, Placement, share};
pub use plan::{FlowPlan, Module, Plan, PortPlan, Step, Target};
pub use port::{
    DeclarePort, Intake, LinkCounters, LinkState, OVER_BLOCK, OVERSIZE, Offer, OpenPort, Pace, Port, PortCounters,
    PortDeclaration, Ready, Reasons, Spread, ports,
};
pub use rig::Rig;
pub use scheduler::{
    Limit, MAX_QUEUE, MAX_WEIGHT, Marks, RunToCompletion, Scheduler, SchedulerKind, Share, ShareError, Took, Topology,
    WeightedFair, WhenFull,
};
pub use setup::{
    Claim, DeclareState, Declared, Fault, LASTING, ONCE_A_MODULE, Setup, SetupError, SharedState, StateDeclaration,
    Surroundings, kept_as, states,
};
pub use shelf::Key;
pub use snapshot::{Sampler, Snapshot};
pub use table::{NO_CHANGE, NamedTable, Outcome, Refused, Table, Verb, foreign_words};
pub use team::Team;
pub use telemetry::{OwnCounters, Telemetry};
pub use worker::{ActionError, Census, Cost, Exchange, Former, MakeError, Next, Worker};
