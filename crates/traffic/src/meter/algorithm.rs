//! The two meters of the IETF: their buckets, and the colours of packets.

use std::hint::cold_path;

use forebay_tables::token_bucket::{Rate, RateError, Scale};
use forebay_units::{BitRate, Bytes, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// The colour of a packet. The numbers are the numbers of the gates. A greater colour is worse.
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
    /// The time of the last refill.
    at: Ticks,
    /// The tokens in the committed bucket.
    first: u64,
    /// The tokens in the excess bucket (RFC 2697) or in the peak bucket (RFC 2698).
    second: u64,
}

impl Account {
    /// Returns the time since the last refill. `None` if the last refill was after `now`, because another worker with
    /// another clock made it.
    #[inline(always)]
    fn span(&self, now: Ticks) -> Option<Ticks> {
        if self.at > now {
            cold_path();
            return None;
        }
        Some(Ticks(now.0 - self.at.0))
    }
}

/// The algorithm of a meter.
pub(super) trait Algorithm: Copy {
    /// Returns an account with full buckets (both RFCs: "initially, i.e. at time 0").
    fn fresh(self, now: Ticks) -> Account;

    /// Adds the tokens since the last refill. Must be called before [`spend`](Self::spend).
    fn refill(self, account: &mut Account, now: Ticks);

    /// Returns the colour of a packet with this cost that arrives with the colour `incoming` (green in colour-blind
    /// mode). Takes the tokens of the packet. The account must have been refilled at the time of the packet.
    fn spend(self, account: &mut Account, cost: u64, incoming: Colour) -> Colour;

    /// Returns true if the buckets are full at `now`: then the account equals a fresh one, and may be removed.
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
    /// The committed burst size, such as `64KiB`. `cbs` or `ebs` must be greater than 0.
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

/// Adds the name of the parameter to an error.
fn at<T>(name: &'static str, made: Result<T, RateError>) -> Result<T, Fault> {
    made.map_err(|error| (name, error.to_string()))
}

/// The single rate three colour marker of RFC 2697.
#[derive(Clone, Copy, Debug)]
pub(super) struct SingleRate {
    /// The committed rate, and the size of the committed bucket.
    committed: Rate,
    /// The number of tokens of a full excess bucket.
    excess: u64,
    /// The number of ticks after which empty buckets are full.
    fill: u64,
}

impl SingleRate {
    /// Converts the parameters to tokens. Fails if a parameter is out of range.
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
        // The sum is at most three full buckets and the tokens of one tick, so it does not overflow.
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
    /// The committed rate, and the size of the committed bucket.
    committed: Rate,
    /// The peak rate, and the size of the peak bucket.
    peak: Rate,
}

impl TwoRate {
    /// Converts the parameters to tokens. Fails if a parameter is out of range.
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
