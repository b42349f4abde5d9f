//! `meter`: colours packets by whether they exceed a rate, with the meters of RFC 2697 and RFC 2698. All packets have
//! one meter, or each key has a meter.
//!
//! A batch is processed in steps, each a short loop: first the keys and lengths of the packets, then the accounts, then
//! the gates. Because of these steps, the accounts of a large table can be prefetched.

mod algorithm;
mod marking;

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{MAX_BATCH, Packet};
use forebay_tables::keyed::{Keyed, TableKey};
use forebay_tables::parameters::no_memory;
use forebay_tables::token_bucket::Scale;
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use algorithm::{Account, Algorithm, Colour, SingleRate, SingleRateParams, TwoRate, TwoRateParams};
use marking::{Aware, Marking, Remark, WORD};

use crate::{Ipv4View, KeyBy, Layer, Selector};

/// Parameters of `meter`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// A single rate three colour marker (RFC 2697), such as `{ cir: 10Mbps, cbs: 64KiB, ebs: 64KiB }`.
    srtcm: Option<SingleRateParams>,
    /// Instead of `srtcm`, a two rate three colour marker (RFC 2698), such as `{ cir: 10Mbps, cbs: 64KiB, pir: 20Mbps,
    /// pbs: 128KiB }`.
    trtcm: Option<TwoRateParams>,
    /// The property that packets of one meter have in common: `none` (the default: all packets share a meter),
    /// `source`, `destination`, `session`, `vlan`, `dscp`, or a metadata word such as `{ word: teid }`.
    #[serde(default)]
    key: KeyBy,
    /// Maximum number of keys with their own meter: 1 to 4194304, 65536 by default. Each takes 64 to 128 bytes.
    #[serde(default = "capacity")]
    capacity: usize,
    /// Action when all meters are in use: keys without a meter `share` one (the default), or their packets are
    /// dropped (`drop`, counted as `no_meter`).
    #[serde(default)]
    when_full: WhenFull,
    /// The source of the colour of arriving packets: `dscp`, `word`, or `blind` (the default: all packets arrive
    /// green).
    #[serde(default)]
    aware: Aware,
    /// Writes the colour into the code point as drop precedence (RFC 2597): `af`, or a class from 1 to 4. `af` changes
    /// packets of assured forwarding only, and keeps their class. A class changes all IP packets. Without this
    /// parameter, code points do not change.
    remark: Option<Remark>,
    /// Writes the colour to the metadata word `colour`: 1 green, 2 yellow, 3 red. `false` by default.
    #[serde(default)]
    word: bool,
    /// The bytes that count: the bytes of the IP packet (`ip`, the default, as in the RFCs), of the `frame`, or the
    /// bytes on a `wire`.
    #[serde(default = "layer")]
    layer: Layer,
}

fn capacity() -> usize {
    1 << 16
}

fn layer() -> Layer {
    Layer::Ip
}

/// Maximum number of keys.
pub(crate) const MOST_KEYS: usize = 1 << 22;

/// The action for packets whose key has no meter because all meters are in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// The keys without a meter share one meter.
    #[default]
    Share,
    /// Drops them.
    Drop,
}

const NO_METER: Gate = Gate::drop(0);
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] =
    &[Reason { name: "no_meter", help: "All meters are in use by other keys, and `when_full` is `drop`." }];

/// The gates by colour. The last gate is for packets without a meter.
const GATES: [Gate; 4] = [Gate::out(0), Gate::out(1), Gate::out(2), NO_METER];
/// The index in [`GATES`] of packets without a meter, in place of a colour.
const UNMETERED: u8 = 3;

/// The index of the counter of packets that use the shared meter. The counters before it count the colours.
const SHARED: usize = 3;
/// The index of the counter of meters that were given to another key.
const FORGOTTEN: usize = 4;

/// The network function `meter`.
pub struct Meter {
    marker: Marker,
    accounts: Accounts,
    /// Computes the keys of packets; `None` if all packets have one meter.
    selector: Option<Selector>,
    marking: Marking,
    layer: Layer,
    /// Converts bytes to tokens.
    scale: Scale,
    /// The counters: one for each colour, [`SHARED`] and [`FORGOTTEN`].
    counts: Arc<[Counter]>,
    scratch: Box<Scratch>,
}

/// The algorithm with its rates.
#[derive(Clone, Copy)]
enum Marker {
    Single(SingleRate),
    Two(TwoRate),
}

/// The buckets of all keys.
struct Accounts {
    /// The accounts of keys that have their own account. Not used if there are no keys.
    table: Keyed<Account>,
    /// The account of all packets if there are no keys, otherwise the account of all keys without their own account.
    one: Account,
    /// The action for packets whose key gets no account because all accounts are in use.
    when_full: WhenFull,
}

/// The key of a packet's account, and the packet's cost.
#[derive(Clone, Copy, Default)]
struct Charge {
    key: TableKey,
    /// The number of tokens that the packet costs.
    cost: u64,
}

/// Buffers for the steps of a batch.
struct Scratch {
    charges: [Charge; MAX_BATCH],
    /// The colours with which packets arrive. Not used in colour-blind mode.
    incoming: [Colour; MAX_BATCH],
    /// The new colours, or [`UNMETERED`].
    colours: [u8; MAX_BATCH],
}

impl Declare for Meter {
    type Params = Params;
    const NAME: &'static str = "meter";
    const SUMMARY: &'static str = "colours packets green, yellow or red by their rate (RFC 2697, RFC 2698)";
    const HELP: &'static str = "\
        Gates are `green`, `yellow` and `red`. With `srtcm` a packet is green within the committed burst, yellow \
        within the excess burst, and red otherwise. With `trtcm` it is red beyond the peak rate, yellow beyond the \
        committed rate, and green otherwise. A policer drops red packets: `m[red] -> drop`. In colour-aware mode \
        (`aware`) no packet gets a better colour than it arrived with. Tokens are counted exactly, in fractions of a \
        byte, at the time of the batch. Bursts can be up to 2^62 / (8 x ticks a second) bytes. With a `key` each key \
        has its own meter. A meter passes to another key only when its buckets are full, like the buckets of a new \
        meter. This is counted as `forgotten`. When all meters are in use, new keys share one meter with the same \
        rates until other meters are free. Their packets are counted as `shared`.";
    const EXAMPLE: &'static str =
        "{ trtcm: { cir: 10Mbps, cbs: 64KiB, pir: 20Mbps, pbs: 128KiB }, key: source, remark: af }";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &[WORD];
    const WRITES: &'static [&'static str] = &[WORD];
    // With a session as the key the state would be `PerSession`, but the constant must be valid for all keys.
    const STATE: StateKind = StateKind::Global;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        setup.gates(["green", "yellow", "red"])?;
        let scale = Scale::new(setup.frequency());
        let below = |kind: &'static str| move |(name, message)| SetupError::at(format!("{kind}.{name}"), message);
        let marker = match (params.srtcm, params.trtcm) {
            (Some(params), None) => Marker::Single(SingleRate::new(params, scale).map_err(below("srtcm"))?),
            (None, Some(params)) => Marker::Two(TwoRate::new(params, scale).map_err(below("trtcm"))?),
            _ => return Err(SetupError::new("give either 'srtcm' or 'trtcm'")),
        };
        if !(1..=MOST_KEYS).contains(&params.capacity) {
            return Err(SetupError::not_allowed("capacity", params.capacity, format!("1 to {MOST_KEYS} keys")));
        }
        let selector = Selector::new(&params.key, setup)?;
        let marking = Marking::new(params.aware, params.remark, params.word, setup)?;
        let table = Keyed::new(if selector.is_some() { params.capacity } else { 1 }, setup.secret())
            .map_err(no_memory("capacity", format!("the meters of {} keys", params.capacity)))?;
        // The buckets start full and stay full until the first packet, so the time of the last refill does not matter.
        let one = match marker {
            Marker::Single(algorithm) => algorithm.fresh(Ticks::ZERO),
            Marker::Two(algorithm) => algorithm.fresh(Ticks::ZERO),
        };
        let names = ["green", "yellow", "red", "shared", "forgotten"];
        Ok(Self {
            marker,
            accounts: Accounts { table, one, when_full: params.when_full },
            selector,
            marking,
            layer: params.layer,
            scale,
            counts: setup.counters("metered", names.map(str::to_owned)),
            scratch: Box::new(Scratch {
                charges: [Charge::default(); MAX_BATCH],
                incoming: [Colour::Green; MAX_BATCH],
                colours: [0; MAX_BATCH],
            }),
        })
    }
}

impl Accounts {
    /// Writes the keys and costs of the packets to `charges`, and prefetches their accounts. `cost` returns the number
    /// of tokens of a packet. Without a selector, only the costs are written.
    #[inline(always)]
    fn charge(
        &mut self,
        batch: &mut [Packet],
        selector: Option<&Selector>,
        charges: &mut [Charge],
        cost: impl Fn(&mut Packet, Option<Ipv4View>) -> u64,
    ) {
        let Some(selector) = selector else {
            for (packet, charge) in batch.iter_mut().zip(charges) {
                charge.cost = cost(packet, None);
            }
            return;
        };
        let entries = self.table.entries();
        selector.keys(batch, charges, cost, |key, cost| {
            entries.prefetch(key);
            Charge { key, cost }
        });
    }

    /// Writes the colours of a batch to `colours`. With `keyed`, each packet uses the account of its key, otherwise all
    /// packets use one account. `incoming` returns the colour with which a packet arrives.
    #[inline(always)]
    fn colour(
        &mut self,
        algorithm: impl Algorithm,
        now: Ticks,
        keyed: bool,
        charges: &[Charge],
        incoming: impl Fn(usize) -> Colour,
        (colours, counts): (&mut [u8], &[Counter]),
    ) {
        let charges = &charges[..colours.len()];
        if !keyed {
            let mut account = self.one;
            algorithm.refill(&mut account, now);
            for (index, (colour, charge)) in colours.iter_mut().zip(charges).enumerate() {
                *colour = algorithm.spend(&mut account, charge.cost, incoming(index)) as u8;
            }
            self.one = account;
            return;
        }
        let mut index = 0;
        loop {
            let mut entries = self.table.entries();
            for (colour, Charge { key, cost }) in colours[index..].iter_mut().zip(&charges[index..]) {
                let Some(account) = entries.get(*key) else { break };
                let mut then = *account;
                algorithm.refill(&mut then, now);
                *colour = algorithm.spend(&mut then, *cost, incoming(index)) as u8;
                *account = then;
                index += 1;
            }
            let Some(new) = charges.get(index) else { return };
            colours[index] = self.colour_new(algorithm, now, *new, incoming(index), counts);
            index += 1;
        }
    }

    /// Returns the colour of a packet whose key has no account, or [`UNMETERED`]. Creates the account if there is room,
    /// or if an account with full buckets can be removed for it.
    #[cold]
    #[inline(never)]
    fn colour_new(
        &mut self,
        algorithm: impl Algorithm,
        now: Ticks,
        Charge { key, cost }: Charge,
        incoming: Colour,
        counts: &[Counter],
    ) -> u8 {
        if self.table.is_full() && self.table.forget_one(|account| algorithm.is_full(account, now)).is_some() {
            counts[FORGOTTEN].add(1);
        }
        let when_full = self.when_full;
        let account = match self.table.insert(key, algorithm.fresh(now)) {
            Some(account) => account,
            None if when_full == WhenFull::Drop => return UNMETERED,
            None => {
                counts[SHARED].add(1);
                &mut self.one
            }
        };
        algorithm.refill(account, now);
        algorithm.spend(account, cost, incoming) as u8
    }
}

impl Function for Meter {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { marker, accounts, selector, marking, layer, scale, counts, scratch } = self;
        let (now, len) = (context.now(), batch.len().min(MAX_BATCH));
        let (charges, incoming, colours) =
            (&mut scratch.charges[..len], &mut scratch.incoming[..len], &mut scratch.colours[..len]);
        if !marking.is_blind() {
            batch.iter_mut().zip(&mut *incoming).for_each(|(packet, colour)| *colour = marking.read(packet));
        }
        // The branch is chosen once for the batch, and each branch has its own loop.
        let (selector, scale) = (selector.as_ref(), *scale);
        match layer {
            Layer::Ip => {
                accounts.charge(batch, selector, charges, |packet, ipv4| scale.cost(Layer::Ip.length_of(packet, ipv4)))
            }
            Layer::Frame => accounts
                .charge(batch, selector, charges, |packet, ipv4| scale.cost(Layer::Frame.length_of(packet, ipv4))),
            Layer::Wire => accounts
                .charge(batch, selector, charges, |packet, ipv4| scale.cost(Layer::Wire.length_of(packet, ipv4))),
        }
        let keyed = selector.is_some();
        let out = (&mut *colours, &**counts);
        match (*marker, marking.is_blind()) {
            (Marker::Single(algorithm), true) => {
                accounts.colour(algorithm, now, keyed, charges, |_| Colour::Green, out)
            }
            (Marker::Single(algorithm), false) => {
                accounts.colour(algorithm, now, keyed, charges, |index| incoming[index], out)
            }
            (Marker::Two(algorithm), true) => accounts.colour(algorithm, now, keyed, charges, |_| Colour::Green, out),
            (Marker::Two(algorithm), false) => {
                accounts.colour(algorithm, now, keyed, charges, |index| incoming[index], out)
            }
        }
        if marking.writes() {
            for (packet, colour) in batch.iter_mut().zip(&*colours) {
                match colour {
                    0 => marking.write(packet, Colour::Green),
                    1 => marking.write(packet, Colour::Yellow),
                    2 => marking.write(packet, Colour::Red),
                    _ => {}
                }
            }
        }
        decide(colours, counts, context);
    }
}

/// Assigns packets to the gates of their colours, and counts the colours. Usually all packets of a batch have the same
/// colour, which takes the fast path.
#[inline]
fn decide(colours: &[u8], counts: &[Counter], context: &mut Context<'_>) {
    let Some(first) = colours.first() else { return };
    if colours.iter().fold(0, |differ, colour| differ | (colour ^ first)) == 0 {
        context.all(GATES[usize::from(*first & 3)]);
        if *first != UNMETERED {
            counts[usize::from(*first & 3)].add(colours.len() as u64);
        }
        return;
    }
    let mut seen = [0u64; 4];
    for (gate, colour) in context.each().iter_mut().zip(colours) {
        *gate = GATES[usize::from(*colour & 3)];
        seen[usize::from(*colour & 3)] += 1;
    }
    for (count, seen) in counts.iter().zip(&seen[..3]) {
        count.add(*seen);
    }
}

register!(Meter);

#[cfg(test)]
mod tests;
