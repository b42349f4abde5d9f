//! Route changes by another thread while a case runs: their cost for the worker, and their rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use forebay_graph::Table;
use forebay_measure::machine::pin_to;

/// Number of changes in a batch.
const BATCH: usize = 1_000;

/// Changes of a table; every second change reverts the one before.
pub struct Churn {
    pub table: Arc<dyn Table>,
    pub lines: Vec<String>,
    /// The core of the thread; `None`: any core.
    pub core: Option<usize>,
    /// Number of changes per run.
    pub share: usize,
    /// Number of changes made, and the seconds that they took.
    pub made: usize,
    pub seconds: f64,
}

impl Churn {
    /// Makes the changes of a run in a thread of its own. Calls `meanwhile` with a flag that is set when they are done.
    pub fn beside(&mut self, meanwhile: impl FnOnce(&AtomicBool)) {
        let done = AtomicBool::new(false);
        let lines: Vec<&str> = self.lines.iter().map(String::as_str).collect();
        let (table, core, share) = (&self.table, self.core, self.share);
        let (made, seconds) = std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                if let Some(error) = core.and_then(|core| pin_to(core).err()) {
                    eprintln!("changes run on any core: {error}");
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
