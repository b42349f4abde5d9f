//! Rules for functions that check only some packets: those that would open a session.

use forebay_graph::{Setup, SetupError};
use forebay_packet::Packet;

use super::{RuleList, Rules, key4, key6};
use crate::acl::{Decision, HeaderKey, Key4, Verdict};
use crate::sessions::Tuple4;

/// The number of packets that are classified at a time.
const CHUNK: usize = 32;

/// A rule list with a module's counters.
pub struct Judge(RuleList);

impl Judge {
    /// Compiles the rules of a module and puts them into its table `rules`. Packets that no rule decides about are
    /// permitted if `permits` is true, and denied otherwise.
    ///
    /// # Errors
    /// As [`RuleList::new`].
    pub fn new(rules: &Rules, permits: bool, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let default = if permits { Decision::Permit } else { Decision::Deny };
        Ok(Self(RuleList::new(rules, default, "rules", setup)?))
    }

    /// Writes for each tuple whether an IPv4 packet with these addresses and ports is permitted. `permitted` must be as
    /// long as `tuples`. The protocols must have ports.
    #[inline]
    pub fn permits_each(&mut self, tuples: &[Tuple4], permitted: &mut [bool]) {
        let RuleList { rules, hits4, .. } = &mut self.0;
        let rules = rules.read();
        for (tuples, permitted) in tuples.chunks(CHUNK).zip(permitted.chunks_mut(CHUNK)) {
            let mut keys: [Key4; CHUNK] = [HeaderKey::without_ports(0, 0, 0); CHUNK];
            for (key, tuple) in keys.iter_mut().zip(tuples) {
                let (source, destination) =
                    (u32::from_be_bytes(tuple.source()), u32::from_be_bytes(tuple.destination()));
                *key = HeaderKey::new(source, destination, tuple.ports().0, tuple.ports().1, tuple.protocol());
            }
            let mut verdicts = [Verdict::by_default(Decision::Deny); CHUNK];
            rules.v4.classify_batch(&keys[..tuples.len()], &mut verdicts[..tuples.len()], hits4);
            for (permitted, verdict) in permitted.iter_mut().zip(verdicts) {
                *permitted = !verdict.denies();
            }
        }
    }

    /// Returns true if an IP packet is permitted. Returns false for other packets, and if a rule needs a field that
    /// cannot be read in the packet.
    pub fn permits(&mut self, packet: &mut Packet) -> bool {
        let RuleList { rules, hits4, hits6, .. } = &mut self.0;
        let rules = rules.read();
        let mut verdict = [Verdict::by_default(Decision::Deny)];
        if let Some(key) = key4(packet, rules.v4.needs()) {
            rules.v4.classify_batch(&[key], &mut verdict, hits4);
        } else if let Some(key) = key6(packet, rules.v6.needs()) {
            rules.v6.classify_batch(&[key], &mut verdict, hits6);
        }
        !verdict[0].denies()
    }
}
