//! Reloads that name the version of the configuration that they replace.

use std::sync::Barrier;

use forebay_protocol::response::Configuration;
use forebay_protocol::{Client, Request, Response};

use crate::running::{PIPELINE, Running};

fn connect(running: &Running) -> Client {
    Client::connect(&running.path("s")).expect("it listens")
}

/// Returns the configuration in force.
fn config(client: &mut Client) -> Configuration {
    match client.request(&Request::Config {}) {
        Ok(Response::Config(config)) => *config,
        other => panic!("{other:?}"),
    }
}

/// Changes to [`PIPELINE`] with this name if the version of the configuration in force is `if_version`. Returns the
/// error of a refused reload.
fn rename(client: &mut Client, name: &str, if_version: &str) -> Result<(), String> {
    let request = Request::Reload {
        file: None,
        text: Some(named(name)),
        config_paths: None,
        set: None,
        forget: false,
        if_version: Some(if_version.to_owned()),
    };
    match client.request(&request) {
        Ok(Response::Reloaded(_)) => Ok(()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns [`PIPELINE`] with a name.
fn named(name: &str) -> String {
    format!("name: {name}\n{PIPELINE}")
}

#[test]
fn a_reload_of_a_stale_version_is_refused_and_changes_nothing() {
    let running = Running::start();
    let mut client = connect(&running);
    let first = config(&mut client);
    // Another client changes the configuration meanwhile.
    running.write(&named("other"));
    running.request(&["reload"]).success();
    let second = config(&mut client);
    let kept = std::fs::read_to_string(running.path("state")).expect("a file");
    let error = rename(&mut client, "own", &first.version).expect_err("stale");
    let expected = format!(
        "the configuration has changed: its version is {}, not {}: read it again (request 'config'), and repeat the \
         change",
        second.version, first.version
    );
    assert_eq!(error, expected);
    // A client may have sent a key in the place of the version.
    let key = "a0b1c2d3e4f506172839405162738495";
    let error = rename(&mut client, "own", key).expect_err("no version");
    assert!(error.contains(&second.version) && !error.contains(&key[..8]), "{error}");
    assert_eq!(config(&mut client), second);
    assert_eq!(running.name(), "other");
    assert_eq!(std::fs::read_to_string(running.path("state")).expect("a file"), kept);
    rename(&mut client, "own", &second.version).expect("the version in force");
    let third = config(&mut client);
    assert!(third.version != second.version && third.changes == 2, "{third:?}");
    assert_eq!(running.name(), "own");
    running.end();
}

/// The version is checked under the lock of reloads. Otherwise both reloads could be accepted, and the first change
/// would be lost.
#[test]
fn of_two_reloads_of_one_version_at_the_same_time_one_is_accepted() {
    let running = Running::start();
    for round in 0..8 {
        let version = config(&mut connect(&running)).version;
        let barrier = Barrier::new(2);
        let (version, barrier) = (&version, &barrier);
        let names = ["a", "b"].map(|client| format!("{client}{round}"));
        let results = std::thread::scope(|scope| {
            let threads = names.each_ref().map(|name| {
                let mut client = connect(&running);
                client.hello().expect("it responds");
                scope.spawn(move || {
                    barrier.wait();
                    rename(&mut client, name, version)
                })
            });
            threads.map(|thread| thread.join().expect("no panic"))
        });
        let (accepted, error) = match &results {
            [Ok(()), Err(error)] => (&names[0], error),
            [Err(error), Ok(())] => (&names[1], error),
            _ => panic!("{results:?}"),
        };
        assert!(error.starts_with("the configuration has changed: "), "{error}");
        assert_eq!(running.name(), *accepted);
    }
    assert_eq!(config(&mut connect(&running)).changes, 8);
    running.end();
}
