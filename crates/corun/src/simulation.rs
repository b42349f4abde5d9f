//! Measures footprints by simulation: the lines per packet that miss caches of several sizes.

use std::sync::atomic::{AtomicBool, Ordering};

use forebay_bench::counting::{CountError, Misses};

use crate::machine::Caches;
use crate::record::{Records, Simulated};
use crate::session::{Interrupted, Observer, Progress};
use crate::subject::Subject;

/// A cache misses almost no lines if it misses at most this many lines per packet.
const NEXT_TO_NONE: f64 = 0.1;
/// The smallest cache that is simulated, in bytes.
const SMALLEST: u64 = 16 << 10;

/// The key in [`Records::unavailable`] under which the reason for missing simulated figures is stored.
pub const UNAVAILABLE: &str = "simulated";

/// A function that counts a subject's misses in a first and a last cache of these sizes, in bytes.
pub type Count<'a> = dyn Fn(&Subject, [u64; 2]) -> Result<Misses, CountError> + 'a;

/// Simulates caches for those functions of `subjects` that have runs in `records` but no simulation. If a simulation
/// fails, the reason is stored in the records, and the next function is simulated. If no simulation is possible at all
/// (valgrind is missing), the reason is stored, and the remaining functions are skipped without an error.
///
/// # Errors
/// Returns [`Interrupted`] if `stop` was set. `records` contains all simulations until then.
pub fn simulate(
    subjects: &[Subject],
    caches: Caches,
    records: &mut Records,
    count: &Count<'_>,
    stop: &AtomicBool,
    observer: &mut dyn Observer,
) -> Result<(), Interrupted> {
    let missing = missing(subjects, records);
    let all = missing.len();
    for (done, subject) in missing.into_iter().enumerate() {
        if stop.load(Ordering::Relaxed) {
            return Err(Interrupted);
        }
        observer.at(Progress { function: &subject.name, done, all });
        match of(subject, caches, count) {
            Ok(simulated) => {
                records.unavailable.remove(UNAVAILABLE);
                if let Some(record) = records.functions.get_mut(&subject.key) {
                    record.simulated = Some(simulated);
                }
                observer.keep(records);
            }
            Err(_) if stop.load(Ordering::Relaxed) => return Err(Interrupted),
            Err(error) => {
                let why = format!("{}: {error}", subject.name);
                let is_for_all = matches!(error, CountError::NoValgrind | CountError::Valgrind(_));
                let why = if is_for_all { error.to_string() } else { why };
                records.unavailable.insert(UNAVAILABLE.to_owned(), why);
                if is_for_all {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

/// Returns the functions that have runs in `records` but no simulation.
#[must_use]
pub fn missing<'s>(subjects: &'s [Subject], records: &Records) -> Vec<&'s Subject> {
    let is_missing = |subject: &&Subject| {
        records.functions.get(&subject.key).is_some_and(|it| it.simulated.is_none() && !it.samples.is_empty())
    };
    subjects.iter().filter(is_missing).collect()
}

/// Returns the figures of a function, from simulations of four cache sizes.
fn of(subject: &Subject, caches: Caches, count: &Count<'_>) -> Result<Simulated, CountError> {
    let Caches { own, shared, .. } = caches;
    let small = (own / 16).max(SMALLEST);
    // A size between the two caches: the geometric mean.
    let middle = ((own as f64 * shared as f64).sqrt() as u64).max(own);
    let outer = count(subject, [own, shared])?;
    let inner = count(subject, [small, middle])?;
    let sizes = [(small, inner.first), (own, outer.first), (middle, inner.last), (shared, outer.last)];
    Ok(Simulated {
        instructions: outer.instructions,
        shared_lines: outer.first,
        memory_lines: outer.last,
        footprint_bytes: footprint(&sizes),
    })
}

/// Estimates the size, in bytes, of the cache that misses almost no lines. `sizes` contains cache sizes in bytes, in
/// ascending order, each with the lines per packet that it misses. Between two sizes, the result is interpolated by
/// their logarithms. If the smallest size already misses almost no lines, the result is this size, reduced in
/// proportion to the misses. If the largest size still misses lines, the result is twice this size.
fn footprint(sizes: &[(u64, f64)]) -> f64 {
    let Some((smallest, first)) = sizes.first() else { return 0.0 };
    if *first <= NEXT_TO_NONE {
        return *smallest as f64 * first / NEXT_TO_NONE;
    }
    for pair in sizes.windows(2) {
        let [(small, many), (large, few)] = pair else { continue };
        if *few <= NEXT_TO_NONE {
            let part = (many - NEXT_TO_NONE) / (many - few).max(f64::MIN_POSITIVE);
            return *small as f64 * (*large as f64 / *small as f64).powf(part.clamp(0.0, 1.0));
        }
    }
    sizes.last().map_or(0.0, |(largest, _)| 2.0 * *largest as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{FunctionRecord, Void};
    use crate::session::tests::{Kept, empty, sample, subjects};

    const CACHES: Caches = Caches { own: 1 << 20, shared: 32 << 20, are_assumed: false };

    fn records(names: &[&str]) -> Records {
        let mut records = empty();
        for name in names {
            let samples = vec![sample(&[])];
            let record = FunctionRecord { packets_bytes: 60, simulated: None, samples, void: Void::default() };
            records.functions.insert((*name).to_owned(), record);
        }
        records
    }

    /// A function with a table of 8 MiB: each packet reads three lines of it.
    fn table(_: &Subject, caches: [u64; 2]) -> Result<Misses, CountError> {
        let misses = |cache: u64| 3.0 * (1.0 - cache as f64 / f64::from(8 << 20)).max(0.0);
        Ok(Misses { instructions: 200.0, first: misses(caches[0]), last: misses(caches[1]) })
    }

    #[test]
    fn a_table_leaves_its_footprint() {
        let (mut records, stop) = (records(&["a", "bb"]), AtomicBool::new(false));
        let subjects = subjects(&["a", "bb", "ccc"]);
        let mut kept = Kept::default();
        simulate(&subjects, CACHES, &mut records, &table, &stop, &mut kept).expect("nothing stops it");
        let found = records.functions["a"].simulated.expect("it was simulated");
        assert!((4e6..3.2e7).contains(&found.footprint_bytes) && found.memory_lines == 0.0, "{found:?}");
        assert!((found.shared_lines - 2.625).abs() < 1e-9 && !records.functions.contains_key("ccc"), "{found:?}");
        assert_eq!(kept.last.as_ref(), Some(&records));
        // A function with a simulation is not simulated again.
        let never = |_: &Subject, _: [u64; 2]| -> Result<Misses, CountError> { panic!("it is known") };
        simulate(&subjects, CACHES, &mut records, &never, &stop, &mut kept).expect("nothing stops it");
    }

    #[test]
    fn a_missing_simulation_has_a_reason() {
        let (mut records, stop) = (records(&["a", "bb"]), AtomicBool::new(false));
        let none = |_: &Subject, _: [u64; 2]| Err(CountError::NoValgrind);
        simulate(&subjects(&["a", "bb"]), CACHES, &mut records, &none, &stop, &mut Kept::default()).expect("it ends");
        assert!(records.unavailable[UNAVAILABLE].starts_with("valgrind is not installed"), "{:?}", records.unavailable);
        stop.store(true, Ordering::Relaxed);
        let ended = simulate(&subjects(&["a"]), CACHES, &mut records, &table, &stop, &mut Kept::default());
        assert_eq!(ended, Err(Interrupted));
    }

    #[test]
    fn footprints_grow_with_misses() {
        let of = |misses: [f64; 4]| {
            let sizes = [1 << 16, 1 << 20, 1 << 22, 1 << 25];
            footprint(&sizes.into_iter().zip(misses).collect::<Vec<_>>())
        };
        let all = [[0.0; 4], [0.05, 0.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0], [2.0, 0.2, 0.1, 0.0], [4.0, 3.0, 2.0, 1.0]];
        assert!(all.map(of).is_sorted(), "{:?}", all.map(of));
        assert_eq!((of(all[0]), of(all[4]), footprint(&[])), (0.0, f64::from(1 << 26), 0.0));
    }
}
