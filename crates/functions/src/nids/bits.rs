//! Bits that rules keep for sessions (`flowbits`).
//!
//! A session's bits are beside the table of sessions, in the row of the session's entry. A plane is 64 bits of each
//! row. All modules that look up one table share its bits by name: a rule of one module sees the bits that another
//! module has set.
//!
//! No session inherits bits. The table marks a session when it gets its first bit. A new session is not marked: it has
//! no bits, whatever its row contains. With the mark, the row gets another generation. Bits of a plane count only where
//! the plane's row has the generation of the session. A generation has 64 bits: it does not return to a value that it
//! had.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_graph::{Own, Setup, SetupError};
use forebay_memory::Zeroed;

use super::rule::{BitOperation, BitStep};
use crate::connection::{LentSessions, SessionLookup, SessionRow};
use crate::parameters::no_memory;

/// The most names of bits that a rule file may have.
pub const MOST_BITS: usize = 4_096;
/// Bits of a plane.
const PLANE: usize = 64;

/// By row, its generation.
struct Generations(Zeroed<u64>);

impl Generations {
    fn get(&self, row: SessionRow) -> Option<u64> {
        self.0.get(row.index).copied()
    }

    /// Removes all bits of a row.
    fn next(&mut self, row: SessionRow) {
        if let Some(generation) = self.0.get_mut(row.index) {
            *generation = generation.wrapping_add(1);
        }
    }
}

/// 64 bits of each row, behind the generation that they are of.
struct Plane(Zeroed<[u64; 2]>);

impl Plane {
    fn get(&self, index: usize, generation: u64, mask: u64) -> bool {
        self.0.get(index).is_some_and(|[of, bits]| *of == generation && bits & mask != 0)
    }

    fn put(&mut self, index: usize, generation: u64, change: impl FnOnce(u64) -> u64) {
        if let Some([of, bits]) = self.0.get_mut(index) {
            let before = if *of == generation { *bits } else { 0 };
            (*of, *bits) = (generation, change(before));
        }
    }
}

/// A bit's index among those of a table, held by a module.
type Held = Arc<usize>;

/// The index of a name.
struct Index {
    held: Weak<usize>,
    index: usize,
    /// Whether packets may have set the bit.
    used: bool,
}

/// The indices of names. A name has the same index as long as a module holds it. An index that was used is given to no
/// other name, so that no name finds the bits of another one.
#[derive(Default)]
struct Names {
    by_name: BTreeMap<String, Index>,
    /// Indices that were given out for checks alone.
    free: BTreeSet<usize>,
    next: usize,
}

impl Names {
    /// Returns the indices of names. `used` says that packets will set the bits: else the module is made for a check.
    fn hold(&mut self, names: &[String], used: bool) -> Vec<Held> {
        let free = &mut self.free;
        self.by_name.retain(|_, known| {
            let held = known.held.strong_count() > 0;
            if !held && !known.used {
                free.insert(known.index);
            }
            held
        });
        names.iter().map(|name| self.hold_one(name, used)).collect()
    }

    fn hold_one(&mut self, name: &str, used: bool) -> Held {
        if let Some(known) = self.by_name.get_mut(name)
            && let Some(held) = known.held.upgrade()
        {
            known.used |= used;
            return held;
        }
        let index = self.free.pop_first().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        });
        let new = Arc::new(index);
        self.by_name.insert(name.to_owned(), Index { held: Arc::downgrade(&new), index, used });
        new
    }
}

/// A worker's share of the sessions, and the number of shares.
type Share = (usize, usize);

/// The bits of all modules that look up one table. The modules hold them: a reload makes the new modules while the old
/// ones are there.
#[derive(Default)]
struct Registry {
    names: Names,
    generations: BTreeMap<Share, Weak<Own<Generations>>>,
    /// By share and number.
    planes: BTreeMap<(Share, usize), Weak<Own<Plane>>>,
}

/// Returns what a slot refers to, or makes it.
fn shared<T>(slot: &mut Weak<Own<T>>, make: impl FnOnce() -> Result<T, SetupError>) -> Result<Arc<Own<T>>, SetupError> {
    if let Some(there) = slot.upgrade() {
        return Ok(there);
    }
    let new = Arc::new(Own::new(make()?));
    *slot = Arc::downgrade(&new);
    Ok(new)
}

/// A module's bits on one worker.
pub struct SessionBits {
    /// By the bit's number in the rules: its plane and its mask.
    places: Box<[(usize, u64)]>,
    planes: Vec<Arc<Own<Plane>>>,
    generations: Arc<Own<Generations>>,
    _held: Vec<Held>,
}

impl SessionBits {
    /// Returns the bits with these names of each session of a table. The configuration before and other modules have
    /// the same bits.
    ///
    /// # Errors
    /// There is no memory for so many.
    pub fn new(names: &[String], table: &SessionLookup, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let registry = setup.lasting(&format!("flowbits of {}", table.key()), |_| Ok(Mutex::<Registry>::default()))?;
        let (used, share, rows) = (!setup.checking(), setup.share(), table.rows());
        let Registry { names: known, generations, planes } =
            &mut *registry.lock().unwrap_or_else(PoisonError::into_inner);
        let held = known.hold(names, used);
        let mut numbers: Vec<usize> = held.iter().map(|index| **index / PLANE).collect();
        numbers.sort_unstable();
        numbers.dedup();
        generations.retain(|_, there| there.strong_count() > 0);
        planes.retain(|_, there| there.strong_count() > 0);
        let lack = || no_memory("flow.state", format!("{} flowbits of {rows} sessions", names.len()));
        let generations =
            shared(generations.entry(share).or_default(), || Zeroed::new(rows).map(Generations).map_err(lack()))?;
        let mut make = |number: &usize| {
            shared(planes.entry((share, *number)).or_default(), || Zeroed::new(rows).map(Plane).map_err(lack()))
        };
        let planes = numbers.iter().map(&mut make).collect::<Result<_, _>>()?;
        let place = |index: &Held| {
            let plane = numbers.binary_search(&(**index / PLANE)).unwrap_or_default();
            (plane, 1 << (**index % PLANE))
        };
        Ok(Self { places: held.iter().map(place).collect(), planes, generations, _held: held })
    }

    /// Returns the generation of a session's bits, if it may have any.
    fn generation(&self, row: Option<SessionRow>) -> Option<(usize, u64)> {
        let row = row.filter(|row| row.marked)?;
        Some((row.index, self.generations.lend()?.get(row)?))
    }

    /// Whether a session's bits meet the questions of a rule. A packet of no known session has no bits.
    #[must_use]
    pub fn hold(&self, steps: &[BitStep], row: Option<SessionRow>) -> bool {
        if !steps.iter().any(BitStep::asks) {
            return true;
        }
        let session = self.generation(row);
        let is_set = |bit: &u16| {
            let Some(((index, generation), (plane, mask))) = session.zip(self.places.get(usize::from(*bit))) else {
                return false;
            };
            self.planes.get(*plane).and_then(|plane| plane.lend()).is_some_and(|it| it.get(index, generation, *mask))
        };
        steps.iter().all(|step| {
            // A group without members is never set.
            let all = step.all && !step.bits.is_empty();
            let met = || if all { step.bits.iter().all(is_set) } else { step.bits.iter().any(is_set) };
            match step.operation {
                BitOperation::IsSet => met(),
                BitOperation::IsNotSet => !met(),
                _ => true,
            }
        })
    }

    /// Changes a session's bits as a rule that matches says. Marks the session if it gets its first bit.
    pub fn change(&self, steps: &[BitStep], row: &mut Option<SessionRow>, table: &mut LentSessions<'_>) {
        let Some(row) = row else { return };
        for step in steps {
            let change: fn(u64, u64) -> u64 = match step.operation {
                BitOperation::Set => |bits, mask| bits | mask,
                BitOperation::Unset => |bits, mask| bits & !mask,
                BitOperation::Toggle => |bits, mask| bits ^ mask,
                BitOperation::Reset => {
                    self.clear(*row);
                    continue;
                }
                BitOperation::IsSet | BitOperation::IsNotSet => continue,
            };
            if !row.marked {
                if step.operation == BitOperation::Unset {
                    continue;
                }
                self.clear(*row);
                table.mark(*row);
                row.marked = true;
            }
            let Some((index, generation)) = self.generation(Some(*row)) else { return };
            for (plane, mask) in step.bits.iter().filter_map(|bit| self.places.get(usize::from(*bit))) {
                if let Some(mut plane) = self.planes.get(*plane).and_then(|plane| plane.lend()) {
                    plane.put(index, generation, |bits| change(bits, *mask));
                }
            }
        }
    }

    fn clear(&self, row: SessionRow) {
        if let Some(mut generations) = self.generations.lend() {
            generations.next(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_indices_while_they_are_held_and_leave_them_to_no_other() {
        let names = |range: std::ops::Range<usize>| range.map(|number| format!("n{number}")).collect::<Vec<_>>();
        let indices = |held: &[Held]| held.iter().map(|index| **index).collect::<Vec<_>>();
        let mut known = Names::default();
        let first = known.hold(&names(5..8), true);
        assert_eq!(indices(&first), [0, 1, 2]);
        let second = known.hold(&names(6..10), true);
        assert_eq!(indices(&second), [1, 2, 3, 4]);
        drop(first);
        // 5 was held by no module: it comes back as a new name, whose bits are 0.
        let third = known.hold(&names(5..8), true);
        assert_eq!(indices(&third), [5, 1, 2]);
        drop((second, third));
        assert_eq!(indices(&known.hold(&names(6..7), true)), [6]);
        assert_eq!(known.by_name.len(), 1);
    }

    /// Each reload makes modules for a check first.
    #[test]
    fn checks_use_no_indices_up() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let indices = |held: &[Held]| held.iter().map(|index| **index).collect::<Vec<_>>();
        let mut known = Names::default();
        let running = known.hold(&names(&["a", "b"]), true);
        for _ in 0..3 {
            let checked = known.hold(&names(&["b", "c", "d"]), false);
            assert_eq!(indices(&checked), [1, 2, 3]);
        }
        // The module that runs may be made before the checked one is gone, or after it.
        let checked = known.hold(&names(&["b", "c"]), false);
        let next = known.hold(&names(&["b", "c"]), true);
        assert_eq!((indices(&checked), indices(&next)), (vec![1, 2], vec![1, 2]));
        drop((running, checked, next));
        assert_eq!(indices(&known.hold(&names(&["c", "e"]), false)), [3, 4], "0 to 2 were used");
    }

    #[test]
    fn bits_of_another_generation_do_not_count() {
        let mut plane = Plane(Zeroed::new(2).expect("memory"));
        plane.put(1, 7, |bits| bits | 5);
        assert!(plane.get(1, 7, 4) && !plane.get(1, 7, 2) && !plane.get(1, 8, 4) && !plane.get(0, 7, 4));
        plane.put(1, 8, |bits| bits | 2);
        assert!(plane.get(1, 8, 2) && !plane.get(1, 8, 4) && !plane.get(1, 7, 4));
        // An index beyond the table is no session's.
        plane.put(2, 7, |_| 1);
        assert!(!plane.get(2, 7, 1));
    }

    /// A 32-bit serial number came back to an old value after 4 294 967 296 sessions.
    #[test]
    fn a_generation_passes_32_bits() {
        let mut generations = Generations(Zeroed::new(2).expect("memory"));
        let row = SessionRow { index: 1, marked: true };
        let mut plane = Plane(Zeroed::new(2).expect("memory"));
        plane.put(1, 0, |_| 1);
        generations.0[1] = u64::from(u32::MAX);
        generations.next(row);
        let generation = generations.get(row).expect("a row");
        assert_eq!(generation, 1 << 32);
        assert!(plane.get(1, 0, 1) && !plane.get(1, generation, 1));
        plane.put(1, generation, |bits| bits | 2);
        assert!(plane.get(1, generation, 2) && !plane.get(1, generation, 1));
        assert_eq!(generations.get(SessionRow { index: 0, marked: true }), Some(0), "only that row");
    }
}
