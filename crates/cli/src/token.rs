//! `forebay token`: makes a token for a client of the server.

use std::io::Write;

use anyhow::{Context, bail};
use forebay_server::access::Token;
use serde_json::json;

use crate::{args, printed};

/// Prints a new token and its entry in the file of tokens.
pub(crate) fn token(arguments: &args::NewToken) -> anyhow::Result<()> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "_.@-".contains(letter);
    let name = &arguments.name;
    if !(1..=64).contains(&name.len()) || !name.chars().all(is_name) {
        bail!("token: '{name}': allowed are 1 to 64 letters, digits, '_', '.', '@' and '-'");
    }
    let token = Token::random().context("token")?;
    let mut entry = json!({ "name": name, "sha256": token.hash(), "role": arguments.role });
    for (key, value) in [("user", &arguments.user), ("expires", &arguments.expires)] {
        if let Some(value) = value {
            entry[key] = json!(value);
        }
    }
    if arguments.json {
        writeln!(printed::out(), "{}", json!({ "token": token.text(), "entry": entry }))?;
        return Ok(());
    }
    writeln!(printed::err(), "token: {}", token.text())?;
    writeln!(printed::err(), "It is not kept anywhere: copy it now. The entry for the file of tokens:")?;
    let mut out = printed::out();
    writeln!(out, "  - name: {name}")?;
    for key in ["sha256", "role", "user", "expires"] {
        if let Some(value) = entry[key].as_str() {
            writeln!(out, "    {key}: \"{value}\"")?;
        }
    }
    Ok(())
}
