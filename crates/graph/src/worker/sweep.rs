//! What is done now and then: buffers over their hold limit, functions that asked to be woken, gauges.

use forebay_measure::Clock;
use forebay_packet::Batch;
use forebay_units::Ticks;

use super::{LATE, Mode, PUBLISH_EVERY, Timer, Worker};
use crate::observer::DropSite;
use crate::port::Ready;
use crate::scheduler::Scheduler;

impl<C: Clock, S: Scheduler> Worker<C, S> {
    /// Releases buffers over their hold limit and wakes functions whose time has come.
    #[inline(never)]
    pub(super) fn sweep(&mut self) {
        // What is done here comes after the clock was last read.
        self.departed = false;
        let now = self.desk.now;
        // What comes from now on need not be looked at before.
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
        // Who drains and has become quiet must stay so: what is held stays held.
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

    pub(super) fn set_timer(&mut self, module: usize, at: Ticks, keeps: bool) {
        match self.timers.iter_mut().find(|timer| timer.module == module) {
            Some(timer) => (timer.at, timer.keeps) = (timer.at.min(at), timer.keeps || keeps),
            None => self.timers.push(Timer { at, module, keeps }),
        }
    }

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

    /// Lets nothing new in from ports, and everything that waits through, whatever its trigger: one turn of it. Whether
    /// nothing waits any more (what functions hold is theirs). Other workers may still send something.
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

    /// Ends a worker that is alone: [drains](Self::drain) it and [closes](Self::close) it.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn wind_up(&mut self) -> Result<(), Vec<(String, String)>> {
        while !self.drain() {}
        self.close()
    }

    /// Drops what functions still hold (`wound_up`), and closes functions and ports. The worker has been drained, and
    /// nothing is queued or held afterwards.
    ///
    /// # Errors
    /// What ports and functions say went wrong, each with the port or module that says so.
    pub fn close(&mut self) -> Result<(), Vec<(String, String)>> {
        let mut batch = Batch::with_capacity(forebay_packet::MAX_BATCH);
        for module in 0..self.modules {
            while self.desk.shelves[module].len() > 0 {
                self.desk.shelves[module].empty_into(&mut batch);
                self.telemetry.worker.wound_up.add(batch.len() as u64);
                self.observe_drops::<{ Mode::Observed as u8 }>(DropSite::Module(module), "wound_up", &batch);
                batch.clear();
            }
        }
        self.timers.clear();
        let mut troubles = Vec::new();
        for (node, told) in self.nodes.iter_mut().zip(&self.telemetry.modules) {
            if let Some(Err(trouble)) = node.function.as_mut().map(|function| function.close()) {
                troubles.push((format!("module '{}'", told.name), trouble));
            }
        }
        for (gateway, telemetry) in self.gateways.iter_mut().zip(&self.telemetry.ports) {
            // A stream that waits for input has no packet at hand: it may have ended.
            let has_more = gateway.entry.is_some() && !matches!(gateway.ready, Ready::Never | Ready::Input);
            if has_more && gateway.port.as_ref().is_some_and(|port| !port.is_endless()) {
                telemetry.unread.set(1);
            }
            if let Some(Err(trouble)) = gateway.port.as_mut().map(|port| port.close()) {
                troubles.push((format!("port '{}'", telemetry.name), trouble));
            }
        }
        self.publish();
        if troubles.is_empty() { Ok(()) } else { Err(troubles) }
    }
}
