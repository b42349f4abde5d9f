//! The messages of a stream of counters. Each message contains only the changes since the message before.
//!
//! A stream begins with a full [report](crate::Response::Report), and has another one after each change of the
//! configuration. The indices in a [`Tick`] are those of the lists in the last full report. Elements without any change
//! are left out. Elements are written in columns, which take a quarter of the space of objects.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::report::{ChangeReport, Report, UnkeptReport};

/// The changes of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tick {
    /// The length of the interval, in seconds of the workers' clock.
    pub interval_s: f64,
    /// Packets that entered.
    #[serde(rename = "in")]
    pub entered: u64,
    /// Packets that left.
    pub out: u64,
    /// Packets that ports lost before they entered.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lost: u64,
    /// Packets that are queued, held and in flight now.
    pub waiting: [u64; 3],
    /// Dropped packets, by reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub dropped: BTreeMap<String, u64>,
    /// Modules whose counters changed.
    pub modules: ModuleColumns,
    /// Flows whose counters changed.
    pub flows: FlowColumns,
    /// Ports with packets or errors.
    pub ports: PortColumns,
    /// For each worker, the share of its time in which it had something to do, in thousandths.
    pub busy: Vec<u16>,
    /// Modules whose trigger, hold limit or weight changed, with the present values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<ModuleSettings>,
    /// The changes of triggers that the controller made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<ChangeReport>,
    /// The objectives that no trigger keeps, if they changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unkept: Option<Vec<UnkeptReport>>,
}

/// Counters of modules in the interval, by column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleColumns {
    /// The index in the report.
    pub index: Vec<u32>,
    /// Packets processed.
    pub packets: Vec<u64>,
    /// Calls.
    pub batches: Vec<u64>,
    /// Packets dropped.
    pub dropped: Vec<u64>,
    /// Ticks per packet, rounded to tenths; `null` if no call was timed.
    pub ticks: Vec<Option<f64>>,
}

/// Counters of flows in the interval, by column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlowColumns {
    /// The index in the report.
    pub index: Vec<u32>,
    /// Packets that left.
    pub packets: Vec<u64>,
    /// Packets above the delay objective; 0 without one.
    pub violations: Vec<u64>,
    /// The median delay, in microseconds, rounded to tenths.
    pub p50_us: Vec<Option<f64>>,
    /// The delay for which the objective is stated, in microseconds, rounded to tenths. Without an objective, this is
    /// the 99th percentile.
    pub chosen_us: Vec<Option<f64>>,
}

/// Counters of ports in the interval, by column.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PortColumns {
    /// The index in the report.
    pub index: Vec<u32>,
    /// Packets that entered.
    pub received: Vec<u64>,
    /// Packets that left.
    pub sent: Vec<u64>,
    /// Packets lost before they entered.
    pub dropped: Vec<u64>,
    /// Packets that the port refused to send, and errors.
    pub failed: Vec<u64>,
}

/// The values of a module that controllers and clients change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModuleSettings {
    /// The index in the report.
    pub index: u32,
    /// The trigger.
    pub trigger: u64,
    /// The hold limit, in microseconds, if there is a trigger.
    pub hold_us: Option<f64>,
    /// The weight, if the scheduler has weights.
    pub weight: Option<u64>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Rounds to tenths.
fn tenths(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 10.0).round() / 10.0)
}

/// Returns the elements of `all` for which `is_changed` is true, with their indices.
fn changed<T>(all: &[T], is_changed: impl Fn(&T) -> bool) -> impl Iterator<Item = (u32, &T)> {
    let numbered = all.iter().enumerate().filter(move |(_, one)| is_changed(one));
    // No pipeline has 2^32 modules.
    numbered.filter_map(|(index, one)| Some((u32::try_from(index).ok()?, one)))
}

impl Tick {
    /// Returns the changes of the interval that `recent` reports. `previous` is the report of the interval before, of
    /// the same configuration: both must have the same modules, flows and ports.
    #[must_use]
    pub fn of(recent: &Report, previous: &Report) -> Self {
        let packets = &recent.packets;
        let mut tick = Self {
            interval_s: recent.duration_s,
            entered: packets.entered,
            out: packets.out,
            lost: packets.lost,
            waiting: [packets.queued, packets.held, packets.in_flight],
            dropped: packets.dropped.clone(),
            busy: recent.workers.iter().map(|worker| (worker.busy * 1e3).round() as u16).collect(),
            ..Self::default()
        };
        // A worker changes its counters while they are read. So a batch may be counted before its packets.
        let counts = |module: &crate::report::ModuleReport| [module.packets, module.batches, module.dropped];
        for (index, module) in changed(&recent.modules, |module| counts(module) != [0; 3]) {
            tick.modules.index.push(index);
            tick.modules.packets.push(module.packets);
            tick.modules.batches.push(module.batches);
            tick.modules.dropped.push(module.dropped);
            tick.modules.ticks.push(tenths(module.ticks_per_packet));
        }
        for (index, flow) in changed(&recent.flows, |flow| flow.packets > 0 || flow.violations > Some(0)) {
            tick.flows.index.push(index);
            tick.flows.packets.push(flow.packets);
            tick.flows.violations.push(flow.violations.unwrap_or(0));
            tick.flows.p50_us.push(tenths(flow.delay_us.p50));
            tick.flows.chosen_us.push(tenths(flow.at_percentile_us.or(flow.delay_us.p99)));
        }
        let counts =
            |port: &crate::report::PortReport| [port.received, port.sent, port.dropped, port.refused + port.errors];
        for (index, port) in changed(&recent.ports, |port| counts(port) != [0; 4]) {
            let [received, sent, dropped, failed] = counts(port);
            tick.ports.index.push(index);
            tick.ports.received.push(received);
            tick.ports.sent.push(sent);
            tick.ports.dropped.push(dropped);
            tick.ports.failed.push(failed);
        }
        let settings = |module: &crate::report::ModuleReport| (module.trigger, module.hold_us, module.weight);
        let pairs = recent.modules.iter().zip(&previous.modules).enumerate();
        tick.settings = pairs
            .filter(|(_, (now, before))| settings(now) != settings(before))
            .filter_map(|(index, (now, _))| {
                let (trigger, hold_us, weight) = settings(now);
                Some(ModuleSettings { index: u32::try_from(index).ok()?, trigger, hold_us, weight })
            })
            .collect();
        if let Some(control) = &recent.control {
            let before = previous.control.as_ref();
            let known = before.map(|control| &control.changes[..]).unwrap_or_default();
            tick.decisions = control.changes.iter().filter(|change| !known.contains(change)).cloned().collect();
            let is_changed = before.is_none_or(|before| before.unkept != control.unkept);
            tick.unkept =
                (is_changed && (before.is_some() || !control.unkept.is_empty())).then(|| control.unkept.clone());
        }
        tick
    }

    /// Adds the interval to `whole`, a report of everything before it. Only the counters that a tick carries change.
    /// The column `failed` of ports is not added, because the report counts refused packets and errors separately.
    ///
    /// Returns `false`, and changes nothing, if an index is out of range or the columns differ in length: the stream
    /// and the report belong to different configurations.
    #[must_use]
    pub fn add_to(&self, whole: &mut Report) -> bool {
        let Self { modules, flows, ports, .. } = self;
        let is_sound = |index: &[u32], of: usize, lengths: &[usize]| {
            index.iter().all(|index| (*index as usize) < of) && lengths.iter().all(|length| *length == index.len())
        };
        let settings: Vec<u32> = self.settings.iter().map(|setting| setting.index).collect();
        let columns = [modules.packets.len(), modules.batches.len(), modules.dropped.len(), modules.ticks.len()];
        let flow_columns = [flows.packets.len(), flows.violations.len(), flows.p50_us.len(), flows.chosen_us.len()];
        let port_columns = [ports.received.len(), ports.sent.len(), ports.dropped.len(), ports.failed.len()];
        let is_sound = is_sound(&modules.index, whole.modules.len(), &columns)
            && is_sound(&flows.index, whole.flows.len(), &flow_columns)
            && is_sound(&ports.index, whole.ports.len(), &port_columns)
            && is_sound(&settings, whole.modules.len(), &[])
            && self.busy.len() == whole.workers.len();
        if !is_sound {
            return false;
        }
        whole.duration_s += self.interval_s;
        let packets = &mut whole.packets;
        packets.entered += self.entered;
        packets.out += self.out;
        packets.lost += self.lost;
        [packets.queued, packets.held, packets.in_flight] = self.waiting;
        for (reason, count) in &self.dropped {
            *packets.dropped.entry(reason.clone()).or_default() += count;
        }
        for (at, index) in modules.index.iter().enumerate() {
            let module = &mut whole.modules[*index as usize];
            module.packets += modules.packets[at];
            module.batches += modules.batches[at];
            module.dropped += modules.dropped[at];
        }
        for (at, index) in flows.index.iter().enumerate() {
            let flow = &mut whole.flows[*index as usize];
            flow.packets += flows.packets[at];
            flow.violations = flow.violations.map(|violations| violations + flows.violations[at]);
        }
        for (at, index) in ports.index.iter().enumerate() {
            let port = &mut whole.ports[*index as usize];
            port.received += ports.received[at];
            port.sent += ports.sent[at];
            port.dropped += ports.dropped[at];
        }
        for setting in &self.settings {
            let module = &mut whole.modules[setting.index as usize];
            (module.trigger, module.hold_us, module.weight) = (setting.trigger, setting.hold_us, setting.weight);
        }
        true
    }
}
