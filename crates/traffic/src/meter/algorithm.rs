//! The two meters of the IETF: their buckets, and the colours of packets.

use std::hint::cold_path;

use forebay_tables::token_bucket::{Rate, RateError, Scale};
use forebay_units::{BitRate, Bytes, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// Colour of a packet. The numbers are those of the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Colour {
    Green = 0,
    Yellow = 1,
    Red = 2,
}

/// The two buckets of a key at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    at: Ticks,
    first: u64,
    second: u64,
}

impl Account {
    /// Returns the time since the account was last refilled. `None` if that was later than `now`, on another worker's
    /// clock.
    #[inline(always)]
    fn span(&self, now: Ticks) -> Option<Ticks> {
        if self.at > now {
            cold_path();
            return None;
        }
        Some(Ticks(now.0 - self.at.0))
    }
}

/// Algorithm of a meter.
pub(super) trait Algorithm: Copy {
    /// Returns an account with full buckets (both RFCs: "initially, i.e. at time 0").
    fn fresh(self, now: Ticks) -> Account;

    /// Adds the tokens since the last refill.
    fn refill(self, account: &mut Account, now: Ticks);

    /// Returns the colour of a packet with this cost that arrives with the colour `incoming` (green in colour-blind
    /// mode). The account has just been refilled.
    fn spend(self, account: &mut Account, cost: u64, incoming: Colour) -> Colour;

    /// Whether the buckets are full, so that the account equals a fresh one.
    fn is_full(self, account: &Account, now: Ticks) -> bool {
        let mut then = *account;
        self.refill(&mut then, now);
        let fresh = self.fresh(now);
        (then.first, then.second) == (fresh.first, fresh.second)
    }
}

/// Parameters of a single rate three colour marker.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SingleRateParams {
    /// The committed information rate, such as `10Mbps`: 1kbps to 1Tbps.
    cir: BitRate,
    /// The committed burst size, such as `64KiB`. It or `ebs` must be greater than 0.
    cbs: Bytes,
    /// The excess burst size.
    ebs: Bytes,
}

/// Parameters of a two rate three colour marker.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TwoRateParams {
    /// The committed information rate, such as `10Mbps`: 1kbps to 1Tbps.
    cir: BitRate,
    /// The committed burst size, such as `64KiB`, greater than 0.
    cbs: Bytes,
    /// The peak information rate, at least `cir`.
    pir: BitRate,
    /// The peak burst size, greater than 0.
    pbs: Bytes,
}

/// A fault of a parameter: its name and the message.
pub(super) type Fault = (&'static str, String);

fn at<T>(name: &'static str, made: Result<T, RateError>) -> Result<T, Fault> {
    made.map_err(|error| (name, error.to_string()))
}

/// The single rate three colour marker of RFC 2697.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleRate {
    committed: Rate,
    /// Tokens of a full excess bucket.
    excess: u64,
    /// Number of ticks in which both buckets are full.
    fill: u64,
}

impl SingleRate {
    pub(super) fn new(params: SingleRateParams, scale: Scale) -> Result<Self, Fault> {
        // Section 2: at least one of the bursts is greater than 0.
        if params.cbs.0 == 0 && params.ebs.0 == 0 {
            return Err(("cbs", "0B, and ebs is 0B: at least one of them must be greater than 0B".to_owned()));
        }
        let burst = |name, bytes: Bytes| if bytes.0 == 0 { Ok(0) } else { at(name, scale.burst(bytes)) };
        let committed = at("cir", Rate::new(params.cir, burst("cbs", params.cbs)?))?;
        let excess = burst("ebs", params.ebs)?;
        Ok(Self { committed, excess, fill: (committed.full + excess).div_ceil(committed.per_tick) })
    }
}

impl Algorithm for SingleRate {
    fn fresh(self, now: Ticks) -> Account {
        Account { at: now, first: self.committed.full, second: self.excess }
    }

    /// Section 3: tokens that exceed the first bucket go into the second.
    #[inline(always)]
    fn refill(self, account: &mut Account, now: Ticks) {
        let Some(span) = account.span(now) else { return };
        // The sum is at most three full buckets and the tokens of one tick.
        let sum = account.first + span.0.min(self.fill) * self.committed.per_tick;
        let first = sum.min(self.committed.full);
        let second = (account.second + (sum - first)).min(self.excess);
        *account = Account { at: now, first, second };
    }

    /// Section 3, colour-aware mode. In colour-blind mode all packets arrive green.
    #[inline(always)]
    fn spend(self, account: &mut Account, cost: u64, incoming: Colour) -> Colour {
        let green = (incoming == Colour::Green) & (cost <= account.first);
        let yellow = !green & (incoming != Colour::Red) & (cost <= account.second);
        account.first -= if green { cost } else { 0 };
        account.second -= if yellow { cost } else { 0 };
        match (green, yellow) {
            (true, _) => Colour::Green,
            (_, true) => Colour::Yellow,
            _ => Colour::Red,
        }
    }
}

/// The two rate three colour marker of RFC 2698. The first bucket is the committed one.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwoRate {
    committed: Rate,
    peak: Rate,
}

impl TwoRate {
    pub(super) fn new(params: TwoRateParams, scale: Scale) -> Result<Self, Fault> {
        // Section 2: the peak rate is at least the committed rate.
        if params.pir < params.cir {
            return Err(("pir", format!("{}: allowed are rates from cir, {}, on", params.pir, params.cir)));
        }
        let committed = at("cir", Rate::new(params.cir, at("cbs", scale.burst(params.cbs))?))?;
        let peak = at("pir", Rate::new(params.pir, at("pbs", scale.burst(params.pbs))?))?;
        Ok(Self { committed, peak })
    }
}

impl Algorithm for TwoRate {
    fn fresh(self, now: Ticks) -> Account {
        Account { at: now, first: self.committed.full, second: self.peak.full }
    }

    #[inline(always)]
    fn refill(self, account: &mut Account, now: Ticks) {
        let Some(span) = account.span(now) else { return };
        let (first, second) = (self.committed.after(account.first, span), self.peak.after(account.second, span));
        *account = Account { at: now, first, second };
    }

    /// Section 3, colour-aware mode. In colour-blind mode all packets arrive green.
    #[inline(always)]
    fn spend(self, account: &mut Account, cost: u64, incoming: Colour) -> Colour {
        let red = (incoming == Colour::Red) | (cost > account.second);
        let green = !red & (incoming == Colour::Green) & (cost <= account.first);
        account.first -= if green { cost } else { 0 };
        account.second -= if red { 0 } else { cost };
        match (red, green) {
            (true, _) => Colour::Red,
            (_, true) => Colour::Green,
            _ => Colour::Yellow,
        }
    }
}
