//! `bypass`: takes a given time and does nothing else. It stands in for a function whose cost is known.

use forebay_graph::{Context, Declare, Function, Setup, SetupError, StateKind, register};
use forebay_measure::{Clock, Tsc};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `bypass`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// Ticks of the time-stamp counter that each call takes.
    #[serde(default)]
    cycles_per_batch: u32,
    /// Additional ticks that each packet takes.
    #[serde(default)]
    cycles_per_packet: u32,
}

/// The network function `bypass`, with the cost of a call in ticks. In virtual time both costs are 0.
pub struct Bypass {
    /// The ticks of each call.
    per_batch: u64,
    /// The additional ticks of each packet.
    per_packet: u64,
}

impl Declare for Bypass {
    type Params = Params;
    const NAME: &'static str = "bypass";
    const SUMMARY: &'static str = "takes a given time and passes all packets";
    const HELP: &'static str = "\
        Spins for `cycles_per_batch` plus `cycles_per_packet` for each packet of the batch, then passes all packets \
        through the only gate, unchanged. This is the linear cost of a function in batch models. Cycles are ticks of \
        the time-stamp counter, which runs at a constant rate whatever the core does. If there is no such counter, \
        cycles are nanoseconds. The time is exact to one reading of the counter (about 20 ticks). In virtual time the \
        function does not spin: the engine charges the configured costs instead.";
    const EXAMPLE: &'static str = "{ cycles_per_batch: 900, cycles_per_packet: 25 }";
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let real = |cycles: u32| if setup.simulated() { 0 } else { u64::from(cycles) };
        Ok(Self { per_batch: real(params.cycles_per_batch), per_packet: real(params.cycles_per_packet) })
    }
}

impl Bypass {
    /// Returns the time of a call with this number of packets, in ticks.
    fn cost(&self, packets: usize) -> u64 {
        self.per_batch + self.per_packet * packets as u64
    }
}

impl Function for Bypass {
    fn process(&mut self, batch: &mut [Packet], _: &mut Context<'_>) {
        let cost = self.cost(batch.len());
        if cost == 0 {
            return;
        }
        let start = Tsc.now();
        // No pause instruction: it takes up to 140 ticks, which is too coarse for small costs.
        while Tsc.now().since(start).0 < cost {}
    }
}

register!(Bypass);

#[cfg(test)]
mod tests {
    use forebay_graph::{Gate, Rig, SetupEnvironment};
    use forebay_packet::Batch;
    use forebay_units::Frequency;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_takes_at_least_what_it_costs() {
        let mut rig = Rig::of::<Bypass>(&json!({ "cycles_per_batch": 200_000, "cycles_per_packet": 100_000 }))
            .expect("parameters");
        let mut batch = Batch::with_capacity(3);
        for _ in 0..3 {
            batch.push(rig.packet(&[1; 60])).expect("room");
        }
        let start = Tsc.now();
        assert_eq!(rig.process(&mut batch), [Some(Gate::FIRST); 3]);
        // A lower bound is valid under any load of the machine, because the counter never goes back.
        assert!(Tsc.now().since(start).0 >= 500_000);
    }

    #[test]
    fn frames_pass_unchanged() {
        let mut rig = Rig::of::<Bypass>(&json!(null)).expect("parameters");
        assert_eq!(rig.run(&[5; 60]), (Gate::FIRST, vec![5; 60]));
    }

    #[test]
    fn it_costs_nothing_in_virtual_time() {
        let params: Params =
            serde_json::from_value(json!({ "cycles_per_batch": 9, "cycles_per_packet": 1 })).expect("parameters");
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        let mut cost = |simulated| {
            environment.simulated = simulated;
            Bypass::new(params.clone(), &mut Setup::new("bypass", &mut environment)).expect("it builds").cost(32)
        };
        assert_eq!((cost(false), cost(true)), (41, 0));
    }
}
