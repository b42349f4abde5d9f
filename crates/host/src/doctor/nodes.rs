//! Checks that cores, memory and network cards of one pipeline are on one NUMA node.

use super::cores::{is_are, no_cores};
use super::{Case, Check, Observations, State, Verdict, listed};
use crate::fact::Evidence;
use crate::interface::Interface;

pub(super) const NUMA_MISMATCH: Check = Check {
    id: "numa-mismatch",
    looks_at: "network cards are on the node of the workers that receive from them",
    cost: "Packets cross the link between sockets: a worker loads a cache line in about 98 cycles from the other \
           node's cache and in 280 from its memory, compared with 50 and 155 on the same node (NALM's figures).",
    fix: "give the workers cores of the card's node, or put the card into a slot of the workers' node",
    judge: numa_mismatch,
};

/// A card on another node than its workers costs performance. Without a pipeline, all cards that are up are checked for
/// all workers, and the result is "may cost".
fn numa_mismatch(case: &Case<'_>) -> Verdict {
    let cores = case.cores();
    if cores.is_empty() {
        return no_cores();
    }
    match case.has_one_node() {
        None => return Verdict::unknown(case.host.nodes_online.why().unwrap_or_default()),
        Some(true) => return Verdict::ok("the machine has one node", vec![case.host.nodes_online.evidence()]),
        Some(false) => {}
    }
    let guessed = case.intent.ports.is_empty() && case.intent.pipeline.is_none();
    let mut subjects: Vec<(&Interface, Vec<usize>)> = Vec::new();
    let mut each = Observations::default();
    for port in &case.intent.ports {
        let Some(name) = port.interface.as_deref().filter(|_| !port.elsewhere) else { continue };
        let on: Vec<usize> = port.workers.iter().filter_map(|worker| case.intent.workers.get(*worker)?.core).collect();
        match case.host.interface(name) {
            Some(interface) => subjects.push((interface, on)),
            None if port.kind == "tap" => {}
            None => each.unknown.push(format!("{}/{name} is missing", crate::interface::FOLDER)),
        }
    }
    if guessed {
        let up = |interface: &&Interface| interface.state.value().is_some_and(|state| state == "up");
        subjects.extend(case.host.interfaces.iter().filter(up).map(|interface| (interface, cores.iter().collect())));
    }
    subjects.retain(|(interface, _)| interface.has_device);
    if subjects.is_empty() && each.unknown.is_empty() {
        let what = if guessed { "no network card is up" } else { "no port is on a network card" };
        return Verdict::unknown(what);
    }
    let mut near = Vec::new();
    for (interface, on) in subjects {
        let Some(node) = interface.node.value() else {
            each.unknown(&interface.node);
            continue;
        };
        let Some(node) = *node else {
            each.unknown.push(format!(
                "{} contains -1: the firmware does not report the node of {}",
                interface.node.path, interface.name
            ));
            continue;
        };
        let far: Vec<_> = on
            .into_iter()
            .filter(|core| case.host.cpu(*core).is_some_and(|cpu| cpu.node.is_some_and(|at| at != node)))
            .collect();
        if far.is_empty() {
            each.fine.push(interface.node.evidence());
            continue;
        }
        let cpus = case.host.node(node).map(|node| &node.cpus);
        let far = far.into_iter().collect();
        let others: Vec<_> =
            case.host.nodes.iter().filter(|other| other.number != node).map(|other| other.cpus.evidence()).collect();
        each.wrong(
            format!("{} is on node {node}, but {} not", interface.name, is_are(&far)),
            [interface.node.evidence()].into_iter().chain(others),
        );
        if let Some(list) = cpus.and_then(|cpus| cpus.value()) {
            near.push(format!("# cores near {}: {list} (`core:` under `workers:`, or `--core`)", interface.name));
        }
    }
    let state = if guessed { State::May } else { State::Costs };
    Verdict::of_each(each, |wrong| (state, listed(wrong), near), "cards and workers are on the same nodes")
}

pub(super) const NUMA_MEMORY: Check = Check {
    id: "numa-memory",
    looks_at: "each worker's node has memory, and has enough huge pages if another node has any",
    cost: "Packets, tables and queues are on another node: a worker loads a cache line in 98 cycles from that node's \
           cache and in 280 from its memory, compared with 50 and 155 on its own node (NALM's figures).",
    fix: "huge pages on the workers' node (`/sys/devices/system/node/nodeN/hugepages`), and a cpuset whose \
           `cpuset.mems` includes this node",
    judge: numa_memory,
};

/// Costs performance if a worker's node has no memory, if the process may not use the node's memory, or if the node has
/// too few huge pages and another node has some.
fn numa_memory(case: &Case<'_>) -> Verdict {
    if case.cores().is_empty() {
        return no_cores();
    }
    match case.has_one_node() {
        None => return Verdict::unknown(case.host.nodes_online.why().unwrap_or_default()),
        Some(true) => return Verdict::ok("the machine has one node", vec![case.host.nodes_online.evidence()]),
        Some(false) => {}
    }
    let Some(nodes) = case.nodes() else { return Verdict::unknown("the node of a worker's core is unknown") };
    let allowed = &case.host.process.memory_nodes;
    let (mut each, mut remedy) = (Observations::default(), Vec::new());
    if allowed.value().is_none() {
        each.unknown(allowed);
    }
    let elsewhere = |node: usize| {
        case.host
            .nodes
            .iter()
            .any(|other| other.number != node && other.huge_free.value().is_some_and(|pages| *pages > 0))
    };
    for number in nodes.iter() {
        let Some(node) = case.host.node(number) else { continue };
        if allowed.value().is_some_and(|allowed| !allowed.contains(number)) {
            each.wrong(format!("this process is not allowed to use memory of node {number}"), [allowed.evidence()]);
            remedy.push(format!(
                "# add node {number} to `cpuset.mems` of the process' control group, or run without `numactl --membind`"
            ));
            continue;
        }
        match node.memory_kib.value() {
            None => each.unknown(&node.memory_kib),
            Some(0) => {
                each.wrong(format!("node {number} has no memory"), [node.memory_kib.evidence()]);
                remedy.push("# use cores of a node that has memory".to_owned());
                continue;
            }
            Some(_) => each.fine.push(node.memory_kib.evidence()),
        }
        let workers = case
            .intent
            .workers
            .iter()
            .filter(|worker| worker.core.and_then(|core| case.host.cpu(core)?.node) == Some(number));
        let (Some(size), Some(free)) = (case.host.memory.huge_kib.value(), node.huge_free.value()) else { continue };
        let needed = workers.count() as u64 * super::memory::pages(case.intent.pool_bytes, *size);
        if *free < needed && elsewhere(number) {
            each.wrong(
                format!(
                    "node {number} has {free} free huge pages, but its workers' pools need {needed}; another node \
                     has some"
                ),
                [node.huge_free.evidence()],
            );
            let total = node.huge_total.value().copied().unwrap_or(0) + needed - free;
            remedy.push(format!("echo {total} > {}", node.huge_total.path));
        }
    }
    Verdict::of_each(each, |wrong| (State::Costs, listed(wrong), remedy), "the workers' nodes have enough memory")
}

pub(super) const NUMA_WORKERS: Check = Check {
    id: "numa-workers",
    looks_at: "workers are on one node",
    cost: "A cache line that one worker passes to a worker on another node costs 98 to 280 cycles instead of 50 to 76 \
           (NALM's figures). Workers that share no data lose nothing.",
    fix: "cores of one node",
    judge: numa_workers,
};

/// Workers on several nodes may cost performance.
fn numa_workers(case: &Case<'_>) -> Verdict {
    if case.cores().is_empty() {
        return no_cores();
    }
    if case.cores().len() == 1 {
        return Verdict::ok("there is only one worker", Vec::new());
    }
    let evidence: Vec<Evidence> = case.host.nodes.iter().map(|node| node.cpus.evidence()).collect();
    match case.nodes() {
        None => Verdict::unknown("the node of a worker's core is unknown"),
        Some(nodes) if nodes.len() <= 1 => Verdict::ok("all workers are on one node", evidence),
        Some(nodes) => {
            let first =
                nodes.iter().next().and_then(|node| case.host.node(node)?.cpus.value().cloned()).unwrap_or_default();
            let remedy = vec![format!("# use cores of one node, such as {first} (`core:` under `workers:`)")];
            Verdict::found(State::May, format!("workers are on nodes {nodes}"), evidence, remedy)
        }
    }
}

pub(super) const NUMA_BALANCING: Check = Check {
    id: "numa-balancing",
    looks_at: "the kernel does not move memory between nodes by itself",
    cost: "To find out which CPU uses a page, the kernel unmaps it from time to time. Each such page causes a fault in \
           a worker (Linux Documentation/admin-guide/sysctl/kernel.rst, numa_balancing).",
    fix: "`sysctl -w kernel.numa_balancing=0`",
    judge: numa_balancing,
};

/// Balancing on a machine with several nodes may cost performance.
fn numa_balancing(case: &Case<'_>) -> Verdict {
    let balancing = &case.host.kernel.numa_balancing;
    match (case.has_one_node(), balancing.value()) {
        (Some(true), _) => Verdict::ok("the machine has one node", vec![case.host.nodes_online.evidence()]),
        (None, _) => Verdict::unknown(case.host.nodes_online.why().unwrap_or_default()),
        (_, None) => Verdict::unknown(balancing.why().unwrap_or_default()),
        (_, Some(false)) => Verdict::ok("balancing is off", vec![balancing.evidence()]),
        (_, Some(true)) => {
            let remedy = vec!["sysctl -w kernel.numa_balancing=0".to_owned()];
            Verdict::found(State::May, "balancing is on", vec![balancing.evidence()], remedy)
        }
    }
}
