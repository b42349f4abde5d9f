//! The options of a rule that look into the payload: contents, numbers, jumps, and regular expressions.

use crate::nids::regex::Regex;

/// Bytes that the payload must contain, or must not contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// True if ASCII letters match in either case.
    pub nocase: bool,
    /// True if the payload must not contain the bytes.
    pub not: bool,
    /// True if the bytes are the string by which the rule is found (`fast_pattern`).
    pub fast: bool,
    /// True if the bytes match in either case, anywhere, and no option is relative to them (`fast_pattern:only`).
    pub only: bool,
    /// The part of the payload in which the bytes are searched.
    pub place: ContentRange,
    /// The variables that replace numbers of `place`: the first replaces the offset or distance, the second the depth
    /// or within. `None` if the number applies.
    pub by: (Option<u8>, Option<u8>),
    /// True if the bytes must be at the end of the payload.
    pub end: bool,
}

/// The part of the payload in which bytes are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentRange {
    /// The first `depth` bytes from `offset` on.
    Absolute {
        /// The offset from the payload's start, in bytes.
        offset: u32,
        /// The number of bytes from there; without it, all.
        depth: Option<u32>,
    },
    /// The first `within` bytes from `distance` after the end of the previous option that moves the position (a
    /// content, an expression, a jump or an extracted number).
    Relative {
        /// The distance in bytes; negative values go backwards.
        distance: i32,
        /// The number of bytes from there; without it, all.
        within: Option<u32>,
    },
}

/// A number, or the variable that holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// The number.
    Fixed(i64),
    /// The variable's index.
    Variable(u8),
}

/// The encoding of a number in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberForm {
    /// Binary, most significant byte first.
    Big,
    /// Binary, least significant byte first.
    Little,
    /// Digits of this base.
    Text(u8),
}

/// A number in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Number {
    /// The number of bytes of a binary number, 0 to 4; 0 bytes have the value 0. For a number in text, the number of
    /// bytes to read at most.
    pub bytes: u8,
    /// The position of its first byte, in bytes from the start of the payload or from the end of the previous option.
    pub offset: Amount,
    /// True if `offset` counts from the end of the previous option.
    pub relative: bool,
    /// Its encoding.
    pub form: NumberForm,
    /// A mask for its bits. The result is shifted down to the mask's lowest bit. 0 keeps all bits.
    pub mask: u32,
}

/// How a number is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// `<`
    Less,
    /// `>`
    More,
    /// `=`
    Equal,
    /// `<=`
    AtMost,
    /// `>=`
    AtLeast,
    /// `&`: both have a bit in common.
    And,
    /// `^`: both differ in a bit.
    Xor,
}

/// An operator, possibly negated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The operator.
    pub operator: Operator,
    /// True if the comparison must fail.
    pub not: bool,
}

/// The origin of a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The end of the number.
    Number,
    /// The start of the payload.
    Start,
    /// The end of the payload. The number is added to this position, so the target is within the payload only if the
    /// number plus `post` is at most 0.
    End,
}

/// A jump to a position that a number in the payload gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Jump {
    /// The number.
    pub number: Number,
    /// The factor by which the number is multiplied.
    pub multiplier: u32,
    /// True if the result is rounded up to a multiple of four.
    pub align: bool,
    /// The origin of the jump.
    pub base: Base,
    /// The number of bytes that are added to the target of the jump.
    pub post: Amount,
}

/// An option about the payload. In a chain, its position may depend on the options before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// A content, by its index.
    Content(usize),
    /// An expression, by its index.
    Pcre(usize),
    /// A test whether the payload has a byte at a position.
    DataAt {
        /// True if the payload must not have a byte there.
        not: bool,
        /// True if the position is relative to the end of the previous option.
        relative: bool,
        /// The position, in bytes.
        at: Amount,
    },
    /// A comparison of a number.
    Test {
        /// The number.
        number: Number,
        /// True if the comparison must fail.
        not: bool,
        /// The operator.
        operator: Operator,
        /// The value to compare with.
        value: Amount,
    },
    /// A jump.
    Jump(Jump),
    /// A number that is stored in a variable.
    Extract {
        /// The number.
        number: Number,
        /// The variable's index.
        variable: u8,
        /// The factor by which the number is multiplied.
        multiplier: u32,
        /// The result is rounded up to a multiple of this; 0 does not round.
        align: u8,
    },
}

/// An option of a chain, and how later options depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainStep {
    /// The option.
    pub link: Link,
    /// True if a later option depends on the position where it ends.
    pub cursor: bool,
    /// For each variable, true if a later option depends on it.
    pub variables: [bool; 2],
}

/// A regular expression that the payload must match, or must not match.
#[derive(Clone, Debug)]
pub struct Pcre {
    /// The expression.
    pub regex: Regex,
    /// True if the payload must not match.
    pub not: bool,
}
