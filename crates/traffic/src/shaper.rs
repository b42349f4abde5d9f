//! `shaper`: limits packets to a rate. Packets that exceed the rate wait.
//!
//! Token buckets have exact arithmetic (`tables::token_bucket`), so a packet leaves at the first tick at which there
//! are enough tokens for it. If each key has a rate, the queue whose first packet is due earliest sends next. If all
//! keys share a rate, the keys take turns by deficit round robin (Shreedhar and Varghese 1996). The quantum is the
//! length of the longest packet so far, so each turn sends at least one packet.

mod queues;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_memory::room;
use forebay_packet::{MAX_BATCH, Packet};
use forebay_tables::keyed::{Keyed, TableKey};
use forebay_tables::parameters::no_memory;
use forebay_tables::token_bucket::{Rate, RateError, Scale};
use forebay_units::{BitRate, Bytes, Ticks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use queues::{Queues, Waiting};

use crate::{KeyBy, Layer, Selector};

/// Parameters of `shaper`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The rate, such as `10Mbps`: 1kbps to 1Tbps.
    rate: BitRate,
    /// Maximum number of bytes that leave at once after a pause, such as `16KiB`. It must be at least the length of the
    /// longest packet: longer packets are dropped.
    burst: Bytes,
    /// The property that packets of one queue have in common: `none` (the default: all packets wait in one queue),
    /// `source`, `destination`, `session`, `vlan`, `dscp`, or a metadata word such as `{ word: teid }`.
    #[serde(default)]
    key: KeyBy,
    /// The keys that share the rate: `each` key has the rate for itself (the default), or `all` keys share it and take
    /// turns.
    #[serde(default, rename = "for")]
    share: Share,
    /// Maximum number of keys with their own queue: 1 to 1048576, 4096 by default. The other keys share one queue.
    #[serde(default = "capacity")]
    capacity: usize,
    /// Maximum number of packets of one key that wait, from 1; 256 by default.
    #[serde(default = "queue")]
    queue: u32,
    /// Maximum number of bytes of one key that wait. By default the number of bytes is not limited.
    queue_bytes: Option<Bytes>,
    /// Maximum number of packets that wait in all: 1 to 1048576, 4096 by default. The pool must be larger.
    #[serde(default = "held")]
    held: usize,
    /// The bytes that count: the bytes of the `frame` (the default), of the IP packet (`ip`), or the bytes on a `wire`.
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

/// Maximum number of keys, and of packets that wait.
const MOST: usize = 1 << 20;

/// The keys that share the rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Share {
    /// Every key has the rate for itself.
    #[default]
    Each,
    /// All keys share the rate.
    All,
}

const QUEUE_FULL: Gate = Gate::drop(0);
const ALL_FULL: Gate = Gate::drop(1);
const OVER_BURST: Gate = Gate::drop(2);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason {
        name: "queue_full",
        help: "The limit of waiting packets or bytes of its key is reached (`queue`, `queue_bytes`).",
    },
    Reason { name: "shaper_full", help: "The limit of waiting packets of all keys is reached (`held`)." },
    Reason { name: "over_burst", help: "The packet is longer than the burst, so it could never leave." },
];

/// The queue of keys without their own queue, and of all packets if there are no keys.
const SHARED: u32 = 0;

/// The index of the counter of packets that pass at once.
const PASSED_COUNT: usize = 0;
/// The index of the counter of packets that wait.
const DELAYED_COUNT: usize = 1;
/// The index of the counter of packets that use the shared queue because their key has none.
const SHARED_COUNT: usize = 2;

/// The network function `shaper`.
pub struct Shaper {
    /// The rate and the burst, in tokens.
    rate: Rate,
    /// Converts bytes to tokens.
    scale: Scale,
    /// Computes the keys of packets; `None` if all packets have one queue.
    selector: Option<Selector>,
    layer: Layer,
    share: Share,
    /// The maximum number of waiting packets and bytes of one queue.
    limit: (u32, u64),
    /// The queue of each key.
    table: Keyed<u32>,
    /// The queues that no key has.
    spare: Vec<u32>,
    /// The queues with their accounts, by number. Queue [`SHARED`] is always in use.
    queues: Queues,
    /// With a rate for each key: the queues with packets, by the time at which the first packet is due.
    due: BinaryHeap<Reverse<(Ticks, u32)>>,
    /// With a shared rate: the queues with packets, in the order of their turns.
    turns: VecDeque<u32>,
    /// The length of the longest packet so far, in the bytes that count.
    quantum: u64,
    /// The number of calls of `process` and `wake` so far, this one included.
    call: u64,
    /// The counters [`PASSED_COUNT`], [`DELAYED_COUNT`] and [`SHARED_COUNT`].
    counts: Arc<[Counter]>,
    /// The keys of the batch's packets.
    keys: Box<[TableKey; MAX_BATCH]>,
}

impl Declare for Shaper {
    type Params = Params;
    const NAME: &'static str = "shaper";
    const SUMMARY: &'static str = "holds packets back so that they keep to a rate";
    const HELP: &'static str = "\
        A token bucket: in any span of time, the bytes that leave are at most the rate times the span, plus the burst. \
        A packet that may leave when it arrives passes at once. Other packets wait, in order for each key, and leave \
        when there are enough tokens (as exactly as the worker's calls allow). With `for: each` every key has the rate \
        for itself. With `for: all` the keys share it and take turns by bytes (deficit round robin), so that no key \
        can starve another. An empty queue passes to another key (with `for: each`, only if its bucket is full). When \
        no queue is free, new keys share one queue, which is treated as the queue of one key. Their packets are \
        counted as `shared`. Tokens are exact, in fractions of a byte. Packets that still wait when a run ends are \
        counted as `held_at_close`.";
    const EXAMPLE: &'static str = "{ rate: 10Mbps, burst: 16KiB, key: source, for: all, held: 512 }";
    const DROPS: &'static [Reason] = DROPS;
    // With a session as the key and `for: each` the state would be `PerSession`, but the constant must be valid for all
    // keys.
    const STATE: StateKind = StateKind::Global;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let scale = Scale::new(setup.frequency());
        let at = |name: &'static str| move |error: RateError| SetupError::at(name, error.to_string());
        let full = scale.burst(params.burst).map_err(at("burst"))?;
        let rate = Rate::new(params.rate, full).map_err(at("rate"))?;
        for (name, value) in [("capacity", params.capacity), ("held", params.held)] {
            if !(1..=MOST).contains(&value) {
                return Err(SetupError::not_allowed(name, value, format!("1 to {MOST}")));
            }
        }
        if params.queue == 0 {
            return Err(SetupError::not_allowed("queue", "0", "1 or more packets"));
        }
        if params.queue_bytes.is_some_and(|bytes| bytes.0 == 0) {
            return Err(SetupError::not_allowed("queue_bytes", "0B", "1B or more"));
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
            // Allocate the maximum number of entries now, so that no later call allocates.
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
    /// Returns the queue whose tokens pay for the packets of `queue`: `queue` itself, or [`SHARED`] with a shared rate.
    fn account(&self, queue: u32) -> u32 {
        if self.share == Share::All { SHARED } else { queue }
    }

    /// Takes the tokens for a packet of `queue` if there are enough. Returns true if the tokens were taken. `cost` is
    /// the number of tokens.
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

    /// Returns the time at which there are enough tokens for a packet of `queue` that costs `cost` tokens.
    fn affordable(&mut self, queue: u32, cost: u64) -> Ticks {
        let account = self.account(queue);
        let (rate, account) = (self.rate, self.queues.queue(account));
        account.at + rate.until(account.tokens, cost)
    }

    /// Returns the queue whose packet leaves next, and the time at which the packet may leave; `None` if no packet
    /// waits. With a shared rate, this begins the turn of the queue; another call in the same turn has no further
    /// effect.
    fn next(&mut self) -> Option<(Ticks, u32)> {
        if self.share == Share::Each {
            return self.due.peek().map(|Reverse(next)| *next);
        }
        let queue = *self.turns.front()?;
        let first = self.queues.first(queue)?;
        let (bytes, quantum) = (u64::from(first.bytes), self.quantum);
        let of = self.queues.queue(queue);
        if of.deficit < bytes {
            // The queue's turn begins.
            of.deficit += quantum;
        }
        Some((self.affordable(queue, self.scale.cost(first.bytes as usize)), queue))
    }

    /// Adds a queue to `due`. Must be called once for each packet that comes to the front of a queue. `first` is this
    /// packet.
    fn wait(&mut self, queue: u32, first: Waiting) {
        let due = self.affordable(queue, self.scale.cost(first.bytes as usize));
        self.due.push(Reverse((due, queue)));
    }

    /// Releases all packets that may leave now.
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

    /// Returns the queue of a key, which may be the shared queue.
    fn queue_of(&mut self, key: TableKey, now: Ticks) -> u32 {
        if let Some(queue) = self.table.entries().get(key) {
            return *queue;
        }
        let Self { rate, share, table, spare, queues, call, .. } = self;
        let (rate, share, call) = (*rate, *share, *call);
        // Packets of this key may wait in the shared queue, or leave it in this call. Later packets must not overtake
        // them.
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

    /// Decides about a packet of `queue`: it passes, waits, or is dropped. Returns true if it passes. `index` is its
    /// index in the batch.
    fn admit(&mut self, index: usize, bytes: usize, queue: u32, context: &mut Context<'_>) -> bool {
        let (now, cost, of) = (context.now(), self.scale.cost(bytes), *self.queues.peek(queue));
        let is_empty = if self.share == Share::All { self.queues.is_empty() } else { of.packets == 0 };
        // A packet that was released in this call leaves after the batch. No packet of the same queue may overtake it.
        if is_empty && of.released_in != self.call && self.pay(queue, cost, now) {
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

    /// Requests a call of `wake` at the time at which the next packet may leave.
    fn schedule(&mut self, context: &mut Context<'_>, now: Ticks) {
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
        self.schedule(context, now);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        self.call += 1;
        self.release(context, now);
        self.schedule(context, now);
    }
}

register!(Shaper);

#[cfg(test)]
mod tests;
