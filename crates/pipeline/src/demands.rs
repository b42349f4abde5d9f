//! The resources that a configuration needs on its machine: cores, packet memory, interfaces. Nothing is opened.

use std::net::IpAddr;

use forebay_packet::PoolOptions;
use forebay_units::Frequency;

use crate::Source;
use crate::compile::{Conditions, compile};
use crate::draft::Draft;
use crate::problems::Problems;
use crate::section::{entries, kind_of};

/// The resources that a configuration needs.
#[derive(Clone, Debug)]
pub struct Demands {
    /// The pipeline's name.
    pub name: String,
    /// The core that each worker is bound to, if the configuration names one.
    pub cores: Vec<Option<usize>>,
    /// Each worker's packet pool.
    pub pool: PoolOptions,
    /// The ports.
    pub ports: Vec<PortDemand>,
    /// The pipeline's own addresses: those of states of the kind `interface`.
    pub addresses: Vec<IpAddr>,
}

/// The resources that a port needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDemand {
    /// The port's name.
    pub name: String,
    /// The port's kind.
    pub kind: &'static str,
    /// The interface that the port uses; `None` if it uses none.
    pub interface: Option<String>,
    /// The network namespace of the interface; `None` for the namespace of the process.
    pub namespace: Option<String>,
    /// The numbers of the workers that run the port.
    pub workers: Vec<usize>,
    /// Whether the host's own stack gets incoming packets, too (`host` of `af_packet`).
    pub host: bool,
    /// The address that the port gives to the host (`address` of `tap`).
    pub address: Option<IpAddr>,
}

/// Checks a configuration, and returns the resources that it needs.
///
/// # Errors
/// Returns all errors of the configuration, with their places.
pub fn demands(source: &Source) -> Result<Demands, Problems> {
    // Nothing runs, so the frequency has no effect, as in `check`.
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let (draft, _) = compile(source, conditions, None, None)?;
    let pool = PoolOptions { chunks: draft.pool.chunks, frame: draft.pool.frame, ..PoolOptions::default() };
    let (ports, addresses) = (port_demands(&draft), own_addresses(&draft));
    Ok(Demands { name: draft.name, cores: draft.cores, pool, ports, addresses })
}

/// Returns the demands of each port, in the order of the text.
pub(crate) fn port_demands(draft: &Draft) -> Vec<PortDemand> {
    let ports = draft.ports.iter().zip(draft.placement.ports.iter()).map(|(port, workers)| {
        // All kinds of ports with an interface use these names of parameters.
        let text = |key: &str| port.params.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        PortDemand {
            name: port.name.clone(),
            kind: port.kind.name,
            interface: text("interface"),
            namespace: text("namespace"),
            workers: workers.clone(),
            host: port.params.get("host").and_then(|value| value.as_bool()).unwrap_or(true),
            address: text("address").and_then(|text| without_prefix(&text)),
        }
    });
    ports.collect()
}

/// Returns the pipeline's own addresses.
pub(crate) fn own_addresses(draft: &Draft) -> Vec<IpAddr> {
    let interfaces = entries(&draft.root, "state").filter_map(kind_of).filter(|kind| kind.key == "interface");
    let lists = interfaces.filter_map(|kind| kind.value.get("addresses")?.as_list());
    lists.flatten().filter_map(|address| without_prefix(address.as_text()?)).collect()
}

/// Returns the address in `10.0.0.1/24` or `10.0.0.1`.
fn without_prefix(text: &str) -> Option<IpAddr> {
    text.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn demands_are_returned_without_opening_anything() {
        let text = "\
ports:
  host: { tap: { interface: fb-doctor0, namespace: none-such, address: 192.0.2.9/24 } }
  in: { generator: { rate: 1Mpps } }
  out: { sink: {} }
pool: { chunks: 1000, frame: 9000 }
state: { lan: { interface: { mac: 02:00:00:00:00:01, addresses: [192.0.2.1/24, \"2001:db8::1/64\"] } } }
modules: { hop: { ttl: }, more: { ttl: }, error: { icmp_error: { interfaces: [lan], error: no_route } } }
pipeline: [in -> hop -> error -> out, host -> more -> host]
workers: [{ core: 3, modules: [hop, error] }, { modules: [more] }]
";
        let Demands { name, cores, pool, ports, addresses } =
            demands(&Source::new(text, "doctor.yaml", std::env::temp_dir())).expect("in order");
        assert_eq!((name.as_str(), cores), ("doctor", vec![Some(3), None]));
        assert_eq!((pool.chunks, pool.frame), (1_000, 9_000));
        let host = PortDemand {
            name: "host".to_owned(),
            kind: "tap",
            interface: Some("fb-doctor0".to_owned()),
            namespace: Some("none-such".to_owned()),
            workers: vec![1],
            host: true,
            address: Some("192.0.2.9".parse().expect("an address")),
        };
        assert_eq!(addresses, ["192.0.2.1", "2001:db8::1"].map(|text| text.parse::<IpAddr>().expect("an address")));
        assert_eq!(ports[0], host);
        assert_eq!((ports[1].kind, &ports[1].interface, &ports[1].workers), ("generator", &None, &vec![0]));
        assert_eq!(ports[2].workers, [0]);
    }
}
