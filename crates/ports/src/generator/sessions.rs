//! The order in which sessions take turns.

use super::params::Renewal;
use super::random::Random;

/// The rule by which sessions take turns.
#[derive(Clone, Copy)]
pub(super) struct TurnRule {
    /// The number of successive packets in each turn.
    pub(super) burst: usize,
    /// The exponent of the sessions' Zipf distribution. 0 for equal shares.
    pub(super) skew: f64,
    /// The replacement of sessions by other sessions. It requires a burst of 1 and no skew.
    pub(super) renewal: Option<Renewal>,
}

/// The order of the sessions: returns the session of each next packet.
///
/// With m stacks of VLAN tags, session i belongs to the stack number (i mod m). The stacks take turns packet by packet.
/// In each stack, the sessions of this stack take turns.
pub(super) struct Sessions {
    /// One ring for each stack that has sessions, or one ring for all stacks if this gives the same order.
    stacks: Vec<Ring>,
    /// The index of the ring that has the next packet.
    turn: usize,
}

impl Sessions {
    /// Creates the order of the sessions `some`, whose numbers must ascend. If `some` is `None`, the sessions are
    /// `0..count`. There must be at least one session. `stacks` is the number of stacks of VLAN tags, at least 1.
    pub(super) fn new(
        some: Option<Vec<u32>>,
        count: usize,
        stacks: usize,
        rule: TurnRule,
        random: &mut Random,
    ) -> Self {
        let of_stack = |number: usize, stack: usize| number % stacks == stack % stacks;
        let is_alternating = match &some {
            Some(some) => {
                some.len().is_multiple_of(stacks) && some.iter().enumerate().all(|(at, it)| of_stack(*it as usize, at))
            }
            None => count.is_multiple_of(stacks),
        };
        let even = rule.skew == 0.0 && rule.burst == 1 && rule.renewal.is_none();
        if stacks == 1 || is_alternating && even {
            return Self { stacks: vec![Ring::new(some, count, stacks, rule, random)], turn: 0 };
        }
        let at_once = |all: Renewal| Renewal { at_once: all.at_once.div_ceil(stacks), ..all };
        let rule = TurnRule { renewal: rule.renewal.map(at_once), ..rule };
        let some = some.unwrap_or_else(|| (0..count as u32).collect());
        let own = |stack| some.iter().copied().filter(|it| of_stack(*it as usize, stack)).collect::<Vec<_>>();
        let own = (0..stacks).map(own).filter(|own| !own.is_empty());
        Self { stacks: own.map(|own| Ring::new(Some(own), 0, stacks, rule, random)).collect(), turn: 0 }
    }

    /// Creates an order that repeats `order`, which must not be empty.
    pub(super) fn in_order(order: Vec<u32>) -> Self {
        let ring = Ring { count: order.len(), order, burst: 1, turn: 0, remaining: 1, window: None };
        Self { stacks: vec![ring], turn: 0 }
    }

    /// Writes the sessions of the next packets to `out`.
    #[inline]
    pub(super) fn take(&mut self, out: &mut [u32]) {
        if let [all] = &mut self.stacks[..] {
            return all.take(out);
        }
        for session in out {
            *session = self.stacks[self.turn].next_session();
            self.turn = if self.turn + 1 == self.stacks.len() { 0 } else { self.turn + 1 };
        }
    }

    /// Takes back the last `n` sessions, because their packets could not be generated. The next call of `take` returns
    /// them again.
    #[cold]
    pub(super) fn give_back(&mut self, n: usize) {
        if let [all] = &mut self.stacks[..] {
            return all.give_back(n);
        }
        for _ in 0..n {
            self.turn = self.turn.checked_sub(1).unwrap_or(self.stacks.len() - 1);
            self.stacks[self.turn].give_back(1);
        }
    }
}

/// The sessions of a stack.
///
/// Without skew, sessions take turns in a ring. With skew, the order is drawn in advance and repeated. The drawn order
/// has [`MIN_ORDER`] entries of 4 bytes, or as many entries as sessions if there are more sessions.
struct Ring {
    /// The session of each turn. Empty if the turns are those of the sessions `0..count`.
    order: Vec<u32>,
    /// The number of sessions.
    count: usize,
    /// The number of successive packets in a turn.
    burst: usize,
    /// The index in `order` of the session that has the present turn. If `order` is empty, the number of this session.
    turn: usize,
    /// The number of packets that remain in this turn.
    remaining: usize,
    /// With renewal: the sessions that take turns now.
    window: Option<Window>,
}

/// A window of sessions that take turns. After every `packets` packets of the window, its first session is replaced by
/// the session after the window. So each session has `packets` packets in all.
#[derive(Clone, Copy)]
struct Window {
    /// The number of sessions in the window.
    at_once: u64,
    /// The number of packets of each session before it is replaced.
    packets: u64,
    /// The number of packets that the window has provided so far.
    given: u64,
}

impl Window {
    /// Returns the index, below `count`, of the session to which the packet with this number (from 0) belongs. Each
    /// round of turns starts at the first session that was not replaced in the previous rounds.
    fn session(self, number: u64, count: usize) -> usize {
        let (round, position) = (number / self.at_once, number % self.at_once);
        let begins = (round * self.at_once).div_ceil(self.packets);
        ((begins + position) % count as u64) as usize
    }
}

/// The minimum length of a drawn order, in turns.
const MIN_ORDER: usize = 1 << 16;

impl Ring {
    /// Creates the ring of the sessions in `some`, or of the sessions `0..count`. With skew, the session with the
    /// number `k` in its stack (from 0) has a turn with a probability proportional to 1 / (k + 1)ˢ, where s is the skew
    /// (Zipf).
    fn new(some: Option<Vec<u32>>, count: usize, stacks: usize, rule: TurnRule, random: &mut Random) -> Self {
        let TurnRule { burst, skew, renewal } = rule;
        let count = some.as_ref().map_or(count, Vec::len);
        let order = match some {
            some if skew > 0.0 => {
                draw(some.unwrap_or_else(|| (0..count as u32).collect()), stacks as u32, skew, random)
            }
            some => some.unwrap_or_default(),
        };
        let of = |it: Renewal| Window { at_once: it.at_once.min(count) as u64, packets: it.packets as u64, given: 0 };
        Self { order, count, burst, turn: 0, remaining: burst, window: renewal.map(of) }
    }

    /// Writes the sessions of the next packets to `out`.
    #[inline]
    fn take(&mut self, out: &mut [u32]) {
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
        // The sessions `0..count` take turns packet by packet, so the numbers are consecutive until the end of the
        // ring.
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

    /// Takes back the last `n` sessions, as [`Sessions::give_back`] does.
    #[cold]
    fn give_back(&mut self, n: usize) {
        if let Some(window) = &mut self.window {
            window.given -= n as u64;
            return;
        }
        let round = self.turns() * self.burst;
        let at = self.turn * self.burst + (self.burst - self.remaining);
        let at = (at + round - n % round) % round;
        (self.turn, self.remaining) = (at / self.burst, self.burst - at % self.burst);
    }

    /// Returns the session of the next packet.
    #[inline]
    fn next_session(&mut self) -> u32 {
        let mut next_session = [0];
        self.take(&mut next_session);
        next_session[0]
    }

    /// Returns the number of turns until the order repeats.
    fn turns(&self) -> usize {
        if self.order.is_empty() { self.count } else { self.order.len() }
    }

    /// Returns the session of the next packet. Used with bursts, or with an order.
    fn next(&mut self) -> u32 {
        let turn = self.turn;
        self.remaining -= 1;
        if self.remaining == 0 {
            self.remaining = self.burst;
            self.turn = if turn + 1 == self.turns() { 0 } else { turn + 1 };
        }
        self.order.get(turn).copied().unwrap_or(turn as u32)
    }
}

/// Returns the weight of a session: its number of turns relative to other sessions. `session` is the number of the
/// session within its stack, from 0.
pub(super) fn weight(session: u32, skew: f64) -> f64 {
    f64::from(session + 1).powf(-skew)
}

/// Draws an order of `sessions` from the Zipf distribution, by inverting its cumulative distribution. Sessions are
/// numbered over all `stacks`: session i is the session number (i div `stacks`) of its stack.
fn draw(sessions: Vec<u32>, stacks: u32, skew: f64, random: &mut Random) -> Vec<u32> {
    let mut total = 0.0;
    let mut upto = |session: &u32| {
        total += weight(*session / stacks, skew);
        total
    };
    let cumulative: Vec<f64> = sessions.iter().map(&mut upto).collect();
    let next_session = |_| {
        let at = random.unit() * total;
        sessions[cumulative.partition_point(|upto| *upto < at).min(sessions.len() - 1)]
    };
    (0..sessions.len().max(MIN_ORDER)).map(next_session).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Checks that the stack's session `k` (from 0) of `count` occurs in proportion to 1 / (k + 1), within six standard
    /// deviations.
    fn comes_as_it_weighs(order: &[u32], stacks: usize, count: usize) -> Result<(), String> {
        let mut counts = vec![0u32; count];
        order.iter().for_each(|session| counts[*session as usize / stacks] += 1);
        let all: f64 = (1..=count).map(|k| 1.0 / k as f64).sum();
        for (k, found) in counts.iter().enumerate() {
            let probability = 1.0 / (k + 1) as f64 / all;
            let expected = probability * order.len() as f64;
            let deviation = (expected * (1.0 - probability)).sqrt();
            if (f64::from(*found) - expected).abs() > 6.0 * deviation + 1e-6 {
                return Err(format!("session {k} of {count} comes {found} times, not {expected:.0}"));
            }
        }
        Ok(())
    }

    /// Regression test: the sessions 1, 3, 5, ... of the second of two stacks had the weights 1/2, 1/4, 1/6, ...
    #[test]
    fn skew_weighs_sessions_within_their_stack() {
        let rule = TurnRule { burst: 1, skew: 1.0, renewal: None };
        let sessions = Sessions::new(None, 8, 2, rule, &mut Random::new(1));
        assert_eq!(sessions.stacks.len(), 2);
        for ring in &sessions.stacks {
            assert_eq!(comes_as_it_weighs(&ring.order, 2, 4), Ok(()));
        }
    }

    proptest! {
        #[test]
        fn turns_given_back_come_again(
            count in 1usize..20, burst in 1usize..5, skewed: bool, renewal in prop::option::of((1usize..20, 1usize..9)),
            stacks in 1usize..6, some: bool, takes in proptest::collection::vec((0usize..40, 0usize..40), 1..10),
        ) {
            let skew = if skewed { 1.0 } else { 0.0 };
            let renewal = renewal.map(|(at_once, packets)| Renewal { at_once, packets });
            let rule = TurnRule { burst, skew, renewal };
            let some = some.then(|| (0..count as u32).filter(|session| session % 3 != 1).collect());
            let new = || Sessions::new(some.clone(), count, stacks, rule, &mut Random::new(1));
            let (mut straight, mut back) = (new(), new());
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

        /// In every order of sessions, each of m stacks has every m-th packet, and its sessions have the same order as
        /// without other stacks.
        #[test]
        fn stacks_take_turns_packet_by_packet(
            stacks in 1usize..9, more in 0usize..40, burst in 1usize..5, skewed: bool,
            renewal in prop::option::of((1usize..20, 1usize..9)), takes in proptest::collection::vec(0usize..70, 1..8),
        ) {
            let (count, skew) = (stacks + more, if skewed { 1.0 } else { 0.0 });
            let renewal = renewal.map(|(at_once, packets)| Renewal { at_once, packets });
            let rule = TurnRule { burst, skew, renewal };
            let mut sessions = Sessions::new(None, count, stacks, rule, &mut Random::new(1));
            let mut given = Vec::new();
            for wanted in takes {
                let mut out = vec![0; wanted];
                sessions.take(&mut out);
                given.extend(out);
            }
            for (number, session) in given.iter().enumerate() {
                prop_assert_eq!(*session as usize % stacks, number % stacks);
                prop_assert!((*session as usize) < count);
            }
            if skewed {
                for (stack, ring) in sessions.stacks.iter().enumerate() {
                    let of_stack = (count - stack).div_ceil(stacks);
                    if let Err(wrong) = comes_as_it_weighs(&ring.order, stacks, of_stack) {
                        prop_assert!(false, "stack {stack}: {wrong}");
                    }
                }
                return Ok(());
            }
            for stack in 0..stacks {
                let of_all = renewal.map(|all| Renewal { at_once: all.at_once.div_ceil(stacks), ..all });
                let own: Vec<u32> = (stack as u32..count as u32).step_by(stacks).collect();
                let own_rule = TurnRule { renewal: of_all, ..rule };
                let mut alone = Ring::new(Some(own), 0, stacks, own_rule, &mut Random::new(1));
                for session in given.iter().skip(stack).step_by(stacks) {
                    prop_assert_eq!(alone.next_session(), *session);
                }
            }
        }

        /// On a worker with some of the sessions, the stacks that have sessions take turns.
        #[test]
        fn a_share_of_the_sessions_keeps_the_turns(
            stacks in 1usize..7, some in proptest::collection::btree_set(0u32..60, 1..40), packets in 1usize..200,
        ) {
            let rule = TurnRule { burst: 1, skew: 0.0, renewal: None };
            let some: Vec<u32> = some.into_iter().collect();
            let mut sessions = Sessions::new(Some(some.clone()), 60, stacks, rule, &mut Random::new(1));
            let mut given = vec![0; packets];
            sessions.take(&mut given);
            let is_present = |stack: &usize| some.iter().any(|it| *it as usize % stacks == *stack);
            let present: Vec<usize> = (0..stacks).filter(is_present).collect();
            for (number, session) in given.iter().enumerate() {
                prop_assert!(some.contains(session));
                prop_assert_eq!(*session as usize % stacks, present[number % present.len()]);
            }
        }
    }
}
