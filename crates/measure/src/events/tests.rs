//! Counts another thread by the kernel's events, which every machine has. The correction for turns is tested with
//! invented readings.

use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const OWN: [Event; 3] = [Event::TaskClock, Event::ContextSwitches, Event::PageFaults];

fn own_tid() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned()
}

/// Does a known amount of work: sleeps, touches new pages, and runs steps of at least a fifth of a nanosecond each.
fn work(sleeps: u32, allocations: u32, steps: u32) {
    (0..sleeps).for_each(|_| thread::sleep(Duration::from_micros(100)));
    for _ in 0..allocations {
        // The block is so large that it comes from the kernel each time (above glibc's largest threshold, 32 MiB), with
        // no page present. A page may be as large as 2 MiB.
        let mut memory = vec![0u8; 64 << 20];
        memory.iter_mut().step_by(2 << 20).for_each(|byte| *byte = std::hint::black_box(1));
        std::hint::black_box(&memory);
    }
    for step in 0..steps {
        std::hint::black_box(step);
    }
}

#[test]
fn another_thread_is_counted_while_it_does_known_things() {
    let (sender, receiver) = channel();
    let (go, may_go) = channel::<()>();
    let thread = thread::spawn(move || {
        let _ = sender.send(own_tid());
        while may_go.recv().is_ok() {
            work(50, 5, 50_000_000);
            let _ = sender.send(0);
        }
    });
    let tid = receiver.recv().expect("it runs");
    let mut group = match PerfGroup::open(OWN, tid) {
        Ok(group) => group,
        Err(reason @ (Unavailable::Forbidden { .. } | Unavailable::System { .. })) => {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {reason}\n")));
            return;
        }
        Err(reason) => panic!("{reason}"),
    };
    let mut readings = [Reading::default(); 3];
    let mut spans = [Duration::ZERO; 2];
    group.read(&mut readings[0]).expect("it can be read");
    for round in 0..2 {
        let began = Instant::now();
        go.send(()).expect("it waits");
        receiver.recv().expect("it replies");
        group.read(&mut readings[round + 1]).expect("it can be read");
        spans[round] = began.elapsed();
    }
    for round in 0..2 {
        let [nanos, switches, faults] = readings[round + 1].since(&readings[round]).expect("it counted");
        let most = spans[round].as_nanos() as f64 * 1.05;
        assert!(nanos >= 10e6 && nanos <= most, "{nanos} ns on a core of {most}");
        assert!(switches >= 50.0, "{switches} switches in 50 sleeps");
        assert!(faults >= 5.0 * 32.0, "{faults} faults at 5 times 64 MiB");
        assert_eq!(readings[round + 1].share(&readings[round]), 1.0);
    }
    drop(go);
    thread.join().expect("it ends well");
    // The counts remain readable after the thread has ended.
    let mut last = Reading::default();
    group.read(&mut last).expect("it can be read");
    assert!(last.counts[0] >= readings[2].counts[0]);
}

#[test]
fn ended_threads_and_missing_events_give_errors() {
    let gone = thread::spawn(own_tid).join().expect("it ends well");
    match PerfGroup::open(OWN, gone) {
        Err(Unavailable::NoThread(tid)) => assert_eq!(tid, gone),
        Err(reason @ (Unavailable::Forbidden { .. } | Unavailable::System { .. })) => {
            drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("skipped: {reason}\n")))
        }
        other => panic!("{other:?}"),
    }
    // Either the processor counts and the counts are not zero, or there is a reason.
    match PerfGroup::open([Event::Instructions, Event::CoreCycles], own_tid()) {
        Ok(mut group) => {
            let (mut before, mut after) = (Reading::default(), Reading::default());
            group.read(&mut before).expect("it can be read");
            work(0, 0, 1_000_000);
            group.read(&mut after).expect("it can be read");
            let [instructions, cycles] = after.since(&before).expect("it counted");
            assert!(instructions > 10_000.0 && cycles > 10_000.0, "{instructions} in {cycles}");
        }
        Err(reason) => {
            println!("{reason}");
            assert!(!matches!(reason, Unavailable::NoThread(_)), "{reason}");
        }
    }
}

#[test]
fn a_group_that_never_had_its_turn_has_no_counts() {
    let before = Reading { enabled: 100, running: 50, counts: [5] };
    assert_eq!(Reading { enabled: 900, ..before }.since(&before), None);
    assert_eq!(Reading { enabled: 900, ..before }.share(&before), 0.0);
    assert_eq!(before.share(&before), 0.0);
    let names: std::collections::BTreeSet<_> = OWN.iter().map(|event| event.to_string()).collect();
    assert_eq!(names.len(), 3);
    assert!(Unavailable::None(Event::L1dMisses).to_string().contains("no counter for l1d_misses"));
}

proptest! {
    /// A constant rate is reported correctly for any share of the time in which the group counted.
    #[test]
    fn counts_are_scaled_for_the_turns_of_other_groups(
        rates in prop::array::uniform3(0u64..100_000), began in 0u64..1 << 40, span in 1_000u64..1 << 32,
        part in 0.001f64..=1.0, offset in any::<[u64; 3]>(),
    ) {
        let before = Reading { enabled: began, running: began / 3, counts: offset };
        let running = ((span as f64 * part) as u64).max(1);
        // Rates are in thousandths per nanosecond.
        let counted = rates.map(|rate| (u128::from(rate) * u128::from(running) / 1_000) as u64);
        let mut counts = offset;
        counts.iter_mut().zip(counted).for_each(|(count, more)| *count = count.wrapping_add(more));
        let after = Reading { enabled: began + span, running: began / 3 + running, counts };
        let scaled = after.since(&before).expect("it counted");
        for (scaled, rate) in scaled.into_iter().zip(rates) {
            let truth = rate as f64 * span as f64 / 1_000.0;
            // A count is a whole number: it may be off by one, scaled up.
            let slack = span as f64 / running as f64 + truth * 1e-9;
            prop_assert!((scaled - truth).abs() <= slack, "{scaled} for {truth}");
        }
        prop_assert!((after.share(&before) - running as f64 / span as f64).abs() < 1e-9);
    }
}
