//! The numerical model of a network function.

use crate::{LINE, Traffic};

/// A lookup table of a function.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Table {
    /// The footprint, in bytes; at least one cache line.
    pub bytes: f64,
    /// The accesses per packet that private caches do not serve.
    pub accesses: f64,
    /// The share of accesses that write, 0 to 1. Written lines go back to memory when the cache evicts them.
    pub writes: f64,
    /// The unevenness of accesses: the line of rank r is used in proportion to `r^(−skew)` (Zipf's law, which
    /// approximates the popularity of flows, addresses and strings). 0 means that all lines are used alike.
    pub skew: f64,
}

/// Lines of a table that are used alike.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Band {
    /// The number of lines.
    pub lines: f64,
    /// The accesses per packet to all of these lines together.
    pub accesses: f64,
}

/// The number of bands of a table.
const BANDS: i32 = 8;
/// The ratio of the ranks at which a band and the previous band end.
const STEP: f64 = 3.0;

impl Table {
    /// Returns the bands of the table, the most popular lines first. Their lines add up to the lines of the table, and
    /// their accesses to `accesses`.
    pub(crate) fn bands(&self) -> impl Iterator<Item = Band> {
        let all = (self.bytes / LINE).ceil();
        // The sum over ranks is approximated by an integral from 1/2, so that rank 1 is included.
        let power = 1.0 - self.skew;
        let below = move |rank: f64| {
            let from = |rank: f64| if power.abs() < 1e-9 { rank.ln() } else { rank.powf(power) / power };
            from(rank + 0.5) - from(0.5)
        };
        let end = move |band: i32| if band < 0 { 0.0 } else { all / STEP.powi(BANDS - 1 - band) };
        let (accesses, total) = (self.accesses, below(all));
        // Without skew all bands are alike, so one is enough.
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
    /// The name.
    pub name: String,
    /// The ticks per packet, without the time for which the function waits for the last-level cache and memory. Above
    /// 0.
    pub ticks: f64,
    /// The instructions per packet.
    pub instructions: f64,
    /// The lookup tables.
    pub tables: Vec<Table>,
    /// The mean number of table accesses in progress at a time. 1 or more.
    pub parallel: f64,
    /// Whether the function processes packets, which then use caches and memory like tables do. A synthetic competitor
    /// has no packets.
    pub has_packets: bool,
    /// Whether the function reads the whole packet, or only its first line.
    pub reads_payload: bool,
}

impl Function {
    /// Creates a synthetic competitor that reads from a table of `footprint` bytes at random. It reads `bandwidth`
    /// bytes per second on an idle server, where a read takes `ns` nanoseconds. One "packet" of the competitor is eight
    /// reads, of which `parallel` are in progress at a time. If the competitor cannot reach this bandwidth with
    /// `parallel` reads in progress, it reads as fast as it can.
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

    /// Returns the number of lines that the function reads per packet: those of the descriptor and of the packet
    /// itself. 0 for a function without packets.
    #[must_use]
    pub fn packet_lines(&self, traffic: &Traffic) -> f64 {
        if !self.has_packets {
            return 0.0;
        }
        let all = (traffic.packet_bytes / LINE).ceil().max(1.0);
        traffic.descriptor_lines + if self.reads_payload { all } else { 1.0 }
    }

    /// Returns the accesses per packet to the last-level cache.
    #[must_use]
    pub fn accesses(&self, traffic: &Traffic) -> f64 {
        self.tables.iter().map(|table| table.accesses).sum::<f64>() + self.packet_lines(traffic)
    }

    /// Returns the footprint of the function's tables, in bytes.
    #[must_use]
    pub fn footprint(&self) -> f64 {
        self.tables.iter().map(|table| table.bytes).sum()
    }
}
