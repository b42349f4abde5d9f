//! Describes the machine from the kernel's files, and checks it for faults that cost performance.
//!
//! [`Host::read`] describes the machine beneath a [`Tree`], which tests can create. A value that the kernel does not
//! report is unknown, with a reason, and never guessed. [`doctor`] checks the machine for the pipeline that will run.

#![forbid(unsafe_code)]

pub mod arp;
pub mod cgroup;
pub mod cpu;
pub mod doctor;
pub mod fact;
mod fuzz;
mod host;
pub mod interface;
pub mod interrupts;
pub mod kernel;
mod list;
pub mod memory;
pub mod position;
pub mod process;
pub mod stat;
pub mod topology;
mod tree;
pub mod users;

pub use fact::{Evidence, Fact, Origin};
pub use fuzz::{fuzz_files, fuzz_topology};
pub use host::Host;
pub use list::{KernelList, ListError};
pub use position::{Core, cores_here};
pub use topology::{Topology, TopologyError};
pub use tree::{Tree, Unknown};
pub use users::{User, UserError};
