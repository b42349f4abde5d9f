//! The state of a pipeline at a glance.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instances::{Instance, Status};
use crate::shared::Shared;

/// The state of a pipeline at a glance. A value that is not known is `null`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InstanceOverview {
    /// The name in the API and in metrics.
    pub name: String,
    /// The state.
    pub status: Status,
    /// The name of the pipeline in its configuration.
    pub pipeline: String,
    /// The process ID.
    pub pid: u32,
    /// The version of Forebay that runs it.
    pub forebay: String,
    /// The time of its start (RFC 3339).
    pub started: String,
    /// The version of the configuration in force.
    pub config_version: Option<String>,
    /// The number of workers.
    pub workers: usize,
    /// Packets per second that entered, between the last two reports.
    pub in_pps: Option<f64>,
    /// Packets per second that left, between the last two reports.
    pub out_pps: Option<f64>,
    /// Packets per second that were dropped for any reason, or lost by ports, between the last two reports.
    pub dropped_pps: Option<f64>,
    /// Packets that are queued, held and in flight.
    pub waiting: Option<u64>,
    /// For each worker, the share of the time between the last two reports in which it had something to do.
    pub busy: Vec<f64>,
    /// The number of flows with an objective of delay or rate.
    pub objectives: usize,
    /// The number of these flows that miss their objective, according to the active alarms.
    pub objectives_missed: usize,
    /// The number of active alarms.
    pub alarms: usize,
}

impl InstanceOverview {
    /// Returns the state of `instance`.
    #[must_use]
    pub(crate) fn of(shared: &Shared, instance: &Instance) -> Self {
        let (live, hello, status) = (instance.live(), instance.hello(), instance.status());
        let tick = live.tick.filter(|tick| status == Status::Running && tick.interval_s > 0.0);
        let rate = |count: u64, interval_s: f64| Some((count as f64 / interval_s * 10.0).round() / 10.0);
        let figure = |of: &dyn Fn(&forebay_protocol::Tick) -> u64| {
            tick.as_ref().and_then(|tick| rate(of(tick), tick.interval_s))
        };
        let flows = live.whole.as_ref().map(|whole| whole.flows.as_slice()).unwrap_or_default();
        let has_objective = |flow: &&forebay_protocol::report::FlowReport| {
            flow.slo_us.is_some() || flow.min_rate_pps.is_some() || flow.min_rate_bps.is_some()
        };
        Self {
            name: instance.name().to_owned(),
            status,
            pipeline: hello.pipeline.clone(),
            pid: hello.pid,
            forebay: hello.forebay.clone(),
            started: hello.started.clone(),
            config_version: live.configuration.map(|(version, _)| version),
            workers: hello.workers,
            in_pps: figure(&|tick| tick.entered),
            out_pps: figure(&|tick| tick.out),
            dropped_pps: figure(&|tick| tick.dropped.values().sum::<u64>() + tick.lost),
            waiting: tick.as_ref().map(|tick| tick.waiting.iter().sum()),
            busy: tick.iter().flat_map(|tick| tick.busy.iter().map(|busy| f64::from(*busy) / 1e3)).collect(),
            objectives: flows.iter().filter(has_objective).count(),
            objectives_missed: shared.alarms.missed_objectives(instance.name()),
            alarms: shared.alarms.count(instance.name()),
        }
    }
}
