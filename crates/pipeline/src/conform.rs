//! Checks a configuration against the schema of the language, and describes each violation in words.
//!
//! Forebay has its own validator, because the messages of other validators are written for programmers, and because a
//! complete validator takes longer to compile than this whole crate. It supports the keywords that Forebay's schemas
//! use. The tests compare it with a complete validator.

mod rules;
mod walk;
mod words;

pub use rules::Rules;
pub(crate) use walk::{Wrong, has_secret};

#[cfg(test)]
mod tests;
