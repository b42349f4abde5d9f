//! The entry of one neighbour and its state machine: the states of RFC 4861 section 7.3.2, for IPv6 and for ARP alike.
//!
//! RFC 826 does not describe ageing. RFC 1122 section 2.3.2.1 requires it and leaves the method open. With one state
//! machine for both families, IPv4 and IPv6 neighbours behave alike. A step is a pure function of an entry, an event
//! and the time, so it can be tested alone.

use forebay_packet::wire::ethernet::MacAddress;

/// The state of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum NeighbourState {
    /// A request was sent, and no answer has come yet.
    Incomplete = 1,
    /// An answer came recently.
    Reachable = 2,
    /// The Ethernet address was correct at an earlier time. The next packet is sent to this address, and starts the
    /// delay.
    Stale = 3,
    /// Packets are sent to the neighbour. When the delay ends, the neighbour is probed.
    Delay = 4,
    /// Probes are being sent.
    Probe = 5,
    /// No answer has come; no requests are sent for a while.
    Failed = 6,
    /// The entry was configured by an operator, and events do not change it.
    Permanent = 7,
}

impl NeighbourState {
    pub(crate) const ALL: [Self; 7] =
        [Self::Incomplete, Self::Reachable, Self::Stale, Self::Delay, Self::Probe, Self::Failed, Self::Permanent];

    /// Returns the state with this number; `None` for 0, a free slot.
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

    /// Returns true if packets may be sent to the neighbour's address without a change of the entry, until
    /// [`Entry::at`].
    pub(crate) const fn is_usable(self) -> bool {
        matches!(self, Self::Reachable | Self::Delay | Self::Probe | Self::Permanent)
    }

    /// Returns true if a request was sent to the neighbour and an answer may still come. A neighbour that was given up
    /// may answer late.
    pub(crate) fn is_asked(self) -> bool {
        matches!(self, Self::Incomplete | Self::Probe | Self::Failed)
    }

    /// Returns true if a worker waits for the time [`Entry::at`], to send the next request.
    pub(crate) fn is_timed(self) -> bool {
        matches!(self, Self::Incomplete | Self::Delay | Self::Probe)
    }
}

/// The known facts about a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) state: NeighbourState,
    /// The Ethernet address; all zeros if it is unknown.
    pub(crate) mac: MacAddress,
    /// The number of requests since the neighbour was last heard from; up to 15.
    pub(crate) tries: u8,
    /// The number of consecutive rounds of requests that failed; up to [`MOST_ROUNDS`].
    pub(crate) rounds: u8,
    /// The time of the next action, in ticks; see [`due`](Self::due).
    pub(crate) at: u64,
}

/// The number of failed rounds after which the pause no longer grows. It is then 32 times the first pause.
const MOST_ROUNDS: u8 = 5;

/// The durations of the state machine in ticks, and the number of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timers {
    /// The time for which a neighbour counts as reachable after an answer (`REACHABLE_TIME`).
    pub(crate) reachable: u64,
    /// The delay before the first probe (`DELAY_FIRST_PROBE_TIME`).
    pub(crate) delay: u64,
    /// The interval between requests (`RETRANS_TIMER`).
    pub(crate) retransmit: u64,
    /// The time for which an unused entry is kept.
    pub(crate) forget: u64,
    /// The pause after the first failed round.
    pub(crate) negative: u64,
    /// The number of requests per round (`MAX_MULTICAST_SOLICIT`, `MAX_UNICAST_SOLICIT`), 1 to 15.
    pub(crate) tries: u8,
}

/// An event of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A packet is to be sent to the neighbour.
    Packet,
    /// Time has passed.
    Time,
    /// The neighbour answered. The values are its Ethernet address, if the answer has one, and true if this address
    /// overrides the known address.
    Answered(Option<MacAddress>, bool),
    /// The neighbour announced itself without a request. The values are the same as for an answer.
    Announced(Option<MacAddress>, bool),
    /// The neighbour sent a request to us with its Ethernet address.
    Asked(MacAddress),
}

/// The action that an event requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing.
    None,
    /// Send a request to all hosts.
    Ask,
    /// Send a request to the neighbour alone.
    Probe,
    /// The neighbour is given up: waiting packets cannot be sent.
    GiveUp,
    /// Remove the entry.
    Remove,
}

impl Entry {
    /// Creates an entry for which no request was sent yet. The time [`at`](Self::at) is 0, so the first packet event
    /// sends a request.
    pub(crate) fn wanted() -> Self {
        Self { state: NeighbourState::Incomplete, mac: MacAddress::default(), tries: 0, rounds: 0, at: 0 }
    }

    /// Creates an entry of a neighbour that sent its Ethernet address without a request from us.
    pub(crate) fn stale(mac: MacAddress, now: u64, timers: &Timers) -> Self {
        Self { state: NeighbourState::Stale, mac, tries: 0, rounds: 0, at: now.saturating_add(timers.forget) }
    }

    /// Creates an entry of an operator, which events do not change.
    pub(crate) fn permanent(mac: MacAddress) -> Self {
        Self { state: NeighbourState::Permanent, mac, tries: 0, rounds: 0, at: u64::MAX }
    }

    /// Returns the time at which [`Event::Time`] has an effect. A failed entry is kept for `timers.forget` after its
    /// pause. The entry counts its failures, so that the pause after the next failure is longer.
    pub(crate) fn due(&self, timers: &Timers) -> u64 {
        if self.state == NeighbourState::Failed { self.at.saturating_add(timers.forget) } else { self.at }
    }

    /// Handles an event at time `now`, in ticks. Returns the action that the caller must take. A permanent entry does
    /// not change.
    pub(crate) fn step(&mut self, event: Event, now: u64, timers: &Timers) -> Action {
        match event {
            _ if self.state == NeighbourState::Permanent => Action::None,
            Event::Packet => self.packet(now, timers),
            Event::Time if now >= self.due(timers) => self.time(now, timers),
            Event::Time => Action::None,
            Event::Answered(mac, overrides) => self.heard(mac, overrides, true, now, timers),
            Event::Announced(mac, overrides) => self.heard(mac, overrides, false, now, timers),
            // RFC 4861 section 7.2.3: the cache is updated, and the state is stale if the address is new.
            Event::Asked(mac) => self.heard(Some(mac), true, false, now, timers),
        }
    }

    /// Handles a packet that is to be sent to the neighbour.
    fn packet(&mut self, now: u64, timers: &Timers) -> Action {
        match self.state {
            // Section 7.3.3: the first packet to a stale entry starts the delay.
            NeighbourState::Stale => self.become_delay(now, timers),
            NeighbourState::Reachable if now >= self.at => self.become_delay(now, timers),
            NeighbourState::Failed if now >= self.at => {
                (self.state, self.tries) = (NeighbourState::Incomplete, 0);
                self.time(now, timers)
            }
            NeighbourState::Incomplete | NeighbourState::Delay | NeighbourState::Probe if now >= self.at => {
                self.time(now, timers)
            }
            _ => Action::None,
        }
    }

    /// Starts the delay before the first probe.
    fn become_delay(&mut self, now: u64, timers: &Timers) -> Action {
        (self.state, self.tries, self.at) = (NeighbourState::Delay, 0, now.saturating_add(timers.delay));
        Action::None
    }

    /// Handles the time [`due`](Self::due), which has come.
    fn time(&mut self, now: u64, timers: &Timers) -> Action {
        let more = self.tries < timers.tries;
        match self.state {
            NeighbourState::Incomplete if more => {
                (self.tries, self.at) = (self.tries + 1, now.saturating_add(timers.retransmit));
                Action::Ask
            }
            NeighbourState::Incomplete => {
                let pause = timers.negative.saturating_mul(1 << self.rounds.min(MOST_ROUNDS));
                (self.state, self.at) = (NeighbourState::Failed, now.saturating_add(pause));
                self.rounds = (self.rounds + 1).min(MOST_ROUNDS);
                Action::GiveUp
            }
            NeighbourState::Reachable => {
                (self.state, self.at) = (NeighbourState::Stale, now.saturating_add(timers.forget));
                Action::None
            }
            NeighbourState::Delay => {
                (self.state, self.tries, self.at) = (NeighbourState::Probe, 1, now.saturating_add(timers.retransmit));
                Action::Probe
            }
            NeighbourState::Probe if more => {
                (self.tries, self.at) = (self.tries + 1, now.saturating_add(timers.retransmit));
                Action::Probe
            }
            // Section 7.3.3: the entry should be removed, so that the next packet sends a request to all.
            NeighbourState::Probe | NeighbourState::Stale | NeighbourState::Failed => Action::Remove,
            NeighbourState::Permanent => Action::None,
        }
    }

    /// Handles an answer or announcement (RFC 4861 section 7.2.5).
    fn heard(
        &mut self,
        mac: Option<MacAddress>,
        overrides: bool,
        is_answer: bool,
        now: u64,
        timers: &Timers,
    ) -> Action {
        let unknown = matches!(self.state, NeighbourState::Incomplete | NeighbourState::Failed);
        if unknown && mac.is_none() {
            return Action::None;
        }
        let other = mac.filter(|mac| *mac != self.mac);
        if !unknown && other.is_some() && !overrides {
            // Two different Ethernet addresses are claimed for one address, so the known address must be probed before
            // it counts as reachable again.
            if self.state == NeighbourState::Reachable {
                (self.state, self.at) = (NeighbourState::Stale, now.saturating_add(timers.forget));
            }
            return Action::None;
        }
        self.mac = mac.unwrap_or(self.mac);
        if is_answer {
            (self.state, self.at) = (NeighbourState::Reachable, now.saturating_add(timers.reachable));
        } else if unknown || other.is_some() {
            (self.state, self.at) = (NeighbourState::Stale, now.saturating_add(timers.forget));
        } else {
            return Action::None;
        }
        (self.tries, self.rounds) = (0, 0);
        Action::None
    }
}

#[cfg(test)]
mod tests;
