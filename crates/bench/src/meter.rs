//! The meter of a worker: instructions and core cycles of its thread, read in user space.
//!
//! The counters of [`hardware`](crate::hardware) are read from outside and count whole spans. This meter is read within
//! turns, so it counts busy turns, modules and ports separately.

use std::sync::{Arc, OnceLock};

use forebay_graph::Meter;
use forebay_measure::events::{Event, OwnGroup, Unavailable, Unread};

/// The counted events, in the order of a meter's figures.
const EVENTS: [Event; 2] = [Event::Instructions, Event::CoreCycles];

/// The reason why there is no meter, once it is known.
pub(crate) type WhyNot = Arc<OnceLock<Unavailable>>;

/// A group of events that is read by the thread that opened it.
trait Own: Send {
    fn read(&self) -> Result<[u64; 2], Unread>;
}

impl Own for OwnGroup<2> {
    fn read(&self) -> Result<[u64; 2], Unread> {
        OwnGroup::read(self)
    }
}

/// A meter that opens its counters at the first read, on the thread that is counted.
struct ThreadMeter<O> {
    open: fn() -> Result<O, Unavailable>,
    group: Option<O>,
    why_not: WhyNot,
}

/// Creates a meter for a worker. If its counters cannot be opened or read, the reason is stored in `why_not`.
pub(crate) fn meter(why_not: &WhyNot) -> Box<dyn Meter> {
    let open = || OwnGroup::open(EVENTS);
    Box::new(ThreadMeter { open, group: None, why_not: Arc::clone(why_not) })
}

impl<O: Own> Meter for ThreadMeter<O> {
    #[inline]
    fn read(&mut self) -> Option<[u64; 2]> {
        let counts = match &self.group {
            Some(group) => group.read().map_err(|why| Unavailable::Unread { event: EVENTS[0], why }),
            None => (self.open)().and_then(|group| {
                let group = self.group.insert(group);
                group.read().map_err(|why| Unavailable::Unread { event: EVENTS[0], why })
            }),
        };
        match counts {
            Ok(counts) => Some(counts),
            Err(reason) => {
                // The first reason is kept.
                let _ = self.why_not.set(reason);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Three(Cell<u64>);

    impl Own for Three {
        fn read(&self) -> Result<[u64; 2], Unread> {
            self.0.set(self.0.get() + 1);
            if self.0.get() > 3 { Err(Unread::NotCounting) } else { Ok([self.0.get(), 10]) }
        }
    }

    #[test]
    fn counters_are_opened_once_and_the_reason_for_their_end_is_kept() {
        let why_not = WhyNot::default();
        let open = || Ok(Three(Cell::new(0)));
        let mut meter = ThreadMeter { open, group: None, why_not: Arc::clone(&why_not) };
        assert_eq!([1; 4].map(|_| meter.read()), [Some([1, 10]), Some([2, 10]), Some([3, 10]), None]);
        let why = Unread::NotCounting;
        assert_eq!(why_not.get(), Some(&Unavailable::Unread { event: Event::Instructions, why }));
    }

    #[test]
    fn counters_that_cannot_be_opened_leave_the_reason() {
        let why_not = WhyNot::default();
        let open = || Err(Unavailable::None(Event::CoreCycles));
        let mut meter = ThreadMeter::<Three> { open, group: None, why_not: Arc::clone(&why_not) };
        assert_eq!(meter.read(), None);
        assert_eq!(why_not.get(), Some(&Unavailable::None(Event::CoreCycles)));
    }
}
