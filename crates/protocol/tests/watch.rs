//! The ticks of a stream add up to the counters of a report.

use forebay_protocol::{Report, Tick};
use proptest::prelude::*;

/// Returns a report with these counters: packets, batches and drops of each module, packets of each flow, received and
/// sent packets of each port.
fn report(modules: &[[u64; 3]], flows: &[u64], ports: &[[u64; 2]], trigger: u64) -> Report {
    let text = serde_json::json!({
        "pipeline": "p", "forebay": "0", "kind": "measured", "cpu": { "model": "n/a", "tsc_ghz": 1.0 },
        "duration_s": 1.0,
        "packets": {
            "in": ports.iter().map(|port| port[0]).sum::<u64>(), "lost": 0, "created": {},
            "out": ports.iter().map(|port| port[1]).sum::<u64>(),
            "dropped": { "m.full": modules.iter().map(|module| module[2]).sum::<u64>() },
            "consumed": {}, "queued": 1, "held": 2, "in_flight": 3,
        },
        "modules": modules.iter().enumerate().map(|(at, module)| serde_json::json!({
            "name": format!("m{at}"), "function": "f", "workers": [0], "packets": module[0], "rate_pps": 0.0,
            "batches": module[1], "batch_mean": null, "batch_sizes": [0, 0, 0, 0, 0, 0, 0, 0, 0],
            "trigger": trigger, "hold_us": null, "weight": null, "ticks_per_packet": 1.23, "ticks_per_batch": null,
            "share": null, "dropped": module[2], "counters": {},
        })).collect::<Vec<_>>(),
        "flows": flows.iter().enumerate().map(|(at, packets)| serde_json::json!({
            "name": format!("f{at}"), "packets": packets, "rate_pps": 0.0,
            "delay_us": {
                "mean": null, "p50": null, "p95": null, "p99": null, "p999": null, "max": null, "samples": packets,
            },
            "slo_us": 5.0, "percentile": 99.0, "violations": packets / 2, "kept": null,
        })).collect::<Vec<_>>(),
        "workers": [],
        "ports": ports.iter().enumerate().map(|(at, port)| serde_json::json!({
            "name": format!("p{at}"), "kind": "sink", "received": port[0], "sent": port[1], "dropped": 0,
            "refused": 0, "errors": 0,
            "receiving": { "ticks_per_packet": null, "ticks_per_batch": null, "batch_mean": null },
            "sending": { "ticks_per_packet": null, "ticks_per_batch": null, "batch_mean": null },
        })).collect::<Vec<_>>(),
        "arrival_clocks": [], "pool_exhausted": 0,
    });
    serde_json::from_value(text).expect("a report")
}

fn counts() -> impl Strategy<Value = Vec<[u64; 3]>> {
    // A worker changes its counters while they are read, so any of them may be 0.
    let packets = prop_oneof![Just(0), 1u64..1_000];
    prop::collection::vec(
        (packets, 0u64..3, 0u64..3).prop_map(|(packets, batches, dropped)| [packets, batches, dropped]),
        3,
    )
}

proptest! {
    #[test]
    fn ticks_add_up(
        intervals in prop::collection::vec((counts(), prop::collection::vec(0u64..500, 2),
            prop::collection::vec([0u64..700, 0u64..700], 2), 0u64..3), 1..6),
    ) {
        let empty = report(&[[0; 3]; 3], &[0; 2], &[[0; 2]; 2], 0);
        let (mut summed, mut previous) = (empty.clone(), empty);
        let (mut modules, mut flows, mut ports) = ([[0; 3]; 3], [0; 2], [[0; 2]; 2]);
        let (mut violations, mut last) = ([0; 2], 0);
        for (module, flow, port, trigger) in &intervals {
            let recent = report(module, flow, port, *trigger);
            let tick = Tick::of(&recent, &previous);
            // Encodes and decodes the tick, as for a client.
            let text = serde_json::to_string(&tick).expect("JSON");
            let tick: Tick = serde_json::from_str(&text).expect("a tick");
            prop_assert!(tick.add_to(&mut summed));
            prop_assert_eq!(tick.settings.is_empty(), *trigger == last);
            last = *trigger;
            modules.iter_mut().flatten().zip(module.iter().flatten()).for_each(|(sum, more)| *sum += more);
            flows.iter_mut().zip(flow).for_each(|(sum, more)| *sum += more);
            violations.iter_mut().zip(flow).for_each(|(sum, more)| *sum += more / 2);
            ports.iter_mut().flatten().zip(port.iter().flatten()).for_each(|(sum, more)| *sum += more);
            previous = recent;
        }
        let read: Vec<_> = summed.modules.iter().map(|it| [it.packets, it.batches, it.dropped]).collect();
        prop_assert_eq!(&read[..], &modules[..]);
        prop_assert!(summed.modules.iter().all(|module| module.trigger == last));
        let read: Vec<_> = summed.flows.iter().map(|flow| (flow.packets, flow.violations)).collect();
        prop_assert_eq!(read, flows.iter().zip(violations).map(|(all, late)| (*all, Some(late))).collect::<Vec<_>>());
        let read: Vec<_> = summed.ports.iter().map(|port| [port.received, port.sent]).collect();
        prop_assert_eq!(&read[..], &ports[..]);
        prop_assert_eq!(summed.packets.entered, ports.iter().map(|port| port[0]).sum::<u64>());
        prop_assert_eq!(summed.packets.all_dropped(), modules.iter().map(|module| module[2]).sum::<u64>());
    }

    /// A tick of another pipeline is refused without a panic, and changes nothing.
    #[test]
    fn a_tick_that_does_not_fit_is_refused(index in 0u32..9, lengths in prop::collection::vec(0usize..3, 4)) {
        let mut whole = report(&[[0; 3]; 3], &[0; 2], &[[0; 2]; 2], 0);
        let before = whole.clone();
        let mut tick = Tick::default();
        tick.modules.index = vec![index];
        tick.modules.packets = vec![1; lengths[0]];
        tick.modules.batches = vec![1; lengths[1]];
        tick.modules.dropped = vec![1; lengths[2]];
        tick.modules.ticks = vec![None; lengths[3]];
        let fits = index < 3 && lengths.iter().all(|length| *length == 1);
        prop_assert_eq!(tick.add_to(&mut whole), fits);
        prop_assert!(fits || whole == before);
    }
}

/// Regression: a tick left out a module whose batch was counted before its packets, so the batch was never counted.
#[test]
fn a_tick_has_counters_that_changed_without_packets() {
    let empty = report(&[[0; 3]; 3], &[0; 2], &[[0; 2]; 2], 0);
    let mut recent = report(&[[0; 3], [0, 1, 0], [0; 3]], &[0; 2], &[[0; 2]; 2], 0);
    recent.flows[1].violations = Some(1);
    recent.ports[0].dropped = 2;
    (recent.ports[1].refused, recent.ports[1].errors) = (3, 4);
    let tick = Tick::of(&recent, &empty);
    let mut whole = empty;
    assert!(tick.add_to(&mut whole));
    assert_eq!((whole.ports[0].dropped, whole.modules[1].batches, whole.flows[1].violations), (2, 1, Some(1)));
    assert_eq!((tick.modules.index, tick.modules.batches), (vec![1], vec![1]));
    assert_eq!((tick.flows.index, tick.flows.violations), (vec![1], vec![1]));
    assert_eq!((tick.ports.index, tick.ports.dropped, tick.ports.failed), (vec![0, 1], vec![2, 0], vec![0, 7]));
}
