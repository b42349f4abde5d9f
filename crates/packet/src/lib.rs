//! Pool, packet, batch and header views: the base types of the data plane.
//!
//! A [`Pool`] is a hard-limited set of chunks. A [`Packet`] owns one chunk; dropping the packet returns the chunk, so
//! safe code cannot return a chunk twice. A [`Batch`] is a bounded array of packets; all other crates process packets
//! in batches. [`wire`] holds the protocol headers, one protocol per file.

mod batch;
pub mod host_address;
mod layers;
mod metadata;
mod packet;
pub mod pool;
mod session;
#[cfg(test)]
mod testing;
pub mod wire;

pub use batch::Batch;
pub use layers::{Hidden, MOST_TAGS, Network, Upper};
pub use metadata::{ArrivalClock, WORDS, Word};
pub use packet::Packet;
pub use pool::{MAX_FRAME, Pool, PoolOptions};
pub use session::SessionKey;

/// The largest batch in any part of the system, in packets.
pub const MAX_BATCH: usize = 256;
