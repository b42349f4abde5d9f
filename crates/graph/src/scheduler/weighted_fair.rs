//! Weighted-fair: modules that have work share the worker's ticks by their weights.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) over ticks, which is stride scheduling (Waldspurger and
//! Weihl, 1995) with a rule for who comes back: each module has a *pass*, the virtual time at which its next call starts;
//! the lowest runs, and a call moves it on by the ticks that it took divided by the weight. Virtual time is the pass of
//! the module that runs. A module that had nothing to do goes on from there: it neither saves up time nor owes any.
//!
//! What a call took is not read from a clock, which would cost as much as some functions do. Each module's costs are
//! estimated from the calls of one turn in thirty-two; a timed call then also stands for those since the last, and charges
//! what they were charged too little or too much. So over time an estimate cannot be to anybody's advantage.

mod bucket;
mod estimate;
mod pressure;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::cold_path;

use forebay_packet::Batch;
use forebay_units::{Frequency, Ticks};

use forebay_protocol::RateLimit;

use super::{Scheduler, Took, Topology};
use bucket::Bucket;
use estimate::Estimate;
use pressure::Pressure;

/// By how much a tick moves on the pass of a module of weight 1: enough for a call of a hundred ticks to be charged within
/// a tenth of a percent at the largest weight.
const TICK: f64 = (1u64 << 20) as f64;
/// The most that a call moves a pass on: two seconds at weight 1.
const MOST: f64 = (1u64 << 52) as f64;
/// Where virtual time is set back, minutes after it was last, so that passes stay within their words.
const LATE: u64 = 1 << 60;
/// To what it is set back: nobody has been given back more than that.
const EARLY: u64 = 1 << 56;
/// For how many untimed calls at the most a timed one stands.
const STANDS_FOR: u32 = 256;
/// No module.
const NOBODY: usize = usize::MAX;

/// The module has a rate limit.
const LIMITED: u8 = 1;
/// Packets for the module are dropped, because one further on is overloaded.
const REFUSING: u8 = 2;
/// The module's queue is above its high mark, and was not below its low one since.
const OVERLOADED: u8 = 4;
/// Packets come to the module from a port.
const ENTRY: u8 = 8;

/// A module's account. All that an ordinary call touches, in one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Account {
    /// The virtual time at which its next call starts.
    pass: u64,
    /// By how much a tick, an untimed call and a packet of such a call move the pass on.
    per_tick: f64,
    per_call: u64,
    per_packet: u64,
    /// Untimed calls since the last timed one.
    untimed: u32,
    /// Whether it is ready, and has not been chosen yet.
    ready: bool,
    /// The turn in which it last became so by packets that came.
    since: u32,
    /// `LIMITED`, `REFUSING`, `OVERLOADED`, `ENTRY`.
    state: u8,
}

impl Account {
    /// Sets what calls move the pass on by.
    fn price(&mut self, estimate: &Estimate) {
        // A call that is free would run for ever.
        self.per_call = (estimate.per_call * self.per_tick).clamp(self.per_tick, MOST) as u64;
        self.per_packet = (estimate.per_packet * self.per_tick).min(MOST / 256.0) as u64;
    }
}

/// A set of nodes, lowest first.
#[derive(Clone, Debug)]
struct Set {
    words: Box<[u64]>,
    /// No word before this has any.
    from: usize,
    count: usize,
}

impl Set {
    fn new(nodes: usize) -> Self {
        Self { words: vec![0; nodes.div_ceil(64)].into(), from: 0, count: 0 }
    }

    /// Adds a node; one that is there already stays.
    #[inline]
    fn add(&mut self, node: usize) {
        let (at, bit) = (node / 64, 1 << (node % 64));
        if let Some(word) = self.words.get_mut(at) {
            self.count += usize::from(*word & bit == 0);
            *word |= bit;
            self.from = self.from.min(at);
        }
    }

    #[inline]
    fn first(&self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        let mut at = self.from;
        while self.words[at] == 0 {
            at += 1;
        }
        Some(at * 64 + self.words[at].trailing_zeros() as usize)
    }

    #[inline]
    fn pop(&mut self) -> Option<usize> {
        if self.count == 0 {
            return None;
        }
        self.count -= 1;
        while let Some(word) = self.words.get_mut(self.from) {
            if *word != 0 {
                let bit = word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(self.from * 64 + bit);
            }
            self.from += 1;
        }
        None
    }
}

/// Shares ticks by weights.
#[derive(Debug)]
pub struct WeightedFair {
    /// By module.
    accounts: Box<[Account]>,
    estimates: Box<[Estimate]>,
    buckets: Box<[Option<Bucket>]>,
    pressure: Pressure,
    /// Ready modules whose pass is the virtual time: they run first, in topological order. Without backlogs all are here.
    abreast: Set,
    /// Other ready modules: pass and number in one, lowest first; and the lowest pass, `u64::MAX` where there is none.
    ahead: BinaryHeap<Reverse<u128>>,
    lowest: u64,
    /// Places where packets leave, by how far past the modules: they run when a turn's modules have run.
    leaving: Set,
    /// Modules that wait for their rate limits, and the earliest instant among theirs.
    waiting: Vec<(Ticks, usize)>,
    earliest: Ticks,
    virtual_time: u64,
    /// The furthest pass of all.
    furthest: u64,
    running: usize,
    /// Which turn this is, and how many calls it still has.
    turn: u32,
    left: usize,
    now: Ticks,
    frequency: Frequency,
    /// Busy turns until one is timed, whether this one is, and what makes their distances irregular, so that no pattern of
    /// calls escapes.
    until_timed: u32,
    timing: bool,
    random: u32,
    /// Whether weights have changed since the last turn, and passes with them.
    reweighted: bool,
    /// Whether limits and marks no longer count.
    lifted: bool,
}

impl WeightedFair {
    /// The module to run next, and nothing else: limits are looked at by the caller.
    #[inline]
    fn choose(&mut self) -> Option<usize> {
        let abreast = if self.lowest >= self.virtual_time { self.abreast.pop() } else { None };
        let module = abreast.or_else(|| self.choose_ahead())?;
        self.accounts[module].ready = false;
        Some(module)
    }

    /// The first of those ahead.
    #[inline(never)]
    fn choose_ahead(&mut self) -> Option<usize> {
        let Reverse(key) = self.ahead.pop()?;
        // Lower than the virtual time only where a timed call has given back what others were charged too much.
        self.virtual_time = self.virtual_time.max(self.lowest);
        self.lowest = self.ahead.peek().map_or(u64::MAX, |Reverse(key)| (key >> 64) as u64);
        Some(key as u32 as usize)
    }

    /// Whether a module is ready.
    #[inline]
    fn has_some(&self) -> bool {
        self.abreast.count > 0 || self.lowest < u64::MAX
    }

    /// Puts a ready module among those ahead, with its own pass.
    #[inline]
    fn queue(&mut self, module: usize) {
        let pass = self.accounts[module].pass;
        self.lowest = self.lowest.min(pass);
        self.ahead.push(Reverse(u128::from(pass) << 64 | module as u128));
    }

    /// Sets virtual time back, and all passes with it: who is before whom, and by how much, stays.
    #[cold]
    fn set_back(&mut self) {
        let by = self.virtual_time - EARLY;
        for account in &mut self.accounts {
            account.pass = account.pass.saturating_sub(by);
        }
        (self.virtual_time, self.furthest) = (EARLY, self.furthest.saturating_sub(by).max(EARLY));
        self.queue_anew();
    }

    /// Puts those ahead in the order of their passes, which have changed.
    #[cold]
    fn queue_anew(&mut self) {
        self.reweighted = false;
        // In the same memory: a turn allocates nothing.
        let mut ahead = std::mem::take(&mut self.ahead).into_vec();
        for Reverse(key) in &mut ahead {
            let module = *key as u32;
            *key = u128::from(self.accounts[module as usize].pass) << 64 | u128::from(module);
        }
        self.ahead = ahead.into();
        self.lowest = self.ahead.peek().map_or(u64::MAX, |Reverse(key)| (key >> 64) as u64);
    }

    /// The node to run next where `module` was chosen, which has a limit.
    #[cold]
    fn next_permitted(&mut self, mut module: usize) -> Option<usize> {
        while self.accounts[module].state & LIMITED != 0 && self.must_wait(module) {
            let Some(other) = self.choose() else { return self.next() };
            module = other;
        }
        self.running = module;
        Some(module)
    }

    /// Whether a limited module must wait; it is then put aside.
    fn must_wait(&mut self, module: usize) -> bool {
        let Some(until) = self.buckets[module].as_mut().and_then(|bucket| bucket.not_before(self.now)) else {
            return false;
        };
        self.accounts[module].ready = true;
        self.waiting.push((until, module));
        self.earliest = self.earliest.min(until);
        true
    }

    /// Makes those ready whose waiting is over.
    #[cold]
    fn release(&mut self) {
        let mut at = 0;
        while let Some(&(until, module)) = self.waiting.get(at) {
            if until <= self.now || self.lifted {
                self.waiting.swap_remove(at);
                self.accounts[module].ready = false;
                self.ready(module);
            } else {
                at += 1;
            }
        }
        self.earliest = self.waiting.iter().map(|(until, _)| *until).min().unwrap_or(Ticks::NEVER);
    }

    /// A call was timed: it is charged, and for those since the last that was.
    #[cold]
    fn settle(&mut self, module: usize, packets: usize, ticks: Ticks) {
        let (account, estimate) = (&mut self.accounts[module], &mut self.estimates[module]);
        let charged = account.per_call as f64 + account.per_packet as f64 * packets as f64;
        let due = (estimate.learn(packets, ticks.0) * account.per_tick).max(account.per_tick);
        let amends = (due - charged) * f64::from(account.untimed.min(STANDS_FOR)) + due;
        account.pass = account.pass.saturating_add_signed(amends.clamp(-MOST, MOST) as i64);
        account.untimed = 0;
        account.price(estimate);
    }

    #[cold]
    fn overload(&mut self, module: usize) {
        self.accounts[module].state |= OVERLOADED;
        if let Some(head) = self.pressure.begin(module) {
            self.accounts[head].state |= REFUSING;
        }
    }

    #[cold]
    fn relieve(&mut self, module: usize) {
        self.accounts[module].state &= !OVERLOADED;
        if let Some(head) = self.pressure.end(module) {
            self.accounts[head].state &= !REFUSING;
        }
    }
}

impl Scheduler for WeightedFair {
    const NAME: &'static str = "weighted-fair";
    const SHARES: bool = true;

    fn new(topology: &Topology) -> Self {
        let modules = topology.shares.len();
        let account = Account {
            pass: 0,
            per_tick: TICK,
            per_call: 0,
            per_packet: 0,
            untimed: 0,
            ready: false,
            since: 0,
            state: 0,
        };
        let mut scheduler = Self {
            accounts: vec![account; modules].into(),
            estimates: vec![Estimate::new(); modules].into(),
            buckets: vec![None; modules].into(),
            pressure: Pressure::new(topology),
            abreast: Set::new(modules),
            ahead: BinaryHeap::with_capacity(modules),
            lowest: u64::MAX,
            leaving: Set::new(topology.nodes.saturating_sub(modules)),
            waiting: Vec::with_capacity(modules),
            earliest: Ticks::NEVER,
            virtual_time: 0,
            furthest: 0,
            running: NOBODY,
            turn: 0,
            left: modules,
            now: Ticks::ZERO,
            frequency: topology.frequency,
            until_timed: 0,
            timing: false,
            random: 1,
            reweighted: false,
            lifted: false,
        };
        for (module, share) in topology.shares.iter().enumerate() {
            scheduler.set_weight(module, share.weight);
            scheduler.set_limit(module, share.limit);
        }
        for module in topology.entries.iter().flatten() {
            scheduler.accounts[*module].state |= ENTRY;
        }
        scheduler
    }

    #[inline]
    fn begin(&mut self, now: Ticks) {
        self.now = now;
        if self.left < self.accounts.len() {
            // The last turn was a busy one.
            if std::mem::take(&mut self.timing) {
                self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // 16 to 47: thirty-two turns from one to the next, on average.
                self.until_timed = 16 + (self.random >> 27);
            } else {
                self.until_timed = self.until_timed.saturating_sub(1);
            }
        }
        self.left = self.accounts.len();
        if self.virtual_time >= LATE {
            self.set_back();
        }
        if self.reweighted {
            self.queue_anew();
        }
        if now >= self.earliest {
            self.release();
        }
        // What has been released was ready before: its ports wait on.
        self.turn = self.turn.wrapping_add(1);
    }

    #[inline]
    fn wants_time(&mut self) -> bool {
        self.timing = self.until_timed == 0;
        self.timing
    }

    #[inline]
    fn ready(&mut self, node: usize) {
        let Some(account) = self.accounts.get_mut(node) else {
            self.leaving.add(node - self.accounts.len());
            return;
        };
        // Whether one that is running has more, it says when it has run.
        if node == self.running || std::mem::replace(&mut account.ready, true) {
            return;
        }
        account.since = self.turn;
        if account.pass > self.virtual_time {
            self.queue(node);
        } else {
            account.pass = self.virtual_time;
            self.abreast.add(node);
        }
    }

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.running = NOBODY;
        if !self.has_some() {
            // Nobody waits for anybody: all start anew, abreast.
            self.virtual_time = self.virtual_time.max(self.furthest);
        } else if self.left > 0
            && let Some(module) = self.choose()
        {
            if self.accounts[module].state & LIMITED != 0 {
                return self.next_permitted(module);
            }
            self.running = module;
            return Some(module);
        }
        self.leaving.pop().map(|place| self.accounts.len() + place)
    }

    #[inline]
    fn peek(&self) -> Option<usize> {
        // The lowest of those ahead follows where none is abreast; who does not have it in the cache by then is late
        // anyway.
        self.abreast.first()
    }

    fn is_idle(&self) -> bool {
        !self.has_some() && self.leaving.count == 0
    }

    #[inline]
    fn straight_on(&mut self, node: usize) -> bool {
        let Some(account) = self.accounts.get_mut(node) else { return true };
        // Only what could have been chosen now: nobody who is ready is behind it.
        let first = account.pass <= self.virtual_time
            && account.state & !ENTRY == 0
            && self.left > 1
            && self.lowest >= self.virtual_time;
        if first {
            account.pass = self.virtual_time;
        }
        first
    }

    #[inline]
    fn take(&mut self, node: usize, batch: &Batch, waiting: usize) {
        let Some(account) = self.accounts.get(node).filter(|account| account.state & !ENTRY != 0) else { return };
        cold_path();
        if account.state & OVERLOADED != 0 && self.pressure.is_low(node, waiting) {
            self.relieve(node);
        }
        if let Some(bucket) = &mut self.buckets[node] {
            bucket.take(batch);
        }
    }

    #[inline]
    fn charge(&mut self, node: usize, packets: usize, took: Took) {
        let Some(account) = self.accounts.get_mut(node) else { return };
        self.left -= 1;
        match took {
            Took::Unknown => {
                account.pass += account.per_call + account.per_packet * packets as u64;
                account.untimed += 1;
            }
            Took::Exactly(ticks) => {
                account.pass += (ticks.0 as f64 * account.per_tick).clamp(account.per_tick, MOST) as u64;
            }
            Took::Sampled(ticks) => self.settle(node, packets, ticks),
        }
        self.furthest = self.furthest.max(self.accounts[node].pass);
    }

    #[inline]
    fn fill(&mut self, node: usize, waiting: usize) {
        if self.pressure.is_high(node, waiting) && self.accounts[node].state & OVERLOADED == 0 && !self.lifted {
            self.overload(node);
        }
    }

    #[inline]
    fn ran(&mut self, node: usize, more: bool) {
        let Some(account) = self.accounts.get_mut(node) else {
            if more {
                self.ready(node);
            }
            return;
        };
        // One that ports feed keeps its place although it has run dry: when its turn comes, they may have more. Not so
        // where nobody else is ready; then all start anew with the next turn, which reads all ports.
        let again = more || (account.state & ENTRY != 0 && (self.abreast.count > 0 || self.lowest < u64::MAX));
        if again && !std::mem::replace(&mut account.ready, true) {
            // With its own pass, even one that is behind.
            self.queue(node);
        }
    }

    #[inline]
    fn holds(&self, port: usize) -> bool {
        self.pressure.holds(port)
    }

    #[inline]
    fn waits(&self, port: usize, node: usize) -> bool {
        // One that is ready since this turn is so by another of its ports: each gives a batch, or the first would be all.
        let was_ready = |account: &Account| account.ready && account.since != self.turn;
        self.accounts.get(node).is_some_and(was_ready) && self.pressure.waits(port)
    }

    #[inline]
    fn refuses(&self, node: usize) -> bool {
        self.accounts.get(node).is_some_and(|account| account.state & REFUSING != 0)
    }

    fn wake(&self) -> Option<Ticks> {
        (self.earliest != Ticks::NEVER).then_some(self.earliest)
    }

    fn lift(&mut self) {
        self.lifted = true;
        for module in 0..self.accounts.len() {
            self.set_limit(module, None);
            if self.accounts[module].state & OVERLOADED != 0 {
                self.relieve(module);
            }
        }
        self.release();
    }

    fn set_weight(&mut self, module: usize, weight: u32) {
        let account = &mut self.accounts[module];
        let before = std::mem::replace(&mut account.per_tick, TICK / f64::from(weight.max(1)));
        account.price(&self.estimates[module]);
        // What it has had before the others stays the same time, and not the same virtual time: where all weights became a
        // thousand times larger, it would wait for a thousand times as long.
        if account.pass > self.virtual_time {
            let ahead = (account.pass - self.virtual_time) as f64 * (account.per_tick / before);
            account.pass = self.virtual_time.saturating_add(ahead as u64);
            self.furthest = self.furthest.max(account.pass);
            self.reweighted = true;
        }
    }

    fn set_limit(&mut self, module: usize, limit: Option<RateLimit>) {
        let (frequency, now) = (self.frequency, self.now);
        match (limit, &mut self.buckets[module]) {
            (Some(limit), Some(bucket)) => bucket.change(&limit, frequency, now),
            (Some(limit), empty) => *empty = Some(Bucket::new(&limit, frequency, now)),
            (None, bucket) => *bucket = None,
        }
        let state = &mut self.accounts[module].state;
        *state = if limit.is_some() { *state | LIMITED } else { *state & !LIMITED };
        // One that waits for its limit looks at the new one.
        for (until, _) in self.waiting.iter_mut().filter(|(_, of)| *of == module) {
            *until = now;
            self.earliest = now;
        }
    }
}

#[cfg(test)]
mod tests;
