//! The numbers of the bits that rules keep for sessions, and the members of groups of bits.

use std::collections::{BTreeSet, HashMap};

use super::Refused;
use crate::nids::bits::MOST_BITS;
use crate::nids::rule::{BitNames, Rule};

/// The names that the rules of a file have.
#[derive(Default)]
pub struct BitNumbers {
    by_name: HashMap<String, u16>,
    groups: HashMap<String, BTreeSet<u16>>,
}

impl BitNumbers {
    /// Gives the bits of a rule their numbers.
    ///
    /// # Errors
    /// The rules have too many names.
    pub fn number(&mut self, rule: &mut Rule) -> Result<(), Refused> {
        let listed = rule.bits.iter().filter_map(|step| match &step.names {
            BitNames::Listed(names) => Some(names),
            BitNames::OfGroup(_) => None,
        });
        let new: BTreeSet<_> = listed.flatten().filter(|name| !self.by_name.contains_key(*name)).collect();
        if self.by_name.len() + new.len() > MOST_BITS {
            let message =
                format!("flowbits: allowed are {MOST_BITS} names in all rules; the rules before have as many");
            return Err(Refused::new("flowbits", message));
        }
        for step in &mut rule.bits {
            let BitNames::Listed(names) = &step.names else { continue };
            let number = |name: &String| {
                let next = self.by_name.len() as u16;
                *self.by_name.entry(name.clone()).or_insert(next)
            };
            step.bits = names.iter().map(number).collect();
            if let Some(group) = &step.joins {
                self.groups.entry(group.clone()).or_default().extend(&step.bits);
            }
        }
        Ok(())
    }

    /// Resolves groups, whose members all rules name together, and returns the names by their numbers.
    pub fn finish(self, rules: &mut [Rule]) -> Vec<String> {
        for step in rules.iter_mut().flat_map(|rule| &mut rule.bits) {
            if let BitNames::OfGroup(group) = &step.names {
                step.bits = self.groups.get(group).into_iter().flatten().copied().collect();
            }
        }
        let mut names = vec![String::new(); self.by_name.len()];
        for (name, number) in self.by_name {
            names[usize::from(number)] = name;
        }
        names
    }
}
