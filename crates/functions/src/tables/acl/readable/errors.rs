//! Errors of readable rules: each names the word, and the words that are allowed there.

/// The error of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// A word that is none of those that may stand there.
    #[error("'{word}' is no {what}{near}: allowed {allowed}")]
    Word {
        /// The word.
        word: String,
        /// The part of a rule that is expected there.
        what: &'static str,
        /// Another word that may have been meant.
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
        /// As it was written.
        prefix: String,
        /// The network.
        meant: String,
        /// The address.
        host: String,
    },
    /// A prefix whose length is out of range.
    #[error("{prefix}: prefix length {length} is out of range (0 to {most})")]
    Length {
        /// As it was written.
        prefix: String,
        /// The length.
        length: String,
        /// The greatest that is allowed.
        most: u8,
    },
    /// A prefix whose length begins with 0.
    #[error("{prefix}: prefix length {length} begins with 0: write {meant}")]
    LeadingZero {
        /// As it was written.
        prefix: String,
        /// The length.
        length: String,
        /// The network.
        meant: String,
    },
    /// A range whose last value comes before its first.
    #[error("{0} runs backwards: the lower value comes first")]
    Backwards(String),
    /// A word that cannot match because of another one.
    #[error("'{word}' matches no packet here: {why}")]
    Families {
        /// The word.
        word: String,
        /// Why not.
        why: String,
    },
    /// Ports of a protocol that has none.
    #[error(
        "{0} has no ports: allowed with 'port' are tcp, udp, sctp, dccp, udplite, the number of a protocol other than \
         ICMP, ip, ip6 and any"
    )]
    NoPorts(String),
    /// A set that is defined already.
    #[error("the set '{0}' is defined already: each name is allowed once")]
    Twice(String),
    /// Too much for one line.
    #[error("it means {count} rules: at most {most} are allowed in one line")]
    Many {
        /// So many.
        count: u64,
        /// The most that is allowed.
        most: usize,
    },
    /// A list with too many prefixes.
    #[error("the list has more than {0} prefixes of one address family: no more are allowed in one line")]
    Long(usize),
    /// Sets with too many prefixes.
    #[error("the sets have more than {0} prefixes: no more are allowed")]
    Large(usize),
}
