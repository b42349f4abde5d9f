//! Rules for who asks about some packets only: those that would open a session.

use forebay_graph::{Setup, SetupError};
use forebay_packet::Packet;

use crate::parameters::Rejected;
use crate::tables::acl::Key;
use crate::tables::sessions::Tuple4;

use super::{Counted, Decision, Key4, Params, Rules, Verdict, key4, key6};

/// Packets that are judged in one go.
const GO: usize = 32;

/// A list of rules with a module's counts.
pub(crate) struct Judge(Counted);

impl Judge {
    /// The rules of a module, in its table `rules`; what no rule matches is permitted or denied by default.
    pub(crate) fn new(rules: Rules, permits: bool, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let default = if permits { super::Default::Permit } else { super::Default::Deny };
        let params = Params { rules, default, other: super::Default::Permit, denied: Rejected::default() };
        Ok(Self(params.count("rules", setup)?))
    }

    /// Whether packets over IPv4 that show ports are permitted, one after the other.
    #[inline]
    pub(crate) fn permits_each(&mut self, tuples: &[Tuple4], permitted: &mut [bool]) {
        let Counted { rules, hits4, .. } = &mut self.0;
        let rules = rules.read();
        for (tuples, permitted) in tuples.chunks(GO).zip(permitted.chunks_mut(GO)) {
            let mut keys: [Key4; GO] = [Key::without_ports(0, 0, 0); GO];
            for (key, tuple) in keys.iter_mut().zip(tuples) {
                let (source, destination) =
                    (u32::from_be_bytes(tuple.source()), u32::from_be_bytes(tuple.destination()));
                *key = Key::new(source, destination, tuple.ports().0, tuple.ports().1, tuple.protocol());
            }
            let mut verdicts = [Verdict::by_default(Decision::Deny); GO];
            rules.v4.classify_batch(&keys[..tuples.len()], &mut verdicts[..tuples.len()], hits4);
            for (permitted, verdict) in permitted.iter_mut().zip(verdicts) {
                *permitted = !verdict.denies();
            }
        }
    }

    /// Whether a packet of IP is permitted; another one is not, nor is one that hides what a rule asks for.
    pub(crate) fn permits(&mut self, packet: &mut Packet) -> bool {
        let Counted { rules, hits4, hits6, .. } = &mut self.0;
        let rules = rules.read();
        let mut verdict = [Verdict::by_default(Decision::Deny)];
        if let Some(key) = key4(packet, rules.v4.asks()) {
            rules.v4.classify_batch(&[key], &mut verdict, hits4);
        } else if let Some(key) = key6(packet, rules.v6.asks()) {
            rules.v6.classify_batch(&[key], &mut verdict, hits6);
        }
        !verdict[0].denies()
    }
}
