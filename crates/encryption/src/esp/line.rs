//! The text form of an association: its index, then words such as `peer=192.0.2.9`. Configurations, files and changes
//! at run time use the same form. An error never repeats text that may be a key.

use std::collections::HashSet;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use forebay_aead::{Backend, Fingerprint, Key, Material};
use forebay_graph::files::{MOST_RULES, read_text};
use forebay_graph::{NO_CHANGE, Setup, SetupError, Verb, foreign_words};
use forebay_tables::lpm::IpPrefix;
use forebay_tables::parameters::number;
use forebay_tunnels::settings::AnyEndpoint;
use schemars::JsonSchema;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::SALT;
use super::lifetime::{Limits, Used};
use crate::settings::{Secret, file_name, read_key};

/// The parameter named in errors.
pub(crate) const PATH: &str = "associations";
/// The text in a listed line instead of a key that was given as digits.
const HIDDEN: &str = "(hidden)";
/// The number of errors that are reported one by one. Further errors are only counted.
const MOST_FAULTS: usize = 20;
/// The largest number of prefixes of one association.
const MOST_PREFIXES: usize = 256;

/// The source of associations.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of associations, or { file: NAME } (the value is not shown)")]
pub enum Listed {
    /// The lines themselves.
    List(Vec<Secret>),
    /// A file with one association per line.
    File(File),
}

/// A file of associations.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The name of the file, relative to the configuration; one association per line.
    file: String,
}

/// The settings with which keys are read.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The folder of the configuration, to which names of key files are relative.
    pub(crate) base: PathBuf,
    /// The implementation that uses the keys.
    pub(crate) backend: Backend,
}

/// A key that is ready for use, with its salt.
pub(crate) struct Keyed {
    pub(crate) key: Key,
    pub(crate) salt: [u8; SALT],
    /// Identifies the key and the salt without revealing them.
    pub(crate) fingerprint: Fingerprint,
}

/// A parsed line. Words that are not given have the value `None`, an empty list, false or no limit.
/// [`read`](Line::read) refuses words that a direction does not have.
#[derive(Default)]
pub(crate) struct Line {
    /// The security parameters index, at least 256.
    pub(crate) spi: u32,
    /// The key as it is listed: the name of its file, or the placeholder [`HIDDEN`].
    key: String,
    /// The outer address of the other end.
    pub(crate) peer: Option<IpAddr>,
    /// The outer address of this end (only inbound).
    pub(crate) local: Option<IpAddr>,
    /// The inner destinations (outbound) or the allowed inner sources (inbound).
    pub(crate) prefixes: Vec<IpPrefix>,
    /// The number by which packets select the association (only outbound).
    pub(crate) number: Option<u32>,
    /// The destination port of ESP in UDP (only outbound).
    pub(crate) udp: Option<u16>,
    /// True for sequence numbers of 64 bits.
    pub(crate) extended: bool,
    pub(crate) limits: Limits,
}

impl Keyed {
    /// Reads `DIGITS` or `@FILE`: 20 bytes for AES-128, 36 for AES-256, the last four of which are the salt. Returns
    /// the text that is listed for the key, and the key.
    fn read(text: &str, keys: &Keys) -> Result<(String, Self), String> {
        let (material, listed) = match text.strip_prefix('@') {
            Some(name) => (read_key(name, &keys.base.join(Path::new(name)))?, format!("@{name}")),
            None if text == HIDDEN => {
                return Err("the listed line does not show the key: write the key itself or key=@FILE".to_owned());
            }
            None => (
                Material::from_hex(text)
                    .map_err(|error| format!("{error}; to read the key from a file, write key=@FILE"))?,
                HIDDEN.to_owned(),
            ),
        };
        let wrong = || {
            let length = material.bytes().len();
            format!(
                "the key has {length} bytes: allowed are 20 (AES-128) and 36 (AES-256), of which the last 4 are the \
                 salt \
                 (RFC 4106 section 8.1)"
            )
        };
        let (key, salt) = material.split_last(SALT).ok_or_else(wrong)?;
        if !matches!(key.bytes().len(), 16 | 32) {
            return Err(wrong());
        }
        let salt = salt.bytes().try_into().map_err(|_| wrong())?;
        let fingerprint = material.fingerprint();
        let key = Key::new(&key, keys.backend).map_err(|error| error.to_string())?;
        Ok((listed, Self { key, salt, fingerprint }))
    }
}

/// Returns the index at the beginning of a line.
pub(crate) fn index_of(line: &str) -> Result<u32, String> {
    let word = line.split_ascii_whitespace().next().unwrap_or_default();
    let spi = number(word).and_then(|spi| u32::try_from(spi).ok());
    spi.filter(|spi| *spi > 255).ok_or_else(|| {
        // The word is not quoted: it may be a key.
        "the first word (not shown) is not a security parameters index: allowed are 256 (0x100) to 4294967295 (RFC \
         4303 \
         section 2.1)"
            .to_owned()
    })
}

/// Splits a change into its verb and the line of an association. The error does not quote the first word: it may be a
/// key.
pub(crate) fn split_change<'c>(change: &'c str, syntax: &str) -> Result<(Verb, &'c str), String> {
    Verb::split(change, syntax).map_err(|error| match change.is_empty() {
        true => error,
        false => format!("the first word (not shown) {NO_CHANGE}: allowed are add, remove and replace"),
    })
}

/// Checks a change `remove`: each word of `entry` after the index must be a word of the listed association, or contain
/// the key of the association.
pub(crate) fn only_listed(entry: &str, line: &Line, keyed: &Keyed, keys: &Keys) -> Result<(), String> {
    let is_its_key = |word: &str| {
        let key = word.strip_prefix("key=").and_then(|key| Keyed::read(key, keys).ok());
        key.is_some_and(|(_, other)| other.fingerprint == keyed.fingerprint)
    };
    let listed = line.to_string();
    let others = foreign_words(entry, &listed).find(|(_, word)| !is_its_key(word));
    match others {
        None => Ok(()),
        // The word is not quoted: it may be a key.
        Some((at, _)) => Err(format!(
            "word {at} (not shown) differs from the listed line of {:#x}: write the index alone, or the listed line",
            line.spi
        )),
    }
}

/// Returns the line without its comment.
pub(crate) fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim_ascii()
}

impl Line {
    /// Reads a line without comment. `known` lists the names of words that the direction allows.
    pub(crate) fn read(line: &str, known: &[&str], keys: &Keys) -> Result<(Self, Keyed), String> {
        let mut read = Self { spi: index_of(line)?, ..Self::default() };
        let mut keyed = None;
        let mut seen: Vec<&str> = Vec::new();
        for (at, word) in line.split_ascii_whitespace().enumerate().skip(1) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if !known.contains(&name) {
                // The word is not quoted: it may be a key or a part of one.
                return Err(format!("word {} is unknown: allowed are {}", at + 1, known.join(", ")));
            }
            if seen.contains(&name) {
                return Err(format!("'{name}' is given twice: write it once"));
            }
            seen.push(name);
            if name == "key" {
                let (listed, ready) = Keyed::read(value, keys)?;
                (read.key, keyed) = (listed, Some(ready));
            } else {
                read.set(name, value)?;
            }
        }
        let keyed = keyed.ok_or("the key is missing: write key=DIGITS or key=@FILE")?;
        Ok((read, keyed))
    }

    /// Stores the value of a word other than `key`.
    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let count = || {
            number(value)
                .and_then(|count| u64::try_from(count).ok())
                .filter(|count| *count > 0)
                .ok_or_else(|| format!("{name}: not a valid number: allowed are whole numbers from 1 to {}", u64::MAX))
        };
        let address = || {
            AnyEndpoint::try_from(value.to_owned()).map(|end| end.0).map_err(|_| {
                format!("{name}: not an address: allowed are addresses of one host, such as 192.0.2.1 and 2001:db8::1")
            })
        };
        match name {
            "peer" => self.peer = Some(address()?),
            "local" => self.local = Some(address()?),
            "for" => self.prefixes = prefixes(name, value)?,
            "udp" => {
                let port = number(value).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
                self.udp =
                    Some(port.ok_or_else(|| {
                        format!("udp: not a port: allowed are 1 to 65535, such as udp={}", super::PORT)
                    })?);
            }
            "number" => {
                let index = number(value).and_then(|index| u32::try_from(index).ok());
                self.number = Some(index.ok_or("number: not a valid number: allowed are 0 to 4294967295")?);
            }
            "esn" if value.is_empty() => self.extended = true,
            "esn" => return Err("esn takes no value: write only esn".to_owned()),
            "soft-packets" => self.limits.soft_packets = count()?,
            "soft-bytes" => self.limits.soft_bytes = count()?,
            "hard-packets" => self.limits.hard_packets = count()?,
            "hard-bytes" => self.limits.hard_bytes = count()?,
            _ => {}
        }
        Ok(())
    }

    /// Returns the line as it is listed, with its usage as a comment.
    pub(crate) fn list(&self, used: &Used, sequence: u64) -> String {
        let mut line = self.to_string();
        let _ = write!(line, " # packets {} bytes {} sequence {sequence}", used.packets(), used.bytes());
        line
    }
}

/// Parses a list of prefixes, which are separated by commas. `name` is for the error.
fn prefixes(name: &str, value: &str) -> Result<Vec<IpPrefix>, String> {
    let texts: Vec<&str> = value.split(',').collect();
    if texts.len() > MOST_PREFIXES {
        return Err(format!("{name}: {} prefixes: allowed are up to {MOST_PREFIXES}", texts.len()));
    }
    let read = |text: &str| {
        // The text is not quoted: it may be a key.
        text.parse::<IpPrefix>().map_err(|_| {
            format!(
                "{name}: not a prefix: allowed are addresses with a prefix length and no bits set after it, such as \
                 10.0.0.0/8 and 2001:db8::/32"
            )
        })
    };
    texts.into_iter().map(read).collect()
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x} key={}", self.spi, self.key)?;
        for (name, address) in [("peer", self.peer), ("local", self.local)] {
            if let Some(address) = address {
                write!(f, " {name}={address}")?;
            }
        }
        if !self.prefixes.is_empty() {
            let prefixes: Vec<_> = self.prefixes.iter().map(ToString::to_string).collect();
            write!(f, " for={}", prefixes.join(","))?;
        }
        if let Some(number) = self.number {
            write!(f, " number={number}")?;
        }
        if let Some(udp) = self.udp {
            write!(f, " udp={udp}")?;
        }
        if self.extended {
            f.write_str(" esn")?;
        }
        let Limits { soft_packets, soft_bytes, hard_packets, hard_bytes } = self.limits;
        for (name, limit) in [
            ("soft-packets", soft_packets),
            ("soft-bytes", soft_bytes),
            ("hard-packets", hard_packets),
            ("hard-bytes", hard_bytes),
        ] {
            if limit != u64::MAX {
                write!(f, " {name}={limit}")?;
            }
        }
        Ok(())
    }
}

/// The location of a line, as errors name it, and the line.
type LocatedLine = (String, Zeroizing<String>);

impl Listed {
    /// Returns the lines without empty lines and comments, each with its location.
    fn lines(&self, setup: &Setup<'_>) -> Result<Vec<LocatedLine>, SetupError> {
        let lines: Vec<LocatedLine> = match self {
            Self::List(list) => {
                let line =
                    |(at, line): (usize, &Secret)| (format!("{PATH}[{at}]"), Zeroizing::new(line.text().to_owned()));
                list.iter().enumerate().map(line).collect()
            }
            Self::File(File { file }) => {
                let path = setup.path(PATH, file)?;
                let file = file_name(file, &path);
                let bytes = read_text(&path, MOST_RULES)
                    .map_err(|error| SetupError::at(PATH, format!("cannot read '{file}': {error}")))?;
                let bytes = Zeroizing::new(bytes);
                let text = std::str::from_utf8(&bytes)
                    .map_err(|_| SetupError::at(PATH, format!("'{file}' is not text: allowed is UTF-8")))?;
                let line = |(at, line): (usize, &str)| (format!("{file}:{}", at + 1), Zeroizing::new(line.to_owned()));
                text.lines().enumerate().map(line).collect()
            }
        };
        Ok(lines.into_iter().filter(|(_, line)| !without_comment(line).is_empty()).collect())
    }

    /// Reads the lines. `known` lists the names of words that the direction allows, and `check` tests further
    /// conditions of a line. An error lists the first faults.
    pub(crate) fn read(
        &self,
        known: &[&str],
        keys: &Keys,
        setup: &Setup<'_>,
        check: impl Fn(&Line) -> Result<(), String>,
    ) -> Result<Vec<(Line, Keyed)>, SetupError> {
        let (of_file, lines) = (matches!(self, Self::File(_)), self.lines(setup)?);
        let (mut faults, mut further) = (SetupError::default(), 0);
        let (mut all, mut seen) = (Vec::with_capacity(lines.len()), HashSet::new());
        for (location, line) in lines {
            let line = without_comment(&line);
            // Registers the key file, so that it is watched like the configuration's other files.
            for name in line.split_ascii_whitespace().filter_map(|word| word.strip_prefix("key=@")) {
                setup.path(PATH, name)?;
            }
            let read = Line::read(line, known, keys).and_then(|(line, keyed)| {
                check(&line)?;
                if seen.insert(line.spi) {
                    Ok((line, keyed))
                } else {
                    Err(format!("{:#x} is given twice: write it once", line.spi))
                }
            });
            match read {
                Ok(read) => all.push(read),
                Err(_) if faults.faults.len() == MOST_FAULTS => further += 1,
                Err(message) if of_file => faults.and(SetupError::at(PATH, format!("{location}: {message}"))),
                Err(message) => faults.and(SetupError::at(location, message)),
            }
        }
        if further > 0 {
            faults.and(SetupError::at(PATH, format!("{further} further errors")));
        }
        if faults.faults.is_empty() { Ok(all) } else { Err(faults) }
    }
}

/// Returns a name for a list of associations and the text `besides`. Equal lists with equal keys have equal names, and
/// other lists have other names. The name does not reveal the keys.
pub(crate) fn name_of(all: &[(Line, Keyed)], besides: &str) -> String {
    let mut text = besides.to_owned();
    for (line, keyed) in all {
        let _ = write!(text, "\n{line} {}", keyed.fingerprint);
    }
    format!("associations {}", Fingerprint::of(text.as_bytes()))
}
