//! `forebay place --apply`: moves the modules of a running pipeline to the cores of a placement.

use std::collections::BTreeMap;

use anyhow::{anyhow, bail};
use forebay_pipeline::listed;
use forebay_placement::{
    answer::{Answer as Placed, AppliedMove, AppliedPlacement, ChainAnswer, ChainForm},
    chains::Chains,
    earlier::EarlierPlacement,
};
use forebay_protocol::{Client, Request, Response, WantedWorkers, graph::GraphReport};

use crate::args;
use crate::format::counted;
use crate::remote::{self, Leave, Notice, PATIENT};

/// A running pipeline whose modules can move.
pub(super) struct RunningPlacement {
    client: Client,
    graph: GraphReport,
}

impl RunningPlacement {
    /// Connects to the running pipeline that the arguments name. Returns `None` without `--apply`.
    pub(super) fn of(arguments: &args::PlaceOptions) -> anyhow::Result<Option<Self>> {
        if !arguments.apply {
            if arguments.running.is_named() {
                bail!("place: --instance and --socket need --apply");
            }
            return Ok(None);
        }
        let mut client = remote::connect(&arguments.running)?.with_patience(remote::LONG)?;
        let _notice = Notice::after(PATIENT);
        match client.request(&Request::Graph {})? {
            Response::Graph(graph) => Ok(Some(Self { client, graph: *graph })),
            _ => Err(remote::strange()),
        }
    }

    /// Returns the core of a worker; `None` if the worker is unknown.
    fn core(&self, worker: usize) -> Option<usize> {
        self.graph.workers.iter().find(|it| it.id == worker).and_then(|it| it.core)
    }

    /// Returns the cores of workers.
    fn cores_of(&self, workers: &[usize]) -> Vec<usize> {
        workers.iter().filter_map(|worker| self.core(*worker)).collect()
    }

    /// Returns the cores of each module.
    pub(super) fn cores(&self) -> BTreeMap<String, Vec<usize>> {
        self.graph.modules.iter().map(|module| (module.name.clone(), self.cores_of(&module.workers))).collect()
    }

    /// Returns the workers that the modules of the placement must move to, chain by chain. `placed` must be the answer
    /// for `chains`: a chain that is split over cores has one seat for each function, in their order, and any other
    /// chain has one seat for each copy. Returns an error if the pipeline lacks one of these modules, or a worker on
    /// the core of a module.
    fn wanted(&self, chains: &Chains, placed: &Placed) -> anyhow::Result<Vec<WantedWorkers>> {
        let mut wanted = Vec::new();
        for chain in &placed.chains {
            let section = chains.chains.iter().find(|section| section.name == chain.chain);
            let functions = section.map_or(&[][..], |section| &section.functions);
            for (at, function) in functions.iter().enumerate() {
                let seats = match chain.form {
                    ChainForm::Pipelined => &chain.seats[at..=at],
                    ChainForm::Fused => &chain.seats[..],
                };
                if !self.graph.modules.iter().any(|module| module.name == function.module) {
                    bail!(
                        "place: --apply: chain '{}': the running pipeline '{}' has no module '{}': to run the chains \
                         of this file, use `--write FILE`, then `forebay reload FILE`",
                        chain.chain,
                        self.graph.pipeline,
                        function.module
                    );
                }
                let worker = |core: usize| {
                    let found = self.graph.workers.iter().find(|worker| worker.core == Some(core));
                    found.map(|worker| worker.id).ok_or_else(|| self.no_worker(&chain.chain, &function.module, core))
                };
                let to = seats.iter().map(|seat| worker(seat.core)).collect::<Result<_, _>>()?;
                wanted.push(WantedWorkers { module: function.module.clone(), to });
            }
        }
        Ok(wanted)
    }

    /// Returns an error if more than `most` functions, or copies of chains, would get another core. `moving` has the
    /// chains that move. The search limits only the number of functions and copies that change domains. If functions
    /// share a core now, some of them may also have to move within their domain.
    fn refuse_too_many_moves(
        &self,
        moving: &[(&ChainAnswer, usize)],
        wanted: &[WantedWorkers],
        most: usize,
    ) -> anyhow::Result<()> {
        let needed: usize = moving.iter().map(|(_, moves)| moves).sum();
        if needed <= most {
            return Ok(());
        }
        let now: BTreeMap<_, _> = self.graph.modules.iter().map(|module| (&*module.name, &module.workers)).collect();
        let is_moved = |module: &str| wanted.iter().any(|it| it.module == module && now.get(module) != Some(&&it.to));
        let names = moving.iter().flat_map(|(chain, _)| &chain.functions).filter(|function| is_moved(&function.module));
        let names: Vec<_> = names.map(|function| format!("'{}'", function.module)).collect();
        Err(anyhow!(
            "place: --moves {most}: the placement needs {} ({} {} workers), because functions share a core now: allow \
             as many moves, or move these modules first (`forebay move`)",
            counted(needed as u64, "move"),
            names.join(", "),
            if names.len() == 1 { "changes" } else { "change" }
        ))
    }

    /// Returns the error that the running pipeline has no worker on a core.
    fn no_worker(&self, chain: &str, module: &str, core: usize) -> anyhow::Error {
        let cores: Vec<_> = self.graph.workers.iter().filter_map(|worker| worker.core).collect();
        let cores: Vec<_> = cores.iter().map(usize::to_string).collect();
        anyhow!(
            "place: --apply: chain '{chain}': module '{module}' would run on core {core}, where the pipeline '{}' has \
             no worker (its workers run on {}): `--write FILE --spare` writes a pipeline with workers on all cores",
            self.graph.pipeline,
            listed(cores.iter().map(String::as_str))
        )
    }

    /// Moves modules to the workers of the placement. `earlier` is the placement that runs now. Returns `None` and
    /// moves nothing if chains do not fit.
    pub(super) fn apply(
        &mut self,
        chains: &Chains,
        placed: &Placed,
        earlier: &EarlierPlacement,
        arguments: &args::PlaceOptions,
    ) -> anyhow::Result<Option<AppliedPlacement>> {
        if !placed.rejected.is_empty() {
            return Ok(None);
        }
        let wanted = self.wanted(chains, placed)?;
        if let Some(most) = arguments.moves {
            self.refuse_too_many_moves(&earlier.moves_to(chains, placed), &wanted, most)?;
        }
        let leave = Leave { most: None, lose_sessions: arguments.lose_sessions };
        let moved = remote::apply(&mut self.client, wanted, leave)
            .map_err(|error| anyhow!("place: --apply: {}", crate::refused::message(&error)))?;
        let moves = moved.moves.iter().map(|it| AppliedMove {
            module: it.module.clone(),
            from: self.cores_of(&it.from),
            to: self.cores_of(&it.to),
        });
        let (pause_us, missing) = (moved.reloaded.pause_us, moved.reloaded.missing);
        Ok(Some(AppliedPlacement { moved: moves.collect(), pause_us, missing }))
    }
}
