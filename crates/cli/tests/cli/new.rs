//! `forebay new`: templates.

use crate::{File, forebay};

/// Returns the templates that the list names.
fn templates() -> Vec<String> {
    let done = forebay(&["new"]);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let lines = done.out.lines().skip(1).take_while(|line| !line.is_empty());
    lines.filter_map(|line| line.split_whitespace().next().map(str::to_owned)).collect()
}

#[test]
fn each_listed_template_is_valid() {
    let all = templates();
    assert!(all.len() > 5 && all[0] == "office-gateway", "{all:?}");
    for name in all {
        let done = forebay(&["new", &name]);
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{name}");
        assert!(!done.out.contains("yaml-language-server"), "{name}: a schema that is not beside the file");
        assert!(!done.out.contains("\"@"), "{name}: a rule in ClassBench's form");
        let checked = forebay(&["check", File::new(&done.out).path()]);
        assert_eq!(checked.code, Some(0), "{name}: {}", checked.err);
    }
}

#[test]
fn settings_replace_each_occurrence() {
    let done = forebay(&[
        "new",
        "office-gateway",
        "--set",
        "lan=eth1",
        "--set",
        "wan=eth0",
        "--set",
        "office=10.7.0.1/16",
        "--set",
        "server=10.7.3.4",
        "--set",
        "public=198.51.100.9/29",
        "--set",
        "provider=198.51.100.10",
        "--set",
        "office6=2001:db8:9::1/64",
        "--set",
        "public6=2001:db8:8::2/64",
        "--set",
        "provider6=fe80::1",
    ]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    for text in ["enp", "192.168.", "203.0.113.", "2001:db8:1:", "2001:db8:2:"] {
        let remaining = done.out.lines().find(|line| !line.trim().starts_with('#') && line.contains(text));
        assert_eq!(remaining, None, "{text}");
    }
    for text in ["{ interface: eth1, host: false }", "10.7.0.0/16 0", "10.7.0.1/32 1", "\"198.51.100.9:443\""] {
        assert!(done.out.contains(text), "{text}\n{}", done.out);
    }
}

#[test]
fn unknown_templates_and_settings_are_refused_with_the_known_ones() {
    for (arguments, expected) in [
        (&["new", "ofice-gateway"][..], "there is no template 'ofice-gateway' (did you mean 'office-gateway'?)"),
        (&["new", "router", "--set", "lan=x"], "the template router has no setting 'lan': none is allowed"),
        (
            &["new", "office-gateway", "--set", "lam=x"],
            "has no setting 'lam' (did you mean 'lan'?): allowed are lan, wan,",
        ),
        (&["new", "office-gateway", "--set", "office=10.0.0.1"], "--set office=10.0.0.1: write an address with"),
        (&["new", "office-gateway", "--set", "lan=a-very-long-interface"], "is not an interface name"),
        (&["new", "office-gateway", "--set", "office=192.168.1.0/24"], "is the network or broadcast address"),
    ] {
        let done = forebay(arguments);
        assert_eq!((done.code, done.out.as_str()), (Some(2), ""), "{arguments:?}");
        assert!(done.err.contains(expected), "{arguments:?}: {}", done.err);
    }
}
