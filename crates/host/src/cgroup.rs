//! What the process' control groups allow it: CPU time and CPUs of its own (`cgroups(7)`, Linux
//! `Documentation/admin-guide/cgroup-v2.rst`, `Documentation/scheduler/sched-bwc.rst`).

use crate::cpu::words;
use crate::fact::Fact;
use crate::list::KernelList;
use crate::tree::{Tree, Unknown};

const GROUPS: &str = "/proc/self/cgroup";
const MOUNTS: &str = "/proc/self/mounts";
/// The deepest group that is looked at, and as many above it.
const DEEPEST: usize = 32;

/// CPU time that a group may have.
#[derive(Clone, Debug)]
pub struct Quota {
    /// CPUs' worth of it; none: as much as there is.
    pub cpus: Fact<Option<f64>>,
    /// How often it was used up.
    pub throttled: Fact<u64>,
}

/// A group's own CPUs.
#[derive(Clone, Debug)]
pub struct Partition {
    /// `member` (none), `root` (nobody else's), `isolated` (nor balanced between).
    pub kind: Fact<String>,
    /// Which they are.
    pub cpus: Fact<KernelList>,
}

/// The process' control groups.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Limits of the group and those above it, innermost first. A group without the file has no limit.
    pub quotas: Vec<Quota>,
    /// Own CPUs of the group and those above it.
    pub partitions: Vec<Partition>,
    /// What the unified hierarchy (version 2) can share out.
    pub controllers: Option<Fact<Vec<String>>>,
    /// Why nothing is known of quotas, if that is so.
    pub unknown: Option<Unknown>,
}

/// Where a hierarchy is mounted, and the process' group in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) mount: String,
    pub(crate) group: String,
}

impl Place {
    /// The folders of the group and those above it, innermost first.
    fn folders(&self) -> Vec<String> {
        let parts: Vec<&str> = self.group.split('/').filter(|part| !part.is_empty()).take(DEEPEST).collect();
        // A group outside of what is mounted here: what is above it is not this process'.
        if parts.contains(&"..") {
            return vec![self.mount.clone()];
        }
        let mount = self.mount.trim_end_matches('/');
        let folder = |depth: usize| format!("{mount}/{}", parts[..depth].join("/")).trim_end_matches('/').to_owned();
        (0..=parts.len()).rev().map(folder).collect()
    }
}

impl Groups {
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
        groups.controllers = unified.as_ref().map(|place| {
            tree.fact(&format!("{}/cgroup.controllers", place.mount), "words", |text| {
                Some(text.split_ascii_whitespace().map(str::to_owned).collect())
            })
        });
        for folder in unified.iter().flat_map(Place::folders) {
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
        for folder in cpu.iter().flat_map(Place::folders) {
            let file = format!("{folder}/cpu.cfs_quota_us");
            if tree.has(&file) {
                let period = tree.value(&format!("{folder}/cpu.cfs_period_us"));
                let cpus = tree.fact(&file, "-1 or a number of microseconds, with a period beside it", |quota| {
                    // What is below 0 is no limit, as `max` is in the other version.
                    let quota = if quota.starts_with('-') { "max" } else { quota };
                    share(&format!("{quota} {}", period.as_deref().ok()?))
                });
                groups.quotas.push(Quota { cpus, throttled: throttled(tree, &folder) });
            }
        }
        groups
    }
}

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

/// A line `NAME NUMBER`.
pub(crate) fn field<'t>(text: &'t str, name: &str) -> Option<(&'t str, u64)> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(' ')?;
        Some((line, value.trim().parse().ok()?)).filter(|_| found == name)
    })
}

/// `max PERIOD` or `QUOTA PERIOD`, in microseconds, as CPUs.
pub(crate) fn share(text: &str) -> Option<Option<f64>> {
    let (quota, period) = text.split_once(' ')?;
    let period: u64 = period.trim().parse().ok().filter(|period| *period > 0)?;
    if quota == "max" {
        return Some(None);
    }
    Some(Some(quota.parse::<u64>().ok()? as f64 / period as f64))
}

/// The unified hierarchy (version 2).
pub(crate) fn unified(own: &str, mounts: &str) -> Option<Place> {
    let group = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let mount = mounts.lines().filter_map(mount).find(|(_, kind, _)| *kind == "cgroup2")?.0;
    Some(Place { mount, group: group.to_owned() })
}

/// The hierarchy of a controller (version 1).
pub(crate) fn controlled(own: &str, mounts: &str, controller: &str) -> Option<Place> {
    let group = own.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, group) = rest.split_once(':')?;
        controllers.split(',').any(|it| it == controller).then_some(group)
    })?;
    let is_its = |(_, kind, options): &(String, &str, &str)| {
        *kind == "cgroup" && options.split(',').any(|option| option == controller)
    };
    let mount = mounts.lines().filter_map(mount).find(is_its)?.0;
    Some(Place { mount, group: group.to_owned() })
}

/// Where something is mounted, its kind and its options.
fn mount(line: &str) -> Option<(String, &str, &str)> {
    let mut words = line.split(' ');
    let (place, kind, options) = (words.nth(1)?, words.next()?, words.next()?);
    // As `fstab(5)` writes a space.
    Some((place.replace("\\040", " "), kind, options))
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
        let outside = Place { mount: "/m".to_owned(), group: "/../../x".to_owned() };
        assert_eq!(outside.folders(), ["/m"]);
    }

    #[test]
    fn a_quota_is_so_many_cpus() {
        assert_eq!(share("max 100000"), Some(None));
        assert_eq!(share("150000 100000"), Some(Some(1.5)));
        assert_eq!(["", "max", "1 0", "a 1", "1 a", "-1 5"].map(share), [None; 6]);
        assert_eq!(field("nr_periods 1\nnr_throttled 7\n", "nr_throttled"), Some(("nr_throttled 7", 7)));
    }
}
