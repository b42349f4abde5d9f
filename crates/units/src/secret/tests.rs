use super::*;

/// Returns a key with a separator after each two digits.
fn pairs(key: &str, between: &str) -> String {
    groups(key, 2, between)
}

/// Returns a key in groups of digits with a separator.
fn groups(key: &str, digits: usize, between: &str) -> String {
    let groups: Vec<&str> = (0..key.len()).step_by(digits).map(|at| &key[at..at + digits]).collect();
    groups.join(between)
}

#[test]
fn words_of_many_digits_are_hidden_and_others_are_not() {
    let key = "a0b1c2d3e4f506172839405162738495";
    for (text, shown) in [
        (format!("'{key}' is no list"), "'(not shown)' is no list"),
        (format!("key={key}zz peer=192.0.2.1"), "key=(not shown) peer=192.0.2.1"),
        ("1.2345678901234568e31".to_owned(), "(not shown)"),
        (
            "batch 64 of 02:00:00:00:00:01 in café: 2001:db8::1".to_owned(),
            "batch 64 of 02:00:00:00:00:01 in café: 2001:db8::1",
        ),
        (String::new(), ""),
        ("hop=99999999999999999999+1".to_owned(), "hop=99999999999999999999+1"),
        ("from 1 to 18446744073709551615, 4096".to_owned(), "from 1 to 18446744073709551615, 4096"),
        (format!("'{}' is no list", pairs(key, " ")), "'(not shown)' is no list"),
        (format!("'{}' is no list", pairs(key, ",")), "'(not shown)' is no list"),
        (format!("'0x{}' is no list", pairs(key, ", 0x")), "'(not shown)' is no list"),
        (format!("'\\x{}' is no list", pairs(key, "\\x")), "'\\x(not shown)' is no list"),
        ("'A0B1C2D3 E4F50617 28394051' is é".to_owned(), "'(not shown)' is é"),
        ("'a0b1 c2d3 e4f5 0617' 'a0b1 c2d3 e4f5 0617'".to_owned(), "'(not shown)' '(not shown)'"),
        (
            "02:00:00:00:00:0a, 02:00:00:00:00:0b, 02:00:00:00:00:0c".to_owned(),
            "02:00:00:00:00:0a, 02:00:00:00:00:0b, 02:00:00:00:00:0c",
        ),
        ("allowed are 10, 20, 30, 40, 50, 60, 70, 80, 90".to_owned(), "allowed are 10, 20, 30, 40, 50, 60, 70, 80, 90"),
        (format!("'{}' is no list", pairs(key, ":")), "'(not shown)' is no list"),
        (format!("key:{} is no list", pairs(key, "-")), "key:(not shown) is no list"),
        (
            "2001:db8:10:20:30:40:50:60 and 00-1b-21-aa-bb-cc".to_owned(),
            "2001:db8:10:20:30:40:50:60 and 00-1b-21-aa-bb-cc",
        ),
    ] {
        assert_eq!(without_keys(&text), shown);
    }
}

/// Messages of older builds in which a part of an address or a name was hidden.
#[test]
fn addresses_uuids_and_files_are_shown() {
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    for text in [
        "modules.r.ip_lookup.routes[1]: 2001:db8:aaaa:bbbb:cccc:dddd::/96 goes to 99",
        "'fd00:1234:5678:9abc:def0:1234:5678:9a/129' is no address of an interface",
        "network namespace 'cni-3f2504e0-4f89-41d3-9a0c-0305e82c3301' does not exist",
        &format!("{hash}.pcap cannot open the capture"),
        // More of each kind.
        "peer=2001:db8:aaaa:bbbb:cccc:dddd:eeee:1: not there",
        "route:2001:db8:aaaa:bbbb:cccc:dddd:eeee:1, [fe80::a8bb:ccff:fedd:eeff]:53.",
        "2001:db8:aaaa:bbbb:cccc:dddd:10.0.0.1/1000 and fe80::aabb:ccff:fedd:eeff%eth0",
        "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "2001:db8:aaaa:bbbb:cccc:dddd:: is the end of 2001:db8:aaaa:bbbb:cccc:dddd::.",
        "2001:db8:aaaa:bbbb:cccc:dddd::1-2001:db8:aaaa:bbbb:cccc:dddd::9",
        "3F2504E0-4F89-41D3-9A0C-0305E82C3301: no such port",
        &format!("{hash}.pcap.gz, captures/{hash}.pcapng: {hash}.yaml:12: and {hash}.rules."),
        &format!("cannot read '/var/{hash}/config', ./{hash}/data or ~/{hash}/b"),
    ] {
        assert_eq!(without_keys(text), text);
    }
}

/// A key that almost has the form of an address or a name is hidden.
#[test]
fn keys_in_the_form_of_an_address_or_a_name_are_hidden() {
    let key = "a0b1c2d3e4f506172839405162738495";
    for (text, shown) in [
        (groups(key, 4, ":"), HIDDEN),
        (format!("key={}/96", groups(key, 4, ":")), "key=(not shown)/96"),
        (groups(key, 8, "-"), HIDDEN),
        (groups(key, 8, ":"), HIDDEN),
        (pairs(&key[..16], ":"), HIDDEN),
        (groups(&key.repeat(2), 4, ":"), HIDDEN),
        (format!("{key}.key"), HIDDEN),
        (format!("{key}/24"), "(not shown)/24"),
        (format!("192.0.2.1/{key}"), "192.0.2.1/(not shown)"),
        (format!("/{key}"), "/(not shown)"),
        (format!("/srv/{key}: cannot be read"), "/srv/(not shown): cannot be read"),
        (
            format!("modules.seal.aes_gcm_encrypt.keys.0.{key}: no"),
            "modules.seal.aes_gcm_encrypt.keys.0.(not shown): no",
        ),
        (format!("3f2504e0-4f89-41d3-9a0c-0305e82c3301-{key}"), "3f2504e0-4f89-41d3-9a0c-0305e82c3301(not shown)"),
    ] {
        assert_eq!(without_keys(&text), shown, "{text}");
    }
    assert!(is_key(key) && is_key(&groups(key, 4, ":")) && is_key(&format!("{key}.pcap")));
    assert!(!is_key("2001:db8:aaaa:bbbb:cccc:dddd::1") && !is_key("3f2504e0-4f89-41d3-9a0c-0305e82c3301"));
}

#[test]
fn names_that_are_known_are_shown() {
    let names = ["fw-9f86d081884c7d65", "9f86d081884c7d659a2feaa0c55ad015"].map(str::to_owned).into();
    let text = "modules.fw-9f86d081884c7d65.acl: 9f86d081884c7d659a2feaa0c55ad015: cannot open";
    assert_eq!(without_keys_but(text, &names), text);
    let one = "'fw-9f86d081884c7d65' is not a name";
    assert_eq!(
        (without_keys_but(one, &names).as_str(), without_keys(one).as_str()),
        (one, "'(not shown)' is not a name")
    );
    assert_eq!(without_keys(text), "modules.fw-9f86d081884c7d65.acl: (not shown): cannot open");
}

/// Regression: a number with 16 digits behind its point was hidden.
#[test]
fn a_number_with_an_exponent_is_shown() {
    for text in ["seed: '1.8446744073709552e+19' is out of range", "x: 1.2345678901234567e-200: allowed are 0 to 1"] {
        assert_eq!(without_keys(text), text);
    }
    for text in ["8446744073709552e", "a.8446744073709552e+19", "1.8446744073709552e+a0b1"] {
        assert_eq!(without_keys(text), HIDDEN);
    }
}

#[test]
fn a_path_to_something_is_shown() {
    let folder = std::env::temp_dir().join("a0b1c2d3e4f506172839405162738495");
    let text = format!("{}: a folder", folder.display());
    assert!(without_keys(&text).contains(HIDDEN));
    std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
    assert_eq!(without_keys(&text), text);
    std::fs::remove_dir(&folder).expect("it exists");
}

/// A run that ends inside another one: its last group is the first group of a key.
#[test]
fn a_key_behind_other_groups_is_hidden() {
    let key = "a0b1c2d3e4f506172839405162738495";
    for (text, shown) in [
        (format!("10 20 {}", pairs(key, ":")), "10 20 (not shown)"),
        (format!("10, 20, {}", groups(key, 4, " ")), "10, 20, (not shown)"),
        (format!("{}\n10 20", pairs(key, ", ")), "(not shown)\n10 20"),
        (format!("x{}", groups(key, 8, " ")), HIDDEN),
        (format!("10 x{} 10", groups(key, 8, " ")), "10 (not shown)"),
        (format!("{} {} x", groups(&key[..16], 4, " "), &key[..20]), "(not shown) (not shown) x"),
        (format!("é {} é", groups(key, 8, " ")), "é (not shown) é"),
        (format!("10.10.{}x10", groups(key, 8, "_")), "10.10.(not shown)"),
    ] {
        assert_eq!(without_keys(&text), shown, "{text}");
    }
}

/// The first text once caused a stack overflow, the next ones took hours. The rest exercise the other searches.
#[test]
fn a_megabyte_of_groups_is_read_once() {
    const SIZE: usize = 1 << 20;
    for (part, size, hidden) in [
        ("a0b1c2d3 e4f50617 28394051 x ", SIZE, true),
        ("10 ", SIZE, false),
        ("10:", SIZE / 2, false),
        ("10, ", SIZE / 16, false),
        ("0x10,", SIZE / 16, false),
        ("\\x10", SIZE / 16, false),
        ("ab cd ", SIZE / 16, true),
        ("ab cd:", SIZE / 16, false),
        ("a", SIZE / 16, true),
        ("::", SIZE / 16, false),
        ("1:", SIZE / 16, false),
        ("/", SIZE / 16, false),
        ("3f2504e0-4f89-41d3-9a0c-0305e82c3301-", SIZE / 16, false),
        ("2001:db8::1 ", SIZE / 16, false),
    ] {
        let text = part.repeat(size / part.len());
        let (keys, steps) = find(&text, &HashSet::new());
        // A group has two digits and a separator. Two runs share at most one group.
        assert!(steps <= 2 * text.len() / 3 + 1, "{part}: {steps} groups read in {} bytes", text.len());
        assert_eq!(!keys.is_empty(), hidden, "{part}");
    }
    let text = "a0b1c2d3 e4f50617 28394051 x ".repeat(1000);
    assert_eq!(without_keys(&text), "(not shown) x ".repeat(1000));
}

#[test]
fn any_text_is_searched() {
    for text in ["", "é", "\\x", "0x", "ab", "é0xab é", "a0b1:c2d3:", "1:2:3:4:5:6:7:8", "::", ":", "-", ".", "a.txt/"]
    {
        fuzz_secret(text.as_bytes());
        fuzz_secret(text.repeat(40).as_bytes());
    }
}

proptest::proptest! {
    #[test]
    fn made_texts_are_searched(text in "([a0f1]{1,9}|0x|[ ,:._/-]|\\\\x|é|x|[0-9a-f]{32}){0,60}") {
        fuzz_secret(text.as_bytes());
    }
}
