//! Which of the sessions a worker gets, where the generator is open on several.

use forebay_graph::{Setup, SetupError, share};
use forebay_packet::{ArrivalClock, Pool, PoolOptions, Ticks};

use super::frames::Frames;

/// A worker's part.
pub(super) struct Share {
    /// Its sessions; `None`: all.
    pub(super) sessions: Option<Vec<u32>>,
    /// From which part of all traffic to which: 0 to 1.
    from: f64,
    to: f64,
}

impl Share {
    /// The part of the generator that is being made; `weight` says how many packets are a session's, by comparison with
    /// the others.
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
        // A packet of each session is hashed, as the worker that takes it would do.
        let options = PoolOptions { chunks: 1, frame: frames.longest().max(64), ..PoolOptions::default() };
        let pool = Pool::new(options).map_err(|error| SetupError::new(error.to_string()))?;
        let (mut mine, mut weights) = (Vec::new(), vec![0.0; shares]);
        for session in 0..sessions as u32 {
            let mut packet = pool.take().expect("the last one is back");
            let one = std::slice::from_mut(&mut packet);
            frames.write(one, &[session], &[0], |_| (Ticks::ZERO, ArrivalClock::Poll));
            let of = share(packet.session_hash(), shares);
            weights[of] += weight(session);
            if of == which {
                mine.push(session);
            }
        }
        let (all, before) = (weights.iter().sum::<f64>(), weights[..which].iter().sum::<f64>());
        // The last part ends where all do, whatever was rounded.
        let to = if which + 1 == shares { 1.0 } else { (before + weights[which]) / all };
        Ok(Self { sessions: Some(mine), from: before / all, to })
    }

    /// How much of all traffic.
    pub(super) fn fraction(&self) -> f64 {
        self.to - self.from
    }

    /// How many of `count` packets: over all workers, as many as there are.
    pub(super) fn count(&self, count: u64) -> u64 {
        let upto = |part: f64| if part >= 1.0 { count } else { (count as f64 * part) as u64 };
        upto(self.to) - upto(self.from)
    }
}
