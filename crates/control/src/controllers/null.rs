//! `null`: packets never wait.

use forebay_graph::{Controller, DeclareController, SetupError, register};
use forebay_protocol::{ChangeReason, Decision, Layout, Snapshot};

use super::{NoParams, set_buffers};

/// Sets all triggers to 0.
pub(crate) struct Null;

impl Controller for Null {
    fn decide(&mut self, layout: &Layout, snapshot: &Snapshot, _: f64, actions: &mut Decision) {
        set_buffers(layout, snapshot, actions, |_| (0, None, ChangeReason::Rule));
    }
}

impl DeclareController for Null {
    type Params = NoParams;
    const NAME: &'static str = "null";
    const SUMMARY: &'static str = "packets never wait: all triggers are 0";
    const HELP: &'static str = "A baseline: the least delay, and the most calls.";
    const EXAMPLE: &'static str = "{}";

    fn new(_: NoParams) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

register!(controller Null);
