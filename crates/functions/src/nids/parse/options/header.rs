//! Options about headers: comparisons with numbers, and TCP's control bits.

use super::super::short;
use super::{Building, number};
use crate::nids::rule::{Bits, Protocol, Span, Test};

/// A comparison: `5`, `<5`, `>=5`, `!5`, `3<>5`, `3-5`.
pub(super) fn span(name: &str, text: &str, most: u32) -> Result<Span, String> {
    let one = |text: &str| {
        number::<u32>(name, text.trim_ascii(), most.into()).map_err(|_| {
            format!("{name} '{}': allowed are numbers from 0 to {most}, <5, >5, <=5, >=5, !5 and 3<>5", short(text))
        })
    };
    let nothing = || format!("{name} '{}': no number is so", short(text));
    let (not, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim_ascii_start()));
    let (first, last) = if let Some((first, last)) = text.split_once("<=>").or_else(|| text.split_once("<>")) {
        (one(first)?, one(last)?)
    } else if let Some(least) = text.strip_prefix(">=") {
        (one(least)?, most)
    } else if let Some(greatest) = text.strip_prefix("<=") {
        (0, one(greatest)?)
    } else if let Some(below) = text.strip_prefix('>') {
        (one(below)?.checked_add(1).filter(|first| *first <= most).ok_or_else(nothing)?, most)
    } else if let Some(above) = text.strip_prefix('<') {
        (0, one(above)?.checked_sub(1).ok_or_else(nothing)?)
    } else if let Some((first, last)) = text.split_once('-') {
        (if first.is_empty() { 0 } else { one(first)? }, if last.is_empty() { most } else { one(last)? })
    } else {
        let only = one(text.strip_prefix('=').unwrap_or(text))?;
        (only, only)
    };
    if last < first {
        return Err(nothing());
    }
    Ok(Span { first, last, not })
}

impl Building<'_> {
    pub(super) fn flags(&mut self, value: &str) -> Result<(), String> {
        if self.rule.protocol != Protocol::Tcp {
            return Err("'flags' of a rule that is not of tcp".to_owned());
        }
        let read = |text: &str| {
            text.chars().try_fold(0u8, |bits, letter| {
                Ok(bits | match letter.to_ascii_uppercase() {
                    'F' => 1,
                    'S' => 2,
                    'R' => 4,
                    'P' => 8,
                    'A' => 16,
                    'U' => 32,
                    'E' | '2' => 64,
                    'C' | '1' => 128,
                    '0' => 0,
                    _ => return Err(format!("flags '{}': allowed are F, S, R, P, A, U, E, C and 0, with !, * or + and a mask behind a comma", short(value))),
                })
            })
        };
        let (bits, mask) = value.split_once(',').map_or((value, ""), |(bits, mask)| (bits, mask.trim_ascii()));
        let letters = bits.trim_ascii().trim_matches(['!', '*', '+']);
        let signs: String = bits.chars().filter(|letter| ['!', '*', '+'].contains(letter)).collect();
        let how = match signs.as_str() {
            "" => Bits::Exactly,
            "+" => Bits::All,
            "*" => Bits::Any,
            "!" => Bits::None,
            _ => return Err(format!("flags '{}': allowed is one of !, * and +", short(value))),
        };
        if letters.is_empty() {
            return Err(format!("flags '{}': no flag", short(value)));
        }
        self.rule.tests.push(Test::Flags { how, bits: read(letters)?, mask: !read(mask)? });
        Ok(())
    }
}
