//! Tables of sessions, counts and ended sessions: what operators change and see, and bad input.

use super::*;

#[test]
fn counts_can_be_taken_off_as_they_were_shown() {
    let mut bench = Bench::new(json!({ "sessions": ["10.60.0.1 teid=1"], "rules": ["7 port=80"], "ended": 2 }));
    bench.up(1, &from_user(1, 80));
    let shown = bench.list("usage");
    assert_eq!(shown, ["10.60.0.1 rule=7 up=1/100B down=0/0B"]);
    bench.up(1, &from_user(1, 80));
    let take = |bench: &Bench, what: &str| {
        let outcome = bench.table("usage").apply(&[&format!("remove {what}")]);
        outcome.refused.into_iter().next().map_or(Ok(()), |refused| Err(refused.message))
    };
    assert_eq!(take(&bench, &shown[0]), Ok(()));
    assert_eq!(bench.list("usage"), shown, "what came meanwhile is there");
    for (wrong, part) in [
        ("10.60.0.1 rule=7 up=2/200B down=0/0B", "has not as much"),
        ("10.60.0.1 rule=8 up=0/0B", "has not as much"),
        ("10.60.0.1 up=1/100B", "allowed is what was shown"),
        ("10.60.0.1 rule=7 up=x/1B", "'up=x/1B': allowed is"),
        ("10.60.0.2", "has no session"),
        ("10.60.0.1 rule=7 up=1/100B down=0/0B rule=other up=1/100B down=0/0B", "has not as much"),
    ] {
        assert!(take(&bench, wrong).expect_err(wrong).contains(part), "{wrong}");
    }
    assert_eq!(bench.list("usage"), shown, "what was refused has taken nothing off");
    // The rest is in the table of ended sessions.
    assert_eq!(bench.change("remove 10.60.0.1"), Ok(()));
    assert_eq!(bench.list("ended"), ["1 10.60.0.1 rule=7 up=1/100B down=0/0B"]);
    assert_eq!(bench.change("add 10.60.0.1 teid=1"), Ok(()));
    assert!(bench.list("usage").is_empty(), "another session has counts of its own");
    bench.up(1, &from_user(1, 80));
    assert_eq!(bench.change("remove 10.60.0.1"), Ok(()));
    assert_eq!(bench.change("add 10.60.0.1 teid=1"), Ok(()));
    let error = bench.change("remove 10.60.0.1").expect_err("two wait");
    assert!(error.contains("the counts of 2 sessions that have ended"), "{error}");
    assert_eq!(bench.table("ended").apply(&["remove 1"]).made, 1);
    assert_eq!(bench.change("remove 10.60.0.1"), Ok(()));
}

#[test]
fn bad_input_is_told_with_its_place() {
    for (params, part) in [
        (
            json!({ "sessions": ["10.0.0.1 teid=1", "# note", "10.0.0.1 teid=2"] }),
            "sessions[2]: 10.0.0.1 has a session already",
        ),
        (json!({ "sessions": ["10.0.0.1 teid=1", "10.0.0.2 teid=1"] }), "sessions[1]: teid 0x1 is another session's"),
        (json!({ "sessions": ["10.0.0.1"] }), "sessions[0]: no tunnel"),
        (json!({ "sessions": "no-such-file" }), "sessions: cannot read 'no-such-file'"),
        (json!({ "rules": ["1 tcp", "x"] }), "rules[1]: 'x' is no rule's number"),
        (json!({ "limit": 0 }), "limit: 0: allowed are 1 to 16777216"),
        (
            json!({ "limit": 1, "sessions": ["10.0.0.1 teid=1", "10.0.0.2 teid=2"] }),
            "there are 1 sessions: the state allows as many",
        ),
        (json!({ "bearers": 1, "sessions": ["10.0.0.1 teid=1 bearer filter=1,tcp"] }), "2 more bearers than the 0"),
        (json!({ "rules_per_user": 65 }), "rules_per_user: 65: allowed are 1 to 64"),
        (json!({ "burst": "1us" }), "burst: "),
    ] {
        let error = surroundings(params).err().expect(part);
        assert!(error.contains(part), "{part}: {error}");
    }
    let many: Vec<&str> = vec!["x"; 30];
    assert!(surroundings(json!({ "sessions": many })).err().expect("x").contains("10 further errors"));
}

#[test]
fn places_are_given_out_again_only_when_nobody_looks() {
    let bench = Bench::new(json!({ "limit": 2, "bearers": 2, "sessions": ["10.0.0.1 teid=1", "10.0.0.2 teid=2"] }));
    assert!(bench.change("add 10.0.0.3 teid=3").expect_err("full").contains("there are 2 sessions"));
    // In one batch, many times over: each needs the place that the one before it had.
    let changes: Vec<String> = (0..50)
        .flat_map(|n| [format!("remove 10.0.{n}.1"), format!("add 10.0.{}.1 teid={}", n + 1, n + 100)])
        .collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let outcome = bench.table("sessions").apply(&changes);
    assert_eq!((outcome.made, outcome.refused), (100, vec![]));
    assert_eq!(bench.table("sessions").len(), 2);
    let error = bench.change("replace 10.0.0.2 teid=2 bearer filter=1,tcp").expect_err("no more bearers");
    assert!(error.contains("2 more bearers than the 1"), "{error}");
    assert_eq!(bench.change("replace 10.0.0.2 teid=7"), Ok(()));
}

/// A place was given to another user while a worker that had been stopped in a call could still count into it.
#[test]
fn places_that_a_stopped_worker_looks_at_are_nobody_elses() {
    let bench = Bench::new(json!({ "limit": 2, "ended": 9, "sessions": ["10.60.0.1 teid=1", "10.60.0.2 teid=2"] }));
    let state = Arc::clone(&bench.surroundings.state["users"]).downcast::<PduSessions>().expect("its kind");
    // One to whom no packets come does not look.
    let idle = Reader::new(Arc::clone(&state.core.live));
    let mut reader = Reader::new(Arc::clone(&state.core.live));
    let mut setup = Surroundings::new(Frequency::new(1e9));
    let worker = state.worker(Way::Up, &mut Setup::new("stopped", &mut setup));
    for round in 0..3u8 {
        let (before, after) = (round + 1, round + 3);
        let held = reader.read();
        let number = held.by_teid(before.into()).and_then(|bearer| held.bearer(bearer)).expect("it is there").session;
        assert_eq!(bench.change(&format!("remove 10.60.0.{before}")), Ok(()));
        for _ in 0..2 {
            let error =
                bench.change(&format!("add 10.60.0.{after} teid={after}")).expect_err("there is no other place");
            assert!(error.contains("a worker that has been stopped"), "{error}");
        }
        assert_eq!(bench.list("ended").len(), usize::from(round), "what it counts is not final");
        worker.writer.charge(number, 0, 100);
        drop(held);
        assert_eq!(bench.change(&format!("add 10.60.0.{after} teid={after}")), Ok(()));
        let ended = format!("{} 10.60.0.{before} rule=other up=1/100B down=0/0B", round + 1);
        assert_eq!(bench.list("ended").last(), Some(&ended), "it is the old one's");
        assert!(bench.list("usage").is_empty(), "and no other's");
    }
    drop(idle);
}

/// Words behind a user or a number were ignored, as if the change had not been meant otherwise.
#[test]
fn words_that_are_not_of_the_listed_line_are_refused() {
    let session = "10.60.0.1 teid=0x1 peer=192.0.2.10 peer-teid=0x5";
    let mut bench = Bench::new(json!({ "sessions": [session, "10.60.0.2 teid=2"], "ended": 9 }));
    let listed = bench.list("sessions")[0].clone();
    for wrong in ["10.60.0.1 teid=0x9", "10.60.0.1 10.60.0.2", "10.60.0.1 now please", &format!("{listed} gbr")] {
        let error = bench.change(&format!("remove {wrong}")).expect_err(wrong);
        let word = wrong.split(' ').find(|word| !listed.split(' ').any(|known| known == *word)).expect("one");
        let part = format!("'{word}' is not of the session of 10.60.0.1 as it is listed: allowed are the user alone");
        assert!(error.contains(&part), "{wrong}: {error}");
    }
    assert_eq!(bench.list("sessions").len(), 2);
    bench.up(1, &from_user(1, 80));
    assert_eq!(bench.change(&format!("remove {listed} # as listed")), Ok(()));
    assert_eq!(bench.change("remove 10.60.0.2"), Ok(()));
    let ended = bench.list("ended");
    for (change, refused) in [
        ("remove 1 please".to_owned(), Some("'please' is not of 1 as it is listed: write remove 1")),
        (format!("remove {} x", ended[0]), Some("'x' is not of 1 as it is listed")),
        (format!("remove {}", ended[0]), None),
    ] {
        let outcome = bench.table("ended").apply(&[&change]);
        let found = outcome.refused.first().map(|refused| refused.message.as_str());
        assert!(found.is_some() == refused.is_some() && found >= refused, "{change}: {found:?}");
    }
    assert!(bench.list("ended").is_empty());
}
