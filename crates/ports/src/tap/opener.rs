//! Creates a removed interface again, on a separate thread. An attempt takes milliseconds, too long for a worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::InterfaceClaim;
use super::device::{Settings, TapDevice};

/// The pause between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// The thread, and the device that it creates.
pub(super) struct Opener {
    device: Receiver<Arc<TapDevice>>,
    stop: Arc<AtomicBool>,
    last_error: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    /// Tries until the interface exists or the port stops waiting for it.
    pub(super) fn start(claim: Arc<InterfaceClaim>, port: String, settings: Settings) -> Self {
        let (sender, receiver) = sync_channel(1);
        let (stop, last_error) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (stopped, failure) = (Arc::clone(&stop), Arc::clone(&last_error));
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                match claim.retake(&port, &settings) {
                    // If the port does not wait any more, the device is dropped.
                    Ok(device) => return drop(sender.send(device)),
                    Err(error) => *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string()),
                }
                thread::park_timeout(RETRY_AFTER);
            }
        };
        let thread = thread::Builder::new().name("tap open".to_owned()).spawn(work);
        if let Err(error) = &thread {
            *last_error.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(format!("cannot start a thread to create it: {error}"));
        }
        Self { device: receiver, stop, last_error, thread: thread.ok() }
    }

    /// Returns the device, once it exists.
    pub(super) fn device(&self) -> Option<Arc<TapDevice>> {
        self.device.try_recv().ok()
    }

    /// Returns the error of the last attempt.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A device that the thread has created meanwhile is dropped with the channel.
            let _ = thread.join();
        }
    }
}
