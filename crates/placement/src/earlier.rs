//! A placement that already runs, from the output of `forebay place --json` or from a running pipeline. A search that
//! starts from this placement can move few functions.

use std::collections::BTreeMap;

use forebay_models::placement::Way;
use serde::Deserialize;

use crate::answer::{Answer, ChainAnswer, ChainForm};
use crate::chains::Chains;
use crate::server::Server;

/// The placement of chains that run now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EarlierPlacement {
    /// The domains of each chain. `None` if the chain is new, or if it ran with other functions, copies or cores.
    pub ways: Vec<Option<Way>>,
    /// The core of each function or copy of each chain. Empty for a chain without domains.
    pub(crate) cores: Vec<Vec<usize>>,
    /// Notes on chains that were ignored.
    pub notes: Vec<String>,
}

/// An error when a placement is read.
#[derive(Debug, thiserror::Error)]
pub enum EarlierError {
    /// The text is not the output of `forebay place --json`.
    #[error("not a placement ({0}): allowed is the output of `forebay place --json`")]
    Form(serde_json::Error),
    /// The text has another version.
    #[error("version {0}: allowed is 1")]
    Version(u32),
    /// Two functions, or copies of chains, are on one core.
    #[error("core {core} is used by chains '{first}' and '{second}': allowed is one function or copy on each core")]
    Twice {
        /// The core.
        core: usize,
        /// A chain.
        first: String,
        /// Another chain, or the same.
        second: String,
    },
}

/// The part of the output that is read.
#[derive(Deserialize)]
struct Printed {
    version: u32,
    chains: Vec<PrintedChain>,
}

/// A chain in the output. The fields must have the names that they have in [`ChainAnswer`].
#[derive(Deserialize)]
struct PrintedChain {
    chain: String,
    form: PrintedForm,
    functions: Vec<PrintedFunction>,
    seats: Vec<PrintedSeat>,
}

/// The form of a chain. The names must be those of [`ChainForm`].
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PrintedForm {
    Pipelined,
    Fused,
}

#[derive(Deserialize)]
struct PrintedFunction {
    name: String,
}

#[derive(Deserialize)]
struct PrintedSeat {
    core: usize,
}

impl EarlierPlacement {
    /// Reads a placement. A chain is ignored if it has other functions now, or if its cores do not exist.
    ///
    /// # Errors
    /// Returns [`EarlierError`] if the text is not a valid placement.
    pub fn read(text: &str, chains: &Chains, server: &Server) -> Result<Self, EarlierError> {
        let Printed { version, chains: printed } = serde_json::from_str(text).map_err(EarlierError::Form)?;
        if version != 1 {
            return Err(EarlierError::Version(version));
        }
        let mut on = BTreeMap::new();
        for chain in &printed {
            for seat in &chain.seats {
                if let Some(first) = on.insert(seat.core, &chain.chain) {
                    let [first, second] = [first, &chain.chain].map(|name| name.escape_debug().to_string());
                    return Err(EarlierError::Twice { core: seat.core, first, second });
                }
            }
        }
        let domain = |core: usize| server.domains.iter().position(|domain| domain.cores.contains(&core));
        let mut earlier = Self::default();
        for chain in &chains.chains {
            let found = printed.iter().find(|printed| printed.chain == chain.name);
            let names = || chain.functions.iter().map(|function| function.name.as_str());
            let same = found.filter(|found| found.functions.iter().map(|it| it.name.as_str()).eq(names()));
            let cores: Vec<_> = same.iter().flat_map(|chain| &chain.seats).map(|seat| seat.core).collect();
            let domains: Option<Vec<_>> = cores.iter().map(|core| domain(*core)).collect();
            let way = same.zip(domains).and_then(|(found, domains)| match found.form {
                PrintedForm::Pipelined if domains.len() == chain.functions.len() => Some(Way::Split(domains)),
                PrintedForm::Fused if (1..=chain.copies).contains(&domains.len()) => Some(Way::Whole(domains)),
                _ => None,
            });
            if found.is_some() && way.is_none() {
                let note = "it ran with other functions, copies or cores: `--moves` does not count its moves";
                earlier.notes.push(format!("chain {}: {note}", chain.name));
            }
            earlier.cores.push(if way.is_some() { cores } else { Vec::new() });
            earlier.ways.push(way);
        }
        Ok(earlier)
    }

    /// Returns the placement of a running pipeline. `modules` has the cores of each module. A chain is ignored, with a
    /// note, if it does not run in a form or on cores that a placement can have.
    #[must_use]
    pub fn running(chains: &Chains, server: &Server, modules: &BTreeMap<String, Vec<usize>>) -> Self {
        let domain = |core: &usize| server.domains.iter().position(|domain| domain.cores.contains(core));
        let domains = |cores: &[usize]| cores.iter().map(domain).collect::<Option<Vec<_>>>();
        let mut earlier = Self::default();
        for chain in &chains.chains {
            let found = |all: Vec<&Vec<usize>>| {
                let is_split = all.iter().all(|cores| cores.len() == 1);
                let is_whole = all.iter().all(|cores| *cores == all[0]) && (1..=chain.copies).contains(&all[0].len());
                if is_whole && (all.len() > 1 || !is_split) {
                    return Some((Way::Whole(domains(all[0])?), all[0].clone()));
                }
                let cores: Vec<_> = all.iter().flat_map(|cores| *cores).copied().collect();
                is_split.then_some(Way::Split(domains(&cores)?)).map(|way| (way, cores))
            };
            let all: Vec<_> = chain.functions.iter().map(|function| modules.get(&function.module)).collect();
            let is_running = all.iter().any(Option::is_some);
            let found = all.into_iter().collect::<Option<_>>().and_then(found);
            if is_running && found.is_none() {
                let note = "it runs in another form, or on cores that place does not use: `--moves` does not count its \
                            moves";
                earlier.notes.push(format!("chain {}: {note}", chain.name));
            }
            let (way, cores) = found.map_or((None, Vec::new()), |(way, cores)| (Some(way), cores));
            earlier.ways.push(way);
            earlier.cores.push(cores);
        }
        earlier
    }

    /// Returns the chains of which functions, or copies, get another core in the placement `placed`, each with the
    /// number of these functions or copies. If functions share a core now, more of them may change cores than domains.
    /// Chains that were ignored have no moves.
    #[must_use]
    pub fn moves_to<'p>(&self, chains: &Chains, placed: &'p Answer) -> Vec<(&'p ChainAnswer, usize)> {
        let moves = |placed: &ChainAnswer| {
            let cores = placed.seats.iter().map(|seat| seat.core).collect();
            let next = match placed.form {
                ChainForm::Pipelined => Way::Split(cores),
                ChainForm::Fused => Way::Whole(cores),
            };
            let chain = chains.chains.iter().position(|chain| chain.name == placed.chain);
            chain.map_or(0, |chain| self.moves_between_cores(chain, &next))
        };
        placed.chains.iter().map(|chain| (chain, moves(chain))).filter(|(_, moves)| *moves > 0).collect()
    }

    /// Returns the number of functions, or of copies, of the chain `chain` that get another core. `next` has cores in
    /// place of domains. Returns 0 for a chain that was ignored.
    fn moves_between_cores(&self, chain: usize, next: &Way) -> usize {
        let Some(Some(way)) = self.ways.get(chain) else { return 0 };
        let cores = self.cores[chain].clone();
        let now = if matches!(way, Way::Split(_)) { Way::Split(cores) } else { Way::Whole(cores) };
        now.moved(next)
    }

    /// Returns the number of functions, or of copies, of the chain `chain` that get another core of the same domain.
    /// `next` has the domains, and `cores` the core in each. Returns 0 for a chain that was ignored.
    #[must_use]
    pub(crate) fn moves_within_domains(&self, chain: usize, next: &Way, cores: &[usize]) -> usize {
        let Some(Some(now)) = self.ways.get(chain) else { return 0 };
        let cores = cores.to_vec();
        let on = if matches!(next, Way::Split(_)) { Way::Split(cores) } else { Way::Whole(cores) };
        // A move to another domain is also a move to another core.
        self.moves_between_cores(chain, &on).saturating_sub(now.moved(next))
    }
}

/// Returns the core of each function or copy of all placed chains. A function or copy that stays on its domain keeps
/// its core. `kept` has the index of each placed chain in the file. If a domain has too few cores, which a valid
/// placement excludes, the core is `usize::MAX`.
pub(crate) fn assign(
    server: &Server,
    placement: &[Way],
    kept: &[usize],
    earlier: Option<&EarlierPlacement>,
) -> Vec<Vec<usize>> {
    let mut free: Vec<Vec<usize>> = server.domains.iter().map(|domain| domain.cores.clone()).collect();
    let mut take = |domain: usize, core: usize| {
        let at = free[domain].iter().position(|free| *free == core)?;
        Some(free[domain].remove(at))
    };
    let mut cores: Vec<Vec<Option<usize>>> = placement.iter().map(|way| vec![None; way.domains().len()]).collect();
    for (at, way) in placement.iter().enumerate() {
        let now = earlier.and_then(|earlier| Some((earlier.ways.get(kept[at])?.as_ref()?, &earlier.cores[kept[at]])));
        let Some((now, before)) = now else { continue };
        match (now, way) {
            (Way::Split(_), Way::Split(domains)) => {
                for (seat, domain) in domains.iter().enumerate() {
                    cores[at][seat] = take(*domain, before[seat]);
                }
            }
            // Copies are equivalent, so each copy takes the first free one of the chain's earlier cores on its domain.
            // If a chain changes between copies and split functions, its functions take cores in the same way.
            (_, way) => {
                for (seat, domain) in way.domains().iter().enumerate() {
                    cores[at][seat] = before.iter().find_map(|core| take(*domain, *core));
                }
            }
        }
    }
    let seats = cores.into_iter().zip(placement);
    let chain = |(own, way): (Vec<Option<usize>>, &Way)| {
        let domains = way.domains().iter();
        own.into_iter()
            .zip(domains)
            .map(|(core, domain)| {
                let next = || (!free[*domain].is_empty()).then(|| free[*domain].remove(0));
                core.or_else(next).unwrap_or(usize::MAX)
            })
            .collect()
    };
    seats.map(chain).collect()
}

#[cfg(test)]
mod tests {
    use forebay_host::Topology;
    use forebay_pipeline::Source;

    use super::*;
    use crate::answer::{Binding, ModelsAnswer, SeatAnswer};
    use crate::registry::ModelOrigin;

    fn chains(text: &str) -> Chains {
        Chains::read(&Source::new(text, "chains.yaml", "")).unwrap_or_else(|problems| panic!("{problems}"))
    }

    #[test]
    fn functions_that_stay_keep_their_cores() {
        let server = Server::of(&Topology::synthetic("2x4").expect("it is valid"), false);
        let chains = chains(
            "chains:\n  - { name: a, functions: [ttl, counter] }\n  - { name: b, functions: [ttl], copies: 2 }\n",
        );
        let text = r#"{ "version": 1, "chains": [
            { "chain": "a", "form": "pipelined", "functions": [{ "name": "ttl" }, { "name": "counter" }],
              "seats": [{ "core": 2 }, { "core": 7 }] },
            { "chain": "b", "form": "fused", "functions": [{ "name": "ttl" }],
              "seats": [{ "core": 0 }, { "core": 4 }] },
            { "chain": "gone", "form": "fused", "functions": [], "seats": [] } ] }"#;
        let earlier = EarlierPlacement::read(text, &chains, &server).expect("a placement");
        assert_eq!(earlier.ways, [Some(Way::Split(vec![0, 1])), Some(Way::Whole(vec![0, 1]))]);
        let next = [Way::Split(vec![0, 0]), Way::Whole(vec![1, 1])];
        assert_eq!(assign(&server, &next, &[0, 1], Some(&earlier)), [[2, 0], [4, 5]]);
        assert_eq!(assign(&server, &next, &[0, 1], None), [[0, 1], [4, 5]]);
        let other = EarlierPlacement::read(&text.replace("counter", "ttl"), &chains, &server).expect("a placement");
        assert_eq!((other.ways[0].clone(), other.notes.len()), (None, 1));
        let modules =
            |all: &[(&str, &[usize])]| all.iter().map(|(name, on)| ((*name).to_owned(), on.to_vec())).collect();
        let names: Vec<_> = chains.chains.iter().flat_map(|chain| &chain.functions).map(|it| &*it.module).collect();
        let running = modules(&[(names[0], &[2]), (names[1], &[7]), (names[2], &[0, 4])]);
        let running = EarlierPlacement::running(&chains, &server, &running);
        assert_eq!((&running.ways, &running.cores), (&earlier.ways, &earlier.cores));
        assert_eq!(running.notes, [""; 0]);
        let other = modules(&[(names[0], &[2, 3]), (names[1], &[3]), (names[2], &[9])]);
        let other = EarlierPlacement::running(&chains, &server, &other);
        assert_eq!((other.ways, other.notes.len()), (vec![None, None], 2));
        let twice = text.replace(r#""core": 7"#, r#""core": 4"#);
        let twice = EarlierPlacement::read(&twice, &chains, &server).expect_err("no placement").to_string();
        assert!(twice.starts_with("core 4 is used by chains 'a' and 'b': allowed"), "{twice}");
        let wrong = EarlierPlacement::read("{}", &chains, &server).expect_err("no placement").to_string();
        assert!(wrong.starts_with("not a placement (missing field `version`"), "{wrong}");
    }

    /// Returns a placement of chains on these cores. Its other values mean nothing.
    fn placed(chains: &[(&str, ChainForm, &[usize])]) -> Answer {
        let seat = |core: &usize| SeatAnswer { domain: 0, core: *core, functions: Vec::new(), rate_pps: 1.0 };
        let chain = |(name, form, cores): &(&str, ChainForm, &[usize])| ChainAnswer {
            chain: (*name).to_owned(),
            form: *form,
            home: 0,
            rate_pps: None,
            predicted_pps: 1.0,
            interval_95_pps: [1.0; 2],
            coupled_pps: None,
            least_pps: None,
            keeps_objective: true,
            functions: Vec::new(),
            seats: cores.iter().map(seat).collect(),
            binds: Binding { function: String::new(), drop: 0.0, place: None, domain: 0, share: 0.0 },
            moves: None,
        };
        let models = ModelsAnswer {
            cpu: String::new(),
            build: String::new(),
            origin: ModelOrigin::Simulated,
            metric: String::new(),
        };
        Answer {
            version: 1,
            name: String::new(),
            topology: String::new(),
            objective: "served",
            search: "exact",
            models,
            value: 1.0,
            bound: None,
            gap: None,
            checked: None,
            nodes: None,
            cores_used: 0,
            cores_usable: 0,
            domains: Vec::new(),
            chains: chains.iter().map(chain).collect(),
            moved: None,
            moved_within: None,
            applied: None,
            rejected: Vec::new(),
            coupled: None,
            notes: Vec::new(),
        }
    }

    #[test]
    fn functions_that_change_cores_are_counted() {
        let server = Server::of(&Topology::synthetic("1x6").expect("it is valid"), false);
        let chains = chains(
            "chains:\n  - { name: a, functions: [ttl, counter, ttl] }\n  - { name: b, functions: [ttl, counter], \
             copies: 2 }\n  - { name: c, functions: [ttl] }\n",
        );
        let on: [&[usize]; 6] = [&[0], &[1], &[1], &[2, 3], &[2, 3], &[9]];
        let names = chains.chains.iter().flat_map(|chain| &chain.functions).map(|it| it.module.clone());
        let running: BTreeMap<_, _> = names.zip(on.map(<[usize]>::to_vec)).collect();
        let earlier = EarlierPlacement::running(&chains, &server, &running);
        assert_eq!(earlier.ways, [Some(Way::Split(vec![0; 3])), Some(Way::Whole(vec![0; 2])), None]);
        let split = |cores: &[usize]| Way::Split(cores.to_vec());
        let whole = |cores: &[usize]| Way::Whole(cores.to_vec());
        assert_eq!(
            [[0, 1, 1], [0, 1, 4], [1, 0, 4]].map(|cores| earlier.moves_between_cores(0, &split(&cores))),
            [0, 1, 3]
        );
        // Copies are equivalent.
        assert_eq!([[2, 3], [3, 2], [3, 4]].map(|cores| earlier.moves_between_cores(1, &whole(&cores))), [0, 0, 1]);
        assert_eq!(
            (earlier.moves_between_cores(0, &whole(&[0])), earlier.moves_between_cores(1, &split(&[2, 4]))),
            (1, 2),
            "another form"
        );
        let next = placed(&[
            ("a", ChainForm::Pipelined, &[0, 1, 4]),
            ("b", ChainForm::Fused, &[3, 2]),
            ("c", ChainForm::Pipelined, &[5]),
            ("unknown", ChainForm::Fused, &[5]),
        ]);
        let moving = earlier.moves_to(&chains, &next);
        let moving: Vec<_> = moving.iter().map(|(chain, moves)| (chain.chain.as_str(), *moves)).collect();
        assert_eq!(moving, [("a", 1)]);
        // Regression: moves within a domain were not reported.
        let within = |chain: usize, next: &Way, cores: &[usize]| earlier.moves_within_domains(chain, next, cores);
        assert_eq!([[0, 1, 1], [0, 1, 4]].map(|cores| within(0, &split(&[0; 3]), &cores)), [0, 1]);
        assert_eq!(within(0, &split(&[0, 1, 0]), &[1, 6, 1]), 1, "the second function moves to another domain");
        assert_eq!([[3, 2], [3, 4]].map(|cores| within(1, &whole(&[0; 2]), &cores)), [0, 1]);
        assert_eq!((within(0, &whole(&[0]), &[0]), within(2, &split(&[0]), &[5])), (0, 0));
        assert_eq!(
            (earlier.moves_between_cores(2, &split(&[5])), earlier.moves_between_cores(3, &split(&[5]))),
            (0, 0),
            "not known"
        );
    }
}
