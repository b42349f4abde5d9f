//! Formats the path of a traced packet through the modules.

use std::fmt::Write;

use forebay_graph::{Decision, DropSite, Telemetry};
use forebay_units::{Frequency, Ticks};

use crate::decode::{changes, fields};
use crate::trace::{Call, End, Story};

/// The names of a pipeline's modules, ports and flows, by index.
#[derive(Debug, Default)]
pub struct Names {
    modules: Vec<ModuleNames>,
    ports: Vec<String>,
    flows: Vec<String>,
}

#[derive(Debug)]
struct ModuleNames {
    name: String,
    function: &'static str,
    gates: Vec<String>,
}

impl Names {
    /// Returns the names in a graph.
    pub fn of(telemetry: &Telemetry) -> Self {
        let modules = telemetry.modules.iter().map(|module| ModuleNames {
            name: module.name.clone(),
            function: module.kind,
            gates: module.gates.clone(),
        });
        Self {
            modules: modules.collect(),
            ports: telemetry.ports.iter().map(|port| port.name.clone()).collect(),
            flows: telemetry.flows.iter().map(|flow| flow.plan.name.clone()).collect(),
        }
    }

    /// Returns the name of a module, or `?` if the index is unknown.
    fn module(&self, module: usize) -> &str {
        self.modules.get(module).map_or("?", |names| &names.name)
    }

    /// Returns the drop reason with the module or port, as in the report: `module.reason`, `port.refused`, `unwanted`,
    /// or `no_gate`.
    pub fn reason(&self, site: DropSite, reason: &str) -> String {
        match site {
            // `no_gate` is a defect of a function: it returned a gate that does not exist. These drops are counted for
            // the whole worker, so the text has no module.
            DropSite::Module(_) if reason == "no_gate" => reason.to_owned(),
            DropSite::Module(module) => format!("{}.{reason}", self.module(module)),
            // An index equal to the number of ports stands for the packets that the configuration drops (`unwanted`).
            DropSite::Port(port) => self.ports.get(port).map_or(reason.to_owned(), |name| format!("{name}.{reason}")),
        }
    }
}

impl Story {
    /// Formats the story in several lines. `start` is the start of the run, and `frequency` that of the workers' clock.
    pub fn text(&self, start: Ticks, frequency: Frequency) -> String {
        let mut text = String::new();
        let port = self.names.ports.get(self.port).map_or("?", String::as_str);
        let micros = frequency.micros(self.arrival.since(start).0 as f64);
        let (names, end) = &self.end;
        let flow = match *end {
            End::Left(_, Some(flow)) => names.flows.get(flow).map_or("", String::as_str),
            _ => "n/a",
        };
        let _ = writeln!(text, "packet {} from {port} at {micros:.3} us, flow {flow}", self.number);
        let _ = writeln!(text, "  {}", summary(&self.frame));
        self.calls.iter().for_each(|call| call.write(&mut text));
        let end = match *end {
            End::Left(port, _) => format!("left by {}", names.ports.get(port).map_or("?", String::as_str)),
            End::Dropped(site, reason) => format!("dropped: {}", names.reason(site, reason)),
            End::Consumed(module, reason) => format!("consumed: {}.{reason}", names.module(module)),
            End::Unfinished => "still in flight when the trace ended".to_owned(),
        };
        let _ = writeln!(text, "  {end}");
        text
    }
}

impl Call {
    /// Appends the lines of a call: the module, the size of the batch, the gate, and the changes of the frame.
    fn write(&self, text: &mut String) {
        let known = self.names.modules.get(self.module);
        let function = known.map_or("?", |names| names.function);
        let gate = match self.decision {
            Decision::Out(gate) => {
                let gates = known.map_or(&[][..], |names| &names.gates);
                // A single gate needs no name.
                if gates.len() == 1 {
                    String::new()
                } else {
                    gates.get(gate).map_or(" → no such gate".to_owned(), |gate| format!(" → [{gate}]"))
                }
            }
            Decision::Hold => " → held".to_owned(),
            Decision::Drop(_) => " → dropped".to_owned(),
            Decision::Consume(_) => " → consumed".to_owned(),
        };
        let name = self.names.module(self.module);
        let _ = writeln!(text, "  {name} ({function}), {} in the batch{gate}", self.batch);
        for change in changes(&self.before, &self.after) {
            let _ = writeln!(text, "      {change}");
        }
    }
}

/// Formats a frame's headers in one line.
pub fn summary(frame: &[u8]) -> String {
    let shown = ["length", "eth.src", "eth.dst", "vlan.outer.id", "vlan.id", "eth.type"];
    let skipped = ["ipv4.dscp", "ipv4.ecn", "ipv4.length", "ipv4.id", "ipv4.fragment", "ipv4.checksum"];
    let fields = fields(frame);
    let wanted = fields.iter().filter(|field| {
        let above = !field.name.starts_with("eth.") && !field.name.starts_with("vlan");
        shown.contains(&field.name.as_str()) || (above && !skipped.contains(&field.name.as_str()))
    });
    wanted.map(|field| format!("{} {}", field.name, field.value)).collect::<Vec<_>>().join("  ")
}
