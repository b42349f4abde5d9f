//! Time-outs of connections.

use forebay_graph::SetupError;
use forebay_tables::sessions::{Found, Session, Sessions, Slot};
use forebay_units::{Frequency, Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{PHASES, Phase};

/// Maximum number of sessions that one call with packets removes, in addition to one for each packet. The limit keeps
/// packets from waiting when many sessions end at once.
pub const ENDS: u32 = 32;
/// Maximum number of sessions that one call without packets removes.
pub const ENDS_WOKEN: u32 = 1 << 10;

/// Minimum number of slots per second: time-outs have a resolution of an eighth of a second or better.
const SLOTS: f64 = 8.0;

/// Converts instants into slots. The number of ticks in a slot is a power of two, so that no division is needed.
#[derive(Clone, Copy, Debug)]
pub struct SlotClock {
    /// The binary logarithm of the number of ticks in a slot.
    shift: u32,
    /// The number of slots per second.
    rate: f64,
}

impl SlotClock {
    /// Creates the clock for this frequency.
    #[must_use]
    pub fn new(frequency: Frequency) -> Self {
        let shift = (frequency.hertz() / SLOTS).max(1.0).log2().floor() as u32;
        Self { shift, rate: frequency.hertz() / 2f64.powi(shift.cast_signed()) }
    }

    /// Returns the slot of an instant.
    #[inline(always)]
    #[must_use]
    pub fn slot(self, now: Ticks) -> Slot {
        (now.0 >> self.shift) as Slot
    }

    /// Converts slots into seconds, rounded to whole seconds.
    #[must_use]
    pub fn seconds(self, slots: Slot) -> u64 {
        (f64::from(slots) / self.rate).round() as u64
    }

    /// Converts a span into slots, rounded up. Adds one slot, because the first slot may have begun before the span.
    #[must_use]
    pub fn slots(self, span: Nanos) -> Slot {
        (span.0 as f64 / 1e9 * self.rate).ceil() as Slot + 1
    }
}

/// The longest time-out that is allowed.
const MOST: Nanos = Nanos(7 * 24 * 3_600 * 1_000_000_000);

/// Time-outs: how long a connection is kept after its last packet, by its state. The defaults are those that the RFCs
/// require.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct TimeoutParams {
    /// TCP before its handshake is complete, 1s to 7d: 4min by default (RFC 5382 section 5).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "4min"))]
    tcp_opening: Option<Nanos>,
    /// Established TCP, 1s to 7d: 124min by default, which is two hours and four minutes (RFC 5382 section 5).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "124min"))]
    tcp_established: Option<Nanos>,
    /// TCP after a FIN from both sides, or after a RST that no other packet follows, 1s to 7d: 4min by default (RFC
    /// 7857 section 2).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "4min"))]
    tcp_closing: Option<Nanos>,
    /// UDP with packets from one side only, 1s to 7d: 2min by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "2min"))]
    udp_unanswered: Option<Nanos>,
    /// UDP with packets from both sides, 1s to 7d: 5min by default (RFC 4787 section 4.3).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5min"))]
    udp: Option<Nanos>,
    /// ICMP queries, 1s to 7d: 1min by default (RFC 5508 section 3.2).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "1min"))]
    icmp: Option<Nanos>,
    /// Other protocols, 1s to 7d: 5min by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "5min"))]
    other: Option<Nanos>,
}

/// Time-outs in slots, by phase.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts([Slot; PHASES]);

impl Timeouts {
    /// Converts parameters into slots.
    ///
    /// # Errors
    /// A time-out is out of range. The error names its parameter under `path`.
    pub fn new(params: &TimeoutParams, clock: SlotClock, path: &str) -> Result<Self, SetupError> {
        let one = |name: &str, value: Option<Nanos>, default: u64| {
            let value = value.unwrap_or(Nanos(default * 1_000_000_000));
            if !(1_000_000_000..=MOST.0).contains(&value.0) {
                return Err(SetupError::not_allowed(format!("{path}.{name}"), value, format!("1s to {MOST}")));
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

    /// Returns the time-out of a phase, in slots.
    #[must_use]
    pub fn span(&self, phase: Phase) -> Slot {
        self.0[phase as usize]
    }

    /// Returns the longest time-out, in slots.
    #[must_use]
    pub fn longest(&self) -> Slot {
        self.0.into_iter().max().unwrap_or_default()
    }

    /// Returns the slot in which a connection in this phase ends if no packet comes after slot `now`.
    #[inline(always)]
    #[must_use]
    pub fn end(&self, phase: Phase, now: Slot) -> Slot {
        now.wrapping_add(self.0[phase as usize % PHASES])
    }

    /// Sets the end of a session that is in this phase after a packet.
    pub fn renew<S: Session>(&self, table: &mut Sessions<S>, found: Found, phase: Phase, now: Slot) {
        let ends = self.end(phase, now);
        // The new phase may have a shorter time-out than the previous one, depending on the configuration.
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
    fn the_defaults_are_those_of_the_rfcs() {
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
    fn a_time_out_out_of_range_is_named() {
        for (params, expected) in [
            (json!({ "udp": "999ms" }), "timeouts.udp: 999ms: allowed are 1s to"),
            (json!({ "tcp_opening": "700000s" }), "timeouts.tcp_opening:"),
        ] {
            let error = timeouts(params).expect_err("out of range").to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
