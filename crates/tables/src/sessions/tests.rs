//! Tests of the table against a map, and with keys that collide.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zerocopy::FromZeros;

use super::*;

/// A key. If `crowded` is not 0, its hash has few values, so that signatures and buckets are often equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, FromZeros)]
#[repr(C)]
struct Number {
    number: u32,
    /// A power of two minus 1: the mask of hash bits that remain. 0: all bits remain.
    crowded: u32,
}

impl Key for Number {
    fn hash(&self, seed: Seed) -> u64 {
        let hash = seed.hash(u64::from(self.number), 0);
        if self.crowded == 0 { hash } else { (hash & u64::from(self.crowded)).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, FromZeros)]
#[repr(C)]
struct Both {
    sides: [Number; 2],
    value: u32,
}

impl Session for Both {
    type Key = Number;
    const SIDES: u32 = 2;

    fn key(&self, side: u32) -> Number {
        self.sides[side as usize]
    }
}

/// The duration of a session that does not expire.
const FOREVER: u32 = u32::MAX;

fn ends(now: Slot, lasts: Slot) -> Slot {
    if lasts == FOREVER { NEVER } else { now + lasts }
}

#[derive(Clone, Debug)]
enum Operation {
    Insert { number: u32, lasts: Slot },
    Find { numbers: Vec<u32> },
    Keep { number: u32, lasts: Slot },
    EndAt { number: u32, lasts: Slot },
    Remove { number: u32 },
    Expire { after: Slot, looks: u32 },
    GiveUp,
}

fn steps() -> impl Strategy<Value = Vec<Operation>> {
    let number = || 0u32..60;
    let lasts = || prop::sample::select(vec![1u32, 2, 5, 64, 1_000, 4_095, 4_096, 9_000, FOREVER]);
    let step = prop_oneof![
        4 => (number(), lasts()).prop_map(|(number, lasts)| Operation::Insert { number, lasts }),
        2 => prop::collection::vec(0u32..120, 0..70).prop_map(|numbers| Operation::Find { numbers }),
        2 => (number(), lasts()).prop_map(|(number, lasts)| Operation::Keep { number, lasts }),
        1 => (number(), lasts()).prop_map(|(number, lasts)| Operation::EndAt { number, lasts }),
        2 => number().prop_map(|number| Operation::Remove { number }),
        2 => (prop::sample::select(vec![1u32, 3, 100, 4_096, 20_000]), 0u32..40)
            .prop_map(|(after, looks)| Operation::Expire { after, looks }),
        1 => Just(Operation::GiveUp),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    /// A session is found by both of its keys from its insertion until it is removed or has ended. Each end is returned
    /// once.
    #[test]
    fn it_is_what_a_map_is(
        steps in steps(),
        crowded in prop::sample::select(vec![0u32, 0, 1, 7]),
        most in 1usize..50,
        longest in prop::sample::select(vec![1u32, 1_000, 60_000, 5_000_000]),
    ) {
        let key = |number| Number { number, crowded };
        let mut table = Sessions::<Both>::new(most, Seed::new(3)).expect("memory").lasting(longest);
        let grain = table.grain;
        // The value and the end time of each number.
        let mut model: BTreeMap<u32, (u32, Slot)> = BTreeMap::new();
        let (mut now, mut value, mut removed) = (0, 0, 0);
        for step in steps {
            match step {
                Operation::Insert { number, lasts } if !model.contains_key(&number) => {
                    value += 1;
                    // The numbers of the other side begin at 60.
                    let session = Both { sides: [key(number), key(number + 60)], value };
                    match table.insert(session, ends(now, lasts)) {
                        Ok(found) => {
                            prop_assert!(model.len() < most);
                            prop_assert_eq!(*table.get(found), session);
                            model.insert(number, (value, ends(now, lasts)));
                        }
                        Err(Refused::Full) => prop_assert_eq!(model.len(), most),
                        Err(Refused::Crowded) => prop_assert_ne!(crowded, 0),
                    }
                }
                Operation::Find { numbers } => {
                    let keys: Vec<_> = numbers.iter().map(|number| key(*number)).collect();
                    let mut found = vec![Found::NONE; keys.len()];
                    table.find_each(&keys, &mut found);
                    for (number, found) in numbers.iter().zip(found) {
                        let known = model.get(&(number % 60));
                        prop_assert_eq!(found, table.find(key(*number)));
                        prop_assert_eq!(found.is_some().then(|| table.get(found).value), known.map(|known| known.0));
                        if found.is_some() {
                            prop_assert_eq!(found.side(), number / 60);
                            prop_assert_eq!(Some(table.ends(found)), known.map(|known| known.1));
                        }
                    }
                }
                Operation::Keep { number, lasts } => {
                    if let Some((_, last)) = model.get_mut(&number) {
                        *last = (*last).max(ends(now, lasts));
                        table.keep_until(table.find(key(number)), *last);
                    }
                }
                Operation::EndAt { number, lasts } => {
                    if let Some((_, last)) = model.get_mut(&number) {
                        *last = ends(now, lasts);
                        table.end_at(table.find(key(number + 60)), *last);
                    }
                }
                Operation::Remove { number } => {
                    if let Some((value, _)) = model.remove(&number) {
                        prop_assert_eq!(table.remove(table.find(key(number))).value, value);
                        removed += 1;
                    }
                }
                Operation::Expire { after, mut looks } => {
                    now += after;
                    let may = looks;
                    while let Some(session) = table.expire(now, &mut looks) {
                        let known = model.remove(&session.sides[0].number);
                        prop_assert!(known.is_some_and(|(value, ends)| value == session.value && ends <= now));
                        removed += 1;
                    }
                    if looks > 0 {
                        let expired = model.values().all(|(_, ends)| *ends > now >> grain << grain);
                        prop_assert!(expired, "all ended sessions are removed: {} of {} looks remain", looks, may);
                        prop_assert!(!table.is_due(now));
                    }
                }
                Operation::GiveUp => {
                    let evicted = table.evict_soonest().map(|session| session.sides[0].number);
                    prop_assert_eq!(evicted.is_none(), model.values().all(|(_, ends)| *ends == NEVER));
                    prop_assert!(evicted.is_none_or(|evicted| model[&evicted].1 != NEVER));
                    if let Some(number) = evicted {
                        prop_assert!(model.remove(&number).is_some());
                        removed += 1;
                    }
                }
                Operation::Insert { .. } => {}
            }
            prop_assert_eq!((table.len(), table.removals()), (model.len(), removed));
            let sessions = table.iter(0).map(|(_, session)| (session.sides[0].number, session.value));
            let sessions: BTreeMap<_, _> = sessions.collect();
            prop_assert_eq!(sessions, model.iter().map(|(number, (value, _))| (*number, *value)).collect());
        }
    }
}

fn table(most: usize, secret: u64) -> Sessions<Both> {
    Sessions::new(most, Seed::new(secret)).expect("memory")
}

fn plain(number: u32) -> Both {
    let key = |number| Number { number, crowded: 0 };
    Both { sides: [key(number), key(number | 1 << 31)], value: number }
}

#[test]
fn it_takes_all_that_it_was_made_for_however_keys_fall() {
    for secret in 0..5 {
        let mut table = table(30_000, secret);
        for number in 0..30_000 {
            table.insert(plain(number), 10).expect("below the capacity");
        }
        assert_eq!(table.insert(plain(40_000), 10), Err(Refused::Full));
        assert!(table.index.stashed() <= 2, "{} in the stash", table.index.stashed());
    }
}

#[test]
fn the_session_that_ends_soonest_is_evicted() {
    let mut table = table(1_000, 1);
    for number in 0..1_000 {
        // Most sessions last long, every tenth is short, and number 500 is the shortest.
        let ends = if number == 500 { 20 } else { 30 + if number % 10 == 0 { 0 } else { 900 } };
        table.insert(plain(number), ends).expect("below the capacity");
    }
    assert_eq!(table.evict_soonest().map(|given| given.value), Some(500));
    for _ in 0..99 {
        assert!(table.evict_soonest().is_some_and(|evicted| evicted.value % 10 == 0), "a short session");
    }
}

/// A packet prolongs a session without a change of the wheel. A prolonged session outlasts one that was not prolonged.
#[test]
fn a_prolonged_session_outlasts_one_that_was_not_prolonged() {
    let mut table = table(10, 1);
    for number in 0..10 {
        table.insert(plain(number), 5).expect("below the capacity");
    }
    for number in 0..9 {
        let found = table.find(plain(number).sides[0]);
        table.keep_until(found, 100 + number);
    }
    assert_eq!(table.evict_soonest().map(|evicted| evicted.value), Some(9));
    assert_eq!(table.evict_soonest().map(|evicted| evicted.value), Some(0));
}

#[test]
fn many_that_end_at_once_are_removed_a_few_at_a_time() {
    let mut table = table(1_000, 1);
    for number in 0..1_000 {
        table.insert(plain(number), 5).expect("below the capacity");
    }
    for remaining in (0..1_000).rev().step_by(50) {
        let mut looks = 50;
        while table.expire(6, &mut looks).is_some() {}
        assert_eq!(table.len(), remaining + 1 - 50);
    }
    assert!(!table.is_due(6));
}

/// Regression: a table whose first session came long after time 0 examined all the slots in between, a turn at a time.
#[test]
fn sessions_are_looked_at_once_however_late_the_first_one_comes() {
    let mut table = table(1_000, 1).lasting(60_000);
    let now = 100_000_000;
    assert!(!table.is_due(now));
    for number in 0..1_000 {
        table.insert(plain(number), now + 2_400).expect("there is room");
    }
    let mut looks = 1_000;
    while table.is_due(now + 2_416) && table.expire(now + 2_416, &mut looks).is_some() {}
    assert_eq!((table.len(), looks), (0, 0), "one look for each session");
}

/// The longest time-out changes by orders of magnitude while sessions are in the table.
#[test]
fn sessions_end_in_time_when_others_may_last_longer() {
    let mut table = table(100, 1);
    for number in 0..100 {
        table.insert(plain(number), 100 + number).expect("there is room");
    }
    table.last_up_to(1_000_000);
    let mut looks = 1_000;
    while table.expire(1_024, &mut looks).is_some() {}
    assert_eq!(table.len(), 0);
    assert_eq!(looks, 900);
}

#[test]
fn tables_that_cannot_be_are_not_made() {
    assert!(Sessions::<Both>::new(0, Seed::new(1)).is_err());
    assert!(Sessions::<Both>::new(MOST + 1, Seed::new(1)).is_err());
}

proptest! {
    #[test]
    fn the_first_ones_are_those_without_the_same_before_them(
        numbers in prop::collection::vec(0u32..20, GROUP),
        crowded in prop::sample::select(vec![0u32, 1, 7]),
        among: u32,
    ) {
        let table = table(10, 1);
        let keys: [Number; GROUP] = std::array::from_fn(|at| Number { number: numbers[at], crowded });
        let spots = keys.map(|key| table.spot(key));
        let first = Sessions::<Both>::first_ones(&keys, &spots, among);
        for at in 0..GROUP {
            let is = |at: usize| among >> at & 1 == 1;
            let expected = is(at) && !(0..at).any(|before| is(before) && numbers[before] == numbers[at]);
            prop_assert_eq!(first >> at & 1 == 1, expected, "key {}", at);
        }
    }
}

/// Sessions that last longer than a wheel of the finest slots covers. Regression: each look only moved a session to a
/// later slot, and every insertion examined as many sessions as it could.
#[test]
fn of_sessions_that_last_for_hours_the_first_is_evicted_at_once() {
    let mut table = table(1_000, 1).lasting(60_000);
    for number in 0..1_000 {
        table.insert(plain(number), 59_000 + number).expect("below the capacity");
    }
    let all: Vec<_> =
        (0..1_000).map(|_| table.evict_soonest().map(|evicted| evicted.value).expect("there are some")).collect();
    assert_eq!(all, (0..1_000).collect::<Vec<_>>());
}

/// Of sessions that end in the same slot of the wheel, the oldest is evicted. Regression: it was the newest, so a new
/// session was evicted for the next one.
#[test]
fn of_sessions_that_end_together_the_oldest_is_evicted() {
    let mut table = table(100, 1).lasting(60_000);
    for number in 0..300 {
        if number >= 100 {
            assert_eq!(table.evict_soonest().map(|evicted| evicted.value), Some(number - 100));
        }
        table.insert(plain(number), 2_400).expect("there is room");
    }
}
