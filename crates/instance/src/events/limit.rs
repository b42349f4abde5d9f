//! Limits events that packets cause: the first event is recorded at once, and further ones as a count every ten
//! seconds.

use std::time::{Duration, Instant};

/// The shortest time between two events of the same name and subject, if packets cause the events.
pub const LIMIT: Duration = Duration::from_secs(10);

/// The limit for the events of one name and subject. The occurrences are counted by a counter that increases, except if
/// a reload resets it.
#[derive(Debug, Default)]
pub struct Limit {
    /// The value of the counter at the last event.
    reported: u64,
    /// The time of the last event.
    last: Option<Instant>,
}

impl Limit {
    /// Returns the count to report now, if the counter is at `total`. Returns `None` if the counter is unchanged, or if
    /// the last event is less than [`LIMIT`] ago. If `is_last`, the run ends, and the remaining count is returned at
    /// once.
    pub fn due(&mut self, total: u64, now: Instant, is_last: bool) -> Option<u64> {
        // A reload may have reset the counter.
        self.reported = self.reported.min(total);
        let more = total - self.reported;
        let is_early = self.last.is_some_and(|last| now.saturating_duration_since(last) < LIMIT);
        if more == 0 || is_early && !is_last {
            return None;
        }
        (self.reported, self.last) = (total, Some(now));
        Some(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_reported_at_once_and_then_a_count_every_ten_seconds() {
        let (mut limit, start) = (Limit::default(), Instant::now());
        let mut due = |total, seconds, is_last| limit.due(total, start + Duration::from_secs(seconds), is_last);
        assert_eq!(due(0, 0, false), None);
        assert_eq!(due(3, 1, false), Some(3));
        assert_eq!(due(500, 2, false), None);
        assert_eq!(due(700, 10, false), None);
        assert_eq!(due(703, 11, false), Some(700));
        assert_eq!(due(703, 40, false), None, "nothing new");
        assert_eq!(due(704, 41, false), Some(1), "at once after a pause");
        assert_eq!(due(709, 42, true), Some(5), "what remains at the end");
        assert_eq!(due(2, 60, false), None, "a counter that was reset");
        assert_eq!(due(4, 61, false), Some(2));
    }
}
