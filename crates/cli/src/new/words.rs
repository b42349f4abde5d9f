//! Words of a template that a setting replaces, and words that are derived from them.

use std::net::IpAddr;

/// The words that a setting replaces, as they are in the template.
pub(super) enum Words {
    /// A name. Any other name can replace it.
    Name(&'static str),
    /// An address without a prefix length. Another address of the same IP version can replace it.
    Address(&'static str),
    /// An interface's own address with its prefix length. The address, its network and its host route are replaced
    /// together.
    Own(&'static str),
}

impl Words {
    /// Returns the words as they are in the template.
    pub(super) fn written(&self) -> &'static str {
        match self {
            Self::Name(text) | Self::Address(text) | Self::Own(text) => text,
        }
    }

    /// Adds the replacements for `value`. Returns an error if the value is not of the right form.
    pub(super) fn replace(&self, value: &str, replaced: &mut Replaced) -> Result<(), String> {
        let mut add = |from: String, to: String| replaced.all.push((from, to));
        match self {
            Self::Name(name) => {
                if value.is_empty()
                    || !value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:-".contains(&byte))
                {
                    return Err("allowed are letters, digits, '_', '.', ':' and '-'".to_owned());
                }
                add((*name).to_owned(), value.to_owned());
            }
            Self::Address(address) => {
                let to: IpAddr = value.parse().map_err(|_| format!("write an address such as {address}"))?;
                if to.is_ipv4() == address.contains(':') {
                    return Err(format!("write an address such as {address}"));
                }
                add((*address).to_owned(), to.to_string());
            }
            Self::Own(own) => {
                let (from, to) = (Own::parse(own).ok_or("the template's own address is not valid")?, Own::parse(value));
                let to = to.filter(|to| to.address.is_ipv4() == from.address.is_ipv4());
                let to = to.ok_or_else(|| format!("write an address with its prefix, such as {own}"))?;
                for (from, to) in from.forms().into_iter().zip(to.forms()) {
                    add(from, to);
                }
            }
        }
        Ok(())
    }
}

/// An address and its prefix length.
struct Own {
    address: IpAddr,
    length: u32,
}

impl Own {
    /// Parses `ADDRESS/LENGTH`. Returns `None` if the text has another form, or if the length is out of range.
    fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let (address, length): (IpAddr, u32) = (address.parse().ok()?, length.parse().ok()?);
        (length <= Self::bits(address)).then_some(Self { address, length })
    }

    /// Returns the number of bits of an address.
    fn bits(address: IpAddr) -> u32 {
        if address.is_ipv4() { 32 } else { 128 }
    }

    /// Returns the forms in which a template may contain the address: with its prefix length, its network, its host
    /// route, and the address alone.
    fn forms(&self) -> [String; 4] {
        let Self { address, length } = *self;
        let host = Self::bits(address) - length;
        let network: IpAddr = match address {
            IpAddr::V4(four) => {
                std::net::Ipv4Addr::from(four.to_bits() & u32::MAX.checked_shl(host).unwrap_or(0)).into()
            }
            IpAddr::V6(six) => {
                std::net::Ipv6Addr::from(six.to_bits() & u128::MAX.checked_shl(host).unwrap_or(0)).into()
            }
        };
        [
            format!("{address}/{length}"),
            format!("{network}/{length}"),
            format!("{address}/{}", Self::bits(address)),
            address.to_string(),
        ]
    }
}

/// Words and their replacements. A replacement is never itself replaced, because a line is read only once.
#[derive(Default)]
pub(super) struct Replaced {
    pub(super) all: Vec<(String, String)>,
}

impl Replaced {
    /// Replaces the words of a line. If two words begin at the same position, the longer word is replaced.
    pub(super) fn apply(&self, line: &str) -> String {
        let mut text = String::new();
        let mut at = 0;
        while let Some(next) = line[at..].chars().next() {
            let rest = &line[at..];
            let begins = text_ends(&line[..at]);
            let found =
                self.all.iter().filter(|(from, _)| begins && rest.starts_with(from) && ends(&rest[from.len()..]));
            if let Some((from, to)) = found.max_by_key(|(from, _)| from.len()) {
                text.push_str(to);
                at += from.len();
            } else {
                text.push(next);
                at += next.len_utf8();
            }
        }
        text
    }
}

/// Returns true if a word may begin directly after this text.
fn text_ends(before: &str) -> bool {
    !before.ends_with(|c: char| c.is_ascii_alphanumeric() || ".:_/-".contains(c))
}

/// Returns true if a word may end directly before this text. An address may be followed by a colon and a port.
fn ends(after: &str) -> bool {
    let mut chars = after.chars();
    match chars.next() {
        Some('.' | ':') => !chars
            .next()
            .is_some_and(|c| c.is_ascii_alphabetic() || c == ':' || after.starts_with('.') && c.is_ascii_digit()),
        Some(c) => !c.is_ascii_alphanumeric() && !"_-".contains(c),
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replaced(words: &[(Words, &str)], line: &str) -> String {
        let mut replaced = Replaced::default();
        words.iter().for_each(|(words, value)| words.replace(value, &mut replaced).expect("allowed"));
        replaced.apply(line)
    }

    #[test]
    fn whole_words_are_replaced_at_once() {
        let words = [(Words::Name("a1"), "b1"), (Words::Name("b1"), "a1")];
        assert_eq!(replaced(&words, "a1 b1 a11 xa1 [a1, b1]: a1."), "b1 a1 a11 xa1 [b1, a1]: b1.");
        let own = || Words::Own("192.168.1.1/24");
        let line =
            "192.168.1.1/24 192.168.1.0/24 192.168.1.1/32 \"192.168.1.1:80\" 192.168.1.10 1192.168.1.1 192.168.1.1/25";
        assert_eq!(
            replaced(&[(own(), "10.2.3.4/16")], line),
            "10.2.3.4/16 10.2.0.0/16 10.2.3.4/32 \"10.2.3.4:80\" 192.168.1.10 1192.168.1.1 10.2.3.4/25"
        );
        let own = Words::Own("2001:db8:1::1/64");
        assert_eq!(
            replaced(
                &[(own, "2001:db8:7:8::9/56")],
                "[2001:db8:1::1/64, 2001:db8:1::/64, 2001:db8:1::1/128] 2001:db8:1::11"
            ),
            "[2001:db8:7:8::9/56, 2001:db8:7::/56, 2001:db8:7:8::9/128] 2001:db8:1::11"
        );
        assert_eq!(replaced(&[(Words::Address("192.0.2.1"), "10.0.0.1")], "192.0.2.1"), "10.0.0.1");
    }

    #[test]
    fn wrong_values_are_refused() {
        let refused = |words: Words, value| words.replace(value, &mut Replaced::default()).expect_err("refused");
        assert!(refused(Words::Name("a"), "b c").starts_with("allowed are letters"));
        for value in ["10.0.0.1", "10.0.0.1/33", "2001:db8::1/64", ""] {
            assert_eq!(
                refused(Words::Own("192.168.1.1/24"), value),
                "write an address with its prefix, such as 192.168.1.1/24"
            );
        }
        for value in ["10.0.0.1", "x"] {
            assert_eq!(refused(Words::Address("2001:db8::1"), value), "write an address such as 2001:db8::1");
        }
    }
}
