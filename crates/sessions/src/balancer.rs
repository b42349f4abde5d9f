//! The state `balancer`, which both directions of load balancing share.
//!
//! [`balance`](crate::balance) sends packets for a service's address to one of its backends.
//! [`balance_back`](crate::balance_back) gives the replies the service's address. The services belong to a
//! configuration. A worker's sessions outlive a configuration. The next configuration finds the service of a session by
//! the session's backend ([`roster`]).

mod distributor;
mod outcome;
mod params;
mod roster;
mod services;
mod session;

use std::sync::Arc;

use forebay_graph::{DeclareState, Own, Setup, SetupError, register};
use forebay_tables::parameters::no_memory;
use forebay_tables::sessions::MOST;

pub(crate) use distributor::Distributor;
pub(crate) use outcome::{BACK_DROPS, BACKENDS, BUSY, COUNTERS, DROPS, Others, Outputs};
pub use params::Params;
use services::Replies;
pub(crate) use services::Services;

use crate::connection::{SlotClock, Timeouts};
use crate::listing::{Listing, ServingModule, add_table};
use crate::nat::WhenFull;

/// Default for the maximum number of sessions.
const SESSIONS: usize = 1 << 16;

/// The validated state: the services, and the parameters of each worker's session table.
pub struct Balancer {
    /// The key of the workers' sessions. The next configuration takes over the sessions if its key is the same.
    key: String,
    /// The maximum number of sessions over all workers.
    sessions: usize,
    services: Arc<Services>,
}

/// Settings of all services.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    when_full: WhenFull,
    replies: Replies,
    timeouts: Timeouts,
    clock: SlotClock,
}

impl Balancer {
    /// Returns the services.
    pub(crate) fn services(&self) -> &Arc<Services> {
        &self.services
    }

    /// Returns a worker's sessions. All modules of the worker that name this state share the sessions, and the next
    /// configuration takes them over. Also returns a registration for serving operators' requests. At least one module
    /// must keep it and serve the requests.
    ///
    /// # Errors
    /// There is not enough memory, or there are several workers and a reply may come to another worker than the
    /// session's worker.
    pub(crate) fn distributor(
        &self,
        setup: &mut Setup<'_>,
    ) -> Result<(Arc<Own<Distributor>>, ServingModule), SetupError> {
        if setup.share().1 > 1 && !self.services.reply_anywhere() {
            return Err(SetupError::with_hint(
                "state",
                "`replies: session` needs both directions of a session on one worker",
                "with several workers, set `replies: endpoint` in the state, set `mode: direct` in its services, or \
                 put both directions in one worker's `modules`",
            ));
        }
        let (secret, share) = (setup.secret(), setup.share());
        let listing = Listing::of(&self.key, setup)?;
        let operators = listing.operator_side(share);
        add_table(&listing, &distributor::SESSIONS, self.services.settings.clock, &self.key, setup)?;
        let own = setup.once_per_worker(&self.key, |_| {
            let sessions = self.sessions.div_ceil(share.1);
            Distributor::new(Arc::clone(&self.services), sessions, secret, &operators)
                .map_err(no_memory("state", format!("a table of {sessions} sessions (the state's `sessions`)")))
        })?;
        Ok((own, ServingModule::new(operators, setup.frequency())))
    }
}

impl DeclareState for Balancer {
    type Params = Params;
    const NAME: &'static str = "balancer";
    const SUMMARY: &'static str = "services, their backends, and sessions that balance and balance_back share";
    const EXAMPLE: &'static str = "\
        { services: [{ address: 192.0.2.10, protocol: udp, backends: [{ address: 10.0.0.1 }, { address: 10.0.0.2, \
        weight: 2 }] }] }";

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let sessions = params.sessions.unwrap_or(SESSIONS);
        if !(1..=MOST).contains(&sessions) {
            return Err(SetupError::not_allowed("sessions", sessions, format!("1 to {MOST}")));
        }
        let clock = SlotClock::new(setup.frequency());
        let timeouts = Timeouts::new(&params.timeouts, clock, "timeouts")?;
        let settings = Settings { when_full: params.when_full, replies: params.replies, timeouts, clock };
        let services = Arc::new(params.services(settings)?);
        // The key does not depend on the services, because sessions must outlive a change of services.
        let key = format!("balancer {} {sessions}", setup.name());
        Ok(Self { key, sessions, services })
    }
}

register!(state Balancer);

#[cfg(test)]
mod tests;
