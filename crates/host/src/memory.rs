//! NUMA nodes, their memory and huge pages (`/proc/meminfo`, Linux `Documentation/admin-guide/mm/hugetlbpage.rst`).

use crate::fact::Fact;
use crate::list::KernelList;
use crate::tree::{Tree, Unknown, senseless};

/// The kernel's folder of nodes.
pub const NODES: &str = "/sys/devices/system/node";
/// The file with the memory of the machine.
pub const FILE: &str = "/proc/meminfo";
/// The setting of transparent huge pages.
const TRANSPARENT: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
/// The largest number of nodes of a kernel (`MAX_NUMNODES`, `NODES_SHIFT` 10).
pub(crate) const MOST_NODES: usize = 1_024;

/// A NUMA node.
#[derive(Clone, Debug)]
pub struct Node {
    /// The node's number.
    pub number: usize,
    /// The node's CPUs.
    pub cpus: Fact<KernelList>,
    /// The node's memory, in KiB.
    pub memory_kib: Fact<u64>,
    /// The number of free huge pages of the default size.
    pub huge_free: Fact<u64>,
    /// The number of huge pages of the default size.
    pub huge_total: Fact<u64>,
}

/// The memory of the whole machine.
#[derive(Clone, Debug)]
pub struct Memory {
    /// The memory, in KiB.
    pub total_kib: Fact<u64>,
    /// The default size of huge pages, in KiB.
    pub huge_kib: Fact<u64>,
    /// The number of huge pages of the default size.
    pub huge_total: Fact<u64>,
    /// The number of free huge pages of the default size.
    pub huge_free: Fact<u64>,
    /// The number of free huge pages that are already reserved.
    pub huge_reserved: Fact<u64>,
    /// The memory that gets transparent huge pages: `always` (all memory), `madvise` (memory whose owner requests
    /// them), or `never` (none).
    pub transparent: Fact<String>,
}

impl Memory {
    pub(crate) fn read(tree: &Tree) -> Self {
        let text = tree.listing(FILE);
        let field = |name: &str| field(FILE, &text, name);
        Self {
            total_kib: field("MemTotal"),
            huge_kib: field("Hugepagesize"),
            huge_total: field("HugePages_Total"),
            huge_free: field("HugePages_Free"),
            huge_reserved: field("HugePages_Rsvd"),
            transparent: tree.fact(TRANSPARENT, "words, one of them in brackets", chosen),
        }
    }
}

impl Node {
    /// Reads the list of nodes, and each node. `huge_kib` is the default size of huge pages, in KiB.
    pub(crate) fn read_all(tree: &Tree, huge_kib: Option<u64>) -> (Fact<KernelList>, Vec<Self>) {
        let online = tree.fact(&format!("{NODES}/online"), "a list of nodes", |text| text.parse::<KernelList>().ok());
        let numbers: Vec<usize> = online.value().map(|list| list.iter().take(MOST_NODES).collect()).unwrap_or_default();
        let nodes = numbers.into_iter().map(|number| Self::read(tree, number, huge_kib)).collect();
        (online, nodes)
    }

    fn read(tree: &Tree, number: usize, huge_kib: Option<u64>) -> Self {
        let path = |file: &str| format!("{NODES}/node{number}/{file}");
        let huge = |file: &str| {
            let size = huge_kib.map_or_else(|| "*".to_owned(), |size| size.to_string());
            let path = path(&format!("hugepages/hugepages-{size}kB/{file}"));
            tree.fact(&path, "a number of pages", |text| text.parse().ok())
        };
        let listing = path("meminfo");
        Self {
            number,
            cpus: tree.fact(&path("cpulist"), "a list of CPUs", |text| text.parse().ok()),
            memory_kib: field(&listing, &tree.value(&listing), &format!("Node {number} MemTotal")),
            huge_free: huge("free_hugepages"),
            huge_total: huge("nr_hugepages"),
        }
    }
}

/// Reads the value from a line `NAME: VALUE` or `NAME: VALUE kB` of a file's text.
fn field(path: &str, text: &Result<String, Unknown>, name: &str) -> Fact<u64> {
    let text = match text {
        Ok(text) => text,
        Err(why) => return Fact::unknown(path, why.clone()),
    };
    match number(text, name) {
        Some((line, value)) => Fact::part(path, &line, value),
        None => match text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(':'))) {
            Some(line) => Fact::unknown(path, senseless(path, line, "a number of 64 bits behind the name")),
            None => Fact::unknown(path, Unknown::Missing(format!("{name} in {path}"))),
        },
    }
}

/// Finds the line with this name. Returns its words separated by one space, and its number.
pub(crate) fn number(text: &str, name: &str) -> Option<(String, u64)> {
    text.lines().find_map(|line| {
        let value = line.strip_prefix(name)?.strip_prefix(':')?;
        let value = value.split_ascii_whitespace().next()?.parse().ok()?;
        Some((line.split_ascii_whitespace().collect::<Vec<_>>().join(" "), value))
    })
}

/// Returns the word in brackets, which marks the chosen value in files of the kernel.
pub(crate) fn chosen(text: &str) -> Option<String> {
    let word = text.split_once('[')?.1.split_once(']')?.0;
    (!word.is_empty()).then(|| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_whole_name() {
        let text = "HugePages_Total:       7\nHugepagesize:       2048 kB\nNode 1 MemTotal:   9 kB\nbad: x\n";
        assert_eq!(number(text, "HugePages_Total"), Some(("HugePages_Total: 7".to_owned(), 7)));
        assert_eq!(number(text, "Hugepagesize").map(|(_, value)| value), Some(2_048));
        assert_eq!(number(text, "Node 1 MemTotal").map(|(_, value)| value), Some(9));
        assert_eq!([number(text, "HugePages"), number(text, "bad"), number(text, "")], [None, None, None]);
    }

    #[test]
    fn a_line_without_a_number_is_invalid() {
        let text = Ok("MemTotal: 99999999999999999999999 kB\nMemFree: 1 kB\n".to_owned());
        let why = |name: &str| field("/m", &text, name).why();
        let expected =
            "/m contains \"MemTotal: 99999999999999999999999 kB\": allowed is a number of 64 bits behind the name";
        assert_eq!(why("MemTotal").as_deref(), Some(expected));
        assert_eq!(why("Mem").as_deref(), Some("Mem in /m is missing"));
        assert_eq!(why("MemFree"), None);
    }

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise".to_owned()));
        assert_eq!([chosen("always"), chosen("[]"), chosen("]["), chosen("")], [None, None, None, None]);
    }
}
