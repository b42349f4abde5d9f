//! The conditions for an idle worker's next turn: an instant, a number of packets, and the descriptors on which packets
//! arrive.

use std::os::fd::BorrowedFd;

use forebay_measure::Clock;
use forebay_units::Ticks;

use super::{Gateway, Next, Worker};
use crate::port::{Ready, Waits};
use crate::scheduler::Scheduler;

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Returns whether the next turn has work to do. Two kinds of turns do not count as work: a poll that finds no
    /// packets, and a retry of packets for which another worker had no room. Used by the counting of instructions.
    pub fn has_work(&mut self) -> bool {
        if !self.scheduler.is_idle() || (self.was_busy && !self.waiting.is_empty()) {
            return true;
        }
        if !self.waiting.is_empty() {
            return false;
        }
        let now = self.clock.now();
        self.due().is_some_and(|instant| instant <= now)
    }

    /// Returns the earliest instant at which a turn may have work to do. `None` if only another worker can provide
    /// packets.
    pub fn due(&mut self) -> Option<Ticks> {
        let now = self.clock.now();
        if !self.scheduler.is_idle() || !self.waiting.is_empty() {
            return Some(now);
        }
        match self.when() {
            Next::Now => Some(now),
            Next::At(instant) => Some(instant),
            Next::OnInput(_, instant) => instant,
            Next::Never => None,
        }
    }

    /// Returns when there may be work, given that no node is ready now. It also publishes to the team whether this
    /// worker is quiet, and until when it holds packets.
    pub(super) fn when(&mut self) -> Next {
        let next = self.wanted();
        self.stopwatch.parked = false;
        next
    }

    /// Does the work of [`when`](Self::when). The result is the earliest of the hold limits of buffers, the timers, the
    /// rate limits and the times of ports. Timers for housekeeping (`looks`) do not keep a run alive, so they do not
    /// count as held packets.
    fn wanted(&mut self) -> Next {
        let due = self.buffered.iter().filter_map(|&module| self.nodes[module].input.due());
        let timers = self.timers.iter().filter(|timer| timer.keeps).map(|timer| timer.at);
        let looks = self.timers.iter().filter(|timer| !timer.keeps).map(|timer| timer.at);
        let ports = self.open_gateways().filter_map(|gateway| Some((gateway.entry?, gateway.ready)));
        let held = due.chain(timers).chain(self.scheduler.wake()).min();
        let mut earliest = held.into_iter().chain(looks).min();
        let may_come = self.gateways.iter().any(|gateway| gateway.entry.is_some() && gateway.ready != Ready::Never);
        self.team.set_waits(self.id, if may_come { Ticks::NEVER } else { held.unwrap_or(Ticks::ZERO) });
        let (mut input, mut outside) = (None, false);
        for (entry, ready) in ports {
            match ready {
                Ready::Now => return Next::Now,
                Ready::At(instant) => {
                    outside = true;
                    earliest = Some(earliest.map_or(instant, |earliest| earliest.min(instant)));
                }
                Ready::Input(_) => {
                    outside = true;
                    let count = self.nodes[entry.node as usize].input.lacking();
                    input = Some(input.map_or(count, |least: usize| least.min(count)));
                }
                Ready::Never => {}
            }
        }
        self.team.set_quiet(self.id, self.draining || (!outside && held.is_none()));
        if self.links.ins.is_empty() {
            return match (input, earliest) {
                (Some(count), earliest) => Next::OnInput(count, earliest),
                (None, Some(instant)) => Next::At(instant),
                (None, None) => Next::Never,
            };
        }
        // The destination of packets in rings is unknown until they are taken, so the worker is called as soon as one
        // packet waits. In simulated time, packets from other workers may arrive later than now. So the worker is
        // called at the instant of their arrival at the latest.
        Next::OnInput(1, self.sent_to().into_iter().chain(earliest).min())
    }

    /// Returns the ports by which packets enter, except those that must not be read now.
    fn open_gateways(&self) -> impl Iterator<Item = &Gateway> {
        let gateways = self.gateways.iter().enumerate();
        gateways.filter(|(port, gateway)| gateway.entry.is_some() && !self.is_held(*port)).map(|(_, gateway)| gateway)
    }

    /// Returns the descriptors of the ports that wait for packets. `None` if one of these ports has no descriptor: then
    /// the worker must not park, because only a turn finds this port's packets.
    pub(crate) fn inputs(&self) -> Option<Vec<BorrowedFd<'_>>> {
        let mut inputs = Vec::new();
        for gateway in self.open_gateways().filter(|gateway| matches!(gateway.ready, Ready::Input(_))) {
            match gateway.port.as_ref()?.wait_on() {
                Waits::On(descriptors) => inputs.extend(descriptors),
                Waits::None => return None,
            }
        }
        Some(inputs)
    }

    /// Notes that the worker has parked after this turn. The time until the next turn then contains the wait, so it is
    /// not counted as a long turn.
    pub(crate) fn note_parked(&mut self) {
        self.stopwatch.parked = true;
    }
}
