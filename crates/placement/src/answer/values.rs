//! The values of an answer, as `forebay place --json` prints them.

use schemars::JsonSchema;
use serde::Serialize;

use crate::registry::ModelOrigin;

/// A placement of chains on a server.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "Forebay placement")]
pub struct Answer {
    /// Changes when a field is removed or changes its meaning. Fields may be added without a change.
    pub version: u32,
    /// The pipeline's name.
    pub name: String,
    /// The topology, as on the command line.
    pub topology: String,
    /// `served`, `sum` or `cores`.
    pub objective: &'static str,
    /// The search method.
    pub search: &'static str,
    /// The models of functions.
    pub models: ModelsAnswer,
    /// The value of the placement: weighted packets per second, packets per second, or with `cores` the number of used
    /// cores.
    pub value: f64,
    /// No placement has a higher value, or with `cores` needs fewer cores. Null if the search proves nothing.
    pub bound: Option<f64>,
    /// The distance of the value from the bound, as a share from 0 to 1. With 0 the placement is proved to be optimal.
    pub gap: Option<f64>,
    /// The result of an independent check of the bound. Null if there is no bound. A refuted bound is an error.
    pub checked: Option<CertificateCheck>,
    /// The number of nodes of the search. Null if it counts none.
    pub nodes: Option<u64>,
    /// The number of used cores.
    pub cores_used: usize,
    /// The number of cores that functions may use.
    pub cores_usable: usize,
    /// The memory domains with their cores.
    pub domains: Vec<DomainAnswer>,
    /// The chains that are placed, in the order of the file.
    pub chains: Vec<ChainAnswer>,
    /// The functions, or copies of chains, that have moved to another domain, from the given earlier placement. Null if
    /// none was given.
    pub moved: Option<Vec<MovedFunctions>>,
    /// The number of functions, or copies of chains, that have moved to another core of the same domain, from the given
    /// earlier placement. They are not in `moved`. Null if none was given.
    pub moved_within: Option<usize>,
    /// The modules of a running pipeline that moved when this placement was applied. Null if it was not applied.
    pub applied: Option<AppliedPlacement>,
    /// The chains that do not fit.
    pub rejected: Vec<RejectedChain>,
    /// The solution of rates and contention together. Null if it was not requested. The certificate does not cover
    /// these rates.
    pub coupled: Option<CoupledAnswer>,
    /// The assumptions.
    pub notes: Vec<String>,
}

/// The origin of the models of functions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ModelsAnswer {
    /// The CPU model.
    pub cpu: String,
    /// The build.
    pub build: String,
    /// `measured`, `simulated` or `imported`.
    pub origin: ModelOrigin,
    /// The metric of demands.
    pub metric: String,
}

/// A memory domain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct DomainAnswer {
    /// The number, from 0.
    pub domain: usize,
    /// The NUMA node. Null if it is unknown.
    pub node: Option<usize>,
    /// The network interfaces of its node.
    pub interfaces: Vec<String>,
    /// The cores.
    pub cores: Vec<CoreAnswer>,
}

/// A core.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct CoreAnswer {
    /// The processor's number.
    pub core: usize,
    /// The chain that runs there. Null if the core is free.
    pub chain: Option<String>,
    /// The functions of the chain that run there.
    pub functions: Vec<String>,
}

/// A chain that is placed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct ChainAnswer {
    /// The name.
    pub chain: String,
    /// `pipelined`: a core for each function; `fused`: copies of the whole chain, each on one core.
    pub form: ChainForm,
    /// The domain of its packets.
    pub home: usize,
    /// The packets per second that arrive. Null if the chain has no stated rate.
    pub rate_pps: Option<f64>,
    /// The packets per second that it can forward, by the fixed-rate model.
    pub predicted_pps: f64,
    /// The 95 % interval of this rate, derived from the errors of the models.
    pub interval_95_pps: [f64; 2],
    /// The packets per second that it forwards if rates and contention are solved together. Null if this was not
    /// requested.
    pub coupled_pps: Option<f64>,
    /// The packets per second that it must be able to forward to keep its objectives. Null if it has none.
    pub least_pps: Option<f64>,
    /// Whether the predicted rate reaches this value.
    pub keeps_objective: bool,
    /// The functions, in the order in which packets pass them.
    pub functions: Vec<FunctionAnswer>,
    /// The cores: one for each function, or one for each copy.
    pub seats: Vec<SeatAnswer>,
    /// The function and the contention that limit its rate.
    pub binds: Binding,
    /// The best other domain of each segment, that is, of consecutive functions on one domain. Null if it was not
    /// requested.
    pub moves: Option<Vec<SegmentMove>>,
}

/// The form in which a chain runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ChainForm {
    /// A core for each function.
    Pipelined,
    /// Copies of the whole chain, each on one core.
    Fused,
}

/// A function with its model.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct FunctionAnswer {
    /// The name in the chain.
    pub name: String,
    /// The module's name in the pipeline.
    pub module: String,
    /// The function.
    pub function: String,
    /// The model's name in the registry.
    pub model: String,
    /// Whether the model was made for the parameters of the function's example, instead of the actual parameters.
    pub of_example: bool,
    /// The origins of the model's figures, for the home domain and for other domains.
    pub origins: [ModelOrigin; 2],
}

/// A core of a chain.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SeatAnswer {
    /// The domain.
    pub domain: usize,
    /// The processor's number.
    pub core: usize,
    /// The functions that run there.
    pub functions: Vec<String>,
    /// The packets per second that these functions could forward there.
    pub rate_pps: f64,
}

/// The function and the contention that limit a chain's rate.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Binding {
    /// The slowest function, or all functions of a chain that runs on one core.
    pub function: String,
    /// λ of this function: its slowdown compared to its solo rate, from 0 to 1.
    pub drop: f64,
    /// The place of contention with the largest share of λ. Null if there is no slowdown.
    pub place: Option<ContentionPlace>,
    /// The domain of that place.
    pub domain: usize,
    /// The part of λ that is due to this place.
    pub share: f64,
}

/// A place of contention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ContentionPlace {
    /// The last-level cache.
    Cache,
    /// The memory controller.
    Memory,
    /// The link to other domains.
    Link,
    /// No shared place: the constant part of the model.
    Constant,
}

/// The best other domain for consecutive functions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SegmentMove {
    /// The functions.
    pub functions: Vec<String>,
    /// Their domain.
    pub from: usize,
    /// The best other domain. Null if no other domain can run them.
    pub to: Option<usize>,
    /// The functions that are exchanged with them, if the other domain has too few free cores.
    pub exchanged: Vec<String>,
    /// The cost of the move, in percent of the value of all chains. Null if no other domain can run them.
    pub cost_percent: Option<f64>,
}

/// The result of the check of a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum CertificateCheck {
    /// Another exact method gives the same value.
    Proved,
    /// None of the other placements that were tried exceeds the bound.
    NotRefuted,
}

/// Functions that have moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MovedFunctions {
    /// The chain.
    pub chain: String,
    /// The functions.
    pub functions: Vec<String>,
    /// The domain before. Null for a new copy.
    pub from: Option<usize>,
    /// The domain now. Null for a copy that no longer runs.
    pub to: Option<usize>,
}

/// A placement that was applied to a running pipeline.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AppliedPlacement {
    /// The modules that moved. Empty if all were in place already.
    pub moved: Vec<AppliedMove>,
    /// The time for which no packets were received from ports, in microseconds.
    pub pause_us: f64,
    /// The number of packets that are unaccounted for. A value other than 0 is a defect.
    pub missing: i64,
}

/// A module of a running pipeline that moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct AppliedMove {
    /// The module.
    pub module: String,
    /// Its cores before.
    pub from: Vec<usize>,
    /// Its cores now.
    pub to: Vec<usize>,
}

/// A chain that is not placed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct RejectedChain {
    /// Its name.
    pub chain: String,
    /// The reason.
    pub reason: String,
}

/// The result of solving rates and contention together.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct CoupledAnswer {
    /// Whether the fixed point was reached.
    pub converged: bool,
    /// The largest relative change of a rate in the last round. Null after one round.
    pub residual: Option<f64>,
    /// The number of rounds.
    pub rounds: usize,
}
