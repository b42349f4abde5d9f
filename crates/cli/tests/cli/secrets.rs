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

/// What a running pipeline answers: to changes of its table, to reloads, and to every question about it.
#[test]
fn no_answer_of_a_running_pipeline_shows_a_key() {
    let key = "a0b1c2d3e4f506172839405162738495a6b7c8d9";
    let text = format!(
        "ports: {{ in: {{ generator: {{ rate: 10kpps }} }}, out: {{ sink: }} }}\nmodules:\n  m:\n    esp_encrypt:\n      source: 192.0.2.1\n      associations: ['0x1001 key={key} peer=192.0.2.2 for=0.0.0.0/0']\npipeline: [ in -> m -> out ]\n"
    );
    let running = crate::running::Running::as_service(&text, &[]);
    let change = |change: &str| vec!["table".to_owned(), "m".to_owned(), change.replace("KEY", key)];
    let set = |set: &str| vec!["reload".to_owned(), "--set".to_owned(), set.replace("KEY", key)];
    let show = |what: &[&str]| [&["show"], what].concat().into_iter().map(str::to_owned).collect();
    let asked: Vec<Vec<String>> = vec![
        change("KEY"),
        change("add KEY"),
        change("add 0x1002 KEY peer=192.0.2.2"),
        change("add 0x1002 key=KEYzz peer=KEY"),
        change("add 0x1002 key=KEY peer=KEY for=KEY"),
        change("add 0x1002 key=KEY peer=192.0.2.2\nKEY"),
        change("remove KEY"),
        set("KEY"),
        set("modules.m.esp_encrypt.associations.0=KEY"),
        set("modules.m.esp_encrypt.associations=[KEY]"),
        set("modules.m.esp_encrypt.associations=['0x1003 key=KEY peer=192.0.2.2']"),
        set("modules.m.esp_encrypt.associations={KEY"),
        show(&["modules"]),
        show(&["modules", "--json"]),
        show(&["tables"]),
        show(&["table", "m"]),
        show(&["trace"]),
        vec!["reload".to_owned(), "--json".to_owned()],
    ];
    for arguments in asked {
        let done = running.ask(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let all = format!("{}{}", done.out, done.err);
        assert!((0..=key.len() - 8).all(|at| !all.contains(&key[at..at + 8])), "{arguments:?}: {all}");
    }
    assert!(!running.end().to_string().contains(&key[..8]));
}
