//! Calls of modules under names of their own, by which an instruction counter tells them apart: several modules may have one
//! function.

use std::hint::black_box;

use forebay_graph::{Context, Effect, Function};
use forebay_packet::Packet;

/// How many modules can be told apart in one run.
pub(crate) const NAMES: usize = 64;

type Call = fn(&mut dyn Function, &mut [Packet], &mut Context<'_>);
type Wake = fn(&mut dyn Function, &mut Context<'_>);

/// A module's function, called under the names of a number.
pub(crate) struct Named {
    function: Box<dyn Function>,
    call: Call,
    wake: Wake,
}

impl Named {
    /// `function` under the names of `number`, of which there are [`NAMES`].
    pub(crate) fn new(function: Box<dyn Function>, number: usize) -> Self {
        let (call, wake) = CALLS[number];
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

/// Makes, for each name, a module with a function `call` and another `wake`. What they do beside the call keeps them from
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
        })*

        const CALLS: [(Call, Wake); NAMES] = [$(($name::call, $name::wake)),*];

        /// What the functions of each number are called: part of their symbols.
        pub(crate) const SYMBOLS: [&str; NAMES] = [$(concat!("::named::", stringify!($name), "::")),*];
    };
}

named! {
    m0 m1 m2 m3 m4 m5 m6 m7 m8 m9 m10 m11 m12 m13 m14 m15 m16 m17 m18 m19 m20 m21 m22 m23 m24 m25 m26 m27 m28 m29 m30 m31
    m32 m33 m34 m35 m36 m37 m38 m39 m40 m41 m42 m43 m44 m45 m46 m47 m48 m49 m50 m51 m52 m53 m54 m55 m56 m57 m58 m59 m60
    m61 m62 m63
}
