//! Holds packets to a rate: what exceeds it waits for its turn instead of being dropped.
//!
//! Token buckets with exact arithmetic (`tables::token_bucket`), so that a packet leaves at the very tick at which it may.
//! Keys either have a rate each, and wait in the order in which they are due; or share one, and take turns by deficit
//! round robin (Shreedhar and Varghese 1996), each turn as long as the longest packet yet, so that one visit always lets
//! a packet go.

mod queues;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_memory::room;
use forebay_packet::{MAX_BATCH, Packet};
use forebay_units::{BitRate, Bytes, Ticks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use queues::{Queues, Waiting};

use crate::parameters::no_memory;
use crate::tables::keyed::{Keyed, TableKey};
use crate::tables::token_bucket::{Rate, RateError, Scale};
use crate::traffic::{KeyBy, Layer, Selector};

/// Parameters of `shaper`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The rate, such as `10Mbps`: 1kbps to 1Tbps.
    rate: BitRate,
    /// How much may leave at once after a pause, such as `16KiB`: at least the longest packet.
    burst: Bytes,
    /// Whose packets wait in one queue: `none` (the default: all), `source`, `destination`, `session`, `vlan`, `dscp`, or
    /// a metadata word such as `{ word: teid }`.
    #[serde(default)]
    key: KeyBy,
    /// Whose the rate is: every key has it for itself (`each`, the default), or `all` share it and take turns.
    #[serde(default, rename = "for")]
    share: Share,
    /// How many keys have a queue of their own at a time, 1 to 1048576; 4096 by default. Those beyond share one.
    #[serde(default = "capacity")]
    capacity: usize,
    /// How many packets of one key may wait, from 1; 256 by default.
    #[serde(default = "queue")]
    queue: u32,
    /// How many bytes of one key may wait; without it only packets are counted.
    queue_bytes: Option<Bytes>,
    /// How many packets may wait in all, 1 to 1048576; 4096 by default. The pool must have more.
    #[serde(default = "held")]
    held: usize,
    /// Which bytes count: those of the `frame` (the default), of the IP packet (`ip`), or what it takes on a `wire`.
    #[serde(default = "layer")]
    layer: Layer,
}

fn capacity() -> usize {
    4_096
}

fn queue() -> u32 {
    256
}

fn held() -> usize {
    4_096
}

fn layer() -> Layer {
    Layer::Frame
}

/// The most keys, and the most packets that wait.
const MOST: usize = 1 << 20;

/// Whose the rate is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Every key has it for itself.
    #[default]
    Each,
    /// All keys share it.
    All,
}

const QUEUE_FULL: Gate = Gate::drop(0);
const ALL_FULL: Gate = Gate::drop(1);
const OVER_BURST: Gate = Gate::drop(2);
const DROPS: &[Reason] = &[
    Reason { name: "queue_full", help: "As many packets or bytes of its key wait already as may ('queue')." },
    Reason { name: "shaper_full", help: "As many packets of all keys wait already as may ('held')." },
    Reason { name: "over_burst", help: "The packet is longer than the burst, and would never be let go." },
];

/// The queue of packets whose keys have none of their own, and of all where there are no keys.
const SHARED: u32 = 0;

/// Which of the counters is which.
const PASSED_COUNT: usize = 0;
const DELAYED_COUNT: usize = 1;
const SHARED_COUNT: usize = 2;

/// The function.
pub struct Shaper {
    rate: Rate,
    scale: Scale,
    selector: Option<Selector>,
    layer: Layer,
    share: Share,
    limit: (u32, u64),
    /// Queues by key, and those that no key has.
    table: Keyed<u32>,
    spare: Vec<u32>,
    queues: Queues,
    /// Which queues wait, each rate its own: when their first packets are due.
    due: BinaryHeap<Reverse<(Ticks, u32)>>,
    /// Which queues wait, all sharing a rate: whose turn is next.
    turns: VecDeque<u32>,
    /// The longest packet yet.
    quantum: u64,
    /// Numbers the calls, from 1.
    call: u64,
    counts: Arc<[Counter]>,
    keys: Box<[TableKey; MAX_BATCH]>,
}

impl Declare for Shaper {
    type Params = Params;
    const NAME: &'static str = "shaper";
    const SUMMARY: &'static str = "holds packets back to keep to a rate";
    const HELP: &'static str = "\
        A token bucket: over any span no more leaves than the rate brings in it, and the burst. A packet that may leave \
        when it comes passes; others wait, each key's in their order, and leave at the instant at which there are tokens \
        for them (as exactly as the worker's turns allow). With `for: each` every key has the rate for itself; with \
        `for: all` the keys share it and take turns by bytes (deficit round robin), so that none can starve another. \
        A key's queue is given to another when it is empty (and, with a rate of its own, its bucket is full); when no \
        queue is to be had, new keys share one (counted as `shared`), which then counts as one key. Tokens are exact, \
        in parts of a byte. What still waits when a run ends is counted as `wound_up`.";
    const EXAMPLE: &'static str = "{ rate: 10Mbps, burst: 16KiB, key: source, for: all, held: 512 }";
    const DROPS: &'static [Reason] = DROPS;
    // With a session for a key and `for: each` it would be `PerSession`; the constant must be true for all keys.
    const STATE: StateKind = StateKind::Global;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let scale = Scale::new(setup.frequency());
        let at = |name: &'static str| move |error: RateError| SetupError::at(name, error.to_string());
        let full = scale.burst(params.burst).map_err(at("burst"))?;
        let rate = Rate::new(params.rate, full).map_err(at("rate"))?;
        for (name, value) in [("capacity", params.capacity), ("held", params.held)] {
            if !(1..=MOST).contains(&value) {
                return Err(SetupError::at(name, format!("{value}: allowed are 1 to {MOST}")));
            }
        }
        if params.queue == 0 {
            return Err(SetupError::at("queue", "0: allowed are 1 and more packets"));
        }
        if params.queue_bytes.is_some_and(|bytes| bytes.0 == 0) {
            return Err(SetupError::at("queue_bytes", "0B: allowed are 1B and more"));
        }
        setup.holds("held", params.held);
        let selector = Selector::new(&params.key, setup)?;
        let keys = if selector.is_some() { params.capacity } else { 0 };
        let lack = || no_memory("capacity", format!("the queues of {keys} keys"));
        let mut spare = room(keys).map_err(lack())?;
        spare.extend((SHARED + 1..=keys as u32).rev());
        Ok(Self {
            rate,
            scale,
            selector,
            layer: params.layer,
            share: params.share,
            limit: (params.queue, params.queue_bytes.map_or(u64::MAX, |bytes| bytes.0)),
            table: Keyed::new(keys.max(1), setup.secret()).map_err(lack())?,
            spare,
            queues: Queues::new(1 + keys, params.held, full)?,
            // As many as there can ever be, so that none allocates later.
            due: BinaryHeap::from(room(1 + keys).map_err(lack())?),
            turns: VecDeque::from(room(1 + keys).map_err(lack())?),
            quantum: 1,
            call: 0,
            counts: setup.counters("shaped", ["passed", "delayed", "shared"].map(str::to_owned)),
            keys: Box::new([TableKey::default(); MAX_BATCH]),
        })
    }
}

impl Shaper {
    /// Whose account a queue's packets are paid from.
    fn account(&self, queue: u32) -> u32 {
        if self.share == Share::All { SHARED } else { queue }
    }

    /// Pays for a packet of `queue` where there are tokens for it.
    fn pay(&mut self, queue: u32, cost: u64, now: Ticks) -> bool {
        let account = self.account(queue);
        let (rate, account) = (self.rate, self.queues.queue(account));
        let tokens = rate.after(account.tokens, now.since(account.at));
        if cost > tokens {
            return false;
        }
        (account.tokens, account.at) = (tokens - cost, account.at.max(now));
        true
    }

    /// When there are tokens for a packet of `queue`.
    fn affordable(&mut self, queue: u32, cost: u64) -> Ticks {
        let account = self.account(queue);
        let (rate, account) = (self.rate, self.queues.queue(account));
        account.at + rate.until(account.tokens, cost)
    }

    /// The queue whose packet leaves next, and when it may.
    fn next(&mut self) -> Option<(Ticks, u32)> {
        if self.share == Share::Each {
            return self.due.peek().map(|Reverse(next)| *next);
        }
        let queue = *self.turns.front()?;
        let first = self.queues.first(queue)?;
        let (bytes, quantum) = (u64::from(first.bytes), self.quantum);
        let of = self.queues.queue(queue);
        if of.deficit < bytes {
            // Its turn begins.
            of.deficit += quantum;
        }
        Some((self.affordable(queue, self.scale.cost(first.bytes as usize)), queue))
    }

    /// A queue that was empty, or has let its first packet go, has a packet to wait for.
    fn wait(&mut self, queue: u32, first: Waiting) {
        let due = self.affordable(queue, self.scale.cost(first.bytes as usize));
        self.due.push(Reverse((due, queue)));
    }

    /// Lets go what may leave now.
    fn release(&mut self, context: &mut Context<'_>, now: Ticks) {
        while let Some((due, queue)) = self.next() {
            let Some(first) = self.queues.first(queue).filter(|_| due <= now) else { return };
            if !self.pay(queue, self.scale.cost(first.bytes as usize), now) {
                return;
            }
            self.queues.pop(queue);
            self.queues.queue(queue).released_in = self.call;
            context.release(first.key, Gate::FIRST);
            let next = self.queues.first(queue);
            match self.share {
                Share::Each => {
                    self.due.pop();
                    if let Some(next) = next {
                        self.wait(queue, next);
                    }
                }
                Share::All => {
                    let of = self.queues.queue(queue);
                    of.deficit = of.deficit.saturating_sub(first.bytes.into());
                    match next {
                        Some(next) if of.deficit >= u64::from(next.bytes) => {}
                        Some(_) => self.turns.rotate_left(1),
                        None => {
                            of.deficit = 0;
                            self.turns.pop_front();
                        }
                    }
                }
            }
        }
    }

    /// The queue of a key.
    fn queue_of(&mut self, key: TableKey, now: Ticks) -> u32 {
        if let Some(queue) = self.table.entries().get(key) {
            return *queue;
        }
        let Self { rate, share, table, spare, queues, call, .. } = self;
        let (rate, share, call) = (*rate, *share, *call);
        // Packets of this key may wait in the shared queue, or be on their way out of it: later ones must not overtake.
        let shared = queues.peek(SHARED);
        let found = if shared.packets > 0 || shared.released_in == call {
            None
        } else {
            spare.pop().or_else(|| {
                table.forget_one(|queue| {
                    let of = queues.peek(*queue);
                    let full = share == Share::All || rate.after(of.tokens, now.since(of.at)) == rate.full;
                    of.packets == 0 && of.released_in != call && full
                })
            })
        };
        match found {
            Some(queue) => {
                table.insert(key, queue);
                queue
            }
            None => {
                self.counts[SHARED_COUNT].add(1);
                SHARED
            }
        }
    }

    /// What becomes of a packet of `queue`: it passes, waits, or is dropped. `true` where it passes.
    fn admit(&mut self, index: usize, bytes: usize, queue: u32, context: &mut Context<'_>) -> bool {
        let (now, cost, of) = (context.now(), self.scale.cost(bytes), *self.queues.peek(queue));
        let nobody_waits = if self.share == Share::All { self.queues.is_empty() } else { of.packets == 0 };
        // What was let go in this call leaves after the batch: nothing of that queue may pass it.
        if nobody_waits && of.released_in != self.call && self.pay(queue, cost, now) {
            return true;
        }
        if of.packets >= self.limit.0 || of.bytes + bytes as u64 > self.limit.1 {
            context.put(index, QUEUE_FULL);
        } else if self.queues.is_full() {
            context.put(index, ALL_FULL);
        } else {
            let waiting = Waiting { key: context.hold(index), bytes: bytes as u32 };
            self.queues.push(queue, waiting);
            self.counts[DELAYED_COUNT].add(1);
            if of.packets == 0 {
                match self.share {
                    Share::Each => self.wait(queue, waiting),
                    Share::All => self.turns.push_back(queue),
                }
            }
        }
        false
    }

    /// Asks to be woken when the next packet may leave.
    fn ask(&mut self, context: &mut Context<'_>, now: Ticks) {
        if let Some((due, _)) = self.next() {
            context.wake_at(due.max(now));
        }
    }
}

impl Function for Shaper {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let now = context.now();
        self.call += 1;
        self.release(context, now);
        if let Some(selector) = &self.selector {
            selector.keys(batch, &mut self.keys[..], |_, _| (), |key, ()| key);
        }
        let mut passed = 0;
        for (index, packet) in batch.iter_mut().enumerate() {
            let bytes = self.layer.length(packet);
            if self.scale.cost(bytes) > self.rate.full {
                context.put(index, OVER_BURST);
                continue;
            }
            self.quantum = self.quantum.max(bytes as u64);
            let key = self.keys.get(index).copied().unwrap_or_default();
            let queue = if self.selector.is_some() { self.queue_of(key, now) } else { SHARED };
            passed += u64::from(self.admit(index, bytes, queue, context));
        }
        self.counts[PASSED_COUNT].add(passed);
        self.ask(context, now);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        self.call += 1;
        self.release(context, now);
        self.ask(context, now);
    }
}

register!(Shaper);

#[cfg(test)]
mod tests;
