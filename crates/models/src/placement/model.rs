//! The server, the chains, and the rates of a placement by the paper's formulas.
//!
//! [`Problem::rates`] is the reference: it iterates over functions and adds up their competitors. The search has the
//! same formulas in another [form](super::options). A change of one form needs the same change of the other form: tests
//! compare them.

/// A memory domain: cores that share a last-level cache and a memory controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// The number of cores that functions may use.
    pub cores: usize,
    /// The class of the domain. If several domains have one class, exchanging two of them must change nothing: they
    /// have equal cores and limits, each function has the same rate alone on them, and no chain has its home on them.
    pub class: usize,
    /// The loads at which a competing level is 1.
    pub limits: Limits,
}

/// The loads of shared resources, `Σ 1/x`, at which the competing level `f` is 1: the load of the strongest synthetic
/// competitor on all cores that may use the resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The limit of the last-level cache.
    pub cache: f64,
    /// The limit of the memory controller.
    pub memory: f64,
    /// The limit of the link to other domains.
    pub link: f64,
}

/// The parameters of a function's drop: `λ = α·f(cache) + β·f(memory or link) + C` (8).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sensitivity {
    /// α, 0 or more.
    pub cache: f64,
    /// β, 0 or more: for the memory controller if the function is local, for the link if it is remote.
    pub memory: f64,
    /// C, 0 or more.
    pub constant: f64,
}

/// The dependence of a drop on the competing level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Shape {
    /// Proportional, as in (7) and (8).
    #[default]
    Linear,
    /// Replaces `f` by `f·(1 + h) / (f + h)`, with h above 0. The first competitors have a larger effect than the last
    /// competitors ("decreasing gradient", the paper's property 2). The result is 1 if f is 1.
    Saturating(f64),
}

impl Shape {
    /// Returns the transformed competing level.
    #[must_use]
    pub fn of(self, level: f64) -> f64 {
        match self {
            Self::Linear => level,
            Self::Saturating(half) => level * (1.0 + half) / (level + half),
        }
    }
}

/// A function of a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Packets per second without competitors, by domain (P). Above 0.
    pub rates: Vec<f64>,
    /// The metric x of its demand for shared resources (7), above 0. The demand is `1/x`.
    pub metric: f64,
    /// The parameters of its drop on its chain's home domain.
    pub local: Sensitivity,
    /// The parameters of its drop on other domains.
    pub remote: Sensitivity,
    /// The shape of both drops.
    pub shape: Shape,
}

/// A chain of functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// The functions in the order in which packets pass them; not empty.
    pub functions: Vec<Function>,
    /// The domain of its network interface. Its packets are in the memory of this domain.
    pub home: usize,
    /// The packets per second that it should forward. Infinite if it should forward as many as possible.
    pub rate: f64,
    /// The value of one of its packets. Above 0.
    pub weight: f64,
    /// The least packets per second that it must forward in an allowed placement, for example because of its delay
    /// objective. 0 without such a limit.
    pub least: f64,
    /// The largest number of copies of the whole chain, each on one core, that may run instead of one function per
    /// core. 0 if copies are not allowed.
    pub copies: usize,
}

/// The placement problem.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The server.
    pub domains: Vec<Domain>,
    /// The chains to place.
    pub chains: Vec<Chain>,
}

/// The placement of a chain.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Each function has its own core: the domain of each function.
    Split(Vec<usize>),
    /// Copies of the whole chain, each on one core, with sessions distributed among them: the domain of each copy. The
    /// list is empty if the chain is rejected.
    Whole(Vec<usize>),
}

impl Way {
    /// Returns the domains of its cores.
    #[must_use]
    pub fn domains(&self) -> &[usize] {
        match self {
            Self::Split(domains) | Self::Whole(domains) => domains,
        }
    }

    /// Returns the number of functions, or of copies of the chain, that run on another domain after a change to `next`.
    /// If `next` rejects the chain, nothing moves.
    #[must_use]
    pub fn moved(&self, next: &Self) -> usize {
        match (self, next) {
            (Self::Split(now), Self::Split(next)) => now.iter().zip(next).filter(|(now, next)| now != next).count(),
            (Self::Whole(now), Self::Whole(next)) => {
                let mut remaining = now.clone();
                let mut is_new = |domain: &usize| match remaining.iter().position(|own| own == domain) {
                    Some(at) => {
                        remaining.swap_remove(at);
                        false
                    }
                    None => true,
                };
                next.iter().filter(|domain| is_new(domain)).count()
            }
            _ => next.domains().len(),
        }
    }
}

/// The placement of each chain.
pub type Placement = Vec<Way>;

/// A problem or a placement is invalid.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemError {
    /// A number is out of range.
    #[error("chain {chain}: {what} is {value}: allowed is {allowed}")]
    Number {
        /// The chain, from 0.
        chain: usize,
        /// The name of the number.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// A limit is out of range.
    #[error("domain {domain}: a limit is {value}: allowed is 1e-9 to 1e15")]
    Limit {
        /// The domain, from 0.
        domain: usize,
        /// Its limit.
        value: f64,
    },
    /// Domains of one class are not equal.
    #[error("domain {domain} has the class of domain {of}, but different {what}: domains of one class must be equal")]
    Class {
        /// The domain, from 0.
        domain: usize,
        /// The first domain of its class.
        of: usize,
        /// The property in which they differ.
        what: &'static str,
    },
    /// There are no cores.
    #[error("the server has no core that functions may use")]
    NoCores,
    /// There are fewer cores than needed.
    #[error("the chains need at least {needed} cores: there are {there}")]
    Cores {
        /// The cores that all chains need at least.
        needed: usize,
        /// The cores of all domains.
        there: usize,
    },
    /// A placement does not fit the problem, or uses more cores than there are.
    #[error("the placement does not fit the chains: {0}")]
    Placement(String),
}

/// A function on a core, with the properties that competition depends on.
struct Seat<'p> {
    chain: usize,
    /// The function, or the whole chain as one function.
    function: &'p Function,
    domain: usize,
    /// True if the domain is the chain's home.
    is_local: bool,
    /// True if the function before it is on the same domain. `None` for the first function.
    follows: Option<bool>,
    /// The index of its segment in the chain; a segment is a sequence of functions on one domain.
    segment: usize,
    /// True for the first function of a segment.
    is_head: bool,
    /// The number of copies of the whole chain; 1 if each function has its own core.
    copies: usize,
}

/// The range of metrics and weights. In sums of numbers in a wider range, small numbers would be lost by rounding.
const METRIC: std::ops::RangeInclusive<f64> = 1e-6..=1e6;
/// The range of rates alone, in packets per second.
const RATE: std::ops::RangeInclusive<f64> = 1e-3..=1e15;
/// The range of limits.
const LIMIT: std::ops::RangeInclusive<f64> = 1e-9..=1e15;

impl Problem {
    /// Checks all numbers, and that there are enough cores.
    ///
    /// # Errors
    /// [`ProblemError`].
    pub fn check(&self) -> Result<(), ProblemError> {
        self.check_numbers()?;
        let needed = self.chains.iter().map(Chain::fewest_cores).sum();
        let there = self.domains.iter().map(|domain| domain.cores).sum();
        if needed > there { Err(ProblemError::Cores { needed, there }) } else { Ok(()) }
    }

    /// Checks all numbers.
    ///
    /// # Errors
    /// [`ProblemError`].
    pub fn check_numbers(&self) -> Result<(), ProblemError> {
        if self.domains.iter().all(|domain| domain.cores == 0) {
            return Err(ProblemError::NoCores);
        }
        for (at, chain) in self.chains.iter().enumerate() {
            let number = |what, value: f64, is_allowed: bool, allowed| {
                let error = ProblemError::Number { chain: at, what, value, allowed };
                if is_allowed { Ok(()) } else { Err(error) }
            };
            number("functions", chain.functions.len() as f64, !chain.functions.is_empty(), "1 or more")?;
            let domains = self.domains.len();
            number("home", chain.home as f64, chain.home < domains, "a domain of the server")?;
            number("rate", chain.rate, chain.rate > 0.0, "a number above 0")?;
            number("weight", chain.weight, METRIC.contains(&chain.weight), "1e-6 to 1e6")?;
            number("least", chain.least, (0.0..f64::INFINITY).contains(&chain.least), "0 or more")?;
            for function in &chain.functions {
                let positive = |value: f64| value > 0.0 && value.is_finite();
                number("metric", function.metric, METRIC.contains(&function.metric), "1e-6 to 1e6")?;
                number("rates", function.rates.len() as f64, function.rates.len() == domains, "one for each domain")?;
                for rate in &function.rates {
                    number("rate alone", *rate, RATE.contains(rate), "1e-3 to 1e15")?;
                }
                for drop in [&function.local, &function.remote] {
                    for (what, value) in [("alpha", drop.cache), ("beta", drop.memory), ("C", drop.constant)] {
                        number(what, value, (0.0..=1e6).contains(&value), "0 to 1e6")?;
                    }
                }
                if let Shape::Saturating(half) = function.shape {
                    number("h", half, positive(half), "a number above 0")?;
                }
            }
        }
        for (domain, Domain { limits, .. }) in self.domains.iter().enumerate() {
            let limits = [limits.cache, limits.memory, limits.link];
            if let Some(&value) = limits.iter().find(|limit| !LIMIT.contains(limit)) {
                return Err(ProblemError::Limit { domain, value });
            }
        }
        self.check_classes()
    }

    /// Checks that exchanging two domains of a class changes nothing. The search examines only one of the two orders.
    fn check_classes(&self) -> Result<(), ProblemError> {
        for (domain, own) in self.domains.iter().enumerate() {
            let of = self.domains.iter().position(|other| other.class == own.class).unwrap_or(domain);
            if of == domain {
                continue;
            }
            let other = &self.domains[of];
            let functions = || self.chains.iter().flat_map(|chain| &chain.functions);
            let differences = [
                ("cores", own.cores != other.cores),
                ("limits", own.limits != other.limits),
                ("interfaces", self.chains.iter().any(|chain| chain.home == domain || chain.home == of)),
                ("rates alone", functions().any(|function| function.rates[domain] != function.rates[of])),
            ];
            if let Some((what, _)) = differences.into_iter().find(|(_, differs)| *differs) {
                return Err(ProblemError::Class { domain, of, what });
            }
        }
        Ok(())
    }

    /// Returns, for each chain, the packets per second in this placement (1), and the index of the function (or of the
    /// copy of the whole chain) that limits it. 0 for a rejected chain.
    ///
    /// # Errors
    /// [`ProblemError::Placement`].
    pub fn rates(&self, placement: &[Way]) -> Result<Vec<(f64, usize)>, ProblemError> {
        let slowest = |rates: Vec<f64>| {
            let least = |best: (f64, usize), (at, rate): (usize, f64)| if rate < best.0 { (rate, at) } else { best };
            let is_rejected = rates.is_empty();
            let slowest = rates.into_iter().enumerate().fold((f64::INFINITY, 0), least);
            if is_rejected { (0.0, 0) } else { slowest }
        };
        Ok(self.function_rates(placement)?.into_iter().map(slowest).collect())
    }

    /// Returns, for each chain, the packets per second of each function or copy in this placement (2). The rate of a
    /// copy is multiplied by the number of copies.
    ///
    /// # Errors
    /// [`ProblemError::Placement`].
    pub fn function_rates(&self, placement: &[Way]) -> Result<Vec<Vec<f64>>, ProblemError> {
        let wholes: Vec<_> = self.chains.iter().map(Chain::whole).collect();
        let seats = self.seats(&wholes, placement)?;
        let mut rates = vec![Vec::new(); self.chains.len()];
        for seat in &seats {
            rates[seat.chain].push(self.rate(seat, &seats));
        }
        Ok(rates)
    }

    /// Returns the packets per second of each function or copy of one chain, as
    /// [`function_rates`](Self::function_rates).
    ///
    /// # Errors
    /// [`ProblemError::Placement`].
    pub fn rates_of(&self, chain: usize, placement: &[Way]) -> Result<Vec<f64>, ProblemError> {
        let wholes: Vec<_> = self.chains.iter().map(Chain::whole).collect();
        let seats = self.seats(&wholes, placement)?;
        Ok(seats.iter().filter(|seat| seat.chain == chain).map(|seat| self.rate(seat, &seats)).collect())
    }

    /// Returns the rate of a seat (2), multiplied by the number of copies.
    fn rate(&self, of: &Seat<'_>, seats: &[Seat<'_>]) -> f64 {
        of.function.rates[of.domain] * (1.0 - self.drop(of, seats)) * of.copies as f64
    }

    /// Returns the functions on cores, chain by chain. `wholes` are the chains as one function each. Fails if the
    /// placement does not fit the chains or uses more cores than there are.
    fn seats<'p>(&'p self, wholes: &'p [Function], placement: &[Way]) -> Result<Vec<Seat<'p>>, ProblemError> {
        let none = |why: String| Err(ProblemError::Placement(why));
        if placement.len() != self.chains.len() {
            return none(format!("it has {} chains instead of {}", placement.len(), self.chains.len()));
        }
        let mut free: Vec<_> = self.domains.iter().map(|domain| domain.cores).collect();
        let mut seats = Vec::new();
        for (at, (chain, way)) in self.chains.iter().zip(placement).enumerate() {
            let (domains, copies) = match way {
                Way::Split(domains) if domains.len() == chain.functions.len() => (domains, 1),
                Way::Whole(domains) if domains.len() <= chain.copies => (domains, domains.len()),
                _ => return none(format!("chain {at} has another number of functions or copies")),
            };
            let (mut segment, mut before) = (0, None);
            for (index, &domain) in domains.iter().enumerate() {
                let Some(cores) = free.get_mut(domain) else { return none(format!("there is no domain {domain}")) };
                let Some(fewer) = cores.checked_sub(1) else {
                    return none(format!("domain {domain} has too few cores"));
                };
                *cores = fewer;
                let (function, follows) = match way {
                    Way::Split(_) => (&chain.functions[index], before.map(|before: usize| before == domain)),
                    Way::Whole(_) => (&wholes[at], None),
                };
                let is_head = follows != Some(true);
                segment += usize::from(is_head);
                before = Some(domain);
                let is_local = domain == chain.home;
                seats.push(Seat { chain: at, function, domain, is_local, follows, segment, is_head, copies });
            }
        }
        Ok(seats)
    }

    /// Returns the drop λ of a function's rate relative to its rate alone, 0 to 1 (9)–(11).
    fn drop(&self, of: &Seat<'_>, seats: &[Seat<'_>]) -> f64 {
        let is_self = |other: &Seat<'_>| std::ptr::eq(of, other);
        let load = |counts: &dyn Fn(&Seat<'_>) -> bool| -> f64 {
            seats.iter().filter(|other| counts(other)).map(|other| 1.0 / other.function.metric).sum()
        };
        let home = self.chains[of.chain].home;
        // A segment on a remote domain counts once, by its first function, because its functions share the packets in
        // the cache.
        let shares_cache = |other: &Seat<'_>| {
            let is_own_segment = other.chain == of.chain && other.segment == of.segment;
            let is_excluded = if of.is_local { is_self(other) } else { is_own_segment };
            other.domain == of.domain && !is_excluded && (other.is_local || other.is_head)
        };
        let shares_memory = |other: &Seat<'_>| self.chains[other.chain].home == home && !is_self(other);
        let shares_link = |other: &Seat<'_>| other.domain == of.domain && !other.is_local && !is_self(other);
        let shape = of.function.shape;
        let cache = || shape.of((load(&shares_cache) / self.domains[of.domain].limits.cache).min(1.0));
        let (drop, cache, second) = if of.is_local {
            let memory = load(&shares_memory) / self.domains[home].limits.memory;
            let cache = if of.follows == Some(false) { 1.0 } else { cache() };
            (&of.function.local, cache, memory)
        } else {
            let link = load(&shares_link) / self.domains[of.domain].limits.link;
            let cache = if of.follows == Some(true) { cache() } else { 1.0 };
            (&of.function.remote, cache, link)
        };
        (drop.cache * cache + drop.memory * shape.of(second.min(1.0)) + drop.constant).clamp(0.0, 1.0)
    }
}

impl Chain {
    /// Returns the whole chain on one core as one function. Its rate alone is `1/Σ(1/P)`, its demand is the sum of the
    /// demands, and its parameters are the means of the functions' parameters, weighted by each function's time per
    /// packet on the home domain.
    #[must_use]
    pub fn whole(&self) -> Function {
        let domains = self.functions.first().map_or(0, |function| function.rates.len());
        let time = |of: &dyn Fn(&Function) -> f64| self.functions.iter().map(of).sum::<f64>();
        let rates: Vec<_> = (0..domains).map(|domain| 1.0 / time(&|function| 1.0 / function.rates[domain])).collect();
        let weighted = |part: &dyn Fn(&Function) -> f64| {
            let seconds = time(&|function| 1.0 / function.rates[self.home]);
            time(&|function| part(function) / function.rates[self.home]) / seconds
        };
        let drop = |of: fn(&Function) -> &Sensitivity| Sensitivity {
            cache: weighted(&|function| of(function).cache),
            memory: weighted(&|function| of(function).memory),
            constant: weighted(&|function| of(function).constant),
        };
        let halves: Vec<_> = self
            .functions
            .iter()
            .filter_map(|function| match function.shape {
                Shape::Linear => None,
                Shape::Saturating(half) => Some(half),
            })
            .collect();
        // All functions of a registry have the same shape.
        let shape = if halves.is_empty() {
            Shape::Linear
        } else {
            Shape::Saturating(halves.iter().sum::<f64>() / halves.len() as f64)
        };
        Function {
            rates,
            metric: 1.0 / time(&|function| 1.0 / function.metric),
            local: drop(|function| &function.local),
            remote: drop(|function| &function.remote),
            shape,
        }
    }

    /// Returns the value of forwarding `rate` packets per second. Packets beyond the chain's rate have no value.
    #[must_use]
    pub fn value(&self, rate: f64) -> f64 {
        self.weight * rate.min(self.rate)
    }

    /// Returns the largest number of cores that the chain can run on.
    #[must_use]
    pub fn most_cores(&self) -> usize {
        self.functions.len().max(self.copies)
    }

    /// Returns the smallest number of cores that the chain can run on.
    #[must_use]
    pub fn fewest_cores(&self) -> usize {
        if self.copies > 0 { 1 } else { self.functions.len() }
    }
}
