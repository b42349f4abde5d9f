//! Opens a missing interface repeatedly, on a separate thread. An attempt takes milliseconds, too long for a worker.

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
    /// The previous device is closed. The losses are those of closing it.
    Closed(Losses),
    /// The interface is open.
    Open(Device),
}

/// The thread, and its events.
pub struct Opener {
    events: Receiver<OpenEvent>,
    stop: Arc<AtomicBool>,
    last_error: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    /// Closes `former`, then opens the interface.
    pub fn start(options: DeviceOptions, umem: Arc<Umem>, former: Option<Device>) -> Self {
        let (sender, events) = sync_channel(2);
        let (stop, last_error) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (stopped, failure) = (Arc::clone(&stop), Arc::clone(&last_error));
        let work = move || {
            if let Some(former) = former {
                // If the port is closed, its losses are not counted any more.
                drop(sender.send(OpenEvent::Closed(former.close())));
            }
            // At least one attempt, so that the port can report at its end why the interface is lost.
            loop {
                match Device::open(&options, &umem) {
                    // If the port is closed, the unsent device is dropped.
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

    /// Returns the next event, if there is one.
    pub fn next_event(&self) -> Option<OpenEvent> {
        self.events.try_recv().ok()
    }

    /// Ends the thread after its first attempt.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }

    /// Returns the error of the last attempt.
    pub fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // A device that the thread has opened meanwhile is dropped with the channel.
        self.stop();
    }
}
