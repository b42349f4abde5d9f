//! Runs a single function: packets in, packets and gates out. For tests, profiles and fuzzing.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_measure::Counter;
use forebay_packet::{Batch, MAX_BATCH, Packet, Pool, PoolOptions};
use forebay_units::{Frequency, Ticks};
use serde_json::Value;

use crate::context::Desk;
use crate::function::{Declaration, Declare, Function};
use crate::gate::Gate;
use crate::setup::{Declared, Setup, SetupEnvironment, SetupError};

/// A function with a pool of its own.
pub struct Rig {
    /// The function under test.
    pub function: Box<dyn Function>,
    /// The gates, counters and tables that the function registered while it was created.
    pub declared: Declared,
    /// The time that the function sees.
    pub now: Ticks,
    created: Arc<[Counter]>,
    desk: Desk,
    /// By flow word: the branch of packets with this word. In a rig, the two numbers are the same.
    branches: Box<[u32]>,
    /// When the function requested to be woken. [`Ticks::NEVER`] without a request.
    wake: Ticks,
    /// Whether a run whose sources are used up would wait for this wake-up.
    keeps: bool,
}

impl Rig {
    /// Creates function `F` from parameters, in an empty environment: a tick is a nanosecond, and a batch has up to 256
    /// packets.
    ///
    /// # Errors
    /// Those of [`Declare::new`].
    pub fn of<F: Declare>(params: &Value) -> Result<Self, SetupError> {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.batch = MAX_BATCH;
        Self::within::<F>(params, &mut environment)
    }

    /// Creates function `F` from parameters, in an environment that may have states, words or a folder for files.
    ///
    /// # Errors
    /// Those of [`Declare::new`].
    pub fn within<F: Declare>(params: &Value, environment: &mut SetupEnvironment) -> Result<Self, SetupError> {
        let mut setup = Setup::new("rig", environment);
        let function = Declaration::of::<F>().build(params, &mut setup)?;
        Ok(Self::over(function, setup.finish(), F::CREATES.len()))
    }

    /// Folds functions `F`, one for each of these parameters, into one ([`Declare::FOLD`]). The flow word of a packet
    /// is the index of its branch, at most 63.
    ///
    /// # Errors
    /// Those of [`Declare::new`], and an `F` that does not support folding.
    pub fn folded<F: Declare>(params: &[Value]) -> Result<Self, SetupError> {
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.batch = MAX_BATCH;
        let declaration = Declaration::of::<F>();
        let mut setup = Setup::new("rig", &mut environment);
        let functions = params.iter().map(|params| declaration.build(params, &mut setup)).collect::<Result<_, _>>()?;
        let function = declaration.fold(functions).map_err(|error| SetupError::new(error.to_string()))?;
        Ok(Self::over(function, setup.finish(), 0))
    }

    /// Wraps an existing function, which creates packets for up to `reasons` reasons.
    ///
    /// # Panics
    /// If the system has no 3 MB of memory for packets.
    #[must_use]
    pub fn over(function: Box<dyn Function>, declared: Declared, reasons: usize) -> Self {
        let pool = Pool::new(PoolOptions { chunks: 1_024, ..PoolOptions::default() }).expect("memory for a small pool");
        let created: Arc<[Counter]> = (0..reasons).map(|_| Counter::new()).collect();
        let mut desk = Desk::new(pool, Ticks::ZERO);
        desk.add_module(Arc::clone(&created));
        Self {
            function,
            declared,
            now: Ticks::ZERO,
            created,
            desk,
            branches: (0..64).collect(),
            wake: Ticks::NEVER,
            keeps: false,
        }
    }

    /// Takes the packets that the function has created or released since the last call, each with its gate.
    pub fn emitted(&mut self) -> Vec<(Packet, Gate)> {
        std::mem::take(&mut self.desk.emitted)
    }

    /// Returns how many packets the function has created, by reason.
    #[must_use]
    pub fn created(&self) -> Vec<u64> {
        self.created.iter().map(Counter::get).collect()
    }

    /// Returns a packet with these bytes.
    ///
    /// # Panics
    /// If the frame is longer than a chunk, or more packets are in use than the pool has.
    #[must_use]
    pub fn packet(&self, frame: &[u8]) -> Packet {
        let mut packet = self.desk.pool.take().expect("fewer packets than the pool has");
        assert!(packet.write(frame), "a frame of {} bytes", frame.len());
        packet
    }

    /// Runs the function once on a batch. Returns each packet's gate, or `None` if the function holds the packet. Held
    /// packets leave the batch. The other packets stay in it, whatever their gates.
    pub fn process(&mut self, batch: &mut Batch) -> Vec<Option<Gate>> {
        let len = batch.len();
        self.desk.now = self.now;
        self.function.process(batch, &mut self.desk.context(0, len, &self.branches));
        let (gates, shelves) = self.desk.each(len);
        let (gates, shelf) = (gates.to_vec(), &mut shelves[0]);
        let mut rest = Batch::with_capacity(MAX_BATCH);
        batch.drain_each(|index, packet| {
            let packet = if gates[index] == Gate::HOLD { shelf.put(index, packet).err() } else { Some(packet) };
            if let Some(packet) = packet {
                rest.push(packet).expect("the batch is as large");
            }
        });
        batch.append(&mut rest);
        self.wake = self.wake.min(self.desk.wake);
        self.keeps |= std::mem::take(&mut self.desk.keeps);
        self.desk.clear(0);
        gates.into_iter().map(|gate| (gate != Gate::HOLD).then_some(gate)).collect()
    }

    /// Runs the function on one frame. Returns the gate, and the frame afterwards.
    ///
    /// # Panics
    /// If the function holds the packet.
    pub fn run(&mut self, frame: &[u8]) -> (Gate, Vec<u8>) {
        let mut batch = Batch::with_capacity(1);
        batch.push(self.packet(frame)).expect("an empty batch");
        let gate = self.process(&mut batch)[0].expect("a packet that is not held");
        (gate, batch[0].data().to_vec())
    }

    /// Wakes the function, as the engine does at the requested instant. Returns when it wants to be woken next.
    pub fn wake(&mut self) -> Option<Ticks> {
        self.desk.now = self.now;
        self.function.wake(&mut self.desk.context(0, 0, &[]));
        self.wake = self.desk.wake;
        self.keeps = std::mem::take(&mut self.desk.keeps);
        self.desk.clear(0);
        self.wakes_at()
    }

    /// Returns when the function wants to be woken: the earliest instant requested since it was last woken.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Ticks> {
        (self.wake != Ticks::NEVER).then_some(self.wake)
    }

    /// Returns whether a run whose sources are used up would wait for the wake-up. This is true if the function has
    /// called [`Context::wake_at`] since it was last woken, and false if it has only called
    /// [`look_at`](Context::look_at).
    #[must_use]
    pub fn keeps_run(&self) -> bool {
        self.keeps
    }

    /// Returns how many packets the function holds.
    #[must_use]
    pub fn held(&self) -> usize {
        self.desk.shelves[0].len()
    }

    /// Returns the function's own counters under one heading, by name.
    #[must_use]
    pub fn counters(&self, kind: &str) -> BTreeMap<&str, u64> {
        let of_kind = self.declared.counters.iter().filter(|own| own.heading == kind);
        of_kind.flat_map(|own| own.names.iter().map(String::as_str).zip(own.counters.iter().map(|c| c.get()))).collect()
    }
}
