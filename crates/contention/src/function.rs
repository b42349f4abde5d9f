//! A network function, as numbers.

use crate::{LINE, Traffic};

/// Memory that a function looks things up in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table {
    /// The footprint.
    pub bytes: f64,
    /// Accesses per packet that private caches do not serve.
    pub accesses: f64,
    /// The part of them that writes, 0 to 1: such lines go back to memory when the cache evicts them.
    pub writes: f64,
    /// How uneven accesses are: the line of rank r is used in proportion to `r^(−skew)` (Zipf's law, which the
    /// popularity of flows, addresses and strings is near to). 0: all alike.
    pub skew: f64,
}

/// Lines of a table that are used alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Band {
    /// How many.
    pub lines: f64,
    /// Accesses per packet to all of them.
    pub accesses: f64,
}

/// Bands of a table, each of which has ranks up to a third of the next one's.
const BANDS: i32 = 8;
const STEP: f64 = 3.0;

impl Table {
    /// The table in bands.
    pub(crate) fn bands(&self) -> impl Iterator<Item = Band> {
        let all = (self.bytes / LINE).ceil();
        // The sum over ranks as an integral, from rank 1 at 1/2 on.
        let power = 1.0 - self.skew;
        let below = move |rank: f64| {
            let from = |rank: f64| if power.abs() < 1e-9 { rank.ln() } else { rank.powf(power) / power };
            from(rank + 0.5) - from(0.5)
        };
        let end = move |band: i32| if band < 0 { 0.0 } else { all / STEP.powi(BANDS - 1 - band) };
        let (accesses, total) = (self.accesses, below(all));
        // Without skew all bands are alike: one is enough.
        let first = if self.skew == 0.0 { BANDS - 1 } else { 0 };
        (first..BANDS).map(move |band| {
            let (low, high) = if band == first { (0.0, end(band)) } else { (end(band - 1), end(band)) };
            Band { lines: high - low, accesses: accesses * (below(high) - below(low)) / total }
        })
    }
}

/// A network function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Ticks per packet besides waiting for the last-level cache and what is behind it; above 0.
    pub ticks: f64,
    /// Instructions per packet.
    pub instructions: f64,
    /// Its memory.
    pub tables: Vec<Table>,
    /// Accesses to tables that are under way at a time, on average; 1 or more.
    pub parallel: f64,
    /// Whether it handles packets, which are in memory, too. A synthetic competitor does not.
    pub has_packets: bool,
    /// Whether it reads all of a packet, or only its first line.
    pub reads_payload: bool,
}

impl Function {
    /// A synthetic competitor: it reads a footprint at random, so fast that on an idle server it would read
    /// `bandwidth` bytes a second if each read took `ns` nanoseconds. One "packet" of it is eight reads, `parallel` of
    /// which are under way at a time. Where the reads alone take longer than that, it reads as fast as it can.
    #[must_use]
    pub fn competitor(footprint: f64, bandwidth: f64, parallel: f64, ns: f64, clock_hz: f64) -> Self {
        const READS: f64 = 8.0;
        let all = READS * LINE / bandwidth;
        let ticks = ((all - READS * ns * 1e-9 / parallel) * clock_hz).max(READS);
        Self {
            name: format!("competitor {:.1} MB, {:.1} GB/s", footprint / 1e6, bandwidth / 1e9),
            ticks,
            instructions: READS * 4.0,
            tables: vec![Table { bytes: footprint, accesses: READS, writes: 0.0, skew: 0.0 }],
            parallel,
            has_packets: false,
            reads_payload: false,
        }
    }

    /// Lines of a packet that it reads.
    #[must_use]
    pub fn packet_lines(&self, traffic: &Traffic) -> f64 {
        if !self.has_packets {
            return 0.0;
        }
        let all = (traffic.packet_bytes / LINE).ceil().max(1.0);
        traffic.descriptor_lines + if self.reads_payload { all } else { 1.0 }
    }

    /// Accesses per packet to the last-level cache.
    #[must_use]
    pub fn accesses(&self, traffic: &Traffic) -> f64 {
        self.tables.iter().map(|table| table.accesses).sum::<f64>() + self.packet_lines(traffic)
    }

    /// The footprint of its tables.
    #[must_use]
    pub fn footprint(&self) -> f64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }
}
