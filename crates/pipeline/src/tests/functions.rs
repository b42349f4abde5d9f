//! Functions, a port and a kind of state for these tests only. They do not change packets.

use std::sync::Arc;

use forebay_graph::{
    Context, Declare, DeclarePort, DeclareState, Function, Intake, Port, PortCounters, Ready, Setup, SetupError,
    StateKind, Waits, register,
};
use forebay_packet::{Batch, Packet};
use forebay_units::{Nanos, Ticks};
use schemars::JsonSchema;
use serde::Deserialize;

/// Parameters of `test_pass`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PassParams {
    /// A span of time.
    #[serde(default)]
    after: Option<Nanos>,
    /// The name of a `test_table`.
    #[serde(default)]
    table: Option<String>,
}

struct Pass {
    #[allow(dead_code, reason = "holding the reference is its use")]
    table: Option<Arc<Table>>,
}

impl Declare for Pass {
    type Params = PassParams;
    const NAME: &'static str = "test_pass";
    const SUMMARY: &'static str = "passes everything";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ after: 3us }";
    const STATE: StateKind = StateKind::None;
    fn new(params: PassParams, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.after == Some(Nanos(0)) {
            return Err(SetupError::at("after", "'0us' is no time: allowed is more"));
        }
        let table = params.table.map(|name| setup.state("table", &name)).transpose()?;
        Ok(Self { table })
    }
}

impl Function for Pass {
    fn process(&mut self, _: &mut [Packet], _: &mut Context<'_>) {}
}

register!(Pass);

/// Has state that every packet may change.
struct Whole;

impl Declare for Whole {
    type Params = PassParams;
    const NAME: &'static str = "test_global";
    const SUMMARY: &'static str = "passes everything";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{}";
    const STATE: StateKind = StateKind::Global;
    fn new(_: PassParams, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self)
    }
}

impl Function for Whole {
    fn process(&mut self, _: &mut [Packet], _: &mut Context<'_>) {}
}

register!(Whole);

/// Parameters of `test_split`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SplitParams {
    /// The gates' names.
    gates: Vec<String>,
    /// The action.
    #[allow(dead_code, reason = "only its form matters")]
    #[serde(default)]
    action: Action,
    /// The number of times.
    #[allow(dead_code, reason = "only its range matters")]
    #[schemars(range(max = 9))]
    #[serde(default)]
    times: u8,
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Lets packets through.
    #[default]
    Permit,
    /// Drops packets.
    Deny,
}

struct Split;

impl Declare for Split {
    type Params = SplitParams;
    const NAME: &'static str = "test_split";
    const SUMMARY: &'static str = "has the configured gates";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ gates: [a, b] }";
    const STATE: StateKind = StateKind::None;
    fn new(params: SplitParams, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let gates = params.gates;
        if let Some(index) = gates.iter().position(|gate| gate == "bad") {
            return Err(SetupError::at(format!("gates[{index}]"), "'bad' is not allowed"));
        }
        setup.gates(gates)?;
        Ok(Self)
    }
}

impl Function for Split {
    fn process(&mut self, _: &mut [Packet], _: &mut Context<'_>) {}
}

register!(Split);

/// Parameters of `test_table`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TableParams {
    /// How many entries.
    size: usize,
}

struct Table;

impl DeclareState for Table {
    type Params = TableParams;
    const NAME: &'static str = "test_table";
    const SUMMARY: &'static str = "a table";
    const EXAMPLE: &'static str = "{ size: 3 }";
    fn new(params: TableParams, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.size == 0 { Err(SetupError::at("size", "0 entries: allowed are more")) } else { Ok(Self) }
    }
}

register!(state Table);

/// Parameters of `test_port`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct LineParams {
    /// Whether packets enter.
    receives: bool,
    /// Whether packets leave.
    sends: bool,
    /// Whether it can be opened.
    opens: bool,
}

impl Default for LineParams {
    fn default() -> Self {
        Self { receives: true, sends: true, opens: true }
    }
}

struct Line;

impl DeclarePort for Line {
    type Params = LineParams;
    const NAME: &'static str = "test_port";
    const SUMMARY: &'static str = "a port";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{ receives: true }";
    fn receives(params: &LineParams) -> bool {
        params.receives
    }
    fn sends(params: &LineParams) -> bool {
        params.sends
    }
    fn new(params: LineParams, _: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        if params.opens { Ok(Self) } else { Err(SetupError::at("opens", "there is no such device")) }
    }
}

impl Port for Line {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Never
    }
    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, batch: &mut Batch, _: Ticks) {
        batch.clear();
    }
}

register!(port Line);
