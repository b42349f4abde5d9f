use proptest::prelude::*;

use super::*;

const TIMERS: Timers = Timers { reachable: 300, delay: 50, retransmit: 10, forget: 6_000, negative: 30, tries: 3 };
const A: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xa]);
const B: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);

#[test]
fn a_neighbour_that_answers_and_goes_away() {
    let mut it = Entry::wanted();
    assert_eq!((it.step(Event::Packet, 0, &TIMERS), it.tries, it.at), (Action::Ask, 1, 10));
    assert_eq!(it.step(Event::Packet, 9, &TIMERS), Action::None, "a request was sent just now");
    it.step(Event::Answered(Some(A), true), 9, &TIMERS);
    assert_eq!((it.state, it.mac, it.at), (NeighbourState::Reachable, A, 309));
    assert_eq!(it.step(Event::Time, 308, &TIMERS), Action::None);
    it.step(Event::Time, 309, &TIMERS);
    assert_eq!(it.state, NeighbourState::Stale);
    it.step(Event::Packet, 400, &TIMERS);
    assert_eq!((it.state, it.at), (NeighbourState::Delay, 450), "packets are sent and the neighbour is watched");
    for (now, tries) in [(450, 1), (460, 2), (470, 3)] {
        assert_eq!(it.step(Event::Time, now, &TIMERS), Action::Probe);
        assert_eq!((it.state, it.mac, it.tries), (NeighbourState::Probe, A, tries));
    }
    assert_eq!(it.step(Event::Time, 480, &TIMERS), Action::Remove);
}

#[test]
fn a_neighbour_that_never_answers_is_asked_less_and_less_often() {
    let mut it = Entry::wanted();
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..8 {
        for _ in 0..3 {
            assert_eq!(it.step(Event::Packet, now, &TIMERS), Action::Ask);
            now += 10;
        }
        assert_eq!((it.step(Event::Time, now, &TIMERS), it.state), (Action::GiveUp, NeighbourState::Failed));
        assert_eq!(it.step(Event::Packet, it.at - 1, &TIMERS), Action::None, "the pause has not ended");
        pauses.push(it.at - now);
        now = it.at;
    }
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 960, 960]);
    it.step(Event::Announced(Some(A), true), now, &TIMERS);
    assert_eq!((it.state, it.rounds), (NeighbourState::Stale, 0), "the neighbour is back");
}

#[test]
fn without_override_a_known_address_is_not_replaced() {
    // RFC 4861 section 7.2.5.
    let known = |state| Entry { state, mac: A, tries: 0, rounds: 0, at: 100 };
    for (state, event, after, mac) in [
        (NeighbourState::Reachable, Event::Answered(Some(B), false), NeighbourState::Stale, A),
        (NeighbourState::Stale, Event::Answered(Some(B), false), NeighbourState::Stale, A),
        (NeighbourState::Probe, Event::Answered(Some(B), false), NeighbourState::Probe, A),
        (NeighbourState::Probe, Event::Answered(Some(B), true), NeighbourState::Reachable, B),
        (NeighbourState::Probe, Event::Answered(None, false), NeighbourState::Reachable, A),
        (NeighbourState::Probe, Event::Answered(Some(A), false), NeighbourState::Reachable, A),
        (NeighbourState::Reachable, Event::Announced(Some(B), true), NeighbourState::Stale, B),
        (NeighbourState::Reachable, Event::Announced(Some(A), true), NeighbourState::Reachable, A),
        (NeighbourState::Probe, Event::Announced(Some(A), true), NeighbourState::Probe, A),
        (NeighbourState::Delay, Event::Asked(B), NeighbourState::Stale, B),
        (NeighbourState::Incomplete, Event::Answered(None, true), NeighbourState::Incomplete, A),
        (NeighbourState::Permanent, Event::Answered(Some(B), true), NeighbourState::Permanent, A),
    ] {
        let mut it = known(state);
        it.step(event, 10, &TIMERS);
        assert_eq!((it.state, it.mac), (after, mac), "{state:?} {event:?}");
    }
}

fn events() -> impl Strategy<Value = Event> {
    let mac = prop::option::of(prop::sample::select(vec![A, B]));
    prop_oneof![
        4 => Just(Event::Packet),
        4 => Just(Event::Time),
        1 => (mac.clone(), any::<bool>()).prop_map(|(mac, overrides)| Event::Answered(mac, overrides)),
        1 => (mac, any::<bool>()).prop_map(|(mac, overrides)| Event::Announced(mac, overrides)),
        1 => prop::sample::select(vec![A, B]).prop_map(Event::Asked),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants under random events, in addition to the single steps above.
    #[test]
    fn requests_are_limited_and_only_valid_entries_are_used(
        steps in prop::collection::vec((events(), 0u64..40), 1..200),
    ) {
        let (mut it, mut now) = (Entry::wanted(), 0);
        // The time of the last request, and the number of requests since the neighbour was heard from.
        let (mut asked, mut unheard) = (None::<u64>, 0);
        for (event, span) in steps {
            now += span;
            let before = it;
            let action = it.step(event, now, &TIMERS);
            if matches!(event, Event::Answered(Some(_), true) | Event::Announced(Some(_), true) | Event::Asked(_)) {
                (asked, unheard) = (None, 0);
            }
            match action {
                Action::Ask | Action::Probe => {
                    let in_time = asked.is_none_or(|last| now >= last + TIMERS.retransmit);
                    prop_assert!(in_time, "a request was sent too early");
                    (asked, unheard) = (Some(now), unheard + 1);
                    prop_assert_eq!(action == Action::Probe, it.state == NeighbourState::Probe);
                    prop_assert!(it.tries >= 1 && it.tries <= TIMERS.tries);
                    prop_assert_eq!(it.at, now + TIMERS.retransmit);
                }
                Action::GiveUp => {
                    prop_assert_eq!((before.state, it.state), (NeighbourState::Incomplete, NeighbourState::Failed));
                    prop_assert!(unheard >= TIMERS.tries);
                    unheard = 0;
                }
                Action::Remove => {
                    prop_assert!(now >= before.at && before.state != NeighbourState::Incomplete);
                    (it, asked, unheard) = (Entry::wanted(), None, 0);
                }
                Action::None => {}
            }
            // An address is known in all states except the two without an answer.
            let known = it.mac != MacAddress::default();
            prop_assert!(known || matches!(it.state, NeighbourState::Incomplete | NeighbourState::Failed));
            // Only an answer makes it reachable.
            if it.state == NeighbourState::Reachable && before.state != NeighbourState::Reachable {
                prop_assert!(matches!(event, Event::Answered(..)));
            }
        }
    }
}
