//! Modules, gates, buffers, schedulers, workers and telemetry: the engine.

mod context;
pub mod effect;
mod function;
mod gate;
mod plan;
mod port;
mod rig;
mod setup;
mod shelf;

pub use context::Context;
pub use effect::Effect;
pub use function::{Declaration, Declare, Fold, Function, Reason, StateKind, functions};
pub use gate::{Decision, Gate, MAX_GATES};
pub use inventory;
pub use plan::{FlowPlan, Module, Plan, PortPlan, Step, Target};
pub use port::{DeclarePort, Intake, OpenPort, Port, PortCounters, PortDeclaration, Ready, ports};
pub use rig::Rig;
pub use setup::{Declared, DeclareState, Fault, Setup, SetupError, SharedState, StateDeclaration, Surroundings, states};
pub use shelf::Key;
