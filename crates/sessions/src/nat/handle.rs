//! A module's access to its worker's translator, and the work that is due even without packets.

use std::sync::Arc;

use forebay_graph::{Context, Lent, Own, Setup, SetupError};
use forebay_measure::Counter;
use forebay_tables::journal::{self, Journal, JournalSlot, LineWriter};
use forebay_tables::sessions::Tuple4;
use forebay_units::Ticks;

use super::allocations::Entry;
use super::deterministic::{BlockTable, LEAST};
use super::translator::{BINDINGS, SESSIONS};
use super::{Filtering, Nat, Translator};
use crate::connection::{ENDS_WOKEN, FoundSession, Headers, SessionLookup, SessionRow};
use crate::listing::{
    LOOKS_WHEN_WOKEN, LOOKS_WITH_PACKETS, Listing, OperatorSide, ServingModule, WorkerTables, add_table, serve_requests,
};

/// A worker's translator, for [session lookups](SessionLookup). The methods are those of [`SessionLookup`].
pub struct NatLookup {
    key: String,
    translator: Arc<Own<Translator>>,
    /// Maximum number of sessions of this worker.
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

/// A module's access to the translator.
pub(crate) struct TranslatorHandle {
    pub(crate) translator: Arc<Own<Translator>>,
    serving_module: ServingModule,
    /// Writer of the log, until the first call hands it over to the translator.
    writer: Option<LineWriter<Entry>>,
    journal: Option<Arc<Journal<Entry>>>,
    /// The module's counters ([`COUNTERS`](super::COUNTERS)), if it has any.
    counters: Option<Arc<[Counter]>>,
}

impl Nat {
    /// Returns this worker's translator. All modules of the worker that use this state share the translator.
    fn translator(
        &self,
        operators: &Arc<OperatorSide>,
        setup: &mut Setup<'_>,
    ) -> Result<Arc<Own<Translator>>, SetupError> {
        let (secret, share) = (setup.secret(), setup.share());
        self.allow(share.1)?;
        setup.once_per_worker(&self.key, |_| {
            let sessions = self.sessions.div_ceil(share.1);
            Translator::new(self, sessions, share, secret, operators)
        })
    }

    /// Returns this worker's translator for a module that only looks up sessions.
    ///
    /// # Errors
    /// The state cannot work on several workers, or there is not enough memory for the tables, as a fault of the
    /// parameter `state`.
    pub fn lookup(&self, setup: &mut Setup<'_>) -> Result<SessionLookup, SetupError> {
        let operators = Listing::of(&self.key, setup)?.operator_side(setup.share());
        let most = self.sessions.div_ceil(setup.share().1);
        let (key, translator) = (self.key.clone(), self.translator(&operators, setup)?);
        Ok(SessionLookup::Nat(NatLookup { key, translator, most }))
    }

    /// Returns a module's access to its worker's translator. All modules of a worker that name this state share the
    /// translator. A module with `counters` publishes them, and sets up the log.
    pub(crate) fn handle(
        &self,
        counters: Option<Arc<[Counter]>>,
        setup: &mut Setup<'_>,
    ) -> Result<TranslatorHandle, SetupError> {
        let listing = Listing::of(&self.key, setup)?;
        let operators = listing.operator_side(setup.share());
        let translator = self.translator(&operators, setup)?;
        for table_type in [&SESSIONS, &BINDINGS] {
            add_table(&listing, table_type, self.clock, &self.key, setup)?;
        }
        if let Some(blocks) = self.blocks {
            let table = setup.handed_over(&format!("blocks {}", self.key), |_| Ok(BlockTable(blocks)))?;
            setup.table("blocks", table);
        }
        let mut handle = TranslatorHandle {
            translator,
            serving_module: ServingModule::new(operators, setup.frequency()),
            writer: None,
            journal: None,
            counters,
        };
        if let (Some(log), true) = (&self.log, handle.counters.is_some()) {
            let counts = setup.counters("log", journal::COUNTERS.map(str::to_owned));
            let wrong = |message: String| SetupError::at("state", format!("log.file: {message}"));
            let path = setup.claim_to_append_for(&self.name, "state", &log.file)?;
            if !setup.checking() {
                let slot = setup.lasting(&format!("nat log {}", path.display()), |_| Ok(JournalSlot::default()))?;
                let journal = slot.take(&path, &self.name, setup.frequency()).map_err(wrong)?;
                handle.writer =
                    Some(journal.line_writer(Arc::new(()), counts, None, setup.simulated()).waiting(setup.may_wait()));
                handle.journal = Some(journal);
            }
        }
        Ok(handle)
    }

    /// Refuses configurations that cannot work on several workers.
    fn allow(&self, workers: usize) -> Result<(), SetupError> {
        if workers > 1 && !(self.forwards.is_empty() && self.filtering == Filtering::EndpointDependent) {
            let wrong = "'forwards' and 'filtering: endpoint_independent' work on one worker only";
            return Err(SetupError::with_hint("state", wrong, "put both directions in one worker's `modules`"));
        }
        match self.blocks {
            Some(blocks) if workers > 1 && blocks.size() < LEAST * workers => Err(SetupError::with_hint(
                "state",
                format!(
                    "each inside address gets {} ports, but {workers} workers need {} or more, because only about one \
                     port in {workers} leads replies to the session's worker",
                    blocks.size(),
                    LEAST * workers
                ),
                "enlarge `pool`, reduce `deterministic.inside`, or put both directions in one worker's `modules`",
            )),
            _ => Ok(()),
        }
    }
}

impl TranslatorHandle {
    /// Begins a call with packets: serves operators' requests.
    #[inline(always)]
    pub(crate) fn begin(&mut self, translator: &mut Translator, context: &mut Context<'_>) {
        if self.writer.is_some() || translator.worker_side().has_request() {
            self.serve(translator, LOOKS_WITH_PACKETS, context);
        }
    }

    /// Ends a call with packets: publishes the counters if this is due.
    #[inline(always)]
    pub(crate) fn end(&mut self, translator: &Translator, context: &mut Context<'_>) {
        if self.serving_module.is_due(context.now(), translator.is_empty()) {
            self.publish_and_schedule(translator, context);
        }
    }

    /// Handles a call without packets.
    pub(crate) fn wake(&mut self, context: &mut Context<'_>) {
        let own = Arc::clone(&self.translator);
        let Some(mut translator) = own.lend() else { return };
        translator.begin(context, ENDS_WOKEN);
        if translator.is_due() {
            context.look_at(context.now());
        }
        self.serve(&mut translator, LOOKS_WHEN_WOKEN, context);
        self.publish_and_schedule(&translator, context);
    }

    /// Hands over the writer of the log, and serves operators' requests.
    #[cold]
    fn serve(&mut self, translator: &mut Translator, looks: u32, context: &mut Context<'_>) {
        if let Some(writer) = self.writer.take() {
            translator.log_to(writer);
        }
        serve_requests(translator, looks, context);
    }

    /// Publishes the counters, and schedules the next call without packets if there are sessions.
    fn publish_and_schedule(&mut self, translator: &Translator, context: &mut Context<'_>) {
        self.publish(translator);
        self.serving_module.schedule(translator.is_empty(), context);
    }

    /// Publishes the counters, if this module has counters, and the number of entries for operators' requests.
    fn publish(&self, translator: &Translator) {
        match &self.counters {
            Some(counters) => translator.publish_counters(counters),
            None => translator.publish(),
        }
    }

    /// Publishes the last values of the counters and writes the rest of the log.
    pub(crate) fn close(&self) -> Result<(), String> {
        if let Some(translator) = self.translator.lend() {
            self.publish(&translator);
        }
        self.journal.as_ref().map_or(Ok(()), |journal| journal.flush())
    }
}
