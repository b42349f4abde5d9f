//! Checks that huge pages are available for packet pools.

use super::{Case, Check, State, Verdict};

pub(super) const HUGE_PAGES: Check = Check {
    id: "huge-pages",
    looks_at: "enough huge pages are free for the workers' packet pools",
    cost: "With small pages, a pool has more pages than the processor's TLB holds, so address translation takes more \
           time.",
    fix: "`sysctl -w vm.nr_hugepages=N`, or for one node `echo N > \
           /sys/devices/system/node/nodeN/hugepages/hugepages-2048kB/nr_hugepages`",
    judge: huge_pages,
};

/// Returns the number of pages of `kib` KiB for a pool of `bytes` bytes.
pub(super) fn pages(bytes: u64, kib: u64) -> u64 {
    bytes.div_ceil(kib.saturating_mul(1_024).max(1))
}

/// Too few free huge pages cost performance if transparent huge pages are switched off. Otherwise, they may cost
/// performance.
fn huge_pages(case: &Case<'_>) -> Verdict {
    let memory = &case.host.memory;
    let (Some(size), Some(total), Some(free)) =
        (memory.huge_kib.value(), memory.huge_total.value(), memory.huge_free.value())
    else {
        let why = [memory.huge_kib.why(), memory.huge_total.why(), memory.huge_free.why()];
        return Verdict::unknown(why.into_iter().flatten().next().unwrap_or_default());
    };
    let reserved = memory.huge_reserved.value().copied().unwrap_or(0);
    let (available, workers) = (free.saturating_sub(reserved), case.intent.workers.len() as u64);
    let needed = workers * pages(case.intent.pool_bytes, *size);
    let mut evidence = vec![memory.huge_free.evidence()];
    if reserved > 0 {
        evidence.push(memory.huge_reserved.evidence());
    }
    let want = format!("{needed} pages of {size} KiB for {workers} pool{}", if workers == 1 { "" } else { "s" });
    if available >= needed {
        return Verdict::ok(format!("{available} pages are free, and {want} are needed"), evidence);
    }
    // If there are no huge pages, a pool requests transparent huge pages (`madvise`).
    let never = memory.transparent.value().is_some_and(|chosen| chosen == "never");
    if memory.transparent.value().is_some() {
        evidence.push(memory.transparent.evidence());
    }
    let instead = match memory.transparent.value() {
        Some(_) if never => "; transparent huge pages are switched off",
        Some(_) => "; transparent huge pages are used instead if memory is not fragmented",
        None => "; it is unknown whether transparent huge pages are available",
    };
    let has = if *total == 0 { "there are none".to_owned() } else { format!("{available} of {total} are free") };
    let says = format!("{has}, and {want} are needed{instead}");
    let nodes: Vec<_> = case.nodes().into_iter().flat_map(|nodes| nodes.iter().collect::<Vec<_>>()).collect();
    let missing = total.saturating_add(needed - available);
    let remedy = match nodes.as_slice() {
        [node] if case.has_one_node() == Some(false) => {
            let node =
                case.host.node(*node).map(|node| (node.huge_total.path.clone(), node.huge_total.value().copied()));
            node.map(|(path, total)| format!("echo {} > {path}", total.unwrap_or(0) + needed - available))
        }
        _ => None,
    };
    let remedy = remedy.unwrap_or_else(|| format!("sysctl -w vm.nr_hugepages={missing}"));
    let lasting =
        "# at every boot: a line `vm.nr_hugepages = N` in /etc/sysctl.d, or hugepages=N on the kernel's command line"
            .to_owned();
    Verdict::found(if never { State::Costs } else { State::May }, says, evidence, vec![remedy, lasting])
}
