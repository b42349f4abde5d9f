//! Random problems: problems of the benchmark's instance types, and smaller problems with every feature of a problem.

use forebay_models::placement::{Chain, Domain, Function, Limits, Placement, Problem, Sensitivity, Shape, Way};

/// Xorshift (Marsaglia 2003): the same numbers in every run.
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        (0..10).for_each(|_| _ = random.next());
        random
    }

    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns a number from `low` to `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.next()
    }

    /// Returns a whole number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((self.next() * end as f64) as usize).min(end - 1)
    }

    /// Returns α, β and C, uniform on `α + β + C ≤ 1`.
    fn simplex(&mut self) -> Sensitivity {
        let mut cuts = [self.next(), self.next(), self.next()];
        cuts.sort_by(f64::total_cmp);
        Sensitivity { cache: cuts[0], memory: cuts[1] - cuts[0], constant: cuts[2] - cuts[1] }
    }

    fn function(&mut self, domains: usize, home: usize, shape: Shape) -> Function {
        let local = self.between(1e6, 20e6);
        let remote = local * self.between(0.6, 1.0);
        let rates = (0..domains).map(|domain| if domain == home { local } else { remote }).collect();
        let metric = self.between(0.3_f64.ln(), 3.0_f64.ln()).exp();
        Function { rates, metric, local: self.simplex(), remote: self.simplex(), shape }
    }
}

/// The five types of instances of the benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    Any,
    IdenticalChains,
    AllCoresUsed,
    NearTies,
    OneFunctionBinds,
}

impl Mix {
    pub const ALL: [Self; 5] =
        [Self::Any, Self::IdenticalChains, Self::AllCoresUsed, Self::NearTies, Self::OneFunctionBinds];
}

/// A server with this number of domains and of cores per domain, and chains of this number and length, all with home
/// domain 0.
pub fn of_bars(seed: u64, [domains, cores, chains, length]: [usize; 4], kind: Mix) -> Problem {
    let mut random = Random::new(seed);
    let mut list: Vec<_> = (0..chains)
        .map(|_| {
            let functions = (0..length).map(|_| random.function(domains, 0, Shape::Linear)).collect();
            Chain { functions, home: 0, rate: f64::INFINITY, weight: 1.0, least: 0.0, copies: 0 }
        })
        .collect();
    match kind {
        Mix::Any | Mix::AllCoresUsed => {}
        Mix::IdenticalChains => list = vec![list[0].clone(); chains],
        Mix::NearTies => {
            list = vec![list[0].clone(); chains];
            for function in list.iter_mut().flat_map(|chain| &mut chain.functions) {
                let by = random.between(0.9995, 1.0005);
                function.rates.iter_mut().for_each(|rate| *rate *= by);
            }
        }
        Mix::OneFunctionBinds => {
            for chain in &mut list {
                let slow = random.below(length);
                chain.functions[slow].rates.iter_mut().for_each(|rate| *rate *= 0.3);
            }
        }
    }
    let cores = if kind == Mix::AllCoresUsed { (chains * length).div_ceil(domains) } else { cores };
    let domains = (0..domains).map(|domain| (cores, usize::from(domain > 0))).collect::<Vec<_>>();
    problem(&domains, list)
}

/// A small problem with demands, copies and both shapes: with several homes, or with one home and equal other domains.
pub fn any(seed: u64) -> Problem {
    let mut random = Random::new(seed);
    let domains = 2 + random.below(2);
    let has_one_home = random.below(2) == 0;
    let mut cores: Vec<_> = (0..domains).map(|domain| (2 + random.below(3), domain)).collect();
    if has_one_home {
        let like = cores[1].0;
        cores[1..].fill((like, 1));
    }
    let shape = if random.below(2) == 0 { Shape::Linear } else { Shape::Saturating(random.between(0.1, 2.0)) };
    let chains = (0..2 + random.below(2)).map(|_| {
        let home = if has_one_home { 0 } else { random.below(domains) };
        let functions: Vec<_> = (0..1 + random.below(2)).map(|_| random.function(domains, home, shape)).collect();
        let rate = if random.below(2) == 0 { f64::INFINITY } else { random.between(1e6, 10e6) };
        let (weight, copies) = (random.between(0.5, 2.0), random.below(3));
        Chain { functions, home, rate, weight, least: 0.0, copies }
    });
    let mut chains: Vec<_> = chains.collect();
    if has_one_home && random.below(2) == 0 {
        // Equal chains with copies: both symmetries at once.
        chains[1] = chains[0].clone();
    }
    problem(&cores, chains)
}

/// A chain of `length` functions, with equal domains other than its home: too many ways to list.
pub fn long(seed: u64, domains: usize, cores: usize, length: usize, copies: usize) -> Problem {
    let mut random = Random::new(seed);
    let functions = (0..length).map(|_| random.function(domains, 0, Shape::Saturating(0.5))).collect();
    let chain = Chain { functions, home: 0, rate: f64::INFINITY, weight: 1.0, least: 0.0, copies };
    let domains: Vec<_> = (0..domains).map(|domain| (cores, usize::from(domain > 0))).collect();
    problem(&domains, vec![chain])
}

/// Creates a problem whose limits are those of the strongest competitor on all cores. `domains` lists cores and class.
fn problem(domains: &[(usize, usize)], chains: Vec<Chain>) -> Problem {
    let demands = chains.iter().flat_map(|chain| {
        chain.functions.iter().map(|function| 1.0 / function.metric).chain([1.0 / chain.whole().metric])
    });
    let strongest = demands.fold(0.0, f64::max);
    let all: usize = domains.iter().map(|(cores, _)| cores).sum();
    let others = |cores: usize| strongest * cores.saturating_sub(1).max(1) as f64;
    let domain = |&(cores, class): &(usize, usize)| {
        let limits = Limits { cache: others(cores), memory: others(all), link: others(cores) };
        Domain { cores, class, limits }
    };
    Problem { domains: domains.iter().map(domain).collect(), chains }
}

/// Returns the value of a placement by the formulas; `None` if there are too few cores.
pub fn value(problem: &Problem, placement: &[Way]) -> Option<f64> {
    let rates = problem.rates(placement).ok()?;
    Some(rates.iter().zip(&problem.chains).map(|((rate, _), chain)| chain.value(*rate)).sum())
}

/// Returns the largest value of all placements.
pub fn enumerate(problem: &Problem) -> f64 {
    enumerate_by(problem, false, &|placement| value(problem, placement)).expect("it fits")
}

/// Returns the largest of these values over all placements, with rejected chains if allowed.
pub fn enumerate_by(problem: &Problem, may_reject: bool, value: &dyn Fn(&[Way]) -> Option<f64>) -> Option<f64> {
    let rejected = || may_reject.then(|| Way::Whole(Vec::new()));
    let of = |chain: &Chain| ways(problem.domains.len(), chain).into_iter().chain(rejected()).collect();
    let ways: Vec<Vec<Way>> = problem.chains.iter().map(of).collect();
    let mut best: Option<f64> = None;
    each(&ways, &mut Vec::new(), &mut |placement| {
        if let Some(value) = value(placement) {
            best = Some(best.map_or(value, |best| best.max(value)));
        }
    });
    best
}

fn each(ways: &[Vec<Way>], so_far: &mut Placement, visit: &mut dyn FnMut(&[Way])) {
    let Some(next) = ways.get(so_far.len()) else { return visit(so_far) };
    for way in next {
        so_far.push(way.clone());
        each(ways, so_far, visit);
        so_far.pop();
    }
}

/// Returns all ways of a chain, with copies in any order.
fn ways(domains: usize, chain: &Chain) -> Vec<Way> {
    let sequences = |length: usize| {
        let number = domains.pow(u32::try_from(length).expect("short"));
        (0..number).map(move |number| {
            let mut rest = number;
            (0..length)
                .map(|_| {
                    let digit = rest % domains;
                    rest /= domains;
                    digit
                })
                .collect::<Vec<_>>()
        })
    };
    let split = sequences(chain.functions.len()).map(Way::Split);
    split.chain((1..=chain.copies).flat_map(|copies| sequences(copies).map(Way::Whole).collect::<Vec<_>>())).collect()
}
