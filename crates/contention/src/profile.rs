//! The profile of functions: their solo rates, the candidates for the metric x, and the candidates that qualify.
//!
//! An operator would measure the metric; the simulator computes it for servers that are not available. A candidate
//! qualifies if it hardly changes under competition (Octans eq. 5) and correlates with the solo rate (eq. 6).

use crate::mix::{Bench, Mix};
use crate::{ContentionError, Function, LINE, Pace, Seat};

/// The largest allowed variance of a metric under competition (5). The values are relative to the largest value.
pub const LARGEST_VARIANCE: f64 = 0.01;
/// The smallest allowed absolute correlation of a metric with the solo rate (6).
pub const SMALLEST_CORRELATION: f64 = 0.9;
/// The number of functions below which correlations may be due to chance.
pub const FEWEST_FUNCTIONS: usize = 8;

/// A candidate for the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// The ticks per packet that a function waits for the last-level cache and memory. This is the paper's choice.
    Stall,
    /// The ticks per packet: the inverse of the solo rate itself.
    Ticks,
    /// The instructions per packet.
    Instructions,
    /// The accesses per packet to the last-level cache.
    References,
    /// The accesses per packet that the last-level cache does not serve.
    Misses,
    /// The bytes per second that the function reads from the last-level cache and memory. x is seconds per byte.
    Bandwidth,
    /// The bytes of the last-level cache that the function fills when it runs alone. x is their inverse.
    Footprint,
    /// The mean drop (the lost part of the solo rate) of the network functions, each of which runs beside one copy of
    /// this function. x is the inverse of the mean. As in Bubble-Up (Mars and others, MICRO 2011), the network
    /// functions are probes: the function's pressure is measured by its effect on them.
    Pressure,
}

impl Candidate {
    /// All candidates.
    pub const ALL: [Self; 8] = [
        Self::Stall,
        Self::Ticks,
        Self::Instructions,
        Self::References,
        Self::Misses,
        Self::Bandwidth,
        Self::Footprint,
        Self::Pressure,
    ];

    /// Returns the name in registries.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stall => "stall_ticks_per_packet",
            Self::Ticks => "ticks_per_packet",
            Self::Instructions => "instructions_per_packet",
            Self::References => "cache_references_per_packet",
            Self::Misses => "cache_misses_per_packet",
            Self::Bandwidth => "seconds_per_gigabyte",
            Self::Footprint => "per_megabyte_of_cache",
            Self::Pressure => "per_drop_of_others",
        }
    }

    /// Returns whether the candidate is the inverse of the solo rate. Then its correlation with the rate has no
    /// meaning.
    #[must_use]
    pub fn is_circular(self) -> bool {
        self == Self::Ticks
    }

    /// Returns the value for a function in a run. `None` if the value cannot be derived from a single run.
    #[must_use]
    pub fn of(self, bench: &Bench, function: &Function, seat: &Seat) -> Option<f64> {
        let references = function.accesses(&bench.traffic);
        Some(match self {
            Self::Stall => seat.stall_ns * 1e-9 * bench.server.clock_hz,
            Self::Ticks => bench.server.clock_hz / seat.capacity,
            Self::Instructions => function.instructions,
            Self::References => references,
            Self::Misses => seat.misses,
            Self::Bandwidth => 1e9 / (seat.rate * references * LINE),
            Self::Footprint => 1e6 / seat.occupancy.max(LINE),
            Self::Pressure => return None,
        })
    }
}

/// A candidate with the figures by which it is judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The candidate.
    pub candidate: Candidate,
    /// The largest variance over functions (5). `None` if the value cannot be derived from a single run.
    pub variance: Option<f64>,
    /// The correlation with the solo rate (6).
    pub correlation: f64,
    /// The function with the largest variance.
    pub varies_most: Option<usize>,
}

impl Judged {
    /// Returns whether the candidate qualifies by (5) and (6).
    #[must_use]
    pub fn qualifies(&self) -> bool {
        !self.candidate.is_circular()
            && self.variance.is_some_and(|variance| variance <= LARGEST_VARIANCE)
            && self.correlation.abs() >= SMALLEST_CORRELATION
    }
}

/// The profile of a bench's functions.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The bench. Its last functions are [`competitors`], the paper's synthetic function and a forwarder.
    pub bench: Bench,
    /// The number of network functions.
    pub network: usize,
    /// The solo rates of each function, in packets per second: on its home domain, and on another domain with its
    /// packets in that domain's cache. A forwarder before the function brings the packets there. On a server with one
    /// domain, both rates are the same.
    pub rates: Vec<[f64; 2]>,
    /// The solo run of each function on its home domain.
    pub alone: Vec<Seat>,
    /// The mean drop of network functions beside one copy of each function.
    pub pressure: Vec<f64>,
    /// The runs of each network function beside 0, 1, 2 … copies of each network function, on the home domain.
    pub under_competition: Vec<Vec<Seat>>,
}

/// Returns synthetic competitors: footprints from 1/32 of the cache to twice its size, at a low, a medium and the
/// highest bandwidth.
#[must_use]
pub fn competitors(bench: &Bench) -> Vec<Function> {
    let server = &bench.server;
    let cache = server.domains[bench.home].cache_bytes;
    let ns = server.cache_ns + server.domains[bench.home].memory_ns;
    let footprints = [1.0 / 32.0, 1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0, 1.0, 2.0];
    let all = footprints.iter().flat_map(|part| [1e9, 4e9, 1e11].map(|bandwidth| (part * cache, bandwidth)));
    all.map(|(footprint, bandwidth)| Function::competitor(footprint, bandwidth, 4.0, ns, server.clock_hz)).collect()
}

impl Profile {
    /// Simulates each function alone. Adds [`competitors`], the paper's synthetic function and a forwarder to the
    /// functions of the bench.
    ///
    /// # Errors
    /// Returns [`ContentionError`] if the simulator refuses a run.
    pub fn of(mut bench: Bench) -> Result<Self, ContentionError> {
        let network = bench.functions.len();
        let competitors = competitors(&bench);
        bench.functions.extend(competitors);
        bench.functions.extend([crate::catalogue::synthetic(), crate::catalogue::forwarder()]);
        let mut profile = Self {
            bench,
            network,
            rates: Vec::new(),
            alone: Vec::new(),
            pressure: Vec::new(),
            under_competition: Vec::new(),
        };
        for function in 0..profile.bench.functions.len() {
            let home = profile.bench.home;
            let local = profile.seat(&vec![vec![(function, home)]])?;
            let remote = match profile.away() {
                Some(away) if profile.bench.functions[function].has_packets => {
                    profile.seat(&vec![vec![(profile.forwarder(), away), (function, away)]])?.rate
                }
                Some(away) => profile.seat(&vec![vec![(function, away)]])?.rate,
                None => local.rate,
            };
            profile.rates.push([local.rate, remote]);
            profile.alone.push(local);
        }
        for function in 0..profile.bench.functions.len() {
            let pressure = profile.pressure_of(function)?;
            profile.pressure.push(pressure);
        }
        for function in 0..network {
            let seats = profile.compete(function)?;
            profile.under_competition.push(seats);
        }
        Ok(profile)
    }

    /// Simulates a mix and returns the last function of its last chain.
    fn seat(&self, mix: &Mix) -> Result<Seat, ContentionError> {
        let run = self.bench.run(mix, Pace::Own)?;
        Ok(run.solution.seats.last().and_then(|chain| chain.last()).copied().unwrap_or_default())
    }

    /// Returns the index of the forwarder.
    #[must_use]
    pub fn forwarder(&self) -> usize {
        self.bench.functions.len() - 1
    }

    /// Returns the index of the paper's synthetic function.
    #[must_use]
    pub fn synthetic(&self) -> usize {
        self.bench.functions.len() - 2
    }

    /// Returns the indices of the synthetic competitors.
    #[must_use]
    pub fn competitors(&self) -> std::ops::Range<usize> {
        self.network..self.synthetic()
    }

    /// Returns a domain that is not the home domain.
    #[must_use]
    pub fn away(&self) -> Option<usize> {
        (0..self.bench.server.domains.len()).find(|domain| *domain != self.bench.home)
    }

    /// Returns the metric x of this candidate for each function of the bench. `None` if a network function has a value
    /// of 0, because its demand 1/x would be infinite.
    #[must_use]
    pub fn metrics(&self, candidate: Candidate) -> Option<Vec<f64>> {
        let of = |number: usize| {
            // A value below 0.001, such as one miss in a thousand packets, counts as 0. Functions that are not network
            // functions, such as the forwarder without tables, then get a very large x, which means a very small
            // demand.
            let value = self.value(candidate, number);
            let is_known = value > 1e-3 && value.is_finite();
            if is_known { Some(value) } else { (number >= self.network).then_some(f64::MAX.sqrt()) }
        };
        (0..self.bench.functions.len()).map(of).collect()
    }

    /// Returns the mean drop of network functions beside one copy of this function. Never 0, because the metric is its
    /// inverse.
    fn pressure_of(&self, number: usize) -> Result<f64, ContentionError> {
        let home = self.bench.home;
        let mut sum = 0.0;
        for probe in 0..self.network {
            let run = self.bench.run(&vec![vec![(probe, home)], vec![(number, home)]], Pace::Own)?;
            sum += 1.0 - run.solution.seats[0][0].rate / self.rates[probe][0];
        }
        Ok((sum / self.network as f64).max(1e-9))
    }

    /// Simulates a network function beside 0, 1, 2 … copies of each network function, until the cores of the home
    /// domain are used. Returns its results.
    fn compete(&self, number: usize) -> Result<Vec<Seat>, ContentionError> {
        let (home, cores) = (self.bench.home, self.bench.server.domains[self.bench.home].cores);
        let mut seats = Vec::new();
        for (other, count) in (0..self.network).flat_map(|other| (0..cores).map(move |count| (other, count))) {
            let mut mix: Mix = vec![vec![(number, home)]];
            mix.extend(vec![vec![(other, home)]; count]);
            seats.push(self.bench.run(&mix, Pace::Own)?.solution.seats[0][0]);
        }
        Ok(seats)
    }

    /// Returns the function with the largest variance of a candidate (5), and the variance. The values are relative to
    /// the largest value of all functions. `None` if the value cannot be derived from a single run.
    fn variance(&self, candidate: Candidate) -> Option<(usize, f64)> {
        let of = |(number, seats): (usize, &Vec<Seat>)| {
            let values = seats.iter().map(|seat| candidate.of(&self.bench, &self.bench.functions[number], seat));
            values.collect::<Option<Vec<f64>>>()
        };
        let all: Vec<Vec<f64>> = self.under_competition.iter().enumerate().map(of).collect::<Option<_>>()?;
        let largest = all.iter().flatten().copied().fold(f64::MIN_POSITIVE, f64::max);
        let in_parts = all.iter().map(|values| values.iter().map(|value| value / largest).collect::<Vec<_>>());
        let variances = in_parts.map(|values| variance(&values)).enumerate();
        Some(variances.fold((0, 0.0), |most, (at, variance)| if variance > most.1 { (at, variance) } else { most }))
    }

    /// Judges a candidate by (5) and (6).
    #[must_use]
    pub fn judge(&self, candidate: Candidate) -> Judged {
        let worst = self.variance(candidate);
        let rates: Vec<_> = self.rates[..self.network].iter().map(|rates| rates[0]).collect();
        Judged {
            candidate,
            variance: worst.map(|(_, variance)| variance),
            correlation: correlation(&self.values(candidate), &rates),
            varies_most: worst.map(|(at, _)| at),
        }
    }

    /// Returns a candidate's value for each network function in its solo run, in the order of the bench. A value may be
    /// 0 or infinite.
    #[must_use]
    pub fn values(&self, candidate: Candidate) -> Vec<f64> {
        (0..self.network).map(|number| self.value(candidate, number)).collect()
    }

    /// Returns a candidate's value for a function in its solo run. It may be 0 or infinite.
    fn value(&self, candidate: Candidate, number: usize) -> f64 {
        let value = candidate.of(&self.bench, &self.bench.functions[number], &self.alone[number]);
        value.unwrap_or_else(|| 1.0 / self.pressure[number])
    }
}

/// Returns the variance of values (5).
#[must_use]
pub fn variance(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count
}

/// Returns Pearson's correlation coefficient (6), or 0 if the values of `a` or of `b` do not vary.
#[must_use]
pub fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let count = a.len().min(b.len()).max(1) as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / count, b.iter().sum::<f64>() / count);
    let covariance: f64 = a.iter().zip(b).map(|(a, b)| (a - mean_a) * (b - mean_b)).sum::<f64>() / count;
    let scale = (variance(a) * variance(b)).sqrt();
    if scale > 0.0 { covariance / scale } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue;

    #[test]
    fn variance_and_correlation_are_those_of_the_formulas() {
        assert!((variance(&[1.0, 3.0]) - 1.0).abs() < 1e-12 && variance(&[]) == 0.0);
        assert!((correlation(&[1.0, 2.0, 3.0], &[6.0, 4.0, 2.0]) + 1.0).abs() < 1e-12);
        assert_eq!(correlation(&[1.0, 1.0], &[1.0, 2.0]), 0.0);
    }

    /// A metric per packet that competition cannot change does not vary. The inverse of the rate never qualifies.
    #[test]
    fn candidates_are_judged_by_variance_and_correlation() {
        let (server, traffic) = (catalogue::octans_server(), catalogue::traffic());
        let bench = Bench { server, traffic, functions: catalogue::octans_functions(), home: 0 };
        let profile = Profile::of(bench).expect("a profile");
        let judged = |candidate| profile.judge(candidate);
        assert!(judged(Candidate::References).variance.is_some_and(|variance| variance < 1e-12));
        let ticks = judged(Candidate::Ticks);
        assert!(ticks.variance.is_some_and(|variance| variance > 0.0) && !ticks.qualifies(), "{ticks:?}");
        assert_eq!(judged(Candidate::Pressure).variance, None);
        // A firewall that fits into the cache has no misses, so 1/x would be infinite.
        assert_eq!(profile.metrics(Candidate::Misses), None);
        let [local, remote] = profile.rates[0];
        assert!(
            local > remote * 0.9 && remote > 0.0,
            "with packets in the cache a function is hardly slower on the other domain"
        );
    }
}
