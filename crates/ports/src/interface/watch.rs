//! Watches an interface while packets run. An interface may go down, disappear, and exist again.

use std::fmt;
use std::io;

use forebay_graph::{LinkCounters, LinkState};

use super::{Control, InterfaceName, State};

/// A fault that prevents packets from passing, in order of severity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The interface has no carrier.
    NoLink,
    /// The interface is down.
    Down,
    /// No interface has this name.
    Gone,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "is gone",
            Self::Down => "is down",
            Self::NoLink => "has no link",
        })
    }
}

/// Watches an interface by its name. The owner calls [`check`](Self::check) periodically.
pub struct Watch {
    /// A socket of the interface's network namespace.
    control: Control,
    name: InterfaceName,
    /// The state at the last check. `None` if the interface did not exist.
    last: Option<State>,
    /// The fault at the last check. `None` if packets can pass.
    current_fault: Option<Fault>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// The state of the interface if the caller must bind its sockets again, because the interface was replaced, was
    /// down, or has another MTU. Otherwise `None`.
    pub bind: Option<State>,
    /// True if this check found a new fault, which the caller counts.
    pub is_new_fault: bool,
    /// True if another interface has the name now: its index differs.
    is_replaced: bool,
    /// True if the interface went down after the previous check and is up again now.
    was_down: bool,
}

impl Watch {
    /// Watches an interface in the network namespace of the calling thread. The interface may be missing.
    pub fn new(name: &InterfaceName) -> io::Result<Self> {
        let control = Control::new()?;
        let last = control.state(name)?;
        Ok(Self { control, name: name.clone(), last, current_fault: Self::fault_of(last) })
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &InterfaceName {
        &self.name
    }

    /// Returns the state at the last check.
    pub fn last(&self) -> Option<State> {
        self.last
    }

    /// Returns the fault at the last check, as a text for the user.
    pub fn fault(&self) -> Option<String> {
        self.current_fault.map(|current_fault| format!("the interface '{}' {current_fault}", self.name))
    }

    /// Checks the interface again at the end of a run, and returns its fault. A missing carrier is not reported, for
    /// two reasons: the program at the other end of the link may have ended first, and the kernel reports a new carrier
    /// up to a second late.
    pub fn last_fault(&mut self) -> Option<String> {
        self.check(false);
        self.fault().filter(|_| self.current_fault != Some(Fault::NoLink))
    }

    /// Returns the state of the link at the last check.
    pub fn link(&self) -> LinkState {
        match self.current_fault {
            None => LinkState::Up,
            Some(Fault::NoLink) => LinkState::NoCarrier,
            Some(Fault::Down) => LinkState::Down,
            Some(Fault::Gone) => LinkState::Gone,
        }
    }

    /// Records the state of the link in `link`, from which events are created. Also records if the interface was
    /// replaced or was down since the previous check. `found` is the result of the last check.
    pub fn record(&self, found: Found, link: &LinkCounters) {
        if found.is_replaced {
            link.note_replaced();
        }
        if found.was_down {
            link.note_down();
        }
        link.set(self.link());
    }

    /// Returns the fault of a state.
    fn fault_of(state: Option<State>) -> Option<Fault> {
        match state {
            None => Some(Fault::Gone),
            Some(state) if !state.up => Some(Fault::Down),
            Some(state) if !state.running => Some(Fault::NoLink),
            Some(_) => None,
        }
    }

    /// Checks the state again. `cut_off` is true if a socket got an error because the interface went down or was
    /// removed. The interface may be up again by now. Returns no findings if the kernel does not report the state.
    pub fn check(&mut self, cut_off: bool) -> Found {
        // If the query fails, the last state is kept.
        let Ok(state) = self.control.state(&self.name) else { return Found::default() };
        let current_fault = Self::fault_of(state);
        let is_other = state.map(|state| (state.index, state.mtu)) != self.last.map(|state| (state.index, state.mtu));
        let was_away = matches!(self.current_fault, Some(Fault::Gone | Fault::Down));
        // An interface that is brought up has no carrier at first. This is not a new fault, but the end of the fault
        // `Down`.
        let is_new_fault = current_fault > self.current_fault || cut_off && !was_away;
        let index = |state: Option<State>| state.map(|state| state.index);
        let is_replaced = index(state).is_some() && index(self.last).is_some() && index(state) != index(self.last);
        let was_down = cut_off && !was_away && !is_replaced && current_fault.is_none();
        let bind = state.filter(|_| is_other || cut_off || was_away && current_fault != self.current_fault);
        (self.last, self.current_fault) = (state, current_fault);
        Found { bind, is_new_fault, is_replaced, was_down }
    }
}
