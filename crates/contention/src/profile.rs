//! What profiling finds of functions: their rates alone, the candidates for the metric x, and which of them qualifies.
//!
//! The metric is what an operator would measure; the simulator gives it for servers that are not at hand. A candidate
//! qualifies when it hardly changes under competition (Octans eq. 5) and goes with the rate alone (eq. 6).

use crate::mix::{Bench, Mix};
use crate::{ContentionError, Function, LINE, Pace, Seat};

/// The largest variance of a metric under competition, of values in parts of the largest one (5).
pub const LARGEST_VARIANCE: f64 = 0.01;
/// The smallest absolute value of the correlation of a metric with the rate alone (6).
pub const SMALLEST_CORRELATION: f64 = 0.9;
/// Fewer functions correlate by chance.
pub const FEWEST_FUNCTIONS: usize = 8;

/// A candidate for the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Candidate {
    /// Ticks per packet that a function waits for the last-level cache and what is behind it: the paper's choice.
    Stall,
    /// Ticks per packet: 1/P itself.
    Ticks,
    /// Instructions per packet.
    Instructions,
    /// Accesses per packet to the last-level cache.
    References,
    /// Accesses per packet that it does not serve.
    Misses,
    /// Bytes a second that the function reads from the last-level cache and behind it; x is seconds per byte.
    Bandwidth,
    /// Bytes of the last-level cache that the function fills alone; x is 1 over them.
    Footprint,
    /// How much slower other functions are beside one copy of the function, on average; x is 1 over that. The idea is
    /// Bubble-Up's (Mars and others, MICRO 2011): pressure is measured on a probe.
    Pressure,
}

impl Candidate {
    /// All of them.
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

    /// Its name in registries.
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

    /// Whether it is the rate itself: a correlation with the rate says nothing.
    #[must_use]
    pub fn is_circular(self) -> bool {
        self == Self::Ticks
    }

    /// Its value of a function in a run; `None` where a run alone does not give it.
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

/// A candidate with the figures that it is judged by.
#[derive(Clone, Debug, PartialEq)]
pub struct Judged {
    /// The candidate.
    pub candidate: Candidate,
    /// The largest variance over functions (5); `None` where it is no counter that a co-run has.
    pub variance: Option<f64>,
    /// The correlation with the rate alone (6).
    pub correlation: f64,
    /// The function with the largest variance.
    pub varies_most: Option<usize>,
}

impl Judged {
    /// Whether it qualifies by (5) and (6).
    #[must_use]
    pub fn qualifies(&self) -> bool {
        !self.candidate.is_circular()
            && self.variance.is_some_and(|variance| variance <= LARGEST_VARIANCE)
            && self.correlation.abs() >= SMALLEST_CORRELATION
    }
}

/// What profiling finds of a bench's functions alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// The bench. Its last functions are [`competitors`], the paper's synthetic function and a forwarder.
    pub bench: Bench,
    /// How many of its functions are network functions.
    pub network: usize,
    /// By function: packets a second alone on its home domain, and on another domain with its packets in that domain's
    /// cache, which a forwarder before it sees to.
    pub rates: Vec<[f64; 2]>,
    /// By function: its run alone on its home domain.
    pub alone: Vec<Seat>,
    /// By function: how much slower network functions are beside one copy of it, on average.
    pub pressure: Vec<f64>,
    /// By network function: its runs beside 0, 1, 2 … copies of each network function, on the home domain.
    pub under_competition: Vec<Vec<Seat>>,
}

/// Synthetic competitors: footprints from 1 MB to twice the cache, at a slow, a middling and the highest bandwidth.
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
    /// Runs each function alone. Adds [`competitors`], the paper's synthetic function and a forwarder to the bench's
    /// functions.
    ///
    /// # Errors
    /// [`ContentionError`].
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

    /// The last function of the last chain of a mix.
    fn seat(&self, mix: &Mix) -> Result<Seat, ContentionError> {
        let run = self.bench.run(mix, Pace::Own)?;
        Ok(run.solution.seats.last().and_then(|chain| chain.last()).copied().unwrap_or_default())
    }

    /// The number of the forwarder.
    #[must_use]
    pub fn forwarder(&self) -> usize {
        self.bench.functions.len() - 1
    }

    /// The number of the paper's synthetic function.
    #[must_use]
    pub fn synthetic(&self) -> usize {
        self.bench.functions.len() - 2
    }

    /// The numbers of the synthetic competitors.
    #[must_use]
    pub fn competitors(&self) -> std::ops::Range<usize> {
        self.network..self.synthetic()
    }

    /// A domain that is not the home domain.
    #[must_use]
    pub fn away(&self) -> Option<usize> {
        (0..self.bench.server.domains.len()).find(|domain| *domain != self.bench.home)
    }

    /// By function, the metric x of this candidate; `None` where a function has no demand by it, as 1/x would be
    /// infinite.
    #[must_use]
    pub fn metrics(&self, candidate: Candidate) -> Option<Vec<f64>> {
        let of = |number: usize| {
            // A forwarder has no tables: it counts as one of little demand. Less than a miss in a thousand packets is
            // none.
            let value = self.value(candidate, number);
            let is_known = value > 1e-3 && value.is_finite();
            if is_known { Some(value) } else { (number >= self.network).then_some(f64::MAX.sqrt()) }
        };
        (0..self.bench.functions.len()).map(of).collect()
    }

    /// How much slower network functions are beside one copy of this one, on average.
    fn pressure_of(&self, number: usize) -> Result<f64, ContentionError> {
        let home = self.bench.home;
        let mut sum = 0.0;
        for probe in 0..self.network {
            let run = self.bench.run(&vec![vec![(probe, home)], vec![(number, home)]], Pace::Own)?;
            sum += 1.0 - run.solution.seats[0][0].rate / self.rates[probe][0];
        }
        Ok((sum / self.network as f64).max(1e-9))
    }

    /// Runs of a network function beside copies of each network function.
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

    /// The largest variance of a candidate over functions (5), of values in parts of the largest one, and whose it is.
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

    /// A candidate's values of network functions alone.
    #[must_use]
    pub fn values(&self, candidate: Candidate) -> Vec<f64> {
        (0..self.network).map(|number| self.value(candidate, number)).collect()
    }

    fn value(&self, candidate: Candidate, number: usize) -> f64 {
        let value = candidate.of(&self.bench, &self.bench.functions[number], &self.alone[number]);
        value.unwrap_or_else(|| 1.0 / self.pressure[number])
    }
}

/// The variance of values (5).
#[must_use]
pub fn variance(values: &[f64]) -> f64 {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count
}

/// Pearson's correlation coefficient (6); 0 where one of both does not vary.
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

    /// A metric per packet that competition cannot change does not vary; the rate's own inverse never qualifies.
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
        // A firewall that fits into the cache misses nothing: 1/x would be infinite.
        assert_eq!(profile.metrics(Candidate::Misses), None);
        let [local, remote] = profile.rates[0];
        assert!(local > remote * 0.9 && remote > 0.0, "with packets in the cache a function is hardly slower away");
    }
}
