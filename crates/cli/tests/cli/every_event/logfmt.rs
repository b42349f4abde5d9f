//! A strict parser of logfmt. It shares no code with the printer (`docs/events.md`).

/// Returns true if a line must not contain the character: it ends a line, controls a terminal, or changes the text
/// direction.
pub(super) fn is_forbidden(character: char) -> bool {
    let code = u32::from(character);
    let is_control = code < 0x20 || (0x7f..0xa0).contains(&code);
    let is_separator = (0x2028..=0x2029).contains(&code);
    let changes_direction = [0x61c, 0x200e, 0x200f].contains(&code) || (0x202a..=0x202e).contains(&code);
    is_control || is_separator || changes_direction || (0x2066..=0x2069).contains(&code)
}

/// Parses a line without its line break: pairs with one space between them, each name once.
pub(super) fn parse(line: &str) -> Result<Vec<(String, String)>, String> {
    if let Some(bad) = line.chars().find(|character| is_forbidden(*character)) {
        return Err(format!("a character that must be escaped: {bad:?}"));
    }
    let (mut pairs, mut rest): (Vec<(String, String)>, _) = (Vec::new(), line);
    loop {
        let (name, value) = rest.split_once('=').ok_or("no =")?;
        if name.is_empty() || !name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_')) {
            return Err(format!("not a name: {name:?}"));
        }
        if pairs.iter().any(|(known, _)| known == name) {
            return Err(format!("{name} is there twice"));
        }
        let (value, more) = match value.strip_prefix('"') {
            Some(quoted) => quoted_value(quoted)?,
            None => plain_value(value)?,
        };
        pairs.push((name.to_owned(), value));
        match more.strip_prefix(' ') {
            Some(next) => rest = next,
            None if more.is_empty() => return Ok(pairs),
            None => return Err(format!("no end or a space before {more:?}")),
        }
    }
}

fn plain_value(text: &str) -> Result<(String, &str), String> {
    let (value, more) = text.split_at(text.find(' ').unwrap_or(text.len()));
    if value.is_empty() {
        return Err("no value".to_owned());
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:@%+,#".contains(&byte);
    if !value.bytes().all(is_plain) {
        return Err(format!("not a plain value: {value:?}"));
    }
    Ok((value.to_owned(), more))
}

/// Parses up to the closing quote, with the escapes of JSON (RFC 8259, section 7).
fn quoted_value(text: &str) -> Result<(String, &str), String> {
    let (mut units, mut characters) = (Vec::new(), text.char_indices());
    while let Some((at, character)) = characters.next() {
        if character == '"' {
            let value = String::from_utf16(&units).map_err(|_| "half a character")?;
            return Ok((value, &text[at + 1..]));
        }
        if character != '\\' {
            units.extend(character.encode_utf16(&mut [0; 2]).iter());
            continue;
        }
        let (_, escape) = characters.next().ok_or("no end")?;
        units.push(match escape {
            '"' | '\\' | '/' => escape as u16,
            'b' => 8,
            'f' => 12,
            'n' => 10,
            'r' => 13,
            't' => 9,
            'u' => {
                let digits: String = characters.by_ref().take(4).map(|(_, digit)| digit).collect();
                u16::from_str_radix(&digits, 16).map_err(|_| format!("not an escape: \\u{digits}"))?
            }
            other => return Err(format!("not an escape: \\{other}")),
        });
    }
    Err("no end".to_owned())
}
