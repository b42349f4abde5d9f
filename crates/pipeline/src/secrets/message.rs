//! Removes the words of a configuration that may be secrets from messages.

use std::cell::OnceCell;
use std::collections::{BTreeSet, HashSet};
use std::ops::Bound::{Included, Unbounded};
use std::ops::Range;

use forebay_graph::secret::{HIDDEN, is_key, keys, without_keys_but};

use super::{Setting, names, words};
use crate::yaml::{self, Node, NodeKind};

/// The length of the shortest word that is hidden, and of the parts of keys that are searched, in characters.
const SHORTEST: usize = 8;

/// Parameters whose value may be the name of a file.
const FILES: [&str; 9] = ["file", "patterns", "read", "routes", "rules", "sessions", "teids", "tunnels", "write"];

/// The words of a configuration that may be secrets.
pub(crate) struct SecretWords<'t> {
    text: &'t str,
    /// The words that are hidden if a message contains the whole word.
    whole: BTreeSet<String>,
    /// Every part of [`SHORTEST`] characters of the words that may be a key.
    parts: HashSet<Vec<char>>,
    /// The names that are never hidden. They are found when they are needed for the first time.
    names: OnceCell<HashSet<String>>,
}

impl<'t> SecretWords<'t> {
    /// Finds the words of a text and of its settings.
    pub(crate) fn of(text: &'t str, sets: &[String]) -> Self {
        let mut secret = Self { text, whole: BTreeSet::new(), parts: HashSet::new(), names: OnceCell::new() };
        if words(text).any(|word| names().has_secrets(word)) {
            secret.note_text(text);
        }
        for set in sets {
            let setting = Setting::of(set);
            if setting.shown() != *set {
                secret.note_setting(&setting);
            }
        }
        secret
    }

    /// Adds the words of a text that may be secrets. The lines that belong to a kind with secrets are the following
    /// lines with a larger indent. Works without a YAML parser, because the text may not be YAML.
    fn note_text(&mut self, text: &str) {
        let mut within: Option<usize> = None;
        for line in text.lines() {
            let indent = line.len() - line.trim_start().len();
            let blank = line.trim().is_empty();
            if within.is_some_and(|kind| indent <= kind && !blank) {
                within = None;
            }
            let code = &line[..start_of_comment(line)];
            let of_names = |names: &HashSet<String>| {
                words(code)
                    .find(|word| names.contains(*word))
                    .map(|word| word.as_ptr() as usize - line.as_ptr() as usize)
            };
            if within.is_some() {
                self.note_values(line, 0..code.len());
            } else if let Some(at) = of_names(&names().kinds) {
                within = Some(indent);
                self.note_values(line, at..code.len());
            } else if let Some(at) = of_names(&names().parameters) {
                // The line may contain a key, because the key is in a wrong line or below a misspelt kind. Adds only
                // words with a digit.
                words(&line[at..]).filter(|word| has_digit(word)).for_each(|word| self.note(word));
            }
            self.note_keys(line);
        }
    }

    /// Adds the words of a line from the beginning of `code` on. The names in `name=value`, and the words of the
    /// comment after `code`, are added only if they have a digit.
    fn note_values(&mut self, line: &str, code: Range<usize>) {
        for word in words(&line[code.start..]) {
            let at = word.as_ptr() as usize - line.as_ptr() as usize;
            let is_name = line[at + word.len()..].starts_with('=') || at >= code.end;
            if !is_name || has_digit(word) {
                self.note(word);
            }
        }
    }

    /// Adds the hidden value and the hidden parts of the path of a setting.
    fn note_setting(&mut self, setting: &Setting<'_>) {
        setting.path.iter().filter(|(_, strange)| *strange).for_each(|(part, _)| self.note(part));
        self.note_keys(setting.value.unwrap_or(setting.text));
        if setting.shown == HIDDEN {
            match setting.value {
                Some(value) => words(value).for_each(|word| self.note(word)),
                None => words(setting.text).flat_map(|word| word.split('.')).for_each(|word| self.note(word)),
            }
        }
    }

    /// Adds the parts of a text that look like keys, wherever they are.
    fn note_keys(&mut self, text: &str) {
        keys(text, &HashSet::new()).into_iter().for_each(|key| self.note_parts(&text[key]));
    }

    /// Adds every part of [`SHORTEST`] characters of a key, because a message may show only a part of it.
    fn note_parts(&mut self, key: &str) {
        let letters: Vec<char> = key.chars().collect();
        self.parts.extend(letters.windows(SHORTEST).map(<[char]>::to_vec));
    }

    /// Adds a word that may be a secret. Ignores short words, file names, addresses and words of the language.
    fn note(&mut self, word: &str) {
        let is_key = is_key(word);
        let is_file = word.rsplit_once('.').is_some_and(|(_, extension)| {
            (1..=5).contains(&extension.len()) && extension.bytes().all(|c| c.is_ascii_alphabetic())
        });
        let is_name = is_file || word.parse::<std::net::Ipv4Addr>().is_ok() || names().words.contains(word);
        if word.chars().count() < SHORTEST || is_name && !is_key {
            return;
        }
        // Messages may show the word in the form of a number.
        let number = yaml::number(word).map(|number| number.to_string());
        for form in [Some(word), number.as_deref()].into_iter().flatten() {
            if is_key {
                self.note_parts(form);
                continue;
            }
            let plain = form.strip_prefix("0x").unwrap_or(form);
            let pieces = [form, plain].into_iter().chain(form.split(|c| !of_word(c))).map(trimmed);
            self.whole.extend(pieces.filter(|piece| piece.chars().count() >= SHORTEST).map(str::to_owned));
        }
    }

    /// Returns a message in which [`HIDDEN`] replaces these words, and any other text that looks like a key.
    pub(crate) fn remove(&self, message: &str) -> String {
        let mut secret: Vec<Range<usize>> = Vec::new();
        if !self.parts.is_empty() {
            let letters: Vec<char> = message.chars().collect();
            let starts: Vec<usize> = message.char_indices().map(|(at, _)| at).chain([message.len()]).collect();
            let parts = letters.windows(SHORTEST).enumerate().filter(|(_, part)| self.parts.contains(*part));
            secret.extend(parts.map(|(at, _)| starts[at]..starts[at + SHORTEST]));
        }
        if !self.whole.is_empty() {
            let pieces = words(message).flat_map(|word| [word].into_iter().chain(word.split(|c| !of_word(c))));
            let pieces = pieces.flat_map(|piece| [piece, after_escape(message, piece)]);
            for piece in pieces.map(trimmed).filter(|piece| self.is_hidden(message, piece)) {
                let at = piece.as_ptr() as usize - message.as_ptr() as usize;
                secret.push(at..at + piece.len());
            }
        }
        let secret = self.without_names(message, joined(secret));
        let (mut shown, mut end) = (String::with_capacity(message.len()), 0);
        for span in secret {
            shown.push_str(&message[end..span.start]);
            shown.push_str(HIDDEN);
            end = span.end;
        }
        shown.push_str(&message[end..]);
        let without = without_keys_but(&shown, &HashSet::new());
        if without == shown { shown } else { without_keys_but(&shown, self.names()) }
    }

    /// Returns whether a piece of a message is one of the whole words, or the beginning of a word that the message cuts
    /// with `…`.
    fn is_hidden(&self, message: &str, piece: &str) -> bool {
        let end = piece.as_ptr() as usize - message.as_ptr() as usize + piece.len();
        if message[end..].starts_with('…') && piece.chars().count() >= SHORTEST {
            let next = self.whole.range::<str, _>((Included(piece), Unbounded)).next();
            return next.is_some_and(|word| word.starts_with(piece));
        }
        self.whole.contains(piece)
    }

    /// Returns `spans` without the spans in names of modules, ports, states and files, which are never hidden.
    fn without_names(&self, message: &str, mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
        if !spans.is_empty() {
            spans.retain(|span| {
                let start = message[..span.start].trim_end_matches(of_word).len();
                let end = message.len() - message[span.end..].trim_start_matches(of_word).len();
                !self.names().contains(&message[start..end])
            });
        }
        spans
    }

    /// Returns the names of modules, ports and states, and of files without secrets.
    fn names(&self) -> &HashSet<String> {
        self.names.get_or_init(|| {
            let mut found = HashSet::new();
            let Ok(root) = yaml::parse(self.text, &mut Vec::new()) else { return found };
            for section in ["ports", "state", "modules"] {
                let named = root.get(section).and_then(Node::as_map).into_iter().flat_map(yaml::Map::iter);
                for entry in named {
                    found.insert(entry.key.clone());
                    let kinds = entry.value.as_map().into_iter().flat_map(yaml::Map::iter);
                    kinds
                        .filter(|kind| !names().kinds.contains(&kind.key))
                        .for_each(|kind| files(&kind.value, &mut found));
                }
            }
            found
        })
    }
}

/// Returns the rest of a piece of a message that begins with an escaped control character: `word` for `u000aword`
/// after a backslash. Returns other pieces unchanged.
fn after_escape<'m>(message: &'m str, piece: &'m str) -> &'m str {
    let at = piece.as_ptr() as usize - message.as_ptr() as usize;
    let digits = piece.strip_prefix('u').and_then(|rest| rest.split_at_checked(4));
    match digits {
        Some((digits, rest)) if message[..at].ends_with('\\') && digits.bytes().all(|c| c.is_ascii_hexdigit()) => rest,
        _ => piece,
    }
}

/// Adds the names of files in parameters to `found`.
fn files(params: &Node, found: &mut HashSet<String>) {
    match &params.kind {
        NodeKind::Map(map) => {
            for entry in map.iter() {
                match entry.value.as_text() {
                    Some(name) if FILES.contains(&entry.key.as_str()) => drop(found.insert(name.to_owned())),
                    _ => files(&entry.value, found),
                }
            }
        }
        NodeKind::List(list) => list.iter().for_each(|node| files(node, found)),
        _ => {}
    }
}

/// Sorts spans, and joins spans that overlap or touch.
fn joined(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.sort_by_key(|span| span.start);
    let mut joined = Vec::<Range<usize>>::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => joined.push(span),
        }
    }
    joined
}

fn has_digit(word: &str) -> bool {
    word.bytes().any(|c| c.is_ascii_digit())
}

/// Returns whether a character may be part of a name.
fn of_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns a word without punctuation at its ends.
fn trimmed(word: &str) -> &str {
    word.trim_matches(|c| matches!(c, '.' | '-' | '_' | '+' | '…'))
}

/// Returns the index at which a line's comment begins, or the length of a line without a comment. A comment begins with
/// a number sign after a blank, outside of quotes.
pub(super) fn start_of_comment(line: &str) -> usize {
    let (mut double, mut single, mut blank) = (false, false, true);
    let begins = |(_, c): &(usize, char)| {
        let comment = *c == '#' && blank && !double && !single;
        double ^= *c == '"';
        single ^= *c == '\'';
        blank = c.is_whitespace();
        comment
    };
    line.char_indices().find(begins).map_or(line.len(), |(at, _)| at)
}
