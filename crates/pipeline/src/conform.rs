//! Checks a configuration against the schema of the language, and describes each violation in words.
//!
//! Forebay has its own validator, because the messages of other validators are written for programmers, and because a
//! complete validator takes longer to compile than this whole crate. It supports the keywords that Forebay's schemas
//! use. The tests compare it with a complete validator.

mod rules;
mod walk;
mod words;

use forebay_protocol::check::Fault;

pub use rules::Rules;
pub(crate) use rules::has_secret;

/// A violation of the schema.
pub(crate) struct Wrong {
    /// The keys and list indices from the root to the value.
    pub(crate) path: Vec<String>,
    /// The message, the value and what is allowed; without a place or a path.
    pub(crate) fault: Fault,
    /// True if the path ends with a wrong or missing key. The message is then about the mapping to which the key
    /// belongs.
    pub(crate) of_key: bool,
    /// True if the violation is about a mapping or list as a whole, or about a key. The violation is then reported at
    /// the place of the key, not of the value.
    pub(crate) whole: bool,
    /// True if the reader of the value may replace the message by a more precise one.
    pub(crate) vague: bool,
    /// The bounds of a quantity, if the message does not state them.
    pub(crate) bounds: Option<String>,
    /// True if the value has a type that the rule does not allow, is none of the rule's constants, does not match its
    /// pattern, or fits none of its forms. If the rule is one of several allowed forms, the user did not mean this
    /// form.
    other: bool,
}

#[cfg(test)]
mod tests;
