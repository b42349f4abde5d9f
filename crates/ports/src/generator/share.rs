//! Determines the sessions of each worker if several workers have the generator. All workers compute the shares in the
//! same way, so that each session belongs to one worker.

use forebay_graph::{Setup, SetupError, share};
use forebay_packet::{ArrivalClock, Pool, PoolOptions};
use forebay_units::Ticks;

use super::frames::Frames;

/// The share of a worker.
pub(super) struct Share {
    /// The sessions of the worker, in ascending order. `None` for all sessions.
    pub(super) sessions: Option<Vec<u32>>,
    /// The start of the worker's part of all traffic, as a fraction from 0 to 1. The parts of the workers are adjacent.
    from: f64,
    /// The end of this part.
    to: f64,
}

impl Share {
    /// Returns the share of the worker whose generator is being created. `sessions` is the number of the sessions of
    /// all workers. `weight` returns the number of packets of a session, relative to other sessions.
    pub(super) fn of(
        setup: &Setup<'_>,
        frames: &Frames,
        sessions: usize,
        weight: impl Fn(u32) -> f64,
    ) -> Result<Self, SetupError> {
        let (which, shares) = setup.share();
        if shares == 1 {
            return Ok(Self { sessions: None, from: 0.0, to: 1.0 });
        }
        // The hash of a packet determines the worker of its session, as for packets that arrive from a device.
        let options = PoolOptions { chunks: 1, frame: frames.longest().max(64), ..PoolOptions::default() };
        let pool = Pool::new(options).map_err(|error| SetupError::new(error.to_string()))?;
        let (mut mine, mut weights) = (Vec::new(), vec![0.0; shares]);
        for session in 0..sessions as u32 {
            let mut packet = pool.take().expect("the previous packet was returned");
            let one = std::slice::from_mut(&mut packet);
            frames.write(one, &[session], &[0], |_| (Ticks::ZERO, ArrivalClock::Poll));
            let of = share(packet.session_hash(), shares);
            weights[of] += weight(session);
            if of == which {
                mine.push(session);
            }
        }
        let (all, before) = (weights.iter().sum::<f64>(), weights[..which].iter().sum::<f64>());
        // The last part ends at 1 in spite of rounding.
        let to = if which + 1 == shares { 1.0 } else { (before + weights[which]) / all };
        Ok(Self { sessions: Some(mine), from: before / all, to })
    }

    /// Returns the worker's fraction of all traffic.
    pub(super) fn fraction(&self) -> f64 {
        self.to - self.from
    }

    /// Returns the number of packets of this worker out of `count` packets. The sum over all workers is `count`.
    pub(super) fn count(&self, count: u64) -> u64 {
        let upto = |part: f64| if part >= 1.0 { count } else { (count as f64 * part) as u64 };
        upto(self.to) - upto(self.from)
    }
}
