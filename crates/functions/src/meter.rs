//! Colours packets by whether they keep to a rate: the meters of RFC 2697 and RFC 2698, one or one a key.
//!
//! A batch is worked on in steps, each a short loop: whose the packets are and how long, then the accounts, then the gates.
//! So the accounts of a large table are asked for before they are needed.

mod algorithm;
mod marking;

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{MAX_BATCH, Packet};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use algorithm::{Account, Algorithm, Colour, SingleRate, SingleRateParams, TwoRate, TwoRateParams};
use marking::{Aware, Marking, Remark, WORD};

use crate::parameters::no_memory;
use crate::tables::keyed::{Keyed, TableKey};
use crate::tables::token_bucket::Scale;
use crate::traffic::{KeyBy, Layer, Seen, Selector};

/// Parameters of `meter`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// A single rate three colour marker (RFC 2697), such as `{ cir: 10Mbps, cbs: 64KiB, ebs: 64KiB }`.
    srtcm: Option<SingleRateParams>,
    /// Instead of `srtcm`, a two rate three colour marker (RFC 2698), such as `{ cir: 10Mbps, cbs: 64KiB, pir: 20Mbps,
    /// pbs: 128KiB }`.
    trtcm: Option<TwoRateParams>,
    /// Whose packets share a meter: `none` (the default: all), `source`, `destination`, `session`, `vlan`, `dscp`, or a
    /// metadata word such as `{ word: teid }`.
    #[serde(default)]
    key: KeyBy,
    /// How many keys have a meter of their own at a time, 1 to 4194304; 65536 by default. Each takes 64 to 128 bytes.
    #[serde(default = "capacity")]
    capacity: usize,
    /// What becomes of keys beyond: they `share` one meter among them (the default), or their packets are dropped
    /// (`drop`, counted as `no_meter`).
    #[serde(default)]
    when_full: WhenFull,
    /// Which colours packets come with: `blind` (the default: none), `dscp` or `word`.
    #[serde(default)]
    aware: Aware,
    /// Writes the colour into the code point as drop precedence (RFC 2597): `af` does so to packets of assured
    /// forwarding, a class from 1 to 4 to all IP packets. Without it code points stay.
    remark: Option<Remark>,
    /// Whether the colour is written to the metadata word `colour`: 1 green, 2 yellow, 3 red.
    #[serde(default)]
    word: bool,
    /// Which bytes count: those of the IP packet (`ip`, the default, as the RFCs have it), of the `frame`, or what it
    /// takes on a `wire`.
    #[serde(default = "layer")]
    layer: Layer,
}

fn capacity() -> usize {
    1 << 16
}

fn layer() -> Layer {
    Layer::Ip
}

/// The most keys.
pub(crate) const MOST_KEYS: usize = 1 << 22;

/// What becomes of packets whose key finds no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhenFull {
    /// They share one account.
    #[default]
    Share,
    /// They are dropped.
    Drop,
}

const NO_METER: Gate = Gate::drop(0);
const DROPS: &[Reason] = &[Reason {
    name: "no_meter",
    help: "All meters are taken by other keys that are not idle, and such packets are to be dropped ('when_full').",
}];

/// By colour; the last is for packets that no meter has seen.
const GATES: [Gate; 4] = [Gate::out(0), Gate::out(1), Gate::out(2), NO_METER];
const UNMETERED: u8 = 3;

/// Counters, by colour and then these.
const SHARED: usize = 3;
const FORGOTTEN: usize = 4;

/// The function.
pub struct Meter {
    kind: Kind,
    accounts: Accounts,
    selector: Option<Selector>,
    marking: Marking,
    layer: Layer,
    scale: Scale,
    counts: Arc<[Counter]>,
    scratch: Box<Scratch>,
}

#[derive(Clone, Copy)]
enum Kind {
    Single(SingleRate),
    Two(TwoRate),
}

/// Who has sent how much.
struct Accounts {
    table: Keyed<Account>,
    /// That of all packets, where there are no keys; of all keys that find no room.
    one: Account,
    when_full: WhenFull,
}

/// What is asked of an account, and of whose.
#[derive(Clone, Copy, Default)]
struct Asked {
    key: TableKey,
    cost: u64,
}

/// What a batch is worked on in: written anew for each.
struct Scratch {
    asked: [Asked; MAX_BATCH],
    given: [Colour; MAX_BATCH],
    colours: [u8; MAX_BATCH],
}

impl Declare for Meter {
    type Params = Params;
    const NAME: &'static str = "meter";
    const SUMMARY: &'static str = "colours packets by whether they keep to a rate (RFC 2697, RFC 2698)";
    const HELP: &'static str = "\
        Gates are `green`, `yellow` and `red`. With `srtcm` a packet is green within the committed burst, yellow within \
        the excess burst, else red; with `trtcm` it is red beyond the peak rate, yellow beyond the committed one, else \
        green. A policer sends red to drop: `m[red] -> drop`. Colour-aware (`aware`) no packet gets a better colour than \
        it came with. Tokens are counted exactly, in parts of a byte, at the ticks of the batch; bursts may be up to \
        2^62 / (8 x ticks a second) bytes. With a `key` each has a meter of its own. A key is forgotten only when its \
        buckets are full again, which changes nothing, since a new one starts full; that is counted as `forgotten`. When \
        all meters are taken, new keys share one meter with the same rates (counted as `shared`) until others are idle.";
    const EXAMPLE: &'static str =
        "{ trtcm: { cir: 10Mbps, cbs: 64KiB, pir: 20Mbps, pbs: 128KiB }, key: source, remark: af }";
    const DROPS: &'static [Reason] = DROPS;
    const READS: &'static [&'static str] = &[WORD];
    const WRITES: &'static [&'static str] = &[WORD];
    // With a session for a key it would be `PerSession`; the constant must be true for all keys.
    const STATE: StateKind = StateKind::Global;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        setup.gates(["green", "yellow", "red"])?;
        let scale = Scale::new(setup.frequency());
        let below = |kind: &'static str| move |(name, message)| SetupError::at(format!("{kind}.{name}"), message);
        let kind = match (params.srtcm, params.trtcm) {
            (Some(params), None) => Kind::Single(SingleRate::new(params, scale).map_err(below("srtcm"))?),
            (None, Some(params)) => Kind::Two(TwoRate::new(params, scale).map_err(below("trtcm"))?),
            _ => return Err(SetupError::new("give either 'srtcm' or 'trtcm'")),
        };
        if !(1..=MOST_KEYS).contains(&params.capacity) {
            let message = format!("{}: allowed are 1 to {MOST_KEYS} keys", params.capacity);
            return Err(SetupError::at("capacity", message));
        }
        let selector = Selector::new(&params.key, setup)?;
        let marking = Marking::new(params.aware, params.remark, params.word, setup)?;
        let table = Keyed::new(if selector.is_some() { params.capacity } else { 1 }, setup.secret())
            .map_err(no_memory("capacity", format!("the meters of {} keys", params.capacity)))?;
        // Full before the first packet: the clock's origin is long ago, or it is what a fresh account has.
        let one = match kind {
            Kind::Single(kind) => kind.fresh(Ticks::ZERO),
            Kind::Two(kind) => kind.fresh(Ticks::ZERO),
        };
        let names = ["green", "yellow", "red", "shared", "forgotten"];
        Ok(Self {
            kind,
            accounts: Accounts { table, one, when_full: params.when_full },
            selector,
            marking,
            layer: params.layer,
            scale,
            counts: setup.counters("metered", names.map(str::to_owned)),
            scratch: Box::new(Scratch {
                asked: [Asked::default(); MAX_BATCH],
                given: [Colour::Green; MAX_BATCH],
                colours: [0; MAX_BATCH],
            }),
        })
    }
}

impl Accounts {
    /// Finds whose the packets are and what they cost, and asks the processor for their accounts.
    #[inline(always)]
    fn ask(
        &mut self,
        batch: &mut [Packet],
        selector: Option<&Selector>,
        asked: &mut [Asked],
        cost: impl Fn(&mut Packet, Option<Seen>) -> u64,
    ) {
        let Some(selector) = selector else {
            for (packet, asked) in batch.iter_mut().zip(asked) {
                asked.cost = cost(packet, None);
            }
            return;
        };
        let entries = self.table.entries();
        selector.keys(batch, asked, cost, |key, cost| {
            entries.prefetch(key);
            Asked { key, cost }
        });
    }

    /// Colours a batch, each packet by its key's account, or all by one.
    #[inline(always)]
    fn colour(
        &mut self,
        kind: impl Algorithm,
        now: Ticks,
        keyed: bool,
        asked: &[Asked],
        given: impl Fn(usize) -> Colour,
        (colours, counts): (&mut [u8], &[Counter]),
    ) {
        let asked = &asked[..colours.len()];
        if !keyed {
            let mut account = self.one;
            kind.refill(&mut account, now);
            for (place, (colour, asked)) in colours.iter_mut().zip(asked).enumerate() {
                *colour = kind.spend(&mut account, asked.cost, given(place)) as u8;
            }
            self.one = account;
            return;
        }
        let mut place = 0;
        loop {
            let mut entries = self.table.entries();
            for (colour, Asked { key, cost }) in colours[place..].iter_mut().zip(&asked[place..]) {
                let Some(account) = entries.get(*key) else { break };
                let mut then = *account;
                kind.refill(&mut then, now);
                *colour = kind.spend(&mut then, *cost, given(place)) as u8;
                *account = then;
                place += 1;
            }
            let Some(new) = asked.get(place) else { return };
            colours[place] = self.colour_new(kind, now, *new, given(place), counts);
            place += 1;
        }
    }

    /// Colours a packet whose key has no account.
    #[cold]
    #[inline(never)]
    fn colour_new(
        &mut self,
        kind: impl Algorithm,
        now: Ticks,
        Asked { key, cost }: Asked,
        given: Colour,
        counts: &[Counter],
    ) -> u8 {
        if self.table.is_full() && self.table.forget_one(|account| kind.is_full(account, now)).is_some() {
            counts[FORGOTTEN].add(1);
        }
        let when_full = self.when_full;
        let account = match self.table.insert(key, kind.fresh(now)) {
            Some(account) => account,
            None if when_full == WhenFull::Drop => return UNMETERED,
            None => {
                counts[SHARED].add(1);
                &mut self.one
            }
        };
        kind.refill(account, now);
        kind.spend(account, cost, given) as u8
    }
}

impl Function for Meter {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        let Self { kind, accounts, selector, marking, layer, scale, counts, scratch } = self;
        let (now, len) = (context.now(), batch.len().min(MAX_BATCH));
        let (asked, given, colours) =
            (&mut scratch.asked[..len], &mut scratch.given[..len], &mut scratch.colours[..len]);
        if !marking.is_blind() {
            batch.iter_mut().zip(&mut *given).for_each(|(packet, given)| *given = marking.read(packet));
        }
        // Chosen once for the batch: each arm is a loop of its own.
        let (selector, scale) = (selector.as_ref(), *scale);
        match layer {
            Layer::Ip => {
                accounts.ask(batch, selector, asked, |packet, seen| scale.cost(Layer::Ip.length_of(packet, seen)))
            }
            Layer::Frame => {
                accounts.ask(batch, selector, asked, |packet, seen| scale.cost(Layer::Frame.length_of(packet, seen)))
            }
            Layer::Wire => {
                accounts.ask(batch, selector, asked, |packet, seen| scale.cost(Layer::Wire.length_of(packet, seen)))
            }
        }
        let keyed = selector.is_some();
        let out = (&mut *colours, &**counts);
        match (*kind, marking.is_blind()) {
            (Kind::Single(kind), true) => accounts.colour(kind, now, keyed, asked, |_| Colour::Green, out),
            (Kind::Single(kind), false) => accounts.colour(kind, now, keyed, asked, |place| given[place], out),
            (Kind::Two(kind), true) => accounts.colour(kind, now, keyed, asked, |_| Colour::Green, out),
            (Kind::Two(kind), false) => accounts.colour(kind, now, keyed, asked, |place| given[place], out),
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

/// Puts the packets on their colours' gates. Mostly all are of one.
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
