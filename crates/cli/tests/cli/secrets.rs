//! Keys in the wrong place, or of the wrong type: no error shows one.

use crate::forebay;

#[test]
fn no_error_shows_a_key_wherever_it_stands_by_mistake() {
    let (text, digits) = ("a0b1c2d3e4f506172839405162738495", "12345678901234567890123456789012");
    for (module, key) in [
        ("aes_gcm_encrypt: { keys: [{ id: 1, key: KEY }] }", digits),
        ("aes_gcm_decrypt: { keys: [{ id: 1, key: [KEY] }] }", text),
        ("aes_gcm_encrypt: { keys: [{ id: KEY, key: x }] }", text),
        ("aes_gcm_encrypt: { keys: [{ id: KEY, key: x }] }", digits),
        ("aes_gcm_encrypt: { keys: [KEY] }", text),
        ("aes_gcm_decrypt: { keys: KEY }", text),
        ("aes_gcm_encrypt: KEY", text),
        ("aes_gcm_encrypt: { KEY: }", text),
        ("aes_gcm_encrypt: { keys: [{ id: 1, KEY: }] }", text),
        ("aes_gcm_encrypt: { keys: [{ id: 1, file: KEY }] }", text),
        ("esp_encrypt: { source: 192.0.2.1, associations: [\"0x1001 key=@KEY peer=192.0.2.2\"] }", text),
        ("esp_decrypt: { associations: KEY }", text),
        ("esp_decrypt: { associations: { file: KEY } }", text),
        ("esp_decrypt: { associations: [KEY] }", digits),
    ] {
        let module = module.replace("KEY", key);
        let file = crate::File::new(&format!(
            "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}\nmodules: {{ m: {{ {module} }} }}\npipeline: [ in -> m -> out ]\n"
        ));
        let done = forebay(&["check", file.path.to_str().expect("UTF-8")]);
        let told = format!("{}{}", done.out, done.err).replace('.', "");
        assert!(done.code == Some(2) && !told.contains(&key[..8]), "{module}: {told}");
    }
}
