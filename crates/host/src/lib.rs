//! What the machine is, read from the kernel's files, and what in it will cost performance.
//!
//! [`Host::read`] describes the machine below a [`Tree`], which can be laid out by hand. A value that the kernel does
//! not have is unknown, with the reason, and never guessed. [`doctor`] holds what is to run against it.

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

pub use fact::{Evidence, Fact, Origin};
pub use fuzz::{fuzz_files, fuzz_topology};
pub use host::Host;
pub use list::{KernelList, ListError};
pub use position::{Core, cores_here};
pub use topology::{Topology, TopologyError};
pub use tree::{Tree, Unknown};
