use serde_json::json;

use super::*;

fn faults(value: Value) -> Vec<String> {
    let faults = Settings::from_value(&value).err().unwrap_or_default();
    faults.into_iter().map(|fault| format!("{}: {}", fault.path, fault.message)).collect()
}

#[test]
fn the_defaults_are_valid_and_local() {
    let settings = Settings::from_value(&json!({})).expect("an empty file");
    assert_eq!(settings.addresses(), [Listen::parse("127.0.0.1:9640").expect("an address")]);
    assert!(settings.faults().is_empty());
}

#[test]
fn addresses_are_local_or_public() {
    for (text, is_public) in [
        ("127.0.0.1:1", false),
        ("127.9.9.9:1", false),
        ("localhost:1", false),
        ("[::1]:1", false),
        ("[::ffff:127.0.0.1]:1", false),
        ("unix:/run/a", false),
        ("0.0.0.0:1", true),
        ("[::]:1", true),
        ("192.0.2.1:1", true),
        ("[::ffff:192.0.2.1]:1", true),
    ] {
        assert_eq!(Listen::parse(text).map(|listen| listen.is_public()), Ok(is_public), "{text}");
    }
    for text in [
        "",
        "127.0.0.1",
        "9640",
        "unix:",
        "unix:/",
        "unix:a",
        "example.net:80",
        "127.0.0.1:70000",
        "http://127.0.0.1:1",
    ] {
        let error = Listen::parse(text).expect_err("no address").to_string();
        assert!(error.starts_with(&format!("'{text}': allowed is an IP address with a port")), "{error}");
    }
}

#[test]
fn a_public_address_needs_tls_and_tokens() {
    let tls = json!({ "certificate": "a.pem", "key": "a.key" });
    let of = |more: Value| {
        let mut value = json!({ "listen": ["127.0.0.1:1", "0.0.0.0:1"] });
        value.as_object_mut().expect("a mapping").extend(more.as_object().expect("a mapping").clone());
        faults(value)
    };
    let reached = "listen[1]: 0.0.0.0:1 can be reached from other machines: ";
    assert_eq!(of(json!({})), [format!("{reached}add `tls` and `tokens`, or listen at 127.0.0.1")]);
    assert_eq!(of(json!({ "tls": tls })), [format!("{reached}add `tokens`, or listen at 127.0.0.1")]);
    assert_eq!(of(json!({ "tokens": "t" })), [format!("{reached}add `tls`, or listen at 127.0.0.1")]);
    assert_eq!(of(json!({ "tls": tls, "tokens": "t" })), [""; 0]);
}

#[test]
fn the_interval_has_limits() {
    for (text, is_allowed) in [("249ms", false), ("250ms", true), ("0.5s", true), ("10s", true), ("10.1s", false)] {
        let read = Settings::from_value(&json!({ "interval": text }));
        assert_eq!(read.is_ok(), is_allowed, "{text}");
    }
    assert_eq!(faults(json!({ "interval": "0s" })), ["interval: '0s' is out of range: allowed are 250ms to 10s"]);
    assert_eq!(Settings::default().interval(), Duration::from_secs(1));
}

#[test]
fn all_faults_are_reported_with_their_paths() {
    let wrong = json!({
        "listen": ["x", "127.0.0.1:1", "y"],
        "hosts": ["edge.example.net", "a b", "[::1]"],
        "sockets": ["run"],
        "config_paths": ["/etc", "etc"],
        "limits": { "connections": 10, "viewers": 10 },
    });
    let paths: Vec<_> =
        faults(wrong).iter().map(|fault| fault.split(": ").next().expect("a path").to_owned()).collect();
    assert_eq!(paths, ["listen[0]", "listen[2]", "hosts[1]", "sockets[0]", "config_paths[1]", "limits.viewers"]);
}

#[test]
fn the_schema_has_every_setting_with_a_description() {
    let schema = schema();
    let all = serde_json::to_value(Settings::default()).expect("settings");
    for key in all.as_object().expect("a mapping").keys() {
        let rule = &schema["properties"][key];
        assert!(rule["description"].is_string(), "{key}: {rule}");
    }
    assert_eq!(schema["additionalProperties"], false);
}
