//! Reads YAML text as a tree in which every value has its place.
//!
//! A library scans and parses the text. The tree is Forebay's own, because the check of a configuration needs every
//! part of the text with its line, including wrong parts and duplicate keys. There are limits for hostile text: its
//! length, its depth, and the number of values after aliases are expanded.

mod scalar;

use std::borrow::Cow;
use std::collections::HashMap;

use forebay_protocol::check::Fault;
use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, Span, Tag};
use serde_json::{Number, Value};

use crate::located::{LocatedFault, SourceLocation};
use crate::wording::quote;

use scalar::plain;
pub(crate) use scalar::{is_null, is_plain_text, number};

/// The longest text, in bytes.
pub(crate) const MAX_TEXT: usize = 16 << 20;
/// The largest nesting depth of lists and mappings.
const MAX_DEPTH: usize = 64;
/// The largest number of values in a text. Values that aliases repeat count again.
const MAX_NODES: usize = 1 << 20;

/// A value and its place.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) place: SourceLocation,
    pub(crate) kind: NodeKind,
}

/// The type and content of a value.
#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Map),
}

/// A mapping, in the order of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Map {
    entries: Vec<Entry>,
    /// The index of each entry, by key.
    index: HashMap<String, usize>,
}

/// A key with its value.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) place: SourceLocation,
    /// Whether a setting created the entry. Then the text has no entry of this name.
    pub(crate) new: bool,
    /// Whether a setting leaves the entry out. The schema check then looks only at its key, and [`Node::prune`] removes
    /// it.
    pub(crate) left_out: bool,
    pub(crate) value: Node,
}

impl Map {
    /// Removes the entries that settings leave out, here and below.
    fn prune(&mut self) {
        if self.entries.iter().any(|entry| entry.left_out) {
            self.entries.retain(|entry| !entry.left_out);
            let keys = self.entries.iter().enumerate();
            self.index = keys.map(|(index, entry)| (entry.key.clone(), index)).collect();
        }
        self.entries.iter_mut().for_each(|entry| entry.value.prune());
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Entry> {
        self.index.get(key).map(|index| &self.entries[*index])
    }

    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Entry> {
        self.index.get(key).map(|index| &mut self.entries[*index])
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// Returns the entries for changes. The caller must not change their keys, because the index would not find them.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut()
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// Returns the existing entry if the key exists already.
    pub(crate) fn add(&mut self, entry: Entry) -> Result<(), &Entry> {
        if let Some(index) = self.index.get(&entry.key) {
            return Err(&self.entries[*index]);
        }
        self.index.insert(entry.key.clone(), self.entries.len());
        self.entries.push(entry);
        Ok(())
    }
}

/// Returns a whole number in its integer form: 2 and 2.0 are one value (JSON Schema, core, section 4.2.3).
fn whole(number: &serde_json::Number) -> serde_json::Number {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < 2f64.powi(53) => (float as i64).into(),
        _ => number.clone(),
    }
}

impl Node {
    /// Removes the entries that settings leave out, here and below. Must be called after the schema check and before
    /// values are read.
    pub(crate) fn prune(&mut self) {
        match &mut self.kind {
            NodeKind::Map(map) => map.prune(),
            NodeKind::List(list) => list.iter_mut().for_each(Self::prune),
            _ => {}
        }
    }

    pub(crate) fn as_map(&self) -> Option<&Map> {
        if let NodeKind::Map(map) = &self.kind { Some(map) } else { None }
    }

    pub(crate) fn as_list(&self) -> Option<&[Node]> {
        if let NodeKind::List(list) = &self.kind { Some(list) } else { None }
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        if let NodeKind::Text(text) = &self.kind { Some(text) } else { None }
    }

    /// Returns the value of a key for changes, if this is a mapping that has it.
    pub(crate) fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        if let NodeKind::Map(map) = &mut self.kind { map.get_mut(key).map(|entry| &mut entry.value) } else { None }
    }

    /// Returns the value of a key, if this is a mapping that has it.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.as_map()?.get(key).map(|entry| &entry.value)
    }

    /// Returns the value without places.
    pub(crate) fn to_json(&self) -> Value {
        match &self.kind {
            NodeKind::Null => Value::Null,
            NodeKind::Bool(bool) => Value::Bool(*bool),
            NodeKind::Number(number) => Value::Number(whole(number)),
            NodeKind::Text(text) => Value::String(text.clone()),
            NodeKind::List(list) => Value::Array(list.iter().map(Self::to_json).collect()),
            NodeKind::Map(map) => {
                Value::Object(map.iter().map(|entry| (entry.key.clone(), entry.value.to_json())).collect())
            }
        }
    }

    /// Returns the value for messages: lists and mappings are empty.
    pub(crate) fn to_short_json(&self) -> Value {
        match &self.kind {
            NodeKind::List(_) => Value::Array(Vec::new()),
            NodeKind::Map(_) => Value::Object(serde_json::Map::new()),
            _ => self.to_json(),
        }
    }

    /// Returns the place of the value at `path`; for a list or mapping in a mapping, the place of its key. If the path
    /// does not exist, returns the place of its last existing part.
    pub(crate) fn place_of<'a>(&self, path: impl IntoIterator<Item = &'a str>) -> SourceLocation {
        let (mut node, mut place) = (self, self.place);
        for part in path {
            (node, place) = match &node.kind {
                NodeKind::Map(map) => match map.get(part) {
                    Some(entry) if entry.value.is_scalar() => (&entry.value, entry.value.place),
                    Some(entry) => (&entry.value, entry.place),
                    None => break,
                },
                NodeKind::List(list) => match part.parse::<usize>().ok().and_then(|index| list.get(index)) {
                    Some(item) => (item, item.place),
                    None => break,
                },
                _ => break,
            };
        }
        place
    }

    fn is_scalar(&self) -> bool {
        !matches!(self.kind, NodeKind::List(_) | NodeKind::Map(_))
    }

    /// Returns the number of values here and below, with keys.
    fn count(&self) -> usize {
        match &self.kind {
            NodeKind::List(list) => 1 + list.iter().map(Self::count).sum::<usize>(),
            NodeKind::Map(map) => 1 + map.iter().map(|entry| 1 + entry.value.count()).sum::<usize>(),
            _ => 1,
        }
    }
}

/// Reads a text. Errors that leave a usable tree (duplicate keys) are added to `faults`.
///
/// # Errors
/// Returns the place and the message of an error that leaves no tree.
pub(crate) fn parse(text: &str, faults: &mut Vec<LocatedFault>) -> Result<Node, LocatedFault> {
    if text.len() > MAX_TEXT {
        let message = format!("the text has {} bytes: allowed are up to {MAX_TEXT}", text.len());
        return Err(LocatedFault::new(SourceLocation::START, message));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.starts_with('\u{feff}') {
        let message = "it begins with two byte-order marks (EF BB BF): allowed is one";
        return Err(LocatedFault::new(SourceLocation::START, message));
    }
    let text = shield_gates(text);
    let shielded = matches!(text, Cow::Owned(_));
    let mut composer = Composer {
        parser: Parser::new_from_str(&text),
        text: &text,
        shielded,
        faults,
        anchors: HashMap::new(),
        nodes: 0,
        depth: 0,
    };
    composer.document()
}

/// The characters that replace the brackets of `module[gate]` while YAML is parsed.
const SHIELDS: [char; 2] = ['\u{e000}', '\u{e001}'];

/// Replaces the brackets of gates by other characters. YAML forbids brackets in plain text inside `[ ]` and `{ }`, so
/// that `path: [vlans[100], fw]` would be an error. A bracket directly after a name has no other meaning there. So such
/// a bracket is hidden from the scanner, and restored in the text of the value.
fn shield_gates(text: &str) -> Cow<'_, str> {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if text.contains(SHIELDS) {
        return Cow::Borrowed(text);
    }
    let mut shielded = String::new();
    let mut done = 0;
    for (open, _) in text.match_indices('[') {
        let gate = &text[open + 1..];
        let len = gate.find(|c| !in_name(c)).unwrap_or(gate.len());
        if len > 0 && gate[len..].starts_with(']') && text[done..open].ends_with(in_name) {
            shielded.push_str(&text[done..open]);
            shielded.push(SHIELDS[0]);
            shielded.push_str(&gate[..len]);
            shielded.push(SHIELDS[1]);
            done = open + len + 2;
        }
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    shielded.push_str(&text[done..]);
    Cow::Owned(shielded)
}

/// Returns the place of an event, with line and column from 1.
fn place(span: &Span) -> SourceLocation {
    let whole = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    SourceLocation::Line(whole(span.start.line()), whole(span.start.col()).saturating_add(1))
}

/// Builds the tree from the parser's events.
struct Composer<'i, 'f> {
    parser: Parser<'i, granit_parser::StrInput<'i>>,
    text: &'i str,
    /// Whether brackets of gates were replaced in the text.
    shielded: bool,
    faults: &'f mut Vec<LocatedFault>,
    /// The values of anchors, by the parser's number of the anchor.
    anchors: HashMap<usize, Node>,
    /// The number of values so far, for the limit.
    nodes: usize,
    /// The nesting depth of the present value, for the limit.
    depth: usize,
}

impl<'i> Composer<'i, '_> {
    /// Reads the only document of the text.
    fn document(&mut self) -> Result<Node, LocatedFault> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::DocumentStart(..) if root.is_some() => {
                    return Err(LocatedFault::new(
                        place(&span),
                        "a second document begins: a configuration is one document",
                    ));
                }
                Event::StreamStart | Event::StreamEnd | Event::DocumentStart(..) | Event::DocumentEnd => {}
                event => root = Some(self.node(event, &span)?),
            }
        }
        root.ok_or_else(|| {
            let message =
                "the text is empty: a pipeline has at least `ports` and `pipeline`, a file of chains has `chains`";
            LocatedFault::new(SourceLocation::START, message)
        })
    }

    /// Returns the next event of the parser, without comments; `None` at the end of the text.
    fn next(&mut self) -> Result<Option<(Event<'i>, Span)>, LocatedFault> {
        loop {
            match self.parser.next_event() {
                None => return Ok(None),
                Some(Ok((Event::Comment(..), _))) => {}
                Some(Ok(event)) => return Ok(Some(event)),
                Some(Err(error)) => {
                    let span = Span::new(*error.marker(), *error.marker());
                    if matches!(error.kind(), ErrorKind::UnknownAnchor) {
                        return Err(LocatedFault::from_fault(
                            place(&span),
                            self.unknown_anchor(error.marker().index()),
                        ));
                    }
                    return Err(LocatedFault::new(
                        place(&span),
                        format!("not YAML: {}", self.unshield(error.info().into())),
                    ));
                }
            }
        }
    }

    /// Returns the fault of an alias whose anchor is unknown. The alias begins at the character with this index.
    fn unknown_anchor(&self, index: usize) -> Fault {
        let of_alias = |c: &char| !c.is_whitespace() && !",[]{}".contains(*c);
        let alias: String = self.text.chars().skip(index).take_while(of_alias).collect();
        let wrong = format!("no anchor is called {}", quote(&self.unshield(alias.trim_start_matches('*').into())));
        Fault::with_hint(wrong, "write `&` and this name before the value that the alias repeats")
    }

    /// Reads the value that begins with `event`.
    fn node(&mut self, event: Event<'i>, span: &Span) -> Result<Node, LocatedFault> {
        let place = place(span);
        self.count(1, place)?;
        let (kind, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let text = self.unshield(text);
                (scalar(text, style, tag.as_deref(), place)?, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                refuse_tag(tag.as_deref(), place)?;
                self.enter(place)?;
                let mut list = Vec::new();
                loop {
                    match self.within(place)? {
                        (Event::SequenceEnd, _) => break,
                        (event, span) => list.push(self.node(event, &span)?),
                    }
                }
                self.depth -= 1;
                (NodeKind::List(list), anchor)
            }
            Event::MappingStart(_, anchor, tag) => {
                refuse_tag(tag.as_deref(), place)?;
                self.enter(place)?;
                let map = self.map(place)?;
                self.depth -= 1;
                (NodeKind::Map(map), anchor)
            }
            Event::Alias(anchor) => {
                // An alias inside its own anchor is not found, because the anchor is added when its value ends.
                let Some(node) = self.anchors.get(&anchor) else {
                    return Err(LocatedFault::new(
                        place,
                        "the alias is inside the value that it repeats: remove the alias",
                    ));
                };
                let node = Node { place, ..node.clone() };
                self.count(node.count(), place)?;
                return Ok(node);
            }
            event => return Err(LocatedFault::new(place, format!("not YAML: unexpected {event:?}"))),
        };
        let node = Node { place, kind };
        if anchor != 0 {
            self.count(node.count(), place)?;
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    /// Reads the entries of the mapping that began at `start`, up to its end.
    fn map(&mut self, start: SourceLocation) -> Result<Map, LocatedFault> {
        let mut map = Map::default();
        loop {
            let (event, span) = self.within(start)?;
            if matches!(event, Event::MappingEnd) {
                return Ok(map);
            }
            let at = place(&span);
            let Event::Scalar(key, ..) = event else {
                return Err(LocatedFault::new(at, "a key is a list, a mapping or an alias: allowed is text"));
            };
            self.count(1, at)?;
            let key = self.unshield(key);
            let (event, span) = self.within(start)?;
            let value = self.node(event, &span)?;
            if let Err(first) = map.add(Entry { key: key.clone(), place: at, new: false, left_out: false, value }) {
                let line = if let SourceLocation::Line(line, _) = first.place { line } else { 1 };
                let wrong = format!("the key {} is here a second time; the first is in line {line}", quote(&key));
                self.faults.push(LocatedFault::from_fault(at, Fault::with_hint(wrong, "remove one of them")));
            }
        }
    }

    /// Returns the next event inside the list or mapping that began at `start`. Returns an error if the text ends
    /// there.
    fn within(&mut self, start: SourceLocation) -> Result<(Event<'i>, Span), LocatedFault> {
        self.next()?.ok_or_else(|| LocatedFault::new(start, "not YAML: it ends inside this value"))
    }

    /// Enters a list or mapping. Returns an error if the nesting is too deep.
    fn enter(&mut self, place: SourceLocation) -> Result<(), LocatedFault> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let wrong = format!("nested more than {MAX_DEPTH} levels deep: allowed are up to {MAX_DEPTH} levels");
            return Err(LocatedFault::new(place, wrong));
        }
        Ok(())
    }

    /// Counts values. Returns an error if there are too many.
    fn count(&mut self, nodes: usize, place: SourceLocation) -> Result<(), LocatedFault> {
        self.nodes += nodes;
        if self.nodes > MAX_NODES {
            return Err(LocatedFault::new(
                place,
                format!("more than {MAX_NODES} values, including the values that aliases repeat: use fewer values"),
            ));
        }
        Ok(())
    }

    /// Restores the brackets of gates in a text.
    fn unshield(&self, text: Cow<'_, str>) -> String {
        if self.shielded { text.replace(SHIELDS[0], "[").replace(SHIELDS[1], "]") } else { text.into_owned() }
    }
}

/// Returns an error if there is a tag.
fn refuse_tag(tag: Option<&Tag>, place: SourceLocation) -> Result<(), LocatedFault> {
    tag.map_or(Ok(()), |tag| {
        Err(LocatedFault::new(place, format!("the tag {} has no meaning here: leave it out", quote(&tag.original()))))
    })
}

/// Returns the value of a scalar, by its style and tag.
fn scalar(
    text: String,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: SourceLocation,
) -> Result<NodeKind, LocatedFault> {
    match tag {
        Some(tag) if tag.is_yaml_core_schema_tag("str") => return Ok(NodeKind::Text(text)),
        tag => refuse_tag(tag, place)?,
    }
    Ok(if matches!(style, ScalarStyle::Plain) { plain(text) } else { NodeKind::Text(text) })
}

#[cfg(test)]
mod tests;
