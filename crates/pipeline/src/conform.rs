//! Holds a configuration against the language's schema and says in words what does not fit.

use std::collections::BTreeMap;

use jsonschema::error::{TypeKind, ValidationErrorKind as Kind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::problem::{Findings, Place, listed, nearest, quote};
use crate::yaml::{Kind as Is, Node};

/// How many misfits are explained: nobody reads more, and a hostile text could have millions.
const MOST: usize = 1_000;

/// What does not fit, by path. A path's parts are joined with `/`, and each ends with one.
#[derive(Default)]
pub(crate) struct Misfits {
    found: BTreeMap<String, Misfit>,
}

struct Misfit {
    place: Place,
    message: String,
    /// The schema only knows that it does not fit; whoever reads the value can say more.
    vague: bool,
}

impl Misfits {
    /// Holds `root` against the schema.
    pub(crate) fn find(root: &Node) -> Self {
        let (schema, validator) = crate::schema::compiled();
        let value = root.to_json();
        let mut misfits = Self::default();
        for error in validator.iter_errors(&value).take(MOST) {
            misfits.explain(root, schema, &error);
        }
        misfits
    }

    /// Whether anything at or below `path` does not fit.
    pub(crate) fn within(&self, path: &[&str]) -> bool {
        let key = joined(path);
        self.found.range(key.clone()..).next().is_some_and(|(found, _)| found.starts_with(&key))
    }

    /// Adds what whoever reads the value at `path` found wrong, unless that is known, and better, already.
    pub(crate) fn add(&mut self, root: &Node, path: &[&str], message: &str) {
        let key = joined(path);
        if let Some(known) = self.found.get_mut(&key) {
            // What a generated reader says is less than what the schema knows.
            let generic = ["unknown variant", "data did not match", "invalid type", "invalid value", "invalid length"];
            if known.vague && !generic.iter().any(|start| message.starts_with(start)) {
                *known = Misfit { place: known.place, message: worded(root, path, message), vague: false };
            }
            return;
        }
        let above = (0..path.len()).any(|parts| self.found.contains_key(&joined(&path[..parts])));
        if !above && !self.within(path) {
            let place = root.place_of(path.iter().copied());
            self.found.insert(key, Misfit { place, message: worded(root, path, message), vague: false });
        }
    }

    pub(crate) fn report(self, findings: &mut Findings) {
        for misfit in self.found.into_values() {
            findings.add(misfit.place, misfit.message);
        }
    }

    fn misfit(&mut self, root: &Node, path: &[&str], place: Place, message: &str, vague: bool) {
        let misfit = Misfit { place, message: worded(root, path, message), vague };
        self.found.entry(joined(path)).or_insert(misfit);
    }

    fn explain(&mut self, root: &Node, schema: &Value, error: &ValidationError<'_>) {
        let pointer = error.instance_path().as_str();
        let parts: Vec<String> =
            pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
        let path: Vec<&str> = parts.iter().map(String::as_str).collect();
        let keyword = error.schema_path().as_str();
        let rule = keyword.rfind('/').and_then(|end| schema.pointer(&keyword[..end])).unwrap_or(&Value::Null);
        match error.kind() {
            Kind::AdditionalProperties { unexpected } => {
                for key in unexpected {
                    let path = [&path[..], &[key.as_str()]].concat();
                    let place = key_place(root, &path);
                    let message = worded(root, &path[..path.len() - 1], &unknown_key(&path, key, rule));
                    self.found.entry(joined(&path)).or_insert(Misfit { place, message, vague: false });
                }
            }
            Kind::Required { property } => {
                let key = property.as_str().unwrap_or_default();
                let of = rule["properties"][key]["description"].as_str().map(first_sentence).unwrap_or_default();
                let message =
                    format!("`{key}` is missing{}", if of.is_empty() { String::new() } else { format!(" ({of})") });
                let place = key_place(root, &path);
                let (below, message) = ([&path[..], &[key]].concat(), worded(root, &path, &message));
                self.found.entry(joined(&below)).or_insert(Misfit { place, message, vague: false });
            }
            Kind::PropertyNames { error } => {
                let key = error.instance().as_str().unwrap_or_default().to_owned();
                let path = [&path[..], &[&key]].concat();
                let message = "not a name: allowed are letters, digits, '_' and, between them, '-'";
                let place = key_place(root, &path);
                self.misfit(root, &path, place, &format!("{} is {message}", quote(&key)), false);
            }
            Kind::MinProperties { .. } | Kind::MaxProperties { .. } => {
                let message = format!(
                    "it has {} keys: allowed is one, of {}",
                    error.instance().as_object().map_or(0, |it| it.len()),
                    listed(rule["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()))
                );
                self.misfit(root, &path, key_place(root, &path), &message, false);
            }
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                self.alternatives(root, schema, rule, &path, error, context)
            }
            kind => {
                let (message, vague) = value_misfit(kind, error.instance(), rule);
                self.misfit(root, &path, root.place_of(path.iter().copied()), &message, vague);
            }
        }
    }

    /// Of several forms that a value may have, explains the one that was meant; where none can be told, names all.
    fn alternatives(
        &mut self,
        root: &Node,
        schema: &Value,
        rule: &Value,
        path: &[&str],
        error: &ValidationError<'_>,
        forms: &[Vec<ValidationError<'static>>],
    ) {
        let here = error.instance_path().as_str();
        let other_kind = |error: &ValidationError<'_>| {
            error.instance_path().as_str() == here
                && matches!(
                    error.kind(),
                    Kind::Type { .. }
                        | Kind::Constant { .. }
                        | Kind::Enum { .. }
                        | Kind::Pattern { .. }
                        | Kind::AnyOf { .. }
                        | Kind::OneOfNotValid { .. }
                )
        };
        let meant = forms.iter().filter(|errors| !errors.iter().any(other_kind)).min_by_key(|errors| errors.len());
        if let Some(errors) = meant {
            for error in errors {
                self.explain(root, schema, error);
            }
            return;
        }
        let forms = rule.get("anyOf").or_else(|| rule.get("oneOf")).and_then(Value::as_array);
        let words =
            forms.into_iter().flatten().filter(|form| form["type"] != "null").flat_map(allowed).collect::<Vec<_>>();
        let wrong = error.instance();
        let near = wrong.as_str().map(|wrong| nearest(wrong, words.iter().map(String::as_str))).unwrap_or_default();
        let message = format!(
            "{} does not fit{near}: allowed {} {}",
            shown(wrong),
            be(words.len()),
            listed(words.iter().map(String::as_str))
        );
        self.misfit(root, path, root.place_of(path.iter().copied()), &message, true);
    }
}

fn joined(path: &[&str]) -> String {
    path.iter().flat_map(|part| [*part, "\u{0}"]).collect()
}

fn be(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// A message with the path before it, as it is written in `--set`: `modules.fw.acl.rules`.
fn worded(root: &Node, path: &[&str], message: &str) -> String {
    let mut text = String::new();
    let mut node = Some(root);
    for part in path {
        let list = node.is_some_and(|node| node.as_list().is_some());
        node = node.and_then(|node| match &node.kind {
            Is::List(list) => list.get(part.parse::<usize>().ok()?),
            _ => node.get(part),
        });
        if list {
            text.push_str(&format!("[{part}]"));
        } else {
            text.push_str(if text.is_empty() { "" } else { "." });
            text.push_str(quote(part).trim_matches('\''));
        }
    }
    if text.is_empty() { message.to_owned() } else { format!("{text}: {message}") }
}

/// Where the key at the end of `path` stands.
fn key_place(root: &Node, path: &[&str]) -> Place {
    let Some((key, above)) = path.split_last() else { return root.place };
    let mut node = Some(root);
    for part in above {
        node = node.and_then(|node| match &node.kind {
            Is::List(list) => list.get(part.parse::<usize>().ok()?),
            _ => node.get(part),
        });
    }
    let entry = node.and_then(Node::as_map).and_then(|map| map.get(key));
    entry.map_or_else(|| root.place_of(path.iter().copied()), |entry| entry.place)
}

fn unknown_key(path: &[&str], key: &str, rule: &Value) -> String {
    let names: Vec<&str> =
        rule["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let near = nearest(key, names.iter().copied());
    let known = listed(names.iter().copied());
    match path {
        ["modules", _, _] => format!("there is no function {}{near}: there are {known}", quote(key)),
        ["ports", _, _] => format!("there is no kind of port {}{near}: there are {known}", quote(key)),
        ["state", _, _] if names.is_empty() => format!("there is no kind of state {}: none is known", quote(key)),
        ["state", _, _] => format!("there is no kind of state {}{near}: there are {known}", quote(key)),
        _ if names.is_empty() => format!("unknown key {}: none is allowed", quote(key)),
        _ => format!("unknown key {}{near}: allowed {} {known}", quote(key), be(names.len())),
    }
}

/// What a value that has the wrong type, size or form is told.
fn value_misfit(kind: &Kind, value: &Value, rule: &Value) -> (String, bool) {
    let is_plain = value.is_number() || value.is_boolean();
    let value = shown(value);
    let allowed = || allowed(rule).join(", ");
    match kind {
        Kind::Type { kind: TypeKind::Single(JsonType::String) } if is_plain && units(rule).is_none() => {
            (format!("{value} is a number or truth value where text is expected: put it in quotes"), false)
        }
        Kind::Type { kind } => {
            let expected = units(rule).map(|units| format!("a number with a unit ({units})"));
            (format!("{value} is not {}", expected.unwrap_or_else(|| type_words(kind))), false)
        }
        Kind::Enum { .. } | Kind::Constant { .. } => {
            let words = self::allowed(rule);
            let near = nearest(value.trim_matches('\''), words.iter().map(String::as_str));
            (
                format!(
                    "{value} is not allowed{near}: allowed {} {}",
                    be(words.len()),
                    listed(words.iter().map(String::as_str))
                ),
                false,
            )
        }
        Kind::Minimum { .. } | Kind::Maximum { .. } | Kind::ExclusiveMinimum { .. } | Kind::ExclusiveMaximum { .. } => {
            (format!("{value} is out of range: allowed is {}", allowed()), false)
        }
        Kind::Pattern { .. } => match units(rule) {
            Some(units) => (format!("{value} is not a number with a unit (units: {units})"), true),
            None => (
                format!(
                    "{value} does not have the form that is expected: {}",
                    rule["description"].as_str().map_or_else(allowed, |text| first_sentence(text).to_owned())
                ),
                true,
            ),
        },
        Kind::MinItems { limit } => (format!("too few: at least {limit} are needed"), false),
        Kind::MaxItems { limit } => (format!("too many: at most {limit} are allowed"), false),
        Kind::MinLength { .. } => (format!("{value} is too short"), false),
        Kind::MaxLength { limit } => (format!("{value} is too long: at most {limit} characters are allowed"), false),
        Kind::UniqueItems => ("the same value stands here twice".to_owned(), false),
        other => (format!("{value} does not fit ({})", other.keyword()), true),
    }
}

/// The units of a quantity's pattern.
fn units(rule: &Value) -> Option<String> {
    let pattern = rule["pattern"].as_str()?.strip_prefix("^\\s*[0-9][0-9._]*\\s*(")?;
    Some(pattern.strip_suffix(")\\s*$")?.replace('|', ", "))
}

/// What a schema allows, in words.
fn allowed(rule: &Value) -> Vec<String> {
    if let Some(value) = rule.get("const") {
        return vec![bare(value)];
    }
    if let Some(values) = rule["enum"].as_array() {
        return values.iter().map(bare).collect();
    }
    if let Some(forms) = rule.get("anyOf").or_else(|| rule.get("oneOf")).and_then(Value::as_array) {
        return forms.iter().flat_map(allowed).collect();
    }
    if let Some(units) = units(rule) {
        return vec![format!("a number with a unit ({units})")];
    }
    let kind = match &rule["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap_or(&Value::Null),
        kind => kind,
    };
    vec![match kind.as_str() {
        Some("integer") => format!("a whole number{}", range(rule)),
        Some("number") => format!("a number{}", range(rule)),
        Some("string") if rule["pattern"].is_string() => rule["description"]
            .as_str()
            .map_or_else(|| format!("text like {}", rule["pattern"]), |text| first_sentence(text).to_owned()),
        Some("object") => {
            match rule["properties"].as_object().map(|it| it.keys().map(String::as_str).collect::<Vec<_>>()) {
                Some(keys) if !keys.is_empty() => format!("a mapping with {}", listed(keys)),
                _ => "a mapping".to_owned(),
            }
        }
        other => word(other).to_owned(),
    }]
}

fn range(rule: &Value) -> String {
    let least = rule.get("minimum").map(|least| format!(" from {}", bare(least)));
    let above = rule.get("exclusiveMinimum").map(|bound| format!(" above {}", bare(bound)));
    let most = rule.get("maximum").map(|most| format!(" to {}", bare(most)));
    let below = rule.get("exclusiveMaximum").map(|bound| format!(" below {}", bare(bound)));
    [least, above, most, below].into_iter().flatten().collect()
}

fn type_words(kind: &TypeKind) -> String {
    let name = |kind: JsonType| word(Some(kind.as_str())).to_owned();
    match kind {
        TypeKind::Single(kind) => name(*kind),
        TypeKind::Multiple(kinds) => {
            let kinds = kinds.iter().filter(|kind| kind.as_str() != "null").map(name);
            kinds.collect::<Vec<_>>().join(" or ")
        }
    }
}

fn word(kind: Option<&str>) -> &'static str {
    match kind {
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("string") => "text",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        Some("object") => "a mapping",
        Some("null") => "nothing",
        _ => "any value",
    }
}

/// A value in a list of what is allowed.
fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value in a message.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        value => quote(&bare(value)),
    }
}

fn first_sentence(text: &str) -> &str {
    let end = text.find(". ").or_else(|| text.find(".\n")).unwrap_or(text.len());
    text[..end].trim_end_matches('.')
}
