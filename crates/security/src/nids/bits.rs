//! The bits that rules keep for sessions (`flowbits`).
//!
//! The bits are stored outside the table of sessions, in arrays that are indexed by the row of the session in the
//! table. An array is called a plane, and contains 64 bits for each row. All modules that use the same table share
//! its bits by name: a rule of one module sees the bits that another module has set.
//!
//! A new session does not inherit the bits of the row's previous session. The table marks a session when it gets its
//! first bit. A session without the mark has no bits, whatever its row contains. When a session is marked, its row gets
//! a new generation. The bits in a plane are valid only if the plane's row has the generation of the session. A
//! generation has 64 bits, so it never returns to an earlier value.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_graph::{Own, Setup, SetupError};
use forebay_memory::Zeroed;
use forebay_sessions::connection::{LentSessions, SessionLookup, SessionRow};
use forebay_tables::parameters::no_memory;

use super::rule::{BitOperation, BitStep};

/// The largest number of bit names in a rule file.
pub const MAX_BITS: usize = 4_096;
/// The number of bits in a plane.
const PLANE: usize = 64;

/// The generation of each row.
struct Generations(Zeroed<u64>);

impl Generations {
    /// Returns the present generation of a row.
    fn get(&self, row: SessionRow) -> Option<u64> {
        self.0.get(row.index).copied()
    }

    /// Starts a new generation of a row, which removes all its bits.
    fn next(&mut self, row: SessionRow) {
        if let Some(generation) = self.0.get_mut(row.index) {
            *generation = generation.wrapping_add(1);
        }
    }
}

/// For each row, a generation and 64 bits of that generation.
struct Plane(Zeroed<[u64; 2]>);

impl Plane {
    /// Returns true if any bit of `mask` is set in a row's present generation.
    fn get(&self, index: usize, generation: u64, mask: u64) -> bool {
        self.0.get(index).is_some_and(|[of, bits]| *of == generation && bits & mask != 0)
    }

    /// Changes the bits of a row, whose present generation is `generation`. Bits of an earlier generation count as
    /// unset.
    fn put(&mut self, index: usize, generation: u64, change: impl FnOnce(u64) -> u64) {
        if let Some([of, bits]) = self.0.get_mut(index) {
            let before = if *of == generation { *bits } else { 0 };
            (*of, *bits) = (generation, change(before));
        }
    }
}

/// A bit's index in a table, held by a module.
type Held = Arc<usize>;

/// The index of a name.
struct Index {
    /// The number of strong references is the number of modules that hold the name.
    held: Weak<usize>,
    index: usize,
    /// True if packets may have set the bit.
    used: bool,
}

/// The indices of names. A name keeps its index while a module holds it. An index that was used is not given to another
/// name, so that no name gets the bits of another name.
#[derive(Default)]
struct Names {
    /// The names that modules hold. Released names are removed in the next call of [`hold`](Self::hold).
    by_name: BTreeMap<String, Index>,
    /// Indices that were given out only for checks.
    free: BTreeSet<usize>,
    /// The least index that was never given out.
    next: usize,
}

impl Names {
    /// Returns the indices of names, in the same order. `used` is true if packets will set the bits, and false if the
    /// module is created only for a check.
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

    /// Returns the index of one name, as [`hold`](Self::hold) does.
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

/// The bits of all modules that use the same table. The modules own the bits, and this registry only refers to them.
/// During a reload the new modules are created while the old ones still exist, so the bits are handed over.
#[derive(Default)]
struct Registry {
    names: Names,
    /// The generations of the rows, by share.
    generations: BTreeMap<Share, Weak<Own<Generations>>>,
    /// Planes by share and number.
    planes: BTreeMap<(Share, usize), Weak<Own<Plane>>>,
}

/// Returns the value that a slot refers to, or creates it.
fn shared<T>(
    slot: &mut Weak<Own<T>>,
    create: impl FnOnce() -> Result<T, SetupError>,
) -> Result<Arc<Own<T>>, SetupError> {
    if let Some(value) = slot.upgrade() {
        return Ok(value);
    }
    let new = Arc::new(Own::new(create()?));
    *slot = Arc::downgrade(&new);
    Ok(new)
}

/// A module's bits on one worker.
pub struct SessionBits {
    /// The index in `planes` and the mask of each bit, by the bit's number in the rules.
    positions: Box<[(usize, u64)]>,
    /// The planes that contain the module's bits.
    planes: Vec<Arc<Own<Plane>>>,
    /// The generations of the rows of this worker's share.
    generations: Arc<Own<Generations>>,
    /// Keeps the indices of the module's bits, for as long as the module exists.
    _held: Vec<Held>,
}

impl SessionBits {
    /// Returns the bits with these names for each session of a table. They are shared with the previous configuration
    /// and with other modules.
    ///
    /// # Errors
    /// There is not enough memory.
    pub fn new(names: &[String], table: &SessionLookup, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let registry = setup.lasting(&format!("flowbits of {}", table.key()), |_| Ok(Mutex::<Registry>::default()))?;
        let (used, share, rows) = (!setup.checking(), setup.share(), table.rows());
        let Registry { names: known, generations, planes } =
            &mut *registry.lock().unwrap_or_else(PoisonError::into_inner);
        let held = known.hold(names, used);
        let mut numbers: Vec<usize> = held.iter().map(|index| **index / PLANE).collect();
        numbers.sort_unstable();
        numbers.dedup();
        generations.retain(|_, value| value.strong_count() > 0);
        planes.retain(|_, value| value.strong_count() > 0);
        let lack = || no_memory("flow.state", format!("{} flowbits of {rows} sessions", names.len()));
        let generations =
            shared(generations.entry(share).or_default(), || Zeroed::new(rows).map(Generations).map_err(lack()))?;
        let mut plane_of = |number: &usize| {
            shared(planes.entry((share, *number)).or_default(), || Zeroed::new(rows).map(Plane).map_err(lack()))
        };
        let planes = numbers.iter().map(&mut plane_of).collect::<Result<_, _>>()?;
        let position = |index: &Held| {
            let plane = numbers.binary_search(&(**index / PLANE)).unwrap_or_default();
            (plane, 1 << (**index % PLANE))
        };
        Ok(Self { positions: held.iter().map(position).collect(), planes, generations, _held: held })
    }

    /// Returns the row and the present generation of a session's bits. Returns `None` if the session has no bits,
    /// because it is unknown or not marked.
    fn generation(&self, row: Option<SessionRow>) -> Option<(usize, u64)> {
        let row = row.filter(|row| row.marked)?;
        Some((row.index, self.generations.lend()?.get(row)?))
    }

    /// Returns true if a session's bits pass the tests of a rule. A packet without a known session has no bits.
    #[must_use]
    pub fn pass_tests(&self, steps: &[BitStep], row: Option<SessionRow>) -> bool {
        if !steps.iter().any(BitStep::is_test) {
            return true;
        }
        let session = self.generation(row);
        let is_set = |bit: &u16| {
            let Some(((index, generation), (plane, mask))) = session.zip(self.positions.get(usize::from(*bit))) else {
                return false;
            };
            self.planes.get(*plane).and_then(|plane| plane.lend()).is_some_and(|it| it.get(index, generation, *mask))
        };
        steps.iter().all(|step| {
            // A group without members is never set.
            let all = step.all && !step.bits.is_empty();
            let passes = || if all { step.bits.iter().all(is_set) } else { step.bits.iter().any(is_set) };
            match step.operation {
                BitOperation::IsSet => passes(),
                BitOperation::IsNotSet => !passes(),
                _ => true,
            }
        })
    }

    /// Changes a session's bits as a matching rule specifies. If the session gets its first bit, marks it in `table`
    /// and in `row`. Without a row, the session is unknown, and nothing changes.
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
            for (plane, mask) in step.bits.iter().filter_map(|bit| self.positions.get(usize::from(*bit))) {
                if let Some(mut plane) = self.planes.get(*plane).and_then(|plane| plane.lend()) {
                    plane.put(index, generation, |bits| change(bits, *mask));
                }
            }
        }
    }

    /// Unsets all bits of a session.
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
    fn names_keep_their_indices_while_held_and_indices_are_not_reused() {
        let names = |range: std::ops::Range<usize>| range.map(|number| format!("n{number}")).collect::<Vec<_>>();
        let indices = |held: &[Held]| held.iter().map(|index| **index).collect::<Vec<_>>();
        let mut known = Names::default();
        let first = known.hold(&names(5..8), true);
        assert_eq!(indices(&first), [0, 1, 2]);
        let second = known.hold(&names(6..10), true);
        assert_eq!(indices(&second), [1, 2, 3, 4]);
        drop(first);
        // n5 was held by no module. It comes back as a new name, whose bits are 0.
        let third = known.hold(&names(5..8), true);
        assert_eq!(indices(&third), [5, 1, 2]);
        drop((second, third));
        assert_eq!(indices(&known.hold(&names(6..7), true)), [6]);
        assert_eq!(known.by_name.len(), 1);
    }

    /// Each reload first creates modules for a check.
    #[test]
    fn checks_do_not_use_up_indices() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let indices = |held: &[Held]| held.iter().map(|index| **index).collect::<Vec<_>>();
        let mut known = Names::default();
        let running = known.hold(&names(&["a", "b"]), true);
        for _ in 0..3 {
            let checked = known.hold(&names(&["b", "c", "d"]), false);
            assert_eq!(indices(&checked), [1, 2, 3]);
        }
        // The running module may be created before or after the checked one is dropped.
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
        // An index beyond the table belongs to no session.
        plane.put(2, 7, |_| 1);
        assert!(!plane.get(2, 7, 1));
    }

    /// Regression: a 32-bit generation came back to an old value after 4 294 967 296 sessions.
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
