//! What both directions of load balancing share: a state of the kind `balancer`.
//!
//! [`balance`](crate::balance) sends what clients send to a service's address to one of its backends,
//! [`balance_back`](crate::balance_back) what backends answer back in the service's name. Services belong to a configuration;
//! the sessions of a worker outlast it, and find themselves in the next one by their backends ([`roster`]).

mod distributor;
mod outcome;
mod params;
mod roster;
mod services;
mod session;

use std::sync::Arc;

use forebay_graph::{DeclareState, Own, Setup, SetupError, register};

pub(crate) use distributor::Distributor;
pub(crate) use outcome::{BACK_DROPS, BACKENDS, BUSY, COUNTERS, DROPS, Others, Ways};
pub use params::Params;
use services::Replies;
pub(crate) use services::Services;

use crate::connection::{SlotClock, Timeouts};
use crate::listing::{Attendant, Listing, hand_out};
use crate::nat::WhenFull;
use crate::parameters::no_memory;
use crate::tables::sessions::MOST;

/// As many sessions unless it is said.
const SESSIONS: usize = 1 << 16;

/// The state: its services, and what every worker's sessions are made of.
pub struct Balancer {
    key: String,
    sessions: usize,
    services: Arc<Services>,
}

/// What holds for every service.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    when_full: WhenFull,
    replies: Replies,
    timeouts: Timeouts,
    clock: SlotClock,
}

impl Balancer {
    /// The services.
    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// A worker's sessions, the same for all of its modules that name this state, and for those of the next configuration; and
    /// who looks after them, whom one module has to keep.
    pub(crate) fn distributor(&self, setup: &mut Setup<'_>) -> Result<(Arc<Own<Distributor>>, Attendant), SetupError> {
        if setup.share().1 > 1 && !self.services.reply_anywhere() {
            return Err(SetupError::at(
                "state",
                "replies of backends come to other workers than what clients send, and are recognised by sessions: on \
                 several workers give the state `replies: endpoint`, its services `mode: direct`, or both directions one \
                 worker's `modules`",
            ));
        }
        let (secret, share) = (setup.secret(), setup.share());
        let listing = Listing::of(&self.key, setup)?;
        let part = listing.part(share);
        hand_out(&listing, &distributor::SESSIONS, self.services.settings.clock, &self.key, setup)?;
        let own = setup.own(&self.key, |_| {
            let sessions = self.sessions.div_ceil(share.1);
            Distributor::new(Arc::clone(&self.services), sessions, secret, &part)
                .map_err(no_memory("state", format!("a table of {sessions} sessions (the state's `sessions`)")))
        })?;
        Ok((own, Attendant::new(part, setup.frequency())))
    }
}

impl DeclareState for Balancer {
    type Params = Params;
    const NAME: &'static str = "balancer";
    const SUMMARY: &'static str = "services, their backends, and sessions that balance and balance_back share";
    const EXAMPLE: &'static str = "\
        { services: [{ address: 192.0.2.10, protocol: udp, backends: [{ address: 10.0.0.1 }, { address: 10.0.0.2, weight: 2 }] }] }";

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = params.sessions.unwrap_or(SESSIONS);
        if !(1..=MOST).contains(&sessions) {
            return Err(SetupError::at("sessions", format!("{sessions}: allowed are 1 to {MOST}")));
        }
        let clock = SlotClock::new(setup.frequency());
        let timeouts = Timeouts::new(&params.timeouts, clock, "timeouts")?;
        let settings = Settings { when_full: params.when_full, replies: params.replies, timeouts, clock };
        let services = Arc::new(params.services(settings)?);
        // Not of what the services are: sessions are to outlast them.
        let key = format!("balancer {} {sessions}", setup.name());
        Ok(Self { key, sessions, services })
    }
}

register!(state Balancer);

#[cfg(test)]
mod tests;
