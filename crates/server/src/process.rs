//! What this process uses.

use std::fs;

/// What this process uses. A value that the kernel does not report is `None`.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// The memory that is resident, in bytes.
    pub(crate) resident_bytes: Option<u64>,
    /// The processor time, in seconds.
    pub(crate) cpu_s: Option<f64>,
}

/// Reads what this process uses from /proc.
pub(crate) fn usage() -> Usage {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    // The sum over all threads, in nanoseconds: the first field of each schedstat.
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times: Vec<u64> = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok()?.split(' ').next()?.parse().ok())
        .collect();
    let cpu_s = (!times.is_empty()).then(|| times.iter().sum::<u64>() as f64 / 1e9);
    Usage { resident_bytes: resident.map(|kilobytes| kilobytes << 10), cpu_s }
}
