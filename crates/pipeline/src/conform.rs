//! Checks a configuration against the schema of the language, and describes each violation in words.
//!
//! Forebay has its own validator, because the messages of others are written for programmers, and because a complete
//! one takes longer to compile than this whole crate. The tests compare it with a complete one.

mod walk;
mod words;

pub use walk::Rules;
pub(crate) use walk::{Wrong, has_secret};

#[cfg(test)]
mod tests;
