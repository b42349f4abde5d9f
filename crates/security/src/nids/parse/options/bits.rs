//! The option `flowbits`: bits that rules keep for sessions (Snort 2.9, section 3.6.10 and README.flowbits).

use forebay_graph::short;

use super::super::FlowMode;
use super::Building;
use crate::nids::rule::{BitNames, BitOperation, BitStep};

/// The longest name of a bit or a group, in bytes.
const MAX_NAME: usize = 128;

const OPERATIONS: &str = "set, setx, unset, toggle, isset, isnotset, reset and noalert";

impl Building<'_> {
    /// Parses an option `flowbits` and adds its steps to the rule.
    pub(super) fn flow_bits(&mut self, value: &str) -> Result<(), String> {
        let mut parts = value.split(',').map(str::trim_ascii);
        let word = parts.next().unwrap_or_default();
        let (names, group, more) = (parts.next(), parts.next(), parts.next());
        if let Some(more) = more {
            return Err(format!("flowbits '{word}' with '{}': allowed are names and a group", short(more)));
        }
        let operation = match word.to_ascii_lowercase().as_str() {
            "set" | "setx" => BitOperation::Set,
            "unset" => BitOperation::Unset,
            "toggle" => BitOperation::Toggle,
            "isset" => BitOperation::IsSet,
            "isnotset" => BitOperation::IsNotSet,
            "reset" => BitOperation::Reset,
            "noalert" => {
                if let Some(names) = names {
                    return Err(format!("flowbits 'noalert' with '{}': 'noalert' takes no names", short(names)));
                }
                self.rule.silent = true;
                return Ok(());
            }
            _ => return Err(format!("flowbits '{}': allowed are {OPERATIONS}", short(word))),
        };
        if self.flow != FlowMode::Session {
            return Err(format!(
                "flowbits '{word}' needs a state of sessions to keep the bits: name the state with \
                 'flow: {{ state: NAME }}'"
            ));
        }
        if operation == BitOperation::Reset {
            if let Some(group) = group {
                return Err(format!("flowbits 'reset' with '{}': 'reset' takes at most one group", short(group)));
            }
            let step = match names {
                None => BitStep::new(BitOperation::Reset, BitNames::Listed(Vec::new())),
                Some(group) => BitStep::new(BitOperation::Unset, BitNames::OfGroup(checked(group, "group")?)),
            };
            self.rule.bits.push(step);
            return Ok(());
        }
        let group = group.map(|group| checked(group, "group")).transpose()?;
        let names = names.unwrap_or_default();
        let names = names.strip_prefix('[').and_then(|names| names.strip_suffix(']')).unwrap_or(names);
        let tests = matches!(operation, BitOperation::IsSet | BitOperation::IsNotSet);
        let sets = operation == BitOperation::Set;
        if names.eq_ignore_ascii_case("all") || names.eq_ignore_ascii_case("any") {
            let all = names.eq_ignore_ascii_case("all");
            let group = group.ok_or_else(|| format!("flowbits '{word},{names}': write a group after '{names}'"))?;
            if sets || !(all || tests) {
                let allowed = if sets { "names" } else { "names, or 'all' and a group" };
                return Err(format!("flowbits '{word},{names}': allowed are {allowed}"));
            }
            self.rule.bits.push(BitStep { all, ..BitStep::new(operation, BitNames::OfGroup(group)) });
            return Ok(());
        }
        let all = !names.contains('|');
        if !all && (!tests || names.contains('&')) {
            let allowed = if tests { "either '&' or '|'" } else { "'&'" };
            return Err(format!("flowbits '{}': allowed between the names is {allowed}", short(names)));
        }
        let listed =
            names.split(['&', '|']).map(|name| checked(name.trim_ascii(), "name")).collect::<Result<_, _>>()?;
        match (group, word.eq_ignore_ascii_case("setx")) {
            (None, true) => return Err("flowbits 'setx': write a group after the names".to_owned()),
            (Some(group), _) if !sets => {
                return Err(format!(
                    "flowbits '{word}' with the group '{}': a group is only allowed after 'all'",
                    short(&group)
                ));
            }
            (Some(group), true) => {
                self.rule.bits.push(BitStep::new(BitOperation::Unset, BitNames::OfGroup(group.clone())));
                self.rule
                    .bits
                    .push(BitStep { joins: Some(group), ..BitStep::new(operation, BitNames::Listed(listed)) });
            }
            (joins, false) => {
                self.rule.bits.push(BitStep { all, joins, ..BitStep::new(operation, BitNames::Listed(listed)) });
            }
        }
        Ok(())
    }
}

/// Checks the name of a bit or a group, and returns it.
fn checked(name: &str, subject: &str) -> Result<String, String> {
    let letter = |byte: u8| byte.is_ascii_graphic() && !b"[]\"\\!&|".contains(&byte);
    if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(letter) {
        return Err(format!(
            "flowbits {subject} '{}': allowed are 1 to {MAX_NAME} ASCII letters, digits and signs without blanks",
            short(name)
        ));
    }
    Ok(name.to_owned())
}
