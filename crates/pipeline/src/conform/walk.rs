//! Checks a value against a schema by a walk through both.

use std::collections::HashSet;

use forebay_graph::secret::HIDDEN;
use forebay_graph::{listed, nearest};
use forebay_protocol::check::Fault;
use forebay_units::quantity::advice;
use forebay_units::wording::counted;
use serde_json::{Value, json};

use super::Wrong;
use super::rules::{MOST_REFERENCES, Rules, has_secret};
use super::words::{
    allowed, allowed_of, bare, be, bounds, first_sentence, is_only, keys_of, long_form, multiple, shown, stated, types,
    units, unknown_key, within,
};
use crate::wording::{quote, short};
use crate::yaml::{Map, Node, NodeKind};

/// The largest number of violations that are reported. A hostile text could have millions.
const MOST: usize = 1_000;

/// 2^64: the first whole number that does not fit into `u64`.
const WHOLE: f64 = 18_446_744_073_709_551_616.0;

impl Rules {
    /// Returns the violations, at most [`MOST`] and a few more.
    pub(crate) fn walk(&self, root: &Node) -> Vec<Wrong> {
        let mut walk = Walk { rules: self, path: Vec::new(), found: Vec::new(), hidden: None };
        walk.value(&self.schema, root);
        walk.found
    }
}

/// The state of a walk through a schema and a value.
struct Walk<'r> {
    rules: &'r Rules,
    /// The keys and list indices from the root to the present value.
    path: Vec<String>,
    /// The violations so far.
    found: Vec<Wrong>,
    /// The length of the path of a parameter with a secret, while the walk is in it; otherwise `None`. Messages quote
    /// no value at or below this depth.
    hidden: Option<usize>,
}

/// The length of the path to the parameters of a module, port or state: `modules.seal.aes_gcm_encrypt`.
const PARAMETERS: usize = 3;
/// The text in place of a value that is not quoted.
const HIDDEN_VALUE: &str = "the value (not shown)";

impl<'r> Walk<'r> {
    /// Checks a value against a rule, and decides whether messages may quote it. All checks of nested values must call
    /// this function, not [`check`](Self::check), because secrets would otherwise be shown.
    fn value(&mut self, rule: &'r Value, node: &Node) {
        let before = self.hidden;
        // If only the parameters as a whole are hidden, each single parameter is checked again: messages may quote a
        // parameter without a secret.
        if before == Some(PARAMETERS) && self.path.len() > PARAMETERS {
            self.hidden = None;
        }
        if self.hidden.is_none() && self.path.len() >= PARAMETERS && has_secret(rule) {
            self.hidden = Some(self.path.len());
        }
        self.check(rule, node);
        self.hidden = before;
    }

    /// Returns a value for a message: hidden if it may be a secret.
    fn shown(&self, value: &Value) -> String {
        if self.hidden.is_some() && !matches!(value, Value::Null | Value::Array(_) | Value::Object(_)) {
            return HIDDEN_VALUE.to_owned();
        }
        shown(value)
    }

    /// Returns a text for a message: hidden if it may be a secret.
    fn quoted(&self, text: &str) -> String {
        if self.hidden.is_some() { HIDDEN_VALUE.to_owned() } else { quote(text) }
    }

    /// Returns a text for the value of a fault: without quotes and shortened, or `***` if it may be a secret.
    fn secretly(&self, text: &str) -> String {
        if self.hidden.is_some() { HIDDEN.to_owned() } else { short(text) }
    }

    /// Returns a number for a message: hidden if it may be a secret.
    fn shown_number(&self, number: &serde_json::Number) -> String {
        if self.hidden.is_some() { HIDDEN_VALUE.to_owned() } else { format!("'{number}'") }
    }

    /// Checks a value against a rule, and adds the bounds of a quantity to its violations.
    fn check(&mut self, rule: &'r Value, node: &Node) {
        if self.found.len() >= MOST {
            return;
        }
        let rule = self.rules.target(rule);
        if rule == &Value::Bool(false) {
            return self.wrong(node, "it is not allowed here".to_owned(), false, false);
        }
        let found = self.found.len();
        self.check_target(rule, node);
        let is_of_value = |wrong: &Wrong| wrong.path == self.path && !wrong.of_key;
        if !self.found[found..].iter().any(is_of_value) {
            return;
        }
        // The bounds in the description of the key itself are added last and take precedence.
        let bounds = if self.is_quantity(rule, MOST_REFERENCES) { bounds(rule) } else { None };
        for wrong in self.found[found..].iter_mut().filter(|wrong| is_of_value(wrong)) {
            wrong.bounds = bounds.clone().or(wrong.bounds.take());
            // If the value has several allowed forms, a violation of one form already states what this form allows.
            if !wrong.whole && wrong.fault.allowed.is_none() {
                let words = allowed(rule);
                wrong.fault.allowed = Some(listed(words.iter().map(String::as_str))).filter(|_| !words.is_empty());
            }
        }
    }

    /// Returns whether the rule allows a number with a unit.
    fn is_quantity(&self, rule: &Value, depth: usize) -> bool {
        let forms = ["anyOf", "oneOf"].iter().filter_map(|key| rule[key].as_array()).flatten();
        units(rule).is_some()
            || depth > 0 && forms.into_iter().any(|form| self.is_quantity(self.rules.target(form), depth - 1))
    }

    /// Checks a value against a rule that is not a reference.
    fn check_target(&mut self, rule: &'r Value, node: &Node) {
        if !self.of_type(rule, node) {
            // If the value is missing, reports the keys that are required.
            let before = self.found.len();
            if let (NodeKind::Null, Some("object")) = (&node.kind, rule["type"].as_str()) {
                self.map(rule, node, &Map::default());
            }
            if self.found.len() == before {
                self.wrong_type(rule, node);
            }
            return;
        }
        self.literal(rule, node);
        match &node.kind {
            NodeKind::Map(map) => self.map(rule, node, map),
            NodeKind::List(list) => self.list(rule, node, list),
            NodeKind::Text(text) => self.text(rule, node, text),
            NodeKind::Number(number) => self.number(rule, node, number),
            NodeKind::Null | NodeKind::Bool(_) => {}
        }
        for part in rule["allOf"].as_array().into_iter().flatten() {
            self.value(part, node);
        }
        if let Some(forms) = rule["anyOf"].as_array() {
            self.forms(forms, node, false);
        }
        if let Some(forms) = rule["oneOf"].as_array() {
            self.forms(forms, node, true);
        }
    }

    /// Adds a violation of the value at the present path. [`Wrong`] explains `vague` and `other`.
    fn wrong(&mut self, node: &Node, message: String, vague: bool, other: bool) {
        self.wrong_value(node, Fault::new(message), vague, other);
    }

    /// Adds a violation of the value at the present path, which may state what is allowed. [`Wrong`] explains `vague`
    /// and `other`.
    fn wrong_value(&mut self, node: &Node, fault: Fault, vague: bool, other: bool) {
        let whole = matches!(node.kind, NodeKind::Map(_) | NodeKind::List(_));
        let has_value = !whole && !matches!(node.kind, NodeKind::Null);
        let value = has_value.then(|| self.secretly(&bare(&node.to_short_json())));
        let fault = Fault { value: value.or(fault.value), ..fault };
        self.found.push(Wrong { path: self.path.clone(), fault, of_key: false, whole, vague, bounds: None, other });
    }

    /// Adds a violation of the length of the list at the present path.
    fn wrong_length(&mut self, node: &Node, length: usize, message: String, allowed: String) {
        let value = Some(counted(length, "item"));
        self.wrong_value(node, Fault { value, allowed: Some(allowed), ..Fault::new(message) }, false, false);
    }

    /// Adds a violation of a key in the mapping at the present path.
    fn wrong_key(&mut self, key: &str, fault: Fault) {
        let path = self.path.iter().cloned().chain([key.to_owned()]).collect();
        self.found.push(Wrong { path, fault, of_key: true, whole: true, vague: false, bounds: None, other: false });
    }

    /// Returns whether the value has a type that the rule allows.
    fn of_type(&self, rule: &Value, node: &Node) -> bool {
        let is = |name: &str| match (&node.kind, name) {
            (NodeKind::Null, "null") | (NodeKind::Bool(_), "boolean") | (NodeKind::Number(_), "number") => true,
            (NodeKind::Text(_), "string") | (NodeKind::List(_), "array") | (NodeKind::Map(_), "object") => true,
            (NodeKind::Number(number), "integer") => {
                !number.is_f64() || number.as_f64().is_some_and(|number| number.fract() == 0.0)
            }
            _ => false,
        };
        match &rule["type"] {
            Value::String(name) => is(name),
            Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
            _ => true,
        }
    }

    /// Adds a violation for a value of a wrong type, with the correct form if it can be guessed.
    fn wrong_type(&mut self, rule: &Value, node: &Node) {
        let value = self.shown(&node.to_short_json());
        let of = |name: &str| is_only(rule, name);
        let message = match (units(rule), &node.kind) {
            (Some(units), NodeKind::Null) => {
                format!("it has no value: allowed is a number with a unit ({})", units.join(", "))
            }
            (None, NodeKind::Null) => format!("it has no value: allowed is {}{}", types(rule), within(rule)),
            (_, NodeKind::Number(_) | NodeKind::Bool(_)) if self.hidden.is_some() && of("string") => {
                format!("{value} is a number or truth value where text is expected: put it in quotes")
            }
            _ if self.hidden.is_some() => format!("{value} is not {}{}", types(rule), within(rule)),
            (Some(units), NodeKind::Number(number)) => {
                // An example of a unit, because the intended unit is not known.
                let unit = units.iter().find(|unit| **unit == "us").or(units.first()).copied().unwrap_or_default();
                let number = Some(number.to_string()).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
                let number = number.unwrap_or_else(|| "1".to_owned());
                let all = units.join(", ");
                format!("{value} has no unit: write a number with a unit, such as {number}{unit} (units: {all})")
            }
            (Some(units), _) => format!("{value} is not a number with a unit ({})", units.join(", ")),
            (None, NodeKind::Number(_) | NodeKind::Bool(_)) if of("string") => {
                format!("{value} is a number or truth value where text is expected: put it in quotes")
            }
            (None, NodeKind::Number(_) | NodeKind::Text(_)) if of("array") => {
                let items = self.rules.target(&rule["items"]);
                if self.of_type(items, node) {
                    let item = value.trim_matches('\'');
                    let item = if item.contains([',', '[', ']', '{', '}', '#', ':', '…']) { "…" } else { item };
                    format!("{value} is not a list: write [{item}]")
                } else {
                    let item = allowed(items);
                    format!(
                        "{value} is not a list: each item of the list is {}",
                        listed(item.iter().map(String::as_str))
                    )
                }
            }
            (None, NodeKind::Text(text)) if of("integer") => {
                let range = within(rule);
                let within = if range.is_empty() { range } else { format!(",{range}") };
                if text.parse::<i128>().is_ok() {
                    format!("{value} is text: write the number without quotes{within}")
                } else {
                    let most = rule["maximum"].as_u64();
                    let meant = multiple(text).filter(|number| most.is_none_or(|most| *number <= most));
                    let meant = meant.map(|number| format!(", such as {number}")).unwrap_or_default();
                    format!("{value} is not a whole number: allowed are digits alone{meant}{within}")
                }
            }
            (None, NodeKind::Text(text)) if of("object") => {
                let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
                let form = long_form(&path, text, rule).map(|form| format!(": {form}")).unwrap_or_default();
                format!("{value} is not {}{form}", types(rule))
            }
            _ => format!("{value} is not {}{}", types(rule), within(rule)),
        };
        self.wrong(node, message, false, true);
    }

    /// Checks the keywords `const` and `enum`.
    fn literal(&mut self, rule: &Value, node: &Node) {
        let fits = match (rule.get("const"), rule["enum"].as_array()) {
            (Some(value), _) => node.to_json() == *value,
            (None, Some(values)) => values.contains(&node.to_json()),
            (None, None) => return,
        };
        if !fits {
            let (value, words) = (node.to_short_json(), allowed(rule));
            let near = value
                .as_str()
                .filter(|_| self.hidden.is_none())
                .map(|wrong| nearest(wrong, words.iter().map(String::as_str)))
                .unwrap_or_default();
            let words = format!("allowed {} {}", be(words.len()), listed(words.iter().map(String::as_str)));
            self.wrong(node, format!("{} is not allowed{near}: {words}", self.shown(&value)), false, true);
        }
    }

    /// Checks the bounds of a number.
    fn number(&mut self, rule: &Value, node: &Node, number: &serde_json::Number) {
        let value = number.as_f64().unwrap_or(f64::NAN);
        let bound = |name: &str| rule[name].as_f64();
        let fits = bound("minimum").is_none_or(|least| value >= least)
            && bound("maximum").is_none_or(|most| value <= most)
            && bound("exclusiveMinimum").is_none_or(|below| value > below)
            && bound("exclusiveMaximum").is_none_or(|above| value < above)
            // Larger numbers than u64 are not whole numbers here.
            && !(is_only(rule, "integer") && value.abs() >= WHOLE && !number.is_u64());
        if !fits {
            let allowed = allowed(rule).join(", ");
            // If the rule has no upper limit, its description often names one.
            let endless = bound("maximum").is_none() && bound("exclusiveMaximum").is_none();
            let hint = rule["description"].as_str().filter(|_| endless && stated(rule).is_none()).map(first_sentence);
            let hint = hint.map(|hint| format!(" ({})", hint.replace(" (", ", ").replace(')', ""))).unwrap_or_default();
            let allowed = format!("{allowed}{hint}");
            let message = format!("{} is out of range: allowed is {allowed}", self.shown_number(number));
            self.wrong_value(node, Fault { allowed: Some(allowed), ..Fault::new(message) }, false, false);
        }
    }

    /// Checks the length and the pattern of a text.
    fn text(&mut self, rule: &Value, node: &Node, text: &str) {
        let whole = |name: &str| rule[name].as_u64().and_then(|limit| usize::try_from(limit).ok());
        let length = text.chars().count();
        if let Some(least) = whole("minLength").filter(|least| length < *least) {
            let least = counted(least, "character");
            let message = format!("{} is too short: allowed are texts of at least {least}", self.quoted(text));
            let allowed = Some(format!("at least {least}"));
            self.wrong_value(node, Fault { allowed, ..Fault::new(message) }, false, false);
        }
        if let Some(most) = whole("maxLength").filter(|most| length > *most) {
            let most = counted(most, "character");
            let message = format!("{} is too long: allowed are texts of at most {most}", self.quoted(text));
            let allowed = Some(format!("at most {most}"));
            self.wrong_value(node, Fault { allowed, ..Fault::new(message) }, false, false);
        }
        if !self.rules.matches(&rule["pattern"], text) {
            let message = match (units(rule), rule["description"].as_str()) {
                (Some(units), _) => {
                    let (quoted, all) = (self.quoted(text), units.join(", "));
                    let advice = if self.hidden.is_some() { String::new() } else { advice(text, units) };
                    format!("{quoted} is not a number with a unit{advice} (units: {all})")
                }
                (None, Some(description)) => {
                    format!("{} does not have the expected form: {}", self.quoted(text), first_sentence(description))
                }
                (None, None) => {
                    format!("{} does not have the expected form {}", self.quoted(text), bare(&rule["pattern"]))
                }
            };
            self.wrong(node, message, true, true);
        }
    }

    /// Checks the length of a list, and each item.
    fn list(&mut self, rule: &'r Value, node: &Node, list: &[Node]) {
        let whole = |name: &str| rule[name].as_u64().and_then(|limit| usize::try_from(limit).ok());
        if let Some(least) = whole("minItems").filter(|least| list.len() < *least) {
            let has =
                if list.is_empty() { "is empty".to_owned() } else { format!("has {}", counted(list.len(), "item")) };
            let message = format!("the list {has}: at least {} {} needed", counted(least, "item"), be(least));
            self.wrong_length(node, list.len(), message, format!("at least {least}"));
        }
        if let Some(most) = whole("maxItems").filter(|most| list.len() > *most) {
            let (has, is) = (counted(list.len(), "item"), be(most));
            let message = format!("the list has {has}: at most {} {is} allowed", counted(most, "item"));
            self.wrong_length(node, list.len(), message, format!("at most {most}"));
        }
        if rule["uniqueItems"] == true {
            let mut seen = HashSet::new();
            if let Some(twice) = list.iter().map(Node::to_json).find(|item| !seen.insert(item.to_string())) {
                let wrong = format!("{} is listed twice", self.shown(&twice));
                self.wrong_value(node, Fault::with_hint(wrong, "list it once"), false, false);
            }
        }
        let first = rule["prefixItems"].as_array().map_or(&[][..], Vec::as_slice);
        for (index, item) in list.iter().enumerate() {
            if let Some(rule) = first.get(index).or_else(|| rule.get("items")) {
                self.path.push(index.to_string());
                self.value(rule, item);
                self.path.pop();
            }
        }
    }

    /// Checks the keys of a mapping, and the value of each key. An entry that a setting leaves out counts as missing,
    /// and its value is not checked.
    fn map(&mut self, rule: &'r Value, node: &Node, map: &Map) {
        let count = map.iter().filter(|entry| !entry.left_out).count() as u64;
        let too = |name: &str, is: fn(u64, u64) -> bool| rule[name].as_u64().filter(|limit| is(count, *limit));
        if let Some(limit) = too("minProperties", |count, least| count < least)
            .or_else(|| too("maxProperties", |count, most| count > most))
        {
            let has = if count == 0 { "no key".to_owned() } else { counted(count, "key") };
            let known = listed(keys_of(rule));
            let message = format!("it has {has}: allowed {} {limit} of {known}", be(limit as usize));
            self.wrong(node, message, false, false);
        }
        for key in rule["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if map.get(key).is_none_or(|entry| entry.left_out) {
                let of =
                    rule["properties"][key]["description"].as_str().map(|text| format!(" ({})", first_sentence(text)));
                self.wrong_key(key, Fault::new(format!("`{key}` is missing{}", of.unwrap_or_default())));
            }
        }
        for entry in map.iter() {
            if self.found.len() >= MOST {
                return;
            }
            if !self.rules.matches(&rule["propertyNames"]["pattern"], &entry.key) {
                let (key, allowed) = (self.quoted(&entry.key), "letters, digits, '_' and, between them, '-'");
                let message = format!("{key} is not a name: allowed are {allowed}");
                let (value, allowed) = (Some(self.secretly(&entry.key)), Some(allowed.to_owned()));
                let fault = Fault { value, allowed, ..Fault::new(message) };
                self.wrong_key(&entry.key, fault);
            }
            let known = rule["properties"].get(&entry.key);
            match known.or_else(|| rule.get("additionalProperties")) {
                Some(Value::Bool(false)) if known.is_none() => self.unknown_key(rule, &entry.key),
                Some(_) if entry.left_out => {}
                Some(rule) => {
                    self.path.push(entry.key.clone());
                    self.value(rule, &entry.value);
                    self.path.pop();
                }
                None => {}
            }
        }
    }

    /// Adds the violation of a key that the rule does not have.
    fn unknown_key(&mut self, rule: &Value, key: &str) {
        let path: Vec<&str> = self.path.iter().map(String::as_str).chain([key]).collect();
        let names: Vec<&str> = keys_of(rule).collect();
        let message = unknown_key(&path, key, rule);
        // A key that resembles none of the known ones may be a secret.
        let may_be_secret = self.hidden.is_some() && nearest(key, names.iter().copied()).is_empty();
        let (message, value) = if may_be_secret {
            (message.replacen(&quote(key), HIDDEN, 1), HIDDEN.to_owned())
        } else {
            (message, short(key))
        };
        let allowed = Some(listed(names.iter().copied())).filter(|_| !names.is_empty());
        self.wrong_key(key, Fault { value: Some(value), allowed, ..Fault::new(message) });
    }

    /// Checks a value that may have several forms. Adds the violations of the form that was probably meant. If that is
    /// not clear, adds violations that name all forms. With `one`, only one form may fit (`oneOf`).
    fn forms(&mut self, forms: &'r [Value], node: &Node, one: bool) {
        let depth = self.path.len();
        let before = std::mem::take(&mut self.found);
        let tries: Vec<Vec<Wrong>> = forms
            .iter()
            .map(|form| {
                self.value(form, node);
                std::mem::take(&mut self.found)
            })
            .collect();
        self.found = before;
        match tries.iter().filter(|wrong| wrong.is_empty()).count() {
            1 => return,
            0 => {}
            _ if one => {
                return self.wrong(node, "it fits several forms, but only one is allowed".to_owned(), true, false);
            }
            _ => return,
        }
        let other = |wrongs: &Vec<Wrong>| wrongs.iter().any(|wrong| wrong.other && wrong.path.len() == depth);
        // A form with other keys is not the intended one, even if it has fewer violations.
        let keys = |wrongs: &Vec<Wrong>| wrongs.iter().filter(|it| it.of_key && it.path.len() == depth + 1).count();
        let fits_best = |wrongs: &Vec<Wrong>| (keys(wrongs), wrongs.len());
        let mut likely: Vec<_> = forms.iter().zip(tries).filter(|(_, wrongs)| !other(wrongs)).collect();
        let best = likely.iter().map(|(_, wrongs)| fits_best(wrongs)).min();
        likely.retain(|(_, wrongs)| Some(fits_best(wrongs)) == best);
        // If the keys fit several forms equally badly, no form is more likely than the others. Other violations depend
        // on the form, and are reported once the keys are correct.
        let is_tie = likely.len() > 1 && best.is_some_and(|(keys, _)| keys > 0);
        if is_tie {
            let names = likely.iter().flat_map(|(form, _)| keys_of(self.rules.target(form)));
            let names: serde_json::Map<_, _> = names.map(|name| (name.to_owned(), Value::Null)).collect();
            let all = json!({ "properties": names });
            let keys = node.as_map().into_iter().flat_map(Map::iter).map(|entry| entry.key.as_str());
            let unknown: Vec<_> = keys.filter(|key| all["properties"].get(key).is_none()).collect();
            if !unknown.is_empty() {
                return unknown.into_iter().for_each(|key| self.unknown_key(&all, key));
            }
        } else if let Some((_, wrongs)) = likely.into_iter().next() {
            return self.found.extend(wrongs);
        }
        let words = allowed_of(forms);
        let value = node.to_short_json();
        let near = value
            .as_str()
            .filter(|_| self.hidden.is_none())
            .map(|wrong| nearest(wrong, words.iter().map(String::as_str)))
            .unwrap_or_default();
        let words = format!("allowed {} {}", be(words.len()), listed(words.iter().map(String::as_str)));
        self.wrong(node, format!("{} does not fit{near}: {words}", self.shown(&value)), true, true);
    }
}
