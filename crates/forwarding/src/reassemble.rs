//! `reassemble`: puts datagrams together from their fragments, so that later functions see complete ports, payloads and
//! checksums.
//!
//! Fragments wait in their own chunks until the datagram is complete. Then its bytes are copied once, into the chunk of
//! the fragment that completed it. All datagrams have the same time-out, so they expire in the order of their arrival,
//! and no timer structure is needed.

use std::sync::Arc;

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_measure::Counter;
use forebay_packet::{
    Network, Packet, Word,
    wire::{ipv4::Ipv4, ipv6::Ipv6},
};
use forebay_tables::parameters::{RejectAction, no_memory};
use forebay_units::{Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

mod datagrams;
mod fragment;

use datagrams::{Added, Datagrams, Refusal, WaitingFragment};
use fragment::{DatagramKey, Fragment, MOST_WORDS, PacketType};

/// Parameters of `reassemble`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The longest time between the arrival of the first and of the last fragment of a datagram: 1ms to 120s, 30s by
    /// default.
    #[serde(default = "timeout")]
    timeout: Nanos,
    /// Maximum number of incomplete datagrams: 1 to 65536, 1024 by default. When it is reached, the oldest one is
    /// dropped.
    #[serde(default = "datagrams")]
    datagrams: usize,
    /// Maximum number of waiting fragments in total: 1 to 65536, 2048 by default. When it is reached, the oldest
    /// datagram is dropped. The pool must have more chunks than this number. A datagram that was dropped because of an
    /// overlap counts as one fragment until its time-out.
    #[serde(default = "held")]
    held: usize,
    /// Action for the first fragment of a datagram that is not complete in time: `drop` (the default), or `gate`
    /// sends it out through a gate named `timed_out`.
    #[serde(default)]
    timed_out: RejectAction,
    /// Up to 2 metadata words that must have the same values in all fragments of a datagram; none by default. Name
    /// `teid` after `gtpu_decap` and `vni` after `vxlan_decap`, so that fragments from different tunnels belong to
    /// different datagrams. A word that no function uses is an error.
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
/// The drop reasons. The number of a drop gate is the index of its reason in this list. A test requires the same names
/// and texts in `docs/drops.md`.
const DROPS: &[Reason] = &[
    Reason {
        name: "malformed",
        help: "The fragment's length or offset is impossible, or the first fragment lacks part of the headers \
               (RFC 7112).",
    },
    Reason {
        name: "overlap",
        help: "Fragments overlap or contradict each other: the whole datagram is dropped (RFC 5722), including later \
               fragments.",
    },
    Reason { name: "duplicate", help: "An identical fragment of the datagram is already waiting." },
    Reason { name: "timed_out", help: "Not all fragments of the datagram came in time." },
    Reason {
        name: "evicted",
        help: "The limit of waiting fragments or datagrams was reached, and this datagram was the oldest.",
    },
    Reason { name: "too_many", help: "The datagram has more than 64 fragments." },
    Reason { name: "too_long", help: "The datagram does not fit into a chunk." },
    Reason {
        name: "congestion",
        help: "Some fragments are marked for congestion, and others are not ECN-capable (RFC 3168).",
    },
    Reason {
        name: "bad_checksum",
        help: "The fragment's IPv4 header checksum is wrong, which reassembly would hide (RFC 1122 section 3.2.1.2).",
    },
];

const REASSEMBLED: Gate = Gate::consume(0);
/// The reasons of consumption. The number of a consuming gate is the index of its reason in this list.
const CONSUMES: &[Reason] = &[Reason {
    name: "reassembled",
    help: "The fragment became part of a datagram, which left in the chunk of the fragment that completed it.",
}];

/// The index of the counter `whole`: datagrams that were put together.
const WHOLE: usize = 0;
/// The index of the counter `atomic`: IPv6 datagrams in a single fragment.
const ATOMIC: usize = 1;

/// The network function `reassemble`.
pub struct Reassemble {
    datagrams: Datagrams,
    /// The longest time between the first and the last fragment of a datagram.
    timeout: Ticks,
    /// The gate of the first fragment of a datagram that has timed out.
    timed_out: Gate,
    /// Metadata words that must have the same values in all fragments of a datagram.
    words: Vec<Word>,
    /// The number of calls of `process` and `wake` so far, this one included. A fragment whose `call` is this number is
    /// still in the batch, not held.
    call: u64,
    /// Buffer in which a datagram is put together.
    scratch: Vec<u8>,
    counts: Arc<[Counter]>,
}

impl Declare for Reassemble {
    type Params = Params;
    const NAME: &'static str = "reassemble";
    const SUMMARY: &'static str = "puts IPv4 and IPv6 datagrams together from their fragments";
    const HELP: &'static str = "\
        RFC 791 section 3.2 and RFC 8200 section 4.5. Fragments wait until all fragments of the datagram have come. \
        The datagram leaves in the position of the fragment that completed it, with the headers and metadata words of \
        the first fragment and without a fragment header. The other fragments are consumed. The datagram must fit into \
        a chunk of the pool. If fragments overlap, the datagram is dropped, in IPv4 as in IPv6 (RFC 5722). Exception: \
        of two identical fragments, only the second is dropped. An IPv6 fragment that is a whole datagram loses its \
        fragment header and passes (RFC 6946). A datagram can have up to 64 fragments. An IPv4 fragment with a wrong \
        header checksum is dropped. With `timed_out: gate` the first fragment of an incomplete datagram leaves through \
        a gate of that name, for `icmp_error` with `error: reassembly_time_exceeded`. All other packets pass. With \
        several workers, the addresses of a fragment select its worker, so all fragments of a datagram come to the \
        same worker. Fragments that still wait when a run ends are counted as `held_at_close`.";
    const EXAMPLE: &'static str = "{ timeout: 10s, datagrams: 256, held: 512 }";
    const DROPS: &'static [Reason] = DROPS;
    const CONSUMES: &'static [Reason] = CONSUMES;
    const STATE: StateKind = StateKind::PerSession;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if !(1_000_000..=120_000_000_000).contains(&params.timeout.0) {
            return Err(SetupError::not_allowed("timeout", params.timeout, "1ms to 2min"));
        }
        for (name, value) in [("datagrams", params.datagrams), ("held", params.held)] {
            if !(1..=65_536).contains(&value) {
                return Err(SetupError::not_allowed(name, value, "1 to 65536"));
            }
        }
        if params.words.len() > MOST_WORDS {
            return Err(SetupError::not_allowed(
                "words",
                format!("{} words", params.words.len()),
                format!("up to {MOST_WORDS}"),
            ));
        }
        let words = params.words.iter().enumerate().map(|(at, name)| {
            let path = format!("words[{at}]");
            if name.is_empty() {
                return Err(SetupError::with_hint(path, "the name is empty", "give a name such as teid"));
            }
            setup.named_word(&path, name)
        });
        let words = words.collect::<Result<_, _>>()?;
        if params.timed_out == RejectAction::Gate {
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

/// Returns true if a packet is certainly not a fragment. If it returns false, [`fragment::parse`] decides.
#[inline(always)]
fn is_whole(packet: &mut Packet) -> bool {
    match packet.network().0 {
        Network::Ipv4 => packet.ipv4().is_none_or(|header: &mut Ipv4| !header.is_fragment()),
        // 44 is the fragment header. It can also follow hop-by-hop options (0), a routing header (43) or destination
        // options (60).
        Network::Ipv6 => packet.ipv6().is_none_or(|header: &mut Ipv6| !matches!(header.next_header, 0 | 43 | 44 | 60)),
        Network::Other => true,
    }
}

impl Reassemble {
    /// Sends a waiting fragment out through `gate`. The caller must have removed the fragment from `datagrams`. Does
    /// nothing for a fragment without a key: it completes the datagram, and its gate is the result of `complete`.
    fn release_to(&self, part: &WaitingFragment, gate: Gate, context: &mut Context<'_>) {
        let Some(key) = part.key else { return };
        if part.call == self.call {
            // The fragment came in this call and is not held yet.
            context.put(part.index, gate);
        } else {
            context.release(key, gate);
        }
    }

    /// Drops the oldest datagram and returns its key.
    fn evict(&mut self, context: &mut Context<'_>) -> Option<DatagramKey> {
        let (key, parts) = self.datagrams.take_oldest()?;
        parts.iter().for_each(|part| self.release_to(part, EVICTED, context));
        self.datagrams.give_back(parts);
        Some(key)
    }

    /// Drops datagrams that have timed out.
    fn expire(&mut self, now: Ticks, context: &mut Context<'_>) {
        while self.datagrams.oldest().is_some_and(|end| end <= now) {
            let Some((_, parts)) = self.datagrams.take_oldest() else { return };
            for part in &parts {
                // RFC 792: an error is sent only if the first fragment is present, because the error quotes it.
                let gate = if part.start == 0 { self.timed_out } else { TIMED_OUT };
                self.release_to(part, gate, context);
            }
            self.datagrams.give_back(parts);
        }
        if let Some(end) = self.datagrams.oldest() {
            context.wake_at(end);
        }
    }

    /// Handles one packet of the batch and returns its gate. Returns `None` for a packet that is not a fragment (the
    /// packet passes), and for a fragment that is held from now on.
    fn add_fragment(&mut self, index: usize, batch: &mut [Packet], context: &mut Context<'_>) -> Option<Gate> {
        let packet = batch.get_mut(index)?;
        let fragment = match fragment::parse(packet) {
            PacketType::Whole => return None,
            PacketType::Malformed => return Some(MALFORMED),
            PacketType::BadChecksum => return Some(BAD_CHECKSUM),
            PacketType::Atomic(fragment) => {
                self.counts[ATOMIC].add(1);
                return if fragment::strip(packet, &fragment) { None } else { Some(MALFORMED) };
            }
            PacketType::Fragment(fragment) => Fragment { key: fragment.key.within(packet, &self.words), ..fragment },
        };
        let now = context.now();
        if !self.datagrams.knows(&fragment.key) && self.datagrams.is_full() {
            self.evict(context);
        }
        let end = Ticks(now.0.saturating_add(self.timeout.0));
        match self.datagrams.add(&fragment, end) {
            Added::Waits => {
                // Only a fragment that will be held may evict a datagram. The eviction of any datagram makes room for
                // at least one fragment.
                if self.datagrams.is_held_full() && self.evict(context) == Some(fragment.key) {
                    return Some(EVICTED);
                }
                let key = Some(context.hold(index));
                let Fragment { start, end, payload_at, .. } = fragment;
                self.datagrams
                    .push(&fragment.key, WaitingFragment { start, end, payload_at, key, call: self.call, index });
                None
            }
            Added::Refused(refusal) => {
                let gate = match refusal {
                    Refusal::Duplicate => return Some(DUPLICATE),
                    Refusal::Overlap => OVERLAP,
                    Refusal::TooMany => TOO_MANY,
                    Refusal::Congestion => CONGESTION,
                };
                self.spoil(&fragment, gate, context);
                Some(gate)
            }
            Added::Whole { congestion } => Some(self.complete(index, &fragment, congestion, batch, context)),
        }
    }

    /// Sends the waiting fragments of `fragment`'s datagram to `gate`, but not `fragment` itself: the caller does this.
    /// Later fragments of the datagram are refused as `overlap` until its time-out.
    fn spoil(&mut self, fragment: &Fragment, gate: Gate, context: &mut Context<'_>) {
        let parts = self.datagrams.spoil(&fragment.key);
        parts.iter().for_each(|part| self.release_to(part, gate, context));
        self.datagrams.give_back(parts);
    }

    /// Puts a datagram together in the chunk of the fragment that completed it, `last`, at `index` in the batch.
    /// Returns the gate of that chunk. On failure, all fragments are dropped as `too_long`.
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
            let own = WaitingFragment { start, end, payload_at, key: None, call: self.call, index };
            let at = parts.partition_point(|part| part.start < start);
            parts.insert(at, own);
            (parts[0], parts.last().map_or(0, |part| usize::from(part.end)))
        };
        self.scratch.clear();
        for part in &parts {
            // The first fragment contributes its headers, too.
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
        // The datagram also gets the metadata words of the first fragment.
        let words = if first.call == self.call {
            batch.get(first.index).map(Packet::words)
        } else {
            first.key.and_then(|key| context.held(key)).map(|packet| packet.words())
        };
        let written = self.scratch.len() == headers + length
            && batch.get_mut(index).is_some_and(|packet| packet.write(&self.scratch));
        let made = written && batch.get_mut(index).is_some_and(|packet| fragment::finish(packet, headers, congestion));
        let gate = if made { REASSEMBLED } else { TOO_LONG };
        parts.iter().for_each(|part| self.release_to(part, gate, context));
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
            if let Some(gate) = self.add_fragment(index, batch, context)
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
