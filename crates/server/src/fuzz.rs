//! The parsers of the server, for fuzzing.

use jiff::Timestamp;
use serde_json::Value;

use crate::access::{Peer, Tokens, end_of};
use crate::metrics::negotiate;
use crate::settings::{Listen, Settings};
use crate::{guard, privilege};

/// Fuzzing: the first byte selects a parser, which gets the rest.
pub fn fuzz_server(bytes: &[u8]) {
    let Some((selector, rest)) = bytes.split_first() else { return };
    if *selector == b'h' {
        return privilege::fuzz_request(rest);
    }
    let Ok(text) = std::str::from_utf8(rest) else { return };
    match selector {
        b'l' => {
            if let Ok(listen) = Listen::parse(text) {
                assert_eq!(Listen::parse(&listen.to_string()), Ok(listen), "the text of an address is the address");
            }
        }
        b'a' => drop(negotiate(Some(text))),
        b'e' => drop(end_of(text)),
        b'o' => guard::fuzz_host(text),
        b's' => {
            if let Ok(value) = serde_json::from_str::<Value>(text)
                && let Ok(settings) = Settings::from_value(&value)
            {
                let is_public = settings.addresses().iter().any(Listen::is_public);
                assert!(!is_public || (settings.tls.is_some() && settings.tokens.is_some()));
            }
        }
        b't' => {
            if let Ok(value) = serde_json::from_str::<Value>(text)
                && let Ok(tokens) = Tokens::from_value(&value, &|_| None)
            {
                let peer = Peer::Local { uid: 1, pid: None };
                let access = tokens.access(text, &peer, Timestamp::UNIX_EPOCH);
                assert!(access.is_err(), "the file has hashes, and its text is no token");
            }
        }
        _ => {}
    }
}
