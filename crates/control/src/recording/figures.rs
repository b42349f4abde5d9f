//! Whether figures of a recording can be: files come from anywhere, and controllers rely on what the engine tells them.

use forebay_graph::Layout;
use forebay_packet::MAX_BATCH;

use super::{Begin, Period};

/// The shortest period, in seconds.
const SHORTEST: f64 = 1e-6;
/// More packets a second than anything has.
const FASTEST: f64 = 1e15;
/// More seconds than anything takes.
const LONGEST: f64 = 1e9;
/// More workers, modules or flows than anything has.
const MOST_PLACES: usize = 1 << 15;
/// More packets, calls or turns than a period has. Those of as many modules add up to less than 64 bits hold.
const MOST_COUNTED: u64 = 1 << 48;

type Checked = Result<(), String>;

fn check(right: bool, wrong: impl FnOnce() -> String) -> Checked {
    if right { Ok(()) } else { Err(wrong()) }
}

/// A time that anything may take.
fn time(what: &str, seconds: f64) -> Checked {
    check((0.0..=LONGEST).contains(&seconds), || format!("{what} of {seconds:?} s: allowed are 0 to {LONGEST} s"))
}

/// How many there were in a period.
fn count(what: &str, count: u64) -> Checked {
    check(count <= MOST_COUNTED, || format!("{what}: {count}: allowed are 0 to {MOST_COUNTED}"))
}

/// A module or flow, by its number.
fn place(what: &str, at: usize, of: usize) -> Checked {
    check(at < of, || format!("{what} {at}: there are {of}, from 0"))
}

/// What is controlled.
pub(super) fn begin(begin: &Begin) -> Checked {
    let Begin { period_s, guard, layout, .. } = begin;
    check((SHORTEST..=LONGEST).contains(period_s), || {
        format!("a decision every {period_s:?} s: allowed are {SHORTEST} to {LONGEST} s")
    })?;
    check((0.0..1.0).contains(guard), || format!("a guard of {guard:?}: allowed is 0 to less than 1"))?;
    let (batch, modules) = (layout.batch, layout.modules.len());
    check((1..=MAX_BATCH).contains(&batch), || format!("batches of {batch}: allowed are 1 to {MAX_BATCH}"))?;
    check((1..=MOST_PLACES).contains(&layout.workers), || {
        format!("{} workers: allowed are 1 to {MOST_PLACES}", layout.workers)
    })?;
    for (what, count) in [("modules", modules), ("flows", layout.flows.len())] {
        check(count <= MOST_PLACES, || format!("{count} {what}: allowed are up to {MOST_PLACES}"))?;
    }
    for (at, module) in layout.modules.iter().enumerate() {
        place("module", module.leader, modules)?;
        module.workers.iter().try_for_each(|worker| place("worker", *worker, layout.workers))?;
        module.before.iter().try_for_each(|before| place("module", *before, modules))?;
        // Arrivals are computed from module to module.
        let is_ordered = module.entry || module.before.len() != 1 || module.before[0] < at;
        check(is_ordered, || {
            format!(
                "module '{}': its packets come from module {}, which is not before it",
                module.name, module.before[0]
            )
        })?;
    }
    for flow in &layout.flows {
        flow.path.iter().try_for_each(|at| place("module", *at, modules))?;
        let sorted = flow.path.windows(2).all(|pair| pair[0] < pair[1]);
        check(sorted, || format!("flow '{}': its modules are not in order, each once", flow.name))?;
        let slo = flow.slo_s.unwrap_or(1.0);
        check(slo > 0.0 && slo <= LONGEST, || {
            format!("flow '{}': an objective of {slo:?} s: allowed is more than 0 to {LONGEST} s", flow.name)
        })?;
        let percentile = flow.percentile;
        check(percentile.is_sound(), || {
            let percentile = percentile.share().unwrap_or(0.0) * 100.0;
            format!("flow '{}': percentile {percentile}: allowed is more than 0 to 100, or mean", flow.name)
        })?;
        let bits = flow.min_rate_bits.unwrap_or(1.0);
        check(bits > 0.0 && bits <= FASTEST, || {
            format!("flow '{}': a rate of {bits:?} bps: allowed is more than 0 to {FASTEST} bps", flow.name)
        })?;
        let rate = flow.min_rate.unwrap_or(1.0);
        check(rate > 0.0 && rate <= FASTEST, || {
            format!("flow '{}': a rate of {rate:?} pps: allowed is more than 0 to {FASTEST} pps", flow.name)
        })?;
    }
    Ok(())
}

/// A period of that pipeline, whose modules and flows are as many.
pub(super) fn period(layout: &Layout, period: &Period) -> Checked {
    let Period { snapshot, actions } = period;
    check((SHORTEST..=LONGEST).contains(&snapshot.period_s), || {
        format!("a period of {:?} s: allowed are {SHORTEST} to {LONGEST} s", snapshot.period_s)
    })?;
    time("a time", snapshot.at_s)?;
    let trigger = |trigger: usize| {
        check(trigger <= layout.batch, || {
            format!("a trigger of {trigger}: allowed are 0 to {}, the largest batch", layout.batch)
        })
    };
    for module in &snapshot.modules {
        let (fixed, each) = module.cost_s;
        let times = [module.timed.2, module.hold_s, module.oldest_s, fixed, each];
        times.into_iter().try_for_each(|seconds| time("a module's time", seconds))?;
        trigger(module.trigger)?;
        let packets = [module.packets, module.came, module.queued, module.arrived.0, module.timed.1];
        packets.into_iter().try_for_each(|packets| count("a module's packets", packets))?;
        let calls = [module.calls, module.arrived.1, module.timed.0];
        calls.into_iter().try_for_each(|calls| count("a module's calls", calls))?;
    }
    for flow in &snapshot.flows {
        [flow.packets, flow.violations].into_iter().try_for_each(|packets| count("a flow's packets", packets))?;
    }
    let mut undisturbed = snapshot.flows.iter().filter_map(|flow| flow.undisturbed_s);
    undisturbed.try_for_each(|seconds| time("a delay", seconds))?;
    for delay in snapshot.flows.iter().filter_map(|flow| flow.delay_s) {
        let delays = [delay.mean, delay.p95, delay.p99, delay.chosen];
        delays.into_iter().try_for_each(|seconds| time("a delay", seconds))?;
    }
    check(snapshot.workers.len() == layout.workers, || {
        format!("a period with {} workers: the pipeline has {}", snapshot.workers.len(), layout.workers)
    })?;
    for worker in &snapshot.workers {
        let times = [worker.busy_s, worker.long_s, worker.away_s.unwrap_or(0.0)];
        times.into_iter().try_for_each(|seconds| time("a worker's time", seconds))?;
        worker
            .long_turns
            .into_iter()
            .chain([worker.busy_turns])
            .try_for_each(|turns| count("a worker's turns", turns))?;
        let waits = worker.port_wait_s.map_or([0.0; 4], |wait| [wait.mean, wait.p95, wait.p99, wait.chosen]);
        waits.into_iter().try_for_each(|seconds| time("a wait", seconds))?;
    }
    let (modules, flows) = (layout.modules.len(), layout.flows.len());
    for change in &actions.changes {
        place("module", change.module, modules)?;
        trigger(change.to)?;
        change.flow.map_or(Ok(()), |flow| place("flow", flow, flows))?;
    }
    actions.all.iter().filter_map(|action| action.module()).try_for_each(|module| place("module", module, modules))?;
    actions.unkept.iter().try_for_each(|unkept| place("flow", unkept.flow, flows))?;
    actions.short.iter().try_for_each(|short| place("flow", short.flow, flows))
}
