//! The ownership of an interface. One port has it at a time, and the next port with its name takes it over while
//! packets run.
//!
//! The running port owns the device, so that no lock is in the packet path. Its successor waits. When the running port
//! is closed, the successor gets the device with the frames that wait in it.

use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::device::Device;

/// The claim on an interface, for as long as the pipeline runs.
#[derive(Default)]
pub struct InterfaceClaim(Mutex<ClaimState>);

#[derive(Default)]
struct ClaimState {
    /// The name of the port.
    owner: String,
    /// Held by that port and its successors.
    owned: Weak<()>,
    /// Where the present owner sends the device. A `None` means that there is no device at the moment.
    successor: Option<Sender<Option<Device>>>,
}

/// A port's claim on an interface.
pub struct Hold {
    interface: Arc<InterfaceClaim>,
    _owned: Arc<()>,
}

/// How a port gets its device.
pub enum DeviceSource {
    /// The port opens the device.
    First,
    /// The previous port hands the device over when it is closed.
    Next(Receiver<Option<Device>>),
}

impl InterfaceClaim {
    fn state(&self) -> MutexGuard<'_, ClaimState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the interface for the port with this name.
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
    /// Hands the device over to the waiting port. Returns the device if no port waits.
    pub fn pass_on(&self, device: Option<Device>) -> Option<Device> {
        let successor = self.interface.state().successor.take();
        match successor {
            // A successor that was created and dropped again does not take the device.
            Some(successor) => successor.send(device).err().and_then(|SendError(device)| device),
            None => device,
        }
    }
}
