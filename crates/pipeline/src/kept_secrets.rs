//! Restores the secrets of a shown configuration that comes back changed.
//!
//! A client reads the configuration with `***` in the place of each secret, changes the text, and sends it back. Each
//! `***` then stands for the secret in the same place of the configuration that is in force.

use crate::Source;
use crate::faults::FaultCollector;
use crate::located::SourceLocation;
use crate::problems::Problems;
use crate::secrets::is_secret_parameter;
use crate::shown::{SECRET, hide};
use crate::yaml::{self, Node, NodeKind};

impl Source {
    /// Returns a configuration with this text, which is a changed text of `self`. The result has the same folder, and
    /// the same name in messages. Each `***` in the text stands for the secret in its place in `self`.
    ///
    /// # Errors
    /// Returns an error for each `***` in a place where `self` has no secret. Text that is not YAML is not reported
    /// here, but when the result is read.
    pub fn changed_to(&self, text: &str) -> Result<Self, Problems> {
        let text = restore(text, self)?;
        Ok(Self::new(text, self.file.clone(), self.base.clone()))
    }
}

/// A `***` of a text and the secret that it stands for.
struct Kept {
    /// The line of the value that contains the `***`, from 1.
    line: u32,
    /// The column of this value, from 1. The `***` may come later in the value.
    column: u32,
    secret: String,
}

/// Returns `text` with the secrets of `running` in the place of `***`.
///
/// # Errors
/// Returns an error for each `***` in a place where `running` has no secret, or where a list has changed so much that
/// the place is not known.
fn restore(text: &str, running: &Source) -> Result<String, Problems> {
    if !text.contains(SECRET) {
        return Ok(text.to_owned());
    }
    // Text that is not YAML is refused when it is read.
    let Ok(new) = yaml::parse(text, &mut Vec::new()) else { return Ok(text.to_owned()) };
    let mut faults = FaultCollector::default();
    let old = running.tree(&mut FaultCollector::default()).map(|mut old| {
        old.prune();
        old
    });
    let mut kept = Vec::new();
    find(&new, old.as_ref(), &mut kept, &mut faults);
    faults.finish(running.file(), "", &[])?;
    Ok(replaced(text, kept))
}

/// Finds the `***` of `new`, and appends each with its secret to `kept`. `old` is the value in the same place of the
/// running configuration.
fn find(new: &Node, old: Option<&Node>, kept: &mut Vec<Kept>, faults: &mut FaultCollector) {
    match &new.kind {
        NodeKind::Map(map) => {
            for entry in map.iter() {
                find(&entry.value, old.and_then(|old| old.get(&entry.key)), kept, faults);
            }
        }
        NodeKind::List(list) => {
            let others = old.and_then(Node::as_list).unwrap_or_default();
            for (at, item) in list.iter().enumerate() {
                find(item, counterpart(item, at, list.len(), others), kept, faults);
            }
        }
        NodeKind::Text(text) if has_placeholder(text) => {
            let SourceLocation::Line(line, column) = new.place else { return };
            match secrets_of(text, old) {
                Some(secrets) => kept.extend(secrets.into_iter().map(|secret| Kept { line, column, secret })),
                None => faults.add(
                    new.place,
                    format!("'{SECRET}' stands for the secret in force here, but there is none: write the secret"),
                ),
            }
        }
        _ => {}
    }
}

/// Returns whether a text has a `***` that stands for a secret: as the whole text, or as the value of a secret
/// parameter. In any other text, for example a pattern, `***` is part of the text.
fn has_placeholder(text: &str) -> bool {
    let is_secret =
        |word: &str| word.strip_suffix(SECRET).and_then(|word| word.strip_suffix('=')).is_some_and(is_secret_parameter);
    text == SECRET || text.split(' ').any(is_secret)
}

/// Returns the element of `others`, a list of the running configuration, that an element of the new list stands for.
/// This is an element that is shown in the same way; the element at the same index is preferred. Without such an
/// element, it is the element at the same index, if the lists have the same length and both elements begin in the same
/// way. `item` is the new element, `at` is its index, and `length` is the length of the new list.
fn counterpart<'o>(item: &Node, at: usize, length: usize, others: &'o [Node]) -> Option<&'o Node> {
    let new = item.to_json();
    let shown = |other: &Node| {
        let mut shown = other.clone();
        // The element is hidden in two ways: as the value of a secret parameter, and as another value below a kind with
        // secrets.
        hide(&mut shown, true, true);
        let whole = shown.to_json();
        let mut shown = other.clone();
        hide(&mut shown, true, false);
        [whole, shown.to_json()]
    };
    let is_same = |other: &&Node| shown(other).contains(&new);
    let at_index = others.get(at);
    at_index.filter(is_same).or_else(|| others.iter().find(is_same)).or_else(|| {
        let first = |node: &Node| match &node.kind {
            NodeKind::Map(map) => map.iter().next().map(|entry| (entry.key.clone(), entry.value.to_json().to_string())),
            NodeKind::Text(text) => text.split(' ').next().map(|word| (String::new(), word.to_owned())),
            _ => None,
        };
        at_index
            .filter(|other| others.len() == length && first(other).is_some_and(|begins| first(item) == Some(begins)))
    })
}

/// Returns the secret for each `***` of a text, in the order of the text. `None` if there is no secret for one of the
/// `***`. `old` is the value in the same place of the running configuration.
fn secrets_of(text: &str, old: Option<&Node>) -> Option<Vec<String>> {
    let old = match &old?.kind {
        NodeKind::Text(text) => text.clone(),
        NodeKind::Number(number) => number.to_string(),
        _ => return None,
    };
    if text == SECRET {
        return Some(vec![old]);
    }
    let words = text.split(' ').filter(|word| word.contains(SECRET));
    let secret = |word: &str| {
        let name = word.strip_suffix(SECRET).filter(|name| name.ends_with('='))?;
        old.split(' ').find_map(|word| word.strip_prefix(name)).map(str::to_owned)
    };
    words.map(secret).collect()
}

/// Puts each secret into the text in the place of the first `***` at or after its line and column.
fn replaced(text: &str, mut kept: Vec<Kept>) -> String {
    let starts: Vec<usize> = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    // The tree of a text may contain an anchor's value several times, with the same place. This place is replaced once.
    kept.sort_by_key(|it| (it.line, it.column));
    for Kept { line, column, secret } in kept {
        let Some(start) = starts.get(line as usize - 1) else { continue };
        let from = text[*start..].char_indices().nth(column as usize - 1).map_or(*start, |(at, _)| start + at);
        let Some(found) = text[from.max(done)..].find(SECRET).map(|at| from.max(done) + at) else { continue };
        result.push_str(&text[done..found]);
        // All texts with a star are in quotes. So quotes and backslashes of the secret need an escape.
        let quoted = serde_json::Value::from(secret).to_string();
        result.push_str(&quoted[1..quoted.len() - 1]);
        done = found + SECRET.len();
    }
    result.push_str(&text[done..]);
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shown::shown_text;

    const KEY: &str = "a0b1c2d3e4f506172839405162738495";
    const OTHER: &str = "00112233445566778899aabbccddeeff";

    fn running() -> Source {
        let text = format!(
            "ports: {{ in: {{ generator: {{ rate: 1kpps }} }}, out: {{ sink: {{}} }} }}
modules:
  seal: {{ aes_gcm_encrypt: {{ keys: [{{ id: 1, key: \"{KEY}\" }}, {{ id: 2, key: \"{OTHER}\" }}], use: 2 }} }}
  into:
    esp_encrypt:
      source: 192.0.2.1
      associations: ['0x1001 key={KEY}a6b7c8d9 peer=192.0.2.2 for=0.0.0.0/0']
pipeline: [ in -> seal -> out ]
"
        );
        Source::new(text, "a.yaml", "")
    }

    #[test]
    fn a_shown_text_that_comes_back_has_the_secrets_again() {
        let running = running();
        let shown = shown_text(&running);
        assert!(shown.contains(SECRET) && !shown.contains(KEY));
        let again = running.changed_to(&shown).expect("all are known");
        assert!(again.text().contains(KEY) && again.text().contains(OTHER) && !again.text().contains(SECRET));
        assert_eq!(shown_text(&again), shown);
        assert_eq!(again.file(), "a.yaml");
    }

    #[test]
    fn secrets_follow_their_elements() {
        let running = running();
        let list = |keys: &str| {
            let text = format!("modules: {{ seal: {{ aes_gcm_encrypt: {{ keys: [{keys}], use: 2 }} }} }}");
            restore(&text, &running)
        };
        let swapped = list("{ id: 2, key: '***' }, { id: 1, key: '***' }").expect("each is shown so");
        let [first, second] = [OTHER, KEY].map(|key| swapped.find(key).expect("a key"));
        assert!(first < second, "{swapped}");
        let one = list("{ id: 2, key: '***' }").expect("it is shown so");
        assert!(one.contains(OTHER) && !one.contains(KEY));
        // An element that is new, and one whose identity changed, have no secret.
        for keys in ["{ id: 1, key: '***' }, { id: 2, key: '***' }, { id: 3, key: '***' }", "{ id: 7, key: '***' }"] {
            let error = list(keys).expect_err("no secret is known").to_string();
            let expected = "a.yaml:1: '***' stands for the secret in force here, but there is none";
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn other_words_of_a_line_may_change() {
        let running = running();
        let text = "modules:
  # *** in a comment
  into:
    esp_encrypt:
      associations: [\"0x1001 peer=192.0.2.9 key=***\"]
";
        let restored = restore(text, &running).expect("the SPI is the same");
        assert!(restored.contains(&format!("peer=192.0.2.9 key={KEY}a6b7c8d9\"")), "{restored}");
        assert!(restored.contains("# *** in a comment"), "{restored}");
        // No secret has ever been there.
        assert!(restore("modules: { r: { ip_lookup: { routes: '***' } } }", &running).is_err());
        let pattern = "modules: { r: { dpi: { patterns: ['a***b', 'x *** y', 'q=***'] } } }";
        assert_eq!(restore(pattern, &running).expect("it is no placeholder"), pattern);
        assert_eq!(restore("no: [yaml ***", &running).expect("it is refused later"), "no: [yaml ***");
    }
}
