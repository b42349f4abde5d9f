//! The limits of the process' control groups: CPU time, and exclusive CPUs (`cgroups(7)`, Linux
//! `Documentation/admin-guide/cgroup-v2.rst`, `Documentation/scheduler/sched-bwc.rst`).

use crate::cpu::words;
use crate::fact::Fact;
use crate::list::KernelList;
use crate::tree::{Tree, Unknown};

/// The kernel's list of this process' groups.
const GROUPS: &str = "/proc/self/cgroup";
/// The kernel's list of mounted file systems.
const MOUNTS: &str = "/proc/self/mounts";
/// The largest number of nested groups that are read.
const DEEPEST: usize = 32;

/// The CPU time that a group may use.
#[derive(Clone, Debug)]
pub struct Quota {
    /// The limit in CPUs; `None` if there is no limit.
    pub cpus: Fact<Option<f64>>,
    /// The number of periods in which the group used up its time.
    pub throttled: Fact<u64>,
}

/// The exclusive CPUs of a group.
#[derive(Clone, Debug)]
pub struct Partition {
    /// The type: `member` (no exclusive CPUs), `root` (exclusive CPUs), or `isolated` (exclusive CPUs without load
    /// balancing).
    pub kind: Fact<String>,
    /// The CPUs of the group.
    pub cpus: Fact<KernelList>,
}

/// The process' control groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// The limits of the group and its parents, innermost first. A group that is not in the list has no limit.
    pub quotas: Vec<Quota>,
    /// The exclusive CPUs of the group and its parents, innermost first.
    pub partitions: Vec<Partition>,
    /// The controllers of the unified hierarchy (version 2). `None` if there is no such hierarchy.
    pub controllers: Option<Fact<Vec<String>>>,
    /// The reason why the quotas are unknown. `None` if they are known.
    pub unknown: Option<Unknown>,
}

/// The mount point of a hierarchy, and the process' group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// The path of the mount point.
    pub(crate) mount: String,
    /// The path of the group below the mount point.
    pub(crate) group: String,
}

impl Hierarchy {
    /// Returns the folders of the group and its parents, innermost first.
    fn folders(&self) -> Vec<String> {
        let parts: Vec<&str> = self.group.split('/').filter(|part| !part.is_empty()).take(DEEPEST).collect();
        // The `..` means that the group is outside of this mount. Its parents in this mount are not groups of this
        // process.
        if parts.contains(&"..") {
            return vec![self.mount.clone()];
        }
        let mount = self.mount.trim_end_matches('/');
        let folder = |depth: usize| format!("{mount}/{}", parts[..depth].join("/")).trim_end_matches('/').to_owned();
        (0..=parts.len()).rev().map(folder).collect()
    }
}

impl Groups {
    /// Reads the limits of this process' groups, of both versions.
    pub(crate) fn read(tree: &Tree) -> Self {
        let mut groups = Self { quotas: Vec::new(), partitions: Vec::new(), controllers: None, unknown: None };
        let (own, mounts) = match (tree.listing(GROUPS), tree.listing(MOUNTS)) {
            (Ok(own), Ok(mounts)) => (own, mounts),
            (own, mounts) => {
                groups.unknown = own.err().or(mounts.err());
                return groups;
            }
        };
        let (unified, cpu) = (unified(&own, &mounts), controlled(&own, &mounts, "cpu"));
        if unified.is_none() && cpu.is_none() {
            groups.unknown = Some(Unknown::Missing(format!("a control group's folder in {MOUNTS}")));
        }
        groups.controllers = unified.as_ref().map(|hierarchy| {
            tree.fact(&format!("{}/cgroup.controllers", hierarchy.mount), "words", |text| {
                Some(text.split_ascii_whitespace().map(str::to_owned).collect())
            })
        });
        for folder in unified.iter().flat_map(Hierarchy::folders) {
            let file = format!("{folder}/cpu.max");
            if tree.has(&file) {
                let cpus = tree.fact(&file, "'max' or a quota, then a period", share);
                groups.quotas.push(Quota { cpus, throttled: throttled(tree, &folder) });
            }
            let file = format!("{folder}/cpuset.cpus.partition");
            if tree.has(&file) {
                let cpus = format!("{folder}/cpuset.cpus.effective");
                let cpus = tree.fact(&cpus, "a list of CPUs", |text| text.parse().ok());
                groups.partitions.push(Partition { kind: words(tree, &file), cpus });
            }
        }
        for folder in cpu.iter().flat_map(Hierarchy::folders) {
            let file = format!("{folder}/cpu.cfs_quota_us");
            if tree.has(&file) {
                let period = tree.value(&format!("{folder}/cpu.cfs_period_us"));
                let cpus = tree.fact(
                    &file,
                    "-1 or a number of microseconds, if cpu.cfs_period_us contains a number",
                    |quota| {
                        // A negative quota means no limit, as `max` does in version 2.
                        let quota = if quota.starts_with('-') { "max" } else { quota };
                        share(&format!("{quota} {}", period.as_deref().ok()?))
                    },
                );
                groups.quotas.push(Quota { cpus, throttled: throttled(tree, &folder) });
            }
        }
        groups
    }
}

/// Reads the number of periods in which the group of this folder used up its time.
fn throttled(tree: &Tree, folder: &str) -> Fact<u64> {
    let path = format!("{folder}/cpu.stat");
    match tree.value(&path) {
        Ok(text) => match field(&text, "nr_throttled") {
            Some((line, count)) => Fact::part(&path, line, count),
            None => Fact::unknown(&path, Unknown::Missing(format!("nr_throttled in {path}"))),
        },
        Err(why) => Fact::unknown(&path, why),
    }
}

/// Finds a line `NAME NUMBER`. Returns the line and its number.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<(&'t str, u64)> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        Some((line, value.trim().parse().ok()?)).filter(|_| found == name)
    })
}

/// Parses `max PERIOD` or `QUOTA PERIOD`, in microseconds. Returns the limit as a number of CPUs, and `Some(None)` for
/// no limit.
pub(crate) fn share(text: &str) -> Option<Option<f64>> {
    let (quota, period) = text.split_once(' ')?;
    let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
    if quota == "max" {
        return Some(None);
    }
    Some(Some(quota.parse::<u64>().ok()? as f64 / period as f64))
}

/// Finds the unified hierarchy (version 2). `own` and `mounts` are the texts of [`GROUPS`] and [`MOUNTS`].
pub(crate) fn unified(own: &str, mounts: &str) -> Option<Hierarchy> {
    let group = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().filter_map(mount).find(|(_, kind, _)| *kind == "cgroup2")?.0;
    Some(Hierarchy { mount, group: group.to_owned() })
}

/// Finds the hierarchy of a controller (version 1). `own` and `mounts` are the texts of [`GROUPS`] and [`MOUNTS`].
pub(crate) fn controlled(own: &str, mounts: &str, controller: &str) -> Option<Hierarchy> {
    let group = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        controllers.split(',').any(|it| it == controller).then_some(group)
    })?;
    let is_its = |(_, kind, options): &(String, &str, &str)| {
        *kind == "cgroup" && options.split(',').any(|option| option == controller)
    };
    let mount = mounts.lines().filter_map(mount).find(is_its)?.0;
    Some(Hierarchy { mount, group: group.to_owned() })
}

/// Parses a line of mounts: mount point, type and options.
fn mount(line: &str) -> Option<(String, &str, &str)> {
    let mut words = line.split(' ');
    let (point, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
    // `fstab(5)` writes a space as `\040`.
    Some((point.replace("\\040", " "), kind, options))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
proc /proc proc rw 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/my\\040own cgroup2 rw 0 0
";

    #[test]
    fn a_group_is_found_in_its_hierarchy() {
        let own = "3:cpuset:/x\n2:cpu,cpuacct:/a/b\n0::/c.slice\n";
        let unified = unified(own, MOUNTS).expect("version 2");
        assert_eq!(unified.folders(), ["/sys/fs/cgroup/my own/c.slice", "/sys/fs/cgroup/my own"]);
        let cpu = controlled(own, MOUNTS, "cpu").expect("version 1");
        let above = ["/sys/fs/cgroup/cpu,cpuacct/a/b", "/sys/fs/cgroup/cpu,cpuacct/a", "/sys/fs/cgroup/cpu,cpuacct"];
        assert_eq!(cpu.folders(), above);
        assert_eq!(controlled(own, MOUNTS, "cpuset"), None);
        let outside = Hierarchy { mount: "/m".to_owned(), group: "/../../x".to_owned() };
        assert_eq!(outside.folders(), ["/m"]);
    }

    #[test]
    fn a_quota_is_read_as_a_number_of_cpus() {
        assert_eq!(share("max 100000"), Some(None));
        assert_eq!(share("150000 100000"), Some(Some(1.5)));
        assert_eq!(["", "max", "1 0", "a 1", "1 a", "-1 5"].map(share), [None; 6]);
        assert_eq!(field("nr_periods 1\nnr_throttled 7\n", "nr_throttled"), Some(("nr_throttled 7", 7)));
    }
}
