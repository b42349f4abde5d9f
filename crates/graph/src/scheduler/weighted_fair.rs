//! Weighted-fair scheduling: modules with packets share the worker's ticks by their weights.
//!
//! Start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) over ticks. That is stride scheduling (Waldspurger and
//! Weihl, 1995) with a rule for modules that become ready again. Each module has a *pass*, the virtual time at which
//! its next call starts. The module with the lowest pass runs, and a call advances the pass by its ticks divided by the
//! weight. Virtual time is the pass of the running module. A module that was idle continues at the present virtual
//! time: it has saved no time, and owes none.
//!
//! Reading a clock for each call would cost as much as some functions do. So each module's costs are estimated from the
//! calls of one turn in thirty-two. A timed call also corrects the charges of the untimed calls since the last timed
//! one. So over time no module gains from a wrong estimate.

mod account;
mod bucket;
mod estimate;
mod node_set;
mod pressure;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::cold_path;

use forebay_packet::Batch;
use forebay_units::{Frequency, Ticks};

use forebay_protocol::RateLimit;

use super::{Scheduler, Took, Topology};
use account::{Account, ENTRY, LIMITED, OVERLOADED, REFUSING};
use bucket::Bucket;
use estimate::Estimate;
use node_set::NodeSet;
use pressure::Pressure;

/// The advance of the pass per tick at weight 1. It is so large that the charge for a call of a hundred ticks is exact
/// to a tenth of a percent even at the largest weight.
const TICK: f64 = (1u64 << 20) as f64;
/// The largest advance of a pass by a call: about two seconds at weight 1.
const MOST: f64 = (1u64 << 52) as f64;
/// When virtual time reaches this value, it is set back, so that passes do not overflow their 64 bits. This happens at
/// most every few minutes.
const LATE: u64 = 1 << 60;
/// The value to which virtual time is set back. No module has been refunded more than this, so passes stay above 0.
const EARLY: u64 = 1 << 56;
/// The largest number of untimed calls whose charges one timed call corrects.
const STANDS_FOR: u32 = 256;
/// The value of `running` while no module runs.
const NONE_RUNS: usize = usize::MAX;

/// Shares ticks by weights.
#[derive(Debug)]
pub struct WeightedFair {
    /// By module.
    accounts: Box<[Account]>,
    /// By module: the estimated cost of its calls.
    estimates: Box<[Estimate]>,
    /// By module: the bucket of its rate limit.
    buckets: Box<[Option<Bucket>]>,
    pressure: Pressure,
    /// Ready modules whose pass is the virtual time. They run first, in topological order. If no module has a backlog,
    /// this set has all ready modules.
    abreast: NodeSet,
    /// The other ready modules, lowest pass first. An entry is the pass (upper 64 bits) and the module.
    ahead: BinaryHeap<Reverse<u128>>,
    /// The lowest pass in `ahead`. `u64::MAX` if `ahead` is empty.
    lowest: u64,
    /// The ready nodes by which packets leave, counted from the first node after the modules. They run after a turn's
    /// modules.
    leaving: NodeSet,
    /// Modules that wait for their rate limits, each with the instant at which it may run.
    waiting: Vec<(Ticks, usize)>,
    /// The earliest instant in `waiting`. [`Ticks::NEVER`] if no module waits.
    earliest: Ticks,
    /// The virtual time, in units of a pass. It only increases, except when it is [set back](LATE).
    virtual_time: u64,
    /// The highest pass of all modules.
    furthest: u64,
    /// The module that runs, which `next` returned last. [`NONE_RUNS`] if no module runs.
    running: usize,
    /// The number of this turn. It wraps.
    turn: u32,
    /// The number of calls of modules that remain in this turn. At the start of a turn, this is the number of modules.
    remaining: usize,
    /// The time at which this turn began.
    now: Ticks,
    frequency: Frequency,
    /// The number of busy turns until the next timed one.
    until_timed: u32,
    /// Whether this turn is timed.
    timing: bool,
    /// A random number that makes the distances between timed turns irregular, so that timing covers every pattern of
    /// calls.
    random: u32,
    /// Whether weights, and with them passes, have changed since the last turn.
    reweighted: bool,
    /// Whether rate limits and queue marks no longer apply ([`lift`](Scheduler::lift)).
    lifted: bool,
}

impl WeightedFair {
    /// Removes the module to run next from the ready modules, and returns it. `None` if no module is ready. The caller
    /// checks the module's rate limit.
    #[inline]
    fn choose(&mut self) -> Option<usize> {
        let abreast = if self.lowest >= self.virtual_time { self.abreast.pop() } else { None };
        let module = abreast.or_else(|| self.choose_ahead())?;
        self.accounts[module].ready = false;
        Some(module)
    }

    /// Removes the module with the lowest pass from `ahead`, and returns it. Virtual time advances to its pass.
    #[inline(never)]
    fn choose_ahead(&mut self) -> Option<usize> {
        let Reverse(key) = self.ahead.pop()?;
        // The lowest pass is below the virtual time only if a timed call refunded earlier charges.
        self.virtual_time = self.virtual_time.max(self.lowest);
        self.lowest = self.ahead.peek().map_or(u64::MAX, |Reverse(key)| (key >> 64) as u64);
        Some(key as u32 as usize)
    }

    /// Returns whether a module is ready. Modules that wait for their rate limits do not count.
    #[inline]
    fn has_some(&self) -> bool {
        self.abreast.count > 0 || self.lowest < u64::MAX
    }

    /// Queues a ready module in `ahead`, with its own pass.
    #[inline]
    fn queue(&mut self, module: usize) {
        let pass = self.accounts[module].pass;
        self.lowest = self.lowest.min(pass);
        self.ahead.push(Reverse(u128::from(pass) << 64 | module as u128));
    }

    /// Sets back virtual time and all passes by the same amount. So the order of the modules and the differences
    /// between their passes do not change.
    #[cold]
    fn set_back(&mut self) {
        let by = self.virtual_time - EARLY;
        for account in &mut self.accounts {
            account.pass = account.pass.saturating_sub(by);
        }
        (self.virtual_time, self.furthest) = (EARLY, self.furthest.saturating_sub(by).max(EARLY));
        self.sort_ahead();
    }

    /// Sorts `ahead` by the modules' passes, which have changed. Call this after each change of the pass of a module
    /// that may be in `ahead`.
    #[cold]
    fn sort_ahead(&mut self) {
        self.reweighted = false;
        // The heap is rebuilt in the same memory, because a turn must not allocate memory.
        let mut ahead = std::mem::take(&mut self.ahead).into_vec();
        for Reverse(key) in &mut ahead {
            let module = *key as u32;
            *key = u128::from(self.accounts[module as usize].pass) << 64 | u128::from(module);
        }
        self.ahead = ahead.into();
        self.lowest = self.ahead.peek().map_or(u64::MAX, |Reverse(key)| (key >> 64) as u64);
    }

    /// Returns the node to run next, after `module` was chosen, which has a rate limit. If the limit does not allow the
    /// module to run now, the module joins the waiting modules, and another node is chosen.
    #[cold]
    fn next_permitted(&mut self, mut module: usize) -> Option<usize> {
        while self.accounts[module].state & LIMITED != 0 && self.must_wait(module) {
            let Some(other) = self.choose() else { return self.next() };
            module = other;
        }
        self.running = module;
        Some(module)
    }

    /// Returns whether a limited module must wait. If so, it joins the waiting modules.
    fn must_wait(&mut self, module: usize) -> bool {
        let Some(until) = self.buckets[module].as_mut().and_then(|bucket| bucket.not_before(self.now)) else {
            return false;
        };
        // A module that is marked as ready is not queued again when new packets come.
        self.accounts[module].ready = true;
        self.waiting.push((until, module));
        self.earliest = self.earliest.min(until);
        true
    }

    /// Makes the modules ready whose wait is over.
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

    /// Charges a timed call, and corrects the charges of the untimed calls since the last timed one.
    #[cold]
    fn settle(&mut self, module: usize, packets: usize, ticks: Ticks) {
        let (account, estimate) = (&mut self.accounts[module], &mut self.estimates[module]);
        let charged = account.per_call as f64 + account.per_packet as f64 * packets as f64;
        let due = (estimate.learn(packets, ticks.0) * account.per_tick).max(account.per_tick);
        let correction = (due - charged) * f64::from(account.untimed.min(STANDS_FOR)) + due;
        account.pass = account.pass.saturating_add_signed(correction.clamp(-MOST, MOST) as i64);
        account.untimed = 0;
        account.price(estimate);
    }

    /// Marks a module as overloaded. From now on its ports are not read, or the start of its chain refuses packets.
    #[cold]
    fn overload(&mut self, module: usize) {
        self.accounts[module].state |= OVERLOADED;
        if let Some(head) = self.pressure.begin(module) {
            self.accounts[head].state |= REFUSING;
        }
    }

    /// Marks a module as no longer overloaded.
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
            abreast: NodeSet::new(modules),
            ahead: BinaryHeap::with_capacity(modules),
            lowest: u64::MAX,
            leaving: NodeSet::new(topology.nodes.saturating_sub(modules)),
            waiting: Vec::with_capacity(modules),
            earliest: Ticks::NEVER,
            virtual_time: 0,
            furthest: 0,
            running: NONE_RUNS,
            turn: 0,
            remaining: modules,
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
        if self.remaining < self.accounts.len() {
            // A module was called, so the last turn was busy.
            if std::mem::take(&mut self.timing) {
                self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // There are 16 to 47 untimed turns before the next timed turn: about thirty-two on average.
                self.until_timed = 16 + (self.random >> 27);
            } else {
                self.until_timed = self.until_timed.saturating_sub(1);
            }
        }
        self.remaining = self.accounts.len();
        if self.virtual_time >= LATE {
            self.set_back();
        }
        if self.reweighted {
            self.sort_ahead();
        }
        if now >= self.earliest {
            self.release();
        }
        // Only now does the number change. A released module was ready before this turn, so its ports must still wait.
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
        // A running module reports whether it has more packets after it has run.
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
        self.running = NONE_RUNS;
        if !self.has_some() {
            // No module is ready, so all modules start again at the same pass.
            self.virtual_time = self.virtual_time.max(self.furthest);
        } else if self.remaining > 0
            && let Some(module) = self.choose()
        {
            if self.accounts[module].state & LIMITED != 0 {
                return self.next_permitted(module);
            }
            self.running = module;
            return Some(module);
        }
        self.leaving.pop().map(|index| self.accounts.len() + index)
    }

    #[inline]
    fn peek(&self) -> Option<usize> {
        // If `abreast` is empty, the module with the lowest pass in `ahead` runs next. A prefetch of its data would
        // come too late.
        self.abreast.first()
    }

    fn is_idle(&self) -> bool {
        !self.has_some() && self.leaving.count == 0
    }

    #[inline]
    fn straight_on(&mut self, node: usize) -> bool {
        let Some(account) = self.accounts.get_mut(node) else { return true };
        // The node may run only if `next` could choose it now: no other ready module comes before it.
        let first = account.pass <= self.virtual_time
            && account.state & !ENTRY == 0
            && self.remaining > 1
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
        self.remaining -= 1;
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
        // A module that ports feed stays ready without packets, because its ports may have packets when it is chosen.
        // If no other module is ready, it need not stay ready: the next turn reads all ports.
        let again = more || (account.state & ENTRY != 0 && (self.abreast.count > 0 || self.lowest < u64::MAX));
        if again && !std::mem::replace(&mut account.ready, true) {
            // The module keeps its own pass, even if this pass is below the virtual time.
            self.queue(node);
        }
    }

    #[inline]
    fn holds(&self, port: usize) -> bool {
        self.pressure.holds(port)
    }

    #[inline]
    fn waits(&self, port: usize, node: usize) -> bool {
        // If another port has made the module ready in this turn, this port is read, too. Otherwise only the first port
        // would be read.
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
        // A module that is ahead of the virtual time stays ahead by the same real time, not by the same virtual time.
        // Otherwise, if all weights became a thousand times larger, it would wait a thousand times as long.
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
        // A module that waits for its limit becomes ready, and is checked against the new limit.
        for (until, _) in self.waiting.iter_mut().filter(|(_, of)| *of == module) {
            *until = now;
            self.earliest = now;
        }
    }
}

#[cfg(test)]
mod tests;
