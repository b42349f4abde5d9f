//! Co-runs: the placement of functions, the simulator's result, and the competing levels for the predictor.

use forebay_models::placement::{self, Limits, ProblemError, Sensitivity, Shape, Way};
pub use forebay_units::Random;

use crate::{Chain, ContentionError, Function, Pace, Server, Solution, Traffic, solve};

/// A server with the functions that co-run on it. Functions are identified by their index.
#[derive(Clone, Debug, PartialEq)]
pub struct Bench {
    /// The server.
    pub server: Server,
    /// The traffic.
    pub traffic: Traffic,
    /// The functions.
    pub functions: Vec<Function>,
    /// The domain of the network interface.
    pub home: usize,
}

/// Chains, each a list of (function index, domain).
pub type Mix = Vec<Vec<(usize, usize)>>;

/// A mix with the simulator's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// The mix.
    pub mix: Mix,
    /// The result.
    pub solution: Solution,
}

impl Bench {
    /// Simulates a mix.
    ///
    /// # Errors
    /// Returns [`ContentionError`] if the simulator refuses the mix.
    pub fn run(&self, mix: &Mix, pace: Pace) -> Result<Run, ContentionError> {
        let chains: Vec<_> = mix
            .iter()
            .map(|chain| Chain {
                functions: chain.iter().map(|(function, _)| &self.functions[*function]).collect(),
                domains: chain.iter().map(|(_, domain)| *domain).collect(),
                home: self.home,
            })
            .collect();
        let solution = solve(&self.server, &self.traffic, &chains, pace)?;
        Ok(Run { mix: mix.clone(), solution })
    }

    /// Returns two competing levels for each function of a mix, as the predictor computes them (Octans equations 9 to
    /// 11): the level in the cache, and the level at the memory controller or the link. `metrics` contains the metric x
    /// of each function of the bench (the demand of a function is 1/x), `limits` one entry for each domain.
    ///
    /// # Errors
    /// Returns [`ProblemError`] if the predictor refuses the mix.
    pub fn levels(&self, mix: &Mix, metrics: &[f64], limits: &[Limits]) -> Result<Vec<Vec<[f64; 2]>>, ProblemError> {
        let unit = |cache, memory| Sensitivity { cache, memory, constant: 0.0 };
        let read = |drop: Sensitivity| {
            let function = |number: usize| placement::Function {
                rates: vec![1.0; self.server.domains.len()],
                metric: metrics[number],
                local: drop,
                remote: drop,
                shape: Shape::Linear,
            };
            let (problem, ways) = self.problem(mix, limits, &function);
            // The rate without competitors is 1, so the level is 1 minus the remaining rate.
            problem.function_rates(&ways)
        };
        let (cache, memory) = (read(unit(1.0, 0.0))?, read(unit(0.0, 1.0))?);
        let both = |(cache, memory): (&Vec<f64>, &Vec<f64>)| {
            cache.iter().zip(memory).map(|(cache, memory)| [1.0 - cache, 1.0 - memory]).collect()
        };
        Ok(cache.iter().zip(&memory).map(both).collect())
    }

    /// Returns a mix as the predictor's problem and placement. `function` returns the predictor's model of the function
    /// with this index.
    pub fn problem(
        &self,
        mix: &Mix,
        limits: &[Limits],
        function: &dyn Fn(usize) -> placement::Function,
    ) -> (placement::Problem, placement::Placement) {
        let domains = self.server.domains.iter().zip(limits).enumerate();
        let domains =
            domains.map(|(class, (domain, limits))| placement::Domain { cores: domain.cores, class, limits: *limits });
        let chains = mix.iter().map(|chain| placement::Chain {
            functions: chain.iter().map(|(number, _)| function(*number)).collect(),
            home: self.home,
            rate: f64::INFINITY,
            weight: 1.0,
            least: 0.0,
            copies: 0,
        });
        let ways = mix.iter().map(|chain| Way::Split(chain.iter().map(|(_, domain)| *domain).collect()));
        (placement::Problem { domains: domains.collect(), chains: chains.collect() }, ways.collect())
    }
}

/// Places each function of the chains on a free core. All free cores have the same probability. `cores` has the number
/// of free cores by domain. Returns `None` if there are too few cores.
#[must_use]
pub fn place_at_random(chains: &[Vec<usize>], cores: &[usize], random: &mut Random) -> Option<Mix> {
    let mut free = cores.to_vec();
    let mut draw_core = |function: usize| {
        let all: usize = free.iter().sum();
        let mut number = if all > 0 { random.index(all) } else { return None };
        let domain = free.iter().position(|cores| {
            let is_here = number < *cores;
            number = number.saturating_sub(*cores);
            is_here
        })?;
        free[domain] -= 1;
        Some((function, domain))
    };
    chains.iter().map(|chain| chain.iter().map(|function| draw_core(*function)).collect()).collect()
}
