//! The process' permissions: the CPUs and nodes that it may use, and its capabilities (`/proc/self/status`,
//! `capabilities(7)`).

use crate::fact::Fact;
use crate::list::KernelList;
use crate::tree::{Tree, Unknown, senseless};

/// The file with the process' status.
pub const FILE: &str = "/proc/self/status";

/// This process.
#[derive(Clone, Debug)]
pub struct Process {
    /// The CPUs on which the process may run.
    pub cpus: Fact<KernelList>,
    /// The nodes whose memory the process may use.
    pub memory_nodes: Fact<KernelList>,
    /// The effective capabilities.
    pub rights: Fact<Rights>,
    /// The effective user.
    pub user: Fact<u32>,
}

/// A set of capabilities: the bit with a capability's number is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights(pub u64);

/// A capability, with its number (`include/uapi/linux/capability.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// `CAP_NET_ADMIN`.
    NetAdmin = 12,
    /// `CAP_NET_RAW`.
    NetRaw = 13,
    /// `CAP_SYS_ADMIN`.
    SysAdmin = 21,
    /// `CAP_PERFMON`.
    Perfmon = 38,
    /// `CAP_BPF`.
    Bpf = 39,
}

impl Right {
    /// Returns the name of the capability, as `setcap` writes it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "cap_net_admin",
            Self::NetRaw => "cap_net_raw",
            Self::SysAdmin => "cap_sys_admin",
            Self::Perfmon => "cap_perfmon",
            Self::Bpf => "cap_bpf",
        }
    }
}

impl Rights {
    /// Returns true if the set contains `right`.
    #[must_use]
    pub fn has(self, right: Right) -> bool {
        self.0 >> (right as u32) & 1 == 1
    }
}

impl Process {
    pub(crate) fn read(tree: &Tree) -> Self {
        let text = tree.listing(FILE);
        Self {
            cpus: field(&text, "Cpus_allowed_list", "a list of CPUs", |value| value.parse().ok()),
            memory_nodes: field(&text, "Mems_allowed_list", "a list of nodes", |value| value.parse().ok()),
            rights: field(&text, "CapEff", "16 hexadecimal digits", |value| {
                u64::from_str_radix(value, 16).ok().filter(|_| !value.starts_with('+')).map(Rights)
            }),
            // The real, effective, saved and file-system user.
            user: field(&text, "Uid", "four numbers", |value| value.split_ascii_whitespace().nth(1)?.parse().ok()),
        }
    }
}

/// Reads the value of a line of the process' status. `allowed` describes the allowed values.
fn field<T>(
    text: &Result<String, Unknown>,
    name: &str,
    allowed: &str,
    read: impl FnOnce(&str) -> Option<T>,
) -> Fact<T> {
    let text = match text {
        Ok(text) => text,
        Err(why) => return Fact::unknown(FILE, why.clone()),
    };
    let Some(value) = line(text, name) else {
        return Fact::unknown(FILE, Unknown::Missing(format!("{name} in {FILE}")));
    };
    match read(value) {
        Some(read) => Fact::part(FILE, &format!("{name}: {value}"), read),
        None => Fact::unknown(FILE, senseless(FILE, value, allowed)),
    }
}

/// Returns the text after `NAME:` in the line with this name.
pub(crate) fn line<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_bits() {
        let rights = Rights(1 << 12 | 1 << 39);
        assert!(rights.has(Right::NetAdmin) && rights.has(Right::Bpf));
        assert!(!rights.has(Right::NetRaw) && !rights.has(Right::SysAdmin) && !rights.has(Right::Perfmon));
    }

    #[test]
    fn a_status_is_read_by_name() {
        let text =
            "CapInh:\t0\nCapEff:\t0000000000003000\nUid:\t1\t2\t3\t4\nCpus_allowed:\tff\nCpus_allowed_list:\t0-1\n";
        assert_eq!(line(text, "Cpus_allowed_list"), Some("0-1"));
        assert_eq!(line(text, "Cpus"), None);
        let text = Ok(text.to_owned());
        let fact = field(&text, "Mems_allowed_list", "a list", |value| value.parse::<KernelList>().ok());
        assert_eq!(fact.why().as_deref(), Some("Mems_allowed_list in /proc/self/status is missing"));
    }
}
