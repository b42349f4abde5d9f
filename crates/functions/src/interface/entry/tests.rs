use proptest::prelude::*;

use super::*;

const TIMERS: Timers = Timers { reachable: 300, delay: 50, retransmit: 10, forget: 6_000, negative: 30, tries: 3 };
const A: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xa]);
const B: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);

#[test]
fn a_neighbour_that_answers_and_goes_away() {
    let mut it = Entry::wanted();
    assert_eq!((it.step(Event::Packet, 0, &TIMERS), it.tries, it.at), (Action::Ask, 1, 10));
    assert_eq!(it.step(Event::Packet, 9, &TIMERS), Action::None, "it was asked just now");
    it.step(Event::Answered(Some(A), true), 9, &TIMERS);
    assert_eq!((it.kind, it.mac, it.at), (Kind::Reachable, A, 309));
    assert_eq!(it.step(Event::Time, 308, &TIMERS), Action::None);
    it.step(Event::Time, 309, &TIMERS);
    assert_eq!(it.kind, Kind::Stale);
    it.step(Event::Packet, 400, &TIMERS);
    assert_eq!((it.kind, it.at), (Kind::Delay, 450), "it is sent to and watched");
    for (now, tries) in [(450, 1), (460, 2), (470, 3)] {
        assert_eq!(it.step(Event::Time, now, &TIMERS), Action::Probe);
        assert_eq!((it.kind, it.mac, it.tries), (Kind::Probe, A, tries));
    }
    assert_eq!(it.step(Event::Time, 480, &TIMERS), Action::Remove);
}

#[test]
fn who_never_answers_is_asked_ever_more_rarely() {
    let mut it = Entry::wanted();
    let (mut now, mut pauses) = (0, Vec::new());
    for _ in 0..8 {
        for _ in 0..3 {
            assert_eq!(it.step(Event::Packet, now, &TIMERS), Action::Ask);
            now += 10;
        }
        assert_eq!((it.step(Event::Time, now, &TIMERS), it.kind), (Action::GiveUp, Kind::Failed));
        assert_eq!(it.step(Event::Packet, it.at - 1, &TIMERS), Action::None, "not yet");
        pauses.push(it.at - now);
        now = it.at;
    }
    assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 960, 960]);
    it.step(Event::Told(Some(A), true), now, &TIMERS);
    assert_eq!((it.kind, it.rounds), (Kind::Stale, 0), "it is back");
}

#[test]
fn what_is_said_without_override_is_not_believed_of_who_is_known() {
    // RFC 4861 section 7.2.5.
    let known = |kind| Entry { kind, mac: A, tries: 0, rounds: 0, at: 100 };
    for (kind, event, after, mac) in [
        (Kind::Reachable, Event::Answered(Some(B), false), Kind::Stale, A),
        (Kind::Stale, Event::Answered(Some(B), false), Kind::Stale, A),
        (Kind::Probe, Event::Answered(Some(B), false), Kind::Probe, A),
        (Kind::Probe, Event::Answered(Some(B), true), Kind::Reachable, B),
        (Kind::Probe, Event::Answered(None, false), Kind::Reachable, A),
        (Kind::Probe, Event::Answered(Some(A), false), Kind::Reachable, A),
        (Kind::Reachable, Event::Told(Some(B), true), Kind::Stale, B),
        (Kind::Reachable, Event::Told(Some(A), true), Kind::Reachable, A),
        (Kind::Probe, Event::Told(Some(A), true), Kind::Probe, A),
        (Kind::Delay, Event::Asked(B), Kind::Stale, B),
        (Kind::Incomplete, Event::Answered(None, true), Kind::Incomplete, A),
        (Kind::Permanent, Event::Answered(Some(B), true), Kind::Permanent, A),
    ] {
        let mut it = known(kind);
        it.step(event, 10, &TIMERS);
        assert_eq!((it.kind, it.mac), (after, mac), "{kind:?} {event:?}");
    }
}

fn events() -> impl Strategy<Value = Event> {
    let mac = prop::option::of(prop::sample::select(vec![A, B]));
    prop_oneof![
        4 => Just(Event::Packet),
        4 => Just(Event::Time),
        1 => (mac.clone(), any::<bool>()).prop_map(|(mac, overrides)| Event::Answered(mac, overrides)),
        1 => (mac, any::<bool>()).prop_map(|(mac, overrides)| Event::Told(mac, overrides)),
        1 => prop::sample::select(vec![A, B]).prop_map(Event::Asked),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What must hold whatever happens, beside the single steps above.
    #[test]
    fn whatever_happens_it_is_asked_in_measure_and_used_only_while_it_may_be(
        steps in prop::collection::vec((events(), 0u64..40), 1..200),
    ) {
        let (mut it, mut now) = (Entry::wanted(), 0);
        // When it was last asked, and how often since it was heard of.
        let (mut asked, mut unheard) = (None::<u64>, 0);
        for (event, span) in steps {
            now += span;
            let before = it;
            let action = it.step(event, now, &TIMERS);
            if matches!(event, Event::Answered(Some(_), true) | Event::Told(Some(_), true) | Event::Asked(_)) {
                (asked, unheard) = (None, 0);
            }
            match action {
                Action::Ask | Action::Probe => {
                    prop_assert!(asked.is_none_or(|last| now >= last + TIMERS.retransmit), "too soon");
                    (asked, unheard) = (Some(now), unheard + 1);
                    prop_assert_eq!(action == Action::Probe, it.kind == Kind::Probe);
                    prop_assert!(it.tries >= 1 && it.tries <= TIMERS.tries);
                    prop_assert_eq!(it.at, now + TIMERS.retransmit);
                }
                Action::GiveUp => {
                    prop_assert_eq!((before.kind, it.kind), (Kind::Incomplete, Kind::Failed));
                    prop_assert!(unheard >= TIMERS.tries);
                    unheard = 0;
                }
                Action::Remove => {
                    prop_assert!(now >= before.at && before.kind != Kind::Incomplete);
                    (it, asked, unheard) = (Entry::wanted(), None, 0);
                }
                Action::None => {}
            }
            // An address is known in all states but the two of nobody's having answered.
            let known = it.mac != MacAddress::default();
            prop_assert!(known || matches!(it.kind, Kind::Incomplete | Kind::Failed));
            // Nothing but an answer makes it reachable.
            if it.kind == Kind::Reachable && before.kind != Kind::Reachable {
                prop_assert!(matches!(event, Event::Answered(..)));
            }
        }
    }
}
