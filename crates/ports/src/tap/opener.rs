//! Makes an interface again that was taken away, on a thread of its own: it takes milliseconds each time, which a worker does
//! not have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::Slot;
use super::device::{Device, Wanted};

/// From one try to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// The thread, and what comes from it.
pub(super) struct Opener {
    made: Receiver<Arc<Device>>,
    stop: Arc<AtomicBool>,
    trouble: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    /// Tries until it is there, or nobody wants it any more.
    pub(super) fn start(slot: Arc<Slot>, port: String, wanted: Wanted) -> Self {
        let (sender, made) = sync_channel(1);
        let (stop, trouble) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (stopped, told) = (Arc::clone(&stop), Arc::clone(&trouble));
        let work = move || {
            while !stopped.load(Ordering::Relaxed) {
                match slot.again(&port, &wanted) {
                    // Where nobody waits any more it goes again.
                    Ok(device) => return drop(sender.send(device)),
                    Err(error) => *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string()),
                }
                thread::park_timeout(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("tap open".to_owned()).spawn(work);
        if let Err(error) = &thread {
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("no thread to make it on: {error}"));
        }
        Self { made, stop, trouble, thread: thread.ok() }
    }

    /// The device, once it is there.
    pub(super) fn made(&self) -> Option<Arc<Device>> {
        self.made.try_recv().ok()
    }

    /// Why the last try failed.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // What it has made meanwhile goes with the channel.
            let _ = thread.join();
        }
    }
}
