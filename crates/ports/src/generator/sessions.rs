//! The order in which sessions have their turn.

use super::params::Renewal;
use super::random::Random;

/// Says whose turn it is, packet by packet.
///
/// Without skew sessions take turns in a ring. With skew the order is drawn in advance and repeated: an order of
/// 65 536 entries or as many as there are sessions, whichever is more, 4 bytes each.
pub(super) struct Sessions {
    order: Vec<u32>,
    count: usize,
    burst: usize,
    /// The entry of the order (without one: the session) whose turn it is.
    turn: usize,
    /// How many packets it still has.
    left: usize,
    /// Which of the sessions take turns now, where others follow them.
    window: Option<Window>,
}

/// Some of the sessions, of which the first gives way to the next one now and then.
#[derive(Clone, Copy)]
struct Window {
    at_once: u64,
    packets: u64,
    /// Packets so far.
    given: u64,
}

impl Window {
    /// Which of `count` sessions the packet of this number is of: place by place, in windows that begin later by as many
    /// sessions a round as give way in it.
    fn session(self, number: u64, count: usize) -> usize {
        let (round, place) = (number / self.at_once, number % self.at_once);
        let begins = (round * self.at_once).div_ceil(self.packets);
        ((begins + place) % count as u64) as usize
    }
}

/// The shortest order that is drawn.
const SHORTEST: usize = 1 << 16;

impl Sessions {
    /// `count` sessions that take turns of `burst` packets each. With `skew` above 0 session `k` (from 0) has its turn
    /// with a probability proportional to 1 / (k + 1) to the power of `skew` (Zipf).
    pub(super) fn new(count: usize, burst: usize, skew: f64, random: &mut Random) -> Self {
        let order = if skew > 0.0 { draw((0..count as u32).collect(), skew, random) } else { Vec::new() };
        Self { order, count, burst, turn: 0, left: burst, window: None }
    }

    /// The same for `some` of all sessions, of which there is at least one.
    pub(super) fn of(some: Vec<u32>, burst: usize, skew: f64, random: &mut Random) -> Self {
        let count = some.len();
        let order = if skew > 0.0 { draw(some, skew, random) } else { some };
        Self { order, count, burst, turn: 0, left: burst, window: None }
    }

    /// The same with sessions that end and begin.
    pub(super) fn renewed(self, renewal: Option<Renewal>) -> Self {
        let of =
            |it: Renewal| Window { at_once: it.at_once.min(self.count) as u64, packets: it.packets as u64, given: 0 };
        let window = renewal.map(of);
        Self { window, ..self }
    }

    /// In this order, of at least one turn, again and again.
    pub(super) fn in_order(order: Vec<u32>) -> Self {
        Self { count: order.len(), order, burst: 1, turn: 0, left: 1, window: None }
    }

    /// The sessions that the next packets are of, one for each of `out`.
    #[inline]
    pub(super) fn take(&mut self, out: &mut [u32]) {
        if let Some(window) = &mut self.window {
            for session in out {
                let turn = window.session(window.given, self.count);
                window.given += 1;
                *session = self.order.get(turn).copied().unwrap_or(turn as u32);
            }
            return;
        }
        if self.burst > 1 || !self.order.is_empty() {
            return out.iter_mut().for_each(|session| *session = self.next());
        }
        // In a ring, packet by packet: runs of numbers that follow each other.
        let mut rest = out;
        while !rest.is_empty() {
            let (run, after) = rest.split_at_mut(rest.len().min(self.count - self.turn));
            for (session, turn) in run.iter_mut().zip(self.turn as u32..) {
                *session = turn;
            }
            self.turn = if self.turn + run.len() == self.count { 0 } else { self.turn + run.len() };
            rest = after;
        }
    }

    /// Takes back the last `n` turns that were given: their packets could not be made.
    #[cold]
    pub(super) fn give_back(&mut self, n: usize) {
        if let Some(window) = &mut self.window {
            window.given -= n as u64;
            return;
        }
        let round = self.turns() * self.burst;
        let at = self.turn * self.burst + (self.burst - self.left);
        let at = (at + round - n % round) % round;
        (self.turn, self.left) = (at / self.burst, self.burst - at % self.burst);
    }

    /// How many turns there are before the first comes again.
    fn turns(&self) -> usize {
        if self.order.is_empty() { self.count } else { self.order.len() }
    }

    fn next(&mut self) -> u32 {
        let turn = self.turn;
        self.left -= 1;
        if self.left == 0 {
            self.left = self.burst;
            self.turn = if turn + 1 == self.turns() { 0 } else { turn + 1 };
        }
        self.order.get(turn).copied().unwrap_or(turn as u32)
    }
}

/// How often session `session` has its turn, by comparison with the others.
pub(super) fn weight(session: u32, skew: f64) -> f64 {
    f64::from(session + 1).powf(-skew)
}

/// Draws an order of `sessions` from the Zipf distribution by inverting its cumulative distribution.
fn draw(sessions: Vec<u32>, skew: f64, random: &mut Random) -> Vec<u32> {
    let mut total = 0.0;
    let mut upto = |session: &u32| {
        total += weight(*session, skew);
        total
    };
    let cumulative: Vec<f64> = sessions.iter().map(&mut upto).collect();
    let one = |_| {
        let at = random.unit() * total;
        sessions[cumulative.partition_point(|upto| *upto < at).min(sessions.len() - 1)]
    };
    (0..sessions.len().max(SHORTEST)).map(one).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn turns_given_back_come_again(
            count in 1usize..20, burst in 1usize..5, skewed: bool, renewal in prop::option::of((1usize..20, 1usize..9)), takes in proptest::collection::vec((0usize..40, 0usize..40), 1..10),
        ) {
            let skew = if skewed { 1.0 } else { 0.0 };
            let renewal = renewal.map(|(at_once, packets)| Renewal { at_once, packets });
            let mut straight = Sessions::new(count, burst, skew, &mut Random::new(1)).renewed(renewal);
            let mut back = Sessions::new(count, burst, skew, &mut Random::new(1)).renewed(renewal);
            for (wanted, given_back) in takes {
                let (mut out, given_back) = (vec![0; wanted], given_back.min(wanted));
                back.take(&mut out);
                if given_back > 0 {
                    back.give_back(given_back);
                }
                let mut expected = vec![0; wanted - given_back];
                straight.take(&mut expected);
                prop_assert_eq!(&out[..wanted - given_back], &expected[..]);
            }
        }
    }
}
