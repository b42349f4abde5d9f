//! Sources of routes: files, lists, or synthetic routes.

use std::borrow::Cow;

use forebay_graph::files::{MOST_TABLE, read_text};
use forebay_graph::{Setup, SetupError};
use forebay_tables::lpm::Prefix;
use forebay_tables::lpm::routes_file::{LineError, Routes, RoutesFileError, parse_lines, parse_routes};
use forebay_tables::lpm::synthetic::{self, Family};
use forebay_units::wording::{counted, range};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The parameter named in errors of routes.
const PATH: &str = "routes";
/// The destination range of IPv4 benchmarks: 198.18.0.0/15 (RFC 2544, appendix C.2.2).
const BENCHMARK_IPV4: (u32, u32) = (0xc612_0000, 15);
/// The destination range of IPv6 benchmarks: 2001:2::/48 (RFC 5180 section 8, with its erratum 1752).
const BENCHMARK_IPV6: (u128, u32) = (0x2001_0002 << 96, 48);
/// The maximum number of synthetic routes of a family. It is well below the number of routes that the mix of prefix
/// lengths can have.
const MOST_SYNTHETIC: u32 = 4_000_000;

/// The source of routes.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected a file's name, a list such as [\"10.0.0.0/8 3\"], or { synthetic: n, next_hops: k }"
)]
pub enum Source {
    /// A file's name, relative to the configuration; a prefix and a next hop per line.
    File(String),
    /// The lines of such a file.
    List(Vec<String>),
    /// Synthetic routes.
    Synthetic(Synthetic),
}

/// Synthetic routes in a mix of lengths like the Internet's.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Synthetic {
    /// The number of IPv4 routes, up to 4000000, including the parts of 198.18.0.0/15.
    #[schemars(range(max = 4_000_000))]
    synthetic: u32,
    /// The number of different next hops of the routes.
    next_hops: u32,
    /// The seed of the generator: equal seeds give equal routes. By default, it is derived from the pipeline's seed and
    /// the module's name.
    seed: Option<u64>,
    /// The number of IPv6 routes, up to 4000000, including the parts of 2001:2::/48; none by default.
    #[serde(default)]
    #[schemars(range(max = 4_000_000))]
    ipv6: u32,
}

impl Source {
    /// Reads or generates the routes. No route may have a next hop above `last`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read. Otherwise lists all faults of the lines, or of the parameters of
    /// synthetic routes, at the parameter `routes`.
    pub(super) fn routes(&self, last: u32, setup: &Setup<'_>) -> Result<Routes, SetupError> {
        match self {
            Self::File(name) => {
                let contents = read_text(&setup.path(PATH, name)?, MOST_TABLE)
                    .map_err(|error| SetupError::at(PATH, format!("cannot read '{name}': {error}")))?;
                parse_routes(name, &contents, last).map_err(|error| {
                    let location = |line| (PATH.to_owned(), format!("{name}:{line}: "));
                    faults(error, location)
                })
            }
            Self::List(list) => parse_lines(PATH, list.iter().map(String::as_bytes), last).map_err(|error| {
                let location = |line| (format!("{PATH}[{}]", line - 1), String::new());
                faults(error, location)
            }),
            Self::Synthetic(synthetic) => synthetic.routes(last, setup),
        }
    }

    /// Returns a key of all settings that determine the routes. Sources with equal keys have equal routes, except that
    /// the content of a file may have changed.
    pub(super) fn key(&self, last: u32, setup: &Setup<'_>) -> String {
        let seed = if let Self::Synthetic(Synthetic { seed: None, .. }) = self { setup.seed() } else { 0 };
        format!("routes to {last} of {} {seed}", serde_json::to_string(self).unwrap_or_default())
    }
}

/// Converts the errors of a file or list. For a line number, from 1, `location` returns the parameter's path and the
/// text before the message.
fn faults(error: RoutesFileError, location: impl Fn(usize) -> (String, String)) -> SetupError {
    let mut all = SetupError::default();
    for (line, error) in error.errors {
        let (path, before) = location(line);
        let message: Cow<'_, str> = match &error {
            LineError::Conflict { prefix, next_hop, earlier, other } if before.is_empty() => {
                let (earlier, _) = location(*earlier);
                let allowed = "allowed is one next hop for a prefix";
                format!("{prefix} goes to {next_hop}, but {earlier} sends it to {other}; {allowed}").into()
            }
            error => error.to_string().into(),
        };
        all.and(SetupError::at(path, format!("{before}{message}")));
    }
    if error.further > 0 {
        all.and(SetupError::at(PATH, format!("{} further errors", error.further)));
    }
    all
}

impl Synthetic {
    /// Generates the routes. No next hop may be above `last`. An error lists every parameter that is out of range.
    fn routes(&self, last: u32, setup: &Setup<'_>) -> Result<Routes, SetupError> {
        let mut all = SetupError::default();
        let most = last.saturating_add(1);
        if !(1..=most).contains(&self.next_hops) {
            let wrong = counted(self.next_hops, "next hop");
            all.and(SetupError::wrong(format!("{PATH}.next_hops"), self.next_hops, wrong, range(1, most)));
        }
        for (name, count) in [("synthetic", self.synthetic), ("ipv6", self.ipv6)] {
            if count > MOST_SYNTHETIC {
                all.and(SetupError::wrong(
                    format!("{PATH}.{name}"),
                    count,
                    format!("{count} routes"),
                    format!("0 to {MOST_SYNTHETIC}"),
                ));
            }
        }
        if !all.faults.is_empty() {
            return Err(all);
        }
        let seed = self.seed.unwrap_or_else(|| setup.seed());
        Ok(Routes {
            ipv4: family(self.synthetic, self.next_hops, seed, BENCHMARK_IPV4, |part, free| part << free),
            ipv6: family(self.ipv6, self.next_hops, seed, BENCHMARK_IPV6, |part, free| u128::from(part) << free),
        })
    }
}

/// Generates `count` routes of a family. The benchmark range is divided into equal parts, whose next hops are 0, 1, 2
/// and so on in turn. The number of parts is a power of two: 512, or more if there are more next hops, but at most
/// `count` and at most the number of addresses in the range. The other routes lie outside the range. `shift(part,
/// free)` returns the number `part` as an address, shifted left by `free` bits.
fn family<A: Family>(
    count: u32,
    next_hops: u32,
    seed: u64,
    (first, length): (A, u32),
    shift: fn(u32, u32) -> A,
) -> Vec<(Prefix<A>, u32)> {
    let Some(most) = count.checked_ilog2() else { return Vec::new() };
    let range = Prefix::truncated(first, length);
    let bits = next_hops.next_power_of_two().ilog2().max(9).min(most).min(A::BITS - length);
    let part = |part| {
        let address = first.continued(length, shift(part, A::BITS - length - bits));
        (Prefix::truncated(address, length + bits), part % next_hops)
    };
    let mut routes: Vec<_> = (0..1 << bits).map(part).collect();
    let others = synthetic::routes::<A>(count as usize, next_hops, seed).into_iter();
    routes.extend(others.filter(|(prefix, _)| !range.covers(*prefix)).take(count as usize - routes.len()));
    routes
}
