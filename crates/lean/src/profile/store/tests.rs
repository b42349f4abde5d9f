//! Files that were kept, and files that should not be believed.

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
fn what_is_kept_is_read_again_and_by_nobody_else() {
    let (_folder, store) = store();
    assert_eq!(Profile::stored(&store, &key()).expect("nothing yet"), None);
    let kept = profile(&["acl", "ttl"]);
    let file = kept.keep(&store).expect("a writable folder");
    assert_eq!(file.file_name().and_then(|name| name.to_str()), Some("A-CPU--R----2-3-GHz_1.2.3_00ff_32.json"));
    let read = Profile::stored(&store, &key()).expect("it was kept").expect("it is there");
    assert_eq!(read.key, kept.key);
    assert_eq!(read.functions.keys().collect::<Vec<_>>(), ["acl", "ttl"]);
    for (name, costed) in &kept.functions {
        // A decimal fraction need not be read back to the last bit.
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
        assert_eq!(Profile::stored(&store, &other).expect("it is not there"), None, "{other:?}");
    }
    assert_eq!(fs::read_dir(store.0).expect("a folder").count(), 1, "nothing is left beside it");
}

#[test]
fn keeping_adds_to_what_is_there() {
    let (_folder, store) = store();
    profile(&["acl", "ttl"]).keep(&store).expect("a writable folder");
    let mut more = profile(&["counter"]);
    more.functions.insert("ttl".to_owned(), costed(9e-9, 9e-9));
    more.keep(&store).expect("a writable folder");
    let all = Profile::stored(&store, &key()).expect("it was kept").expect("it is there");
    assert_eq!(all.functions.keys().collect::<Vec<_>>(), ["acl", "counter", "ttl"]);
    let nanos = |name: &str| (all.functions[name].t0_s * 1e9).round();
    assert_eq!((nanos("acl"), nanos("ttl")), (1.0, 9.0));
}

#[test]
fn what_is_broken_or_foreign_is_told_and_can_be_replaced() {
    let (folder, store) = store();
    let file = profile(&["ttl"]).keep(&store).expect("a writable folder");
    let text = fs::read_to_string(&file).expect("it was kept");
    let told = |text: &str| {
        fs::write(&file, text).expect("a writable folder");
        let error = Profile::stored(&store, &key()).expect_err("it should not be believed");
        let error = error.to_string();
        assert!(error.starts_with(&folder.path().display().to_string()), "{error}");
        error
    };
    assert!(told(&text[..text.len() / 2]).contains("no profile: EOF"));
    assert!(told("").contains("no profile: EOF"));
    assert!(told("{\"schema\": 2}").ends_with("it is of schema 2, allowed is 1"));
    let foreign = told(&text.replace("A CPU", "B\\u001b CPU"));
    assert!(foreign.contains("it is of B\\u001b CPU (R) @ 2/3 GHz, Forebay 1.2.3 (00ff), batches of 32"), "{foreign}");
    let cost = |was: &str, is: &str| {
        assert!(text.contains(was), "{was}: {text}");
        told(&text.replace(was, is))
    };
    assert!(cost("\"t0_s\": 1e-9", "\"t0_s\": -1e-9").ends_with("ttl: such costs cannot be"));
    assert!(cost("\"t0_s\": 1e-9", "\"t0_s\": 1e300").ends_with("ttl: such costs cannot be"));
    assert!(cost("\"t1_s\": 2e-9", "\"t1_s\": 1e999").contains("no profile: "));
    profile(&["acl"]).keep(&store).expect("it is replaced");
    let all = Profile::stored(&store, &key()).expect("it was kept").expect("it is there");
    assert_eq!(all.functions.keys().collect::<Vec<_>>(), ["acl"]);
}

#[test]
fn a_place_that_cannot_be_written_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    fs::write(&file, "").expect("a writable folder");
    let store = Store::at(&file.join("forebay/profile"));
    let told = profile(&["ttl"]).keep(&store).expect_err("a file is no folder").to_string();
    assert!(told.ends_with("Not a directory (os error 20)"), "{told}");
    assert_eq!(fs::read(&file).expect("it is there"), b"");
}

/// Measuring ended in a wait for the reader of a pipe.
#[test]
fn a_pipe_in_the_place_of_a_profile_is_told_and_left() {
    let (_folder, store) = store();
    store.ready().expect("a writable folder");
    let file = store.file(&key());
    assert!(std::process::Command::new("mkfifo").arg(&file).status().expect("the command mkfifo").success());
    for outcome in [Profile::stored(&store, &key()).map(drop), profile(&["ttl"]).keep(&store).map(drop)] {
        let error = outcome.expect_err("it is a pipe").to_string();
        assert!(error.ends_with(".json: it is a pipe: allowed are regular files"), "{error}");
    }
    assert!(!fs::metadata(&file).expect("it is there").is_file());
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
