//! What is known of one neighbour, and what becomes of it: the states of RFC 4861 section 7.3.2, for IPv6 and for ARP alike.
//!
//! RFC 826 says nothing of ageing; RFC 1122 section 2.3.2.1 asks for it and leaves the way open. One machine for both families
//! means one behaviour to know. It is a pure function of an entry, an event and the time, so that it can be tested as such.

use forebay_packet::wire::ethernet::MacAddress;

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// It was asked for, and nobody has answered yet.
    Incomplete = 1,
    /// It was heard of lately, in answer to a question.
    Reachable = 2,
    /// Its address was right once.
    Stale = 3,
    /// Packets go to it, and if nothing is heard it will be asked.
    Delay = 4,
    /// It is asked whether it is still there.
    Probe = 5,
    /// Nobody has answered: it is left alone for a while.
    Failed = 6,
    /// An operator says so: it stays.
    Permanent = 7,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Incomplete, Self::Reachable, Self::Stale, Self::Delay, Self::Probe, Self::Failed, Self::Permanent];

    pub(crate) const fn of(number: u64) -> Option<Self> {
        Some(match number {
            1 => Self::Incomplete,
            2 => Self::Reachable,
            3 => Self::Stale,
            4 => Self::Delay,
            5 => Self::Probe,
            6 => Self::Failed,
            7 => Self::Permanent,
            _ => return None,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Incomplete => "incomplete",
            Self::Reachable => "reachable",
            Self::Stale => "stale",
            Self::Delay => "delay",
            Self::Probe => "probe",
            Self::Failed => "failed",
            Self::Permanent => "permanent",
        }
    }

    /// Whether packets go to its address, as long as its time has not come.
    pub(crate) const fn is_usable(self) -> bool {
        matches!(self, Self::Reachable | Self::Delay | Self::Probe | Self::Permanent)
    }

    /// Whether it has been asked and may answer. Who was asked and given up may, late.
    pub(crate) fn is_asked(self) -> bool {
        matches!(self, Self::Incomplete | Self::Probe | Self::Failed)
    }

    /// Whether somebody waits for its time.
    pub(crate) fn is_timed(self) -> bool {
        matches!(self, Self::Incomplete | Self::Delay | Self::Probe)
    }
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) kind: Kind,
    /// All zeros where it is not known.
    pub(crate) mac: MacAddress,
    /// How often it was asked since it was last heard of; up to 15.
    pub(crate) tries: u8,
    /// How often in a row asking was given up; up to [`MOST_ROUNDS`].
    pub(crate) rounds: u8,
    /// When something is to be done, in ticks.
    pub(crate) at: u64,
}

/// After so many rounds in vain the pause grows no more: 32 times the first.
const MOST_ROUNDS: u8 = 5;

/// How long things take, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// How long an answer counts (`REACHABLE_TIME`).
    pub(crate) reachable: u64,
    /// How long something may be heard by chance before a probe (`DELAY_FIRST_PROBE_TIME`).
    pub(crate) delay: u64,
    /// From question to question (`RETRANS_TIMER`).
    pub(crate) retransmit: u64,
    /// How long an entry that nobody uses is kept.
    pub(crate) forget: u64,
    /// How long nobody is asked after the first round in vain.
    pub(crate) negative: u64,
    /// Questions in a round (`MAX_MULTICAST_SOLICIT`, `MAX_UNICAST_SOLICIT`), 1 to 15.
    pub(crate) tries: u8,
}

/// What happens to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// There is a packet for it.
    Packet,
    /// Time has passed.
    Time,
    /// It answered: its address, where it said so, and whether this overrides what is known.
    Answered(Option<MacAddress>, bool),
    /// It spoke of itself unasked.
    Told(Option<MacAddress>, bool),
    /// It asked for us, and said where it is.
    Asked(MacAddress),
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    None,
    /// All are asked where it is.
    Ask,
    /// It is asked by itself.
    Probe,
    /// Asking was given up: what waits will not leave.
    GiveUp,
    /// The entry goes.
    Remove,
}

impl Entry {
    /// One that nobody has been asked for: its time has come.
    pub(crate) fn wanted() -> Self {
        Self { kind: Kind::Incomplete, mac: MacAddress::default(), tries: 0, rounds: 0, at: 0 }
    }

    /// One that said where it is.
    pub(crate) fn stale(mac: MacAddress, now: u64, timers: &Timers) -> Self {
        Self { kind: Kind::Stale, mac, tries: 0, rounds: 0, at: now.saturating_add(timers.forget) }
    }

    pub(crate) fn permanent(mac: MacAddress) -> Self {
        Self { kind: Kind::Permanent, mac, tries: 0, rounds: 0, at: u64::MAX }
    }

    /// When [`Event::Time`] does something: a failure is remembered for longer than it is heeded, so that the next pause is
    /// the longer one.
    pub(crate) fn due(&self, timers: &Timers) -> u64 {
        if self.kind == Kind::Failed { self.at.saturating_add(timers.forget) } else { self.at }
    }

    /// What becomes of it.
    pub(crate) fn step(&mut self, event: Event, now: u64, timers: &Timers) -> Action {
        match event {
            _ if self.kind == Kind::Permanent => Action::None,
            Event::Packet => self.packet(now, timers),
            Event::Time if now >= self.due(timers) => self.time(now, timers),
            Event::Time => Action::None,
            Event::Answered(mac, overrides) => self.heard(mac, overrides, true, now, timers),
            Event::Told(mac, overrides) => self.heard(mac, overrides, false, now, timers),
            // RFC 4861 section 7.2.3: the cache is updated, and the state is stale where the address is new.
            Event::Asked(mac) => self.heard(Some(mac), true, false, now, timers),
        }
    }

    fn packet(&mut self, now: u64, timers: &Timers) -> Action {
        match self.kind {
            // Section 7.3.3: the first packet to a stale entry starts the delay.
            Kind::Stale => self.become_delay(now, timers),
            Kind::Reachable if now >= self.at => self.become_delay(now, timers),
            Kind::Failed if now >= self.at => {
                (self.kind, self.tries) = (Kind::Incomplete, 0);
                self.time(now, timers)
            }
            Kind::Incomplete | Kind::Delay | Kind::Probe if now >= self.at => self.time(now, timers),
            _ => Action::None,
        }
    }

    fn become_delay(&mut self, now: u64, timers: &Timers) -> Action {
        (self.kind, self.tries, self.at) = (Kind::Delay, 0, now.saturating_add(timers.delay));
        Action::None
    }

    fn time(&mut self, now: u64, timers: &Timers) -> Action {
        let more = self.tries < timers.tries;
        match self.kind {
            Kind::Incomplete if more => {
                (self.tries, self.at) = (self.tries + 1, now.saturating_add(timers.retransmit));
                Action::Ask
            }
            Kind::Incomplete => {
                let pause = timers.negative.saturating_mul(1 << self.rounds.min(MOST_ROUNDS));
                (self.kind, self.at) = (Kind::Failed, now.saturating_add(pause));
                self.rounds = (self.rounds + 1).min(MOST_ROUNDS);
                Action::GiveUp
            }
            Kind::Reachable => {
                (self.kind, self.at) = (Kind::Stale, now.saturating_add(timers.forget));
                Action::None
            }
            Kind::Delay => {
                (self.kind, self.tries, self.at) = (Kind::Probe, 1, now.saturating_add(timers.retransmit));
                Action::Probe
            }
            Kind::Probe if more => {
                (self.tries, self.at) = (self.tries + 1, now.saturating_add(timers.retransmit));
                Action::Probe
            }
            // Section 7.3.3: the entry should go, so that the next packet asks all.
            Kind::Probe | Kind::Stale | Kind::Failed => Action::Remove,
            Kind::Permanent => Action::None,
        }
    }

    /// RFC 4861 section 7.2.5.
    fn heard(&mut self, mac: Option<MacAddress>, overrides: bool, answer: bool, now: u64, timers: &Timers) -> Action {
        let unknown = matches!(self.kind, Kind::Incomplete | Kind::Failed);
        if unknown && mac.is_none() {
            return Action::None;
        }
        let other = mac.filter(|mac| *mac != self.mac);
        if !unknown && other.is_some() && !overrides {
            // Two say different things of one address: neither is believed without asking.
            if self.kind == Kind::Reachable {
                (self.kind, self.at) = (Kind::Stale, now.saturating_add(timers.forget));
            }
            return Action::None;
        }
        self.mac = mac.unwrap_or(self.mac);
        if answer {
            (self.kind, self.at) = (Kind::Reachable, now.saturating_add(timers.reachable));
        } else if unknown || other.is_some() {
            (self.kind, self.at) = (Kind::Stale, now.saturating_add(timers.forget));
        } else {
            return Action::None;
        }
        (self.tries, self.rounds) = (0, 0);
        Action::None
    }
}

#[cfg(test)]
mod tests;
