//! Checks the figures of a recording: files may come from anywhere, and controllers rely on valid figures.

use forebay_packet::MAX_BATCH;
use forebay_protocol::Layout;

use super::{Begin, Period};

/// The shortest period in seconds.
const SHORTEST: f64 = 1e-6;
/// A limit for packets per second.
const FASTEST: f64 = 1e15;
/// A limit for times, in seconds.
const LONGEST: f64 = 1e9;
/// A limit for workers, modules and flows.
const MOST_ITEMS: usize = 1 << 15;
/// A limit for packets, calls or turns in a period. The sum over all modules fits 64 bits.
const MOST_COUNTED: u64 = 1 << 48;

/// The result of a check. The error names the figure and the allowed range.
type Checked = Result<(), String>;

/// Returns the error `wrong` if a figure is not right.
fn check(right: bool, wrong: impl FnOnce() -> String) -> Checked {
    if right { Ok(()) } else { Err(wrong()) }
}

/// Checks a time. `what` is the figure's name in the error, here and below.
fn time(what: &str, seconds: f64) -> Checked {
    check((0.0..=LONGEST).contains(&seconds), || format!("{what} of {seconds:?} s: allowed are 0 to {LONGEST} s"))
}

/// Checks a count in a period.
fn count(what: &str, count: u64) -> Checked {
    check(count <= MOST_COUNTED, || format!("{what}: {count}: allowed are 0 to {MOST_COUNTED}"))
}

/// Checks the number of a module or flow.
fn number(what: &str, at: usize, of: usize) -> Checked {
    check(at < of, || format!("{what} {at} does not exist: allowed are numbers below {of}"))
}

/// Checks a `begin` line.
pub(super) fn begin(begin: &Begin) -> Checked {
    let Begin { period_s, guard, layout, .. } = begin;
    check((SHORTEST..=LONGEST).contains(period_s), || {
        format!("a decision period of {period_s:?} s: allowed are {SHORTEST} to {LONGEST} s")
    })?;
    check((0.0..1.0).contains(guard), || format!("a guard of {guard:?}: allowed is 0 to less than 1"))?;
    let (batch, modules) = (layout.batch, layout.modules.len());
    check((1..=MAX_BATCH).contains(&batch), || format!("batches of {batch}: allowed are 1 to {MAX_BATCH}"))?;
    check((1..=MOST_ITEMS).contains(&layout.workers), || {
        format!("{} workers: allowed are 1 to {MOST_ITEMS}", layout.workers)
    })?;
    for (what, count) in [("modules", modules), ("flows", layout.flows.len())] {
        check(count <= MOST_ITEMS, || format!("{count} {what}: allowed are up to {MOST_ITEMS}"))?;
    }
    for (at, module) in layout.modules.iter().enumerate() {
        number("module", module.leader, modules)?;
        module.workers.iter().try_for_each(|worker| number("worker", *worker, layout.workers))?;
        module.before.iter().try_for_each(|before| number("module", *before, modules))?;
        // Arrivals are computed module by module, in ascending order, each from the module before it.
        let is_ordered = module.entry || module.before.len() != 1 || module.before[0] < at;
        check(is_ordered, || {
            format!(
                "module '{}': its packets come from module {}: allowed is an earlier module",
                module.name, module.before[0]
            )
        })?;
    }
    for flow in &layout.flows {
        flow.path.iter().try_for_each(|at| number("module", *at, modules))?;
        let sorted = flow.path.windows(2).all(|pair| pair[0] < pair[1]);
        check(sorted, || format!("flow '{}': its modules are not in ascending order", flow.name))?;
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

/// Checks a period. The caller has checked that its numbers of modules and flows are those of the layout.
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
        format!(
            "this period has {} workers, but the recorded pipeline has {}: use a file that `forebay run --decisions` \
             wrote",
            snapshot.workers.len(),
            layout.workers
        )
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
        number("module", change.module, modules)?;
        trigger(change.to)?;
        change.flow.map_or(Ok(()), |flow| number("flow", flow, flows))?;
    }
    actions
        .actions
        .iter()
        .filter_map(|action| action.module())
        .try_for_each(|module| number("module", module, modules))?;
    actions.unkept.iter().try_for_each(|unkept| number("flow", unkept.flow, flows))?;
    actions.short.iter().try_for_each(|short| number("flow", short.flow, flows))
}
