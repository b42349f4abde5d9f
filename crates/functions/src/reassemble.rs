//! Puts datagrams together from their fragments, so that what follows sees ports, payloads and checksums whole.
//!
//! Fragments wait where they are, in their chunks, until the datagram is whole; then its bytes are copied once, into the chunk of
//! the fragment that completed it. Datagrams wait equally long, so that the order of their coming is that of their ends, and no
//! timer has to be searched for.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{
    Network, Packet, Word,
    wire::{ipv4::Ipv4, ipv6::Ipv6},
};
use forebay_units::{Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::parameters::{Rejected, no_memory};

mod datagrams;
mod fragment;

use datagrams::{Added, Datagrams, Part, Why};
use fragment::{DatagramKey, Fragment, MOST_WORDS, Seen};

/// Parameters of `reassemble`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// How long a datagram's fragments wait for the others, 1ms to 120s; 30s by default.
    #[serde(default = "timeout")]
    timeout: Nanos,
    /// How many datagrams may wait at a time, 1 to 65536; 1024 by default. The oldest gives way.
    #[serde(default = "datagrams")]
    datagrams: usize,
    /// How many fragments may wait in all, 1 to 65536; 2048 by default. The pool must have more. The oldest datagram gives way.
    /// One that was given up for an overlap counts as one fragment until its time is over.
    #[serde(default = "held")]
    held: usize,
    /// What becomes of the first fragment of a datagram whose others do not come in time: `drop` (the default), or `gate`: it leaves
    /// by the gate `timed_out`.
    #[serde(default)]
    timed_out: Rejected,
    /// Up to 2 metadata words whose values all fragments of a datagram have in common; none by default. Behind
    /// `gtpu_decap` name `teid` and behind `vxlan_decap` `vni`: fragments that came by different tunnels are then of
    /// different datagrams.
    #[serde(default)]
    words: Vec<String>,
}

fn timeout() -> Nanos {
    Nanos(30_000_000_000)
}
fn datagrams() -> usize {
    1_024
}
fn held() -> usize {
    2_048
}

const MALFORMED: Gate = Gate::drop(0);
const OVERLAP: Gate = Gate::drop(1);
const DUPLICATE: Gate = Gate::drop(2);
const TIMED_OUT: Gate = Gate::drop(3);
const EVICTED: Gate = Gate::drop(4);
const TOO_MANY: Gate = Gate::drop(5);
const TOO_LONG: Gate = Gate::drop(6);
const CONGESTION: Gate = Gate::drop(7);
const BAD_CHECKSUM: Gate = Gate::drop(8);
const DROPS: &[Reason] = &[
    Reason {
        name: "malformed",
        help: "The fragment's length or place is impossible, or the first one lacks part of the headers (RFC 7112).",
    },
    Reason {
        name: "overlap",
        help: "Fragments overlap or contradict each other: all of the datagram goes (RFC 5722), and what comes of it later.",
    },
    Reason { name: "duplicate", help: "The very same part of the datagram is there already." },
    Reason { name: "timed_out", help: "Not all fragments of the datagram came in time." },
    Reason { name: "evicted", help: "As many fragments or datagrams wait as may, and this datagram was the oldest." },
    Reason { name: "too_many", help: "The datagram is in more than 64 fragments." },
    Reason { name: "too_long", help: "The datagram is longer than a chunk holds." },
    Reason {
        name: "congestion",
        help: "Some fragments have met congestion, and others say that their sender would not understand (RFC 3168).",
    },
    Reason {
        name: "bad_checksum",
        help: "The fragment's IPv4 header checksum is wrong; the datagram's would be right (RFC 1122 section 3.2.1.2).",
    },
];

const REASSEMBLED: Gate = Gate::consume(0);
const CONSUMES: &[Reason] = &[Reason {
    name: "reassembled",
    help: "The fragment is in a datagram that left whole, in the chunk of its last one.",
}];

/// Which of the counters is which.
const WHOLE: usize = 0;
const ATOMIC: usize = 1;

/// The function.
pub struct Reassemble {
    datagrams: Datagrams,
    timeout: Ticks,
    timed_out: Gate,
    /// Words of which all fragments of a datagram have the same values.
    words: Vec<Word>,
    /// Numbers the calls.
    call: u64,
    /// Where a datagram is put together.
    scratch: Vec<u8>,
    counts: Arc<[Counter]>,
}

impl Declare for Reassemble {
    type Params = Params;
    const NAME: &'static str = "reassemble";
    const SUMMARY: &'static str = "puts IPv4 and IPv6 datagrams together from their fragments";
    const HELP: &'static str = "\
        RFC 791 section 3.2 and RFC 8200 section 4.5. Fragments wait until all are there; the datagram leaves in the place of the \
        one that made it whole, with the headers and metadata words of \
        the first and without a fragment header; the others are consumed. It must fit \
        a chunk. Fragments that overlap put an end to their datagram, over IPv4 as over IPv6 (RFC 5722); the very same one \
        twice is dropped once. An IPv6 fragment that is all of its datagram loses its fragment header and goes on (RFC 6946). \
        Up to 64 fragments a datagram. A fragment of IPv4 with a wrong header checksum is dropped. \
        With `timed_out: gate` the first fragment of what stayed incomplete leaves by a gate \
        of that name, for `icmp_error` with `error: reassembly_time_exceeded`. Everything else passes. On several workers \
        all fragments of a datagram come to one, by their addresses. What still waits when a run ends is counted as `wound_up`.";
    const EXAMPLE: &'static str = "{ timeout: 10s, datagrams: 256, held: 512 }";
    const DROPS: &'static [Reason] = DROPS;
    const CONSUMES: &'static [Reason] = CONSUMES;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(1_000_000..=120_000_000_000).contains(&params.timeout.0) {
            return Err(SetupError::at("timeout", format!("{}: allowed are 1ms to 2min", params.timeout)));
        }
        for (name, value) in [("datagrams", params.datagrams), ("held", params.held)] {
            if !(1..=65_536).contains(&value) {
                return Err(SetupError::at(name, format!("{value}: allowed are 1 to 65536")));
            }
        }
        if params.words.len() > MOST_WORDS {
            let message = format!("{} of them: allowed are up to {MOST_WORDS}", params.words.len());
            return Err(SetupError::at("words", message));
        }
        let words = params.words.iter().enumerate().map(|(at, name)| {
            if name.is_empty() {
                return Err(SetupError::at(format!("words[{at}]"), "it is empty: allowed are names, such as teid"));
            }
            setup.word(name)
        });
        let words = words.collect::<Result<_, _>>()?;
        if params.timed_out == Rejected::Gate {
            setup.gates(["0", "timed_out"])?;
        }
        setup.holds("held", params.held);
        Ok(Self {
            datagrams: Datagrams::new(params.datagrams, params.held)
                .map_err(no_memory("datagrams", format!("{} datagrams", params.datagrams)))?,
            timeout: setup.frequency().ticks(params.timeout),
            timed_out: params.timed_out.resolve(1, TIMED_OUT),
            words,
            call: 0,
            scratch: Vec::with_capacity(1 << 16),
            counts: setup.counters("datagrams", ["whole", "atomic"].map(str::to_owned)),
        })
    }
}

/// Whether a packet is surely no fragment.
#[inline(always)]
fn is_whole(packet: &mut Packet) -> bool {
    match packet.network().0 {
        Network::Ipv4 => packet.ipv4().is_none_or(|header: &mut Ipv4| !header.is_fragment()),
        // Only behind these may a fragment header be.
        Network::Ipv6 => packet.ipv6().is_none_or(|header: &mut Ipv6| !matches!(header.next_header, 0 | 43 | 44 | 60)),
        Network::Other => true,
    }
}

impl Reassemble {
    /// Sends a part that waits on by `gate`.
    fn let_go(&self, part: &Part, gate: Gate, context: &mut Context<'_>) {
        let Some(key) = part.key else { return };
        if part.call == self.call {
            // It is not held yet.
            context.put(part.index, gate);
        } else {
            context.release(key, gate);
        }
    }

    /// Puts an end to what the oldest datagram waits for: which one it was.
    fn evict(&mut self, context: &mut Context<'_>) -> Option<DatagramKey> {
        let (key, parts) = self.datagrams.take_oldest()?;
        parts.iter().for_each(|part| self.let_go(part, EVICTED, context));
        self.datagrams.give_back(parts);
        Some(key)
    }

    /// Puts an end to datagrams whose time is over.
    fn expire(&mut self, now: Ticks, context: &mut Context<'_>) {
        while self.datagrams.oldest().is_some_and(|end| end <= now) {
            let Some((_, parts)) = self.datagrams.take_oldest() else { return };
            for part in &parts {
                // RFC 792: only where the first is there, which the error quotes.
                let gate = if part.start == 0 { self.timed_out } else { TIMED_OUT };
                self.let_go(part, gate, context);
            }
            self.datagrams.give_back(parts);
        }
        if let Some(end) = self.datagrams.oldest() {
            context.wake_at(end);
        }
    }

    fn unusual(&mut self, index: usize, batch: &mut [Packet], context: &mut Context<'_>) -> Option<Gate> {
        let packet = batch.get_mut(index)?;
        let fragment = match fragment::see(packet) {
            Seen::Whole => return None,
            Seen::Malformed => return Some(MALFORMED),
            Seen::BadChecksum => return Some(BAD_CHECKSUM),
            Seen::Atomic(fragment) => {
                self.counts[ATOMIC].add(1);
                return if fragment::strip(packet, &fragment) { None } else { Some(MALFORMED) };
            }
            Seen::Part(fragment) => Fragment { key: fragment.key.within(packet, &self.words), ..fragment },
        };
        let now = context.now();
        if !self.datagrams.knows(&fragment.key) && self.datagrams.is_full() {
            self.evict(context);
        }
        let end = Ticks(now.0.saturating_add(self.timeout.0));
        match self.datagrams.add(&fragment, end) {
            Added::Waits => {
                // Only now: what is not taken puts nobody out. Whatever datagram goes makes room for one at least.
                if self.datagrams.is_held_full() && self.evict(context) == Some(fragment.key) {
                    return Some(EVICTED);
                }
                let key = Some(context.hold(index));
                let Fragment { start, end, payload_at, .. } = fragment;
                self.datagrams.push(&fragment.key, Part { start, end, payload_at, key, call: self.call, index });
                None
            }
            Added::Refused(why) => {
                let gate = match why {
                    Why::Duplicate => return Some(DUPLICATE),
                    Why::Overlap => OVERLAP,
                    Why::TooMany => TOO_MANY,
                    Why::Congestion => CONGESTION,
                };
                self.spoil(&fragment, gate, context);
                Some(gate)
            }
            Added::Whole { congestion } => Some(self.complete(index, &fragment, congestion, batch, context)),
        }
    }

    /// Drops what there is of a datagram; what comes of it later will be dropped too, until its time is over.
    fn spoil(&mut self, fragment: &Fragment, gate: Gate, context: &mut Context<'_>) {
        let parts = self.datagrams.spoil(&fragment.key);
        parts.iter().for_each(|part| self.let_go(part, gate, context));
        self.datagrams.give_back(parts);
    }

    /// Puts a datagram together in the chunk of the fragment that was lacking.
    fn complete(
        &mut self,
        index: usize,
        last: &Fragment,
        congestion: bool,
        batch: &mut [Packet],
        context: &mut Context<'_>,
    ) -> Gate {
        let mut parts = self.datagrams.take(&last.key);
        let (first, length) = {
            let Fragment { start, end, payload_at, .. } = *last;
            let own = Part { start, end, payload_at, key: None, call: self.call, index };
            let at = parts.partition_point(|part| part.start < start);
            parts.insert(at, own);
            (parts[0], parts.last().map_or(0, |part| usize::from(part.end)))
        };
        self.scratch.clear();
        for part in &parts {
            // The first's headers go before its payload.
            let from = if part.start == 0 { 0 } else { usize::from(part.payload_at) };
            let to = usize::from(part.payload_at) + usize::from(part.end - part.start);
            let bytes = if part.call == self.call {
                batch.get(part.index).and_then(|packet| packet.data().get(from..to))
            } else {
                part.key.and_then(|key| context.held(key)).and_then(|packet| packet.data().get(from..to))
            };
            self.scratch.extend_from_slice(bytes.unwrap_or_default());
        }
        let headers = usize::from(first.payload_at);
        // With the headers of the first fragment go the metadata words that it came with.
        let words = if first.call == self.call {
            batch.get(first.index).map(Packet::words)
        } else {
            first.key.and_then(|key| context.held(key)).map(|packet| packet.words())
        };
        let written = self.scratch.len() == headers + length
            && batch.get_mut(index).is_some_and(|packet| packet.write(&self.scratch));
        let made = written && batch.get_mut(index).is_some_and(|packet| fragment::finish(packet, headers, congestion));
        let gate = if made { REASSEMBLED } else { TOO_LONG };
        parts.iter().for_each(|part| self.let_go(part, gate, context));
        self.datagrams.give_back(parts);
        if !made {
            return TOO_LONG;
        }
        if let (Some(packet), Some(words)) = (batch.get_mut(index), words) {
            packet.set_words(words);
        }
        self.counts[WHOLE].add(1);
        Gate::FIRST
    }
}

impl Function for Reassemble {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        self.call += 1;
        for index in 0..batch.len() {
            if is_whole(&mut batch[index]) {
                continue;
            }
            if let Some(gate) = self.unusual(index, batch, context)
                && gate != Gate::FIRST
            {
                context.put(index, gate);
            }
        }
        if self.datagrams.oldest().is_some() {
            self.expire(context.now(), context);
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        self.call += 1;
        self.expire(context.now(), context);
    }
}

register!(Reassemble);

#[cfg(test)]
mod tests;
