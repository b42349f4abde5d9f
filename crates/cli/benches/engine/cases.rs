//! The pipelines of the benchmark, and the computation of results from timings.

use std::fmt::Write as _;
use std::path::Path;

use forebay_functions::tables::lpm::synthetic;
use forebay_measure::{Clock, Tsc};
use forebay_packet::pool::Order;
use forebay_pipeline::{Conditions, Source, load};

use crate::churn::Churn;
use crate::measurement::{Case, Counted, Figure};

/// Number of prefixes of the router's table.
const PREFIXES: usize = 10_000;
/// Number of route changes over all runs of a case.
const CHANGES: usize = 1_000_000;
/// Frame size, and the number of sessions that take turns.
const TRAFFIC: &str = "size: 60, sessions: 4096";
/// Maximum number of packets to open all sessions.
const MILLION: usize = 1 << 20;
/// The router's modules before the branches.
const HEAD: &str = "valid: { ip_validate: }";

/// The description of a case.
struct Recipe {
    name: &'static str,
    yaml: String,
    /// Number of packet buffers that are reused first in, first out; `None`: the default.
    cold: Option<usize>,
    counted: Counted,
    /// True if the router's routes change during the case.
    churn: bool,
    /// Number of packets before measuring.
    warm: usize,
}

/// The computation of a result from the runs.
enum Share {
    /// The total.
    Total,
    /// The total minus the generator's part.
    WithoutGenerator,
    /// The total minus the total of another case.
    Above(&'static str),
}

/// The results: name, case, and computation.
const FIGURES: &[(&str, &str, Share)] = &[
    ("gen_sink", "gen_sink", Share::Total),
    ("gen_sink_b256", "gen_sink_b256", Share::Total),
    ("mac_swap", "mac_swap", Share::Above("gen_sink")),
    ("router_1", "router_1", Share::WithoutGenerator),
    ("router_1_total", "router_1", Share::Total),
    ("router_1_fair", "router_1_fair", Share::WithoutGenerator),
    ("router_1_unaccounted", "router_1_unaccounted", Share::WithoutGenerator),
    ("router_1_untimed", "router_1_untimed", Share::WithoutGenerator),
    ("router_1_changing", "router_1_changing", Share::WithoutGenerator),
    ("router_1_b256", "router_1_b256", Share::WithoutGenerator),
    ("router_1_cold", "router_1_cold", Share::WithoutGenerator),
    ("router_1_pcap", "router_1_pcap", Share::Total),
    ("router_16", "router_16", Share::WithoutGenerator),
    ("router_16_fair", "router_16_fair", Share::WithoutGenerator),
    ("lanes_16", "lanes_16", Share::WithoutGenerator),
    ("lanes_16_fair", "lanes_16_fair", Share::WithoutGenerator),
    ("router_64", "router_64", Share::WithoutGenerator),
    ("router_64_unfolded", "router_64_unfolded", Share::WithoutGenerator),
    ("router_64_trigger16", "router_64_trigger16", Share::WithoutGenerator),
    ("router_64_b256", "router_64_b256", Share::WithoutGenerator),
    ("acl_100", "acl_100", Share::Above("gen_sink")),
    ("acl_1000", "acl_1000", Share::Above("gen_sink")),
    ("meter", "meter", Share::Above("gen_sink")),
    ("meter_one", "meter_one", Share::Above("gen_sink")),
    ("gtpu", "gtpu", Share::Above("gen_sink")),
    ("gtpu_table", "gtpu_table", Share::Above("gen_sink")),
    ("vxlan", "vxlan", Share::Above("gen_sink")),
    ("upf", "upf", Share::WithoutGenerator),
    ("nat_4k", "nat_4k", Share::WithoutGenerator),
    ("nat_1m", "nat_1m", Share::WithoutGenerator),
    ("nat_churn", "nat_churn", Share::WithoutGenerator),
    ("firewall", "firewall", Share::WithoutGenerator),
    ("firewall_churn", "firewall_churn", Share::WithoutGenerator),
    ("firewall_new", "firewall_new", Share::WithoutGenerator),
    ("balancer", "balancer", Share::WithoutGenerator),
];

/// Makes the cases of the named results (default: all). With `alone`, leaves out the cases that they are compared with;
/// these results are then missing.
///
/// # Errors
/// An unknown name, a folder that cannot be written, or a pipeline that does not load, as text.
pub fn all(only: Option<&[&str]>, alone: bool, other_core: Option<usize>, runs: usize) -> Result<Vec<Case>, String> {
    let names = || FIGURES.iter().map(|(name, ..)| *name).collect::<Vec<_>>();
    if let Some(unknown) = only.and_then(|only| only.iter().find(|name| !names().contains(name))) {
        return Err(format!("unknown result '{unknown}': allowed are {}", names().join(", ")));
    }
    let wanted = |name: &str| only.is_none_or(|only| only.contains(&name));
    let needed: Vec<&str> = FIGURES
        .iter()
        .filter(|(name, ..)| wanted(name))
        .flat_map(|(_, case, share)| match share {
            Share::Above(base) if !alone => vec![*case, base],
            _ => vec![*case],
        })
        .collect();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-input");
    let recipes = recipes(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut cases = Vec::new();
    for recipe in recipes.into_iter().filter(|recipe| needed.contains(&recipe.name)) {
        cases.push(make(recipe, &folder, other_core, runs)?);
    }
    Ok(cases)
}

/// Returns the results of the given cases, in the order of the table.
pub fn results(cases: &[Case]) -> Vec<Figure> {
    let find = |name: &str| cases.iter().find(|case| case.name == name);
    let figure = |(name, case, share): &(&str, &str, Share)| {
        let case = find(case)?;
        let less: &[f64] = match share {
            Share::Total => &[],
            Share::WithoutGenerator => &case.generator,
            Share::Above(base) => &find(base)?.total,
        };
        let values = case.total.iter().enumerate().map(|(run, total)| total - less.get(run).copied().unwrap_or(0.0));
        Some(Figure::of(name, values.collect()))
    };
    FIGURES.iter().filter_map(figure).collect()
}

/// Returns the pipelines that run on one worker and on two.
pub fn scaled() -> Vec<(&'static str, Source)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/bench-input");
    let pipelines = [
        // Making the cases has written the files of this pipeline.
        ("router", router(32, 1, 0, TRAFFIC)),
        ("nat", translated("sessions: 4096", "")),
        ("firewall", guarded("sessions: 4096")),
        // `replies: endpoint` makes both directions of a session use one worker, which several workers need.
        ("balancer", balanced("sessions: 4096").replace("services:", "replies: endpoint, services:")),
    ];
    pipelines.into_iter().map(|(name, yaml)| (name, Source::new(yaml, name, &folder))).collect()
}

fn make(recipe: Recipe, folder: &Path, other_core: Option<usize>, runs: usize) -> Result<Case, String> {
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let source = Source::new(recipe.yaml, recipe.name, folder);
    let mut plan = load(&source, conditions).map_err(|problems| problems.to_string())?.plans.remove(0);
    if let Some(chunks) = recipe.cold {
        (plan.pool.chunks, plan.pool.order) = (chunks, Order::Fifo);
    }
    let routes = plan.tables().into_iter().find(|table| recipe.churn && table.name == "routes");
    let mut case = Case::new(recipe.name, plan, recipe.counted).map_err(|error| format!("{}: {error}", recipe.name))?;
    case.warm(recipe.warm);
    case.churn = routes.map(|routes| Churn {
        table: routes.table,
        lines: changes(),
        core: other_core,
        share: CHANGES.div_ceil(runs),
        made: 0,
        seconds: 0.0,
    });
    Ok(case)
}

fn recipes(folder: &Path) -> std::io::Result<Vec<Recipe>> {
    std::fs::create_dir_all(folder)?;
    for hops in [1, 16, 64] {
        write_routes(folder, hops)?;
    }
    let ends = "source: 192.0.2.1, peer: 192.0.2.10";
    let one = format!("{ends}, teid: 0x1001");
    // Every user has its own address and tunnel.
    let each = format!("{ends}, tunnels: users.txt");
    let frames = format!("{ends}, vni: 4096");
    std::fs::write(folder.join("users.txt"), users())?;
    std::fs::write(folder.join("sessions.txt"), pdu_sessions())?;
    let recipe = |name, yaml| Recipe { name, yaml, cold: None, counted: Counted::AsShipped, churn: false, warm: 0 };
    let mut all = vec![
        recipe("gen_sink", straight(32, "")),
        recipe("gen_sink_b256", straight(256, "")),
        recipe("mac_swap", straight(32, "swap: { mac_swap: }")),
        recipe("acl_100", straight(32, "fw: { acl: { rules: { synthetic: 100, seed: 1 } } }")),
        recipe("acl_1000", straight(32, "fw: { acl: { rules: { synthetic: 1000, seed: 1 } } }")),
        recipe("meter", metered("source")),
        recipe("meter_one", metered("none")),
        recipe("gtpu", chain(&[("down", "gtpu_encap", &one), ("up", "gtpu_decap", "teids: 0x1000-0x1fff")])),
        recipe("gtpu_table", chain(&[("down", "gtpu_encap", &each), ("up", "gtpu_decap", "teids: any")])),
        recipe("vxlan", chain(&[("on", "vxlan_encap", &frames), ("off", "vxlan_decap", "vnis: [4096]")])),
        recipe("upf", user_plane()),
        recipe("nat_4k", translated("sessions: 4096", "")),
        Recipe { warm: MILLION, ..recipe("nat_1m", translated("sessions: 1000000", ", sessions: 1100000")) },
        // Warm up until the table is full and each new session replaces another one.
        Recipe {
            warm: 2 * MILLION,
            ..recipe("nat_churn", translated("sessions: 1000000, renewal: { at_once: 4096, packets: 20 }", ""))
        },
        recipe("firewall", guarded("sessions: 4096")),
        Recipe {
            warm: 2 * MILLION,
            ..recipe("firewall_churn", guarded("sessions: 1000000, renewal: { at_once: 4096, packets: 20 }"))
        },
        Recipe {
            warm: MILLION,
            ..recipe("firewall_new", guarded("sessions: 1000000, renewal: { at_once: 4096, packets: 1 }"))
        },
        recipe("balancer", balanced("sessions: 4096")),
        recipe("router_1", router(32, 1, 0, TRAFFIC)),
        Recipe { counted: Counted::Nothing, ..recipe("router_1_unaccounted", router(32, 1, 0, TRAFFIC)) },
        Recipe { counted: Counted::Untimed, ..recipe("router_1_untimed", router(32, 1, 0, TRAFFIC)) },
        Recipe { churn: true, ..recipe("router_1_changing", router(32, 1, 0, TRAFFIC)) },
        recipe("router_1_b256", router(256, 1, 0, TRAFFIC)),
        Recipe { cold: Some(8_192), ..recipe("router_1_cold", router(32, 1, 0, "size: 60, sessions: 1000000")) },
        recipe("router_16", router(32, 16, 0, TRAFFIC)),
        recipe("router_1_fair", fair(router(32, 1, 0, TRAFFIC))),
        recipe("router_16_fair", fair(router(32, 16, 0, TRAFFIC))),
        recipe("lanes_16", lanes(16)),
        recipe("lanes_16_fair", fair(lanes(16))),
        recipe("router_64", router(32, 64, 0, TRAFFIC)),
        recipe("router_64_unfolded", format!("fold: off\n{}", router(32, 64, 0, TRAFFIC))),
        recipe("router_64_trigger16", router(32, 64, 16, TRAFFIC)),
        recipe("router_64_b256", router(256, 64, 0, TRAFFIC)),
    ];
    // Use a real capture if it exists; otherwise generated traffic with mixed sizes and sessions of unequal weight.
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/pcap/many-flows.pcap");
    let stand_in = router(32, 1, 0, "size: imix, sessions: 1170, skew: 1.0");
    all.push(match capture.canonicalize() {
        Ok(path) => {
            let port = format!("{{ pcap: {{ read: '{}', speed: fast, loops: forever }} }}", path.display());
            let yaml = stand_in
                .lines()
                .map(|line| if line.starts_with("  in:") { format!("  in: {port}\n") } else { format!("{line}\n") });
            recipe("router_1_pcap", yaml.collect())
        }
        Err(_) => {
            eprintln!("router_1_pcap: {} does not exist; using generated traffic", capture.display());
            recipe("router_1_pcap", stand_in)
        }
    });
    Ok(all)
}

/// Writes the routes for `hops` next hops, spread evenly over the prefixes, with the default routes that a capture
/// needs. Also writes the prefixes alone, as destinations.
fn write_routes(folder: &Path, hops: u32) -> std::io::Result<()> {
    let (mut table, mut destinations) = (String::from("0.0.0.0/0 0\n::/0 0\n"), String::new());
    for (prefix, hop) in synthetic::routes::<u32>(PREFIXES, hops, 7) {
        // Writing into a string cannot fail.
        let _ = writeln!(table, "{prefix} {hop}");
        let _ = writeln!(destinations, "{prefix}");
    }
    std::fs::write(folder.join(format!("routes-{hops}.txt")), table)?;
    std::fs::write(folder.join("destinations.txt"), destinations)
}

/// Returns a removal and an addition for each route of the router with one next hop. A route may be missing when a run
/// ends; the rest of the list restores it.
fn changes() -> Vec<String> {
    let routes = synthetic::routes::<u32>(PREFIXES, 1, 7);
    routes.into_iter().flat_map(|(prefix, hop)| [format!("remove {prefix}"), format!("add {prefix} {hop}")]).collect()
}

/// A generator, at most one module, and a sink.
fn straight(batch: usize, module: &str) -> String {
    let path = module.split_once(':').map_or(String::new(), |(name, _)| format!("{name} -> "));
    let modules = if module.is_empty() { String::new() } else { format!("modules:\n  {module}\n") };
    format!(
        "batch: {batch}\nports:\n  in: {{ generator: {{ {TRAFFIC} }} }}\n  out: {{ sink: }}\n{modules}pipeline:\n  - \
         in -> {path}out\n"
    )
}

/// A meter between generator and sink. Packets from 1 024 sources in turn stay below the rate.
fn metered(key: &str) -> String {
    let yaml = straight(
        32,
        &format!("meter: {{ meter: {{ trtcm: {{ cir: 400Gbps, cbs: 1MiB, pir: 500Gbps, pbs: 1MiB }}, key: {key} }} }}"),
    );
    let wired = yaml.replace(TRAFFIC, &format!("{TRAFFIC}, source: 198.18.0.0/22"));
    wired.replace(
        "  - in -> meter -> out\n",
        "  - in -> meter\n  - meter[green] -> out\n  - meter[yellow] -> drop\n  - meter[red] -> drop\n",
    )
}

/// A NAT for outgoing packets of these sessions, with enough outside ports.
fn translated(traffic: &str, table: &str) -> String {
    format!(
        "ports:\n  in: {{ generator: {{ size: 60, {traffic}, source: 10.0.0.0/14 }} }}\n  out: {{ sink: }}\nstate:\n  \
         nat: {{ nat: {{ pool: 192.0.2.0/25{table} }} }}\nmodules:\n  out_nat: {{ nat_out: {{ state: nat }} \
         }}\npipeline:\n  - in -> out_nat -> out\n"
    )
}

/// A firewall with 100 rules, few of which match, and connections that it permits.
fn guarded(traffic: &str) -> String {
    format!(
        "ports:\n  in: {{ generator: {{ size: 60, {traffic} }} }}\n  out: {{ sink: }}\nstate:\n  known: {{ \
         connections: {{}} }}\nmodules:\n  wall: {{ firewall: {{ state: known, rules: {{ synthetic: 100, seed: 1 }}, \
         default: permit }} }}\npipeline:\n  - in -> wall -> out\n"
    )
}

/// A service with 16 backends, with sessions from as many clients.
fn balanced(traffic: &str) -> String {
    let backends: Vec<_> = (1..=16).map(|it| format!("{{ address: 10.0.0.{it}, port: 8080 }}")).collect();
    let backends = backends.join(", ");
    format!(
        "ports:\n  in: {{ generator: {{ size: 60, {traffic}, source: 198.18.0.0/16, destination: 192.0.2.10/32, \
         destination_port: 80 }} }}\n  out: {{ sink: }}\nstate:\n  web: {{ balancer: {{ services: [{{ address: \
         192.0.2.10, protocol: udp, port: 80, backends: [{backends}] }}] }} }}\nmodules:\n  lb: {{ balance: {{ state: \
         web, others: drop }} }}\npipeline:\n  - in -> lb -> out\n"
    )
}

/// The same pipeline with the weighted-fair scheduler.
fn fair(yaml: String) -> String {
    format!("scheduler: weighted-fair\n{yaml}")
}

/// Generators with one module each, all always backlogged: the maximum work for the scheduler.
fn lanes(lanes: usize) -> String {
    let (mut ports, mut modules, mut paths) = (String::new(), String::new(), String::new());
    for lane in 0..lanes {
        // Writing into a string cannot fail.
        let _ = writeln!(ports, "  in{lane}: {{ generator: {{ {TRAFFIC} }} }}");
        let _ = writeln!(modules, "  valid{lane}: {{ ip_validate: }}");
        let _ = writeln!(paths, "  - in{lane} -> valid{lane} -> out");
    }
    format!("batch: 32\nports:\n{ports}  out: {{ sink: }}\nmodules:\n{modules}pipeline:\n{paths}")
}

/// A generator, a chain of modules (name, function, parameters), and a sink.
fn chain(modules: &[(&str, &str, &str)]) -> String {
    let path: String = modules.iter().map(|(name, ..)| format!("{name}[0] -> ")).collect();
    let mut text = format!("ports:\n  in: {{ generator: {{ {TRAFFIC} }} }}\n  out: {{ sink: }}\nmodules:\n");
    for (name, function, params) in modules {
        // Writing into a string cannot fail.
        let _ = writeln!(text, "  {name}: {{ {function}: {{ {params} }} }}");
    }
    let others = if path.contains("up[") { "  - up[reply] -> out\n  - up[control] -> drop\n" } else { "" };
    format!("{text}pipeline:\n  - in -> {path}out\n{others}")
}

/// Returns a tunnel for each address to which the generator sends.
fn users() -> String {
    let user = |host: u32| format!("{} {}\n", std::net::Ipv4Addr::from_bits(0xc613_0000 + host), host + 1);
    (0..1 << 16).map(user).collect()
}

/// Returns a session with limits for each address to which the generator sends.
fn pdu_sessions() -> String {
    let session = |host: u32| {
        let user = std::net::Ipv4Addr::from_bits(0xc613_0000 + host);
        let teid = host + 1;
        format!(
            "{user} teid={teid} peer=192.0.2.10 peer-teid={teid} qfi=9 ambr-down=500Gbps/1MiB bearer qfi=1 \
             filter=1,tcp,port=5060\n"
        )
    };
    (0..1 << 16).map(session).collect()
}

/// The downlink of a user plane function: packets to users of 65 536 sessions pass filters, limits and charging rules,
/// and enter their tunnels.
fn user_plane() -> String {
    format!(
        "ports:\n  in: {{ generator: {{ {TRAFFIC} }} }}\n  out: {{ sink: }}\nstate:\n  users: {{ pdu_sessions: {{ \
         sessions: sessions.txt, rules: [\"1 udp port=53\", \"2 tcp port=443\"] }} }}\nmodules:\n  down: {{ \
         upf_downlink: {{ state: users }} }}\n  encap: {{ gtpu_encap: {{ source: 192.0.2.1, by: session, qfi: \
         session }} }}\npipeline:\n  - in -> down -> encap -> out\n"
    )
}

/// A router with this number of next hops, each with a chain of three modules; the first one has the trigger.
fn router(batch: usize, hops: u32, trigger: usize, traffic: &str) -> String {
    let mut modules = format!("modules:\n  {HEAD}\n  route: {{ ip_lookup: {{ routes: routes-{hops}.txt }} }}\n");
    let mut paths = String::from("pipeline:\n  - in -> valid -> route\n");
    let mut buffers = String::new();
    for hop in 0..hops {
        // Writing into a string cannot fail.
        let _ = write!(
            modules,
            "  ttl{hop}: {{ ttl: }}\n  mac{hop}: {{ mac_rewrite: {{ source: 02:00:00:00:00:02, destination: \
             02:00:00:00:01:{hop:02x} }} }}\n  count{hop}: {{ counter: }}\n"
        );
        let _ = writeln!(paths, "  - route[{hop}] -> ttl{hop} -> mac{hop} -> count{hop} -> out");
        if trigger > 0 {
            let _ = writeln!(buffers, "  ttl{hop}: {{ trigger: {trigger} }}");
        }
    }
    let buffers = if trigger > 0 { format!("buffers:\n{buffers}") } else { String::new() };
    format!(
        "batch: {batch}\nports:\n  in: {{ generator: {{ {traffic}, destination: {{ routes: destinations.txt }} }} \
         }}\n  out: {{ sink: }}\n{modules}{paths}{buffers}"
    )
}
