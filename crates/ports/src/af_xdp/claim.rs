//! Who has an interface: one port at a time, from which the next port of its name takes it over while packets run.
//!
//! The port that runs has the device, so that no lock is on the way of packets. One that is made while it runs waits; when
//! the one before it is closed it gets the device, with the frames that wait in it.

use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::device::Device;

/// An interface, for as long as the pipeline runs.
#[derive(Default)]
pub struct Slot(Mutex<Claim>);

#[derive(Default)]
struct Claim {
    /// The port's name.
    owner: String,
    /// Held by that port and those that come after it.
    held: Weak<()>,
    /// Where the device goes from the one that has it. `None` through it: there is no device just now.
    heir: Option<Sender<Option<Device>>>,
}

/// A port's right to an interface.
pub struct Hold {
    slot: Arc<Slot>,
    _held: Arc<()>,
}

/// How a port comes to the device.
pub enum Right {
    /// It opens it.
    First,
    /// The port before it gives it away when it is closed.
    Next(Receiver<Option<Device>>),
}

impl Slot {
    fn claim(&self) -> MutexGuard<'_, Claim> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right to the interface for the port of this name.
    ///
    /// # Errors
    /// Another port has it, which is called so.
    pub fn take(self: &Arc<Self>, port: &str) -> Result<(Hold, Right), String> {
        let mut claim = self.claim();
        let hold = |held| Hold { slot: Arc::clone(self), _held: held };
        match claim.held.upgrade() {
            Some(held) if claim.owner == port => {
                let (heir, coming) = channel();
                claim.heir = Some(heir);
                Ok((hold(held), Right::Next(coming)))
            }
            Some(_) => Err(claim.owner.clone()),
            None => {
                let held = Arc::new(());
                *claim = Claim { owner: port.to_owned(), held: Arc::downgrade(&held), heir: None };
                Ok((hold(held), Right::First))
            }
        }
    }
}

impl Hold {
    /// Gives the device to the port that waits for it; it comes back where none does.
    pub fn pass_on(&self, device: Option<Device>) -> Option<Device> {
        let heir = self.slot.claim().heir.take();
        match heir {
            // One that was made and is gone again has no use for it.
            Some(heir) => heir.send(device).err().and_then(|SendError(device)| device),
            None => device,
        }
    }
}
