//! The control plane's data about sessions: their lines, the free slots, and the charges of ended sessions.
//!
//! A slot is reused only after a later change finds that no worker still reads a copy of the table in which the slot
//! belongs to the old session (`forebay_graph::Live`). So no packet of the old session is counted for a new one, and
//! the counts of the old session are final. If the system has stopped a worker in the middle of a call, the worker may
//! keep such a copy for a long time.

mod ended;
mod usage;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::{Live, Outcome, Table, Verb, foreign_words, short};
use forebay_memory::NoMemory;
use forebay_tables::sessions::Seed;
use forebay_units::wording::counted;

use super::accounts::{Accounts, Usage};
use super::condition::Condition;
use super::limit::Clock;
use super::line::{Line, MOST_BEARERS, Name, User, without_comment};
use super::users::{Bearer, Session, Step, Users};

pub(super) use ended::EndedTable;
pub(super) use usage::UsageTable;

/// The number of changes that are published together.
const CHUNK: usize = 1 << 10;
/// The longest time for which the changes of one call wait in total. A change waits if it needs a slot of a session
/// that a worker still reads. Calls of workers take microseconds, and a worker that the system has stopped continues
/// after some time slices.
const PATIENCE: Duration = Duration::from_millis(200);
/// The interval of the checks during the wait.
const LOOK: Duration = Duration::from_micros(50);

/// The slots of sessions, or of bearers.
#[derive(Default)]
struct Slots {
    /// The number of slots that were used at least once. Slots from this number on have never been used.
    fresh: u32,
    /// The number of slots.
    most: u32,
    /// The slots that were used and may be given out again.
    free: VecDeque<u32>,
    /// The slots of removed bearers that a worker may still read. Empty for sessions: their slots are in
    /// [`Books::ending`].
    waiting: Vec<u32>,
}

impl Slots {
    /// Creates `most` slots, numbered from 0. No slot has been used. [`Users`] and [`Accounts`] must have as many
    /// slots. `most` fits 32 bits, because `pdu_sessions` refuses a `limit` or `bearers` above 2²⁴.
    fn new(most: usize) -> Self {
        Self { most: most as u32, ..Self::default() }
    }

    /// Returns the number of slots that can be given out now.
    fn available(&self) -> usize {
        self.free.len() + (self.most - self.fresh) as usize
    }

    /// Returns the number of slots in use.
    fn used(&self) -> usize {
        self.fresh as usize - self.free.len() - self.waiting.len()
    }

    /// Takes one of the available slots.
    fn take(&mut self) -> Option<u32> {
        if self.fresh < self.most {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.free.pop_front()
    }
}

/// A current session.
struct Entry {
    user: User,
    /// The line that the table `sessions` lists.
    text: Box<str>,
    /// The bearers with their slots.
    bearers: Arc<[(u32, Bearer)]>,
    /// The counts that were already removed from the table `usage`, by rule.
    settled: HashMap<u32, Usage>,
}

/// An ended session.
struct Ended {
    user: User,
    /// The final counts by rule, without the counts that were removed from the table `usage` before.
    usage: Vec<(u32, Usage)>,
}

/// The data that only the control plane reads.
struct Books {
    /// The slot of the session of each user address.
    by_name: BTreeMap<Name, u32>,
    /// The current sessions by slot.
    sessions: HashMap<u32, Entry>,
    /// The slots of sessions.
    slots: Slots,
    /// The slots of bearers.
    bearers: Slots,
    /// Ended sessions whose counts are not final yet, with their slots.
    ending: Vec<(u32, Entry)>,
    /// The ended sessions whose counts are final, by their number in the table `ended`.
    ended: BTreeMap<u64, Ended>,
    /// The number of the next ended session.
    next_ended: u64,
    /// The largest number of sessions in `ended` and `ending` together; 0 if ended sessions are not kept.
    most_ended: usize,
}

/// The reason why a change was not made. The books and the table have not changed then.
enum ChangeError {
    /// The change needs a slot that becomes free when no worker reads removed sessions any more. The change can be
    /// tried again.
    NotYet,
    /// The change is invalid, for this reason.
    Refused(String),
}

/// The largest numbers of objects in a state.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) sessions: usize,
    pub(super) bearers: usize,
    /// Ended sessions whose counts are kept; 0 if no counts are kept.
    pub(super) ended: usize,
}

/// The sessions and all their data.
pub struct Core {
    /// The two copies of the sessions that workers read.
    pub(super) live: Arc<Live<Users, Vec<Step>>>,
    /// The limits and counts, which workers change.
    pub(super) accounts: Arc<Accounts>,
    books: Mutex<Books>,
    /// The settings with which rates in the lines of changes are converted into limits.
    clock: Clock,
    most: Limits,
}

impl Core {
    /// Creates the sessions of these lines. Calls `fault` with the number of each invalid line and its error. After
    /// such a call, the caller must refuse the state. Fails only if there is no memory.
    pub(super) fn new(
        lines: &[(usize, &str)],
        clock: Clock,
        most: Limits,
        accounts: Arc<Accounts>,
        seed: Seed,
        mut fault: impl FnMut(usize, String),
    ) -> Result<Self, NoMemory> {
        // A replaced session gets its new bearers before the slots of its old bearers are free. With `MOST_BEARERS`
        // further slots, a session can be replaced while all `most.bearers` bearers are in use.
        let mut books = Books {
            by_name: BTreeMap::new(),
            sessions: HashMap::new(),
            slots: Slots::new(most.sessions),
            bearers: Slots::new(most.bearers + MOST_BEARERS),
            ending: Vec::new(),
            ended: BTreeMap::new(),
            next_ended: 1,
            most_ended: most.ended,
        };
        // Changes are made on the second copy.
        let made = || Users::new(most.sessions, most.bearers + MOST_BEARERS, seed);
        let (mut users, twin) = (made()?, made()?);
        for (number, line) in lines {
            let added = Line::parse(line, clock).and_then(|line| {
                let made = books.set(&users, line, false, &accounts, most);
                made.map_err(|no| match no {
                    ChangeError::Refused(message) => message,
                    ChangeError::NotYet => "there is no free slot".to_owned(),
                })
            });
            match added {
                Ok(steps) => steps.iter().for_each(|step| users.apply(step)),
                Err(message) => fault(*number, message),
            }
        }
        // Both copies belong to this table alone. With a copy that others share, a worker without packets would appear
        // to read this copy for ever, and no slot would become free.
        let live = Arc::new(Live::unshared(users, twin));
        Ok(Self { live, accounts, books: Mutex::new(books), clock, most })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one change in the books. Returns its steps, which the caller must apply to both copies of the table.
    fn change(&self, books: &mut Books, users: &Users, change: &str) -> Result<Vec<Step>, ChangeError> {
        let refused = ChangeError::Refused;
        let (verb, entry) = Verb::split(without_comment(change), SYNTAX).map_err(refused)?;
        if verb == Verb::Remove {
            let user = User::parse(entry.split_ascii_whitespace().next().unwrap_or_default()).map_err(refused)?;
            books.only_listed(user, entry).map_err(refused)?;
            return Ok(vec![books.remove(user).map_err(refused)?]);
        }
        let line = Line::parse(entry, self.clock).map_err(refused)?;
        books.set(users, line, verb == Verb::Replace, &self.accounts, self.most)
    }
}

impl Books {
    /// Returns the slot of the session that has one of a user's addresses.
    fn session_of(&self, user: User) -> Option<u32> {
        user.names().find_map(|name| self.by_name.get(&name).copied())
    }

    /// Adds a session. With `replace`, replaces the user's session if there is one, and keeps its counts. Returns the
    /// steps that the caller must apply to both copies of the table. `users` is a copy with all earlier changes. After
    /// an error, nothing has changed.
    fn set(
        &mut self,
        users: &Users,
        line: Line,
        replace: bool,
        accounts: &Accounts,
        most: Limits,
    ) -> Result<Vec<Step>, ChangeError> {
        let refused = |message: String| Err(ChangeError::Refused(message));
        let Line { user, limits, bearers, text } = line;
        let before = self.session_of(user);
        if before.is_some() && !replace {
            return refused(format!("{user} already has a session, and each user has at most one: use 'replace'"));
        }
        if let Some(name) = user.names().find(|name| self.by_name.get(name).is_some_and(|it| Some(*it) != before)) {
            return refused(format!("{name} belongs to another session: remove that session first"));
        }
        for bearer in &bearers {
            let existing = users.by_teid(bearer.teid).and_then(|existing| users.bearer(existing));
            if existing.is_some_and(|existing| Some(existing.session) != before) {
                return refused(format!(
                    "teid {:#x} belongs to another session: write a TEID that no session has",
                    bearer.teid
                ));
            }
        }
        if before.is_none() && self.slots.available() == 0 {
            return if self.ending.is_empty() {
                refused(format!(
                    "the table is full with {}, the most that the state allows ('limit'): remove a session first",
                    counted(most.sessions, "session")
                ))
            } else {
                Err(ChangeError::NotYet)
            };
        }
        let own = before.and_then(|it| self.sessions.get(&it)).map_or(0, |entry| entry.bearers.len());
        let others = self.bearers.used() - own;
        if others + bearers.len() > most.bearers {
            return refused(format!(
                "{} bearers in addition to the {others} bearers of other sessions: the state allows {} in total \
                 ('bearers')",
                bearers.len(),
                most.bearers
            ));
        }
        if self.bearers.available() < bearers.len() {
            return Err(ChangeError::NotYet);
        }
        let mut steps = Vec::with_capacity(2);
        let number = match before {
            Some(number) => {
                steps.extend(self.take_down(number).map(|bearers| Step::Remove { number, bearers }));
                number
            }
            None => {
                let Some(number) = self.slots.take() else { return Err(ChangeError::NotYet) };
                accounts.begin(number);
                number
            }
        };
        let settled = self.sessions.remove(&number).map(|entry| entry.settled).unwrap_or_default();
        let slots: Vec<u32> = bearers.iter().map_while(|_| self.bearers.take()).collect();
        let mut filters: Vec<(u32, Condition, u32)> = Vec::new();
        let several = |teid| bearers.iter().filter(|bearer| bearer.teid == teid).count() > 1;
        let made = bearers.iter().zip(&slots).map(|(bearer, slot)| {
            accounts.begin_bearer(*slot);
            filters.extend(bearer.filters.iter().map(|(precedence, condition)| (*precedence, *condition, *slot)));
            let made = Bearer {
                session: number,
                teid: bearer.teid,
                peer_teid: bearer.peer_teid,
                peer: bearer.peer,
                limits: bearer.limits,
                qfi: bearer.qfi,
                guaranteed: bearer.guaranteed,
                several: several(bearer.teid),
            };
            (*slot, made)
        });
        let made: Arc<[(u32, Bearer)]> = made.collect();
        filters.sort_by_key(|(precedence, ..)| *precedence);
        let filters: Vec<_> = filters.into_iter().map(|(_, condition, slot)| (condition, slot)).collect();
        let filters = (!filters.is_empty()).then(|| Arc::new(filters));
        let session = Session { user, first: slots.first().copied().unwrap_or_default(), limits, filters };
        steps.push(Step::Add { number, session, bearers: Arc::clone(&made) });
        self.by_name.extend(user.names().map(|name| (name, number)));
        self.sessions.insert(number, Entry { user, text, bearers: made, settled });
        Ok(steps)
    }

    /// Removes the names and bearers of a session, and returns the bearers; `None` if there is no session in this slot.
    /// The caller removes or replaces the session's entry in `sessions`.
    fn take_down(&mut self, number: u32) -> Option<Arc<[(u32, Bearer)]>> {
        let entry = self.sessions.get(&number)?;
        for name in entry.user.names() {
            self.by_name.remove(&name);
        }
        self.bearers.waiting.extend(entry.bearers.iter().map(|(slot, _)| *slot));
        Some(Arc::clone(&entry.bearers))
    }

    /// Checks a change `remove`: each word after the user must be a word of the user's listed session. The change may
    /// contain the user alone, or the listed line.
    fn only_listed(&self, user: User, entry: &str) -> Result<(), String> {
        let session = self.session_of(user).and_then(|number| self.sessions.get(&number));
        match session.and_then(|session| foreign_words(entry, &session.text).next()) {
            None => Ok(()),
            Some((_, word)) => {
                let word = short(word);
                Err(format!(
                    "'{word}' differs from the listed session of {user}: write the user alone, or the listed line"
                ))
            }
        }
    }

    /// Ends a user's session. Returns the step that the caller must apply to both copies of the table. The slots of the
    /// session and its bearers stay occupied until [`settle`](Self::settle) frees them. After an error, nothing has
    /// changed.
    fn remove(&mut self, user: User) -> Result<Step, String> {
        let number = self.session_of(user).ok_or_else(|| no_session(user))?;
        if self.most_ended > 0 && self.ended.len() + self.ending.len() >= self.most_ended {
            return Err(format!(
                "the state keeps the counts of {} ended sessions, the most that are allowed ('ended'): remove lines of \
                 the table `ended` first",
                self.most_ended
            ));
        }
        let bearers = self.take_down(number).ok_or_else(|| no_session(user))?;
        if let Some(entry) = self.sessions.remove(&number) {
            self.ending.push((number, entry));
        }
        Ok(Step::Remove { number, bearers })
    }

    /// Frees the slots of removed sessions, and makes their counts final. Must be called only if no worker can still
    /// read a copy of the table with these sessions.
    fn settle(&mut self, accounts: &Accounts) {
        let Self { slots, bearers, ending, .. } = self;
        bearers.free.extend(bearers.waiting.drain(..));
        for (number, entry) in std::mem::take(ending) {
            slots.free.push_back(number);
            let usage = unsettled(&accounts.usage(number), &entry.settled);
            if !usage.is_empty() && self.most_ended > 0 {
                self.ended.insert(self.next_ended, Ended { user: entry.user, usage });
                self.next_ended += 1;
            }
        }
    }
}

/// Returns the counts that were not removed from the table `usage` yet, without rules whose counts are 0.
fn unsettled(usage: &[(u32, Usage)], settled: &HashMap<u32, Usage>) -> Vec<(u32, Usage)> {
    let rest = usage.iter().map(|(rule, usage)| (*rule, usage.less(settled.get(rule).copied().unwrap_or_default())));
    rest.filter(|(_, usage)| *usage != Usage::default()).collect()
}

/// Formats counts as a line that begins with `first`.
fn show(first: &str, usage: &[(u32, Usage)]) -> String {
    let mut line = first.to_owned();
    for (rule, Usage([up, up_bytes, down, down_bytes])) in usage {
        let name = if *rule == 0 { "other".to_owned() } else { rule.to_string() };
        line += &format!(" rule={name} up={up}/{up_bytes}B down={down}/{down_bytes}B");
    }
    line
}

/// The error if a slot does not become free within [`PATIENCE`].
const STILL_READ: &str = "a stopped worker still reads ended sessions whose slots are needed: try again";

/// The syntax of changes.
const SYNTAX: &str = "\
add USER teid=N [peer=ADDRESS peer-teid=N] [qfi=N] [ambr-up=RATE] [ambr-down=RATE] [mbr-up=RATE] [mbr-down=RATE] \
[gbr] [bearer ... filter=PRECEDENCE,CONDITION,...]   adds a session
remove USER   removes a session; the listed line is allowed, too
replace USER teid=N ...   replaces the user's session, which keeps its counts, or adds it
where USER is 10.60.0.1, 2001:db8:0:1::/64, or both with a comma between them, and RATE is 50Mbps or 50Mbps/64KiB";

impl Table for Core {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut books = self.books();
        let (mut at, mut waited) = (0, Duration::ZERO);
        // Changes are published in chunks. If a change needs a slot that a worker may still read, the chunk ends before
        // it. The change is then tried again, until the waits of this call add up to `PATIENCE`.
        while at < changes.len() {
            let (begin, end) = (at, changes.len().min(at + CHUNK));
            let workers_left = self.live.change_with_readers(|users, log, workers_left| {
                if workers_left {
                    books.settle(&self.accounts);
                }
                while at < end {
                    match self.change(&mut books, users, changes[at]) {
                        Ok(steps) => {
                            steps.iter().for_each(|step| users.apply(step));
                            log.extend(steps);
                            outcome.note::<String>(at, Ok(()));
                        }
                        Err(ChangeError::NotYet) if workers_left || waited < PATIENCE => break,
                        Err(ChangeError::NotYet) => outcome.note(at, Err(STILL_READ)),
                        Err(ChangeError::Refused(message)) => outcome.note(at, Err(message)),
                    }
                    at += 1;
                }
                workers_left
            });
            if at == begin && !workers_left {
                let since = Instant::now();
                std::thread::sleep(LOOK);
                waited += since.elapsed();
            }
        }
        outcome
    }

    fn len(&self) -> usize {
        self.books().sessions.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        let after = after.map(first_name).transpose()?;
        let books = self.books();
        Ok(books.following(after).map(|(_, entry)| entry.text.to_string()).take(most).collect())
    }
}

/// Returns the error for a user without a session.
fn no_session(user: User) -> String {
    format!("{user} has no session: `forebay show table NAME` lists the users")
}

/// Returns the first address of the user with which a line begins. The tables list a user's session under this address.
fn first_name(line: &str) -> Result<Name, String> {
    let word = line.split_ascii_whitespace().next().unwrap_or_default();
    User::parse(word)?.names().next().ok_or_else(|| format!("'{word}' is not a user"))
}

impl Books {
    /// Returns the sessions whose listed address (the first address of the user) follows `after`, by ascending address.
    /// IPv4 addresses come before IPv6 addresses. `None` returns all sessions.
    fn following(&self, after: Option<Name>) -> impl Iterator<Item = (u32, &Entry)> {
        let behind = self.by_name.range((after.map_or(Unbounded, Excluded), Unbounded));
        behind.filter_map(|(name, number)| {
            let entry = self.sessions.get(number)?;
            (entry.user.names().next() == Some(*name)).then_some((*number, entry))
        })
    }
}
