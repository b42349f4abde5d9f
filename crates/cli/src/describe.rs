//! `forebay describe`: explains a function, port, use case, controller or state type.

mod parameters;

use std::io::Write;

use anyhow::bail;
use forebay_graph::{
    ControllerDeclaration, Declaration, PortDeclaration, Reason, StateDeclaration, controllers, functions, ports,
    states,
};
use forebay_pipeline::{UseCase, nearest, usecases};
use serde_json::{Value, json};

use crate::printed;
use parameters::{Parameter, parameters};

/// A component that can be described.
enum Thing {
    Function(&'static Declaration),
    Port(&'static PortDeclaration),
    State(&'static StateDeclaration),
    UseCase(&'static UseCase),
    Controller(&'static ControllerDeclaration),
}

/// Describes every component called `name`, because components of several types may share a name.
pub(crate) fn describe(name: &str, as_json: bool) -> anyhow::Result<()> {
    let things = all();
    let found: Vec<_> =
        things.iter().filter(|thing| thing.name() == name.strip_prefix("usecase:").unwrap_or(name)).collect();
    if found.is_empty() {
        let near = nearest(name, things.iter().map(Thing::name));
        bail!(
            "'{name}' is unknown{near}; names are in `forebay list functions`, `ports`, `usecases`, `state`, \
             `controllers`"
        );
    }
    let mut out = printed::out();
    for (number, thing) in found.into_iter().enumerate() {
        if as_json {
            writeln!(out, "{}", thing.to_json())?;
        } else {
            write!(out, "{}{}", if number > 0 { "\n" } else { "" }, thing.to_text())?;
        }
    }
    Ok(())
}

fn all() -> Vec<Thing> {
    let functions = functions().into_iter().map(Thing::Function);
    let ports = ports().into_iter().map(Thing::Port);
    let states = states().into_iter().map(Thing::State);
    let controllers = controllers().into_iter().map(Thing::Controller);
    functions.chain(ports).chain(states).chain(usecases().iter().map(Thing::UseCase)).chain(controllers).collect()
}

impl Thing {
    fn name(&self) -> &'static str {
        match self {
            Self::Function(it) => it.name,
            Self::Port(it) => it.name,
            Self::State(it) => it.name,
            Self::UseCase(it) => it.name,
            Self::Controller(it) => it.name,
        }
    }

    /// Returns the type of component, its summary, help and example.
    fn words(&self) -> (&'static str, &'static str, &'static str, String) {
        let in_section = |section: &str, name: &str, kind: &str, example: &str| {
            // An example of several lines is indented below its key.
            let lines: Vec<_> = example.lines().collect();
            match lines[..] {
                [] | [""] => format!("{section}:\n  {name}: {{ {kind}: }}\n"),
                [one] => format!("{section}:\n  {name}: {{ {kind}: {one} }}\n"),
                _ => {
                    let indented: String = lines.iter().map(|line| format!("      {line}\n")).collect();
                    format!("{section}:\n  {name}:\n    {kind}:\n{indented}")
                }
            }
        };
        match self {
            Self::Function(it) => ("function", it.summary, it.help, in_section("modules", "name", it.name, it.example)),
            Self::Port(it) => ("port", it.summary, it.help, in_section("ports", "name", it.name, it.example)),
            Self::State(it) => ("state", it.summary, "", in_section("state", "name", it.name, it.example)),
            Self::UseCase(it) => {
                let size = it.dimensions().into_iter().map(|name| format!(" --set {name}=8")).collect::<String>();
                ("use case", it.summary, "", format!("forebay run usecase:{}{size}\n", it.name))
            }
            Self::Controller(it) => {
                let named = match it.example {
                    "{}" => it.name.to_owned(),
                    parameters => format!("{{ {}: {parameters} }}", it.name),
                };
                ("controller", it.summary, it.help, format!("control: {{ batching: {named} }}\n"))
            }
        }
    }

    fn parameters(&self) -> Vec<Parameter> {
        match self {
            Self::Function(it) => parameters(it.schema),
            Self::Port(it) => parameters(it.schema),
            Self::State(it) => parameters(it.schema),
            Self::UseCase(it) => it.parameters.iter().map(Parameter::from).collect(),
            Self::Controller(it) => parameters(it.schema),
        }
    }

    /// Returns the scheduler that a controller needs, if any.
    fn scheduler(&self) -> Option<String> {
        let Self::Controller(it) = self else { return None };
        let named = serde_json::to_value(it.scheduler?).ok()?;
        named.as_str().map(str::to_owned)
    }

    fn to_text(&self) -> String {
        let (kind, summary, help, example) = self.words();
        let mut text = format!("{} ({kind}): {summary}\n", self.name());
        if !help.is_empty() {
            text.push_str(&format!("\n{}\n", help.trim_end()));
        }
        let parameters = self.parameters();
        text.push_str("\nParameters:\n");
        if parameters.is_empty() {
            text.push_str("  none\n");
        }
        for Parameter { name, kind, required, default, help } in &parameters {
            let default = match (required, default) {
                (true, _) => ", required".to_owned(),
                (false, Some(default)) => format!(", by default {default}"),
                (false, None) => String::new(),
            };
            text.push_str(&format!("  {name} ({kind}{default})\n"));
            help.lines().for_each(|line| text.push_str(&format!("      {line}\n")));
        }
        if let Self::Function(it) = self {
            text.push_str(&function_text(it));
        }
        if let Some(scheduler) = self.scheduler() {
            text.push_str(&format!("\nNeeds `scheduler: {scheduler}`.\n"));
        }
        text.push_str("\nExample:\n");
        example.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        text
    }

    fn to_json(&self) -> Value {
        let (kind, summary, help, example) = self.words();
        let reasons = |reasons: &[Reason]| -> Vec<Value> {
            reasons.iter().map(|reason| json!({ "name": reason.name, "help": reason.help })).collect()
        };
        let mut object = json!({
            "name": self.name(),
            "kind": kind,
            "summary": summary,
            "help": help,
            "parameters": self.parameters(),
            "example": example,
        });
        if let Self::Function(it) = self {
            object["drops"] = reasons(it.drops).into();
            object["creates"] = reasons(it.creates).into();
            object["consumes"] = reasons(it.consumes).into();
            object["reads"] = json!(it.reads);
            object["writes"] = json!(it.writes);
            object["state"] = json!(it.state);
            object["effect"] = it.effect.into();
            object["folds"] = it.folds.into();
        }
        if let Self::Controller(_) = self {
            object["scheduler"] = json!(self.scheduler());
        }
        object
    }
}

/// Formats the properties that only functions have.
fn function_text(function: &Declaration) -> String {
    let mut text = String::new();
    for (heading, reasons) in
        [("Drops", function.drops), ("Creates", function.creates), ("Consumes", function.consumes)]
    {
        if !reasons.is_empty() {
            text.push_str(&format!("\n{heading}:\n"));
            reasons.iter().for_each(|reason| text.push_str(&format!("  {}: {}\n", reason.name, reason.help)));
        }
    }
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    text.push_str(&format!("\nMetadata words: reads {}; writes {}\n", list(function.reads), list(function.writes)));
    let state = serde_json::to_value(function.state).unwrap_or_default();
    text.push_str(&format!("State: {}\n", state.as_str().unwrap_or("n/a")));
    let yes = |it: bool| if it { "yes" } else { "no" };
    text.push_str(&format!("Equal branches run as one (fold): {}\n", yes(function.folds)));
    text.push_str(&format!("Decisions can be replayed (effect): {}\n", yes(function.effect)));
    text
}
