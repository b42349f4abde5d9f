//! The option `flow`: which side of a connection a packet is from.

use super::super::{FlowMode, short};
use super::Building;
use crate::nids::rule::{Bits, FlowTest, Protocol, Test};

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
                    "flow '{}': allowed are established, not_established, stateless, to_server, from_client, \
                     to_client, from_server, no_stream and only_stream",
                    short(word)
                ));
            }
        }
        if words == ["stateless"] {
            return Ok(());
        }
        match self.flow {
            FlowMode::Session => self.ask_session(&words),
            FlowMode::Approximate => {
                self.approximate(&words);
                Ok(())
            }
            FlowMode::Refuse => Err(
                "'flow' needs the state of connections: leave it out, name the state by 'flow: { state: NAME }', or \
                 set 'flow: approximate'"
                    .to_owned(),
            ),
        }
    }

    /// Asks for the flags of the packet.
    fn approximate(&mut self, words: &[&str]) {
        // In a rule for any protocol the test is of its TCP packets.
        let of_tcp = matches!(self.rule.protocol, Protocol::Tcp | Protocol::Ip);
        let mut ask = |how, bits, mask| self.rule.tests.push(Test::FlagsOfTcp { how, bits, mask });
        if of_tcp && words.contains(&"established") {
            // What is after the handshake acknowledges and neither opens nor resets (RFC 9293 section 3.10.7.4).
            ask(Bits::Exactly, 16, 16 | 2 | 4);
        }
        if of_tcp && words.contains(&"not_established") {
            ask(Bits::None, 16, 16);
        }
    }

    /// Asks the packet's session, which a table has.
    fn ask_session(&mut self, words: &[&str]) -> Result<(), String> {
        let mut test = self.rule.flow.unwrap_or_default();
        for word in words {
            let (asked, wanted) = match *word {
                "established" => (&mut test.established, true),
                "not_established" => (&mut test.established, false),
                "to_server" | "from_client" => (&mut test.to_server, true),
                "to_client" | "from_server" => (&mut test.to_server, false),
                _ => continue,
            };
            if asked.replace(wanted).is_some_and(|before| before != wanted) {
                return Err(format!(
                    "flow '{}': it contradicts a word before it: allowed are one direction, and one of established \
                     and not_established",
                    short(word)
                ));
            }
        }
        if test != FlowTest::default() {
            self.rule.flow = Some(test);
        }
        Ok(())
    }
}
