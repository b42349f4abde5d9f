//! Options that read numbers from payloads (`byte_test`, `byte_jump`, `byte_extract`), and `isdataat`.

use forebay_graph::short;
use forebay_units::wording::counted;

use super::{Building, MAX_OFFSET, number};
use crate::nids::rule::{Amount, Base, Jump, Link, Number, NumberForm, Operator};

/// The largest number of bytes of a binary number.
const MAX_BYTES: u64 = 4;
/// The largest number of digits of a number in text.
const MAX_DIGITS: u64 = 10;
/// The largest number of variables of a rule, as in Snort.
const MAX_VARIABLES: usize = 2;

/// The arguments that may come in any order.
#[derive(Default)]
struct Arguments {
    /// True if the position is relative to the end of the previous option.
    relative: bool,
    /// True if the least significant byte comes first.
    little: bool,
    /// True if the number is in text (`string`).
    text: bool,
    /// The base of a number in text; 10 if none is given.
    base: Option<u8>,
    /// The mask (`bitmask`); 0 without one.
    mask: u32,
    /// The factor by which the number is multiplied; without it, 1.
    multiplier: Option<u32>,
    /// The alignment; 0 without one.
    align: u8,
    /// The origin of a jump; without it, the end of the number.
    jump: Option<Base>,
    /// The amount that is added to the target of a jump.
    post: Option<Amount>,
}

impl Building<'_> {
    /// Parses a number within bounds, or the name of a variable that is already set.
    pub(super) fn amount(&self, name: &str, text: &str, least: i64, most: i64) -> Result<Amount, String> {
        let text = text.trim_ascii();
        if text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_') {
            return self.variable(text).map(Amount::Variable).ok_or_else(|| {
                format!("{name} '{}': no earlier byte_extract sets a variable of this name", short(text))
            });
        }
        let (minus, digits) = match text.strip_prefix('-') {
            Some(digits) => (true, digits),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let value = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
            Some(hex) => i64::from_str_radix(hex, 16).ok().filter(|_| hex.len() <= 8 && !hex.starts_with(['+', '-'])),
            None => digits.parse().ok().filter(|_| digits.bytes().all(|byte| byte.is_ascii_digit())),
        };
        let value = value.map(|value: i64| if minus { -value } else { value });
        let value = value.filter(|value| (least..=most).contains(value));
        value.map(Amount::Fixed).ok_or_else(|| {
            format!("{name} '{}': allowed are {least} to {most}, and variables of byte_extract", short(text))
        })
    }

    /// Returns the index of a variable that an earlier `byte_extract` sets.
    pub(super) fn variable(&self, name: &str) -> Option<u8> {
        self.variables.iter().position(|known| known == name).map(|index| index as u8)
    }

    /// Parses the number that an option reads: its size, its position and the other arguments.
    fn source(&self, name: &str, bytes: &str, offset: &str, rest: &Arguments) -> Result<Number, String> {
        if rest.base.is_some() && !rest.text {
            return Err(format!("{name}: hex, dec and oct are allowed only with string"));
        }
        if rest.text && rest.little {
            return Err(format!("{name}: little is not allowed with string"));
        }
        let most = if rest.text { MAX_DIGITS } else { MAX_BYTES };
        // `byte_jump: 0, 0, from_end, post_offset -6` in the Snort 2 manual: a number of 0 bytes has the value 0.
        let none = name == "byte_jump" && !rest.text && rest.mask == 0;
        let least = u8::from(!none);
        let bytes =
            number::<u8>(name, bytes.trim_ascii(), most).ok().filter(|bytes| *bytes >= least).ok_or_else(|| {
                let digits = if rest.text { String::new() } else { format!(" (1 to {MAX_DIGITS} with string)") };
                format!("{name} '{}': allowed are {least} to {most} bytes{digits}", short(bytes))
            })?;
        let offset = self.amount(name, offset, -i64::from(MAX_OFFSET), MAX_OFFSET.into())?;
        if !rest.text && u32::from(bytes) < 4 && rest.mask >> (8 * u32::from(bytes)) != 0 {
            let most = (1u32 << (8 * u32::from(bytes))) - 1;
            let bytes = counted(bytes, "byte");
            return Err(format!("{name}: a bitmask of more than {bytes}: allowed are 0x1 to {most:#x}"));
        }
        let form = match (rest.text, rest.little) {
            (true, _) => NumberForm::Text(rest.base.unwrap_or(10)),
            (_, true) => NumberForm::Little,
            _ => NumberForm::Big,
        };
        Ok(Number { bytes, offset, relative: rest.relative, form, mask: rest.mask })
    }

    /// Parses the arguments that may come in any order. `allowed` lists the arguments of this option besides those
    /// that `byte_test`, `byte_jump` and `byte_extract` all have ([`arguments`]).
    fn rest<'t>(
        &self,
        name: &str,
        words: impl Iterator<Item = &'t str>,
        allowed: &[&str],
    ) -> Result<Arguments, String> {
        let mut rest = Arguments::default();
        for word in words {
            let (key, value) = word.split_once([' ', ':']).map_or((word, ""), |(key, value)| (key, value.trim_ascii()));
            let own = ["multiplier", "align", "from_beginning", "from_end", "post_offset"].contains(&key);
            if own && !allowed.contains(&key) {
                return Err(format!("{name} '{}': allowed with {name} are {}", short(word), arguments(allowed)));
            }
            match (key, value) {
                ("relative", "") => rest.relative = true,
                ("big", "") => rest.little = false,
                ("little", "") => rest.little = true,
                ("endian", "big") => rest.little = false,
                ("endian", "little") => rest.little = true,
                ("string", "") => rest.text = true,
                ("hex", "") => rest.base = Some(16),
                ("dec", "") => rest.base = Some(10),
                ("oct", "") => rest.base = Some(8),
                ("dce", "") => {
                    return Err(format!("{name} 'dce': DCE/RPC is not decoded: write big or little"));
                }
                ("bitmask", value) => match self.amount(name, value, 1, u32::MAX.into())? {
                    Amount::Fixed(mask) => rest.mask = mask as u32,
                    Amount::Variable(_) => {
                        return Err(format!("{name} bitmask '{}': allowed is a number", short(value)));
                    }
                },
                ("multiplier", value) => match number::<u32>(name, value, 65_535)? {
                    0 => return Err(format!("{name} multiplier 0: allowed are 1 to 65535")),
                    multiplier => rest.multiplier = Some(multiplier),
                },
                ("align", "") => rest.align = 4,
                ("align", value) => {
                    rest.align = number::<u8>(name, value, 4)?;
                    if ![0, 2, 4].contains(&rest.align) {
                        return Err(format!("{name} align '{}': allowed are 2 and 4", short(value)));
                    }
                }
                ("from_beginning", "") if rest.jump.is_none() => rest.jump = Some(Base::Start),
                ("from_end", "") if rest.jump.is_none() => rest.jump = Some(Base::End),
                ("post_offset", value) => {
                    rest.post = Some(self.amount(name, value, -i64::from(MAX_OFFSET), MAX_OFFSET.into())?);
                }
                _ => {
                    return Err(format!("{name} '{}': allowed with {name} are {}", short(word), arguments(allowed)));
                }
            }
        }
        Ok(rest)
    }

    /// Parses an option `byte_test` and adds it to the options about the payload.
    pub(super) fn byte_test(&mut self, value: &str) -> Result<(), String> {
        self.check_room()?;
        let words: Vec<&str> = value.split(',').map(str::trim_ascii).collect();
        let [bytes, operator, wanted, offset, rest @ ..] = &words[..] else {
            return Err(format!("byte_test '{}': write BYTES, OPERATOR, VALUE, OFFSET", short(value)));
        };
        let rest = self.rest("byte_test", rest.iter().copied(), &[])?;
        let (not, sign) = operator.strip_prefix('!').map_or((false, *operator), |sign| (true, sign.trim_ascii()));
        let operator = match sign {
            "<" => Operator::Less,
            ">" => Operator::More,
            "=" => Operator::Equal,
            // A `!` without an operator means "not equal".
            "" if not => Operator::Equal,
            "<=" => Operator::AtMost,
            ">=" => Operator::AtLeast,
            "&" => Operator::And,
            "^" => Operator::Xor,
            _ => {
                return Err(format!(
                    "byte_test '{}': allowed are the operators <, >, =, <=, >=, & and ^, each optionally after !",
                    short(operator)
                ));
            }
        };
        let wanted = self.amount("byte_test", wanted, 0, u32::MAX.into())?;
        let number = self.source("byte_test", bytes, offset, &rest)?;
        self.link(Link::Test { number, not, operator, value: wanted });
        Ok(())
    }

    /// Parses an option `byte_jump` and adds it to the options about the payload.
    pub(super) fn byte_jump(&mut self, value: &str) -> Result<(), String> {
        self.check_room()?;
        let words: Vec<&str> = value.split(',').map(str::trim_ascii).collect();
        let [bytes, offset, rest @ ..] = &words[..] else {
            return Err(format!("byte_jump '{}': write BYTES, OFFSET", short(value)));
        };
        let allowed = ["multiplier", "align", "from_beginning", "from_end", "post_offset"];
        let rest = self.rest("byte_jump", rest.iter().copied(), &allowed)?;
        let number = self.source("byte_jump", bytes, offset, &rest)?;
        if ![0, 4].contains(&rest.align) {
            return Err("byte_jump align: only 4 is allowed".to_owned());
        }
        self.link(Link::Jump(Jump {
            number,
            multiplier: rest.multiplier.unwrap_or(1),
            align: rest.align == 4,
            base: rest.jump.unwrap_or(Base::Number),
            post: rest.post.unwrap_or(Amount::Fixed(0)),
        }));
        Ok(())
    }

    /// Parses an option `byte_extract` and adds it to the options about the payload. Later options can use its
    /// variable.
    pub(super) fn byte_extract(&mut self, value: &str) -> Result<(), String> {
        self.check_room()?;
        let words: Vec<&str> = value.split(',').map(str::trim_ascii).collect();
        let [bytes, offset, name, rest @ ..] = &words[..] else {
            return Err(format!("byte_extract '{}': write BYTES, OFFSET, NAME", short(value)));
        };
        let plain =
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.' || byte == b'-');
        if !plain || !name.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '_') {
            return Err(format!(
                "byte_extract '{}': a name must begin with a letter or '_': allowed are letters, digits, '_', '.' \
                 and '-'",
                short(name)
            ));
        }
        let rest = self.rest("byte_extract", rest.iter().copied(), &["multiplier", "align"])?;
        let number = self.source("byte_extract", bytes, offset, &rest)?;
        let variable = match self.variable(name) {
            Some(known) => known,
            None if self.variables.len() == MAX_VARIABLES => {
                return Err(format!(
                    "byte_extract '{}': a rule may have at most {MAX_VARIABLES} variables",
                    short(name)
                ));
            }
            None => {
                self.variables.push((*name).to_owned());
                self.variables.len() as u8 - 1
            }
        };
        let multiplier = rest.multiplier.unwrap_or(1);
        self.link(Link::Extract { number, variable, multiplier, align: rest.align });
        Ok(())
    }

    /// Parses an option `isdataat` and adds it to the options about the payload.
    pub(super) fn data_at(&mut self, value: &str) -> Result<(), String> {
        self.check_room()?;
        let (not, value) = value.strip_prefix('!').map_or((false, value), |value| (true, value.trim_ascii()));
        let mut words = value.split(',').map(str::trim_ascii);
        let at = self.amount("isdataat", words.next().unwrap_or(""), -i64::from(MAX_OFFSET), MAX_OFFSET.into())?;
        let mut relative = false;
        for word in words {
            match word {
                "relative" => relative = true,
                "rawbytes" => {}
                _ => return Err(format!("isdataat '{}': allowed are relative and rawbytes", short(word))),
            }
        }
        self.link(Link::DataAt { not, relative, at });
        Ok(())
    }
}

/// Formats the arguments of an option for errors. `own` are its additional arguments.
fn arguments(own: &[&str]) -> String {
    let all = ["relative", "big", "little", "string", "hex", "dec", "oct", "bitmask"];
    all.iter().chain(own).copied().collect::<Vec<_>>().join(", ")
}
