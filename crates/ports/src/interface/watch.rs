//! Watches an interface while packets run: it may go down, disappear, and come back.

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

/// Watches an interface by its name.
pub struct Watch {
    control: Control,
    name: InterfaceName,
    /// The state at the last check; `None` if the interface is gone.
    last: Option<State>,
    current_fault: Option<Fault>,
}

/// The result of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Sockets must be bound to this interface again, and its MTU may have changed.
    pub bind: Option<State>,
    /// This check found a new fault.
    pub is_new_fault: bool,
    /// Another interface has the name now, and has no fault.
    is_replaced: bool,
    /// The interface was down since the last check, and is up again.
    was_down: bool,
}

impl Watch {
    /// Watches an interface in the network namespace of the calling thread.
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

    /// Returns the fault in words.
    pub fn fault(&self) -> Option<String> {
        self.current_fault.map(|current_fault| format!("the interface '{}' {current_fault}", self.name))
    }

    /// Returns the fault at the end of a run, after another check. A missing carrier is no fault of the run: the other
    /// end may have ended before, and the kernel reports a carrier up to a second late.
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

    /// Records the state of the link, and what happened to it before, for events.
    pub fn record(&self, found: Found, link: &LinkCounters) {
        if found.is_replaced {
            link.note_replaced();
        }
        if found.was_down {
            link.note_down();
        }
        link.set(self.link());
    }

    fn fault_of(state: Option<State>) -> Option<Fault> {
        match state {
            None => Some(Fault::Gone),
            Some(state) if !state.up => Some(Fault::Down),
            Some(state) if !state.running => Some(Fault::NoLink),
            Some(_) => None,
        }
    }

    /// Checks the state again. `cut_off` means that a socket got an error because the interface went down or was
    /// removed, which may be over already.
    pub fn check(&mut self, cut_off: bool) -> Found {
        // A failed query gives no new information.
        let Ok(state) = self.control.state(&self.name) else { return Found::default() };
        let current_fault = Self::fault_of(state);
        let is_other = state.map(|state| (state.index, state.mtu)) != self.last.map(|state| (state.index, state.mtu));
        let was_away = matches!(self.current_fault, Some(Fault::Gone | Fault::Down));
        // An interface that is brought up has no carrier at first. That is the end of a fault, not a new one.
        let is_new_fault = current_fault > self.current_fault || cut_off && !was_away;
        let index = |state: Option<State>| state.map(|state| state.index);
        let is_replaced = index(state).is_some() && index(self.last).is_some() && index(state) != index(self.last);
        let was_down = cut_off && !was_away && !is_replaced && current_fault.is_none();
        let bind = state.filter(|_| is_other || cut_off || was_away && current_fault != self.current_fault);
        (self.last, self.current_fault) = (state, current_fault);
        Found { bind, is_new_fault, is_replaced, was_down }
    }
}
