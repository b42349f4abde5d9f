//! Tables of sessions, counts and ended sessions: operators' changes and views, and invalid input.

use super::*;

#[test]
fn counts_can_be_removed_as_they_were_shown() {
    let mut bench = Bench::new(json!({ "sessions": ["10.60.0.1 teid=1"], "rules": ["7 port=80"], "ended": 2 }));
    bench.up(1, &from_user(1, 80));
    let shown = bench.list("usage");
    assert_eq!(shown, ["10.60.0.1 rule=7 up=1/100B down=0/0B"]);
    bench.up(1, &from_user(1, 80));
    let take = |bench: &Bench, entry: &str| {
        let outcome = bench.table("usage").apply(&[&format!("remove {entry}")]);
        outcome.refused.into_iter().next().map_or(Ok(()), |refused| Err(refused.message))
    };
    assert_eq!(take(&bench, &shown[0]), Ok(()));
    assert_eq!(bench.list("usage"), shown, "counts of later packets remain");
    for (wrong, part) in [
        ("10.60.0.1 rule=7 up=2/200B down=0/0B", "has lower counts"),
        ("10.60.0.1 rule=8 up=0/0B", "has lower counts"),
        ("10.60.0.1 up=1/100B", "allowed are counts as they were shown"),
        ("10.60.0.1 rule=7 up=x/1B", "'up=x/1B': allowed are"),
        ("10.60.0.2", "has no session"),
        ("10.60.0.1 rule=7 up=1/100B down=0/0B rule=other up=1/100B down=0/0B", "has lower counts"),
    ] {
        assert!(take(&bench, wrong).expect_err(wrong).contains(part), "{wrong}");
    }
    assert_eq!(bench.list("usage"), shown, "a refused change removes no counts");
    // The remaining counts are in the table of ended sessions.
    assert_eq!(bench.change("remove 10.60.0.1"), Ok(()));
    assert_eq!(bench.list("ended"), ["1 10.60.0.1 rule=7 up=1/100B down=0/0B"]);
    assert_eq!(bench.change("add 10.60.0.1 teid=1"), Ok(()));
    assert!(bench.list("usage").is_empty(), "a new session has its own counts");
    bench.up(1, &from_user(1, 80));
    assert_eq!(bench.change("remove 10.60.0.1"), Ok(()));
    assert_eq!(bench.change("add 10.60.0.1 teid=1"), Ok(()));
    let error = bench.change("remove 10.60.0.1").expect_err("two are kept");
    assert!(error.contains("the counts of 2 ended sessions"), "{error}");
    assert_eq!(bench.table("ended").apply(&["remove 1"]).made, 1);
    assert_eq!(bench.change("remove 10.60.0.1"), Ok(()));
}

#[test]
fn errors_name_the_location_of_invalid_input() {
    for (params, part) in [
        (
            json!({ "sessions": ["10.0.0.1 teid=1", "# note", "10.0.0.1 teid=2"] }),
            "sessions[2]: 10.0.0.1 already has a session",
        ),
        (
            json!({ "sessions": ["10.0.0.1 teid=1", "10.0.0.2 teid=1"] }),
            "sessions[1]: teid 0x1 belongs to another session",
        ),
        (json!({ "sessions": ["10.0.0.1"] }), "sessions[0]: the tunnel is missing"),
        (json!({ "sessions": "no-such-file" }), "sessions: cannot read 'no-such-file'"),
        (json!({ "rules": ["1 tcp", "x"] }), "rules[1]: 'x' is not a rule number"),
        (json!({ "limit": 0 }), "limit: 0: allowed are 1 to 16777216"),
        (
            json!({ "limit": 1, "sessions": ["10.0.0.1 teid=1", "10.0.0.2 teid=2"] }),
            "the table is full with 1 session, the most that the state allows",
        ),
        (
            json!({ "bearers": 1, "sessions": ["10.0.0.1 teid=1 bearer filter=1,tcp"] }),
            "2 bearers in addition to the 0",
        ),
        (json!({ "rules_per_user": 65 }), "rules_per_user: 65: allowed are 1 to 64"),
        (json!({ "burst": "1us" }), "burst: "),
    ] {
        let error = environment(params).err().expect(part);
        assert!(error.contains(part), "{part}: {error}");
    }
    let many: Vec<&str> = vec!["x"; 30];
    assert!(environment(json!({ "sessions": many })).err().expect("x").contains("10 further errors"));
}

#[test]
fn slots_are_reused_only_when_no_worker_reads_them() {
    let bench = Bench::new(json!({ "limit": 2, "bearers": 2, "sessions": ["10.0.0.1 teid=1", "10.0.0.2 teid=2"] }));
    assert!(bench.change("add 10.0.0.3 teid=3").expect_err("full").contains("the table is full with 2 sessions"));
    // Many changes in one batch: each session needs the slot of the session before it.
    let changes: Vec<String> = (0..50)
        .flat_map(|n| [format!("remove 10.0.{n}.1"), format!("add 10.0.{}.1 teid={}", n + 1, n + 100)])
        .collect();
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let outcome = bench.table("sessions").apply(&changes);
    assert_eq!((outcome.made, outcome.refused), (100, vec![]));
    assert_eq!(bench.table("sessions").len(), 2);
    let error = bench.change("replace 10.0.0.2 teid=2 bearer filter=1,tcp").expect_err("no more bearers");
    assert!(error.contains("2 bearers in addition to the 1"), "{error}");
    assert_eq!(bench.change("replace 10.0.0.2 teid=7"), Ok(()));
}

/// Regression: a slot was given to another user while a worker that was stopped in a call could still count into it.
#[test]
fn slots_that_a_stopped_worker_reads_are_not_reused() {
    let bench = Bench::new(json!({ "limit": 2, "ended": 9, "sessions": ["10.60.0.1 teid=1", "10.60.0.2 teid=2"] }));
    let state =
        Arc::clone(&bench.environment.objects.states["users"]).downcast::<PduSessions>().expect("the state's type");
    // A worker without packets does not read the table.
    let idle = Reader::new(Arc::clone(&state.core.live));
    let mut reader = Reader::new(Arc::clone(&state.core.live));
    let mut setup = SetupEnvironment::new(Frequency::new(1e9));
    let worker = state.worker(Direction::Up, &mut Setup::new("stopped", &mut setup));
    for round in 0..3u8 {
        let (before, after) = (round + 1, round + 3);
        let held = reader.read();
        let number =
            held.by_teid(before.into()).and_then(|bearer| held.bearer(bearer)).expect("the session exists").session;
        assert_eq!(bench.change(&format!("remove 10.60.0.{before}")), Ok(()));
        for _ in 0..2 {
            let error = bench.change(&format!("add 10.60.0.{after} teid={after}")).expect_err("there is no other slot");
            assert!(error.contains("a stopped worker"), "{error}");
        }
        assert_eq!(bench.list("ended").len(), usize::from(round), "its counts are not final");
        worker.writer.charge(number, 0, 100);
        drop(held);
        assert_eq!(bench.change(&format!("add 10.60.0.{after} teid={after}")), Ok(()));
        let ended = format!("{} 10.60.0.{before} rule=other up=1/100B down=0/0B", round + 1);
        assert_eq!(bench.list("ended").last(), Some(&ended), "the count belongs to the old session");
        assert!(bench.list("usage").is_empty(), "and to no other");
    }
    drop(idle);
}

/// Regression: words after a user or a number were ignored.
#[test]
fn words_that_differ_from_the_listed_line_are_refused() {
    let session = "10.60.0.1 teid=0x1 peer=192.0.2.10 peer-teid=0x5";
    let mut bench = Bench::new(json!({ "sessions": [session, "10.60.0.2 teid=2"], "ended": 9 }));
    let listed = bench.list("sessions")[0].clone();
    for wrong in ["10.60.0.1 teid=0x9", "10.60.0.1 10.60.0.2", "10.60.0.1 now please", &format!("{listed} gbr")] {
        let error = bench.change(&format!("remove {wrong}")).expect_err(wrong);
        let word = wrong.split(' ').find(|word| !listed.split(' ').any(|known| known == *word)).expect("a word");
        let part = format!("'{word}' differs from the listed session of 10.60.0.1: write the user alone");
        assert!(error.contains(&part), "{wrong}: {error}");
    }
    assert_eq!(bench.list("sessions").len(), 2);
    bench.up(1, &from_user(1, 80));
    assert_eq!(bench.change(&format!("remove {listed} # as listed")), Ok(()));
    assert_eq!(bench.change("remove 10.60.0.2"), Ok(()));
    let ended = bench.list("ended");
    for (change, refused) in [
        ("remove 1 please".to_owned(), Some("'please' differs from the listed line of 1: write remove 1")),
        (format!("remove {} x", ended[0]), Some("'x' differs from the listed line of 1")),
        (format!("remove {}", ended[0]), None),
    ] {
        let outcome = bench.table("ended").apply(&[&change]);
        let found = outcome.refused.first().map(|refused| refused.message.as_str());
        assert!(found.is_some() == refused.is_some() && found >= refused, "{change}: {found:?}");
    }
    assert!(bench.list("ended").is_empty());
}
