//! What a configuration will ask of the machine that it runs on: cores, memory for packets, interfaces. Nothing is opened.

use forebay_measure::Frequency;
use forebay_packet::PoolOptions;

use crate::compile::{Conditions, compile};
use crate::{Problems, Source};

/// What is asked of a machine.
#[derive(Clone, Debug)]
pub struct Demands {
    /// The pipeline's name.
    pub name: String,
    /// By worker: the core that it is bound to, if it is.
    pub cores: Vec<Option<usize>>,
    /// Each worker's packet pool.
    pub pool: PoolOptions,
    /// The ports.
    pub ports: Vec<PortDemand>,
}

/// What a port asks of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortDemand {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: &'static str,
    /// The interface that it names.
    pub interface: Option<String>,
    /// The network namespace that this is in.
    pub namespace: Option<String>,
    /// The workers that have it, by number.
    pub workers: Vec<usize>,
}

/// Checks a configuration, and says what it asks for.
///
/// # Errors
/// Everything that is wrong, with places.
pub fn demands(source: &Source) -> Result<Demands, Problems> {
    // Nothing runs, as in `check`.
    let conditions = Conditions { frequency: Frequency::new(1e9), simulated: true };
    let (draft, _) = compile(source, conditions, None, None)?;
    let pool = PoolOptions { chunks: draft.pool.chunks, frame: draft.pool.frame, ..PoolOptions::default() };
    let ports = draft.ports.into_iter().zip(draft.placement.ports.iter()).map(|(port, workers)| {
        // Every kind of port that is on one calls it so.
        let text = |key: &str| port.params.get(key).and_then(|value| value.as_str()).map(str::to_owned);
        let (interface, namespace) = (text("interface"), text("namespace"));
        PortDemand { name: port.name, kind: port.kind.name, interface, namespace, workers: workers.clone() }
    });
    let ports = ports.collect();
    Ok(Demands { name: draft.name, cores: draft.cores, pool, ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_pools_and_interfaces_are_told_without_opening_anything() {
        let text = "\
ports:
  host: { tap: { interface: fb-doctor0, namespace: none-such } }
  in: { generator: { rate: 1Mpps } }
  out: { sink: {} }
pool: { chunks: 1000, frame: 9000 }
modules: { hop: { ttl: }, more: { ttl: } }
pipeline: [in -> hop -> out, host -> more -> host]
workers: [{ core: 3, modules: [hop] }, { modules: [more] }]
";
        let Demands { name, cores, pool, ports } =
            demands(&Source::new(text, "doctor.yaml", std::env::temp_dir())).expect("in order");
        assert_eq!((name.as_str(), cores), ("doctor", vec![Some(3), None]));
        assert_eq!((pool.chunks, pool.frame), (1_000, 9_000));
        let host = PortDemand {
            name: "host".to_owned(),
            kind: "tap",
            interface: Some("fb-doctor0".to_owned()),
            namespace: Some("none-such".to_owned()),
            workers: vec![1],
        };
        assert_eq!(ports[0], host);
        assert_eq!((ports[1].kind, &ports[1].interface, &ports[1].workers), ("generator", &None, &vec![0]));
        assert_eq!(ports[2].workers, [0]);
    }
}
