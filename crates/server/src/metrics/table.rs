//! The table of all families: the one place with a family's name, kind, unit and help.
//!
//! `docs/metrics.md` describes the same families with their labels. A test compares the two.

use super::model::{Family, MetricType, Unit};

/// Declares [`FamilyId`] and the family of each identifier.
macro_rules! families {
    ($($id:ident = $kind:ident $unit:ident $name:literal $help:literal;)*) => {
        /// The identifier of a family.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum FamilyId {
            $(#[doc = $help] $id,)*
        }

        /// Returns all families, without samples, in the order of their identifiers.
        #[must_use]
        pub fn all_families() -> Vec<Family> {
            vec![$(Family {
                id: FamilyId::$id,
                name: $name,
                help: $help,
                unit: Unit::$unit,
                kind: MetricType::$kind,
                samples: Vec::new(),
            },)*]
        }
    };
}

families! {
    BuildInfo = Info None "forebay_build_info" "The version of the server.";
    ServerStartTime = Gauge Seconds "forebay_server_start_time_seconds" "Start time of the server, since 1970.";
    ServerRequests = Counter None "forebay_server_requests_total" "HTTP requests, by class of the response's status.";
    ServerViewers = Gauge None "forebay_server_viewers" "Clients that read the stream of events at present.";
    ServerStore = Gauge Bytes "forebay_server_store_bytes" "Size of the store's file.";
    ServerMemory = Gauge Bytes "forebay_server_resident_memory_bytes" "Resident memory of the server.";
    ServerCpu = Counter Seconds "forebay_server_cpu_seconds_total" "Processor time of the server.";

    InstanceUp = Gauge None "forebay_instance_up" "1 if the instance responds, else 0.";
    InstanceInfo = Info None "forebay_instance_info" "The instance's pipeline and version.";
    InstanceStartTime = Gauge Seconds "forebay_instance_start_time_seconds" "Start time of the instance, since 1970.";
    ConfigChanges = Counter None "forebay_config_changes_total" "Accepted changes of the configuration.";
    AlarmsActive = Gauge None "forebay_alarms_active" "Alarms of the instance that are active.";

    PacketsIn = Counter None "forebay_packets_in_total" "Packets that entered through ports.";
    PacketsOut = Counter None "forebay_packets_out_total" "Packets that left through ports.";
    PacketsLost = Counter None "forebay_packets_lost_total" "Packets that ports lost before they entered.";
    PacketsCreated = Counter None "forebay_packets_created_total" "Packets that functions created.";
    PacketsDropped = Counter None "forebay_packets_dropped_total" "Dropped packets.";
    PacketsConsumed = Counter None "forebay_packets_consumed_total" "Packets that functions consumed.";
    PacketsQueued = Gauge None "forebay_packets_queued" "Packets in queues of modules or between workers.";
    PacketsHeld = Gauge None "forebay_packets_held" "Packets that functions hold.";
    PacketsInFlight = Gauge None "forebay_packets_in_flight" "Packets that a kernel or device has not finished.";
    PoolExhausted = Counter None "forebay_pool_exhausted_total" "Times that the packet pool was empty.";

    ModuleInfo = Info None "forebay_module_info" "The module's function.";
    ModuleMembers = Gauge None "forebay_module_members" "Modules that one aggregate series covers.";
    ModulePackets = Counter None "forebay_module_packets_total" "Packets that the module processed.";
    ModuleDropped = Counter None "forebay_module_dropped_packets_total" "Packets that the module dropped.";
    ModuleBatches = Counter None "forebay_module_batches_total" "Calls of the module.";
    ModuleBatchSize = Histogram None "forebay_module_batch_packets" "Packets per call.";
    ModuleTrigger = Gauge None "forebay_module_trigger_packets" "The module's trigger.";
    ModuleHold = Gauge Seconds "forebay_module_hold_seconds" "The module's hold limit.";
    ModuleWeight = Gauge None "forebay_module_weight" "The module's weight in the scheduler.";
    ModuleTicks = Gauge None "forebay_module_ticks_per_packet" "Ticks per packet over the run, of the timed calls.";
    ModuleTime = Gauge Ratio "forebay_module_time_ratio" "Share of all workers' time over the run, estimated.";

    FlowMembers = Gauge None "forebay_flow_members" "Flows that one aggregate series covers.";
    FlowPackets = Counter None "forebay_flow_packets_total" "Packets of the flow that left.";
    FlowViolations = Counter None "forebay_flow_violations_total" "Packets with a delay above the objective.";
    FlowDelay = Histogram Seconds "forebay_flow_delay_seconds" "Delay from arrival to departure.";
    FlowObjective = Gauge Seconds "forebay_flow_objective_seconds" "The delay objective.";
    FlowPercentile = Gauge Ratio "forebay_flow_objective_percentile_ratio" "Share of packets that must keep it.";
    FlowDelayAtObjective = Gauge Seconds "forebay_flow_delay_at_objective_seconds"
        "Delay over the run at the objective's percentile or mean.";
    FlowKept = Gauge None "forebay_flow_kept" "1 if the delay objective was kept over the run, else 0.";
    FlowMinRate = Gauge None "forebay_flow_objective_packets_per_second" "The rate objective, if it is in packets.";
    FlowMinBytes = Gauge None "forebay_flow_objective_bytes_per_second" "The rate objective, if it is in bits.";
    FlowRateKept = Gauge None "forebay_flow_rate_kept" "1 if the rate objective was kept over the run, else 0.";
    FlowTurnedAway = Counter None "forebay_flow_turned_away_packets_total" "Packets refused on the path.";

    PortInfo = Info None "forebay_port_info" "The port's type.";
    PortReceived = Counter None "forebay_port_received_packets_total" "Packets that entered through the port.";
    PortSent = Counter None "forebay_port_sent_packets_total" "Packets that left through the port.";
    PortDropped = Counter None "forebay_port_dropped_packets_total" "Packets that the port lost before they entered.";
    PortRefused = Counter None "forebay_port_refused_packets_total" "Packets that the port refused to send.";
    PortErrors = Counter None "forebay_port_errors_total" "Errors of the port.";
    PortSkipped = Counter None "forebay_port_skipped_packets_total" "Lost packets that the port cannot read.";

    WorkerInfo = Info None "forebay_worker_info" "The worker's core.";
    WorkerBusy = Counter Seconds "forebay_worker_busy_seconds_total" "Time in turns that had something to do.";
    WorkerWithoutCore = Counter Seconds "forebay_worker_without_core_seconds_total" "Time without a core.";
    WorkerTurns = Counter None "forebay_worker_turns_total" "Turns of the worker.";
    WorkerBusyTurns = Counter None "forebay_worker_busy_turns_total" "Turns that had something to do.";
    WorkerHanded = Counter None "forebay_worker_handed_packets_total" "Packets handed over to other workers.";
    WorkerTaken = Counter None "forebay_worker_taken_packets_total" "Packets taken from other workers.";
    WorkerStalls = Counter None "forebay_worker_stalls_total" "Batches that waited for a full ring.";

    LostLines = Counter None "forebay_lost_lines_total" "Lines or copied packets that are missing in their files.";

    ControlInfo = Info None "forebay_control_info" "The controller's name.";
    ControlPeriods = Counter None "forebay_control_periods_total" "Periods since the configuration changed.";
    ControlViolated = Counter None "forebay_control_violated_periods_total" "Periods with a missed objective.";
    ControlStalled = Counter None "forebay_control_stalled_periods_total" "Violated periods with too long a turn.";
    ControlUnkept = Gauge None "forebay_control_unkept_objectives" "Delay objectives that no trigger keeps at present.";
    ControlShort = Gauge None "forebay_control_short_flows" "Flows that do not get their rate at present.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_conventions() {
        let families = all_families();
        for (index, family) in families.iter().enumerate() {
            let Family { id, name, help, unit, kind, .. } = family;
            assert_eq!(*id as usize, index, "{name}");
            assert!(name.starts_with("forebay_"), "{name}");
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricType::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == MetricType::Info, "{name}");
            if let Some(unit) = unit.name() {
                assert!(family.base().ends_with(&format!("_{unit}")), "{name} does not end with its unit {unit}");
            }
            assert!(help.ends_with('.') && !help.contains(['\\', '"', '\n']), "{name}: {help}");
            assert!(families[..index].iter().all(|other| other.base() != family.base()), "{name} is declared twice");
        }
    }

    /// A histogram is written as several series. Their names must not be those of other families.
    #[test]
    fn no_name_is_that_of_a_histograms_series() {
        let families = all_families();
        for histogram in families.iter().filter(|family| family.kind == MetricType::Histogram) {
            for suffix in ["_bucket", "_count", "_sum"] {
                let name = format!("{}{suffix}", histogram.name);
                assert!(families.iter().all(|family| family.name != name), "{name}");
            }
        }
    }
}
