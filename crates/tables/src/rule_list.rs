//! A list of rules in a module: from the configuration to a form that workers read while the control plane changes it.
//!
//! The rules and their compiled forms are in [`crate::acl`]. This module adds the parameters, the counters, the table
//! by which operators change the list, and the keys of packets.

use std::sync::Arc;

use forebay_graph::files::{MOST_RULES, read_text};
use forebay_graph::{Reader, Setup, SetupError, on_one_line};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod judge;
mod keys;
mod list;
mod rest;
mod rules;

use crate::acl::{BuildError, Decision, Hits, RuleAddress, rule_file, synthetic};
use crate::parameters::{LISTED, of_elements};
pub use judge::Judge;
pub use keys::{key4, key6, plain_key4};
pub use list::{Form, List, Log, Needs};
use rules::RuleTable;

/// The source of the rules.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a file's name, a list of rules, or { synthetic: number of rules, seed: number }"
)]
pub enum Rules {
    /// A file, relative to the configuration.
    File(String),
    /// The lines of such a file.
    Inline(Vec<String>),
    /// Generated rules, like those of ClassBench. The same seed generates the same list.
    Synthetic(Synthetic),
}

/// Parameters of generated rules.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Synthetic {
    /// The number of rules, 1 to 100 000.
    synthetic: usize,
    /// The seed of the generator.
    #[serde(default)]
    seed: u64,
}

/// A rule list with the counters of one module.
pub struct RuleList {
    /// The rules, as one worker reads them.
    pub rules: Reader<List, Log>,
    /// Counters of the rules of IPv4.
    pub hits4: Hits,
    /// Counters of the rules of IPv6.
    pub hits6: Hits,
}

impl Rules {
    /// Reads, checks and compiles the rules. `default` is the decision about packets that no rule decides about.
    fn compile(&self, default: Decision, setup: &Setup<'_>) -> Result<List, SetupError> {
        let file = match self {
            Rules::Synthetic(Synthetic { synthetic: count, seed }) => {
                if !(1..=100_000).contains(count) {
                    return Err(SetupError::wrong("rules.synthetic", count, format!("{count} rules"), "1 to 100000"));
                }
                rule_file::RuleFile { v4: synthetic::rules(*count, *seed), ..rule_file::RuleFile::default() }
            }
            Rules::Inline(lines) => {
                let parsed = rule_file::parse(LISTED, lines.join("\n").as_bytes());
                parsed.map_err(|errors| of_elements("rules", lines, &errors.to_string()))?
            }
            Rules::File(name) if is_rule(name) => {
                let message =
                    format!("a single text is the name of a file, but this is a rule; write rules: ['{name}']");
                return Err(SetupError::at("rules", message));
            }
            Rules::File(name) => {
                let path = setup.path("rules", name)?;
                let shown = on_one_line(&path.display().to_string());
                let bytes = read_text(&path, MOST_RULES)
                    .map_err(|error| SetupError::at("rules", format!("{shown}: {error}")))?;
                rule_file::parse(&shown, &bytes).map_err(|errors| SetupError::lines("rules", &errors.to_string()))?
            }
        };
        let build_error = |error: BuildError| SetupError::at("rules", error.to_string());
        List::of(file.v4, file.v6, file.sets, default, setup.secret()).map_err(build_error)
    }
}

impl RuleList {
    /// Compiles rules, creates their counters, and puts the rules into the module's table with the name `table`.
    /// `default` is the decision about IP packets that no rule decides about. All workers of a module share the rules
    /// and the table. Modules with equal parameters share the compiled list.
    ///
    /// # Errors
    /// Rules that cannot be read, parsed or compiled, as faults of the parameter `rules`.
    pub fn new(rules: &Rules, default: Decision, table: &str, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        // Equal parameters mean equal rules: files do not change while a pipeline is being built.
        let key = format!("acl {default:?} {}", serde_json::to_string(rules).unwrap_or_default());
        let list = setup.once(&key, |setup| rules.compile(default, setup))?;
        let list_table = setup.once_per_module(&key, |setup| {
            let too_costly = setup.gauges("compiling given up", ["IPv4", "IPv6"].map(str::to_owned));
            Ok(RuleTable::of(Arc::clone(&list), too_costly).synthetic(matches!(rules, Rules::Synthetic(_))))
        })?;
        let hits4 = setup.entry_counters("rules, IPv4", numbered(&list.v4));
        let hits6 = setup.entry_counters("rules, IPv6", numbered(&list.v6));
        let [added4, added6] = ["IPv4", "IPv6"].map(|family| setup.counters("rules added", [family.to_owned()]));
        let reader = list_table.reader();
        setup.table(table, list_table);
        let (hits4, hits6) = (Hits::over(hits4, added4), Hits::over(hits6, added6));
        Ok(Self { rules: reader, hits4, hits6 })
    }
}

/// Returns true if a text is probably a rule, written where the name of a file is expected.
fn is_rule(text: &str) -> bool {
    let mut words = text.split_whitespace();
    let first = words.next().unwrap_or_default();
    let begins = first.starts_with('@') || ["permit", "deny", "drop", "count", "allow", "set"].contains(&first);
    begins && words.next().is_some()
}

/// Returns the name of each rule's counter: the rule's index and the rule.
fn numbered<A: RuleAddress>(list: &Form<A>) -> impl Iterator<Item = String> {
    let rules = list.rules().unwrap_or_default();
    rules.iter().enumerate().map(|(at, rule)| format!("{at}: {rule}"))
}

#[cfg(test)]
mod tests;
