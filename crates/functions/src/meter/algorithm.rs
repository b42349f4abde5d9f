//! The two meters of the IETF: buckets in, colour out.

use std::hint::cold_path;

use forebay_units::{BitRate, Bytes, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::tables::token_bucket::{Rate, RateError, Scale};

/// What a meter says of a packet. The numbers are those of the gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Colour {
    Green = 0,
    Yellow = 1,
    Red = 2,
}

/// One key's account: what its two buckets held at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Account {
    at: Ticks,
    first: u64,
    second: u64,
}

impl Account {
    /// How long ago the account was last looked at; `None` where that was later, on another worker's clock.
    #[inline(always)]
    fn span(&self, now: Ticks) -> Option<Ticks> {
        if self.at > now {
            cold_path();
            return None;
        }
        Some(Ticks(now.0 - self.at.0))
    }
}

/// How packets are coloured.
pub(super) trait Algorithm: Copy {
    /// An account with full buckets (both RFCs: "initially, i.e. at time 0").
    fn fresh(self, now: Ticks) -> Account;

    /// Adds what has come in since the account was last looked at.
    fn refill(self, account: &mut Account, now: Ticks);

    /// The colour of a packet that costs so much and comes with the colour `given` (green, where the meter is blind), the
    /// account being refilled.
    fn spend(self, account: &mut Account, cost: u64, given: Colour) -> Colour;

    /// Whether the account's buckets are full, so that a fresh one is the same.
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
    /// The committed burst size, such as `64KiB`; it or `ebs` is more than 0.
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
    /// The committed burst size, such as `64KiB`, above 0.
    cbs: Bytes,
    /// The peak information rate, at least `cir`.
    pir: BitRate,
    /// The peak burst size, above 0.
    pbs: Bytes,
}

/// A fault of one parameter.
pub(super) type Fault = (&'static str, String);

fn at<T>(name: &'static str, made: Result<T, RateError>) -> Result<T, Fault> {
    made.map_err(|error| (name, error.to_string()))
}

/// RFC 2697.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleRate {
    committed: Rate,
    /// Tokens of a full excess bucket.
    excess: u64,
    /// Ticks in which both are full.
    fill: u64,
}

impl SingleRate {
    pub(super) fn new(params: SingleRateParams, scale: Scale) -> Result<Self, Fault> {
        // Section 2: at least one of the bursts is larger than 0.
        if params.cbs.0 == 0 && params.ebs.0 == 0 {
            return Err(("cbs", "0B, and so is ebs: at least one of them must be more".to_owned()));
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

    /// Section 3: what the first bucket has no room for goes into the second.
    #[inline(always)]
    fn refill(self, account: &mut Account, now: Ticks) {
        let Some(span) = account.span(now) else { return };
        // At most three full buckets and a tick's tokens.
        let sum = account.first + span.0.min(self.fill) * self.committed.per_tick;
        let first = sum.min(self.committed.full);
        let second = (account.second + (sum - first)).min(self.excess);
        *account = Account { at: now, first, second };
    }

    /// Section 3: the colour-aware mode, of which the blind one is the case of green packets.
    #[inline(always)]
    fn spend(self, account: &mut Account, cost: u64, given: Colour) -> Colour {
        let green = (given == Colour::Green) & (cost <= account.first);
        let yellow = !green & (given != Colour::Red) & (cost <= account.second);
        account.first -= if green { cost } else { 0 };
        account.second -= if yellow { cost } else { 0 };
        match (green, yellow) {
            (true, _) => Colour::Green,
            (_, true) => Colour::Yellow,
            _ => Colour::Red,
        }
    }
}

/// RFC 2698. The first bucket is the committed one.
#[derive(Clone, Copy, Debug)]
pub(super) struct TwoRate {
    committed: Rate,
    peak: Rate,
}

impl TwoRate {
    pub(super) fn new(params: TwoRateParams, scale: Scale) -> Result<Self, Fault> {
        // Section 2: the peak rate is at least the committed one.
        if params.pir < params.cir {
            return Err(("pir", format!("{}: allowed are cir, {}, and more", params.pir, params.cir)));
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

    /// Section 3: the colour-aware mode, of which the blind one is the case of green packets.
    #[inline(always)]
    fn spend(self, account: &mut Account, cost: u64, given: Colour) -> Colour {
        let red = (given == Colour::Red) | (cost > account.second);
        let green = !red & (given == Colour::Green) & (cost <= account.first);
        account.first -= if green { cost } else { 0 };
        account.second -= if red { 0 } else { cost };
        match (red, green) {
            (true, _) => Colour::Red,
            (_, true) => Colour::Green,
            _ => Colour::Yellow,
        }
    }
}
