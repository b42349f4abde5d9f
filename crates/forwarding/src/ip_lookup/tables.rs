//! The routes of a module: workers look them up while the control plane changes them.
//!
//! There is one route set, and two copies of the compressed tables (`forebay_graph::Live`). Each change of the set is
//! recorded in a list, and both copies apply the list. Modules with equal parameters share the set and the tables until
//! one of them changes its routes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use forebay_graph::{
    DeclareState, Live, Outcome, Reader, Replay, Setup, SetupError, Table as ControlTable, Verb, register,
};
use forebay_tables::lpm::routes_file::{LineError, parse_entry};
use forebay_tables::lpm::{Address, Changes, Fib, IpPrefix, MAX_NEXT_HOP, Prefix, Rib};
use schemars::JsonSchema;
use serde::Deserialize;
use thiserror::Error;

use super::routes::Source;

/// The number of prefixes that changes may paint (write into the compressed tables) before the changes are published.
/// It is large enough to make the cost of publishing negligible. It is small enough to publish every few milliseconds,
/// and to keep the list small.
const MOST_PAINTED: usize = 1 << 13;

/// The tables that lookups read.
#[derive(Clone)]
pub(super) struct Fibs {
    pub(super) ipv4: Fib<u32>,
    /// `None` as long as there have been no IPv6 routes.
    pub(super) ipv6: Option<Fib<u128>>,
}

/// The changes of both families.
#[derive(Default)]
pub(super) struct Log {
    ipv4: Changes<u32>,
    ipv6: Changes<u128>,
}

impl Log {
    /// Returns the number of prefixes to paint, which is the cost to apply the changes.
    fn len(&self) -> usize {
        self.ipv4.len() + self.ipv6.len()
    }
}

impl Fibs {
    /// Applies a list of changes, and creates the IPv6 table for the first IPv6 route.
    fn apply(&mut self, log: &Log) {
        self.ipv4.apply(&log.ipv4);
        if !log.ipv6.is_empty() {
            self.ipv6.get_or_insert_default().apply(&log.ipv6);
        }
    }
}

impl Replay<Log> for Fibs {
    fn replay(&mut self, log: &mut Log) {
        self.apply(log);
        log.ipv4.clear();
        log.ipv6.clear();
    }
}

/// The route sets.
#[derive(Clone)]
struct Ribs {
    ipv4: Rib<u32>,
    ipv6: Rib<u128>,
}

/// Routes as they were read, shared by all modules that read the same routes.
pub(super) struct Loaded {
    /// The route sets.
    ribs: Arc<Ribs>,
    /// The compressed tables of the same routes.
    fibs: Arc<Fibs>,
    /// One more than the greatest next hop; 0 without routes.
    next_hops: u32,
}

impl Loaded {
    /// Reads or generates the routes. No route may have a next hop above `last`.
    ///
    /// # Errors
    /// Those of [`Source::routes`].
    pub(super) fn read(source: &Source, last: u32, setup: &Setup<'_>) -> Result<Self, SetupError> {
        let routes = source.routes(last, setup)?;
        let invalid = |error: forebay_tables::lpm::NextHopError| SetupError::at("routes", error.to_string());
        let ribs =
            Ribs { ipv4: Rib::new(routes.ipv4).map_err(invalid)?, ipv6: Rib::new(routes.ipv6).map_err(invalid)? };
        let most = |most: Option<u32>| most.map_or(0, |most| most + 1);
        let next_hops =
            most(ribs.ipv4.iter().map(|route| route.1).max()).max(most(ribs.ipv6.iter().map(|route| route.1).max()));
        let ipv6 = (!ribs.ipv6.is_empty()).then(|| Fib::of(&ribs.ipv6));
        let fibs = Arc::new(Fibs { ipv4: Fib::of(&ribs.ipv4), ipv6 });
        Ok(Self { ribs: Arc::new(ribs), fibs, next_hops })
    }
}

/// The routes of both families: a module's own, or shared by modules as a state `routes`.
pub struct RouteTables {
    /// The route set. A change locks the set, and changes it before `live`.
    set: Mutex<RouteSet>,
    /// The compressed tables, which workers read.
    live: Arc<Live<Fibs, Log>>,
    /// One more than the greatest next hop of the routes as they were read; 0 without routes. Changes do not change it.
    next_hops: u32,
}

/// The routes, and the next hops that they may have.
struct RouteSet {
    /// The route sets. The first change gives the module its own copy.
    ribs: Arc<Ribs>,
    /// Every next hop of a route is below this number. After a removal it may be greater than necessary.
    bound: u32,
    /// The greatest next hop of each existing module with these routes.
    limits: Vec<Weak<u32>>,
}

/// Limits the routes to the next hops that a module has. The limit is dropped with the module. So a module that was
/// only checked, or whose configuration was refused, no longer limits the routes.
pub(super) struct Limit(#[expect(dead_code, reason = "its existence is its use")] Arc<u32>);

impl RouteTables {
    /// Creates tables with these routes. The tables share memory with `loaded` until the first change.
    pub(super) fn of(loaded: &Loaded) -> Self {
        Self {
            set: Mutex::new(RouteSet { ribs: Arc::clone(&loaded.ribs), bound: loaded.next_hops, limits: Vec::new() }),
            live: Arc::new(Live::new(Arc::clone(&loaded.fibs))),
            next_hops: loaded.next_hops,
        }
    }

    /// Returns one more than the greatest next hop among the routes as they were read and the routes as they are now; 0
    /// without routes.
    #[must_use]
    pub fn next_hops(&self) -> u32 {
        self.set().next_hops(self.next_hops).max(self.next_hops)
    }

    /// Returns a worker's reader of the routes, for a module that has the next hops up to `last`. As long as the limit
    /// exists, changes with a greater next hop are refused.
    ///
    /// # Errors
    /// The greatest next hop that routes have now, which the module does not have.
    pub(super) fn reader(&self, last: u32) -> Result<(Reader<Fibs, Log>, Limit), u32> {
        let mut set = self.set();
        let allowed = last.saturating_add(1);
        let next_hops = set.next_hops(allowed);
        if next_hops > allowed {
            return Err(next_hops - 1);
        }
        let limit = Arc::new(last);
        set.limits.retain(|limit| limit.strong_count() > 0);
        set.limits.push(Arc::downgrade(&limit));
        Ok((Reader::new(Arc::clone(&self.live)), Limit(limit)))
    }

    /// Locks the route set.
    fn set(&self) -> MutexGuard<'_, RouteSet> {
        // No code panics while it holds the lock, except when memory runs out.
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RouteSet {
    /// Returns one more than the greatest next hop of all routes; 0 without routes. If `bound` is at most `least`,
    /// returns `bound` without a search, because there may be a million routes. The result may then be too large.
    fn next_hops(&mut self, least: u32) -> u32 {
        if self.bound > least {
            let ipv4 = self.ribs.ipv4.iter().map(|route| route.1);
            let all = ipv4.chain(self.ribs.ipv6.iter().map(|route| route.1));
            self.bound = all.max().map_or(0, |most| most + 1);
        }
        self.bound
    }

    /// Returns the greatest next hop that a change may set: the smallest limit of all modules with these routes.
    fn last(&self) -> u32 {
        self.limits.iter().filter_map(Weak::upgrade).map(|limit| *limit).min().unwrap_or(MAX_NEXT_HOP)
    }
}

/// Makes one change of the route sets, and appends it to `log`. No next hop may be above `last`. Returns the next hop
/// of the change, if it names one. After an error, the sets and `log` are unchanged.
fn change(ribs: &mut Ribs, change: &str, last: u32, log: &mut Log) -> Result<Option<u32>, ChangeError> {
    let (verb, entry) = Verb::split(change, SYNTAX).map_err(ChangeError::Verb)?;
    let (prefix, next_hop) = parse_entry(entry, last)?;
    match prefix {
        IpPrefix::V4(prefix) => one(&mut ribs.ipv4, verb, prefix, next_hop, &mut log.ipv4, entry)?,
        IpPrefix::V6(prefix) => one(&mut ribs.ipv6, verb, prefix, next_hop, &mut log.ipv6, entry)?,
    }
    Ok(next_hop)
}

/// Makes a change in one family's route set. `entry` is the text of the change, for errors.
fn one<A: Address>(
    rib: &mut Rib<A>,
    verb: Verb,
    prefix: Prefix<A>,
    next_hop: Option<u32>,
    log: &mut Changes<A>,
    entry: &str,
) -> Result<(), ChangeError> {
    match (verb, next_hop) {
        (Verb::Remove, next_hop) => {
            if let (Some(next_hop), Some(other)) = (next_hop, rib.get(prefix))
                && next_hop != other
            {
                return Err(ChangeError::Other { prefix: prefix.to_string(), other });
            }
            rib.remove(prefix, log).map(drop).ok_or_else(|| ChangeError::Unknown(prefix.to_string()))
        }
        (_, None) => Err(LineError::NoNextHop(entry.into()).into()),
        (Verb::Add, Some(next_hop)) => {
            if let Some(other) = rib.get(prefix) {
                return Err(ChangeError::Known { prefix: prefix.to_string(), other });
            }
            rib.insert(prefix, next_hop, log)?;
            Ok(())
        }
        (Verb::Replace, Some(next_hop)) => {
            rib.insert(prefix, next_hop, log)?;
            Ok(())
        }
    }
}

/// The syntax of changes.
const SYNTAX: &str = "\
add PREFIX NEXT-HOP       adds a route: add 10.0.0.0/8 3
remove PREFIX [NEXT-HOP]  removes a route; if a next hop is given, only if the route has it
replace PREFIX NEXT-HOP   sets another next hop for a route, or adds it";

/// Why a change of the routes was refused.
#[derive(Debug, Error)]
enum ChangeError {
    #[error("{0}")]
    Verb(String),
    #[error(transparent)]
    Line(#[from] LineError),
    #[error(transparent)]
    NextHop(#[from] forebay_tables::lpm::NextHopError),
    #[error("{prefix} already exists, with next hop {other}: use 'replace'")]
    Known { prefix: String, other: u32 },
    #[error("there is no route {0}: write the prefix of an existing route, with its length")]
    Unknown(String),
    #[error("{prefix} has next hop {other}: write this next hop, or the prefix alone")]
    Other { prefix: String, other: u32 },
}

impl ControlTable for RouteTables {
    fn syntax(&self) -> &'static str {
        SYNTAX
    }

    fn apply(&self, changes: &[&str]) -> Outcome {
        let mut outcome = Outcome::default();
        let mut set = self.set();
        let (last, RouteSet { ribs, bound, .. }) = (set.last(), &mut *set);
        // The first change of shared routes gives this module its own copy.
        let ribs = if changes.is_empty() { return outcome } else { Arc::make_mut(ribs) };
        let mut changes = changes.iter().enumerate().peekable();
        while changes.peek().is_some() {
            let mut noted = Log::default();
            for (at, change) in changes.by_ref() {
                let made = self::change(ribs, change, last, &mut noted);
                outcome.note(
                    at,
                    made.map(|next_hop| *bound = next_hop.map_or(*bound, |next_hop| (*bound).max(next_hop + 1))),
                );
                if noted.len() >= MOST_PAINTED {
                    break;
                }
            }
            if noted.len() > 0 {
                self.live.change(|fibs, log| {
                    *log = noted;
                    fibs.apply(log);
                });
            }
        }
        outcome
    }

    fn len(&self) -> usize {
        let set = self.set();
        set.ribs.ipv4.len() + set.ribs.ipv6.len()
    }

    fn entries(&self, after: Option<&str>, most: usize) -> Result<Vec<String>, String> {
        fn lines<A: Address>(routes: impl Iterator<Item = (Prefix<A>, u32)>, most: usize) -> Vec<String> {
            routes.take(most).map(|(prefix, next_hop)| format!("{prefix} {next_hop}")).collect()
        }
        let set = self.set();
        let ribs = &set.ribs;
        let after = after.map(|line| parse_entry(line, MAX_NEXT_HOP)).transpose().map_err(|error| error.to_string())?;
        let mut entries = match after {
            None => lines(ribs.ipv4.iter(), most),
            Some((IpPrefix::V4(prefix), _)) => lines(ribs.ipv4.after(prefix), most),
            Some((IpPrefix::V6(prefix), _)) => return Ok(lines(ribs.ipv6.after(prefix), most)),
        };
        entries.extend(lines(ribs.ipv6.iter(), most - entries.len()));
        Ok(entries)
    }
}

impl DeclareState for RouteTables {
    type Params = Shared;
    const NAME: &'static str = "routes";
    const SUMMARY: &'static str = "IPv4 and IPv6 routes that several modules share";
    const EXAMPLE: &'static str = r#"{ routes: ["0.0.0.0/0 0", "10.0.0.0/8 1"] }"#;

    fn new(params: Shared, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        Ok(Self::of(&Loaded::read(&params.routes, MAX_NEXT_HOP, setup)?))
    }
}

register!(state RouteTables);

/// Parameters of the state `routes`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Shared {
    /// The routes: a file's name, a list such as `["10.0.0.0/8 3"]`, or `{ synthetic: 10000, next_hops: 16 }`.
    routes: Source,
}

#[cfg(test)]
mod tests;
