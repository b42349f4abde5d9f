//! The ownership of an interface. Only one port at a time has an interface. While packets run, the next port with the
//! same name takes the interface over.
//!
//! The running port owns the device, so the packet path has no lock. Its successor waits. When the running port is
//! closed, the successor receives the device, with the frames that wait in the device.

use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::device::Device;

/// The record of the owner of an interface. There is one for each interface, as long as the pipeline runs.
#[derive(Default)]
pub struct InterfaceClaim(Mutex<ClaimState>);

/// The present owner of an interface, and its successor.
#[derive(Default)]
struct ClaimState {
    /// The name of the port that owns the interface.
    owner: String,
    /// Can be upgraded as long as a port with this name has a [`Hold`].
    owned: Weak<()>,
    /// The channel by which the present owner sends the device to its successor. A `None` in the channel means that the
    /// owner has no device. The field is `None` if there is no successor.
    successor: Option<Sender<Option<Device>>>,
}

/// A port's claim on an interface. It ends when the value is dropped.
pub struct Hold {
    /// The record of the interface.
    interface: Arc<InterfaceClaim>,
    /// Proves that a port with the owner's name exists. The owner and its successors share this value.
    _owned: Arc<()>,
}

/// The way in which a port gets its device.
pub enum DeviceSource {
    /// The port opens the device.
    First,
    /// The previous port sends the device when it is closed. If it sends `None`, this port opens the device.
    Next(Receiver<Option<Device>>),
}

impl InterfaceClaim {
    fn state(&self) -> MutexGuard<'_, ClaimState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the interface for the port with this name. A later successor replaces an earlier one that has not
    /// received the device yet. The earlier one then never receives a device, and needs none: reloads happen one after
    /// the other, and each closes the old ports before it ends. So the earlier one was dropped with a refused reload.
    ///
    /// # Errors
    /// Returns the name of the other port that has the interface.
    pub fn take(self: &Arc<Self>, port: &str) -> Result<(Hold, DeviceSource), String> {
        let mut state = self.state();
        let hold = |owned| Hold { interface: Arc::clone(self), _owned: owned };
        match state.owned.upgrade() {
            Some(owned) if state.owner == port => {
                let (successor, device) = channel();
                state.successor = Some(successor);
                Ok((hold(owned), DeviceSource::Next(device)))
            }
            Some(_) => Err(state.owner.clone()),
            None => {
                let owned = Arc::new(());
                *state = ClaimState { owner: port.to_owned(), owned: Arc::downgrade(&owned), successor: None };
                Ok((hold(owned), DeviceSource::First))
            }
        }
    }
}

impl Hold {
    /// Sends the device, or the fact that there is none, to the successor. Returns the device if there is no successor.
    /// The caller then closes the device.
    pub fn pass_on(&self, device: Option<Device>) -> Option<Device> {
        let successor = self.interface.state().successor.take();
        match successor {
            // If the successor was dropped in the meantime, the channel returns the device.
            Some(successor) => successor.send(device).err().and_then(|SendError(device)| device),
            None => device,
        }
    }
}
