//! Calls of modules and ports under names of their own, by which an instruction counter tells them apart: several may be of
//! one kind.

use std::hint::black_box;
use std::sync::Arc;

use forebay_graph::{Context, Effect, Function, Intake, Offer, Port, Ready};
use forebay_measure::Counter;
use forebay_packet::{Batch, Packet, Ticks};

/// How many modules and ports can be told apart in one run.
pub(crate) const NAMES: usize = 64;

type Call = fn(&mut dyn Function, &mut [Packet], &mut Context<'_>);
type Wake = fn(&mut dyn Function, &mut Context<'_>);
type Receive = fn(&mut dyn Port, &mut Batch, &Intake<'_>) -> Ready;
type Send = fn(&mut dyn Port, &mut Batch, Ticks);

/// A module's function, called under the names of a number.
pub(crate) struct Named {
    function: Box<dyn Function>,
    call: Call,
    wake: Wake,
}

impl Named {
    /// `function` under the names of `number`, of which there are [`NAMES`].
    pub(crate) fn new(function: Box<dyn Function>, number: usize) -> Self {
        let (call, wake, ..) = CALLS[number];
        Self { function, call, wake }
    }
}

impl Function for Named {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        (self.call)(&mut *self.function, batch, context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        (self.wake)(&mut *self.function, context);
    }

    fn close(&mut self) -> Result<(), String> {
        self.function.close()
    }

    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        self.function.effect(packet)
    }
}

/// Calls of a port.
#[derive(Debug, Default)]
pub(crate) struct PortCalls {
    /// That gave packets.
    pub(crate) receive: Counter,
    /// That took some.
    pub(crate) send: Counter,
}

/// A port, called under the names of a number, and how often.
pub(crate) struct NamedPort {
    port: Box<dyn Port>,
    receive: Receive,
    send: Send,
    calls: Arc<PortCalls>,
}

impl NamedPort {
    /// `port` under the names of `number`, of which there are [`NAMES`]; without a number it is called as it is.
    pub(crate) fn new(port: Box<dyn Port>, number: Option<usize>, calls: Arc<PortCalls>) -> Self {
        let plain: (Receive, Send) =
            (|port, batch, intake| port.receive(batch, intake), |port, batch, now| port.send(batch, now));
        let (receive, send) = number.map_or(plain, |number| (CALLS[number].2, CALLS[number].3));
        Self { port, receive, send, calls }
    }
}

impl Port for NamedPort {
    fn receive(&mut self, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
        let before = batch.len();
        let ready = (self.receive)(&mut *self.port, batch, intake);
        self.calls.receive.add(u64::from(batch.len() > before));
        ready
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        (self.send)(&mut *self.port, batch, now);
        self.calls.send.add(1);
    }

    fn saturate(&mut self) {
        self.port.saturate();
    }

    fn in_flight(&self) -> usize {
        self.port.in_flight()
    }

    fn offer(&self) -> Option<Offer> {
        self.port.offer()
    }

    fn set_offer(&mut self, factor: f64) -> bool {
        self.port.set_offer(factor)
    }

    fn close(&mut self) -> Result<(), String> {
        self.port.close()
    }
}

/// Makes, for each name, a module with the functions `call` and `wake`, and for ports `receive` and `send`. What they do beside the call keeps them from
/// being merged into one, and from ending in a jump.
macro_rules! named {
    ($($name:ident)*) => {
        $(mod $name {
            use super::*;

            #[inline(never)]
            pub(super) fn call(function: &mut dyn Function, batch: &mut [Packet], context: &mut Context<'_>) {
                function.process(batch, context);
                black_box(stringify!($name));
            }

            #[inline(never)]
            pub(super) fn wake(function: &mut dyn Function, context: &mut Context<'_>) {
                function.wake(context);
                black_box(stringify!($name));
            }

            #[inline(never)]
            pub(super) fn receive(port: &mut dyn Port, batch: &mut Batch, intake: &Intake<'_>) -> Ready {
                let ready = port.receive(batch, intake);
                black_box(stringify!($name));
                ready
            }

            #[inline(never)]
            pub(super) fn send(port: &mut dyn Port, batch: &mut Batch, now: Ticks) {
                port.send(batch, now);
                black_box(stringify!($name));
            }
        })*

        const CALLS: [(Call, Wake, Receive, Send); NAMES] = [$(($name::call, $name::wake, $name::receive, $name::send)),*];

        /// What the functions of each number are called: part of their symbols.
        pub(crate) const SYMBOLS: [&str; NAMES] = [$(concat!("::named::", stringify!($name), "::")),*];
    };
}

named! {
    m0 m1 m2 m3 m4 m5 m6 m7 m8 m9 m10 m11 m12 m13 m14 m15 m16 m17 m18 m19 m20 m21 m22 m23 m24 m25 m26 m27 m28 m29 m30 m31
    m32 m33 m34 m35 m36 m37 m38 m39 m40 m41 m42 m43 m44 m45 m46 m47 m48 m49 m50 m51 m52 m53 m54 m55 m56 m57 m58 m59 m60
    m61 m62 m63
}
