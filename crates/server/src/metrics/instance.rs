//! The samples of an instance, except those of its modules and flows.

use std::collections::{BTreeMap, BTreeSet};

use forebay_protocol::report::{ControlReport, LostLines, Packets, PortReport, Report, WorkerReport};

use super::groups::Groups;
use super::samples::Samples;
use super::table::FamilyId;
use super::{InstanceMetrics, Options, flows, modules};

/// Adds all samples of an instance.
pub(super) fn add<'i>(samples: &mut Samples<'i>, instance: &InstanceMetrics<'i>, options: &Options) {
    samples.of_instance(instance.name);
    samples.flag(FamilyId::InstanceUp, &[], Some(instance.is_up));
    if let Some(hello) = instance.hello {
        samples.info(
            FamilyId::InstanceInfo,
            &[("pipeline", hello.pipeline.as_str()), ("version", hello.forebay.as_str())],
        );
    }
    samples.some(FamilyId::InstanceStartTime, &[], instance.started_s);
    if let Some(changes) = instance.config_changes {
        samples.count(FamilyId::ConfigChanges, &[], changes);
    }
    samples.number(FamilyId::AlarmsActive, &[], instance.alarms as f64);
    let Some(report) = instance.report else { return };
    let groups = Groups::of_modules(&report.modules, owners(report), options.all_modules);
    add_packets(samples, report, &groups);
    modules::add(samples, &report.modules, &groups);
    flows::add(samples, &report.flows, options.all_modules);
    report.ports.iter().for_each(|port| add_port(samples, port));
    report.workers.iter().for_each(|worker| add_worker(samples, worker, report.duration_s));
    add_lost_lines(samples, &report.lost_lines, &groups);
    if let Some(control) = &report.control {
        add_control(samples, control);
    }
}

/// Returns the names before the reasons of created, dropped and consumed packets, and the modules of lost lines. A
/// module that a reload removed is still in these lists.
fn owners(report: &Report) -> impl Iterator<Item = &str> {
    let Packets { created, dropped, consumed, .. } = &report.packets;
    let names = [created, dropped, consumed].into_iter().flat_map(BTreeMap::keys);
    let owners = names.filter_map(|name| Some(name.rsplit_once('.')?.0));
    owners.chain(report.lost_lines.iter().map(|lines| lines.module.as_str()))
}

fn add_packets(samples: &mut Samples<'_>, report: &Report, groups: &Groups) {
    let packets = &report.packets;
    samples.count(FamilyId::PacketsIn, &[], packets.entered);
    samples.count(FamilyId::PacketsOut, &[], packets.out);
    samples.count(FamilyId::PacketsLost, &[], packets.lost);
    for (id, counts) in [
        (FamilyId::PacketsCreated, &packets.created),
        (FamilyId::PacketsDropped, &packets.dropped),
        (FamilyId::PacketsConsumed, &packets.consumed),
    ] {
        add_reasons(samples, id, counts, (report, groups));
    }
    samples.number(FamilyId::PacketsQueued, &[], packets.queued as f64);
    samples.number(FamilyId::PacketsHeld, &[], packets.held as f64);
    samples.number(FamilyId::PacketsInFlight, &[], packets.in_flight as f64);
    samples.count(FamilyId::PoolExhausted, &[], report.pool_exhausted);
}

/// The labels of drops: the label of the module or port with its name, if there is one, and the reason.
type DropLabels<'d> = (Option<(&'static str, &'d str)>, &'d str);

/// Adds counts by `module.reason`, by `port.refused`, or by a reason alone.
fn add_reasons(
    samples: &mut Samples<'_>,
    id: FamilyId,
    counts: &BTreeMap<String, u64>,
    (report, groups): (&Report, &Groups),
) {
    let modules: BTreeSet<_> = report.modules.iter().map(|module| module.name.as_str()).collect();
    let is_port = |name: &str| report.ports.iter().any(|port| port.name == name);
    let mut sums: BTreeMap<DropLabels<'_>, u64> = BTreeMap::new();
    for (name, count) in counts {
        let (owner, reason) = match name.rsplit_once('.') {
            // No function has this reason. The port may have been removed by a reload.
            Some((owner, "refused")) if is_port(owner) || !modules.contains(owner) => {
                (Some(("port", owner)), "refused")
            }
            Some((owner, reason)) => (Some(("module", groups.label(owner))), reason),
            None => (None, name.as_str()),
        };
        let sum = sums.entry((owner, reason)).or_default();
        *sum = sum.saturating_add(*count);
    }
    for ((owner, reason), count) in sums {
        let labels: Vec<_> = owner.into_iter().chain([("reason", reason)]).collect();
        samples.count(id, &labels, count);
    }
}

fn add_port(samples: &mut Samples<'_>, port: &PortReport) {
    let label = ("port", port.name.as_str());
    samples.info(FamilyId::PortInfo, &[label, ("type", &*port.kind)]);
    samples.count(FamilyId::PortReceived, &[label], port.received);
    samples.count(FamilyId::PortSent, &[label], port.sent);
    samples.count(FamilyId::PortDropped, &[label], port.dropped);
    samples.count(FamilyId::PortRefused, &[label], port.refused);
    samples.count(FamilyId::PortErrors, &[label], port.errors);
    for (reason, count) in &port.skipped {
        samples.count(FamilyId::PortSkipped, &[label, ("reason", reason.as_str())], *count);
    }
}

/// Adds a worker. The report has shares of the worker's time. Their product with the length of the run is a counter,
/// so that Prometheus computes the share in any interval.
fn add_worker(samples: &mut Samples<'_>, worker: &WorkerReport, duration_s: f64) {
    let id = worker.id.to_string();
    let label = ("worker", id.as_str());
    let core = worker.core.map(|core| core.to_string());
    let core = core.as_deref().map(|core| ("core", core));
    samples.info(FamilyId::WorkerInfo, &[label].into_iter().chain(core).collect::<Vec<_>>());
    samples.number(FamilyId::WorkerBusy, &[label], worker.busy * duration_s);
    samples.number(FamilyId::WorkerWithoutCore, &[label], worker.without_core() * duration_s);
    samples.count(FamilyId::WorkerTurns, &[label], worker.turns);
    samples.count(FamilyId::WorkerBusyTurns, &[label], worker.busy_turns);
    samples.count(FamilyId::WorkerHanded, &[label], worker.handed);
    samples.count(FamilyId::WorkerTaken, &[label], worker.taken);
    samples.count(FamilyId::WorkerStalls, &[label], worker.stalls);
}

fn add_lost_lines(samples: &mut Samples<'_>, lost: &[LostLines], groups: &Groups) {
    let mut sums: BTreeMap<(&str, &str, &'static str), u64> = BTreeMap::new();
    for lines in lost {
        let LostLines { module, lines: heading, over_rate, lost, unwritten } = lines;
        for (cause, count) in [("over_rate", over_rate), ("lost", lost), ("unwritten", unwritten)] {
            let sum = sums.entry((groups.label(module), heading.as_str(), cause)).or_default();
            *sum = sum.saturating_add(*count);
        }
    }
    for ((module, lines, cause), count) in sums {
        samples.count(FamilyId::LostLines, &[("module", module), ("lines", lines), ("cause", cause)], count);
    }
}

fn add_control(samples: &mut Samples<'_>, control: &ControlReport) {
    samples.info(FamilyId::ControlInfo, &[("controller", control.controller.as_str())]);
    samples.count(FamilyId::ControlPeriods, &[], control.periods);
    samples.count(FamilyId::ControlViolated, &[], control.violated);
    samples.count(FamilyId::ControlStalled, &[], control.stalled);
    samples.number(FamilyId::ControlUnkept, &[], control.unkept.len() as f64);
    samples.number(FamilyId::ControlShort, &[], control.short.len() as f64);
}
