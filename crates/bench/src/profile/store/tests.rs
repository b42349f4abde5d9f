//! Stored files, valid and invalid.

use super::*;
use crate::profile::tests::costed;

fn key() -> Key {
    let build = Build { forebay: "1.2.3".to_owned(), program: "00ff".to_owned() };
    Key { cpu: "A CPU (R) @ 2/3 GHz".to_owned(), build, batch: 32 }
}

fn profile(names: &[&str]) -> Profile {
    let mut profile = Profile::empty(key());
    for (at, name) in names.iter().enumerate() {
        profile.functions.insert((*name).to_owned(), costed((at + 1) as f64 * 1e-9, 2e-9));
    }
    profile
}

fn store() -> (tempfile::TempDir, Store) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Store::at(&folder.path().join("forebay/profile"));
    (folder, store)
}

#[test]
fn a_stored_profile_is_read_back_only_for_its_own_key() {
    let (_folder, store) = store();
    assert_eq!(Profile::stored(&store, &key()).expect("nothing yet"), None);
    let kept = profile(&["acl", "ttl"]);
    let file = kept.keep(&store).expect("a writable folder");
    assert_eq!(file.file_name().and_then(|name| name.to_str()), Some("A-CPU--R----2-3-GHz_1.2.3_00ff_32.json"));
    let read = Profile::stored(&store, &key()).expect("it was kept").expect("it exists");
    assert_eq!(read.key, kept.key);
    assert_eq!(read.functions.keys().collect::<Vec<_>>(), ["acl", "ttl"]);
    for (name, costed) in &kept.functions {
        // Decimal fractions may differ in the last bit after reading.
        let is = &read.functions[name];
        assert!((is.call_s(5.0) / costed.call_s(5.0) - 1.0).abs() < 1e-12, "{is:?}");
        assert_eq!((is.samples, is.at, is.sizes.len()), (costed.samples, costed.at, costed.sizes.len()));
    }
    let others = [
        Key { batch: 64, ..key() },
        Key { cpu: "B".to_owned(), ..key() },
        Key { build: Build { program: "01".to_owned(), ..key().build }, ..key() },
    ];
    for other in others {
        assert_eq!(Profile::stored(&store, &other).expect("a readable store"), None, "{other:?}");
    }
    assert_eq!(fs::read_dir(store.0).expect("a folder").count(), 1, "nothing is left beside it");
}

#[test]
fn storing_a_profile_adds_to_the_existing_file() {
    let (_folder, store) = store();
    profile(&["acl", "ttl"]).keep(&store).expect("a writable folder");
    let mut more = profile(&["counter"]);
    more.functions.insert("ttl".to_owned(), costed(9e-9, 9e-9));
    more.keep(&store).expect("a writable folder");
    let all = Profile::stored(&store, &key()).expect("it was kept").expect("it exists");
    assert_eq!(all.functions.keys().collect::<Vec<_>>(), ["acl", "counter", "ttl"]);
    let nanos = |name: &str| (all.functions[name].t0_s * 1e9).round();
    assert_eq!((nanos("acl"), nanos("ttl")), (1.0, 9.0));
}

#[test]
fn a_broken_or_foreign_file_is_reported_and_can_be_replaced() {
    let (folder, store) = store();
    let file = profile(&["ttl"]).keep(&store).expect("a writable folder");
    let text = fs::read_to_string(&file).expect("it was kept");
    let refusal = |text: &str| {
        fs::write(&file, text).expect("a writable folder");
        let error = Profile::stored(&store, &key()).expect_err("it should not be believed");
        let error = error.to_string();
        assert!(error.starts_with(&folder.path().display().to_string()), "{error}");
        error
    };
    assert!(refusal(&text[..text.len() / 2]).contains("not a profile: EOF"));
    assert!(refusal("").contains("not a profile: EOF"));
    assert!(refusal("{\"schema\": 2}").ends_with("schema 2 is not supported, allowed is 1"));
    let foreign = refusal(&text.replace("A CPU", "B\\u001b CPU"));
    let belongs_to = "it belongs to B\\u001b CPU (R) @ 2/3 GHz, Forebay 1.2.3 (00ff), batches of 32";
    assert!(foreign.contains(belongs_to), "{foreign}");
    let cost = |was: &str, is: &str| {
        assert!(text.contains(was), "{was}: {text}");
        refusal(&text.replace(was, is))
    };
    assert!(cost("\"t0_s\": 1e-9", "\"t0_s\": -1e-9").ends_with("ttl: these costs are impossible"));
    assert!(cost("\"t0_s\": 1e-9", "\"t0_s\": 1e300").ends_with("ttl: these costs are impossible"));
    assert!(cost("\"t1_s\": 2e-9", "\"t1_s\": 1e999").contains("not a profile: "));
    profile(&["acl"]).keep(&store).expect("it is replaced");
    let all = Profile::stored(&store, &key()).expect("it was kept").expect("it exists");
    assert_eq!(all.functions.keys().collect::<Vec<_>>(), ["acl"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a writable folder");
    let store = Store::at(&file.join("forebay/profile"));
    let error = profile(&["ttl"]).keep(&store).expect_err("a file is no folder").to_string();
    assert!(error.ends_with("Not a directory (os error 20)"), "{error}");
    assert_eq!(fs::read(&file).expect("it exists"), b"");
}

/// A read of a pipe blocked the measurement until the pipe had a writer.
#[test]
fn a_pipe_with_the_name_of_a_profile_is_reported_and_kept() {
    let (_folder, store) = store();
    store.ready().expect("a writable folder");
    let file = store.file(&key());
    assert!(std::process::Command::new("mkfifo").arg(&file).status().expect("the command mkfifo").success());
    for outcome in [Profile::stored(&store, &key()).map(drop), profile(&["ttl"]).keep(&store).map(drop)] {
        let error = outcome.expect_err("it is a pipe").to_string();
        assert!(error.ends_with(".json: it is a pipe: allowed are regular files"), "{error}");
    }
    assert!(!fs::metadata(&file).expect("it exists").is_file());
}

#[test]
fn this_program_has_one_key() {
    let one = Key::this(32).expect("this program can be read");
    assert_eq!(one, Key::this(32).expect("this program can be read"));
    assert_eq!(one.build.program.len(), 16);
    let of = |bytes: &[u8]| hash(&mut &bytes[..]).expect("memory can be read");
    assert!(of(b"a") != of(b"b") && of(b"a") == of(b"a"));
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_profile_or_are_refused(bytes in "[-{}\\[\\]\",:0-9a-z_ e.+]{0,200}") {
        fuzz_profile(bytes.as_bytes());
    }
}
