//! The numbers of the bits that rules keep for sessions, and the members of groups of bits.

use std::collections::{BTreeSet, HashMap};

use super::Refused;
use crate::nids::bits::MAX_BITS;
use crate::nids::rule::{BitNames, Rule};

/// The bit names of a rule file.
#[derive(Default)]
pub struct BitNumbers {
    /// The number of each name.
    by_name: HashMap<String, u16>,
    /// The numbers of the bits in each group.
    groups: HashMap<String, BTreeSet<u16>>,
}

impl BitNumbers {
    /// Assigns numbers to the bits that a rule lists. The bits of groups are not known before [`finish`](Self::finish).
    ///
    /// # Errors
    /// The rules have too many bit names.
    pub fn number(&mut self, rule: &mut Rule) -> Result<(), Refused> {
        let listed = rule.bits.iter().filter_map(|step| match &step.names {
            BitNames::Listed(names) => Some(names),
            BitNames::OfGroup(_) => None,
        });
        let new: BTreeSet<_> = listed.flatten().filter(|name| !self.by_name.contains_key(*name)).collect();
        if self.by_name.len() + new.len() > MAX_BITS {
            let message = format!("flowbits: too many names: all rules together may have at most {MAX_BITS}");
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

    /// Resolves groups, whose members may come from all rules, and returns the names by number.
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
