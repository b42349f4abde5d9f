//! Turns YAML and use cases into a validated pipeline that is ready to run.

#![forbid(unsafe_code)]

mod buffers;
mod claims;
mod compile;
mod conform;
mod control;
mod create;
mod demands;
mod document;
mod draft;
mod faults;
mod flows;
mod fold;
mod graph;
mod held;
mod identity;
mod kept_secrets;
mod language;
mod line;
mod load;
mod located;
mod moves;
mod order;
mod parameters;
mod parts;
mod problems;
mod sample;
mod schema;
mod secrets;
mod section;
mod shares;
mod shown;
mod source;
mod together;
mod usecase;
mod wiring;
mod wording;
mod workers;
mod yaml;

pub use compile::{Checked, Conditions, check, check_str};
pub use conform::Rules;
pub use demands::{Demands, PortDemand, demands};
pub use document::{CheckedModule, Document, written};
pub use forebay_graph::{allowed_names, known_names, listed, nearest, on_one_line};
pub use forebay_protocol::check::Fault;
pub use graph::graph;
pub use load::{Loaded, Prepared, load, prepare, rearrange};
pub use moves::{MoveError, Moving, move_modules};
pub use parameters::parameters;
pub use parts::PipelineParts;
pub use problems::{Problems, shown_file};
pub use sample::{built_in, is_built_in, sample};
pub use schema::schema;
pub use secrets::{is_kind_with_secrets, shown_setting};
pub use shown::{SECRET, shown_settings, shown_text};
pub use source::{Source, with_settings};
pub use usecase::{Parameter, UseCase, usecase, usecases};

// Functions and ports register themselves when they are linked.
use forebay_functions as _;
use forebay_ports as _;

#[cfg(test)]
mod tests;
