//! Machines that hwloc described (`lstopo FILE.xml`; hwloc's `doc/`, "Importing and exporting topologies from/to XML
//! files").

use roxmltree::{Document, Node, ParsingOptions};

use super::{Cache, MemoryNode, NetworkDevice, Processor, Topology, TopologyError, Usable};

/// Device types of hwloc 3 (bits) and 2 (a number) that are network interfaces. InfiniBand ports are devices of both
/// kinds.
const NETWORK_BIT: u32 = 1 << 4;
const NETWORK_NUMBER: u32 = 2;
/// XML nodes, texts between elements included: over 100 a processor of the largest machine.
const MOST_PARTS: u32 = 1 << 20;

impl Topology {
    /// The machine that an XML file of hwloc 2 or 3 describes.
    ///
    /// # Errors
    /// [`TopologyError`], with the line.
    pub fn hwloc(text: &str) -> Result<Self, TopologyError> {
        let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_PARTS, ..ParsingOptions::default() };
        let document = Document::parse_with_options(text, options).map_err(|error| not_xml(text, &error))?;
        let root = document.root_element();
        let wrong = |node: Node<'_, '_>, what: String, allowed| {
            let line = document.text_pos_at(node.range().start).row;
            TopologyError::Hwloc { line, what, allowed }
        };
        let machine = root.children().find(|node| is(node, "Machine"));
        let Some(machine) = machine.filter(|_| root.has_tag_name("topology")) else {
            return Err(wrong(
                root,
                format!("<{}>", root.tag_name().name()),
                "allowed is a <topology> with a Machine, as lstopo writes it",
            ));
        };
        let version =
            root.attribute("version").and_then(|version| version.split('.').next()?.parse().ok()).unwrap_or(2_u32);
        let set = |node: Node<'_, '_>, name: &str| -> Result<Option<Set>, TopologyError> {
            let Some(text) = node.attribute(name) else { return Ok(None) };
            let wrong = || {
                wrong(
                    node,
                    format!("{name}=\"{}\"", text.chars().take(60).collect::<String>()),
                    "allowed are words of 32 bits such as 0x000000ff,0x0000ffff",
                )
            };
            Set::parse(text).map(Some).ok_or_else(wrong)
        };
        let index = |node: Node<'_, '_>| -> Result<usize, TopologyError> {
            let number = node.attribute("os_index").and_then(|number| number.parse().ok());
            number.ok_or_else(|| wrong(node, "os_index".to_owned(), "each processor, core and node needs a number"))
        };
        let (there, allowed) = (set(machine, "cpuset")?, set(machine, "allowed_cpuset")?);
        let mut topology = Self::default();
        let mut caches: Vec<roxmltree::NodeId> = Vec::new();
        let mut cores: Vec<roxmltree::NodeId> = Vec::new();
        let mut nodes: Vec<(usize, Option<Set>)> = Vec::new();
        let of_kind = |kind: &'static str| machine.descendants().filter(move |node| is(node, kind));
        // Before the work, which grows faster than their number.
        let count = |kind: &'static str| of_kind(kind).count();
        super::bounded(count("PU"), count("NUMANode"))?;
        for node in of_kind("NUMANode") {
            let number = index(node)?;
            nodes.push((number, set(node, "cpuset")?));
            let bytes = node.attribute("local_memory").and_then(|bytes| bytes.parse().ok());
            topology.nodes.push(MemoryNode { number, bytes });
        }
        topology.nodes.sort_by_key(|node| node.number);
        for processor in of_kind("PU") {
            let number = index(processor)?;
            let above = |kind: &'static str| processor.ancestors().find(|node| is(node, kind));
            // The highest cache above a processor is the last one.
            let last = processor.ancestors().filter(|node| level(node).is_some()).last();
            let cache = last.map(|cache| place(&mut caches, cache.id()));
            if let Some(cache) = last.filter(|_| caches.len() > topology.caches.len()) {
                let bytes = cache.attribute("cache_size").and_then(|bytes| bytes.parse().ok());
                topology.caches.push(Cache { level: level(&cache).unwrap_or(3), bytes });
            }
            let core = place(&mut cores, above("Core").unwrap_or(processor).id());
            let is_in = |set: &Option<Set>| set.as_ref().is_none_or(|set| set.has(number));
            let usable = match (is_in(&there), is_in(&allowed)) {
                (false, _) => Usable::Offline,
                (true, false) => Usable::NotAllowed,
                (true, true) => Usable::Yes,
            };
            let node = nodes.iter().find(|(_, cpus)| cpus.as_ref().is_some_and(|cpus| cpus.has(number)));
            topology.processors.push(Processor {
                number,
                package: above("Package").map(index).transpose()?.unwrap_or(0),
                die: above("Die").map(index).transpose()?,
                node: node.map(|(number, _)| *number),
                cache,
                core,
                usable,
            });
        }
        // A processor that is switched off, or that was hidden from hwloc, has no object.
        let all = set(machine, "complete_cpuset")?;
        let described: Vec<_> = topology.processors.iter().map(|processor| processor.number).collect();
        let missing =
            (0..super::MOST_CPUS).filter(|number| all.as_ref().is_some_and(|all| !all.is_endless && all.has(*number)));
        for number in missing.filter(|number| !described.contains(number)) {
            topology.processors.push(Processor::offline(number, cores.len() + number));
        }
        for device in of_kind("OSDev") {
            let kind: u32 = device.attribute("osdev_type").and_then(|kind| kind.parse().ok()).unwrap_or(0);
            let is_network = if version >= 3 { kind == NETWORK_BIT } else { kind == NETWORK_NUMBER };
            if let Some(name) = device.attribute("name").filter(|_| is_network) {
                // The nearest object that says which nodes are near.
                let near = device.ancestors().find_map(|node| set(node, "nodeset").transpose()).transpose()?;
                let node = near.and_then(|near| near.only());
                topology.interfaces.push(NetworkDevice { name: name.to_owned(), node });
            }
        }
        topology.distances = distances(root, &topology.nodes).unwrap_or_default();
        topology.settled()
    }
}

/// A text that ends too early has no place of its own in the library's error: its last line is meant.
fn not_xml(text: &str, error: &roxmltree::Error) -> TopologyError {
    use roxmltree::Error::{NoRootNode, UnclosedRootNode, UnexpectedEndOfStream};
    let is_cut = matches!(error, NoRootNode | UnclosedRootNode | UnexpectedEndOfStream);
    let last = u32::try_from(text.lines().count().max(1)).unwrap_or(u32::MAX);
    TopologyError::NotXml { line: if is_cut { last } else { error.pos().row }, what: error.to_string() }
}

fn is(node: &Node<'_, '_>, kind: &str) -> bool {
    node.has_tag_name("object") && node.attribute("type") == Some(kind)
}

/// The level of a cache for data.
fn level(node: &Node<'_, '_>) -> Option<u8> {
    let kind = node.attribute("type").filter(|_| node.has_tag_name("object"))?;
    kind.strip_prefix('L')?.strip_suffix("Cache")?.parse().ok()
}

/// Where `id` is in a list that gets it if it is new.
fn place<T: PartialEq>(list: &mut Vec<T>, id: T) -> usize {
    list.iter().position(|there| *there == id).unwrap_or_else(|| {
        list.push(id);
        list.len() - 1
    })
}

/// Latencies between NUMA nodes, in the nodes' order.
fn distances(root: Node<'_, '_>, nodes: &[MemoryNode]) -> Option<Vec<Vec<u32>>> {
    let of = root.children().find(|node| {
        node.has_tag_name("distances2")
            && node.attribute("type") == Some("NUMANode")
            && node.attribute("name") == Some("NUMALatency")
    })?;
    let words = |tag: &'static str| {
        let parts = of.children().filter(move |node| node.has_tag_name(tag)).filter_map(|node| node.text());
        parts.flat_map(str::split_whitespace).filter_map(|word| word.parse::<u32>().ok()).collect::<Vec<_>>()
    };
    let (indexes, values) = (words("indexes"), words("u64values"));
    let at = |node: &MemoryNode| indexes.iter().position(|index| *index as usize == node.number);
    let row =
        |from: &MemoryNode| nodes.iter().map(|to| values.get(at(from)? * indexes.len() + at(to)?).copied()).collect();
    nodes.iter().map(row).collect()
}

/// A set of numbers as hwloc writes it: words of 32 bits, the highest first; an empty word is 0, and `0xf...f` all that
/// are above.
struct Set {
    words: Vec<u32>,
    is_endless: bool,
}

impl Set {
    fn parse(text: &str) -> Option<Self> {
        let mut words = Vec::new();
        let (is_endless, text) = match text.strip_prefix("0xf...f") {
            Some(rest) => (true, rest.strip_prefix(',').unwrap_or(rest)),
            None => (false, text),
        };
        if !text.is_empty() {
            for word in text.split(',') {
                let word = word.strip_prefix("0x").unwrap_or(word);
                words.push(if word.is_empty() { 0 } else { u32::from_str_radix(word, 16).ok()? });
            }
        }
        words.reverse();
        Some(Self { words, is_endless })
    }

    fn has(&self, number: usize) -> bool {
        self.words.get(number / 32).map_or(self.is_endless, |word| word >> (number % 32) & 1 == 1)
    }

    /// Its only number.
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
        assert!(Set::parse("0xzz").is_none() && Set::parse("123456789").is_none());
    }
}
