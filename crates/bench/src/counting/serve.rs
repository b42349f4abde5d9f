//! The process that runs under the instruction counter.

use std::sync::Arc;

use forebay_graph::{
    Cost, Function, Next, OpenPort, Plan, RunToCompletion, Scheduler, WeightedFair, Worker, drive::simulate_team_by,
};
use forebay_instance::{SimulatedTeam, Simulation, StartError};
use forebay_measure::Simulated;
use forebay_protocol::SchedulerKind;
use forebay_units::{Nanos, Ticks};

use super::{CountedBuild, Extent, Served};
use crate::allocator;
use crate::named::{NAMES, Named, NamedPort, PortCalls};

/// The simulated time between two checks of the number of packets.
const SLICE: Nanos = Nanos(10_000);
/// The number of slices after which counting ends even if too few packets entered.
const PATIENCE: usize = 100_000;
/// The simulated cost of a module's call, similar to real functions. So packets are as far apart in time as on a busy
/// worker: meters and timers see time pass, and a scheduler that shares time has time to share.
const COST: Cost = Cost { per_batch: 100, per_packet: 10 };

/// Runs the counted pipeline and returns its packets and calls. `NAMES` modules and ports, from the index `first` on,
/// are called through named functions, so that callgrind counts each of them separately. `load` creates the plans, one
/// per worker. If the allocator of this process is [`AligningAllocator`](allocator::AligningAllocator), its memory
/// blocks start at pages from this call on ([`align_to_pages`](allocator::align_to_pages)).
///
/// # Errors
/// The pipeline cannot be created.
pub fn serve<E: From<StartError> + Send>(
    load: impl FnOnce() -> Result<Vec<Plan>, E> + Send,
    first: usize,
    extent: Extent,
) -> Result<Served, E> {
    allocator::align_to_pages();
    std::thread::scope(|scope| {
        let served = scope.spawn(move || Ok(serve_plans(load()?, first, extent)?)).join();
        served.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Wraps the modules and ports from the index `first` on, saturates all sources, and runs the plans. Indices count
/// modules first, then ports. The calls of all ports are counted.
fn serve_plans(mut plans: Vec<Plan>, first: usize, extent: Extent) -> Result<Served, StartError> {
    let calls: Vec<Arc<PortCalls>> = plans[0].ports.iter().map(|_| Arc::default()).collect();
    for plan in &mut plans {
        let modules = plan.modules.iter_mut().enumerate().skip(first).take(NAMES);
        for (number, module) in modules {
            module.function = module.function.take().map(|function| {
                let named: Box<dyn Function> = Box::new(Named::new(function, number - first));
                named
            });
        }
        let modules = plan.modules.len();
        for (at, port) in plan.ports.iter_mut().enumerate() {
            let number = (modules + at).checked_sub(first).filter(|number| *number < NAMES);
            port.open = port.open.take().map(|mut open| {
                open.port.schedule().into_iter().for_each(|source| source.saturate());
                OpenPort { port: Box::new(NamedPort::new(open.port, number, Arc::clone(&calls[at]))), ..open }
            });
        }
    }
    let functions = plans[0].modules.iter().map(|module| module.kind.to_owned()).collect();
    let port_kinds = plans[0].ports.iter().map(|port| port.kind.to_owned()).collect();
    let (batch, folds) = (plans[0].batch, plans[0].folds.clone());
    let served = match plans[0].scheduler {
        SchedulerKind::RunToCompletion => serve_with::<RunToCompletion>(plans, extent, &calls),
        SchedulerKind::WeightedFair => serve_with::<WeightedFair>(plans, extent, &calls),
    };
    served.map(|served| Served { functions, folds, port_kinds, batch, build: CountedBuild::this(), ..served })
}

/// Runs the plans with one type of scheduler: first the uncounted packets, then the counted ones.
fn serve_with<S: Scheduler>(plans: Vec<Plan>, extent: Extent, calls: &[Arc<PortCalls>]) -> Result<Served, StartError> {
    let costs = vec![COST; plans[0].modules.len()];
    let SimulatedTeam { mut workers, .. } = SimulatedTeam::<S>::new(plans, &costs, None)?;
    let mut until = Ticks::ZERO;
    run(&mut workers, &mut until, extent.before, Worker::turn);
    let before = Tally::of(&workers, calls);
    run(&mut workers, &mut until, extent.before + extent.packets, |worker| {
        // Turns without work are not counted: another figure, the busy share of the time, reports them.
        if worker.has_work() { counted(worker) } else { worker.turn() }
    });
    Ok(Tally::of(&workers, calls).since(&before))
}

/// Runs until `packets` packets have entered since the start, but at most [`PATIENCE`] slices of simulated time.
/// `until` is the time up to which the workers have run, and is advanced.
fn run<S: Scheduler>(
    workers: &mut [Worker<Simulated, S>],
    until: &mut Ticks,
    packets: u64,
    turn: impl Fn(&mut Worker<Simulated, S>) -> Next + Copy,
) {
    let slice = Simulation::frequency().ticks(SLICE);
    for _ in 0..PATIENCE {
        if entered(workers) >= packets {
            return;
        }
        *until += slice;
        simulate_team_by(workers, *until, turn);
    }
}

/// Runs a turn whose instructions are counted: [`INSIDE`](super::INSIDE) matches the symbol of this function. The code
/// that calls turns in simulated time and allocates memory is outside of it, and is not counted.
#[inline(never)]
fn counted<S: Scheduler>(worker: &mut Worker<Simulated, S>) -> Next {
    worker.turn()
}

/// Returns the number of packets that entered through all ports since the start.
fn entered<S: Scheduler>(workers: &[Worker<Simulated, S>]) -> u64 {
    let ports = |worker: &Worker<Simulated, S>| {
        worker.telemetry().ports.iter().map(|port| port.counters.received.get()).sum::<u64>()
    };
    workers.iter().map(ports).sum()
}

/// The packets that entered, and the packets and calls of modules and ports, since the start.
struct Tally {
    packets: u64,
    /// By module: its name, packets and calls.
    modules: Vec<(String, u64, u64)>,
    /// By port: its name, received packets and sent packets.
    ports: Vec<(String, u64, u64)>,
    /// By port: receive calls that returned packets, and send calls.
    port_calls: Vec<[u64; 2]>,
}

impl Tally {
    /// Reads the counts of all workers, added up by module and by port. All workers have the same modules and ports in
    /// the same order.
    fn of<S: Scheduler>(workers: &[Worker<Simulated, S>], calls: &[Arc<PortCalls>]) -> Self {
        let mut modules: Vec<(String, u64, u64)> = Vec::new();
        let mut ports = modules.clone();
        for worker in workers {
            let telemetry = worker.telemetry();
            for (at, port) in telemetry.ports.iter().enumerate() {
                if at == ports.len() {
                    ports.push((port.name.clone(), 0, 0));
                }
                ports[at].1 += port.counters.received.get();
                ports[at].2 += port.counters.sent.get();
            }
            for (at, (module, counters)) in telemetry.modules.iter().zip(&*telemetry.counters).enumerate() {
                if at == modules.len() {
                    modules.push((module.name.clone(), 0, 0));
                }
                modules[at].1 += counters.packets.get();
                modules[at].2 += counters.batches();
            }
        }
        let port_calls = calls.iter().map(|calls| [calls.receive.get(), calls.send.get()]).collect();
        Self { packets: entered(workers), modules, ports, port_calls }
    }

    /// Returns the counts since `before`. The fields that describe the pipeline are left empty.
    fn since(self, before: &Self) -> Served {
        let since = |now: Vec<(String, u64, u64)>, before: &[(String, u64, u64)]| {
            let pairs = now.into_iter().zip(before);
            pairs.map(|((name, one, other), before)| (name, one - before.1, other - before.2)).collect()
        };
        Served {
            packets: self.packets - before.packets,
            modules: since(self.modules, &before.modules),
            ports: since(self.ports, &before.ports),
            port_calls: self
                .port_calls
                .iter()
                .zip(&before.port_calls)
                .map(|(now, was)| [now[0] - was[0], now[1] - was[1]])
                .collect(),
            ..Served::default()
        }
    }
}
