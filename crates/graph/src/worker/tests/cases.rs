//! Single cases of a worker's behaviour.

use forebay_protocol::Census;

use super::*;

#[test]
fn packets_pass_and_are_counted_by_module_size_and_flow() {
    let log = Log::default();
    let modules = vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(2)], 0),
        module("left", TestFunction::Pass, vec![Target::Port(1)], 0),
        module("right", TestFunction::Pass, vec![Target::Port(1)], 0),
    ];
    let mut worker = worker(plan(source(320), drain(&log), modules, 256), vec![]);
    while worker.turn() != Next::Never {}
    let telemetry = worker.telemetry();
    assert_eq!(telemetry.counters[0].packets.get(), 320);
    assert_eq!(telemetry.counters[0].batches(), 10);
    assert_eq!(telemetry.counters[0].sizes[5].get(), 10, "ten batches of 32");
    let branches = telemetry.counters[1].packets.get() + telemetry.counters[2].packets.get();
    assert_eq!(branches, 320);
    let flows: Vec<_> =
        telemetry.flows.iter().map(|flow| (flow.plan.name.as_str(), flow.delay.read().samples())).collect();
    assert_eq!(flows.len(), 2);
    assert!(flows.contains(&("in > split[0] > out", telemetry.counters[1].packets.get())), "{flows:?}");
    assert_eq!(log.lock().expect("no test thread has panicked").len(), 320);
    assert_eq!(worker.census(), Census { entered: 320, out: 320, ..Census::default() });
    in_order(&log);
}

#[test]
fn has_work_is_false_before_an_idle_turn() {
    let log = Log::default();
    let modules = vec![module("hold", TestFunction::Pass, vec![Target::Port(1)], 8)];
    // Four packets every 1 000 ticks wait for a trigger of eight.
    let source = Source { every: 1_000, burst: 4, ..source(16) };
    let mut worker = worker(plan(source, drain(&log), modules, 64), vec![]);
    let mut busy = Vec::new();
    for _ in 0..60 {
        let (now, has_work, entered) = (worker.clock().now(), worker.has_work(), worker.census().entered);
        worker.turn();
        // Packets that wait for a trigger are not work; new packets are.
        let did = worker.census().entered > entered;
        assert!(has_work || !did, "at {now:?}");
        if has_work {
            busy.push((now.0, did));
        }
        worker.clock().spend(Ticks(100));
    }
    assert_eq!(busy, [(0, true), (1_000, true), (2_000, true), (3_000, true)]);
    assert_eq!(worker.census().out, 16);
}

#[test]
fn branches_that_meet_merge_before_the_next_module() {
    let log = Log::default();
    let modules = vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(2)], 0),
        module("left", TestFunction::Pass, vec![Target::Module(3)], 0),
        module("right", TestFunction::Pass, vec![Target::Module(3)], 0),
        module("join", TestFunction::Pass, vec![Target::Port(1)], 0),
    ];
    let mut worker = worker(plan(source(32), drain(&log), modules, 64), vec![]);
    worker.turn();
    assert_eq!(worker.telemetry().counters[3].sizes[5].get(), 1, "one batch of 32, not two halves");
}

#[test]
fn a_trigger_gives_batches_of_exactly_that_many() {
    let log = Log::default();
    let modules = vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(2)], 0),
        module("left", TestFunction::Pass, vec![Target::Port(1)], 8),
        module("right", TestFunction::Pass, vec![Target::Port(1)], 8),
    ];
    let mut worker = worker(plan(source(3_200), drain(&log), modules, 256), vec![]);
    for _ in 0..100 {
        worker.turn();
    }
    let telemetry = worker.telemetry();
    for module in [1, 2] {
        let counters = &telemetry.counters[module];
        assert_eq!(counters.packets.get(), 8 * counters.sizes[3].get(), "{counters:?}");
        assert!(counters.packets.get() > 1_000);
    }
    let queued = worker.census().queued;
    assert!(queued < 16, "less than a trigger's worth in each, not {queued}");
}

#[test]
fn the_last_packets_of_a_flow_leave_within_the_hold_limit() {
    let log = Log::default();
    let modules = vec![module("wait", TestFunction::Pass, vec![Target::Port(1)], 32)];
    let mut plan = plan(source(5), drain(&log), modules, 64);
    plan.modules[0].hold = Some(Nanos(5_000));
    let mut worker = worker(plan, vec![]);
    assert_eq!(crate::drive::simulate(&mut worker, Ticks(1_000_000)), crate::drive::Ended::Finished);
    let log = log.lock().expect("no test thread has panicked");
    assert_eq!(log.len(), 5);
    assert!(log.iter().all(|&(_, _, at)| (5_000..5_100).contains(&at)), "{log:?}");
}

/// Once a run went on until the last housekeeping wake-up, which a session table requests as long as it has sessions.
#[test]
fn a_run_waits_for_held_packets_and_not_for_housekeeping() {
    let log = Log::default();
    let modules = vec![
        module("looks", TestFunction::Look(1_000), vec![Target::Module(1)], 0),
        module("holds", TestFunction::Delay(500_000), vec![Target::Port(1)], 0),
    ];
    let mut worker = worker(plan(source(5), drain(&log), modules, 64), vec![]);
    assert_eq!(crate::drive::simulate(&mut worker, Ticks(400_000)), crate::drive::Ended::TimeUp);
    let until = worker.team().waits_until().expect("packets are held");
    assert!((500_000..500_100).contains(&until.0) && !worker.team().is_quiet(), "{until:?}");
    assert_eq!(crate::drive::simulate(&mut worker, Ticks(1_000_000_000)), crate::drive::Ended::Finished);
    assert!((500_000..502_000).contains(&worker.clock().now().0), "{:?}", worker.clock().now());
    assert_eq!((worker.team().waits_until(), worker.team().is_quiet()), (None, true));
    assert_eq!(log.lock().expect("no test thread has panicked").len(), 5);
}

#[test]
fn derived_hold_limits_share_half_the_objective() {
    let slo = |path: Vec<usize>, slo| FlowPlan {
        name: format!("{path:?}"),
        path: path.into_iter().map(|module| Step { module, gate: None }).collect(),
        slo: Some(Nanos(slo)),
        percentile: forebay_units::Percentile::Of(99.0),
        min_rate: None,
    };
    let modules = vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(3), Target::Module(4)], 0),
        module("a", TestFunction::Pass, vec![Target::Module(2)], 8),
        module("b", TestFunction::Pass, vec![Target::Port(1)], 8),
        module("c", TestFunction::Pass, vec![Target::Port(1)], 8),
        module("d", TestFunction::Pass, vec![Target::Port(1)], 8),
    ];
    let mut plan = plan(source(1), drain(&Log::default()), modules, 64);
    plan.flows = vec![slo(vec![1, 2], 400_000), slo(vec![3], 100_000)];
    let mut worker = worker(plan, vec![]);
    let holds = |worker: &Worker<_, _>| worker.telemetry().counters.iter().map(|c| c.hold.get()).collect::<Vec<_>>();
    assert_eq!(holds(&worker), [0, 100_000, 100_000, 50_000, 1_000_000]);
    worker.apply(&[Action::SetTrigger { module: 2, trigger: 0 }]).expect("a module");
    assert_eq!(holds(&worker), [0, 200_000, 0, 50_000, 1_000_000], "one buffer fewer on that path");
    worker.apply(&[Action::SetHold { module: 1, hold: Nanos(7) }]).expect("a module");
    assert_eq!(holds(&worker)[1], 7);
}

#[test]
fn an_invalid_action_is_refused_and_changes_nothing() {
    let modules = vec![module("a", TestFunction::Pass, vec![Target::Port(1)], 4)];
    let mut worker = worker(plan(source(1), drain(&Log::default()), modules, 64), vec![]);
    let trigger = worker.apply(&[Action::SetTrigger { module: 0, trigger: 33 }]);
    assert_eq!(trigger, Err(ActionError::Trigger { trigger: 33, batch: 32 }));
    let module = worker.apply(&[Action::SetHold { module: 9, hold: Nanos(1) }]);
    assert_eq!(module, Err(ActionError::Module { module: 9, modules: 1 }));
    for factor in [-1.0, f64::INFINITY] {
        assert_eq!(worker.apply(&[Action::SetOffer { factor }]), Err(ActionError::Factor { factor }));
    }
    assert_eq!(worker.apply(&[Action::SetOffer { factor: 2.0 }]), Ok(()), "no source here supports it");
    assert_eq!(worker.telemetry().counters[0].trigger.get(), 4);
}

#[test]
fn a_gate_that_leads_backwards_is_refused() {
    let modules = vec![
        module("a", TestFunction::Pass, vec![Target::Port(1)], 0),
        module("b", TestFunction::Pass, vec![Target::Module(0)], 0),
    ];
    let made = Worker::<_, RunToCompletion>::new(
        plan(source(1), drain(&Log::default()), modules, 64),
        Simulated::new(Frequency::new(1e9)),
        vec![],
    );
    let error = made.err().expect("refused").to_string();
    assert!(error.contains("gate '0' of module 'b'"), "{error}");
}

#[test]
fn refused_packets_are_dropped_and_counted_and_are_no_samples_of_a_flow() {
    let log = Log::default();
    let drain = Drain { refuse: 3, ..drain(&log) };
    let mut worker = worker(plan(source(300), drain, vec![], 64), vec![]);
    while worker.turn() != Next::Never {}
    let telemetry = worker.telemetry();
    assert_eq!(telemetry.ports[1].refused.get(), 100);
    assert_eq!(telemetry.flows[0].delay.read().samples(), 200);
    assert_eq!(worker.census(), Census { entered: 300, out: 200, dropped: 100, ..Census::default() });
}

#[test]
fn an_exhausted_pool_is_counted_and_survived() {
    let log = Log::default();
    // All forty chunks wait for triggers that they cannot reach, until the hold limit.
    let targets = (1..=8).map(Target::Module).collect();
    let mut modules = vec![module("split", TestFunction::Split, targets, 0)];
    modules.extend((1..=8).map(|n| module(&format!("m{n}"), TestFunction::Pass, vec![Target::Port(1)], 32)));
    let mut worker = worker(plan(source(2_000), drain(&log), modules, 40), vec![]);
    crate::drive::simulate(&mut worker, Ticks(10_000_000_000));
    assert_eq!(worker.census(), Census { entered: 2_000, out: 2_000, ..Census::default() });
    assert!(worker.telemetry().worker.exhausted.get() > 0);
    in_order(&log);
}

#[test]
fn no_packet_remains_after_winding_up() {
    let log = Log::default();
    let modules = vec![
        module("split", TestFunction::Split, vec![Target::Module(1), Target::Module(2)], 0),
        module("wait", TestFunction::Pass, vec![Target::Port(1)], 32),
        module("hold", TestFunction::Delay(1_000_000), vec![Target::Port(1)], 0),
    ];
    let mut worker = worker(plan(source(1_000), drain(&log), modules, 256), vec![]);
    for _ in 0..3 {
        worker.turn();
    }
    let before = worker.census();
    assert!(before.queued > 0 && before.held > 0, "{before:?}");
    worker.shut_down().expect("these ports do not fail");
    let after = worker.census();
    assert_eq!((after.queued, after.held, after.missing()), (0, 0, 0), "{after:?}");
    assert_eq!(worker.telemetry().worker.held_at_close.get(), before.held);
}

#[test]
fn delay_counts_from_arrival_and_violations_are_counted() {
    let log = Log::default();
    let modules = vec![module("slow", TestFunction::Pass, vec![Target::Port(1)], 0)];
    let mut plan = plan(Source { every: 10_000, burst: 4, ..source(400) }, drain(&log), modules, 64);
    plan.flows = vec![FlowPlan {
        name: "all".into(),
        path: vec![Step { module: 0, gate: None }],
        slo: Some(Nanos(500)),
        percentile: forebay_units::Percentile::Of(99.0),
        min_rate: None,
    }];
    let mut worker = worker(plan, vec![Cost { per_batch: 600, per_packet: 10 }]);
    crate::drive::simulate(&mut worker, Ticks(10_000_000));
    let flow_telemetry = &worker.telemetry().flows[0];
    let delay = flow_telemetry.delay.read();
    assert_eq!((delay.samples(), delay.max(), flow_telemetry.violations.get()), (400, Some(640), 400));
    assert!((delay.mean().expect("samples") - 640.0).abs() < 1e-9);
}

/// Regression: a plan caused a panic if all modules of a fold, or the target of a port's packets, did not exist.
#[test]
fn a_plan_that_names_a_missing_module_or_port_is_refused() {
    let refused = |change: fn(&mut Plan)| {
        let modules = vec![
            module("a", TestFunction::Pass, vec![Target::Port(1)], 0),
            module("b", TestFunction::Pass, vec![Target::Port(1)], 0),
        ];
        let mut plan = plan(source(1), drain(&Log::default()), modules, 64);
        change(&mut plan);
        let clock = Simulated::new(Frequency::new(1e9));
        Worker::<_, RunToCompletion>::new(plan, clock, Vec::new()).err().map(|error| error.to_string())
    };
    assert_eq!(refused(|plan| plan.folds = vec![vec![0, 1]]), None);
    let folds: [fn(&mut Plan); 4] = [
        |plan| plan.folds = vec![vec![2, 3]],
        |plan| plan.folds = vec![vec![0, 2]],
        |plan| plan.folds = vec![vec![0, 0]],
        |plan| plan.folds = vec![vec![]],
    ];
    for change in folds {
        assert!(refused(change).is_some_and(|error| error.starts_with("fold 0: ")));
    }
    let module = "packets of port 'in' lead to module 2, which does not exist: allowed are the plan's modules, ports \
                  and `drop`";
    assert_eq!(refused(|plan| plan.ports[0].entry = Some(Target::Module(2))).as_deref(), Some(module));
    let port = module.replace("module 2", "port 2");
    assert_eq!(refused(|plan| plan.ports[0].entry = Some(Target::Port(2))), Some(port));
    let gate = refused(|plan| plan.modules[1].gates[0].1 = Target::Module(2));
    assert!(gate.is_some_and(|error| error.starts_with("gate '0' of module 'b' leads to module 2, which does not")));
}
