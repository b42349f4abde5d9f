//! A module's way to its worker's translator, with what is to be done there though no packets come.

use std::sync::Arc;

use forebay_graph::{Context, Lent, Own, Setup, SetupError};
use forebay_measure::Counter;
use forebay_units::Ticks;

use super::allocations::Entry;
use super::deterministic::{BlockTable, LEAST};
use super::translator::{BINDINGS, SESSIONS};
use super::{Filtering, Nat, Translator};
use crate::connection::{ENDS_WOKEN, FoundSession, Headers, SessionLookup, SessionRow};
use crate::journal::{self, Journal, Pen, Slot};
use crate::listing::{Attendant, LOOKS, Listing, Part, Shown, WOKEN, attend, hand_out};
use crate::tables::sessions::Tuple4;

/// A worker's translator, for [lookups](SessionLookup).
pub struct NatLookup {
    key: String,
    translator: Arc<Own<Translator>>,
    /// The most sessions.
    most: usize,
}

impl NatLookup {
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(crate) fn rows(&self) -> usize {
        self.most + 1
    }

    pub(crate) fn lend(&self) -> Option<LentNat<'_>> {
        self.translator.lend().map(LentNat)
    }
}

/// A worker's translator while it is lent.
pub struct LentNat<'a>(Lent<'a, Translator>);

impl LentNat<'_> {
    pub(crate) fn find_v4(&self, headers: &Headers<Tuple4>, now: Ticks) -> Option<FoundSession> {
        self.0.known(headers.tuple, now)
    }

    pub(crate) fn mark(&mut self, row: SessionRow) {
        self.0.mark(row.index);
    }
}

/// A module's way to the translator.
pub(crate) struct Post {
    pub(crate) translator: Arc<Own<Translator>>,
    attendant: Attendant,
    /// What ports that are given out are told with, until the translator has it.
    pen: Option<Pen<Entry>>,
    journal: Option<Arc<Journal<Entry>>>,
    /// What the module shows ([`COUNTERS`](super::COUNTERS)), if it does.
    counters: Option<Arc<[Counter]>>,
}

impl Nat {
    /// This worker's translator.
    fn translator(&self, part: &Arc<Part>, setup: &mut Setup<'_>) -> Result<Arc<Own<Translator>>, SetupError> {
        let (secret, share) = (setup.secret(), setup.share());
        self.allow(share.1)?;
        setup.own(&self.key, |_| {
            let sessions = self.sessions.div_ceil(share.1);
            Translator::new(self, sessions, share, secret, part)
        })
    }

    /// The translator of this worker, for a module that only looks sessions up.
    pub(crate) fn lookup(&self, setup: &mut Setup<'_>) -> Result<SessionLookup, SetupError> {
        let part = Listing::of(&self.key, setup)?.part(setup.share());
        let most = self.sessions.div_ceil(setup.share().1);
        let (key, translator) = (self.key.clone(), self.translator(&part, setup)?);
        Ok(SessionLookup::Nat(NatLookup { key, translator, most }))
    }

    /// A module's way to its worker's translator, the same for all of its modules that name this state. One that has
    /// `counters` shows what is counted, and brings the log.
    pub(crate) fn post(&self, counters: Option<Arc<[Counter]>>, setup: &mut Setup<'_>) -> Result<Post, SetupError> {
        let listing = Listing::of(&self.key, setup)?;
        let part = listing.part(setup.share());
        let translator = self.translator(&part, setup)?;
        for kind in [&SESSIONS, &BINDINGS] {
            hand_out(&listing, kind, self.clock, &self.key, setup)?;
        }
        if let Some(blocks) = self.blocks {
            let table = setup.handed_on(&format!("blocks {}", self.key), |_| Ok(BlockTable(blocks)))?;
            setup.table("blocks", table);
        }
        let mut post =
            Post { translator, attendant: Attendant::new(part, setup.frequency()), pen: None, journal: None, counters };
        if let (Some(log), true) = (&self.log, post.counters.is_some()) {
            let counts = setup.counters("log", journal::COUNTERS.map(str::to_owned));
            let wrong = |told: String| SetupError::at("state", format!("log.file: {told}"));
            let path = setup.claim_on_for(&self.name, "state", &log.file)?;
            if setup.looks_at_files() {
                journal::check(&path).map_err(wrong)?;
            }
            if !setup.checking() {
                let slot = setup.lasting(&format!("nat log {}", path.display()), |_| Ok(Slot::default()))?;
                let journal = slot.take(&path, &self.name, setup.frequency()).map_err(wrong)?;
                post.pen = Some(journal.pen(Arc::new(()), counts, None, setup.simulated()).waiting(setup.may_wait()));
                post.journal = Some(journal);
            }
        }
        Ok(post)
    }

    /// What cannot work on several workers is refused.
    fn allow(&self, workers: usize) -> Result<(), SetupError> {
        if workers > 1 && !(self.forwards.is_empty() && self.filtering == Filtering::EndpointDependent) {
            return Err(SetupError::at(
                "state",
                "sessions that begin outside can be on one worker only: 'forwards' and 'filtering: endpoint_independent' \
                 need both directions in one worker's `modules`",
            ));
        }
        match self.blocks {
            Some(blocks) if workers > 1 && blocks.size() < LEAST * workers => Err(SetupError::at(
                "state",
                format!(
                    "each inside address gets {} ports, of which about one in {workers} leads a session back to its worker: on \
                     {workers} workers allowed are {} or more (a larger `pool`, a smaller `deterministic.inside`), or both \
                     directions in one worker's `modules`",
                    blocks.size(),
                    LEAST * workers
                ),
            )),
            _ => Ok(()),
        }
    }
}

impl Post {
    /// A call with packets begins: what operators ask is answered first.
    #[inline(always)]
    pub(crate) fn begin(&mut self, translator: &mut Translator, context: &mut Context<'_>) {
        if self.pen.is_some() || translator.desk().is_asked() {
            self.attend(translator, LOOKS, context);
        }
    }

    /// A call with packets ends.
    #[inline(always)]
    pub(crate) fn end(&mut self, translator: &Translator, context: &mut Context<'_>) {
        if self.attendant.is_due(context.now(), translator.is_empty()) {
            self.look_after(translator, context);
        }
    }

    /// A call without packets.
    pub(crate) fn wake(&mut self, context: &mut Context<'_>) {
        let own = Arc::clone(&self.translator);
        let Some(mut translator) = own.lend() else { return };
        translator.begin(context, ENDS_WOKEN);
        if translator.is_due() {
            context.look_at(context.now());
        }
        self.attend(&mut translator, WOKEN, context);
        self.look_after(&translator, context);
    }

    #[cold]
    fn attend(&mut self, translator: &mut Translator, looks: u32, context: &mut Context<'_>) {
        if let Some(pen) = self.pen.take() {
            translator.log_to(pen);
        }
        attend(translator, looks, context);
    }

    /// Tells what is counted, and asks to be woken as long as sessions wait for their end.
    fn look_after(&mut self, translator: &Translator, context: &mut Context<'_>) {
        self.tell(translator);
        self.attendant.looked(translator.is_empty(), context);
    }

    fn tell(&self, translator: &Translator) {
        match &self.counters {
            Some(counters) => translator.tell(counters),
            None => translator.publish(),
        }
    }

    /// Tells what has come since it was told last; all that was told of ports is written.
    pub(crate) fn close(&self) -> Result<(), String> {
        if let Some(translator) = self.translator.lend() {
            self.tell(&translator);
        }
        self.journal.as_ref().map_or(Ok(()), |journal| journal.flush())
    }
}
