//! Creates a removed interface again, on a separate thread. An attempt takes milliseconds, which is too long for a
//! worker.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::InterfaceClaim;
use super::device::{Settings, TapDevice};

/// The pause between two attempts.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// A thread that creates an interface again, and the device that it has created. Dropping the value ends the thread.
pub(super) struct Opener {
    device: Receiver<Arc<TapDevice>>,
    /// True if the thread must not make a further attempt.
    stop: Arc<AtomicBool>,
    /// The text of the last error: of an attempt that failed, or of the start of the thread.
    last_error: Arc<Mutex<Option<String>>>,
    /// `None` if the thread could not be started.
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    /// Starts a thread that tries to create the interface every [`RETRY_AFTER`], until an attempt succeeds or this
    /// value is dropped.
    pub(super) fn start(claim: Arc<InterfaceClaim>, port: String, settings: Settings) -> Self {
        let (sender, receiver) = sync_channel(1);
        let (stop, last_error) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (stopped, failure) = (Arc::clone(&stop), Arc::clone(&last_error));
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                match claim.retake(&port, &settings) {
                    // If the port no longer waits, the device is dropped.
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

    /// Returns the device once, after the thread has created it. Does not wait.
    pub(super) fn device(&self) -> Option<Arc<TapDevice>> {
        self.device.try_recv().ok()
    }

    /// Returns the error of the last attempt that failed, or of the start of the thread. Returns `None` if there was no
    /// error.
    pub(super) fn last_error(&self) -> Option<String> {
        self.last_error.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // If the thread has created a device in the meantime, the device is dropped with the channel.
            let _ = thread.join();
        }
    }
}
