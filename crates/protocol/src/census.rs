//! Where every packet is.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Numbers of packets by origin and by fate.
///
/// `entered + created + taken = out + dropped + consumed + queued + held + in_flight + handed`, at any moment between
/// two turns of a worker. Over all workers of a pipeline, `handed - taken` packets are on their way between two
/// workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Census {
    /// Packets that entered through ports.
    pub entered: u64,
    /// Packets that functions created.
    pub created: u64,
    /// Packets taken from other workers.
    pub taken: u64,
    /// Packets that left through ports and are no longer in the program.
    pub out: u64,
    /// Packets dropped, for any reason.
    pub dropped: u64,
    /// Packets that functions consumed.
    pub consumed: u64,
    /// Packets in modules' input queues.
    pub queued: u64,
    /// Packets that functions hold.
    pub held: u64,
    /// Packets given to a kernel or device that has not finished with them.
    pub in_flight: u64,
    /// Packets handed over to other workers.
    pub handed: u64,
}

impl Census {
    /// Adds the census of another worker, or of an earlier graph.
    pub fn add(&mut self, other: &Self) {
        let Self { entered, created, taken, out, dropped, consumed, queued, held, in_flight, handed } = self;
        *entered += other.entered;
        *created += other.created;
        *taken += other.taken;
        *out += other.out;
        *dropped += other.dropped;
        *consumed += other.consumed;
        *queued += other.queued;
        *held += other.held;
        *in_flight += other.in_flight;
        *handed += other.handed;
    }

    /// Returns the number of packets that are unaccounted for. Any value but 0 is a defect.
    #[must_use]
    pub fn missing(&self) -> i128 {
        let sum = |counts: &[u64]| counts.iter().map(|count| i128::from(*count)).sum::<i128>();
        let fates = [self.out, self.dropped, self.consumed, self.queued, self.held, self.in_flight, self.handed];
        sum(&[self.entered, self.created, self.taken]) - sum(&fates)
    }
}
