//! What becomes of the interface while packets run: it goes down, away, and comes back.

use std::fmt;
use std::io;

use forebay_graph::{LinkCounters, LinkState};

use super::{Control, InterfaceName, State};

/// What keeps packets from coming and going, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trouble {
    /// Nothing is at its other end.
    NoLink,
    /// It was brought down.
    Down,
    /// There is no interface of that name.
    Gone,
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gone => "is gone",
            Self::Down => "is down",
            Self::NoLink => "has no link",
        })
    }
}

/// Looks after an interface by its name.
pub struct Watch {
    control: Control,
    name: InterfaceName,
    /// What it was like when it was last looked at; what is left of it where it is gone.
    last: Option<State>,
    trouble: Option<Trouble>,
}

/// What a look has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Sockets are to be bound to this interface, and its MTU may be another one.
    pub bind: Option<State>,
    /// Something is wrong since this look.
    pub is_new_trouble: bool,
    /// Another interface has its name, and nothing is wrong with it.
    is_replaced: bool,
    /// It was down since the look before, and is up again.
    was_down: bool,
}

impl Watch {
    /// Of an interface in the network namespace that the calling thread is in.
    pub fn new(name: &InterfaceName) -> io::Result<Self> {
        let control = Control::here()?;
        let last = control.state(name)?;
        Ok(Self { control, name: name.clone(), last, trouble: Self::trouble_of(last) })
    }

    /// Its name.
    pub fn name(&self) -> &InterfaceName {
        &self.name
    }

    /// What it was like when it was last looked at.
    pub fn last(&self) -> Option<State> {
        self.last
    }

    /// What is wrong, in words.
    pub fn fault(&self) -> Option<String> {
        self.trouble.map(|trouble| format!("the interface '{}' {trouble}", self.name))
    }

    /// Returns the fault at the end of a run, as a new look finds it. A missing carrier is no fault of the run: the
    /// other end may have ended before, and the kernel reports a carrier up to a second late.
    pub fn last_fault(&mut self) -> Option<String> {
        self.look(false);
        self.fault().filter(|_| self.trouble != Some(Trouble::NoLink))
    }

    /// How the interface was when it was last looked at.
    pub fn link(&self) -> LinkState {
        match self.trouble {
            None => LinkState::Up,
            Some(Trouble::NoLink) => LinkState::NoCarrier,
            Some(Trouble::Down) => LinkState::Down,
            Some(Trouble::Gone) => LinkState::Gone,
        }
    }

    /// Writes how the interface was when it was last looked at, and what happened to it before, for events.
    pub fn note(&self, found: Found, link: &LinkCounters) {
        if found.is_replaced {
            link.note_replaced();
        }
        if found.was_down {
            link.note_down();
        }
        link.set(self.link());
    }

    fn trouble_of(state: Option<State>) -> Option<Trouble> {
        match state {
            None => Some(Trouble::Gone),
            Some(state) if !state.up => Some(Trouble::Down),
            Some(state) if !state.running => Some(Trouble::NoLink),
            Some(_) => None,
        }
    }

    /// Looks again. `cut_off`: a socket was told that the interface went down or away, which may be over already.
    pub fn look(&mut self, cut_off: bool) -> Found {
        // Who cannot be asked has nothing new to say.
        let Ok(state) = self.control.state(&self.name) else { return Found::default() };
        let trouble = Self::trouble_of(state);
        let is_other = state.map(|state| (state.index, state.mtu)) != self.last.map(|state| (state.index, state.mtu));
        let was_away = matches!(self.trouble, Some(Trouble::Gone | Trouble::Down));
        // An interface that is brought up has no link at first: that is the end of a trouble, and no other one.
        let is_new_trouble = trouble > self.trouble || cut_off && !was_away;
        let index = |state: Option<State>| state.map(|state| state.index);
        let is_replaced = index(state).is_some() && index(self.last).is_some() && index(state) != index(self.last);
        let was_down = cut_off && !was_away && !is_replaced && trouble.is_none();
        let bind = state.filter(|_| is_other || cut_off || was_away && trouble != self.trouble);
        (self.last, self.trouble) = (state, trouble);
        Found { bind, is_new_trouble, is_replaced, was_down }
    }
}
