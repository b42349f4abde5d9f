//! Tests against a direct transcription of the paper's pseudo-code, and of the shares and the disruption that the paper
//! promises.

use proptest::prelude::*;

use super::*;

/// Algorithm 1 of the paper, with whole permutations. After round k a member has had floor(k w / most) turns.
fn plainly(places: u32, members: &[Member]) -> Option<Vec<u16>> {
    let size = u64::from(places);
    let permutation = |identity: u64| -> Vec<u64> {
        let Permutation { offset, skip } = Permutation::of(identity, places);
        (0..size).map(|j| (offset + j * skip) % size).collect()
    };
    let mut order: Vec<usize> = (0..members.len()).filter(|i| members[*i].weight > 0).collect();
    order.sort_by_key(|i| (members[*i].identity, *i));
    let most = members.iter().map(|member| u64::from(member.weight)).max().filter(|most| *most > 0)?;
    let permutations: Vec<Vec<u64>> = members.iter().map(|member| permutation(member.identity)).collect();
    let mut next = vec![0usize; members.len()];
    let mut entry: Vec<Option<u16>> = vec![None; places as usize];
    for round in 1u64.. {
        for &i in &order {
            let weight = u64::from(members[i].weight);
            if round * weight / most == (round - 1) * weight / most {
                continue;
            }
            let mut c = permutations[i][next[i]] as usize;
            while entry[c].is_some() {
                next[i] += 1;
                c = permutations[i][next[i]] as usize;
            }
            entry[c] = Some(i as u16);
            next[i] += 1;
            if entry.iter().all(Option::is_some) {
                return Some(entry.into_iter().flatten().collect());
            }
        }
    }
    None
}

fn equal(members: usize) -> Vec<Member> {
    (0..members as u64).map(|number| Member { identity: 0x0a00_0001 + number, weight: 1 }).collect()
}

fn table(places: u32, members: &[Member]) -> Maglev {
    Maglev::new(places, members).expect("a prime and room").expect("a member has a weight")
}

/// Returns the number of places of each member.
fn counts(table: &Maglev, members: usize) -> Vec<usize> {
    let mut counts = vec![0; members];
    table.places().iter().for_each(|member| counts[usize::from(*member)] += 1);
    counts
}

/// Of the places that did not belong to `gone` in `before`, returns the fraction that belongs to another member in
/// `after`.
fn disrupted(before: &Maglev, after: &Maglev, gone: u16) -> f64 {
    let pairs = before.places().iter().zip(after.places());
    let others = pairs.filter(|(before, _)| **before != gone);
    let (changed, all) =
        others.fold((0, 0), |(changed, all), (before, after)| (changed + usize::from(before != after), all + 1));
    changed as f64 / f64::from(all)
}

#[test]
fn shares_are_equal_to_a_percent() {
    // Section 5.3: with 65 537 places and up to a hundredth as many members, the shares differ little.
    for members in [1, 2, 3, 16, 100, 500] {
        let table = table(65_537, &equal(members));
        let counts = counts(&table, members);
        let (least, most) = (counts.iter().min().expect("one"), counts.iter().max().expect("one"));
        // Members take turns, so no member is more than one turn ahead.
        assert!(most - least <= 1, "{members}: {least} to {most}");
    }
}

#[test]
fn shares_are_proportional_to_weights() {
    let weights = [1u16, 2, 3, 10, 0, 100];
    let members: Vec<_> = equal(6).into_iter().zip(weights).map(|(it, weight)| Member { weight, ..it }).collect();
    let counts = counts(&table(65_537, &members), 6);
    for (count, weight) in counts.iter().zip(weights) {
        let due = 65_537.0 * f64::from(weight) / 116.0;
        assert!((*count as f64 - due).abs() <= 2.0, "weight {weight}: {count} of {due}");
    }
}

/// Regression: thousands of light members beside one heavy member went through each of half a million rounds to take a
/// turn in one of 65 535. The turns of all light members fall in the same rounds, so after nine such rounds each has
/// had nine turns.
#[test]
fn light_members_take_a_turn_when_it_comes() {
    let mut members = equal(4_000);
    members[7].weight = u16::MAX;
    let counts = counts(&table(655_373, &members), members.len());
    assert_eq!(counts[7], 655_373 - 9 * 3_999, "one turn in each round");
    assert!(counts.iter().enumerate().all(|(at, count)| at == 7 || *count == 9), "{counts:?}");
}

/// Section 5.3 and figure 12: if one of n members leaves, the others keep all but a few of their places. Larger tables
/// keep more.
#[test]
fn few_belong_to_another_when_one_leaves() {
    for (places, members, most) in [(65_537, 16, 0.04), (65_537, 100, 0.04), (655_373, 100, 0.01), (251, 10, 0.25)] {
        let all = equal(members);
        let before = table(places, &all);
        for gone in [0, members / 2, members - 1] {
            let mut remaining = all.clone();
            remaining[gone].weight = 0;
            let part = disrupted(&before, &table(places, &remaining), gone as u16);
            assert!(part < most, "{members} members, {places} places, without {gone}: {part}");
        }
    }
}

#[test]
fn a_new_member_takes_its_share_from_all_members() {
    let before = table(65_537, &equal(16));
    let after = table(65_537, &equal(17));
    let moved = before.places().iter().zip(after.places()).filter(|(before, after)| before != after);
    let (to_it, elsewhere) =
        moved.fold((0, 0), |(to, else_), (_, after)| if *after == 16 { (to + 1, else_) } else { (to, else_ + 1) });
    assert!((3_855i32 - to_it).abs() <= 1, "the new member's share is a seventeenth: {to_it}");
    assert!(f64::from(elsewhere) / 65_537.0 < 0.04, "{elsewhere}");
}

#[test]
fn hashes_reach_all_places() {
    let table = table(251, &equal(7));
    let mut reached = [false; 251];
    for at in 0..1u64 << 16 {
        let hash = at << 48 | 0x1234;
        reached[(((at << 16) * 251) >> 32) as usize] = true;
        assert!(table.pick(hash) < 7);
    }
    assert!(reached.into_iter().all(|it| it));
    assert_eq!(table.pick(0), usize::from(table.places()[0]));
    assert_eq!(table.pick(u64::MAX), usize::from(table.places()[250]));
}

#[test]
fn impossible_tables_are_refused() {
    for places in [0, 1, 2, 4, 9, 65_536, MOST_PLACES + 1] {
        assert_eq!(Maglev::new(places, &equal(2)), Err(MaglevError::Places(places)));
    }
    let error = Maglev::new(3, &equal(4)).expect_err("too many");
    let expected = "4 members do not fit into 3 places: use at least as many places as members, and at most 65535 \
                    members";
    assert_eq!(error.to_string(), expected);
    assert_eq!(Maglev::new(7, &[]), Ok(None));
    assert_eq!(Maglev::new(7, &[Member { identity: 5, weight: 0 }]), Ok(None));
}

fn members() -> impl Strategy<Value = Vec<Member>> {
    let weight = prop_oneof![3 => Just(1u16), 2 => 0u16..5, 1 => 0u16..1_000, 1 => Just(u16::MAX)];
    prop::collection::vec((any::<u64>(), weight).prop_map(|(identity, weight)| Member { identity, weight }), 0..12)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// The disruption bound for any members. When one of them loses its weight, few places of the others change their
    /// member. Section 5.3 has 65 537 places; if weights differ, the others' turns shift a little more.
    #[test]
    fn a_member_that_leaves_disrupts_few_places(
        identities in prop::collection::hash_set(any::<u64>(), 3..40),
        weights in prop::collection::vec(1u16..4, 40),
        alike: bool,
        gone in any::<prop::sample::Index>(),
    ) {
        let members: Vec<_> = identities
            .into_iter()
            .zip(weights)
            .map(|(identity, weight)| Member { identity, weight: if alike { 2 } else { weight } })
            .collect();
        let gone = gone.index(members.len());
        let before = table(65_537, &members);
        let mut remaining = members.clone();
        remaining[gone].weight = 0;
        let after = table(65_537, &remaining);
        prop_assert!(after.places().iter().all(|member| usize::from(*member) != gone));
        let part = disrupted(&before, &after, gone as u16);
        prop_assert!(part < 0.04, "{members:?} without {gone}: {part}");
        prop_assert_eq!(table(65_537, &members), before, "the member gets its old places back");
    }

    /// A permutation must contain each place once, whatever the hashes are (section 3.4).
    #[test]
    fn a_permutation_has_every_place_once(identity: u64, places in prop::sample::select(vec![3u32, 13, 251, 1_009])) {
        let Permutation { offset, skip } = Permutation::of(identity, places);
        let size = u64::from(places);
        prop_assert!(offset < size && (1..size).contains(&skip), "{offset} {skip}");
        let all: std::collections::BTreeSet<_> = (0..size).map(|j| (offset + j * skip) % size).collect();
        prop_assert_eq!(all.len(), places as usize);
    }
}

proptest! {
    #[test]
    fn it_is_what_the_paper_says(members in members(), places in prop::sample::select(vec![13u32, 101, 251, 1_009])) {
        let made = Maglev::new(places, &members).expect("a prime and room");
        prop_assert_eq!(made.map(|table| table.places().to_vec()), plainly(places, &members));
    }

    /// Shares are proportional to weights, within the turns of the last round.
    #[test]
    fn shares_are_in_proportion(members in members()) {
        let total: f64 = members.iter().map(|member| f64::from(member.weight)).sum();
        if let Some(table) = Maglev::new(1_009, &members).expect("a prime and room") {
            for (count, member) in counts(&table, members.len()).into_iter().zip(&members) {
                let due = 1_009.0 * f64::from(member.weight) / total;
                // An unfinished round leaves one member a turn ahead and each of the others up to one turn behind.
                prop_assert!((count as f64 - due).abs() <= members.len() as f64 + 1.0, "{} of {}", count, due);
            }
        }
    }

    #[test]
    fn the_order_of_members_does_not_matter(members in members(), turn in 0usize..12) {
        let identities: std::collections::BTreeSet<_> = members.iter().map(|member| member.identity).collect();
        prop_assume!(identities.len() == members.len());
        let mut other = members.clone();
        other.rotate_left(if members.is_empty() { 0 } else { turn % members.len() });
        let of = |members: &[Member]| Maglev::new(251, members).expect("a prime and room").map(|table| {
            table.places().iter().map(|number| members[usize::from(*number)].identity).collect::<Vec<_>>()
        });
        prop_assert_eq!(of(&members), of(&other));
    }
}
