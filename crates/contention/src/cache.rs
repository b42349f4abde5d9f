//! A last-level cache: one LRU list for all users.
//!
//! A line stays for the cache's characteristic time T after its last use. T is the same for all lines (Che, Tung and
//! Wang, JSAC 2002; Fricker, Robert and Roberts, ITC 2012, explain the accuracy; Fagin, JCSS 1977, proves that it is
//! exact in the limit). A line that is used at random at rate ν is then in the cache with the probability `1 −
//! e^(−νT)`. T is the value for which the expected number of lines in the cache is the capacity of the cache.

/// Lines with the same rate of use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Region {
    /// The number of lines.
    pub lines: f64,
    /// The uses of each line per second.
    pub rate: f64,
}

impl Region {
    /// Returns the number of lines of the region that are in the cache. `time` is the characteristic time, in seconds.
    pub fn occupancy(&self, time: f64) -> f64 {
        // An infinite time multiplied by a rate of 0 would not be a number.
        if self.rate > 0.0 { self.lines * -(-self.rate * time).exp_m1() } else { 0.0 }
    }

    /// Returns the probability that a line is in the cache when it is used. `time` is the characteristic time, in
    /// seconds.
    pub fn hit(&self, time: f64) -> f64 {
        if self.rate > 0.0 { -(-self.rate * time).exp_m1() } else { 1.0 }
    }
}

/// Returns the characteristic time of a cache with `capacity` lines, in seconds. It is infinite if all regions fit.
pub(crate) fn characteristic_time(capacity: f64, regions: &[Region]) -> f64 {
    let used = || regions.iter().filter(|region| region.rate > 0.0 && region.lines > 0.0);
    if used().map(|region| region.lines).sum::<f64>() <= capacity {
        return f64::INFINITY;
    }
    let occupancy = |time: f64| used().map(|region| region.occupancy(time)).sum::<f64>();
    // Bisection on a logarithmic scale, between a time that is certainly too short and one that is certainly too long.
    let inflow: f64 = used().map(|region| region.lines * region.rate).sum();
    let (mut low, mut high) = (capacity / inflow, capacity / inflow);
    while occupancy(high) < capacity {
        high *= 2.0;
        if !high.is_finite() {
            return f64::INFINITY;
        }
    }
    for _ in 0..200 {
        let middle = (low * high).sqrt();
        if middle <= low || middle >= high {
            break;
        }
        if occupancy(middle) < capacity { low = middle } else { high = middle }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn regions() -> impl Strategy<Value = Vec<Region>> {
        let region =
            (1.0_f64..1e6, -3.0_f64..7.0).prop_map(|(lines, power)| Region { lines, rate: 10_f64.powf(power) });
        prop::collection::vec(region, 1..8)
    }

    proptest! {
        /// The cache is full, or it contains all lines.
        #[test]
        fn the_cache_is_full_or_contains_all_lines(regions in regions(), capacity in 10.0_f64..1e6) {
            let time = characteristic_time(capacity, &regions);
            let all: f64 = regions.iter().map(|region| region.lines).sum();
            let inside: f64 = regions.iter().map(|region| region.occupancy(time)).sum();
            let expected = all.min(capacity);
            prop_assert!((inside - expected).abs() <= 1e-6 * expected, "{inside} of {expected}");
        }

        /// An additional user never increases the time for which a line stays.
        #[test]
        fn another_region_never_lengthens_the_time(regions in regions(), capacity in 10.0_f64..1e6) {
            let fewer = characteristic_time(capacity, &regions[1..]);
            prop_assert!(characteristic_time(capacity, &regions) <= fewer * (1.0 + 1e-9));
        }
    }

    /// Compares the formula with an LRU list of lines that are drawn at random, from a fixed seed.
    #[test]
    fn an_lru_list_has_the_same_hit_rate() {
        let (capacity, sizes, shares) = (400_usize, [300_usize, 900], [0.7, 0.3]);
        let regions: Vec<_> = sizes
            .iter()
            .zip(shares)
            .map(|(size, share)| Region { lines: *size as f64, rate: share / *size as f64 })
            .collect();
        let time = characteristic_time(capacity as f64, &regions);
        let (mut last, mut now, mut state) = (vec![None::<usize>; 1_200], 0_usize, 7_u64);
        let mut draw = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as f64 / (1_u64 << 31) as f64
        };
        let (mut list, mut hits, mut uses) = (std::collections::BTreeMap::new(), [0.0; 2], [0.0; 2]);
        for _ in 0..60_000 {
            let which = usize::from(draw() >= shares[0]);
            let line = which * sizes[0] + (draw() * sizes[which] as f64) as usize;
            let is_hit = last[line].is_some_and(|at| list.remove(&at).is_some());
            if now > 10_000 {
                uses[which] += 1.0;
                hits[which] += f64::from(u8::from(is_hit));
            }
            list.insert(now, line);
            last[line] = Some(now);
            now += 1;
            if list.len() > capacity {
                list.pop_first();
            }
        }
        for which in 0..2 {
            let (real, formula) = (hits[which] / uses[which], regions[which].hit(time));
            assert!((real - formula).abs() < 0.02, "{real} {formula}");
        }
    }
}
