//! Reads the bytes that a last-level cache exchanged with memory, as counted by the processor (Linux
//! `Documentation/arch/x86/resctrl.rst`, memory bandwidth monitoring).

use forebay_host::Tree;

/// The folder with the counts of each last-level cache.
const FOLDER: &str = "/sys/fs/resctrl/mon_data";

/// Returns the number of bytes so far, for all last-level caches together. `None` if the kernel does not report the
/// number for each cache, or reports no cache.
pub(crate) fn bytes(tree: &Tree) -> Option<u64> {
    let caches = tree.names(FOLDER).into_iter().filter(|name| name.starts_with("mon_L3_"));
    let counts = caches.map(|name| tree.value(&format!("{FOLDER}/{name}/mbm_total_bytes")).ok()?.parse::<u64>().ok());
    let counts: Vec<_> = counts.collect::<Option<_>>()?;
    counts.into_iter().reduce(u64::saturating_add)
}

/// The reason that is reported if the number of bytes is unknown.
pub(crate) const WHY_NOT: &str = "/sys/fs/resctrl/mon_data has no mbm_total_bytes: the processor does not count \
                                  memory traffic, or resctrl is not mounted";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_all_caches_or_of_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let tree = Tree::at(folder.path());
        assert_eq!(bytes(&tree), None);
        for (cache, count) in [("mon_L3_00", "700\n"), ("mon_L3_01", "42\n"), ("other", "x")] {
            let cache = folder.path().join("sys/fs/resctrl/mon_data").join(cache);
            std::fs::create_dir_all(&cache).expect("a folder");
            std::fs::write(cache.join("mbm_total_bytes"), count).expect("a file");
        }
        assert_eq!(bytes(&tree), Some(742));
        std::fs::write(folder.path().join("sys/fs/resctrl/mon_data/mon_L3_01/mbm_total_bytes"), "Unavailable\n")
            .expect("a file");
        assert_eq!(bytes(&tree), None);
    }
}
