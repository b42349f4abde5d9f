//! Writes a configuration for display: with its settings applied, secrets as `***`, and a readable layout.

use std::fmt::Write as _;

use forebay_graph::secret::{HIDDEN, is_key};

use crate::Source;
use crate::faults::FaultCollector;
use crate::secrets::{is_kind_with_secrets, is_secret_parameter, shown_setting};
use crate::yaml::{self, Map, Node, NodeKind};

/// The text in place of a secret.
pub const SECRET: &str = "***";
/// The largest number of columns of a value beside its key. Longer values are written below the key.
const WIDTH: usize = 100;

/// Returns the configuration in force as YAML, without comments.
#[must_use]
pub fn shown_text(source: &Source) -> String {
    let Some(mut root) = source.tree(&mut FaultCollector::default()) else { return String::new() };
    root.prune();
    hide(&mut root, false, false);
    block_text(&root)
}

/// Returns a value as the text of a configuration.
pub(crate) fn block_text(root: &Node) -> String {
    let mut text = String::new();
    match &root.kind {
        NodeKind::Map(map) => block_map(map, 0, &mut text),
        _ => text = flow(root, usize::MAX).unwrap_or_default() + "\n",
    }
    text
}

/// Returns settings for display, with `***` in place of secrets.
#[must_use]
pub fn shown_settings(sets: &[String]) -> Vec<String> {
    sets.iter().map(|set| shown_setting(set).replace(HIDDEN, SECRET)).collect()
}

/// Replaces secrets by `***`. `below` is true if the value is below a kind with secrets. `within` is true if it is the
/// value of a secret parameter of that kind. Both are needed, because another kind may have a parameter of the same
/// name that is not a secret.
pub(crate) fn hide(node: &mut Node, below: bool, within: bool) {
    match &mut node.kind {
        NodeKind::Map(map) => {
            for entry in map.iter_mut() {
                let within = below && is_secret_parameter(&entry.key);
                hide(&mut entry.value, below || is_kind_with_secrets(&entry.key), within);
            }
        }
        NodeKind::List(list) => list.iter_mut().for_each(|item| hide(item, below, within)),
        NodeKind::Text(text) if within => *text = hidden(text),
        // A text that looks like a complete key, in a place where no key is expected.
        NodeKind::Text(text) if text.len() >= 32 && text.bytes().all(|c| c.is_ascii_hexdigit()) && is_key(text) => {
            *text = SECRET.to_owned();
        }
        NodeKind::Number(_) if within => node.kind = NodeKind::Text(SECRET.to_owned()),
        _ => {}
    }
}

/// Hides the secrets in a text. A text without `=` is a secret as a whole. In other texts, such as ESP associations,
/// the value of each secret parameter is hidden (`key=…`), except if the value is a file name (`@…`).
fn hidden(text: &str) -> String {
    if !text.contains('=') {
        return SECRET.to_owned();
    }
    let words = text.split(' ').map(|word| match word.split_once('=') {
        Some((name, value)) if is_secret_parameter(name) && !value.starts_with('@') => format!("{name}={SECRET}"),
        // A parameter without a name is known by its position, like an SPI. A key in a wrong position is hidden.
        _ if is_key(word) => SECRET.to_owned(),
        _ => word.to_owned(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Writes a mapping, with one line for each entry that fits in a line.
fn block_map(map: &Map, indent: usize, text: &mut String) {
    for entry in map.iter() {
        let _ = write!(text, "{:indent$}{}:", "", quoted(&entry.key));
        value(&entry.value, indent, text);
    }
}

/// Writes the value after a key or a dash: on the same line if it fits, otherwise on the following lines.
fn value(node: &Node, indent: usize, text: &mut String) {
    let room = WIDTH.saturating_sub(indent);
    // Sections are written as one line for each entry.
    let sections = indent == 0 && matches!(&node.kind, NodeKind::Map(map) if map.iter().count() > 0);
    let lines = indent == 0 && matches!(&node.kind, NodeKind::List(list) if list.len() > 1);
    if let Some(flow) = flow(node, room).filter(|_| !sections && !lines) {
        let _ = writeln!(text, " {flow}");
        return;
    }
    match &node.kind {
        NodeKind::Map(map) => {
            text.push('\n');
            block_map(map, indent + 2, text);
        }
        NodeKind::List(list) => {
            text.push('\n');
            for item in list {
                let _ = write!(text, "{:1$}-", "", indent + 2);
                value(item, indent + 2, text);
            }
        }
        _ => {
            let _ = writeln!(text, " {}", flow_of_scalar(node));
        }
    }
}

/// Returns a value in one line of at most `most` bytes; `None` if the line would be longer.
fn flow(node: &Node, most: usize) -> Option<String> {
    let text = match &node.kind {
        NodeKind::List(list) => {
            let mut items = Vec::new();
            let mut remaining = most.checked_sub(2)?;
            for item in list {
                let item = flow(item, remaining)?;
                remaining = remaining.saturating_sub(item.len() + 2);
                items.push(item);
            }
            format!("[{}]", items.join(", "))
        }
        NodeKind::Map(map) => {
            let mut entries = Vec::new();
            let mut remaining = most.checked_sub(2)?;
            for entry in map.iter() {
                let key = quoted(&entry.key);
                let entry = format!("{key}: {}", flow(&entry.value, remaining.checked_sub(key.len() + 2)?)?);
                remaining = remaining.saturating_sub(entry.len() + 2);
                entries.push(entry);
            }
            if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
        }
        _ => flow_of_scalar(node),
    };
    (text.len() <= most).then_some(text)
}

/// Writes a value that is neither a list nor a mapping.
fn flow_of_scalar(node: &Node) -> String {
    match &node.kind {
        NodeKind::Text(text) => quoted(text),
        NodeKind::Bool(bool) => bool.to_string(),
        NodeKind::Number(number) => number.to_string(),
        _ => "null".to_owned(),
    }
}

/// Returns a text, with quotes if YAML would read it as something else.
fn quoted(text: &str) -> String {
    let inside = |c: char| c.is_ascii_alphanumeric() || "_./+-:> ".contains(c);
    let is_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/')
        && !text.ends_with([' ', ':'])
        && text.chars().all(inside)
        && !text.contains(": ")
        && yaml::is_plain_text(text);
    // A JSON string is a YAML string.
    if is_plain { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::usecase::usecases;

    fn json(source: &Source) -> serde_json::Value {
        let mut faults = FaultCollector::default();
        let mut root = source.tree(&mut faults).expect("a tree");
        assert!(faults.is_empty());
        root.prune();
        root.to_json()
    }

    #[test]
    fn shown_use_cases_read_back_the_same() {
        for case in usecases() {
            let source = crate::usecase(case.name, &[]).unwrap_or_else(|problems| panic!("{problems}"));
            let source = source.set("batch=64").set("ports.in.sink=null");
            let again = Source::new(shown_text(&source), "again", "");
            // The keys of the use cases' tunnels are public, but are hidden like all keys.
            if !shown_text(&source).contains(SECRET) {
                assert_eq!(json(&again), json(&source), "{}", case.name);
            }
        }
    }

    #[test]
    fn secrets_are_stars_and_everything_else_is_shown() {
        let key = "a0b1c2d3e4f506172839405162738495";
        let text = format!(
            "modules:
  seal: {{ aes_gcm_encrypt: {{ keys: [{{ id: 1, key: \"{key}\" }}, {{ id: 2, file: k.key }}], use: 2 }} }} # {key}
  into:
    esp_encrypt:
      source: 192.0.2.1
      associations: ['0x1001 key={key}a6b7c8d9 peer=192.0.2.2 for=0.0.0.0/0', '0x1002 key=@s.key peer=192.0.2.3']
  from: {{ esp_decrypt: {{ associations: {{ file: sa.txt }} }} }}
  other: {{ hash_split: {{ key: source }} }}
"
        );
        let shown = shown_text(&Source::new(text, "a.yaml", ""));
        let expected = "modules:
  seal: { aes_gcm_encrypt: { keys: [{ id: 1, key: \"***\" }, { id: 2, file: k.key }], use: 2 } }
  into:
    esp_encrypt:
      source: 192.0.2.1
      associations: [\"0x1001 key=*** peer=192.0.2.2 for=0.0.0.0/0\", \"0x1002 key=@s.key peer=192.0.2.3\"]
  from: { esp_decrypt: { associations: { file: sa.txt } } }
  other: { hash_split: { key: source } }
";
        assert_eq!(shown, expected);
        let set = format!("modules.seal.aes_gcm_encrypt.keys.0.key={key}");
        let settings = shown_settings(&[set, "batch=8".to_owned()]);
        assert_eq!(settings, ["modules.seal.aes_gcm_encrypt.keys.0.key=***", "batch=8"]);
    }

    fn values() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(serde_json::Value::from),
            any::<i64>().prop_map(serde_json::Value::from),
            any::<f64>()
                .prop_filter("JSON has no others", |f| f.is_finite() && f.fract() != 0.0)
                .prop_map(serde_json::Value::from),
            "[a-z0-9:#\\[\\]{}, \"'>*&!|%@`-]{0,12}".prop_map(serde_json::Value::from),
            "\\PC{0,6}".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(serde_json::Value::from),
                prop::collection::btree_map("[a-z: \\[\\]0-9-]{1,8}", inner, 0..5)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Every value reads back as it was written.
        #[test]
        fn written_values_are_read_again(value in prop::collection::btree_map("[a-z]{1,6}", values(), 1..5)) {
            let value = serde_json::Value::Object(value.into_iter().collect());
            let source = Source::new(value.to_string(), "a", "");
            let shown = shown_text(&source);
            let again = Source::new(shown.clone(), "b", "");
            if !shown.contains(SECRET) {
                prop_assert_eq!(json(&again), json(&source), "{}", shown);
            }
        }
    }
}
