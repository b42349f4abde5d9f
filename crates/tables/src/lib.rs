//! Tables that several network functions share, and the values that their configurations have in common.
//!
//! The modules `acl`, `keyed`, `lpm`, `maglev`, `sessions` and `token_bucket` are pure data structures without graphs
//! or clocks. They are separate from the functions, so that each of them can be tested against an oracle and measured
//! alone. The other modules know packets or the graph: `rule_list` is a list of rules that operators change while
//! packets run, `journal` writes records to files, `parameters` has parts of configurations, `martian` and `plain` look
//! at the headers of packets, and `answer_limit` limits answers.

#![forbid(unsafe_code)]

pub mod acl;
pub mod answer_limit;
pub mod journal;
pub mod keyed;
pub mod lpm;
pub mod maglev;
pub mod martian;
pub mod parameters;
pub mod plain;
pub mod rule_list;
pub mod sessions;
pub mod token_bucket;
