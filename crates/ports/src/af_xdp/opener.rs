//! Tries repeatedly to open a missing interface, on a separate thread. An attempt takes milliseconds, which is too long
//! for a worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::device::{Device, DeviceOptions};
use super::queue::Losses;
use super::umem::Umem;

/// The pause between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The events of the opener's thread.
pub enum OpenEvent {
    /// The previous device is closed. The port counts these losses.
    Closed(Losses),
    /// The interface is open. This is the last event.
    Open(Device),
}

/// A thread that opens an interface, and its events. Dropping the value ends the thread.
pub struct Opener {
    events: Receiver<OpenEvent>,
    /// True if the thread must not make a further attempt.
    stop: Arc<AtomicBool>,
    /// The text of the last error: of an attempt that failed, or of the start of the thread.
    last_error: Arc<Mutex<Option<String>>>,
    /// `None` once the thread has ended, or if it could not be started.
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    /// Starts a thread that closes `former`, if there is one, and then opens the interface. It tries every
    /// [`RETRY_AFTER`] until it succeeds or is stopped.
    pub fn start(options: DeviceOptions, umem: Arc<Umem>, former: Option<Device>) -> Self {
        let (sender, events) = sync_channel(2);
        let (stop, last_error) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (stopped, failure) = (Arc::clone(&stop), Arc::clone(&last_error));
        let work = move || {
            if let Some(former) = former {
                // If the port is closed by now, these losses are not counted.
                drop(sender.send(OpenEvent::Closed(former.close())));
            }
            // The thread makes at least one attempt, so that the port can report the reason when it is closed.
            loop {
                match Device::open(&options, &umem) {
                    // If the port is closed by now, this closes the device.
                    Ok(device) => return drop(sender.send(OpenEvent::Open(device))),
                    Err(error) => {
                        *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                    }
                }
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                thread::park_timeout(RETRY_AFTER);
            }
        };
        let name = "af_xdp open".to_owned();
        let thread = thread::Builder::new().name(name).spawn(work);
        if let Err(error) = &thread {
            *last_error.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(format!("cannot start a thread to open it: {error}"));
        }
        Self { events, stop, last_error, thread: thread.ok() }
    }

    /// Returns the next event, or `None` if there is none yet. Does not wait.
    pub fn next_event(&self) -> Option<OpenEvent> {
        self.events.try_recv().ok()
    }

    /// Ends the thread after its current attempt, and waits until it has ended. Events may remain to be read.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }

    /// Returns the error of the last attempt that failed, or of the start of the thread. Returns `None` if there was no
    /// error. A later success does not remove the error.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // If the thread has opened a device in the meantime, the device is dropped with the channel.
        self.stop();
    }
}
