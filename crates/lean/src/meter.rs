//! The meter that workers are given to be measured: instructions and core cycles of their threads, read in user space.
//!
//! What [`hardware`](crate::hardware) counts from outside is of whole spans; this tells parts of turns apart.

use std::sync::{Arc, OnceLock};

use forebay_graph::Meter;
use forebay_measure::events::{Event, OwnGroup, Unavailable, Unread};

/// What is counted, in a meter's order.
const EVENTS: [Event; 2] = [Event::Instructions, Event::CoreCycles];

/// Why there is no meter, once one has found out.
pub(crate) type WhyNot = Arc<OnceLock<Unavailable>>;

/// A group of events that the thread which opened it reads.
trait Own: Send {
    fn read(&self) -> Result<[u64; 2], Unread>;
}

impl Own for OwnGroup<2> {
    fn read(&self) -> Result<[u64; 2], Unread> {
        OwnGroup::read(self)
    }
}

/// Opens its counters when it is first read: on the thread that is to be counted.
struct ThreadMeter<O> {
    open: fn() -> Result<O, Unavailable>,
    group: Option<O>,
    why_not: WhyNot,
}

/// A meter for a worker; where it has nothing to tell, the reason is left with `why_not`.
pub(crate) fn meter(why_not: &WhyNot) -> Box<dyn Meter> {
    let open = || OwnGroup::open(EVENTS);
    Box::new(ThreadMeter { open, group: None, why_not: Arc::clone(why_not) })
}

impl<O: Own> Meter for ThreadMeter<O> {
    #[inline]
    fn read(&mut self) -> Option<[u64; 2]> {
        let told = match &self.group {
            Some(group) => group.read().map_err(|why| Unavailable::Unread { event: EVENTS[0], why }),
            None => (self.open)().and_then(|group| {
                let group = self.group.insert(group);
                group.read().map_err(|why| Unavailable::Unread { event: EVENTS[0], why })
            }),
        };
        match told {
            Ok(counts) => Some(counts),
            Err(reason) => {
                // The first reason is the one that is told.
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
    fn counters_are_opened_once_and_what_ends_them_is_known() {
        let why_not = WhyNot::default();
        let open = || Ok(Three(Cell::new(0)));
        let mut meter = ThreadMeter { open, group: None, why_not: Arc::clone(&why_not) };
        assert_eq!([1; 4].map(|_| meter.read()), [Some([1, 10]), Some([2, 10]), Some([3, 10]), None]);
        let why = Unread::NotCounting;
        assert_eq!(why_not.get(), Some(&Unavailable::Unread { event: Event::Instructions, why }));
    }

    #[test]
    fn what_cannot_be_opened_leaves_its_reason() {
        let why_not = WhyNot::default();
        let open = || Err(Unavailable::None(Event::CoreCycles));
        let mut meter = ThreadMeter::<Three> { open, group: None, why_not: Arc::clone(&why_not) };
        assert_eq!(meter.read(), None);
        assert_eq!(why_not.get(), Some(&Unavailable::None(Event::CoreCycles)));
    }
}
