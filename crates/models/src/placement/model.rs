//! The server, the chains, and what a placement of them yields by the formulas as they stand.
//!
//! [`Problem::rates`] is the reference: it goes from function to function and adds up competitors. The search has the
//! same in another [form](super::options); tests compare the two.

/// A memory domain: cores that share a last-level cache and a memory controller.
#[derive(Clone, Debug, PartialEq)]
pub struct Domain {
    /// Cores that functions may use.
    pub cores: usize,
    /// Domains of one class are alike in cores, interfaces and distances: exchanging two of them changes nothing.
    pub class: usize,
    /// The loads at which a competing level is 1.
    pub limits: Limits,
}

/// The load of a place of contention, `Σ 1/x`, at which its competing level `f` is 1: that of the strongest synthetic
/// competitor on all cores that may use the place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// Of the last-level cache.
    pub cache: f64,
    /// Of the memory controller.
    pub memory: f64,
    /// Of the link to other domains.
    pub link: f64,
}

/// The parameters of a function's drop: `λ = α·f(cache) + β·f(memory or link) + C` (8).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sensitivity {
    /// α, 0 or more.
    pub cache: f64,
    /// β, 0 or more: of the memory controller for a local function, of the link for a remote one.
    pub memory: f64,
    /// C, 0 or more.
    pub constant: f64,
}

/// How a drop grows with the competing level.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Shape {
    /// In proportion, as (7) and (8) have it.
    #[default]
    Linear,
    /// `f·(1 + h) / (f + h)` in the place of `f`, h above 0: the first competitors take more than the last ("decreasing
    /// gradient", the paper's property 2). It is 1 where f is.
    Saturating(f64),
}

impl Shape {
    /// What stands for this competing level.
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
    /// Packets a second without competitors, by domain (P). Above 0.
    pub rates: Vec<f64>,
    /// The metric x that stands for what it demands of the shared places: the lower, the more it takes of them (7).
    /// Above 0.
    pub metric: f64,
    /// Its drop on its chain's home domain.
    pub local: Sensitivity,
    /// Its drop elsewhere.
    pub remote: Sensitivity,
    /// How both grow.
    pub shape: Shape,
}

/// A chain of functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// In the order in which packets pass them; not empty.
    pub functions: Vec<Function>,
    /// The domain of its network interface: its packets are in the memory of that.
    pub home: usize,
    /// Packets a second that it is to forward; infinite where it takes what it gets.
    pub rate: f64,
    /// The value of a packet of it. Above 0.
    pub weight: f64,
    /// It may not be placed where it forwards less than this, such as where its delay objective would be missed.
    pub least: f64,
    /// Up to so many copies of the whole chain, each on one core, may run in place of a core for each function; 0:
    /// none.
    pub copies: usize,
}

/// What is looked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// The server.
    pub domains: Vec<Domain>,
    /// The chains, all of which are placed.
    pub chains: Vec<Chain>,
}

/// How a chain is placed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// Each function on a core of its own: the domain of each.
    Split(Vec<usize>),
    /// Copies of the whole chain, each on one core, with sessions shared out among them: the domain of each. None: the
    /// chain is rejected.
    Whole(Vec<usize>),
}

impl Way {
    /// The domains of its cores.
    #[must_use]
    pub fn domains(&self) -> &[usize] {
        match self {
            Self::Split(domains) | Self::Whole(domains) => domains,
        }
    }

    /// How many functions, or copies of the chain, run elsewhere after a change to `next`. A chain that is rejected
    /// moves nothing.
    #[must_use]
    pub fn moved(&self, next: &Self) -> usize {
        match (self, next) {
            (Self::Split(now), Self::Split(next)) => now.iter().zip(next).filter(|(now, next)| now != next).count(),
            (Self::Whole(now), Self::Whole(next)) => {
                let mut left = now.clone();
                let mut is_new = |domain: &usize| match left.iter().position(|own| own == domain) {
                    Some(at) => {
                        left.swap_remove(at);
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

/// How each chain is placed.
pub type Placement = Vec<Way>;

/// Why a problem or a placement is none.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProblemError {
    /// A number that cannot be.
    #[error("chain {chain}: {what} is {value}: allowed is {allowed}")]
    Number {
        /// The chain, from 0.
        chain: usize,
        /// The figure's name.
        what: &'static str,
        /// Its value.
        value: f64,
        /// The values that are allowed.
        allowed: &'static str,
    },
    /// A load at which a competing level is 1 that cannot be.
    #[error("domain {domain}: a limit is {value}: allowed is 1e-9 to 1e15")]
    Limit {
        /// The domain, from 0.
        domain: usize,
        /// Its limit.
        value: f64,
    },
    /// Domains of one class are not alike.
    #[error("domain {domain} is of the class of domain {of}, and differs from it in {what}")]
    Class {
        /// The domain, from 0.
        domain: usize,
        /// The first of its class.
        of: usize,
        /// In what.
        what: &'static str,
    },
    /// There is no domain, or no core.
    #[error("the server has no core that functions may use")]
    NoCores,
    /// More cores are needed than there are.
    #[error("the chains need {needed} cores at least: there are {there}")]
    Cores {
        /// Of all chains.
        needed: usize,
        /// Of all domains.
        there: usize,
    },
    /// A placement does not have the problem's form, or uses more cores than there are.
    #[error("the placement is none of these chains: {0}")]
    Placement(String),
}

/// One function on one core, as others see it.
struct Seat<'p> {
    chain: usize,
    function: &'p Function,
    domain: usize,
    is_local: bool,
    /// Where the function before it is: elsewhere, or on its domain. `None` for the first.
    follows: Option<bool>,
    /// Which segment of its chain it is in: functions in a row on one domain.
    segment: usize,
    is_head: bool,
    /// Takes part in so many copies.
    copies: usize,
}

// Sums of numbers that are further apart lose the small ones.
const METRIC: std::ops::RangeInclusive<f64> = 1e-6..=1e6;
const RATE: std::ops::RangeInclusive<f64> = 1e-3..=1e15;
const LIMIT: std::ops::RangeInclusive<f64> = 1e-9..=1e15;

impl Problem {
    /// Checks all numbers, and whether there are enough cores.
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
                let wrong = ProblemError::Number { chain: at, what, value, allowed };
                if is_allowed { Ok(()) } else { Err(wrong) }
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

    /// Exchanging two domains of a class must change nothing: the search looks at one of both orders.
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

    /// By chain: packets a second in this placement (1), and the function, or of copies of the whole chain the copy,
    /// that binds it. 0 of a chain that is rejected.
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

    /// By chain and function, or copy of the whole chain: packets a second in this placement (2). Of a copy, those of
    /// all copies.
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

    /// The same of one chain only.
    ///
    /// # Errors
    /// [`ProblemError::Placement`].
    pub fn rates_of(&self, chain: usize, placement: &[Way]) -> Result<Vec<f64>, ProblemError> {
        let wholes: Vec<_> = self.chains.iter().map(Chain::whole).collect();
        let seats = self.seats(&wholes, placement)?;
        Ok(seats.iter().filter(|seat| seat.chain == chain).map(|seat| self.rate(seat, &seats)).collect())
    }

    fn rate(&self, of: &Seat<'_>, seats: &[Seat<'_>]) -> f64 {
        of.function.rates[of.domain] * (1.0 - self.drop(of, seats)) * of.copies as f64
    }

    fn seats<'p>(&'p self, wholes: &'p [Function], placement: &[Way]) -> Result<Vec<Seat<'p>>, ProblemError> {
        let none = |why: String| Err(ProblemError::Placement(why));
        if placement.len() != self.chains.len() {
            return none(format!("it has {} chains, not {}", placement.len(), self.chains.len()));
        }
        let mut free: Vec<_> = self.domains.iter().map(|domain| domain.cores).collect();
        let mut seats = Vec::new();
        for (at, (chain, way)) in self.chains.iter().zip(placement).enumerate() {
            let (domains, copies) = match way {
                Way::Split(domains) if domains.len() == chain.functions.len() => (domains, 1),
                Way::Whole(domains) if domains.len() <= chain.copies => (domains, domains.len()),
                _ => return none(format!("chain {at} has other functions or copies")),
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

    /// The performance-drop index λ, 0 to 1 (9)–(11).
    fn drop(&self, of: &Seat<'_>, seats: &[Seat<'_>]) -> f64 {
        let is_self = |other: &Seat<'_>| std::ptr::eq(of, other);
        let load = |counts: &dyn Fn(&Seat<'_>) -> bool| -> f64 {
            seats.iter().filter(|other| counts(other)).map(|other| 1.0 / other.function.metric).sum()
        };
        let home = self.chains[of.chain].home;
        // A segment on a remote domain counts once, by its first function: its functions share the packets in the
        // cache.
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
    /// The chain on one core as one function: `P = 1/Σ(1/P)`, the metric such that demands add up, parameters weighted
    /// by time.
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
        // All functions of one registry have one shape.
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

    /// The value of forwarding so many packets a second.
    #[must_use]
    pub fn value(&self, rate: f64) -> f64 {
        self.weight * rate.min(self.rate)
    }

    /// The most cores that it can run on.
    #[must_use]
    pub fn most_cores(&self) -> usize {
        self.functions.len().max(self.copies)
    }

    /// The fewest cores that it can run on.
    #[must_use]
    pub fn fewest_cores(&self) -> usize {
        if self.copies > 0 { 1 } else { self.functions.len() }
    }
}
