//! The option `flow`: the side of a connection from which a packet comes, and whether the connection is established.

use forebay_graph::short;

use super::super::FlowMode;
use super::Building;
use crate::nids::rule::{BitMatch, FlowTest, Protocol, Test};

impl Building<'_> {
    /// Parses an option `flow`, and adds the tests that the parameter `flow` of the module requires.
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
            FlowMode::Session => self.test_session(&words),
            FlowMode::Approximate => {
                self.approximate(&words);
                Ok(())
            }
            FlowMode::Refuse => {
                Err("'flow' needs the state of connections: remove this option from the rule, name the state with \
                 'flow: { state: NAME }', or set 'flow: approximate'"
                    .to_owned())
            }
        }
    }

    /// Approximates the option by tests of the packet's flags.
    fn approximate(&mut self, words: &[&str]) {
        // In a rule for any protocol, the tests apply to TCP packets only.
        let of_tcp = matches!(self.rule.protocol, Protocol::Tcp | Protocol::Ip);
        let mut add_test = |how, bits, mask| self.rule.tests.push(Test::FlagsOfTcp { how, bits, mask });
        if of_tcp && words.contains(&"established") {
            // Segments after the handshake have ACK. They do not have SYN or RST (RFC 9293 section 3.10.7.4).
            add_test(BitMatch::Exactly, 16, 16 | 2 | 4);
        }
        if of_tcp && words.contains(&"not_established") {
            add_test(BitMatch::None, 16, 16);
        }
    }

    /// Adds conditions on the packet's session, which is looked up in a table.
    fn test_session(&mut self, words: &[&str]) -> Result<(), String> {
        let mut test = self.rule.flow.unwrap_or_default();
        for word in words {
            let (condition, value) = match *word {
                "established" => (&mut test.established, true),
                "not_established" => (&mut test.established, false),
                "to_server" | "from_client" => (&mut test.to_server, true),
                "to_client" | "from_server" => (&mut test.to_server, false),
                _ => continue,
            };
            if condition.replace(value).is_some_and(|previous| previous != value) {
                return Err(format!(
                    "flow '{}' contradicts an earlier word: allowed are one direction, and one of established and \
                     not_established",
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
