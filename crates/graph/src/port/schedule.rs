//! Sources of packets with a schedule of their own, and the interface by which measurements read and change it.
//!
//! A device has no schedule: the times of its packets are not known in advance. The generator and a replayed capture
//! have a schedule. [`Port`](super::Port) only returns the schedule, if there is one.

/// The packets that a source with a schedule offers, whether or not a worker takes them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Offer {
    /// Packets per second, on average.
    pub pps: f64,
    /// The number of packets in one burst. So many packets may wait for the worker, even if the worker keeps up with
    /// the average rate. 0 if packets come without bursts.
    pub burst: f64,
}

/// The arrival pattern of an endless source. The simulator calculates arrivals from the pattern, and takes no packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// How packets are spread over time.
    pub spread: Spread,
    /// The number of packets that may wait to be taken. The source loses further packets.
    pub queue: usize,
}

/// How packets are spread over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Spread {
    /// As many packets as requested are available at any time.
    Saturating,
    /// At equal distances.
    Constant {
        /// Packets per second.
        pps: f64,
    },
    /// Independently of each other: exponential gaps.
    Poisson {
        /// Packets per second, on average.
        pps: f64,
    },
    /// At equal distances within bursts, with silence between bursts.
    OnOff {
        /// Packets per second, averaged over bursts and silence.
        pps: f64,
        /// How long a burst lasts, in seconds.
        on_s: f64,
        /// How long the silence after a burst lasts, in seconds.
        off_s: f64,
    },
}

/// A source of packets with a schedule of its own. Measurements and models can read and change this schedule.
pub trait ScheduledSource {
    /// Makes packets available at any time from now on, regardless of the configured schedule. Measurements of a busy
    /// worker's cost use this.
    fn saturate(&mut self);

    /// Returns the configured offer of an endless source whose rate [can be set](Self::set_offer). `None` for other
    /// sources.
    fn offer(&self) -> Option<Offer> {
        None
    }

    /// Returns the configured arrival pattern of an endless source. `None` if it is not known.
    fn pace(&self) -> Option<Pace> {
        None
    }

    /// Offers `factor` times the configured rate from now on, with a new schedule. If `factor` is 0, the source offers
    /// only packets that have already arrived. Returns false, and changes nothing, if the source cannot do so.
    fn set_offer(&mut self, factor: f64) -> bool {
        let _ = factor;
        false
    }
}
