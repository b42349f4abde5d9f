//! Periodic work: buffers over their hold limit, wake-ups of functions, gauges. Also the end of a worker: `drain`, then
//! `close`.
//!
//! A worker that drains takes no packets from ports. It processes all queued packets without waiting for triggers. It
//! wakes no functions: a shaper could release packets again and again, and the worker would never be quiet. Packets
//! that functions hold are dropped in `close`, with the reason `held_at_close`. Work that is added to `sweep` must not
//! give packets to modules while the worker drains.

use forebay_measure::Clock;
use forebay_packet::Batch;
use forebay_units::Ticks;

use super::{LATE, Mode, PUBLISH_EVERY, Timer, Worker};
use crate::observer::DropSite;
use crate::port::Ready;
use crate::scheduler::Scheduler;

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Releases buffers over their hold limit and wakes functions that are due.
    #[inline(never)]
    pub(super) fn sweep(&mut self) {
        // The next turn must read the clock, because the work here takes time after the last reading.
        self.departed = false;
        let now = self.desk.now;
        // Packets that come from now on are not due before this instant.
        let mut next = now + self.least_hold;
        for at in 0..self.buffered.len() {
            let module = self.buffered[at];
            let input = &mut self.nodes[module].input;
            match input.due() {
                Some(due) if due <= now => {
                    input.release(&mut self.spares);
                    self.scheduler.ready(module);
                }
                Some(due) => next = next.min(due),
                None => {}
            }
        }
        self.sweep_at = next.max(now + Ticks(self.least_hold.0 / LATE));
        // A worker that drains must stay quiet once it is quiet, so it wakes no functions, which could release held
        // packets.
        while !self.draining
            && let Some(at) = self.timers.iter().position(|timer| timer.at <= self.desk.now)
        {
            let timer = self.timers.swap_remove(at);
            self.wake(timer.module);
        }
        if !self.was_busy || now >= self.publish_at {
            self.publish_at = now + self.clock.frequency().ticks(PUBLISH_EVERY);
            self.publish();
        }
    }

    /// Sets the timer of a module. If the module already has a timer, the earlier instant is used. `keeps`: the run
    /// waits for this timer ([`Context::wake_at`](crate::Context::wake_at)).
    pub(super) fn set_timer(&mut self, module: usize, at: Ticks, keeps: bool) {
        match self.timers.iter_mut().find(|timer| timer.module == module) {
            Some(timer) => (timer.at, timer.keeps) = (timer.at.min(at), timer.keeps || keeps),
            None => self.timers.push(Timer { at, module, keeps }),
        }
    }

    /// Wakes the function of a module, and moves the packets that it emits. If the function requests another wake-up,
    /// this comes at least one tick later, so that `sweep` ends.
    fn wake(&mut self, module: usize) {
        if self.stopwatch.runs {
            self.time_residue();
        }
        if let Some(function) = &mut self.nodes[module].function {
            function.wake(&mut self.desk.context(module, 0, &self.flows.branch));
        }
        let wake = self.desk.wake;
        if wake != Ticks::NEVER {
            let keeps = std::mem::take(&mut self.desk.keeps);
            self.set_timer(module, wake.max(Ticks(self.desk.now.0 + 1)), keeps);
        }
        if self.observer.is_some() {
            self.emit::<{ Mode::Observed as u8 }>(module);
        } else {
            self.emit::<{ Mode::Plain as u8 }>(module);
        }
        self.desk.clear(module);
        if self.stopwatch.runs {
            self.time_wake(module);
        }
    }

    /// Runs one turn of draining: takes no new packets from ports, and processes all waiting packets without waiting
    /// for triggers. Returns true if no packet waits in this worker any more. Packets that functions hold do not count.
    /// Other workers may still send packets, so call this until the [team is quiet](crate::Team::is_quiet). The worker
    /// cannot return to normal operation.
    pub fn drain(&mut self) -> bool {
        if !self.draining {
            self.draining = true;
            self.scheduler.lift();
        }
        for &module in &self.buffered {
            let input = &mut self.nodes[module].input;
            input.release(&mut self.spares);
            if input.is_ready() {
                self.scheduler.ready(module);
            }
        }
        self.turn();
        let waits = self.buffered.iter().any(|&module| self.nodes[module].input.len() > 0);
        let done = !self.was_busy && !waits && self.waiting.is_empty() && self.scheduler.is_idle();
        self.team.set_quiet(self.id, done);
        done
    }

    /// Ends a worker without a team: [drains](Self::drain) it and [closes](Self::close) it.
    ///
    /// # Errors
    /// Those of [`close`](Self::close).
    pub fn shut_down(&mut self) -> Result<(), Vec<(String, String)>> {
        while !self.drain() {}
        self.close()
    }

    /// Drops the packets that functions still hold (`held_at_close`), and closes functions and ports. The worker must
    /// have been drained. No packet is queued or held afterwards.
    ///
    /// # Errors
    /// The errors that ports and functions report, each with the name of the port or module.
    pub fn close(&mut self) -> Result<(), Vec<(String, String)>> {
        let mut batch = Batch::with_capacity(forebay_packet::MAX_BATCH);
        for module in 0..self.modules {
            while self.desk.shelves[module].len() > 0 {
                self.desk.shelves[module].empty_into(&mut batch);
                self.telemetry.worker.held_at_close.add(batch.len() as u64);
                self.observe_drops::<{ Mode::Observed as u8 }>(DropSite::Module(module), "held_at_close", &batch);
                batch.clear();
            }
        }
        self.timers.clear();
        let mut errors = Vec::new();
        for (node, module) in self.nodes.iter_mut().zip(&self.telemetry.modules) {
            if let Some(Err(error)) = node.function.as_mut().map(|function| function.close()) {
                errors.push((format!("module '{}'", module.name), error));
            }
        }
        for (gateway, telemetry) in self.gateways.iter_mut().zip(&self.telemetry.ports) {
            // A port that waits for input has no packet available now. Its source may have ended, so it does not count
            // as unread.
            let has_more = gateway.entry.is_some() && !matches!(gateway.ready, Ready::Never | Ready::Input(_));
            if has_more && gateway.port.as_ref().is_some_and(|port| !port.is_endless()) {
                telemetry.unread.set(1);
            }
            if let Some(Err(error)) = gateway.port.as_mut().map(|port| port.close()) {
                errors.push((format!("port '{}'", telemetry.name), error));
            }
        }
        self.publish();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }
}
