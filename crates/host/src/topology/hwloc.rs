//! Machines described by hwloc (`lstopo FILE.xml`; hwloc's `doc/`, "Importing and exporting topologies from/to XML
//! files").

use roxmltree::{Document, Node, ParsingOptions};

use super::{Cache, MemoryNode, NetworkDevice, Processor, Topology, TopologyError, Usable};
use crate::host::MOST_CPUS;
use crate::memory::MOST_NODES;
use crate::tree::shown;

/// The device type of network interfaces in hwloc 3: a set of bits, of which only this bit may be set. InfiniBand ports
/// have this bit and the bit of OpenFabrics, so they are not listed as network interfaces.
const NETWORK_BIT: u32 = 1 << 4;
/// The device type of network interfaces in hwloc 2: a number.
const NETWORK_NUMBER: u32 = 2;
/// The largest number of XML nodes, including texts between elements. It allows more than 100 nodes per processor of
/// the largest machine.
const MOST_PARTS: u32 = 1 << 20;
/// The highest number of a processor that Linux supports.
const LAST_CPU: u64 = MOST_CPUS as u64 - 1;
/// The highest number of a memory node that Linux supports.
const LAST_NODE: u64 = MOST_NODES as u64 - 1;
/// The highest number of any other object. It is large, because the firmware chooses the numbers of packages. hwloc
/// stores 32 bits, in which all ones mean "unknown" (`HWLOC_UNKNOWN_INDEX`).
const LAST_GROUP: u64 = u32::MAX as u64 - 1;

impl Topology {
    /// Parses the XML file of hwloc 2 or 3 that describes a machine.
    ///
    /// # Errors
    /// Returns a [`TopologyError`] with the line.
    pub fn hwloc(text: &str) -> Result<Self, TopologyError> {
        let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_PARTS, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| not_xml(text, &error))?;
        let root = document.root_element();
        let machine = root.children().find(|node| is(node, "Machine"));
        let Some(machine) = machine.filter(|_| root.has_tag_name("topology")) else {
            return Err(wrong(
                root,
                format!("<{}>", shown(root.tag_name().name())),
                "allowed is a <topology> with a Machine, as lstopo writes it",
            ));
        };
        let version =
            root.attribute("version").and_then(|version| version.split('.').next()?.parse().ok()).unwrap_or(2_u32);
        let (online, allowed) = (set(machine, "cpuset", MOST_CPUS)?, set(machine, "allowed_cpuset", MOST_CPUS)?);
        let mut topology = Self::default();
        let mut caches: Vec<roxmltree::NodeId> = Vec::new();
        let mut cores: Vec<roxmltree::NodeId> = Vec::new();
        let mut nodes: Vec<(usize, Option<Set>)> = Vec::new();
        let of_kind = |kind: &'static str| machine.descendants().filter(move |node| is(node, kind));
        // The work below grows faster than the numbers of processors and memory nodes, so these numbers are checked
        // first.
        let count = |kind: &'static str| of_kind(kind).count();
        super::check_counts(count("PU"), count("NUMANode"))?;
        for object in machine.descendants().filter(|node| node.has_tag_name("object")) {
            check(object)?;
        }
        for node in of_kind("NUMANode") {
            let number = index(node, LAST_NODE)?;
            nodes.push((number, set(node, "cpuset", MOST_CPUS)?));
            let bytes = bytes(node, "local_memory")?;
            topology.nodes.push(MemoryNode { number, bytes });
        }
        topology.nodes.sort_by_key(|node| node.number);
        for processor in of_kind("PU") {
            let number = index(processor, LAST_CPU)?;
            let above = |kind: &'static str| processor.ancestors().find(|node| is(node, kind));
            // The highest cache above a processor is the last-level cache.
            let last = processor.ancestors().filter(|node| level(node).is_some()).last();
            let cache = last.map(|cache| position_or_insert(&mut caches, cache.id()));
            if let Some(cache) = last.filter(|_| caches.len() > topology.caches.len()) {
                let bytes = bytes(cache, "cache_size")?;
                topology.caches.push(Cache { level: level(&cache).unwrap_or(3), bytes });
            }
            let core = position_or_insert(&mut cores, above("Core").unwrap_or(processor).id());
            let is_in = |set: &Option<Set>| set.as_ref().is_none_or(|set| set.has(number));
            let usable = match (is_in(&online), is_in(&allowed)) {
                (false, _) => Usable::Offline,
                (true, false) => Usable::NotAllowed,
                (true, true) => Usable::Yes,
            };
            let group = |kind: &'static str| above(kind).map(|group| index(group, LAST_GROUP)).transpose();
            let node = nodes.iter().find(|(_, cpus)| cpus.as_ref().is_some_and(|cpus| cpus.has(number)));
            topology.processors.push(Processor {
                number,
                package: group("Package")?.unwrap_or(0),
                die: group("Die")?,
                node: node.map(|(number, _)| *number),
                cache,
                core,
                usable,
            });
        }
        // A processor that is offline, or hidden from hwloc, has no object.
        let all = set(machine, "complete_cpuset", MOST_CPUS)?;
        let described: Vec<_> = topology.processors.iter().map(|processor| processor.number).collect();
        let missing =
            (0..MOST_CPUS).filter(|number| all.as_ref().is_some_and(|all| !all.is_endless && all.has(*number)));
        for number in missing.filter(|number| !described.contains(number)) {
            topology.processors.push(Processor::offline(number, cores.len() + number));
        }
        for device in of_kind("OSDev") {
            let kind: u32 = device.attribute("osdev_type").and_then(|kind| kind.parse().ok()).unwrap_or(0);
            let is_network = if version >= 3 { kind == NETWORK_BIT } else { kind == NETWORK_NUMBER };
            if let Some(name) = device.attribute("name").filter(|_| is_network) {
                // The node is that of the nearest object above the device that lists its nodes.
                let near =
                    device.ancestors().find_map(|node| set(node, "nodeset", MOST_NODES).transpose()).transpose()?;
                let node = near.and_then(|near| near.only());
                topology.interfaces.push(NetworkDevice { name: name.to_owned(), node });
            }
        }
        topology.distances = distances(root, &topology.nodes)?;
        topology.sorted_and_checked()
    }
}

/// Creates the error for invalid XML. If the text ends too early, the parser reports no useful position, so the error
/// names the last line.
fn not_xml(text: &str, error: &roxmltree::Error) -> TopologyError {
    use roxmltree::Error::{NoRootNode, UnclosedRootNode, UnexpectedEndOfStream};
    let is_cut = matches!(error, NoRootNode | UnclosedRootNode | UnexpectedEndOfStream);
    let last = u32::try_from(text.lines().count().max(1)).unwrap_or(u32::MAX);
    TopologyError::NotXml { line: if is_cut { last } else { error.pos().row }, what: error.to_string() }
}

/// Returns true if an element is an object of this type.
fn is(node: &Node<'_, '_>, kind: &str) -> bool {
    node.has_tag_name("object") && node.attribute("type") == Some(kind)
}

/// Creates the error for an element.
fn wrong(node: Node<'_, '_>, what: String, allowed: impl Into<String>) -> TopologyError {
    let line = node.document().text_pos_at(node.range().start).row;
    TopologyError::Hwloc { line, what, allowed: allowed.into() }
}

/// Creates the error for an attribute with a wrong value.
fn wrong_value(node: Node<'_, '_>, name: &str, value: &str, allowed: &str) -> TopologyError {
    wrong(node, format!("{} {name}=\"{}\"", title(node), shown(value)), format!("allowed is {allowed}"))
}

/// Returns the name of an element for errors: the type of an object, or the tag of another element.
fn title(node: Node<'_, '_>) -> String {
    shown(node.attribute("type").filter(|_| node.has_tag_name("object")).unwrap_or(node.tag_name().name()))
}

/// Parses a number up to `most` that consists only of digits.
fn digits(text: &str, most: u64) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= most)
}

/// Checks the numbers of an object. This is also done for objects that are not used later, for example cores.
fn check(object: Node<'_, '_>) -> Result<(), TopologyError> {
    if object.has_attribute("os_index") {
        let last = match object.attribute("type") {
            Some("PU") => LAST_CPU,
            Some("NUMANode") => LAST_NODE,
            _ => LAST_GROUP,
        };
        index(object, last)?;
    }
    bytes(object, "local_memory")?;
    bytes(object, "cache_size")?;
    Ok(())
}

/// Returns the number of an object, which must exist and be at most `last`. Each processor, memory node, package and
/// die must have a number.
fn index(node: Node<'_, '_>, last: u64) -> Result<usize, TopologyError> {
    let Some(text) = node.attribute("os_index") else {
        let allowed = format!("a {} has none: allowed is a number from 0 to {last}", title(node));
        return Err(wrong(node, "os_index".to_owned(), allowed));
    };
    let number = digits(text, last).and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| wrong_value(node, "os_index", text, &format!("a number from 0 to {last}")))
}

/// Returns a size in bytes if the object has this attribute.
fn bytes(node: Node<'_, '_>, name: &str) -> Result<Option<u64>, TopologyError> {
    let Some(text) = node.attribute(name) else { return Ok(None) };
    let wrong = || wrong_value(node, name, text, &format!("a number of bytes from 0 to {}", u64::MAX));
    digits(text, u64::MAX).map(Some).ok_or_else(wrong)
}

/// Returns a set of numbers below `most` if the object has this attribute.
fn set(node: Node<'_, '_>, name: &str, most: usize) -> Result<Option<Set>, TopologyError> {
    let Some(text) = node.attribute(name) else { return Ok(None) };
    let Some(set) = Set::parse(text) else {
        return Err(wrong_value(node, name, text, "words of 32 bits such as 0x000000ff,0x0000ffff"));
    };
    match set.last().filter(|last| *last >= most) {
        Some(last) => {
            let allowed = format!("a set of numbers from 0 to {}, but this set contains {last}", most - 1);
            Err(wrong_value(node, name, text, &allowed))
        }
        None => Ok(Some(set)),
    }
}

/// Returns the level of a data cache, or `None` for another object.
fn level(node: &Node<'_, '_>) -> Option<u8> {
    let kind = node.attribute("type").filter(|_| node.has_tag_name("object"))?;
    kind.strip_prefix('L')?.strip_suffix("Cache")?.parse().ok()
}

/// Returns the index of `id` in a list, and appends `id` if it is new.
fn position_or_insert<T: PartialEq>(list: &mut Vec<T>, id: T) -> usize {
    list.iter().position(|other| *other == id).unwrap_or_else(|| {
        list.push(id);
        list.len() - 1
    })
}

/// Returns the latencies between NUMA nodes, in the order of `nodes`. The result is empty if the latency of a node is
/// missing.
fn distances(root: Node<'_, '_>, nodes: &[MemoryNode]) -> Result<Vec<Vec<u32>>, TopologyError> {
    let is_latency = |node: &Node<'_, '_>| {
        node.has_tag_name("distances2")
            && node.attribute("type") == Some("NUMANode")
            && node.attribute("name") == Some("NUMALatency")
    };
    let Some(of) = root.children().find(is_latency) else { return Ok(Vec::new()) };
    let numbers = |tag: &'static str| -> Result<Vec<u32>, TopologyError> {
        let mut numbers = Vec::new();
        for part in of.children().filter(|node| node.has_tag_name(tag)) {
            for word in part.text().unwrap_or_default().split_whitespace() {
                let number = digits(word, u32::MAX.into()).and_then(|number| u32::try_from(number).ok());
                let allowed = || format!("allowed are numbers from 0 to {}", u32::MAX);
                numbers.push(number.ok_or_else(|| wrong(part, format!("<{tag}> {}", shown(word)), allowed()))?);
            }
        }
        Ok(numbers)
    };
    let (indexes, values) = (numbers("indexes")?, numbers("u64values")?);
    // The list is searched once per node, because it may be much longer than the number of nodes.
    let at = |node: &MemoryNode| indexes.iter().position(|index| *index as usize == node.number);
    let Some(positions) = nodes.iter().map(at).collect::<Option<Vec<_>>>() else { return Ok(Vec::new()) };
    let row = |from: &usize| positions.iter().map(|to| values.get(from * indexes.len() + to).copied()).collect();
    Ok(positions.iter().map(row).collect::<Option<_>>().unwrap_or_default())
}

/// A set of numbers as hwloc writes it: words of 32 bits, the highest first. An empty word is 0. A leading `0xf...f`
/// means that all numbers above the words are in the set.
struct Set {
    /// The words, the lowest first.
    words: Vec<u32>,
    /// True if all numbers above the words are in the set.
    is_endless: bool,
}

impl Set {
    /// Parses a set. Returns `None` if the text is invalid.
    fn parse(text: &str) -> Option<Self> {
        let mut words = Vec::new();
        let (is_endless, text) = match text.strip_prefix("0xf...f") {
            Some(rest) => (true, rest.strip_prefix(',').unwrap_or(rest)),
            None => (false, text),
        };
        if !text.is_empty() {
            for word in text.split(',') {
                let word = word.strip_prefix("0x").unwrap_or(word);
                let is_number = word.bytes().all(|byte| byte.is_ascii_hexdigit());
                words.push(if word.is_empty() {
                    0
                } else {
                    u32::from_str_radix(word, 16).ok().filter(|_| is_number)?
                });
            }
        }
        words.reverse();
        Some(Self { words, is_endless })
    }

    /// Returns true if the set contains `number`.
    fn has(&self, number: usize) -> bool {
        self.words.get(number / 32).map_or(self.is_endless, |word| word >> (number % 32) & 1 == 1)
    }

    /// Returns the highest number. Returns `None` if the set is empty or has no end.
    fn last(&self) -> Option<usize> {
        let at = self.words.iter().rposition(|word| *word != 0).filter(|_| !self.is_endless)?;
        Some(at * 32 + 31 - self.words[at].leading_zeros() as usize)
    }

    /// Returns the number if the set has only one number.
    fn only(&self) -> Option<usize> {
        let count: u32 = self.words.iter().map(|word| word.count_ones()).sum();
        let at = self.words.iter().position(|word| *word != 0)?;
        (count == 1 && !self.is_endless).then(|| at * 32 + self.words[at].trailing_zeros() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_words_of_32_bits() {
        let set = Set::parse("0x00000001,,0x80000000").expect("a set");
        assert!(set.has(31) && set.has(64) && !set.has(0) && !set.has(96));
        assert!(
            Set::parse("0xf...f,0x00000002")
                .is_some_and(|set| set.has(1) && !set.has(2) && set.has(32) && set.only().is_none())
        );
        assert_eq!(
            (Set::parse("0x00000004").and_then(|set| set.only()), Set::parse("0x5").and_then(|set| set.only())),
            (Some(2), None)
        );
        assert!(Set::parse("0xzz").is_none() && Set::parse("123456789").is_none() && Set::parse("0x+1").is_none());
        let last = |text| Set::parse(text).and_then(|set| set.last());
        assert_eq!(
            [last("0x00000001,,0x80000000"), last("0x5"), last("0x0"), last("0xf...f,0x2")],
            [Some(64), Some(2), None, None]
        );
    }
}
