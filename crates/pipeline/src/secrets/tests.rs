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
    let hidden = Hidden::of(text, &["modules.seal.aes_gcm_encrypt.use=stray99stray".to_owned()]);
    let removed = |message: &str| hidden.remove(message.to_owned());
    for (message, shown) in [
        ("'correcthorse1battery' is wrong", "'(not shown)' is wrong"),
        ("'correcthor…' is wrong", "'(not shown)…' is wrong"),
        ("onlyletters is wrong, onlylettersx is not", "(not shown) is wrong, onlylettersx is not"),
        ("1.2345678901234567e+31 is wrong", "(not shown) is wrong"),
        ("'misplaced99' is wrong", "'(not shown)' is wrong"),
        (
            "'after87654321' and 'out87654321', keys/site.key: allowed",
            "'after87654321' and 'out87654321', keys/site.key: allowed",
        ),
    ] {
        assert_eq!(removed(message), shown);
    }
    let in_pairs = Hidden::of(&format!("{text}name: {PAIRS}\n"), &[]);
    assert_eq!(in_pairs.remove(format!("name '{PAIRS}' is wrong")), "name '(not shown)' is wrong");
    let in_pairs = Hidden::of(text, &[format!("name={PAIRS}")]);
    assert_eq!(in_pairs.remove(format!("name '{PAIRS}' is wrong")), "name '(not shown)' is wrong");
    let without = Hidden::of("modules: { m: { ttl: abcdefgh12345678 } }", &[]);
    assert_eq!(without.remove("abcdefgh12345678".to_owned()), "abcdefgh12345678");
}
