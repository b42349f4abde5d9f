//! Reads YAML texts that are not configurations in the same way as configurations: checks them against a schema, and
//! knows the place of each value.
//!
//! If such a text has the sections `state` and `modules`, they have the same syntax as in a configuration, and are
//! created in the same way.

use forebay_graph::SetupEnvironment;
use forebay_protocol::check::Fault;
use forebay_units::Frequency;
use serde_json::Value;

use crate::conform::Rules;
use crate::create::{make_modules, make_state, unused_state};
use crate::faults::{FaultCollector, parts};
use crate::identity::Stamps;
use crate::located::LocatedFault;
use crate::problems::Problems;
use crate::shown::block_text;
use crate::source::Source;
use crate::workers::Workers;
use crate::yaml::{self, Node};

/// A text that conforms to its schema.
pub struct Document {
    source: Source,
    root: Node,
}

/// A module with its function and that function's gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedModule {
    /// Its name.
    pub name: String,
    /// Its function.
    pub function: &'static str,
    /// The names of its gates.
    pub gates: Vec<String>,
}

impl Document {
    /// Reads a text, applies its settings, and checks it against the rules of a JSON Schema.
    ///
    /// # Errors
    /// Returns an error if the text cannot be read or violates the schema.
    pub fn read(source: &Source, rules: &Rules) -> Result<Self, Problems> {
        let mut faults = FaultCollector::default();
        let mut root = source.tree(&mut faults);
        if let Some(root) = &mut root {
            faults.check(rules, root);
            root.prune();
        }
        faults.finish(source.file(), source.text(), source.sets())?;
        let root = root.expect("a text without a tree has a problem");
        Ok(Self { source: source.clone(), root })
    }

    /// Returns the values of the text.
    #[must_use]
    pub fn value(&self) -> Value {
        self.root.to_json()
    }

    /// Returns the source of the text.
    #[must_use]
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// Returns faults of values with their places. The path of each fault, for example `chains[0].rate`, determines its
    /// place and is then removed.
    #[must_use]
    pub fn problems(&self, faults: impl IntoIterator<Item = Fault>) -> Problems {
        let located = faults.into_iter().map(|fault| {
            let place = self.root.place_of(parts(&fault.path));
            LocatedFault::from_fault(place, Fault { path: String::new(), ..fault })
        });
        let mut collected = FaultCollector::default();
        collected.located.extend(located);
        let Source { file, text, sets, .. } = &self.source;
        collected.finish(file, text, sets).expect_err("there are faults")
    }

    /// Creates the modules and the state of the text, as the check of a configuration does.
    ///
    /// # Errors
    /// Returns the errors of their parameters, and of the files that they name.
    pub fn modules(&self) -> Result<Vec<CheckedModule>, Problems> {
        let mut faults = FaultCollector::default();
        let mut environment = SetupEnvironment::new(Frequency::new(1e9));
        environment.files.base.clone_from(&self.source.base);
        (environment.simulated, environment.checking) = (true, true);
        let workers = Workers::read(&self.root, &mut faults);
        let stamps = Stamps::of(&self.root, &self.source.base);
        make_state(&self.root, &stamps, None, &mut environment, &mut faults);
        let (made, ends) = make_modules(&self.root, &workers, &mut environment, &mut faults);
        unused_state(&self.root, &environment, &ends, &mut faults);
        faults.finish(&self.source.file, &self.source.text, &self.source.sets)?;
        let modules = made.into_iter().flatten().zip(ends);
        let modules = modules.map(|(made, end)| CheckedModule {
            name: end.name,
            function: made.kind.name,
            gates: end.gates.unwrap_or_default(),
        });
        Ok(modules.collect())
    }
}

/// Returns a mapping as a readable configuration text. The text contains secrets.
#[must_use]
pub fn written(value: &Value) -> String {
    // JSON text is YAML text.
    yaml::parse(&value.to_string(), &mut Vec::new()).map(|node| block_text(&node)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        let part = |name: &str| crate::schema()["properties"][name].clone();
        json!({
            "type": "object",
            "properties": { "state": part("state"), "modules": part("modules"), "count": { "type": "integer" } },
            "additionalProperties": false,
        })
    }

    fn read(text: &str) -> Result<Document, Problems> {
        Document::read(&Source::new(text, "chains.yaml", ""), &Rules::new(schema()))
    }

    #[test]
    fn modules_are_created_and_errors_have_places() {
        let text = "count: 3\nmodules:\n  fw: { acl: { rules: [permit any], denied: gate } }\n  t: { ttl: }\n";
        let document = read(text).expect("it conforms");
        let modules = document.modules().expect("they can be made");
        assert_eq!(modules[0].gates, ["0", "denied"]);
        assert_eq!((modules[1].name.as_str(), modules[1].function), ("t", "ttl"));
        let problems = document.problems([Fault { path: "count".to_owned(), ..Fault::new("3: allowed is 4") }]);
        assert_eq!(problems.to_string(), "chains.yaml:1: 3: allowed is 4");
        let wrong = read("modules: { fw: { acl: { rules: [prmit any] } } }").expect("it conforms");
        let wrong = wrong.modules().expect_err("no rule").to_string();
        assert!(wrong.starts_with("chains.yaml:1: modules.fw.acl.rules[0]: "), "{wrong}");
        let unknown = read("cuont: 3\n").map(|_| ()).expect_err("an unknown key").to_string();
        assert!(unknown.starts_with("chains.yaml:1: unknown key 'cuont' (did you mean 'count'?)"), "{unknown}");
    }

    #[test]
    fn written_text_reads_back_the_same() {
        let value = json!({ "modules": { "fw": { "acl": { "rules": ["permit any", "no: \"1\"\n"] } } }, "count": 1.5 });
        let source = Source::new(written(&value), "written", "");
        assert_eq!(source.tree(&mut FaultCollector::default()).map(|node| node.to_json()), Some(value));
    }
}
