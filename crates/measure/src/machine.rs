//! The machine's identity, and binding a thread to one of its cores.

use std::fs;

use forebay_protocol::report::Cpu;

use crate::{Clock, Tsc};

/// Returns the model and clock of this machine's CPU.
#[must_use]
pub fn cpu() -> Cpu {
    Cpu { model: model(), tsc_ghz: (Tsc.frequency().hertz() / 1e6).round() / 1e3 }
}

/// Returns the CPU's name as in `/proc/cpuinfo`, or `n/a` if the system does not report it.
fn model() -> String {
    let listing = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = listing.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    name.map_or_else(|| "n/a".to_owned(), |(_, model)| model.trim().to_owned())
}

/// Returns the name and version of the C library of this process (`glibc 2.36`), if it reports them.
#[must_use]
pub fn c_library() -> Option<String> {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: the function returns a string that ends with a zero byte and is never freed or changed.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        Some(format!("glibc {}", version.to_string_lossy()))
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    None
}

/// Returns the cores that the calling thread may run on, lowest first. Empty if the system does not report them.
#[must_use]
pub fn allowed_cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    set.map(|set| (0..rustix::thread::CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()).unwrap_or_default()
}

/// Binds the calling thread to one core.
///
/// # Errors
/// Returns the system's error if the core does not exist or is not allowed.
pub fn pin_to(core: usize) -> std::io::Result<()> {
    Ok(rustix::thread::sched_setaffinity(None, &set_of(&[core])?)?)
}

/// Restricts a thread of this process to these cores. `thread` is the number by which the system knows the thread
/// (TID).
///
/// # Errors
/// Returns the system's error if the thread does not exist or none of the cores is allowed.
pub fn restrict(thread: u32, cores: &[usize]) -> std::io::Result<()> {
    let pid = i32::try_from(thread).ok().and_then(rustix::thread::Pid::from_raw);
    let pid = pid.ok_or(std::io::ErrorKind::InvalidInput)?;
    Ok(rustix::thread::sched_setaffinity(Some(pid), &set_of(cores)?)?)
}

/// Returns the set of these cores. A core number that is too large for a set is an error.
fn set_of(cores: &[usize]) -> std::io::Result<rustix::thread::CpuSet> {
    let mut set = rustix::thread::CpuSet::new();
    for core in cores {
        if *core >= rustix::thread::CpuSet::MAX_CPU {
            return Err(std::io::ErrorKind::InvalidInput.into());
        }
        set.set(*core);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_to_an_allowed_core_only() {
        let first = *allowed_cores().first().expect("this thread runs somewhere");
        std::thread::spawn(move || {
            pin_to(first).expect("an allowed core");
            assert_eq!(allowed_cores(), [first]);
            assert!(pin_to(usize::MAX).is_err());
        })
        .join()
        .expect("the thread ends well");
    }
}
