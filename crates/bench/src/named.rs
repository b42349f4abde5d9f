//! Calls modules and ports through functions with distinct names. By these names, an instruction counter separates
//! modules and ports of the same type.

use std::hint::black_box;
use std::sync::Arc;

use forebay_graph::{Context, Effect, Function, Intake, Port, Ready, ScheduledSource, Waits};
use forebay_measure::Counter;
use forebay_packet::{Batch, Packet};
use forebay_units::Ticks;

/// The number of modules and ports that can be distinguished in one run.
pub(crate) const NAMES: usize = 64;

/// The signature of the named functions that call [`Function::process`].
type Call = fn(&mut dyn Function, &mut [Packet], &mut Context<'_>);
/// The signature of the named functions that call [`Function::wake`].
type Wake = fn(&mut dyn Function, &mut Context<'_>);
/// The signature of the named functions that call [`Port::receive`].
type Receive = fn(&mut dyn Port, &mut Batch, &Intake<'_>) -> Ready;
/// The signature of the named functions that call [`Port::send`].
type Send = fn(&mut dyn Port, &mut Batch, Ticks);

/// A module's function, called through the named functions of one number (an index of `CALLS`).
pub(crate) struct Named {
    function: Box<dyn Function>,
    call: Call,
    wake: Wake,
}

impl Named {
    /// Wraps `function` with the named functions of `number`, which must be less than [`NAMES`].
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

    fn begins(&self) -> bool {
        self.function.begins()
    }

    fn close(&mut self) -> Result<(), String> {
        self.function.close()
    }

    fn effect(&self, packet: &mut Packet) -> Option<Effect> {
        self.function.effect(packet)
    }
}

/// The number of calls of a port.
#[derive(Debug, Default)]
pub(crate) struct PortCalls {
    /// Receive calls that returned packets.
    pub(crate) receive: Counter,
    /// Send calls.
    pub(crate) send: Counter,
}

/// A port, called through the named functions of one number (an index of `CALLS`). It counts the calls.
pub(crate) struct NamedPort {
    port: Box<dyn Port>,
    receive: Receive,
    send: Send,
    calls: Arc<PortCalls>,
}

impl NamedPort {
    /// Wraps `port` with the named functions of `number`, which must be less than [`NAMES`]. Without a number, the port
    /// is called directly.
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

    fn wait_on(&self) -> Waits<'_> {
        self.port.wait_on()
    }

    fn send(&mut self, batch: &mut Batch, now: Ticks) {
        (self.send)(&mut *self.port, batch, now);
        self.calls.send.add(1);
    }

    fn in_flight(&self) -> usize {
        self.port.in_flight()
    }

    fn schedule(&mut self) -> Option<&mut dyn ScheduledSource> {
        self.port.schedule()
    }

    fn is_endless(&self) -> bool {
        self.port.is_endless()
    }

    fn close(&mut self) -> Result<(), String> {
        self.port.close()
    }
}

/// Generates, for each name, a module with the functions `call` and `wake` for modules and `receive` and `send` for
/// ports. The `black_box` prevents the compiler from merging these functions and from replacing the call by a jump.
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

        const CALLS: [(Call, Wake, Receive, Send); NAMES] =
            [$(($name::call, $name::wake, $name::receive, $name::send)),*];

        /// The part of the symbols that identifies the functions of each number.
        pub(crate) const SYMBOLS: [&str; NAMES] = [$(concat!("::named::", stringify!($name), "::")),*];
    };
}

named! {
    m0 m1 m2 m3 m4 m5 m6 m7 m8 m9 m10 m11 m12 m13 m14 m15 m16 m17 m18 m19 m20 m21 m22 m23 m24 m25 m26 m27 m28 m29 m30
    m31 m32 m33 m34 m35 m36 m37 m38 m39 m40 m41 m42 m43 m44 m45 m46 m47 m48 m49 m50 m51 m52 m53 m54 m55 m56 m57 m58
    m59 m60 m61 m62 m63
}

#[cfg(test)]
mod tests {
    use forebay_graph::Gate;
    use forebay_packet::{Pool, PoolOptions};

    use super::*;

    /// A function and a port whose responses all differ from the default responses.
    struct Different;

    impl Function for Different {
        fn process(&mut self, _: &mut [Packet], _: &mut Context<'_>) {}

        fn begins(&self) -> bool {
            true
        }

        fn close(&mut self) -> Result<(), String> {
            Err("the function".to_owned())
        }

        fn effect(&self, _: &mut Packet) -> Option<Effect> {
            Some(Effect::to(Gate::FIRST))
        }
    }

    impl ScheduledSource for Different {
        fn saturate(&mut self) {}
    }

    impl Port for Different {
        fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
            Ready::Never
        }

        fn wait_on(&self) -> Waits<'_> {
            Waits::None
        }

        fn send(&mut self, _: &mut Batch, _: Ticks) {}

        fn in_flight(&self) -> usize {
            7
        }

        fn schedule(&mut self) -> Option<&mut dyn ScheduledSource> {
            Some(self)
        }

        fn is_endless(&self) -> bool {
            false
        }

        fn close(&mut self) -> Result<(), String> {
            Err("the port".to_owned())
        }
    }

    /// Regression test: `begins` of functions and `is_endless` of ports had the default responses.
    #[test]
    fn a_wrapped_function_or_port_responds_like_itself() {
        let mut function = Named::new(Box::new(Different), 0);
        assert_eq!((function.begins(), function.close()), (true, Err("the function".to_owned())));
        let pool = Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("memory");
        let mut packet = pool.take().expect("a chunk");
        assert_eq!(function.effect(&mut packet), Some(Effect::to(Gate::FIRST)));
        let mut port = NamedPort::new(Box::new(Different), Some(0), Arc::default());
        assert_eq!((port.in_flight(), port.is_endless(), port.close()), (7, false, Err("the port".to_owned())));
        assert!(port.schedule().is_some());
    }
}
