//! Connects modules and ports according to the lines of `pipeline:`. Finds gates that lead nowhere and modules that no
//! packet reaches.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use forebay_graph::{Target, existing_names, listed, nearest};
use forebay_protocol::check::Fault;

use crate::faults::FaultCollector;
use crate::line::{self, DROP, Stop};
use crate::located::SourceLocation;
use crate::order;
use crate::wording::quote;
use crate::yaml::Node;

/// The properties of a port that lines depend on.
pub(crate) struct PortEnd {
    pub(crate) name: String,
    pub(crate) place: SourceLocation,
    /// Whether a setting created the port. Then the text has no port of this name.
    pub(crate) new: bool,
    /// Whether packets enter by the port, and whether packets leave by the port. `None` if its parameters have errors.
    pub(crate) ways: Option<(bool, bool)>,
}

/// The properties of a module that lines depend on.
pub(crate) struct ModuleEnd {
    pub(crate) name: String,
    pub(crate) place: SourceLocation,
    /// The gates. `None` if the module could not be created.
    pub(crate) gates: Option<Vec<String>>,
}

/// The modules and ports, with an index by name.
pub(crate) struct Ends {
    pub(crate) ports: Vec<PortEnd>,
    pub(crate) modules: Vec<ModuleEnd>,
    names: HashMap<String, Target>,
    /// By module, the number of each gate by name.
    gates: Vec<HashMap<String, usize>>,
    /// The remaining number of searches for a similar name. It is limited, because a hostile text could cause millions
    /// of searches.
    suggestions: Cell<u32>,
}

impl Ends {
    /// Creates the index. Adds an error for each name that is used twice or is not allowed.
    pub(crate) fn new(ports: Vec<PortEnd>, modules: Vec<ModuleEnd>, faults: &mut FaultCollector) -> Self {
        let mut names = HashMap::new();
        let ports_named = ports.iter().enumerate().map(|(index, end)| (&end.name, end.place, Target::Port(index)));
        let modules_named =
            modules.iter().enumerate().map(|(index, end)| (&end.name, end.place, Target::Module(index)));
        for (name, place, target) in ports_named.chain(modules_named) {
            if name == DROP {
                faults.add(place, "'drop' is the target of unwanted packets in `pipeline`: choose another name");
            } else if names.insert(name.clone(), target).is_some() {
                faults.add(
                    place,
                    format!("{} is the name of a port and of a module: each name is allowed once", quote(name)),
                );
            }
        }
        let index = |end: &ModuleEnd| end.gates.iter().flatten().cloned().zip(0..).collect();
        let gates = modules.iter().map(index).collect();
        Self { ports, modules, names, gates, suggestions: Cell::new(100) }
    }

    /// Returns the module or port called `name`. Otherwise returns a message with a suggestion, or with all names.
    pub(crate) fn find(&self, name: &str) -> Result<Target, String> {
        let found = self.names.get(name).copied();
        found.ok_or_else(|| {
            let ports = self.ports.iter().map(|end| end.name.as_str());
            let modules = self.modules.iter().map(|end| end.name.as_str());
            // A line may also name `drop`.
            let known = self.known(name, ports.chain(modules).chain([DROP]));
            format!("no module or port is called {}{known}", quote(name))
        })
    }

    /// Returns the index of the module called `name`. Otherwise returns a message. If `name` is a port, the message
    /// ends with `rule`, the reason why a port is not allowed.
    pub(crate) fn module(&self, name: &str, rule: &str) -> Result<usize, String> {
        match self.names.get(name) {
            Some(Target::Module(module)) => Ok(*module),
            Some(_) => Err(format!("{} is a port: {rule}", quote(name))),
            None => {
                let known = self.known(name, self.modules.iter().map(|end| end.name.as_str()));
                Err(format!("no module is called {}{known}", quote(name)))
            }
        }
    }

    /// Returns the end of a message that nothing is called `wrong`: a similar name, or else all `names`. Empty if no
    /// more searches are allowed.
    fn known<'a>(&self, wrong: &str, names: impl Iterator<Item = &'a str> + Clone) -> String {
        let near = self.nearest(wrong, names.clone());
        if near.is_empty() && self.suggestions.get() > 0 { format!(": {}", existing_names(names)) } else { near }
    }

    /// Returns a suggestion of a similar name, for a message. Empty if no name is similar, or if no more searches are
    /// allowed.
    fn nearest<'a>(&self, wrong: &str, names: impl Iterator<Item = &'a str>) -> String {
        let remaining = self.suggestions.get();
        self.suggestions.set(remaining.saturating_sub(1));
        if remaining > 0 { nearest(wrong, names) } else { String::new() }
    }

    /// Returns the number of a module's gate that a line or path names. `Ok(None)` if the module could not be created.
    pub(crate) fn gate(&self, module: usize, gate: &str) -> Result<Option<usize>, String> {
        let Some(gates) = &self.modules[module].gates else { return Ok(None) };
        let found = self.gates[module].get(gate).copied();
        found.map(Some).ok_or_else(|| {
            let near = self.nearest(gate, gates.iter().map(String::as_str));
            let name = &self.modules[module].name;
            format!(
                "module '{name}' has no gate {}{near}: it has {}",
                quote(gate),
                listed(gates.iter().map(String::as_str))
            )
        })
    }
}

/// An edge from a module to another module or to a port, with the place of its line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Edge {
    /// The index of the module.
    pub(crate) from: usize,
    /// The number of the gate. `None` if the module could not be created, so that its gates are not known.
    pub(crate) gate: Option<usize>,
    pub(crate) to: Target,
    pub(crate) place: SourceLocation,
}

/// The connections of modules and ports.
#[derive(Default)]
pub(crate) struct Wiring {
    /// The target of each port's packets.
    pub(crate) entries: Vec<Option<(Target, SourceLocation)>>,
    pub(crate) edges: Vec<Edge>,
    /// The target of each gate of each module; `None` if no line connects it.
    pub(crate) gates: Vec<Vec<Option<(Target, SourceLocation)>>>,
    /// Whether packets leave by each port.
    exits: Vec<bool>,
    /// Whether a line leads to each module, even if the line has errors.
    entered: Vec<bool>,
    /// The gates and ports after which a line has an error. No other error is reported for them. The gate is `None` for
    /// a port.
    astray: HashSet<(Target, Option<usize>)>,
}

impl Wiring {
    /// Reads the lines.
    pub(crate) fn read(ends: &Ends, lines: &[Node], faults: &mut FaultCollector) -> Self {
        let gates = ends.modules.iter().map(|end| vec![None; end.gates.as_ref().map_or(0, Vec::len)]).collect();
        let mut wiring = Self { entries: vec![None; ends.ports.len()], gates, ..Self::default() };
        (wiring.exits, wiring.entered) = (vec![false; ends.ports.len()], vec![false; ends.modules.len()]);
        // The schema check reports lines that are not text.
        for (text, place) in lines.iter().filter_map(|node| Some((node.as_text()?, node.place))) {
            match line::read(text) {
                Err(wrong) => faults.add(place, wrong),
                Ok(stops) if stops.len() == 1 => faults
                    .add(place, format!("{} leads nowhere: write a target, such as `{text} -> drop`", quote(text))),
                Ok(stops) => wiring.line(ends, &stops, place, faults),
            }
        }
        wiring
    }

    /// Reads one line, whose names are `stops`.
    fn line(&mut self, ends: &Ends, stops: &[Stop<'_>], place: SourceLocation, faults: &mut FaultCollector) {
        let mut from = None;
        for (index, stop) in stops.iter().enumerate() {
            let (first, last) = (index == 0, index + 1 == stops.len());
            let target = if stop.name == DROP { Ok(Target::Drop) } else { ends.find(stop.name) };
            let target = match target {
                Ok(target) => target,
                Err(wrong) => {
                    faults.add(place, wrong);
                    self.strays(ends, from.take());
                    continue;
                }
            };
            if let (Target::Port(port), true, false) = (target, last, first) {
                self.exits[port] = true;
            }
            let wrong = match target {
                Target::Drop if !last => {
                    Some("'drop' is always the end of a line: remove the rest of the line".to_owned())
                }
                Target::Port(_) if !first && !last => Some(format!(
                    "port '{}' is in the middle of a line: a port is allowed only at the start and at the end",
                    stop.name
                )),
                Target::Module(_) if last && stop.gate.is_some() => {
                    let (name, gate) = (stop.name, stop.gate.unwrap_or_default());
                    Some(format!(
                        "the line ends with a gate: write where '{name}[{gate}]' leads, such as `{name}[{gate}] -> \
                         drop`"
                    ))
                }
                Target::Drop | Target::Port(_) if stop.gate.is_some() => {
                    Some(format!("'{}' has no gates: only modules have gates", stop.name))
                }
                _ => None,
            };
            if let (Target::Module(module), false) = (target, first) {
                self.entered[module] = true;
            }
            if let Some(wrong) = wrong {
                faults.add(place, wrong);
                self.strays(ends, from.take());
                continue;
            }
            if let Some((before, gate)) = from {
                self.join(ends, before, gate, target, place, faults);
            }
            from = Some((target, stop.gate));
        }
    }

    /// Records that the line has an error after this gate or port. Then `check` does not also report that the gate or
    /// port leads nowhere.
    fn strays(&mut self, ends: &Ends, from: Option<(Target, Option<&str>)>) {
        let Some((from, gate)) = from else { return };
        let gate = match (from, gate) {
            (Target::Module(module), Some(gate)) => ends.gate(module, gate).ok().flatten(),
            (Target::Module(_), None) => Some(0),
            _ => None,
        };
        self.astray.insert((from, gate));
    }

    /// Connects a gate or port to the next module or port of a line.
    fn join(
        &mut self,
        ends: &Ends,
        from: Target,
        gate: Option<&str>,
        to: Target,
        place: SourceLocation,
        faults: &mut FaultCollector,
    ) {
        if let Target::Port(port) = to {
            let end = &ends.ports[port];
            if end.ways.is_some_and(|(_, sends)| !sends) {
                let wrong = format!("no packet can leave by port '{}', which only receives", end.name);
                faults.add_fault(place, Fault::with_hint(wrong, "end the line with another port or `drop`"));
            }
        }
        let (slot, what) = match from {
            Target::Port(port) => (&mut self.entries[port], format!("port '{}'", ends.ports[port].name)),
            Target::Module(module) => {
                let name = &ends.modules[module].name;
                let gate = match (gate, &ends.modules[module].gates) {
                    (Some(gate), _) => ends.gate(module, gate),
                    (None, Some(gates)) if gates.len() > 1 => {
                        let gates = listed(gates.iter().map(String::as_str));
                        Err(format!("module '{name}' has several gates: write `{name}[gate]` with one of {gates}"))
                    }
                    (None, gates) => Ok(gates.as_ref().map(|_| 0)),
                };
                match gate {
                    Err(wrong) => return faults.add(place, wrong),
                    Ok(None) => return self.edges.push(Edge { from: module, gate: None, to, place }),
                    Ok(Some(gate)) => {
                        self.edges.push(Edge { from: module, gate: Some(gate), to, place });
                        (
                            &mut self.gates[module][gate],
                            format!("gate '{}' of module '{name}'", ends.gate_name(module, gate)),
                        )
                    }
                }
            }
            // The error was reported already: nothing follows `drop`.
            Target::Drop => return,
        };
        if let Some((_, first)) = slot {
            let line =
                if let SourceLocation::Line(line, _) = first { format!(", in line {line}") } else { String::new() };
            faults.add(place, format!("{what} has a target already{line}: only one target is allowed"));
        } else {
            *slot = Some((to, place));
        }
    }

    /// Adds errors for gates and ports that lead nowhere, and for modules to which no line leads. Must be called after
    /// all lines have been read.
    pub(crate) fn check(&self, ends: &Ends, faults: &mut FaultCollector) {
        let modules = ends.modules.iter().zip(self.gates.iter().zip(&self.entered));
        for (module, (end, (gates, entered))) in modules.enumerate() {
            let name = &end.name;
            if !entered {
                // The modules behind this module are not reached either. They are not reported, because only the line
                // to this module is missing.
                let wrong = format!("no packet reaches module '{name}'");
                faults.add_fault(
                    end.place,
                    Fault::with_hint(wrong, "write a line that leads to it, or remove the module"),
                );
                if gates.iter().all(Option::is_none) {
                    continue;
                }
            }
            let nowhere = |(gate, (_, to)): &(usize, (&String, &Option<_>))| {
                to.is_none() && !self.astray.contains(&(Target::Module(module), Some(*gate)))
            };
            let names = end.gates.iter().flatten().zip(gates).enumerate().filter(nowhere);
            let names: Vec<_> = names.map(|(_, (name, _))| name.as_str()).collect();
            if let [first, ..] = names[..] {
                let (gate, leads) = if names.len() == 1 { ("gate", "leads") } else { ("gates", "lead") };
                let hint = if gates.len() == 1 { name.clone() } else { format!("{name}[{first}]") };
                faults.add(
                    end.place,
                    format!(
                        "{gate} {} of module '{name}' {leads} nowhere: write a line such as `{hint} -> drop`",
                        listed(names)
                    ),
                );
            }
        }
        let mut sources = 0;
        for (port, end) in ends.ports.iter().enumerate() {
            let (name, entry) = (&end.name, self.entries[port]);
            let Some((receives, _)) = end.ways else {
                sources += 1;
                continue;
            };
            sources += usize::from(receives);
            match entry {
                None if self.astray.contains(&(Target::Port(port), None)) => {}
                // A port that only a setting creates is usually a misspelt name of another port.
                None if end.new && (receives || !self.exits[port]) => {
                    let own = ends.ports.iter().filter(|end| !end.new);
                    let own = listed(own.map(|end| end.name.as_str()));
                    let message = format!(
                        "the setting makes a new port '{name}', which no line begins with: the configuration's own \
                         ports are {own}"
                    );
                    faults.add(end.place, message);
                }
                None if !receives && !self.exits[port] => {
                    let wrong = format!("port '{name}' is not used");
                    let fault = Fault::with_hint(wrong, "write a line that ends with it, or remove the port");
                    faults.add_fault(end.place, fault);
                }
                None if receives => {
                    let message = format!(
                        "packets that enter by port '{name}' lead nowhere: write a line that starts with it, such as \
                         `{name} -> drop`"
                    );
                    faults.add(end.place, message);
                }
                Some((_, place)) if !receives => {
                    let wrong = format!("no packet enters by port '{name}', which only sends");
                    faults.add_fault(place, Fault::with_hint(wrong, "start the line with another port"));
                }
                _ => {}
            }
        }
        if sources == 0 && !ends.ports.is_empty() {
            let fault = Fault::with_hint("no packet enters by any port", "add a port that receives");
            faults.add_fault(ends.ports[0].place, fault);
        }
    }
}

impl Ends {
    /// Returns the name of a gate; empty if the module could not be created.
    fn gate_name(&self, module: usize, gate: usize) -> &str {
        self.modules[module].gates.as_ref().map_or("", |gates| &gates[gate])
    }
}

/// Returns the modules in topological order. Adds an error for each cycle, and then returns an empty list.
pub(crate) fn sort(ends: &Ends, wiring: &Wiring, faults: &mut FaultCollector) -> Vec<usize> {
    let mut successors = vec![Vec::new(); ends.modules.len()];
    for edge in &wiring.edges {
        if let Target::Module(to) = edge.to {
            successors[edge.from].push(to);
        }
    }
    order::topological(&successors).unwrap_or_else(|cycles| {
        let places: HashMap<_, _> = wiring.edges.iter().map(|edge| ((edge.from, edge.to), edge.place)).collect();
        for cycle in cycles {
            let place = places.get(&(cycle[0], Target::Module(cycle[1 % cycle.len()])));
            let name = |module: &usize| ends.modules[*module].name.as_str();
            let names: Vec<_> = cycle.iter().chain([&cycle[0]]).map(name).collect();
            let shown = if names.len() <= 16 {
                names.join(" -> ")
            } else {
                format!("{} -> … -> {}", names[..8].join(" -> "), names[names.len() - 8..].join(" -> "))
            };
            let wrong = format!("packets would go in a circle, {shown}");
            let fault = Fault::with_hint(wrong, "remove one of these connections");
            faults.add_fault(place.copied().unwrap_or(ends.modules[cycle[0]].place), fault);
        }
        Vec::new()
    })
}
