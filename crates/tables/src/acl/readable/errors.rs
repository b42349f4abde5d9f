//! Errors of readable rules. Each message contains the wrong word and the allowed words.

/// The error of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RuleSyntaxError {
    /// A word that is not allowed at this point.
    #[error("'{word}' is not a valid {what}{near}: allowed {allowed}")]
    Word {
        /// The word.
        word: String,
        /// The part of a rule that is expected there.
        what: &'static str,
        /// A suggestion of a similar allowed word, or empty.
        near: String,
        /// Words that are allowed.
        allowed: String,
    },
    /// The line ends too early.
    #[error("the rule ends before {what}: allowed {allowed}")]
    Ends {
        /// The missing part of the rule.
        what: &'static str,
        /// Words that are allowed.
        allowed: String,
    },
    /// A prefix with bits past its length.
    #[error("{prefix} has bits past its length: write {meant} for the network, or {host} for the address")]
    Bits {
        /// The prefix as written.
        prefix: String,
        /// The prefix without these bits.
        meant: String,
        /// The address without a length.
        host: String,
    },
    /// A prefix whose length is out of range.
    #[error("{prefix}: prefix length {length} is out of range (0 to {most})")]
    Length {
        /// The prefix as written.
        prefix: String,
        /// The length as written.
        length: String,
        /// The largest allowed length.
        most: u8,
    },
    /// A prefix whose length begins with 0.
    #[error("{prefix}: prefix length {length} begins with 0: write {meant}")]
    LeadingZero {
        /// The prefix as written.
        prefix: String,
        /// The length as written.
        length: String,
        /// The prefix to write instead.
        meant: String,
    },
    /// A range whose last value is below its first.
    #[error("{0} is in the wrong order: the lower value comes first")]
    Backwards(String),
    /// A word that cannot match any packet in combination with another word.
    #[error("'{word}' matches no packet here: {why}")]
    Families {
        /// The word.
        word: String,
        /// The reason.
        why: String,
    },
    /// Ports of a protocol that has none.
    #[error(
        "{0} has no ports: allowed with 'port' are tcp, udp, sctp, dccp, udplite, ip, ip6, any, and the number of a \
         protocol other than ICMP"
    )]
    NoPorts(String),
    /// A set that is defined already.
    #[error("the set '{0}' is defined already: each name is allowed once")]
    Twice(String),
    /// A line that stands for too many rules.
    #[error("the line stands for {count} rules: at most {most} are allowed in one line")]
    Many {
        /// The number of rules.
        count: u64,
        /// The largest allowed number.
        most: usize,
    },
    /// A list with too many prefixes.
    #[error("the list has more than {0} prefixes of one address family: allowed are up to {0} in one line")]
    Long(usize),
    /// Sets with too many prefixes.
    #[error("the sets have more than {0} prefixes: allowed are up to {0}")]
    Large(usize),
}
