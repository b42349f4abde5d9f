//! Reads the census of an instance on a busy machine.

use std::io::Write;

use forebay_instance::Instance;
use forebay_protocol::Census;

/// The late responses of one test. On a busy machine, a few responses take longer than [`Instance::census`] waits.
pub(crate) struct Responses {
    late: u64,
    most: u64,
}

impl Responses {
    /// Allows at most this number of late responses.
    pub(crate) fn with_late(most: u64) -> Self {
        Self { late: 0, most }
    }

    /// Returns the census of all workers. Panics if more responses are late than allowed.
    pub(crate) fn census(&mut self, instance: &dyn Instance) -> Census {
        loop {
            if let Some(census) = instance.census() {
                return census;
            }
            self.late += 1;
            let _ = writeln!(std::io::stderr(), "a late response: {} of {}", self.late, self.most);
            assert!(self.late <= self.most, "every worker responds in time");
        }
    }
}
