//! Topologies of real machines, and of trees made for the tests.

use std::io::Write;
use std::path::{Path, PathBuf};

use forebay_host::topology::{Domain, NetworkDevice, Usable};
use forebay_host::{Host, Topology, Tree};

use crate::server::{Server, folder};

/// Returns the folder of real machines' topologies, if it exists.
fn real() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/topologies");
    if folder.is_dir() {
        return Some(folder);
    }
    let _ = writeln!(std::io::stderr(), "skipped: real topologies: {} is missing", folder.display());
    None
}

fn of(name: &str) -> Option<Topology> {
    let text = std::fs::read_to_string(real()?.join(name)).expect("the file exists");
    Some(Topology::hwloc(&text).unwrap_or_else(|error| panic!("{name}: {error}")))
}

fn sizes(domains: &[Domain]) -> Vec<usize> {
    domains.iter().map(|domain| domain.cores.len()).collect()
}

#[test]
fn two_nodes_with_threads_and_interfaces() {
    let Some(topology) = of("24em64t-2n6c2t-pci.xml") else { return };
    let domains = topology.domains();
    assert_eq!((sizes(&domains), domains[0].siblings.len()), (vec![6, 6], 6));
    assert_eq!(domains[0].cores, [0, 2, 4, 6, 8, 10]);
    assert_eq!(domains[0].siblings, [12, 14, 16, 18, 20, 22]);
    assert_eq!((topology.distance(Some(0), Some(1)), topology.caches[0].bytes), (20, Some(12 << 20)));
    assert!(topology.interfaces.iter().any(|device| device.name == "eth0"), "{:?}", topology.interfaces);
}

#[test]
fn interfaces_are_near_a_node() {
    let Some(topology) = of("32em64t-2n8c2t-pci-normalio.xml") else { return };
    assert_eq!(sizes(&topology.domains()), [8, 8]);
    let near: Vec<_> = topology.interfaces.iter().map(|NetworkDevice { name, node }| (name.as_str(), *node)).collect();
    assert!(near.iter().any(|(_, node)| node.is_some()), "{near:?}");
}

#[test]
fn dies_share_caches_by_two_cores() {
    let Some(topology) = of("96em64t-4n4d3ca2co-pci.xml") else { return };
    let domains = topology.domains();
    assert_eq!(domains.iter().map(|domain| domain.cores.len()).sum::<usize>(), 96);
    assert!(domains.len() >= 4 && topology.nodes.len() == 4, "{domains:?}");
}

#[test]
fn domains_have_no_offline_or_forbidden_processors() {
    let Some(restricted) = of("16amd64-8n2c-cpusets.xml") else { return };
    let count =
        |topology: &Topology, is: Usable| topology.processors.iter().filter(|processor| processor.usable == is).count();
    let usable: usize = sizes(&restricted.domains()).iter().sum();
    assert_eq!(usable, count(&restricted, Usable::Yes));
    assert!(usable < restricted.processors.len() || restricted.nodes.len() < 8, "{restricted:?}");
    let offline = of("16em64t-4s2c2t-offlines.xml").expect("the folder is there");
    assert_eq!((count(&offline, Usable::Offline), count(&offline, Usable::Yes)), (9, 7));
    assert_eq!(offline.domains()[0].cores, [0, 4]);
}

#[test]
fn every_real_topology_is_read() {
    let Some(folder) = real() else { return };
    let names = std::fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.file_name());
    let names: Vec<_> =
        names.filter_map(|name| name.into_string().ok()).filter(|name| name.ends_with(".xml")).collect();
    assert!(names.len() >= 6);
    for name in names {
        let topology = of(&name).expect("the folder is there");
        assert!(!topology.domains().is_empty(), "{name}");
    }
}

/// A description that is truncated at any point, or has one changed character, is either read or gives an error.
#[test]
fn spoilt_descriptions_are_refused_or_read() {
    let Some(folder) = real() else { return };
    let text = std::fs::read_to_string(folder.join("8intel64-4n2t-memattrs.xml")).expect("the file exists");
    for at in (0..text.len()).step_by(97) {
        assert!(Topology::hwloc(&text[..at]).is_err());
        let spoilt: String = text.char_indices().map(|(index, char)| if index == at { '9' } else { char }).collect();
        let _ = Topology::hwloc(&spoilt);
    }
    for (text, expected) in [
        ("", "1: not XML (the document does not have a root node): allowed is a file that lstopo wrote"),
        ("<topology>\n<object>\n", "2: not XML (the root node was opened but never closed)"),
        ("<topology>\n<object>\n<object", "3: not XML ("),
        ("<topology>\n</object>", "2: not XML ("),
        ("<a/>", "1: <a>: allowed is a <topology>"),
        ("<topology version=\"3.0\"><object type=\"Machine\" cpuset=\"0x1\"/></topology>", "0 processors"),
        (
            "<topology><object type=\"Machine\" cpuset=\"zz\"/></topology>",
            "1: Machine cpuset=\"zz\": allowed is words of 32 bits",
        ),
        (
            "<topology><object type=\"Machine\"><object type=\"PU\"/></object></topology>",
            "1: os_index: a PU has none: allowed is a number from 0 to 8191",
        ),
        (
            "<topology><object type=\"Machine\"><object type=\"PU\" os_index=\"3\"/>\
             <object type=\"PU\" os_index=\"3\"/></object></topology>",
            "processor 3 is listed twice",
        ),
        (
            "<topology><object type=\"Machine\"><object type=\"PU\" os_index=\"3\"/>\
             <object type=\"NUMANode\" os_index=\"1\"/><object type=\"NUMANode\" os_index=\"1\"/></object></topology>",
            "memory node 1 is listed twice",
        ),
    ] {
        let error = Topology::hwloc(text).expect_err(text).to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

/// Numbers out of range and invalid numbers give an error. They must not be truncated or ignored.
#[test]
fn errors_for_numbers_name_their_element() {
    let sizes = "allowed is a number of bytes from 0 to 18446744073709551615";
    let long = "1".repeat(80);
    let cut = "1".repeat(60) + "…";
    for (object, attribute, value, expected) in [
        ("PU", "os_index", "99999999999", "allowed is a number from 0 to 8191"),
        ("PU", "os_index", "8192", "allowed is a number from 0 to 8191"),
        ("PU", "os_index", "-1", "allowed is a number from 0 to 8191"),
        ("PU", "os_index", "+1", "allowed is a number from 0 to 8191"),
        ("PU", "os_index", "", "allowed is a number from 0 to 8191"),
        ("NUMANode", "os_index", "1024", "allowed is a number from 0 to 1023"),
        ("NUMANode", "os_index", "-1", "allowed is a number from 0 to 1023"),
        ("NUMANode", "local_memory", "99999999999999999999999", sizes),
        ("NUMANode", "local_memory", "-1", sizes),
        ("NUMANode", "local_memory", &long, sizes),
        ("L3Cache", "cache_size", "1e308", sizes),
        ("L1Cache", "cache_size", "32K", sizes),
        ("Package", "os_index", "99999999999", "allowed is a number from 0 to 4294967294"),
        ("Die", "os_index", "4294967295", "allowed is a number from 0 to 4294967294"),
        ("Core", "os_index", "x", "allowed is a number from 0 to 4294967294"),
    ] {
        let number = if attribute == "os_index" { "" } else { "os_index=\"0\" " };
        let part = format!("<object type=\"{object}\" {number}{attribute}=\"{value}\"/>");
        let error = Topology::hwloc(&described("", &part, "")).expect_err(&part).to_string();
        let shown = if value == long { &cut } else { value };
        assert_eq!(error, format!("3: {object} {attribute}=\"{shown}\": {expected}"));
    }
    for (set, value, expected) in [
        ("complete_cpuset", format!("0x1{}", ",0x0".repeat(256)), "numbers from 0 to 8191, but this set contains 8192"),
        (
            "allowed_cpuset",
            format!("0x80000000{}", ",".repeat(300)),
            "numbers from 0 to 8191, but this set contains 9631",
        ),
    ] {
        let error = Topology::hwloc(&described(&format!("{set}=\"{value}\""), "", "")).expect_err(set).to_string();
        assert!(error.starts_with(&format!("1: Machine {set}=\"0x")) && error.ends_with(expected), "{error}");
    }
    let device = format!("<object type=\"OSDev\" osdev_type=\"2\" name=\"eth0\" nodeset=\"0x1{}\"/>", ",".repeat(32));
    let error = Topology::hwloc(&described("", &device, "")).expect_err(&device).to_string();
    assert!(
        error.starts_with("3: OSDev nodeset=") && error.ends_with("0 to 1023, but this set contains 1024"),
        "{error}"
    );
    // The highest allowed numbers.
    let most = "<object type=\"NUMANode\" os_index=\"1023\" local_memory=\"18446744073709551615\"/>\
                <object type=\"PU\" os_index=\"8191\"/>";
    let topology = Topology::hwloc(&described("", most, "")).expect("the numbers are allowed");
    assert_eq!((topology.processors[1].number, topology.nodes[0].bytes), (8_191, Some(u64::MAX)));
}

#[test]
fn distances_that_are_not_numbers_are_refused() {
    let node = |number: usize| format!("<object type=\"NUMANode\" os_index=\"{number}\"/>");
    let nodes = node(0) + &node(1);
    let of = |indexes: &str, values: &str| {
        let lists = format!("<indexes>{indexes}</indexes>\n<u64values>{values}</u64values>");
        let latency = format!("<distances2 type=\"NUMANode\" name=\"NUMALatency\">{lists}</distances2>");
        Topology::hwloc(&described("", &nodes, &latency)).map_err(|error| error.to_string())
    };
    assert_eq!(of("1 0", "10 21 31 10").map(|topology| topology.distance(Some(0), Some(1))), Ok(31));
    for (indexes, values, expected) in [
        ("0 1", "10 99999999999 21 10 10", "5: <u64values> 99999999999: allowed are numbers from 0 to 4294967295"),
        ("0 1", "10 -21 21 10 10", "5: <u64values> -21: allowed are numbers from 0 to 4294967295"),
        ("0 x 1", "10 21 21 10", "4: <indexes> x: allowed are numbers from 0 to 4294967295"),
    ] {
        assert_eq!(of(indexes, values), Err(expected.to_owned()));
    }
    // If a node is missing in the list, the distances are unknown. This list is very long.
    let long: String = (2..200_000).map(|number| format!("{number} ")).collect();
    assert_eq!(of(&long, "10").map(|topology| topology.distances), Ok(Vec::new()));
}

/// Returns a description with a processor, more objects in line 3, and more elements from line 4 on.
fn described(attributes: &str, objects: &str, elements: &str) -> String {
    let processor = "<object type=\"PU\" os_index=\"0\"/>";
    format!("<topology><object type=\"Machine\" {attributes}>\n{processor}\n{objects}</object>\n{elements}</topology>")
}

/// The work on processors and nodes grows with the product of their numbers.
#[test]
fn too_many_processors_or_nodes_are_refused_before_the_work_on_them() {
    let many = |kind: &str, count: usize| {
        let one = format!("<object type=\"{kind}\" os_index=\"0\" cpuset=\"0x1\"/>");
        format!("<topology><object type=\"Machine\">{}</object></topology>", one.repeat(count))
    };
    for (kind, count, expected) in [
        ("PU", 500_000, "500000 processors: allowed are 1 to 8192"),
        ("NUMANode", 500_000, "500000 memory nodes: allowed are up to 1024"),
        ("Misc", 2_000_000, "1: not XML (nodes limit reached)"),
    ] {
        let error = Topology::hwloc(&many(kind, count)).expect_err(kind).to_string();
        assert!(error.contains(expected), "{kind}: {error}");
    }
    let deep = format!("<topology>{}", "<object type=\"Machine\">".repeat(200_000));
    assert!(Topology::hwloc(&deep).is_err());
}

#[test]
fn the_test_server_has_two_nodes_and_a_card() {
    let (folder, mut server) = (folder(), Server::healthy());
    server
        .set("/sys/devices/system/node/node0/distance", "10 21\n")
        .set("/sys/devices/system/node/node1/distance", "21 10\n");
    server.lay_out(folder.path());
    let tree = Tree::at(folder.path());
    let topology = Topology::read(&tree, &Host::read(&tree)).expect("the files are sufficient");
    assert_eq!(sizes(&topology.domains()), [4, 4]);
    assert_eq!((topology.distance(Some(0), Some(1)), topology.processors.len()), (21, 16));
    assert_eq!(topology.interfaces.iter().find(|device| device.name == "eth1").and_then(|device| device.node), Some(1));
    let empty = crate::server::folder();
    let tree = Tree::at(empty.path());
    let error = Topology::read(&tree, &Host::read(&tree)).expect_err("the folder is empty");
    let expected = "/sys/devices/system/cpu/online is missing: allowed is a list of CPUs from 0 to 8191, such as 0-3,8";
    assert_eq!(error.to_string(), format!("{}{expected}", empty.path().display()));
}

/// Returns the error of a changed server without the root folder, with which the error must start.
fn refused(server: &Server, spoil: impl Fn(&Path)) -> String {
    let folder = folder();
    server.lay_out(folder.path());
    spoil(folder.path());
    let tree = Tree::at(folder.path());
    let error = Topology::read(&tree, &Host::read(&tree)).expect_err("the server is invalid").to_string();
    let root = folder.path().to_str().expect("a plain name");
    error.strip_prefix(root).unwrap_or_else(|| panic!("{error} is without {root}")).to_owned()
}

/// The list of online processors determines the processors, even if the folders of processors are missing.
#[test]
fn a_machine_whose_list_of_processors_is_missing_or_wrong_is_refused() {
    let file = "/sys/devices/system/cpu/online";
    let allowed = "allowed is a list of CPUs from 0 to 8191, such as 0-3,8";
    let (with_folders, mut without) = (Server::healthy(), Server::healthy());
    for cpu in 0..16 {
        without.remove(&format!("/sys/devices/system/cpu/cpu{cpu}"));
    }
    for server in [&with_folders, &without] {
        let text = |text: &str| refused(server.clone().set(file, text), |_| ());
        for wrong in [
            "",
            "zzz",
            "0-99999999999",
            "-1",
            "5-2",
            "a",
            "4294967295",
            "8192",
            "0-65535",
            "0,60000",
            "99999999999999999999",
        ] {
            assert_eq!(text(&format!("{wrong}\n")), format!("{file} contains {wrong:?}: {allowed}"));
        }
        let (long, cut) = ("9".repeat(100), "9".repeat(60) + "…");
        assert_eq!(text(&long), format!("{file} contains {cut:?}: {allowed}"));
        assert_eq!(refused(server.clone().remove(file), |_| ()), format!("{file} is missing: {allowed}"));
        let none = server.clone().remove(file).clone();
        let at = |root: &Path| root.join(file.trim_start_matches('/'));
        let folder = refused(&none, |root| std::fs::create_dir(at(root)).expect("a folder"));
        assert_eq!(folder, format!("{file} is not a file: {allowed}"));
        // The reading must not wait for the writer of a pipe.
        let pipe = refused(&none, |root| {
            let made = std::process::Command::new("mkfifo").arg(at(root)).status().expect("mkfifo is everywhere");
            assert!(made.success());
        });
        assert_eq!(pipe, format!("{file} is not a file: {allowed}"));
    }
}

#[test]
fn errors_quote_invalid_files() {
    let cpus = "a list of CPUs from 0 to 8191, such as 0-3,8";
    let (cache, node) = ("/sys/devices/system/cpu/cpu5/cache/index0", "/sys/devices/system/node");
    let mut server = Server::healthy();
    for (name, text) in [("level", "3"), ("type", "Unified"), ("size", "32M"), ("shared_cpu_list", "0-15")] {
        server.set(format!("{cache}/{name}"), text);
    }
    server.set(format!("{node}/node0/distance"), "10 21\n").set(format!("{node}/node1/distance"), "21 10\n");
    let total = "Node 1 MemTotal: 99999999999999999999999 kB";
    let large = "Node 1 MemTotal: 18446744073709551615 kB";
    let kib = "a number of KiB up to 18014398509481983";
    let group = "-1 or a number up to 2147483647";
    for (file, text, allowed) in [
        ("/sys/devices/system/cpu/present", "zzz", cpus),
        ("/sys/devices/system/cpu/present", "0-8192", cpus),
        (&format!("{node}/online"), "0-1024", "a list of memory nodes from 0 to 1023, such as 0-3,8"),
        (&format!("{node}/online"), "-1", "a list of memory nodes from 0 to 1023, such as 0-3,8"),
        (&format!("{node}/node1/cpulist"), "4-", cpus),
        ("/sys/devices/system/cpu/cpu5/topology/thread_siblings_list", "5,99999999999", cpus),
        (&format!("{node}/node1/distance"), "21 x 10", "numbers such as 10 21"),
        (&format!("{node}/node1/meminfo"), total, kib),
        (&format!("{node}/node1/meminfo"), large, kib),
        (&format!("{cache}/shared_cpu_list"), "0-99999999999", cpus),
        (&format!("{cache}/size"), "1e308", "a size in bytes such as 32K"),
        (&format!("{cache}/size"), "18446744073709551615K", "a size in bytes such as 32K"),
        ("/sys/devices/system/cpu/cpu5/topology/physical_package_id", "99999999999", group),
        ("/sys/devices/system/cpu/cpu5/topology/die_id", "x", group),
    ] {
        let error = refused(server.clone().set(file, format!("{text}\n")), |_| ());
        assert_eq!(error, format!("{file} contains {text:?}: allowed is {allowed}"));
    }
    // The interface's folder is a link.
    let mut card = server.clone();
    card.set("/sys/devices/pci0000:80/0000:81:00.0/numa_node", "1024\n");
    let expected = "/sys/class/net/eth1/device/numa_node contains \"1024\": allowed is -1 or a number up to 1023";
    assert_eq!(refused(&card, |_| ()), expected);
    server.replace("/proc/self/status", "Cpus_allowed_list:\t0-15", "Cpus_allowed_list:\tzzz");
    assert_eq!(refused(&server, |_| ()), format!("/proc/self/status contains \"zzz\": allowed is {cpus}"));
}

/// A virtual machine has fewer files than a server.
#[test]
fn a_machine_that_lists_its_processors_and_nothing_else_is_read() {
    let folder = folder();
    let cpu = folder.path().join("sys/devices/system/cpu");
    std::fs::create_dir_all(cpu.join("cpu0/topology")).expect("a folder");
    for (name, text) in [("online", "0-1\n"), ("cpu0/topology/physical_package_id", "-1\n"), ("present", "\n")] {
        std::fs::write(cpu.join(name), text).expect("a file");
    }
    let tree = Tree::at(folder.path());
    let topology = Topology::read(&tree, &Host::read(&tree)).expect("the list of processors is sufficient");
    assert_eq!((sizes(&topology.domains()), topology.nodes.len(), topology.processors[0].package), (vec![2], 0, 0));
}

#[test]
fn this_machine_has_a_domain() {
    let topology = Topology::read(&Tree::default(), &Host::read(&Tree::default())).expect("Linux lists its processors");
    assert!(topology.domains().iter().any(|domain| !domain.cores.is_empty()));
}
