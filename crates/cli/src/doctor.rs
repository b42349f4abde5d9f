//! `forebay doctor`: checks this machine for settings that cost performance, and shows the remedy.

use std::io::Write;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use forebay_host::{
    Core, Host, Tree,
    doctor::{Diagnosis, Intent, Outcome, Port, State, Worker, examine},
};
use forebay_instance::{choose, choose_of, events::NewEvent};
use forebay_packet::PoolOptions;
use forebay_pipeline::{PortDemand, allowed_names};
use forebay_protocol::event::EventName;

use crate::format::{Align, counted, wrapped};
use crate::source::source;
use crate::{Answer, args, format, printed};

/// The time over which loads and rates are measured. The kernel counts the time of a core in units of 10 ms, so a load
/// is exact to about 2 %.
const LOOK: Duration = Duration::from_millis(500);
/// Maximum width of text, in columns.
const WIDTH: usize = 110;

/// Examines the machine. Returns `No` if a check found a certain loss of performance or an obstacle.
pub(crate) fn doctor(arguments: &args::Doctor) -> anyhow::Result<Answer> {
    let tree = Tree::at(&arguments.root);
    if !tree.has("/proc") && !tree.has("/sys") {
        bail!("--root {}: name a folder that contains a machine's proc and sys", arguments.root.display());
    }
    let intended = intended(arguments)?;
    let mut host = Host::read(&tree);
    let intent = intended.on(&host, &tree, arguments)?;
    std::thread::sleep(LOOK);
    host.observe(&tree);
    let diagnosis = examine(&host, &intent);
    if arguments.json {
        writeln!(printed::out(), "{}", serde_json::to_string(&diagnosis)?)?;
    } else {
        table(&diagnosis)?;
    }
    Ok(if diagnosis.has_cost() { Answer::No } else { Answer::Yes })
}

/// The workers and ports of the pipeline, before cores are chosen.
struct Intended {
    /// The pipeline's name; `None` if no pipeline is given.
    pipeline: Option<String>,
    /// The core of each worker; `None` if it is chosen automatically.
    cores: Vec<Option<usize>>,
    pool: PoolOptions,
    ports: Vec<Port>,
    /// The addresses for which the pipeline replies.
    addresses: Vec<IpAddr>,
}

/// Reads the needs of the pipeline. Without a pipeline, assumes one worker with defaults.
fn intended(arguments: &args::Doctor) -> anyhow::Result<Intended> {
    let named: Vec<usize> = arguments.core.iter().flat_map(forebay_host::KernelList::iter).collect();
    if let Some(twice) = named.iter().enumerate().find(|(at, core)| named[..*at].contains(core)) {
        bail!("--core {}: named twice: name each core once, because each worker needs its own core", twice.1);
    }
    if named.is_empty() && !arguments.core.is_empty() {
        bail!("--core: no core is named: write a list of cores, such as 2-3,8");
    }
    let mut named: Vec<_> = named.into_iter().map(Some).collect();
    let Some(pipeline) = &arguments.pipeline else {
        let cores = if named.is_empty() { vec![None] } else { named };
        return Ok(Intended {
            pipeline: None,
            cores,
            pool: PoolOptions::default(),
            ports: Vec::new(),
            addresses: Vec::new(),
        });
    };
    let demands = forebay_pipeline::demands(&source(pipeline, &arguments.set)?)?;
    if named.len() > demands.cores.len() {
        let workers = counted(demands.cores.len() as u64, "worker");
        bail!("--core names {} cores, but the pipeline has {workers}: name at most that many", named.len());
    }
    // The first workers get the named cores. A later worker that is bound to one of them gets another core.
    let mut cores = demands.cores;
    cores.iter_mut().filter(|core| named.contains(core)).for_each(|core| *core = None);
    cores.iter_mut().zip(named.drain(..)).for_each(|(core, name)| *core = name);
    let ports = demands.ports.into_iter().map(port).collect();
    Ok(Intended { pipeline: Some(demands.name), cores, pool: demands.pool, ports, addresses: demands.addresses })
}

fn port(port: PortDemand) -> Port {
    Port {
        name: port.name,
        kind: port.kind.to_owned(),
        interface: port.interface,
        elsewhere: port.namespace.is_some(),
        workers: port.workers,
        host: port.host,
        address: port.address,
    }
}

/// Returns an event which warns that the host's own network stack also answers ARP for the pipeline's addresses.
/// Returns `None` if the host does not answer.
pub(crate) fn arp_flux(ports: Vec<PortDemand>, addresses: Vec<IpAddr>) -> Option<NewEvent> {
    if !ports.iter().any(|port| port.kind == "af_packet" && port.host) {
        return None;
    }
    let ports = ports.into_iter().map(port).collect();
    let intent = Intent { pipeline: Some(String::new()), ports, addresses, ..Intent::default() };
    let found = forebay_host::doctor::arp_flux(&Host::read(&Tree::default()), &intent)?;
    let command = found.remedy.first()?.as_str();
    let says = &found.says;
    let message = format!(
        "{says}, and packets for Forebay are lost: run `{command}`, or set `host: false` for the `af_packet` port"
    );
    Some(NewEvent::new(EventName::ArpFlux, message).with("command", command))
}

impl Intended {
    /// Returns the workers with the cores that they would get on this machine, or on the machine whose files are read.
    fn on(self, host: &Host, tree: &Tree, arguments: &args::Doctor) -> anyhow::Result<Intent> {
        let Self { pipeline, cores, pool, mut ports, addresses } = self;
        let chosen = if tree.is_this_machine() { choose(&cores) } else { choose_of(&cores, &allowed(host)) };
        let workers: Vec<_> = match chosen {
            Ok(chosen) => {
                chosen.iter().map(|core| Worker { core: Some(*core), shared: chosen.is_shared(*core) }).collect()
            }
            // A check of `examine` reports this error.
            Err(_) => cores.into_iter().map(|core| Worker { core, shared: false }).collect(),
        };
        for name in &arguments.interface {
            host.interface(name).with_context(|| {
                let names = host.interfaces.iter().map(|interface| interface.name.as_str());
                format!("--interface {name}: unknown interface: {}", allowed_names(names))
            })?;
            let workers = (0..workers.len()).collect();
            ports.push(Port { name: name.clone(), interface: Some(name.clone()), workers, ..Port::default() });
        }
        Ok(Intent { pipeline, workers, ports, pool_bytes: pool.bytes() as u64, addresses })
    }
}

/// Returns the cores that a process may use on the machine `host`.
fn allowed(host: &Host) -> Vec<Core> {
    let allowed = host.process.cpus.value();
    let may = host.cpus.iter().filter(|cpu| allowed.is_none_or(|allowed| allowed.contains(cpu.number)));
    may.map(Core::from).collect()
}

fn table(diagnosis: &Diagnosis) -> std::io::Result<()> {
    let mut out = printed::out();
    let Intent { pipeline, workers, .. } = &diagnosis.intent;
    let of = pipeline.as_deref().unwrap_or("no pipeline named");
    let cores: Vec<_> =
        workers.iter().map(|worker| worker.core.map_or_else(|| "n/a".to_owned(), |core| core.to_string())).collect();
    let core = if workers.len() == 1 { "core" } else { "cores" };
    writeln!(out, "{of}: {} on {core} {}\n", counted(workers.len() as u64, "worker"), cores.join(", "))?;
    let row = |check: &Outcome| vec![check.id.to_owned(), check.state.name().to_owned(), check.says.clone()];
    let rows: Vec<_> = diagnosis.checks.iter().map(row).collect();
    let columns = [("check", Align::Left), ("state", Align::Left), ("finding", Align::Left)];
    write!(out, "{}", format::table(&columns, &rows))?;
    for check in diagnosis.findings() {
        writeln!(out, "\n{} ({}): {}", check.id, check.state.name(), check.says)?;
        for (at, evidence) in check.evidence.iter().enumerate() {
            writeln!(out, "  {:5}  {evidence}", if at == 0 { "read" } else { "" })?;
        }
        writeln!(out, "  costs  {}", wrapped(check.cost.unwrap_or_default(), 9, WIDTH))?;
        for (at, line) in check.remedy.iter().enumerate() {
            writeln!(out, "  {:5}  {line}", if at == 0 { "fix" } else { "" })?;
        }
    }
    let number = |states: &[State]| diagnosis.checks.iter().filter(|check| states.contains(&check.state)).count();
    writeln!(
        out,
        "\n{} of {} checks found a loss of performance or an obstacle, {} found a possible loss, {} are not available \
         on this machine",
        number(&[State::Stops, State::Costs]),
        diagnosis.checks.len(),
        number(&[State::May]),
        number(&[State::NotAvailable]),
    )
}
