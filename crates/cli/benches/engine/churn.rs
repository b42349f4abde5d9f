//! Route changes made by another thread while a case runs: what they cost the worker, and how many there are a second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use forebay_graph::Table;
use forebay_measure::machine::pin_to;

/// Changes that a batch of the control plane has.
const BATCH: usize = 1_000;

/// Changes of a table, of which every second one undoes the one before.
pub struct Churn {
    pub table: Arc<dyn Table>,
    pub lines: Vec<String>,
    /// Where to run; none: anywhere.
    pub core: Option<usize>,
    /// How many to make in a run.
    pub share: usize,
    /// How many were made, and in how many seconds.
    pub made: usize,
    pub seconds: f64,
}

impl Churn {
    /// Makes its share of changes in a thread of its own; `meanwhile` is told whether it is done.
    pub fn beside(&mut self, meanwhile: impl FnOnce(&AtomicBool)) {
        let done = AtomicBool::new(false);
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        let (table, core, share) = (&self.table, self.core, self.share);
        let (made, seconds) = std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                if let Some(error) = core.and_then(|core| pin_to(core).err()) {
                    eprintln!("changes run where the system puts them: {error}");
                }
                let (start, mut made) = (Instant::now(), 0);
                for batch in lines.chunks(BATCH).cycle() {
                    made += table.apply(batch).made;
                    if made >= share {
                        break;
                    }
                }
                let seconds = start.elapsed().as_secs_f64();
                done.store(true, Ordering::Relaxed);
                (made, seconds)
            });
            meanwhile(&done);
            changes.join().expect("changes do not panic")
        });
        self.made += made;
        self.seconds += seconds;
    }
}
