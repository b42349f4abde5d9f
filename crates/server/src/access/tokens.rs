//! The file of tokens: names, hashes, roles, users and expiry.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use forebay_protocol::check::Fault;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq;
use thiserror::Error;

use super::token::hash_of;
use super::{Access, Peer, Role};

/// The tokens of clients.
#[derive(Clone, Debug, Default)]
pub struct Tokens {
    all: Vec<Known>,
}

/// A token that the server knows.
#[derive(Clone, Debug)]
struct Known {
    name: String,
    hash: [u8; 32],
    role: Role,
    user: Option<(String, Option<u32>)>,
    expires: Option<Timestamp>,
}

/// The file of tokens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct File {
    /// The tokens. `forebay token` prints an entry. Without entries, no token is valid.
    #[schemars(length(max = 1_000))]
    #[serde(default)]
    tokens: Option<Vec<Entry>>,
}

/// A token.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Entry {
    /// The token's name in the audit log.
    #[schemars(regex(pattern = "^[A-Za-z0-9_.@-]{1,64}$"))]
    name: String,
    /// The SHA-256 of the token: 64 hexadecimal digits.
    #[schemars(regex(pattern = "^[0-9a-f]{64}$"))]
    sha256: String,
    /// The rights of the token.
    role: Role,
    /// The user of this host that the token stands for. At a Unix socket, only this user and root can use it.
    #[schemars(length(min = 1, max = 256))]
    #[serde(default)]
    user: Option<String>,
    /// When the token ends: a date such as 2027-01-31 (its end, UTC), or a time such as 2027-01-31T12:00:00Z. Without
    /// it, the token does not end.
    #[serde(default)]
    expires: Option<String>,
}

/// Why a client's token is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum TokensError {
    /// No token has this text.
    #[error("the token is unknown: `forebay token` makes one, and the file `tokens` must have its entry")]
    Unknown,
    /// The token has ended.
    #[error("the token has expired: make a new one with `forebay token`")]
    Expired,
    /// The token is one of another user of this host.
    #[error("the token belongs to another user of this host: use a token of your own")]
    OtherUser,
}

/// Returns the JSON Schema (2020-12) of the file of tokens.
#[must_use]
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = File::json_schema(&mut settings.into_generator()).to_value();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Forebay tokens".into();
    schema
}

/// Checks that other users cannot read or change the file of tokens.
///
/// # Errors
/// A fault if the file is missing, belongs to another user, or other users may read or change it. Also root's file is
/// refused: the server could not read it.
pub fn check_file(path: &Path, own_user: u32) -> Result<(), String> {
    let metadata = path.metadata().map_err(|error| format!("{}: {error}", path.display()))?;
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o777);
    if owner != own_user {
        let why = format!("it belongs to user {owner}: allowed is only user {own_user}, whom the server belongs to");
        return Err(format!("{}: {why}: run chown {own_user}", path.display()));
    }
    if mode & 0o077 != 0 {
        return Err(format!("{}: mode {mode:04o}: allowed are 0600 and 0400: run chmod 600", path.display()));
    }
    Ok(())
}

impl Tokens {
    /// Returns the tokens in `value`, which the [schema](schema) allows. `user_id` returns the user ID of a user of
    /// this host.
    ///
    /// # Errors
    /// All names that occur twice, hashes that occur twice, times that are not valid, and unknown users.
    pub fn from_value(value: &Value, user_id: &dyn Fn(&str) -> Option<u32>) -> Result<Self, Vec<Fault>> {
        let file: File = serde_json::from_value(value.clone()).map_err(|error| vec![Fault::new(error.to_string())])?;
        let (mut faults, mut all) = (Vec::new(), Vec::new());
        let (mut names, mut hashes) = (BTreeSet::new(), BTreeSet::new());
        for (at, entry) in file.tokens.into_iter().flatten().enumerate() {
            let mut fault =
                |key: &str, fault: Fault| faults.push(Fault { path: format!("tokens[{at}].{key}"), ..fault });
            if !names.insert(entry.name.clone()) {
                let wrong = format!("another token is called '{}'", entry.name);
                fault("name", Fault::with_hint(wrong, "give each token its own name"));
            }
            if !hashes.insert(entry.sha256.clone()) {
                fault("sha256", Fault::with_hint("another entry has the same token", "make a token of its own"));
            }
            let expires = entry.expires.as_deref().map(end_of);
            if let Some(None) = expires {
                let text = entry.expires.as_deref().unwrap_or_default();
                fault("expires", Fault::not_allowed(text, "a date (2027-01-31) or a time (2027-01-31T12:00:00Z)"));
            }
            let user = entry.user.map(|user| {
                let id = user_id(&user);
                if id.is_none() {
                    fault("user", Fault::not_allowed(&user, "a user of this host"));
                }
                (user, id)
            });
            let hash = parse_hash(&entry.sha256);
            all.push(Known { name: entry.name, hash, role: entry.role, user, expires: expires.flatten() });
        }
        if faults.is_empty() { Ok(Self { all }) } else { Err(faults) }
    }

    /// Returns the rights of a client at `peer` that has sent `token`.
    ///
    /// # Errors
    /// [`TokensError`].
    pub fn access(&self, token: &str, peer: &Peer, now: Timestamp) -> Result<Access, TokensError> {
        let hash = hash_of(token);
        // All entries are compared, each in constant time, so that the duration reveals nothing about the hashes.
        let mut found = None;
        for known in &self.all {
            if bool::from(known.hash.ct_eq(&hash)) {
                found = Some(known);
            }
        }
        let known = found.ok_or(TokensError::Unknown)?;
        if known.expires.is_some_and(|expires| expires <= now) {
            return Err(TokensError::Expired);
        }
        if let (Some((_, id)), Peer::Local { uid, .. }) = (&known.user, peer)
            && *uid != 0
            && *id != Some(*uid)
        {
            return Err(TokensError::OtherUser);
        }
        let user = known.user.as_ref().map(|(name, _)| name.clone());
        Ok(Access::Token { name: known.name.clone(), user, role: known.role, expires: known.expires })
    }
}

/// Returns the time of an expiry: a time, or a date, which ends with its day in UTC. `None` for any other text.
#[must_use]
pub fn end_of(text: &str) -> Option<Timestamp> {
    if let Ok(time) = text.parse::<Timestamp>() {
        return Some(time);
    }
    let date = text.parse::<Date>().ok()?.tomorrow().ok()?;
    date.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

/// Parses 64 hexadecimal digits, which the schema requires.
fn parse_hash(text: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = text.get(2 * at..2 * at + 2).and_then(|pair| u8::from_str_radix(pair, 16).ok()).unwrap_or_default();
    }
    hash
}

#[cfg(test)]
mod tests;
