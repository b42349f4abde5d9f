//! How a port's interface is, as the port saw it last: for events, which the control side makes of it.

use forebay_measure::Counter;

/// How an interface is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkState {
    /// The port has no interface, or has not looked yet.
    #[default]
    Unknown,
    /// It is up and has a carrier.
    Up,
    /// It is up, and nothing is at its other end.
    NoCarrier,
    /// It was brought down.
    Down,
    /// There is none of its name.
    Gone,
}

impl LinkState {
    const ALL: [Self; 5] = [Self::Unknown, Self::Up, Self::NoCarrier, Self::Down, Self::Gone];
}

/// The state of a port's interface, and how often it changed for the worse. The port's worker writes.
#[derive(Debug, Default)]
pub struct LinkCounters {
    state: Counter,
    downs: Counter,
    losses: Counter,
}

impl LinkCounters {
    /// Notes how the interface is now.
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

    /// Notes that the interface was down between two looks.
    pub fn note_down(&self) {
        self.downs.add(1);
    }

    /// Notes that another interface has taken the place of the one of its name between two looks.
    pub fn note_replaced(&self) {
        self.losses.add(1);
    }

    /// How the interface is.
    #[must_use]
    pub fn state(&self) -> LinkState {
        LinkState::ALL.get(self.state.get() as usize).copied().unwrap_or_default()
    }

    /// How often it went down or lost its carrier.
    #[must_use]
    pub fn downs(&self) -> u64 {
        self.downs.get()
    }

    /// How often it went away.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_for_the_worse_are_counted() {
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
