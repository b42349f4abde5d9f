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
        let printed = format!("{}{}", done.out, done.err).replace('.', "");
        assert!(done.code == Some(2) && !printed.contains(&key[..8]), "{module}: {printed}");
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

/// The same of AES-GCM, whose keys are no table.
#[test]
fn no_answer_of_a_running_pipeline_shows_a_key_of_aes_gcm() {
    let (key, digits) = ("a0b1c2d3e4f506172839405162738495", "12345678901234567890123456789012");
    let text = format!(
        "ports: {{ in: {{ generator: {{ rate: 10kpps }} }}, out: {{ sink: }} }}
modules:
  m: {{ aes_gcm_encrypt: {{ keys: [{{ id: 1, key: \"{key}\" }}] }} }}
  n: {{ aes_gcm_decrypt: {{ keys: [{{ id: 1, key: \"{key}\" }}] }} }}
pipeline: [ in -> m -> n -> out ]
"
    );
    let running = crate::running::Running::as_service(&text, &["--trace", "2"]);
    for (name, key) in [("plain", key), ("digits", digits), ("pairs", PAIRS)] {
        let mut asked: Vec<Vec<String>> = [
            "modules.m.aes_gcm_encrypt.keys=[{ id: 2, key: KEYz }]",
            "modules.m.aes_gcm_encrypt.keys=KEY",
            "modules.m.aes_gcm_encrypt.keys.0.key=[KEY]",
            "modules.m.aes_gcm_encrypt.keys.0.id=KEY",
            "modules.m.aes_gcm_encrypt.keys.0.KEY=1",
            "modules.n.aes_gcm_decrypt=KEY",
            "modules.n.KEY=1",
            "modules.KEY=1",
            "KEY",
            "name={KEY",
        ]
        .map(|set| vec!["reload".to_owned(), "--set".to_owned(), set.replace("KEY", key)])
        .into();
        for what in [&["show", "modules"][..], &["show", "modules", "--json"], &["show", "drops"], &["table", "m", key]]
        {
            asked.push(what.iter().map(|word| (*word).to_owned()).collect());
        }
        for arguments in asked {
            let done = running.ask(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            let all = format!("{}{}", done.out, done.err);
            assert!(!shows(&all, key), "{name} {arguments:?}: {all}");
        }
    }
    let (_, report, err) = running.end_with();
    assert!(!shows(&format!("{report}{err}"), key), "{report}{err}");
}

/// The same key as other programs write it, with colons.
const PAIRS: &str = "a0:b1:c2:d3:e4:f5:06:17:28:39:40:51:62:73:84:95";

/// The keys of a configuration that is right but for something else.
const RIGHT: &str = "[{ id: 1, key: \"00112233445566778899aabbccddeeff\" }]";

/// Whether a part of a key can be seen, also with points between its digits, as in a number.
fn shows(text: &str, key: &str) -> bool {
    let plain = text.replace('.', "");
    (0..=key.len() - 8).any(|at| key.is_char_boundary(at) && plain.contains(&key[at..at + 8]))
}

/// Outside the parameters that have a secret.
#[test]
fn a_key_in_pairs_is_hidden_wherever_a_plain_one_is() {
    let plain = PAIRS.replace(':', "");
    let text = "ports: { in: { generator: }, out: { sink: } }
modules: { m: { aes_gcm_encrypt: { keys: WITHIN } }, n: { ttl: } }
pipeline: [ in -> m -> n -> out ]
";
    for key in [PAIRS, &plain] {
        for (within, after) in [
            ("KEY", ""),
            ("[KEY]", ""),
            ("[{ id: 1, key: KEYz }]", ""),
            ("[{ id: KEY, key: \"KEY\" }]", ""),
            ("[{ id: 1, file: KEY }]", ""),
            (RIGHT, "batch: KEY\n"),
            (RIGHT, "KEY: 1\n"),
            (RIGHT, "scheduler: KEY\n"),
            (RIGHT, "control: { KEY: 1 }\n"),
        ] {
            let file = crate::File::new(&format!("{text}{after}").replace("WITHIN", within).replace("KEY", key));
            for how in [&["check"][..], &["check", "--json"], &["run", "--virtual"], &["compare"]] {
                let done = forebay(&[how, &[file.path()]].concat());
                assert!(
                    done.code == Some(2) && !shows(&format!("{}{}", done.out, done.err), key),
                    "{how:?} {within} {after}: {}{}",
                    done.out,
                    done.err
                );
            }
        }
        let file = crate::File::new(&text.replace("WITHIN", RIGHT));
        for set in ["batch=KEY", "KEY=1", "KEY", "modules.n.ttl.KEY=1", "modules.KEY.ttl=null", "name=[KEY]"] {
            let done = forebay(&["check", file.path(), "--set", &set.replace("KEY", key)]);
            assert!(!shows(&format!("{}{}", done.out, done.err), key), "{set}: {}{}", done.out, done.err);
        }
    }
}

/// Right configurations: no command prints a key, or writes one into another file than a record of configurations.
#[test]
fn no_command_prints_or_writes_the_key_of_a_right_configuration() {
    let key = "a0b1c2d3e4f506172839405162738495";
    let salted = format!("{key}a6b7c8d9");
    for module in [
        format!(
            "seal: {{ aes_gcm_encrypt: {{ keys: [{{ id: 1, key: \"{key}\" }}, {{ id: 2, file: k }}], use: 2 }} }}, \
             open: {{ aes_gcm_decrypt: {{ keys: [{{ id: 1, file: k }}, {{ id: 2, key: \"{key}\" }}] }} }}"
        ),
        format!(
            "seal: {{ esp_encrypt: {{ source: 192.0.2.1, \
             associations: ['0x1001 key={salted} peer=192.0.2.2 for=0.0.0.0/0'] }} }}, \
             open: {{ esp_decrypt: {{ \
             associations: ['0x1001 key=@s peer=192.0.2.1 local=192.0.2.2 for=0.0.0.0/0'] }} }}"
        ),
        "seal: { esp_encrypt: { source: 192.0.2.1, associations: { file: a } } }, \
         open: { esp_decrypt: { associations: [] } }"
            .to_owned(),
    ] {
        let file = crate::File::new(&format!(
            "ports: {{ in: {{ generator: {{ rate: 10kpps }} }}, out: {{ sink: }} }}
modules: {{ {module} }}
pipeline: [ in -> seal -> open -> out ]
"
        ));
        // Another key with most digits of this one.
        let other = format!("{}6", &key[..31]);
        for (name, text) in [("k", &other), ("s", &salted)] {
            std::fs::write(file.beside(name), text).expect("a folder that can be written");
        }
        let line = format!("0x1001 key={salted} peer=192.0.2.2 for=0.0.0.0/0\n");
        std::fs::write(file.beside("a"), line).expect("a folder that can be written");
        let given: std::collections::HashSet<_> = files(&file).into_iter().collect();
        let drops = file.beside("drops.pcapng");
        for how in [
            &["check"][..],
            &["check", "--json"],
            &["run", "--virtual", "--duration", "5ms", "--trace", "2", "--drops", &drops],
            &["run", "--virtual", "--duration", "5ms", "--json"],
            &["simulate", "--duration", "5ms", "--cost", "*=100+10"],
            &["simulate", "--duration", "5ms", "--cost", "*=100+10", "--json"],
            &["measure", "--no-count", "--duration", "20ms"],
            &["measure", "--no-count", "--duration", "20ms", "--json"],
        ] {
            let done = forebay(&[&how[..1], &[file.path()], &how[1..]].concat());
            assert!(matches!(done.code, Some(0 | 1)), "{how:?}: {}", done.err);
            assert!(!shows(&format!("{}{}", done.out, done.err), &salted), "{how:?}: {}{}", done.out, done.err);
        }
        for written in files(&file).iter().filter(|path| !given.contains(*path)) {
            let bytes = std::fs::read(written).expect("it is there");
            assert!(!shows(&String::from_utf8_lossy(&bytes), &salted), "{}", written.display());
        }
    }
    for how in [
        &["describe", "aes_gcm_encrypt"][..],
        &["describe", "aes_gcm_decrypt", "--json"],
        &["describe", "esp_encrypt"],
        &["list", "functions", "--json"],
        &["schema"],
    ] {
        assert!(!shows(&forebay(how).well(), &salted), "{how:?}");
    }
}

/// All files of a configuration's folder.
fn files(file: &crate::File) -> Vec<std::path::PathBuf> {
    let (mut folders, mut files) = (vec![file.folder.path().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("it can be read") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files
}
