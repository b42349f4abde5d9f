//! Opens an interface that is not there now, again and again, on a thread of its own: it takes milliseconds each time, which
//! a worker does not have.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::device::{Device, Wanted};
use super::queue::Losses;
use super::umem::Umem;

/// From one try to the next.
const PAUSE: Duration = Duration::from_millis(100);

/// What the thread has done.
pub enum News {
    /// The one before is closed, and this was lost with it.
    Closed(Losses),
    /// It is open.
    Open(Device),
}

/// The thread, and what comes from it.
pub struct Opener {
    news: Receiver<News>,
    stop: Arc<AtomicBool>,
    trouble: Arc<Mutex<Option<String>>>,
    thread: Option<JoinHandle<()>>,
}

impl Opener {
    /// Closes `former`, then opens what is wanted.
    pub fn start(wanted: Wanted, umem: Arc<Umem>, former: Option<Device>) -> Self {
        let (sender, news) = sync_channel(2);
        let (stop, trouble) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (stopped, told) = (Arc::clone(&stop), Arc::clone(&trouble));
        let work = move || {
            if let Some(former) = former {
                // Who does not wait any more does not count.
                drop(sender.send(News::Closed(former.close())));
            }
            // At least one try: the end of the port reports why the interface is lost.
            loop {
                match Device::open(&wanted, &umem) {
                    // Where nobody waits any more it is closed.
                    Ok(device) => return drop(sender.send(News::Open(device))),
                    Err(error) => {
                        *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.to_string());
                    }
                }
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                thread::park_timeout(PAUSE);
            }
        };
        let name = "af_xdp open".to_owned();
        let thread = thread::Builder::new().name(name).spawn(work);
        if let Err(error) = &thread {
            *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(format!("no thread to open it on: {error}"));
        }
        Self { news, stop, trouble, thread: thread.ok() }
    }

    /// What it has done that was not told yet.
    pub fn news(&self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Ends the thread, after its first try.
    pub fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }

    /// Why the last try failed.
    pub fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        // What it opened meanwhile is closed with the channel.
        self.stop();
    }
}
