//! How long connections are remembered without a packet.

use forebay_graph::SetupError;
use forebay_units::{Frequency, Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{PHASES, Phase};
use crate::tables::sessions::{Found, Session, Sessions, Slot};

/// Sessions that may end in one call with packets, beside one for each of these: so that many that end at once keep no packet
/// waiting.
pub const ENDS: u32 = 32;
/// Those that may end in one call without packets.
pub const ENDS_WOKEN: u32 = 1 << 10;

/// The least slots a second: time-outs are kept to an eighth of one, or better.
const SLOTS: f64 = 8.0;

/// Which slot an instant is in. A slot is a power of two of ticks, so that none is divided by.
#[derive(Clone, Copy, Debug)]
pub struct SlotClock {
    shift: u32,
    /// Slots a second.
    rate: f64,
}

impl SlotClock {
    /// Of a clock of this frequency.
    #[must_use]
    pub fn new(frequency: Frequency) -> Self {
        let shift = (frequency.hertz() / SLOTS).max(1.0).log2().floor() as u32;
        Self { shift, rate: frequency.hertz() / 2f64.powi(shift.cast_signed()) }
    }

    /// The slot of an instant.
    #[inline(always)]
    #[must_use]
    pub fn slot(self, now: Ticks) -> Slot {
        (now.0 >> self.shift) as Slot
    }

    /// A span of slots in whole seconds, rounded.
    #[must_use]
    pub fn seconds(self, slots: Slot) -> u64 {
        (f64::from(slots) / self.rate).round() as u64
    }

    /// A span in slots, rounded up, and one more: the slot that it began in was partly over.
    #[must_use]
    pub fn slots(self, span: Nanos) -> Slot {
        (span.0 as f64 / 1e9 * self.rate).ceil() as Slot + 1
    }
}

/// The longest time-out.
const MOST: Nanos = Nanos(7 * 24 * 3_600 * 1_000_000_000);

/// How long a connection is remembered after its last packet, by what is known of it. The defaults are those that the RFCs
/// ask for.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutParams {
    /// TCP before its handshake is complete, 1s to 7d: 4min (RFC 5382 section 5).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "4min"))]
    tcp_opening: Option<Nanos>,
    /// TCP, 1s to 7d: 124min, which is two hours and four minutes (RFC 5382 section 5).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "124min"))]
    tcp_established: Option<Nanos>,
    /// TCP after FIN from both sides, or after a RST that no other packet follows, 1s to 7d: 4min (RFC 7857 section 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "4min"))]
    tcp_closing: Option<Nanos>,
    /// UDP of which only one side was heard, 1s to 7d: 2min.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "2min"))]
    udp_unanswered: Option<Nanos>,
    /// UDP of which both sides were heard, 1s to 7d: 5min (RFC 4787 section 4.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5min"))]
    udp: Option<Nanos>,
    /// ICMP queries, 1s to 7d: 1min (RFC 5508 section 3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1min"))]
    icmp: Option<Nanos>,
    /// Other protocols, 1s to 7d: 5min.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5min"))]
    other: Option<Nanos>,
}

/// Time-outs in slots, by phase.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts([Slot; PHASES]);

impl Timeouts {
    /// Those of parameters.
    ///
    /// # Errors
    /// One out of range, as a fault of its parameter under `path`.
    pub fn new(params: &TimeoutParams, clock: SlotClock, path: &str) -> Result<Self, SetupError> {
        let one = |name: &str, value: Option<Nanos>, default: u64| {
            let value = value.unwrap_or(Nanos(default * 1_000_000_000));
            if !(1_000_000_000..=MOST.0).contains(&value.0) {
                return Err(SetupError::at(format!("{path}.{name}"), format!("{value}: allowed are 1s to {MOST}")));
            }
            Ok(clock.slots(value))
        };
        let of_phases: [Slot; Phase::ALL.len()] = [
            one("tcp_opening", params.tcp_opening, 240)?,
            one("tcp_established", params.tcp_established, 7_440)?,
            one("tcp_closing", params.tcp_closing, 240)?,
            one("udp_unanswered", params.udp_unanswered, 120)?,
            one("udp", params.udp, 300)?,
            one("icmp", params.icmp, 60)?,
            one("other", params.other, 300)?,
        ];
        Ok(Self(std::array::from_fn(|number| of_phases.get(number).copied().unwrap_or_default())))
    }

    /// How long a connection in this phase is remembered.
    #[must_use]
    pub fn span(&self, phase: Phase) -> Slot {
        self.0[phase as usize]
    }

    /// How long any connection is remembered at most.
    #[must_use]
    pub fn longest(&self) -> Slot {
        self.0.into_iter().max().unwrap_or_default()
    }

    /// When a connection in this phase ends that had a packet at `now`.
    #[inline(always)]
    #[must_use]
    pub fn end(&self, phase: Phase, now: Slot) -> Slot {
        now.wrapping_add(self.0[phase as usize % PHASES])
    }

    /// A packet has come of a session that is in this phase now: when it ends from now on.
    pub fn renew<S: Session>(&self, table: &mut Sessions<S>, found: Found, phase: Phase, now: Slot) {
        let ends = self.end(phase, now);
        // Which phase is remembered longer than which, the configuration says.
        if ends < table.ends(found) { table.end_at(found, ends) } else { table.keep_until(found, ends) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn timeouts(params: serde_json::Value) -> Result<Timeouts, SetupError> {
        let clock = SlotClock::new(Frequency::new(f64::from(1 << 30)));
        Timeouts::new(&serde_json::from_value(params).expect("parameters"), clock, "timeouts")
    }

    #[test]
    fn they_are_those_of_the_rfcs_unless_they_are_given() {
        let defaults = timeouts(json!({})).expect("defaults");
        assert_eq!(defaults.end(Phase::TcpEstablished, 0), 7_440 * 8 + 1);
        assert_eq!(defaults.end(Phase::UdpEstablished, 100), 100 + 300 * 8 + 1);
        let given = timeouts(json!({ "icmp": "1500ms" })).expect("allowed");
        assert_eq!(given.end(Phase::Icmp, 0), 13);
    }

    #[test]
    fn a_slot_is_an_eighth_of_a_second_or_less() {
        for hertz in [1.0, 1e3, 1e9, 2.596e9, 5e9] {
            let clock = SlotClock::new(Frequency::new(hertz));
            let second = clock.slot(Ticks(hertz as u64));
            assert!(hertz < 8.0 || (7..=16).contains(&second), "{hertz}: {second} slots");
            assert!(clock.slots(Nanos(1_000_000_000)) > second);
        }
    }

    #[test]
    fn what_is_out_of_range_is_named() {
        for (params, said) in [
            (json!({ "udp": "999ms" }), "timeouts.udp: 999ms: allowed are 1s to"),
            (json!({ "tcp_opening": "700000s" }), "timeouts.tcp_opening:"),
        ] {
            let error = timeouts(params).expect_err("out of range").to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
