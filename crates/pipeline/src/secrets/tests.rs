use super::*;

/// A key as other programs write it.
const PAIRS: &str = "a0:b1:c2:d3:e4:f5:06:17:28:39:40:51:62:73:84:95";

#[test]
fn settings_are_shown_without_what_may_be_a_key() {
    let key = "a0b1c2d3e4f506172839405162738495";
    for (setting, shown) in [
        ("batch=64", "batch=64"),
        ("ports.in . sink=", "ports.in . sink="),
        ("seed=12345678901234567890", "seed=12345678901234567890"),
        ("nonsense", "nonsense"),
        ("modules.b.counter={}", "modules.b.counter={}"),
        ("modules.m.aes_gcm_encrypt.mtu=9000", "modules.m.aes_gcm_encrypt.mtu=9000"),
        ("modules.m.aes_gcm_encrypt.mtu=a0b1c2d3e4f506172839", "modules.m.aes_gcm_encrypt.mtu=(not shown)"),
        ("modules.m.aes_gcm_encrypt.keys.0.key=hunter2", "modules.m.aes_gcm_encrypt.keys.0.key=(not shown)"),
        ("modules.m.aes_gcm_encryp.keys.0.key=hunter2", "modules.m.aes_gcm_encryp.keys.0.key=(not shown)"),
        ("modules.m.aes_gcm_encrypt.keys.0.hunter2=1", "modules.m.aes_gcm_encrypt.keys.0.(not shown)=1"),
        ("modules.m.aes_gcm_encrypt.keys.0.hunter2=x", "modules.m.aes_gcm_encrypt.keys.0.(not shown)=(not shown)"),
        ("modules.m={esp_decrypt: {associations: [hunter2]}}", "modules.m=(not shown)"),
        ("modules.m.esp_decrypt=hunter2", "modules.m.esp_decrypt=(not shown)"),
        ("modules.m.aes_gcm_encrypt.keys.0.key:hunter2", "(not shown)"),
        (key, "(not shown)"),
        (&format!("{key}=5"), "(not shown)=5"),
        (&format!("name={key}"), "name=(not shown)"),
        (&format!("name={PAIRS}"), "name=(not shown)"),
        (&format!("{PAIRS}=5"), "(not shown)=5"),
        (PAIRS, "(not shown)"),
        ("modules.m.mac_rewrite.source=02:00:00:00:00:01", "modules.m.mac_rewrite.source=02:00:00:00:00:01"),
    ] {
        assert_eq!(shown_setting(setting), shown);
    }
}

#[test]
fn words_of_parameters_with_secrets_are_removed_and_others_are_not() {
    let text = "\
ports: { in: { generator: }, out87654321: { sink: } }
modules:
  seal:
    aes_gcm_encrypt: # tunnels
      keys:
        - { id: 1, key: correcthorse1battery }
        - { id: 2, key: onlyletters, file: keys/site.key }
        - { id: 3, key: 12345678901234567890123456789012 }
  after87654321: { ttl: }
        key: misplaced99
";
    let secret = SecretWords::of(text, &["modules.seal.aes_gcm_encrypt.use=stray99stray".to_owned()]);
    let removed = |message: &str| secret.remove(message);
    for (message, shown) in [
        ("'correcthorse1battery' is wrong", "'(not shown)' is wrong"),
        ("'correcthor…' is wrong", "'(not shown)…' is wrong"),
        ("onlyletters is wrong, onlylettersx is not", "(not shown) is wrong, onlylettersx is not"),
        ("1.2345678901234567e+31 is wrong", "(not shown) is wrong"),
        ("'misplaced99' is wrong", "'(not shown)' is wrong"),
        // After an escaped line feed.
        ("'a\\u000aonlyletters' is wrong", "'a\\u000a(not shown)' is wrong"),
        (
            "'after87654321' and 'out87654321', keys/site.key: allowed",
            "'after87654321' and 'out87654321', keys/site.key: allowed",
        ),
    ] {
        assert_eq!(removed(message), shown);
    }
    let with_pairs = format!("{text}name: {PAIRS}\n");
    let in_pairs = SecretWords::of(&with_pairs, &[]);
    assert_eq!(in_pairs.remove(&format!("name '{PAIRS}' is wrong")), "name '(not shown)' is wrong");
    let sets = [format!("name={PAIRS}")];
    let in_pairs = SecretWords::of(text, &sets);
    assert_eq!(in_pairs.remove(&format!("name '{PAIRS}' is wrong")), "name '(not shown)' is wrong");
    let without = SecretWords::of("modules: { m: { ttl: abcdefgh12345678 } }", &[]);
    assert_eq!(without.remove("abcdefgh12345678"), "abcdefgh12345678");
}

/// The words of a configuration near a secret are hidden as whole words, and names never.
#[test]
fn names_and_paths_near_secrets_are_shown() {
    let text = "\
ports:
  in: { pcap: { read: 9f86d081884c7d659a2feaa0c55ad015 } }
  out-87654321: { sink: }
state: { hunter2hunter2: { routes: { routes: [] } } }
modules:
  gateway1-router: { ip_lookup: { routes: ['2001:db8:aaaa:bbbb:cccc:dddd::/96 99'] } }
  fw-9f86d081884c7d65: { ttl: }
  seal:
    esp_encrypt: # 8-byte windows, gateway2-comment
      source: 192.0.2.1
      associations: { file: gateway1-tunnels }
  open:
    esp_decrypt: { associations: ['0x1001 key=12345678 peer=hunter2hunter2', out-87654321, fw-9f86d081884c7d65] }
";
    let set = "modules.seal.esp_encrypt.associations=onlyletters".to_owned();
    let sets = [set, "modules.x.interface_out.address=a0b1c2d3e4f506172839405162738495".to_owned()];
    let secret = SecretWords::of(text, &sets);
    for message in [
        "modules.gateway1-router.ip_lookup.routes[1]: 2001:db8:aaaa:bbbb:cccc:dddd::/96 goes to 99",
        "'gateway1-router' and 'gateway1-' are no gates of 'fw-9f86d081884c7d65', fw-9f86d081884c7d65.fault",
        "ports.out-87654321: state 'hunter2hunter2' is used by in -> gateway1-router -> out-87654321",
        "9f86d081884c7d659a2feaa0c55ad015 cannot open the capture",
        "modules.seal.esp_encrypt.associations: expected a list of associations, or { file: NAME }",
        "modules.x.interface_out: `address` is missing (The name of a state of the kind `interface`)",
        "8-byte windows of interface_out",
    ] {
        assert_eq!(secret.remove(message), message);
    }
    for (message, shown) in [
        ("'gateway1-tunnels' cannot be read", "'(not shown)' cannot be read"),
        ("gateway1-tun…, gateway1-tux…, gateway1-tun", "(not shown)…, gateway1-tux…, gateway1-tun"),
        ("key=12345678: '-12345678.'", "key=(not shown): '-(not shown).'"),
        ("onlyletters and a0b1c2d3e4", "(not shown) and (not shown)"),
        ("gateway2-comment", "(not shown)"),
        ("af86d0c1884c7e659a2f1aa0c55dd0e5", "(not shown)"),
    ] {
        assert_eq!(secret.remove(message), shown);
    }
}

#[test]
fn a_comment_begins_outside_of_quotes() {
    for (line, code) in [
        ("key: x # y", "key: x "),
        ("key: \"a #b\" # c", "key: \"a #b\" "),
        ("'a #b' c#d", "'a #b' c#d"),
        ("  # a", "  "),
        ("it's # no comment", "it's # no comment"),
        ("", ""),
    ] {
        assert_eq!(&line[..message::start_of_comment(line)], code);
    }
}

/// A long text is searched once, and so is a message.
#[test]
fn long_texts_and_messages_are_searched() {
    let text = format!("modules: {{ m: {{ esp_encrypt: {{ associations: [{}] }} }} }}", "abcdefgh1, ".repeat(20_000));
    let secret = SecretWords::of(&text, &[]);
    assert_eq!(secret.remove(&"abcdefgh1 ".repeat(10_000)), "(not shown) ".repeat(10_000));
    assert_eq!(secret.remove(&"abcdefgh… ".repeat(10_000)), "(not shown)… ".repeat(10_000));
    let line = " \" # ' # ".repeat(20_000);
    assert_eq!(SecretWords::of(&format!("esp_encrypt: {line}"), &[]).remove("as it is"), "as it is");
}
