//! Rules for who asks about one packet at a time: those that would open a session.

use forebay_graph::{Setup, SetupError};
use forebay_packet::Packet;

use crate::parameters::Rejected;

use super::{Counted, Decision, Params, Rules, Verdict, key4, key6};

/// A list of rules with a module's counts.
pub(crate) struct Judge(Counted);

impl Judge {
    /// The rules of a module, in its table `rules`; what no rule matches is permitted or denied by default.
    pub(crate) fn new(rules: Rules, permits: bool, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let default = if permits { super::Default::Permit } else { super::Default::Deny };
        let params = Params { rules, default, other: super::Default::Permit, denied: Rejected::default() };
        Ok(Self(params.count("rules", setup)?))
    }

    /// Whether a packet of IP is permitted; another one is not.
    pub(crate) fn permits(&mut self, packet: &mut Packet) -> bool {
        let Counted { rules, hits4, hits6, .. } = &mut self.0;
        let rules = rules.read();
        let mut verdict = [Verdict::by_default(Decision::Deny)];
        if let Some(key) = key4(packet) {
            rules.v4.classify_batch(&[key], &mut verdict, hits4);
        } else if let Some(key) = key6(packet) {
            rules.v6.classify_batch(&[key], &mut verdict, hits6);
        }
        !verdict[0].denies()
    }
}
