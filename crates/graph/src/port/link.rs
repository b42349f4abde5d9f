//! The link state of a port's interface, as the port last saw it. The control side derives events from it.

use forebay_measure::Counter;

/// The state of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// The port has no interface, or has not checked it yet.
    #[default]
    Unknown,
    /// The interface is up and has a carrier.
    Up,
    /// The interface is up but has no carrier.
    NoCarrier,
    /// The interface is administratively down.
    Down,
    /// No interface of this name exists.
    Gone,
}

impl LinkState {
    /// All states, each at the index of its number.
    const ALL: [Self; 5] = [Self::Unknown, Self::Up, Self::NoCarrier, Self::Down, Self::Gone];
}

/// The state of a port's interface, and how often the interface went down or disappeared. The port's worker writes
/// them.
#[derive(Debug, Default)]
pub struct LinkCounters {
    /// The number of the [`LinkState`].
    state: Counter,
    /// How often the interface went down or lost its carrier.
    downs: Counter,
    /// How often the interface disappeared or was replaced.
    losses: Counter,
}

impl LinkCounters {
    /// Records the present state of the interface. Counts the change if the interface went down, lost its carrier or
    /// disappeared.
    #[cold]
    pub fn set(&self, state: LinkState) {
        let before = self.state();
        if state == before {
            return;
        }
        match state {
            LinkState::NoCarrier | LinkState::Down => self.downs.add(1),
            LinkState::Gone => self.losses.add(1),
            LinkState::Unknown | LinkState::Up => {}
        }
        self.state.set(state as u64);
    }

    /// Counts that the interface was down between two checks.
    pub fn note_down(&self) {
        self.downs.add(1);
    }

    /// Counts that another interface of the same name replaced the interface between two checks.
    pub fn note_replaced(&self) {
        self.losses.add(1);
    }

    /// Returns the state of the interface.
    #[must_use]
    pub fn state(&self) -> LinkState {
        LinkState::ALL.get(self.state.get() as usize).copied().unwrap_or_default()
    }

    /// Returns how often the interface went down or lost its carrier.
    #[must_use]
    pub fn downs(&self) -> u64 {
        self.downs.get()
    }

    /// Returns how often the interface disappeared or was replaced.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn downs_and_losses_are_counted() {
        let link = LinkCounters::default();
        assert_eq!(link.state(), LinkState::Unknown);
        for state in LinkState::ALL {
            link.set(state);
            link.set(state);
            assert_eq!(link.state(), state);
        }
        assert_eq!((link.downs(), link.losses()), (2, 1));
        link.set(LinkState::Up);
        link.note_down();
        link.note_replaced();
        assert_eq!((link.state(), link.downs(), link.losses()), (LinkState::Up, 3, 2));
    }
}
