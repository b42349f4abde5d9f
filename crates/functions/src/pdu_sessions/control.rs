//! What the control plane has of sessions: their lines, which places are free, what those that ended were charged for.
//!
//! Places are given out again only after a later change that finds that no worker reads a copy of the table any more in which
//! they were the old session's (`forebay_graph::Live`): so no packet of one is counted for another, and the old one's counts
//! are final. A worker that the system has stopped in the middle of a call may hold such a copy for long.

mod ended;
mod usage;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::{Live, Outcome, Table, Verb, foreign_words};
use forebay_memory::NoMemory;

use super::accounts::{Accounts, Usage};
use super::condition::Condition;
use super::limit::Clock;
use super::line::{Line, MOST_BEARERS, Name, User, without_comment};
use super::users::{Bearer, Session, Step, Users};
use crate::tables::sessions::Seed;

pub(super) use ended::EndedTable;
pub(super) use usage::UsageTable;

/// Changes that are published together.
const CHUNK: usize = 1 << 10;
/// How long changes may wait in all for workers to leave the sessions whose places they need: calls take microseconds, and a
/// worker that the system has stopped is back after some time slices.
const PATIENCE: Duration = Duration::from_millis(200);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_micros(50);

/// Places of one kind.
#[derive(Default)]
struct Free {
    fresh: u32,
    most: u32,
    /// Those that may be given out again.
    free: VecDeque<u32>,
    /// Those that somebody may still look at.
    waiting: Vec<u32>,
}

impl Free {
    fn new(most: usize) -> Self {
        Self { most: most as u32, ..Self::default() }
    }

    /// How many can be given out now.
    fn left(&self) -> usize {
        self.free.len() + (self.most - self.fresh) as usize
    }

    /// How many somebody has.
    fn used(&self) -> usize {
        self.fresh as usize - self.free.len() - self.waiting.len()
    }

    /// One of those that are left.
    fn take(&mut self) -> Option<u32> {
        if self.fresh < self.most {
            self.fresh += 1;
            return Some(self.fresh - 1);
        }
        self.free.pop_front()
    }
}

/// A session that is there.
struct Entry {
    user: User,
    text: Box<str>,
    bearers: Arc<[(u32, Bearer)]>,
    /// What has been told and taken off counts.
    told: HashMap<u32, Usage>,
}

/// A session that ended.
struct Ended {
    user: User,
    usage: Vec<(u32, Usage)>,
}

/// What only operators look at.
struct Books {
    by_name: BTreeMap<Name, u32>,
    sessions: HashMap<u32, Entry>,
    places: Free,
    bearers: Free,
    /// Ended, and not final yet: the place, the user, what has been told.
    ending: Vec<(u32, Entry)>,
    ended: BTreeMap<u64, Ended>,
    next_ended: u64,
    most_ended: usize,
}

/// Why a change was not made.
enum No {
    /// A place that it needs is free once what was done before is in force.
    NotYet,
    Refused(String),
}

/// Limits of a state.
#[derive(Clone, Copy)]
pub(super) struct Most {
    pub(super) sessions: usize,
    pub(super) bearers: usize,
    pub(super) ended: usize,
}

/// The sessions, with all that belongs to them.
pub struct Core {
    pub(super) live: Arc<Live<Users, Vec<Step>>>,
    pub(super) accounts: Arc<Accounts>,
    books: Mutex<Books>,
    clock: Clock,
    most: Most,
}

impl Core {
    /// The sessions of these lines; faults are given to `fault`, by the line's number.
    pub(super) fn new(
        lines: &[(usize, &str)],
        clock: Clock,
        most: Most,
        accounts: Arc<Accounts>,
        seed: Seed,
        mut fault: impl FnMut(usize, String),
    ) -> Result<Self, NoMemory> {
        let mut books = Books {
            by_name: BTreeMap::new(),
            sessions: HashMap::new(),
            places: Free::new(most.sessions),
            bearers: Free::new(most.bearers + MOST_BEARERS),
            ending: Vec::new(),
            ended: BTreeMap::new(),
            next_ended: 1,
            most_ended: most.ended,
        };
        // The second is what changes are made on.
        let made = || Users::new(most.sessions, most.bearers + MOST_BEARERS, seed);
        let (mut users, twin) = (made()?, made()?);
        for (number, line) in lines {
            let added = Line::parse(line, clock).and_then(|line| {
                let made = books.set(&users, line, false, &accounts, most);
                made.map_err(|no| match no {
                    No::Refused(message) => message,
                    No::NotYet => "there is no place".to_owned(),
                })
            });
            match added {
                Ok(steps) => steps.iter().for_each(|step| users.apply(step)),
                Err(message) => fault(*number, message),
            }
        }
        // Nobody else has them, and a worker to whom no packets come must not seem to look at those of the start for ever.
        let live = Arc::new(Live::unshared(users, twin));
        Ok(Self { live, accounts, books: Mutex::new(books), clock, most })
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one change.
    fn change(&self, books: &mut Books, users: &Users, change: &str) -> Result<Vec<Step>, No> {
        let refused = No::Refused;
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
    /// The session that has one of a user's addresses.
    fn session_of(&self, user: User) -> Option<u32> {
        user.names().find_map(|name| self.by_name.get(&name).copied())
    }

    /// Adds a session, or puts it in the place of the one that its user has: it goes on with that one's counts.
    fn set(
        &mut self,
        users: &Users,
        line: Line,
        replace: bool,
        accounts: &Accounts,
        most: Most,
    ) -> Result<Vec<Step>, No> {
        let refused = |message: String| Err(No::Refused(message));
        let Line { user, limits, bearers, text } = line;
        let before = self.session_of(user);
        if before.is_some() && !replace {
            return refused(format!("{user} has a session already: allowed is 'replace'"));
        }
        if let Some(name) = user.names().find(|name| self.by_name.get(name).is_some_and(|it| Some(*it) != before)) {
            return refused(format!("{name} has another session: remove it first"));
        }
        for bearer in &bearers {
            let there = users.by_teid(bearer.teid).and_then(|there| users.bearer(there));
            if there.is_some_and(|there| Some(there.session) != before) {
                return refused(format!("teid {:#x} is another session's: allowed are those of none", bearer.teid));
            }
        }
        if before.is_none() && self.places.left() == 0 {
            return if self.ending.is_empty() {
                refused(format!("there are {} sessions: the state allows as many ('limit')", most.sessions))
            } else {
                Err(No::NotYet)
            };
        }
        let own = before.and_then(|it| self.sessions.get(&it)).map_or(0, |entry| entry.bearers.len());
        let others = self.bearers.used() - own;
        if others + bearers.len() > most.bearers {
            return refused(format!(
                "{} more bearers than the {others} that others have: the state allows {} in all ('bearers')",
                bearers.len(),
                most.bearers
            ));
        }
        if self.bearers.left() < bearers.len() {
            return Err(No::NotYet);
        }
        let mut steps = Vec::with_capacity(2);
        let number = match before {
            Some(number) => {
                steps.extend(self.take_down(number).map(|bearers| Step::Remove { number, bearers }));
                number
            }
            None => {
                let Some(number) = self.places.take() else { return Err(No::NotYet) };
                accounts.begin(number);
                number
            }
        };
        let told = self.sessions.remove(&number).map(|entry| entry.told).unwrap_or_default();
        let places: Vec<u32> = bearers.iter().map_while(|_| self.bearers.take()).collect();
        let mut filters: Vec<(u32, Condition, u32)> = Vec::new();
        let several = |teid| bearers.iter().filter(|bearer| bearer.teid == teid).count() > 1;
        let made = bearers.iter().zip(&places).map(|(bearer, place)| {
            accounts.begin_bearer(*place);
            filters.extend(bearer.filters.iter().map(|(precedence, condition)| (*precedence, *condition, *place)));
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
            (*place, made)
        });
        let made: Arc<[(u32, Bearer)]> = made.collect();
        filters.sort_by_key(|(precedence, ..)| *precedence);
        let filters: Vec<_> = filters.into_iter().map(|(_, condition, place)| (condition, place)).collect();
        let filters = (!filters.is_empty()).then(|| Arc::new(filters));
        let session = Session { user, first: places.first().copied().unwrap_or_default(), limits, filters };
        steps.push(Step::Add { number, session, bearers: Arc::clone(&made) });
        self.by_name.extend(user.names().map(|name| (name, number)));
        self.sessions.insert(number, Entry { user, text, bearers: made, told });
        Ok(steps)
    }

    /// Takes a session's names and bearers from it: the bearers.
    fn take_down(&mut self, number: u32) -> Option<Arc<[(u32, Bearer)]>> {
        let entry = self.sessions.get(&number)?;
        for name in entry.user.names() {
            self.by_name.remove(&name);
        }
        self.bearers.waiting.extend(entry.bearers.iter().map(|(place, _)| *place));
        Some(Arc::clone(&entry.bearers))
    }

    /// Looks whether the words behind a user are those of the session that the user has.
    fn only_listed(&self, user: User, entry: &str) -> Result<(), String> {
        let session = self.session_of(user).and_then(|number| self.sessions.get(&number));
        match session.and_then(|session| foreign_words(entry, &session.text).next()) {
            None => Ok(()),
            Some((_, word)) => {
                let word: String = word.chars().take(60).collect();
                Err(format!(
                    "'{word}' is not of the session of {user} as it is listed: allowed are the user alone, and the \
                     listed line"
                ))
            }
        }
    }

    fn remove(&mut self, user: User) -> Result<Step, String> {
        let number = self.session_of(user).ok_or_else(|| format!("{user} has no session"))?;
        if self.most_ended > 0 && self.ended.len() + self.ending.len() >= self.most_ended {
            return Err(format!(
                "the counts of {} sessions that have ended have not been taken out yet: the state keeps as many ('ended')",
                self.most_ended
            ));
        }
        let bearers = self.take_down(number).ok_or_else(|| format!("{user} has no session"))?;
        if let Some(entry) = self.sessions.remove(&number) {
            self.ending.push((number, entry));
        }
        Ok(Step::Remove { number, bearers })
    }

    /// What was removed before is seen by nobody any more.
    fn settle(&mut self, accounts: &Accounts) {
        let Self { places, bearers, ending, .. } = self;
        bearers.free.extend(bearers.waiting.drain(..));
        for (number, entry) in std::mem::take(ending) {
            places.free.push_back(number);
            let usage = untold(&accounts.usage(number), &entry.told);
            if !usage.is_empty() && self.most_ended > 0 {
                self.ended.insert(self.next_ended, Ended { user: entry.user, usage });
                self.next_ended += 1;
            }
        }
    }
}

/// What has not been told yet, without what is nothing.
fn untold(usage: &[(u32, Usage)], told: &HashMap<u32, Usage>) -> Vec<(u32, Usage)> {
    let rest = usage.iter().map(|(rule, usage)| (*rule, usage.less(told.get(rule).copied().unwrap_or_default())));
    rest.filter(|(_, usage)| *usage != Usage::default()).collect()
}

/// A user's usage as a line.
fn show(first: &str, usage: &[(u32, Usage)]) -> String {
    let mut line = first.to_owned();
    for (rule, Usage([up, up_bytes, down, down_bytes])) in usage {
        let name = if *rule == 0 { "other".to_owned() } else { rule.to_string() };
        line += &format!(" rule={name} up={up}/{up_bytes}B down={down}/{down_bytes}B");
    }
    line
}

/// Why there is no place though there will be one.
const LOOKED_AT: &str =
    "a worker that has been stopped still looks at sessions that ended, whose places it needs: try again";

/// How sessions are changed.
const SYNTAX: &str = "\
add USER teid=N [peer=ADDRESS peer-teid=N] [qfi=N] [ambr-up=RATE] [ambr-down=RATE] [mbr-up=RATE] [mbr-down=RATE] [gbr] [bearer ... filter=PRECEDENCE,CONDITION,...]   a new session
remove USER   a session that is there; also its line as it is listed
replace USER teid=N ...   another in the place of the user's, which keeps its counts, or a new one
where USER is 10.60.0.1, 2001:db8:0:1::/64, or both with a comma between them, and RATE is 50Mbps or 50Mbps/64KiB";

impl Table for Core {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut books = self.books();
        let (mut at, mut waited) = (0, Duration::ZERO);
        while at < changes.len() {
            let (begin, end) = (at, changes.len().min(at + CHUNK));
            let left = self.live.change_told(|users, log, left| {
                if left {
                    books.settle(&self.accounts);
                }
                while at < end {
                    match self.change(&mut books, users, changes[at]) {
                        Ok(steps) => {
                            steps.iter().for_each(|step| users.apply(step));
                            log.extend(steps);
                            outcome.note::<String>(at, Ok(()));
                        }
                        Err(No::NotYet) if left || waited < PATIENCE => break,
                        Err(No::NotYet) => outcome.note(at, Err(LOOKED_AT)),
                        Err(No::Refused(message)) => outcome.note(at, Err(message)),
                    }
                    at += 1;
                }
                left
            });
            if at == begin && !left {
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

/// What a line is listed under.
fn first_name(line: &str) -> Result<Name, String> {
    let word = line.split_ascii_whitespace().next().unwrap_or_default();
    User::parse(word)?.names().next().ok_or_else(|| format!("'{word}' is no user"))
}

impl Books {
    /// The sessions behind a name, each once.
    fn following(&self, after: Option<Name>) -> impl Iterator<Item = (u32, &Entry)> {
        let behind = self.by_name.range((after.map_or(Unbounded, Excluded), Unbounded));
        behind.filter_map(|(name, number)| {
            let entry = self.sessions.get(number)?;
            (entry.user.names().next() == Some(*name)).then_some((*number, entry))
        })
    }
}
