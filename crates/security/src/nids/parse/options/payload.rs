//! Options about the payload: `content` with its modifiers, and `pcre`.

use forebay_graph::short;
use forebay_units::wording::counted;

use super::{Building, MAX_OFFSET, number, quoted};
use crate::nids::regex::Regex;
use crate::nids::rule::{Amount, ChainStep, Content, ContentRange, Link, Number, Pcre, Rule};

/// The largest number of contents, expressions and similar options of a rule.
const MAX_PARTS: usize = 64;
/// The longest content, in bytes.
const MAX_CONTENT: usize = 1_024;

/// Options that modify the content before them. They may also be written inside the content option, after a comma.
pub(in crate::nids) const MODIFIERS: [&str; 9] =
    ["nocase", "offset", "depth", "distance", "within", "startswith", "endswith", "fast_pattern", "rawbytes"];

/// Parses the bytes of a content. With `latin1`, each character is one byte.
fn bytes(text: &str, latin1: bool) -> Result<Vec<u8>, String> {
    let encoded: Vec<u8> =
        if latin1 { text.chars().map(|letter| letter as u8).collect() } else { text.as_bytes().to_vec() };
    let (mut bytes, mut letters) = (Vec::new(), encoded.into_iter());
    while let Some(byte) = letters.next() {
        match byte {
            b'\\' => bytes.extend(letters.next()),
            b'|' => {
                let mut high = None;
                loop {
                    let Some(byte) = letters.next() else {
                        return Err(
                            "a '|' has no closing '|': write hexadecimal bytes as |0d 0a|, and the character as \\|"
                                .to_owned(),
                        );
                    };
                    let digit = char::from(byte).to_digit(16).map(|digit| digit as u8);
                    match (byte, digit, high) {
                        (b'|', _, None) => break,
                        (b' ', _, None) => {}
                        (_, Some(digit), None) => high = Some(digit),
                        (_, Some(digit), Some(before)) => {
                            bytes.push(before << 4 | digit);
                            high = None;
                        }
                        _ => {
                            let text = short(text);
                            return Err(format!("'{text}': hexadecimal bytes are two digits each, such as |0d 0a|"));
                        }
                    }
                }
            }
            byte => bytes.push(byte),
        }
    }
    if (1..=MAX_CONTENT).contains(&bytes.len()) {
        Ok(bytes)
    } else {
        Err(format!("a content of {} bytes: allowed are 1 to {MAX_CONTENT}", bytes.len()))
    }
}

/// Completes the tests of the payload after all options are parsed. `links` are the options about the payload, in
/// order.
pub(super) fn finish(rule: &mut Rule, links: Vec<Link>) -> Result<(), String> {
    for content in rule.contents.iter_mut().filter(|content| content.only) {
        if (ContentRange::Absolute { offset: 0, depth: None }) != content.place
            || content.by != (None, None)
            || content.end
        {
            return Err(
                "'fast_pattern:only' is not allowed for a content with offset, depth, distance or within".to_owned()
            );
        }
        // Snort searches for such a content only together with the contents of other rules, in either case.
        content.nocase = true;
    }
    rule.chain = chain(rule, links);
    if rule.chain.is_empty() {
        // No option is relative to contents with `fast_pattern:only`, so they come last.
        rule.contents.sort_by_key(|content| content.only);
    }
    for (index, pcre) in rule.pcres.iter_mut().enumerate() {
        let find = rule.chain.iter().any(|step| step.link == Link::Pcre(index) && step.cursor && !pcre.not);
        pcre.regex.keep(find).map_err(|error| format!("pcre: {error}"))?;
    }
    Ok(())
}

/// Returns the chain of a rule: all options about the payload, in order. Returns an empty list if the matchers for
/// contents and for single expressions suffice: the rule has only contents and expressions, no `endswith` and no
/// variables, and no option is relative except contents to other contents.
fn chain(rule: &Rule, mut links: Vec<Link>) -> Vec<ChainStep> {
    let content = |link: &Link| match link {
        Link::Content(index) => Some(&rule.contents[*index]),
        _ => None,
    };
    // No option is relative to contents with `fast_pattern:only`. They come last, so that they are not between two
    // options that depend on each other.
    links.sort_by_key(|link| content(link).is_some_and(|content| content.only));
    let mut after_pcre = false;
    let depends = links.iter().any(|link| match link {
        Link::Content(index) => {
            let content = &rule.contents[*index];
            let relative = matches!(content.place, ContentRange::Relative { .. });
            after_pcre &= relative || content.not;
            content.end || content.by != (None, None) || relative && after_pcre
        }
        Link::Pcre(index) => {
            let pcre = &rule.pcres[*index];
            after_pcre |= !pcre.not;
            pcre.regex.is_relative()
        }
        _ => true,
    });
    if !depends {
        return Vec::new();
    }
    let mut steps = Vec::with_capacity(links.len());
    let (mut cursor, mut variables) = (false, [false; 2]);
    for link in links.into_iter().rev() {
        steps.push(ChainStep { link, cursor, variables });
        let (mut used, mut moves) = (Vec::new(), true);
        let relative;
        let mut reads = |number: &Number| {
            used.push(number.offset);
            number.relative
        };
        match &link {
            Link::Content(index) => {
                let content = &rule.contents[*index];
                relative = matches!(content.place, ContentRange::Relative { .. });
                moves = !content.not;
                used.extend(content.by.0.into_iter().chain(content.by.1).map(Amount::Variable));
            }
            Link::Pcre(index) => {
                relative = rule.pcres[*index].regex.is_relative();
                moves = !rule.pcres[*index].not;
            }
            Link::DataAt { relative: from, at, .. } => {
                relative = *from;
                moves = false;
                used.push(*at);
            }
            Link::Test { number, value, .. } => {
                relative = reads(number);
                moves = false;
                used.push(*value);
            }
            Link::Jump(jump) => {
                relative = reads(&jump.number);
                used.push(jump.post);
            }
            Link::Extract { number, variable, .. } => {
                relative = reads(number);
                variables[usize::from(*variable)] = false;
            }
        }
        cursor = relative || cursor && !moves;
        for amount in used {
            if let Amount::Variable(which) = amount {
                variables[usize::from(which)] = true;
            }
        }
    }
    steps.reverse();
    steps
}

impl Building<'_> {
    /// Adds an option about the payload.
    pub(super) fn link(&mut self, link: Link) {
        self.links.push(link);
    }

    /// Fails if the rule has the largest number of options about the payload. Must be called before another is added.
    pub(super) fn check_room(&self) -> Result<(), String> {
        if self.links.len() < MAX_PARTS {
            return Ok(());
        }
        Err(format!(
            "the rule has more than {MAX_PARTS} contents, expressions and similar options: allowed are up to \
             {MAX_PARTS}"
        ))
    }

    /// Parses an option `content`, with modifiers after commas.
    pub(super) fn content(&mut self, value: &str) -> Result<(), String> {
        self.check_room()?;
        let (not, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim_ascii_start()));
        let (text, rest) = quoted("content", value)?;
        let place = ContentRange::Absolute { offset: 0, depth: None };
        self.rule.contents.push(Content {
            bytes: bytes(text, self.latin1)?,
            nocase: false,
            not,
            fast: false,
            only: false,
            place,
            by: (None, None),
            end: false,
        });
        self.link(Link::Content(self.rule.contents.len() - 1));
        // Snort 3 writes modifiers after commas, Snort 2 as separate options.
        let Some(rest) = rest.strip_prefix(',') else {
            return if rest.is_empty() {
                Ok(())
            } else {
                Err(format!("'{}' after the content: write a comma before it", short(rest)))
            };
        };
        for word in rest.split(',').map(str::trim_ascii) {
            let (name, value) =
                word.split_once([' ', ':']).map_or((word, None), |(name, value)| (name, Some(value.trim_ascii())));
            if !MODIFIERS.contains(&name) {
                return Err(format!("'{}' of a content: allowed are {}", short(name), MODIFIERS.join(", ")));
            }
            self.modifier(name, value)?;
        }
        Ok(())
    }

    /// Applies a modifier to the last content.
    pub(super) fn modifier(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        let variable = value.and_then(|value| self.variable(value));
        let fast_before = self.rule.contents.iter().any(|content| content.fast);
        let Some(content) = self.rule.contents.last_mut() else {
            return Err(format!("'{name}' comes before any content: write it after the content that it modifies"));
        };
        let value = value.unwrap_or("");
        match name {
            "rawbytes" => {}
            "nocase" => content.nocase = true,
            "endswith" => content.end = true,
            "startswith" => {
                let ContentRange::Absolute { offset: 0, depth: None } = content.place else {
                    return Err(
                        "'startswith' is not allowed for a content with offset, depth, distance or within".to_owned()
                    );
                };
                content.place = ContentRange::Absolute { offset: 0, depth: Some(content.bytes.len() as u32) };
            }
            "fast_pattern" => {
                if content.not {
                    return Err("'fast_pattern' is not allowed for a negated content: remove it".to_owned());
                }
                let length = content.bytes.len() as u32;
                match value {
                    "" => {}
                    "only" => content.only = true,
                    // Offset and length have no effect: rules are found by the whole content, which gives the same
                    // result.
                    _ => {
                        let part = value.split_once(',').and_then(|(offset, size)| {
                            let one = |text: &str| number::<u32>(name, text.trim_ascii(), MAX_OFFSET.into()).ok();
                            one(offset)?.checked_add(one(size).filter(|size| *size > 0)?)
                        });
                        if part.is_none_or(|end| end > length) {
                            return Err(format!(
                                "fast_pattern '{}': allowed are 'only', and OFFSET,LENGTH within the {length} bytes of \
                                 the content",
                                short(value)
                            ));
                        }
                    }
                }
                if fast_before {
                    return Err("'fast_pattern' occurs twice: it is allowed once per rule".to_owned());
                }
                content.fast = true;
            }
            "offset" | "depth" => {
                let ContentRange::Absolute { offset, depth } = &mut content.place else {
                    return Err(format!(
                        "'{name}' cannot be combined with distance or within: remove '{name}', or distance and within"
                    ));
                };
                let numbered = variable.is_none();
                let number =
                    if numbered { number(name, value, MAX_OFFSET.into())? } else { content.bytes.len() as u32 };
                if name == "offset" {
                    *offset = if numbered { number } else { 0 };
                    content.by.0 = variable;
                } else {
                    *depth = Some(number);
                    content.by.1 = variable;
                }
            }
            _ => {
                if let ContentRange::Absolute { offset: 0, depth: None } = content.place
                    && content.by == (None, None)
                {
                    content.place = ContentRange::Relative { distance: 0, within: None };
                }
                let ContentRange::Relative { distance, within } = &mut content.place else {
                    return Err(format!(
                        "'{name}' cannot be combined with offset or depth: remove '{name}', or offset and depth"
                    ));
                };
                if name == "within" {
                    content.by.1 = variable;
                    *within = Some(match variable {
                        Some(_) => content.bytes.len() as u32,
                        None => number(name, value, MAX_OFFSET.into())?,
                    });
                } else if variable.is_some() {
                    (*distance, content.by.0) = (0, variable);
                } else {
                    let (minus, digits) = value.strip_prefix('-').map_or((false, value), |rest| (true, rest));
                    let number: i32 = number(name, digits, MAX_OFFSET.into())?;
                    (*distance, content.by.0) = (if minus { -number } else { number }, None);
                }
            }
        }
        let length = content.bytes.len() as u32;
        let (name, bytes) = match content.place {
            ContentRange::Absolute { depth: Some(depth), .. } => ("depth", depth),
            ContentRange::Relative { within: Some(within), .. } => ("within", within),
            _ => return Ok(()),
        };
        if bytes < length {
            return Err(format!(
                "{name} {bytes} is less than the content, which has {}: allowed are {length} or more",
                counted(length, "byte")
            ));
        }
        Ok(())
    }

    /// Parses an option `pcre` and adds its expression to the rule.
    pub(super) fn pcre(&mut self, value: &str) -> Result<(), String> {
        self.check_room()?;
        let (not, value) = value.strip_prefix('!').map_or((false, value), |rest| (true, rest.trim_ascii_start()));
        let (text, rest) = quoted("pcre", value)?;
        if !rest.is_empty() {
            return Err(format!("'{}' after the expression: write ';' after the closing quote", short(rest)));
        }
        let regex = Regex::parse(text, self.latin1).map_err(|error| format!("pcre: {error}"))?;
        self.rule.pcres.push(Pcre { regex, not });
        self.link(Link::Pcre(self.rule.pcres.len() - 1));
        Ok(())
    }
}
