//! The option `flow`: which side of a connection a packet is from.

use super::super::short;
use super::Building;
use crate::nids::rule::{Bits, Protocol, Test};

impl Building<'_> {
    pub(super) fn flow(&mut self, value: &str) -> Result<(), String> {
        let words: Vec<&str> = value.split(',').map(str::trim_ascii).collect();
        for word in &words {
            if ![
                "established",
                "not_established",
                "stateless",
                "to_server",
                "from_client",
                "to_client",
                "from_server",
                "no_stream",
                "only_stream",
            ]
            .contains(word)
            {
                return Err(format!(
                    "flow '{}': allowed are established, not_established, stateless, to_server, from_client, to_client and from_server",
                    short(word)
                ));
            }
        }
        if words == ["stateless"] {
            return Ok(());
        }
        if !self.approximate_flow {
            return Err(
                "'flow' needs the state of connections, which is not kept: leave it out, or set 'flow: approximate'"
                    .to_owned(),
            );
        }
        if self.rule.protocol == Protocol::Tcp && words.contains(&"established") {
            // What is after the handshake acknowledges and neither opens nor resets (RFC 9293 section 3.10.7.4).
            self.rule.tests.push(Test::Flags { how: Bits::Exactly, bits: 16, mask: 16 | 2 | 4 });
        }
        if self.rule.protocol == Protocol::Tcp && words.contains(&"not_established") {
            self.rule.tests.push(Test::Flags { how: Bits::None, bits: 16, mask: 16 });
        }
        Ok(())
    }
}
