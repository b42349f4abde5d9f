//! Tests the requests `config`, `check`, `reload` and `watch`.

use std::path::Path;

use forebay_protocol::check::Checked;
use forebay_protocol::response::Configuration;
use forebay_protocol::{Client, Request, Response};

use crate::{NO_HURRY, with_pipeline};

/// A pipeline with an access list and a file of routes in the folder `folder`.
fn with_files(folder: &Path) -> String {
    std::fs::write(folder.join("routes.txt"), "10.0.0.0/8 0\n").expect("a writable folder");
    format!(
        "
ports: {{ in: {{ generator: {{ rate: 100kpps, destination: 10.0.0.0/8 }} }}, out: {{ sink: {{}} }} }}
modules:
  fw: {{ acl: {{ rules: ['permit any'] }} }}
  seal: {{ aes_gcm_encrypt: {{ keys: [{{ id: 1, key: \"{KEY}\" }}], use: 1 }} }}
  route: {{ ip_lookup: {{ routes: {}/routes.txt }} }}
pipeline: [ in -> fw -> seal -> route -> out ]
",
        folder.display()
    )
}

const KEY: &str = "a0b1c2d3e4f506172839405162738495";

fn config(client: &mut Client) -> Configuration {
    match client.request(&Request::Config {}) {
        Ok(Response::Config(config)) => *config,
        other => panic!("{other:?}"),
    }
}

fn checked(client: &mut Client, text: &str, config_paths: Option<Vec<String>>) -> Checked {
    match client.request(&Request::Check { text: text.to_owned(), config_paths }) {
        Ok(Response::Checked(checked)) => *checked,
        other => panic!("{other:?}"),
    }
}

/// The text that `config` returns can be changed and sent back: `***` keeps the secret, which no response contains.
#[test]
fn a_shown_configuration_can_be_changed_checked_and_loaded() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    with_pipeline(&with_files(folder.path()), NO_HURRY, |path| {
        let mut client = Client::connect(path).expect("it listens");
        let first = config(&mut client);
        assert!(first.text.contains("***") && !first.text.contains(KEY), "{}", first.text);
        let good = checked(&mut client, &first.text, None);
        assert!(good.faults.is_empty(), "{:?}", good.faults);
        assert_eq!((good.modules.len(), good.ports.len()), (3, 2));
        // Every fault has its line, and nothing changes.
        let wrong = first.text.replace("rules: [permit any]", "rules: [permit nothing]").replace("batch", "patch");
        let faults = checked(&mut client, &format!("{wrong}size: 3\n"), None).faults;
        assert!(faults.len() == 2 && faults.iter().all(|fault| fault.line.is_some()), "{faults:?}");
        assert_eq!(config(&mut client).version, first.version);
        let changed = first.text.replace("permit any", "permit tcp from any to any");
        assert_ne!(changed, first.text);
        let reload = Request::Reload {
            file: None,
            text: Some(changed.clone()),
            config_paths: None,
            set: None,
            forget: false,
            if_version: None,
        };
        let Ok(Response::Reloaded(reloaded)) = client.request(&reload) else { panic!("refused") };
        // The function with the key is taken over: its key is the same.
        assert_eq!((reloaded.change.changed, reloaded.change.kept), (vec!["fw".to_owned()], 2));
        let second = config(&mut client);
        assert!(second.text == changed && second.version != first.version && second.changes == 1);
        // A `***` in a place where the configuration has no secret.
        let stranger = changed.replace("id: 1", "id: 9").replace("use: 1", "use: 9");
        let faults = checked(&mut client, &stranger, None).faults;
        assert!(faults.len() == 1 && faults[0].message.contains("in force here, but there is none"), "{faults:?}");
    });
}

/// Files outside the folders of the request are refused before they are read.
#[test]
fn a_request_reads_no_file_outside_its_folders() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    let outside = tempfile::tempdir().expect("a writable folder for temporary files");
    let secret = outside.path().join("shadow");
    std::fs::write(&secret, "root:secret-word:1\n").expect("a writable folder");
    std::os::unix::fs::symlink(&secret, folder.path().join("link")).expect("a writable folder");
    std::os::unix::fs::symlink(outside.path().join("new"), folder.path().join("dangling")).expect("a writable folder");
    let allowed = || Some(vec![folder.path().display().to_string()]);
    with_pipeline(&with_files(folder.path()), NO_HURRY, |path| {
        let mut client = Client::connect(path).expect("it listens");
        let text = config(&mut client).text;
        assert!(checked(&mut client, &text, allowed()).faults.is_empty());
        let inside = folder.path().display().to_string();
        let with_routes = |file: &str| text.replace(&format!("{inside}/routes.txt"), file);
        for file in [
            secret.display().to_string(),
            format!("{inside}/link"),
            format!("{inside}/../{}/shadow", outside.path().file_name().expect("a name").display()),
            format!("{inside}/no-such-folder/../../etc/passwd"),
            "/etc/passwd".to_owned(),
        ] {
            let text = with_routes(&file);
            let faults = checked(&mut client, &text, allowed()).faults;
            assert!(faults.len() == 1 && faults[0].message.contains("is outside the folders"), "{file}: {faults:?}");
            assert!(!faults[0].message.contains("secret-word"), "{faults:?}");
            let reload = Request::Reload {
                file: None,
                text: Some(text),
                config_paths: allowed(),
                set: None,
                forget: false,
                if_version: None,
            };
            let error = client.request(&reload).expect_err("refused").to_string();
            assert!(error.contains("is outside the folders") && !error.contains("secret-word"), "{error}");
        }
        // Files that a port or function would write.
        for file in [format!("{}/out.pcap", outside.path().display()), format!("{inside}/dangling")] {
            let text = text.replace("out: { sink: {} }", &format!("out: {{ pcap: {{ write: {file} }} }}"));
            let text = text.replace("out:\n    sink: {}", &format!("out: {{ pcap: {{ write: {file} }} }}"));
            let faults = checked(&mut client, &text, allowed()).faults;
            assert!(faults.iter().any(|fault| fault.message.contains("is outside the folders")), "{text}: {faults:?}");
        }
        assert!(!outside.path().join("new").exists() && !outside.path().join("out.pcap").exists());
        let file = Request::Reload {
            file: Some(secret.display().to_string()),
            text: None,
            config_paths: allowed(),
            set: None,
            forget: false,
            if_version: None,
        };
        let error = client.request(&file).expect_err("refused").to_string();
        assert!(error.contains("is outside the folders") && !error.contains("secret-word"), "{error}");
    });
}

/// The ticks of a stream add up to the counters, and a change of the configuration sends a full report.
#[test]
fn a_stream_has_a_report_and_then_what_changed() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    with_pipeline(&with_files(folder.path()), NO_HURRY, |path| {
        let mut client = Client::connect(path).expect("it listens");
        assert!(client.request(&Request::Watch { interval_ms: 99 }).is_err());
        assert!(client.request(&Request::Watch { interval_ms: 60_001 }).is_err());
        let mut stream = Client::connect(path).expect("it listens");
        let Ok(Response::Report { whole, census: None, .. }) = stream.stream(&Request::Watch { interval_ms: 100 })
        else {
            panic!("no report")
        };
        let mut whole = *whole;
        let before = whole.packets.out;
        for _ in 0..3 {
            let Ok(Response::Tick(tick)) = stream.response() else { panic!("no tick") };
            assert!(tick.add_to(&mut whole));
        }
        assert!(whole.packets.out > before && whole.modules[0].packets > 0);
        let Ok(Response::Report { whole: later, .. }) =
            client.request(&Request::Report { recent: false, rules: Vec::new(), histograms: false })
        else {
            panic!("no report")
        };
        // The counts of the later report may be larger, because packets continue to arrive.
        let pairs = whole.modules.iter().zip(&later.modules);
        assert!(pairs.into_iter().all(|(summed, read)| summed.packets <= read.packets), "{whole:?}");
        assert!(whole.packets.out <= later.packets.out);
        let text = config(&mut client).text.replace("permit any", "permit tcp from any to any");
        let reload = Request::Reload {
            file: None,
            text: Some(text),
            config_paths: None,
            set: None,
            forget: false,
            if_version: None,
        };
        assert!(matches!(client.request(&reload), Ok(Response::Reloaded(_))));
        let is_report = (0..3).any(|_| matches!(stream.response(), Ok(Response::Report { .. })));
        assert!(is_report, "a reload is followed by a full report");
        assert!(matches!(stream.response(), Ok(Response::Tick(_))));
    });
}
