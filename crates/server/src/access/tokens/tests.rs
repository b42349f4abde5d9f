use serde_json::json;

use super::super::token::hexadecimal;
use super::*;

const TOKEN: &str = "forebay_0123";

fn entry(name: &str, token: &str, more: Value) -> Value {
    let mut entry = json!({ "name": name, "sha256": hexadecimal(&hash_of(token)), "role": "operator" });
    entry.as_object_mut().expect("a mapping").extend(more.as_object().expect("a mapping").clone());
    entry
}

fn tokens(entries: Vec<Value>) -> Result<Tokens, Vec<String>> {
    let ids = |name: &str| (name == "mona").then_some(1_001);
    let tokens = Tokens::from_value(&json!({ "tokens": entries }), &ids);
    tokens.map_err(|faults| faults.into_iter().map(|fault| fault.text()).collect())
}

fn remote() -> Peer {
    Peer::Remote { address: "127.0.0.1:9".parse().expect("an address"), is_public: false }
}

fn at(time: &str) -> Timestamp {
    time.parse().expect("a time")
}

#[test]
fn a_token_has_the_rights_of_its_entry_until_it_ends() {
    let of = |expires: &str| tokens(vec![entry("a", TOKEN, json!({ "expires": expires }))]).expect("tokens");
    let now = at("2026-12-31T23:59:59Z");
    let access = of("2026-12-31").access(TOKEN, &remote(), now).expect("access");
    assert_eq!(
        access,
        Access::Token {
            name: "a".to_owned(),
            user: None,
            role: Role::Operator,
            expires: Some(at("2027-01-01T00:00:00Z"))
        }
    );
    assert!(access.is(Role::Viewer) && access.is(Role::Operator) && !access.is(Role::Admin));
    let expired = Err(TokensError::Expired);
    assert_eq!(of("2026-12-31").access(TOKEN, &remote(), at("2027-01-01T00:00:00Z")), expired);
    assert_eq!(of("2026-12-31T23:59:59Z").access(TOKEN, &remote(), now), expired);
}

#[test]
fn any_other_text_is_no_token() {
    let tokens = tokens(vec![entry("a", TOKEN, json!({})), entry("b", "other", json!({}))]).expect("tokens");
    let now = at("2026-01-01T00:00:00Z");
    for text in ["", "forebay_012", "forebay_01234", "Forebay_0123", " forebay_0123", &hexadecimal(&hash_of(TOKEN))] {
        assert_eq!(tokens.access(text, &remote(), now), Err(TokensError::Unknown), "{text}");
    }
    assert_eq!(Tokens::default().access("", &remote(), now), Err(TokensError::Unknown));
}

#[test]
fn a_token_of_a_user_is_refused_at_the_socket_of_another() {
    let tokens = tokens(vec![entry("a", TOKEN, json!({ "user": "mona" }))]).expect("tokens");
    let at_socket = |uid| tokens.access(TOKEN, &Peer::Local { uid, pid: None }, at("2026-01-01T00:00:00Z"));
    assert!(at_socket(1_001).is_ok() && at_socket(0).is_ok());
    assert_eq!(at_socket(1_002), Err(TokensError::OtherUser));
    assert!(tokens.access(TOKEN, &remote(), at("2026-01-01T00:00:00Z")).is_ok());
}

#[test]
fn all_faults_of_entries_are_reported() {
    let faults = tokens(vec![
        entry("a", TOKEN, json!({ "expires": "tomorrow" })),
        entry("a", TOKEN, json!({ "user": "no-such-user" })),
        entry("b", "other", json!({ "expires": "2026-02-30" })),
    ])
    .expect_err("faults");
    let places: Vec<_> = faults.iter().map(|fault| fault.split(": ").next().expect("a place")).collect();
    assert_eq!(
        places,
        ["tokens[0].expires", "tokens[1].name", "tokens[1].sha256", "tokens[1].user", "tokens[2].expires"]
    );
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().expect("a file");
    let own = file.path().metadata().expect("a file").uid();
    for (mode, is_allowed) in
        [(0o600, true), (0o400, true), (0o640, false), (0o604, false), (0o620, false), (0o644, false)]
    {
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).expect("own file");
        assert_eq!(check_file(file.path(), own).is_ok(), is_allowed, "{mode:o}");
    }
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o600)).expect("own file");
    if own != 0 {
        assert!(check_file(file.path(), own + 1).is_err());
    }
    assert!(check_file(Path::new("/nonexistent"), own).is_err());
}
