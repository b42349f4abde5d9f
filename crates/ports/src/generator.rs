//! The generator: synthetic packets, at the arrival times of a schedule, or as fast as the worker takes them.
//!
//! Frames, checksums, and the order of sessions and sizes are computed in advance. For each packet, the generator
//! copies a prepared frame, writes a few bytes that belong to the session, and sets the packet's length and arrival
//! time.

mod address;
mod arrivals;
mod frames;
mod params;
mod random;
mod recorded;
mod sessions;
mod share;
mod sizes;
mod tunnel;

pub use address::{Prefix, PrefixError, RoutesError, read_routes};
pub use arrivals::Arrivals;
pub use frames::Transport;
pub use params::{Destination, Origin, Params, PortRange, Rate};
pub use sizes::{Mix, Size, Weighted};
pub use tunnel::{Gtp, Network, Tunnel};

use std::collections::VecDeque;
use std::sync::Arc;

use forebay_graph::{
    DeclarePort, Intake, Offer, Pace, Port, PortCounters, Ready, ScheduledSource, Setup, SetupError, Spread, Waits,
    register,
};
use forebay_packet::{ArrivalClock, Batch, MAX_BATCH};
use forebay_units::Ticks;

use arrivals::Schedule;
use frames::{Frames, Lines};
use sessions::Sessions;
use sizes::Sizes;

/// A source of synthetic packets. Each worker has a generator, with a share of the sessions and of the rate.
pub struct Generator {
    /// The prepared frames, and the bytes of each session.
    frames: Frames,
    /// The complete frames of all sessions, if frames are short and have one size. They are then used instead of
    /// `frames`.
    lines: Option<Lines>,
    /// The order of the sessions.
    sessions: Sessions,
    /// The arrival times and sizes of the packets.
    source: Source,
    /// The indices of the sizes of the current batch's packets. Their contents have no meaning between calls.
    sizes: Box<[u8; MAX_BATCH]>,
    /// The sessions of the current batch's packets.
    batch_sessions: Box<[u32; MAX_BATCH]>,
    counters: Arc<PortCounters>,
    /// The reason why no packets can be generated, which `close` reports.
    failure: Option<String>,
}

/// The source of the arrival times and sizes of packets.
enum Source {
    /// A closed loop: as many packets as the worker requests, until `remaining` is 0. A number of `u64::MAX / 2` or
    /// more means that the packets never end: an endless source starts at `u64::MAX`, and no run takes enough packets
    /// to go below the limit.
    Closed { remaining: u64, sizes: Sizes },
    /// An open loop: packets arrive at the times of a schedule, and wait in a queue until the worker takes them.
    Open(Box<Queue>),
}

/// The ingress queue of the simulated device: packets that have arrived and wait.
struct Queue {
    /// The packets that have not arrived yet.
    schedule: Schedule,
    /// The arrival times of the waiting packets, and the indices of their sizes, oldest first.
    waiting: VecDeque<(Ticks, u8)>,
    /// The capacity of the queue, in packets.
    capacity: usize,
    /// The arrival times of the current batch's packets.
    times: [Ticks; MAX_BATCH],
}

impl Queue {
    /// Puts all packets that are due at `now` into the queue, and takes up to `most` packets from the queue, oldest
    /// first. Writes their arrival times to `self.times`, and the indices of their sizes to `sizes`. Returns the number
    /// of packets taken, and the number of packets dropped because the queue was full.
    #[inline]
    fn take(&mut self, now: Ticks, most: usize, sizes: &mut [u8; MAX_BATCH]) -> (usize, u64) {
        self.schedule.start(now);
        let room = self.capacity.saturating_sub(self.waiting.len());
        let mut taken = 0;
        for slot in self.times.iter_mut().zip(sizes.iter_mut()).take(most) {
            let Some(next) = self.waiting.pop_front() else { break };
            (*slot.0, *slot.1) = next;
            taken += 1;
        }
        // The queue is empty now, or the batch is full. Arriving packets bypass the queue as long as the batch has
        // room.
        let most = most.min(MAX_BATCH).min(taken + room);
        let arrived = self.schedule.take(now, &mut self.times[taken..most], &mut sizes[taken..most]);
        taken += arrived;
        if self.schedule.peek() > now {
            return (taken, 0);
        }
        let mut room = room - arrived;
        let (mut times, mut kinds) = ([Ticks::ZERO; 64], [0; 64]);
        while room > 0 && self.schedule.peek() <= now {
            let some = room.min(64);
            let arrived = self.schedule.take(now, &mut times[..some], &mut kinds[..some]);
            self.waiting.extend(times.into_iter().zip(kinds).take(arrived));
            room -= arrived;
        }
        let dropped = if self.schedule.peek() <= now { self.schedule.skip(now) } else { 0 };
        (taken, dropped)
    }

    /// Puts the packets `from..to` of the last [`take`](Self::take) back at the front of the queue, because the pool
    /// had no memory for them. `sizes` are the indices that this call of `take` wrote.
    #[cold]
    fn put_back(&mut self, from: usize, to: usize, sizes: &[u8; MAX_BATCH]) {
        for index in (from..to).rev() {
            self.waiting.push_front((self.times[index], sizes[index]));
        }
    }
}

impl Generator {
    /// Handles a pool whose packets are shorter than the longest frame: counts one error, and keeps the text for
    /// `close`.
    #[cold]
    fn too_long(&mut self, limit: usize) -> Ready {
        if self.failure.is_none() {
            self.counters.errors.add(1);
            self.failure =
                Some(format!("frames of {} bytes do not fit into packets of {limit} bytes", self.frames.longest()));
        }
        Ready::Never
    }
}

impl Port for Generator {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let limit = intake.pool.frame_limit();
        if self.frames.longest() > limit {
            return self.too_long(limit);
        }
        let (start, now) = (batch.len(), intake.now);
        let most = intake.most.min(batch.room());
        match &mut self.source {
            Source::Closed { remaining, sizes } => {
                let most = most.min(usize::try_from(*remaining).unwrap_or(usize::MAX));
                let got = if let Some(lines) = &self.lines {
                    lines.make(
                        batch,
                        most,
                        &mut self.sessions,
                        &mut self.batch_sessions[..],
                        intake,
                        ArrivalClock::Poll,
                    )
                } else {
                    let got = intake.pool.fill(batch, most);
                    let (packets, batch_sessions) = (&mut batch[start..], &mut self.batch_sessions[..got]);
                    self.sessions.take(batch_sessions);
                    self.sizes.iter_mut().take(got).for_each(|size| *size = sizes.next());
                    self.frames.write(packets, batch_sessions, &self.sizes[..], |_| (now, ArrivalClock::Poll));
                    got
                };
                *remaining -= got as u64;
                if *remaining == 0 { Ready::Never } else { Ready::Now }
            }
            Source::Open(queue) => {
                let (wanted, dropped) = queue.take(now, most, &mut self.sizes);
                if dropped > 0 {
                    self.counters.dropped.add(dropped);
                }
                let times = &queue.times;
                let at = |index: usize| (times.get(index).copied().unwrap_or(now), ArrivalClock::Intended);
                let got = if let Some(lines) = &self.lines {
                    let clock = ArrivalClock::Intended;
                    let got =
                        lines.make(batch, wanted, &mut self.sessions, &mut self.batch_sessions[..], intake, clock);
                    for (packet, instant) in batch[start..].iter_mut().zip(times) {
                        packet.set_arrival(*instant, clock);
                    }
                    got
                } else {
                    let got = intake.pool.fill(batch, wanted);
                    let (packets, batch_sessions) = (&mut batch[start..], &mut self.batch_sessions[..got]);
                    self.sessions.take(batch_sessions);
                    self.frames.write(packets, batch_sessions, &self.sizes[..], at);
                    got
                };
                if got < wanted {
                    queue.put_back(got, wanted, &self.sizes);
                }
                match queue.schedule.peek() {
                    _ if !queue.waiting.is_empty() => Ready::Now,
                    Ticks::NEVER => Ready::Never,
                    next => Ready::At(next),
                }
            }
        }
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    /// A generator only generates packets. Packets that are sent to it remain in the batch, so the worker drops them.
    fn send(&mut self, _: &mut Batch, _: Ticks) {}

    fn is_endless(&self) -> bool {
        match &self.source {
            Source::Open(queue) => queue.schedule.offer().is_some(),
            Source::Closed { remaining, .. } => *remaining >= u64::MAX / 2,
        }
    }

    fn schedule(&mut self) -> Option<&mut dyn ScheduledSource> {
        Some(self)
    }

    fn close(&mut self) -> Result<(), String> {
        self.failure.take().map_or(Ok(()), Err)
    }
}

impl ScheduledSource for Generator {
    /// Changes the open loop to a closed loop. The packets in the queue are not lost: they count as remaining packets.
    fn saturate(&mut self) {
        if let Source::Open(queue) = &self.source {
            let (sizes, remaining) = queue.schedule.rest();
            let remaining = remaining.saturating_add(queue.waiting.len() as u64);
            self.source = Source::Closed { remaining, sizes };
        }
    }

    fn offer(&self) -> Option<Offer> {
        match &self.source {
            Source::Open(queue) => queue.schedule.offer(),
            Source::Closed { .. } => None,
        }
    }

    fn pace(&self) -> Option<Pace> {
        match &self.source {
            Source::Open(queue) => Some(Pace { spread: queue.schedule.spread()?, queue: queue.capacity }),
            Source::Closed { remaining, .. } => {
                (*remaining >= u64::MAX / 2).then_some(Pace { spread: Spread::Saturating, queue: 0 })
            }
        }
    }

    fn set_offer(&mut self, factor: f64) -> bool {
        match &mut self.source {
            Source::Open(queue) if queue.schedule.offer().is_some() => {
                queue.schedule.set_offer(factor);
                true
            }
            _ => false,
        }
    }
}

impl DeclarePort for Generator {
    type Params = Params;
    const NAME: &'static str = "generator";
    const SUMMARY: &'static str = "generates packets at a rate, or as fast as the pipeline takes packets";
    const HELP: &'static str = params::HELP;
    const EXAMPLE: &'static str = "{ rate: 1Mpps, arrivals: poisson, size: imix, sessions: 4096, skew: 1.1 }";
    const QUEUES: bool = true;

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        false
    }

    fn check(params: &Params, setup: &mut Setup<'_>) -> Result<(), SetupError> {
        params.check()?;
        if setup.checking() {
            // This registers the files while a configuration is checked. When the pipeline is built, reading a file
            // also registers the file (`Setup::path`).
            params.files().try_for_each(|(parameter, name)| setup.claim(parameter, name, false).map(|_| ()))?;
        }
        Ok(())
    }

    fn new(params: Params, setup: &mut Setup<'_>, counters: Arc<PortCounters>) -> Result<Self, SetupError> {
        params.build(setup, counters)
    }
}

register!(port Generator);

#[cfg(test)]
mod tests;
