//! Keys in the wrong place, or of the wrong type. No output shows them.

use crate::forebay;

#[test]
fn no_error_shows_a_key_in_a_wrong_place() {
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
            "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}\nmodules: {{ m: {{ {module} }} }}\n\
                pipeline: [ in -> m -> out ]\n"
        ));
        let done = forebay(&["check", file.path.to_str().expect("UTF-8")]);
        let printed = format!("{}{}", done.out, done.err).replace('.', "");
        assert!(done.code == Some(2) && !printed.contains(&key[..8]), "{module}: {printed}");
    }
}

/// Checks the responses of a running pipeline to table changes, reloads, and all requests for reports.
#[test]
fn no_response_of_a_running_pipeline_shows_a_key() {
    let key = "a0b1c2d3e4f506172839405162738495a6b7c8d9";
    let text = format!(
        "ports: {{ in: {{ generator: {{ rate: 10kpps }} }}, out: {{ sink: }} }}\nmodules:\n  m:\n    \
            esp_encrypt:\n      source: 192.0.2.1\n      associations: ['0x1001 key={key} peer=192.0.2.2 \
                for=0.0.0.0/0']\npipeline: [ in -> m -> out ]\n"
    );
    let running = crate::running::Running::as_service(&text, &[]);
    let change = |change: &str| vec!["table".to_owned(), "m".to_owned(), change.replace("KEY", key)];
    let set = |set: &str| vec!["reload".to_owned(), "--set".to_owned(), set.replace("KEY", key)];
    let show = |what: &[&str]| [&["show"], what].concat().into_iter().map(str::to_owned).collect();
    // Each request with its exit code: 1 if the table refuses the change, 2 if the request is refused earlier, 0 if it
    // succeeds.
    let requests: Vec<(i32, Vec<String>)> = vec![
        (1, change("KEY")),
        (1, change("add KEY")),
        (1, change("add 0x1002 KEY peer=192.0.2.2")),
        (1, change("add 0x1002 key=KEYzz peer=KEY")),
        (1, change("add 0x1002 key=KEY peer=KEY for=KEY")),
        (2, change("add 0x1002 key=KEY peer=192.0.2.2\nKEY")),
        (1, change("remove KEY")),
        (2, set("KEY")),
        (2, set("modules.m.esp_encrypt.associations.0=KEY")),
        (2, set("modules.m.esp_encrypt.associations=[KEY]")),
        (0, set("modules.m.esp_encrypt.associations=['0x1003 key=KEY peer=192.0.2.2']")),
        (2, set("modules.m.esp_encrypt.associations={KEY")),
        (2, vec!["reload".to_owned(), key.to_owned()]),
        (2, vec!["reload".to_owned(), format!("usecase:{key}")]),
        (2, vec!["table".to_owned(), key.to_owned(), "KEY".to_owned()]),
        (2, show(&["table", key])),
        (0, show(&["modules"])),
        (0, show(&["modules", "--json"])),
        (0, show(&["tables"])),
        (0, show(&["table", "m"])),
        (0, show(&["trace"])),
        (0, show(&["config"])),
        (0, show(&["config", "--json"])),
        (0, show(&["control"])),
        (0, vec!["drops".to_owned(), "--duration".to_owned(), "1ms".to_owned()]),
        (2, vec!["drops".to_owned(), "--filter".to_owned(), key.to_owned()]),
        (0, vec!["graph".to_owned()]),
        (0, vec!["graph".to_owned(), "--json".to_owned()]),
        (0, vec!["reload".to_owned(), "--json".to_owned()]),
    ];
    for (code, arguments) in requests {
        let done = running.request(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let all = format!("{}{}", done.out, done.err);
        assert!(!shows(&all, key), "{arguments:?}: {all}");
        assert_eq!(done.code, Some(code), "{arguments:?}: {all}");
    }
    let (code, report, err) = running.end_with();
    assert!(code == Some(0) && !shows(&format!("{report}{err}"), key), "{code:?} {report}{err}");
}

/// The same for AES-GCM, whose keys are not in a table.
#[test]
fn no_response_of_a_running_pipeline_shows_a_key_of_aes_gcm() {
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
        let mut requests: Vec<(i32, Vec<String>)> = [
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
        .map(|set| (2, vec!["reload".to_owned(), "--set".to_owned(), set.replace("KEY", key)]))
        .into();
        for (code, what) in [
            (0, &["show", "modules"][..]),
            (0, &["show", "modules", "--json"]),
            (0, &["show", "drops"]),
            (0, &["show", "config"]),
            (0, &["show", "config", "--json"]),
            (2, &["table", "m", key]),
        ] {
            requests.push((code, what.iter().map(|word| (*word).to_owned()).collect()));
        }
        for (code, arguments) in requests {
            let done = running.request(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            let all = format!("{}{}", done.out, done.err);
            assert!(!shows(&all, key), "{name} {arguments:?}: {all}");
            assert_eq!(done.code, Some(code), "{name} {arguments:?}: {all}");
        }
    }
    let (code, report, err) = running.end_with();
    assert!(code == Some(0) && !shows(&format!("{report}{err}"), key), "{code:?} {report}{err}");
}

/// The same key as other programs write it, with colons.
const PAIRS: &str = "a0:b1:c2:d3:e4:f5:06:17:28:39:40:51:62:73:84:95";

/// Valid keys, for a configuration with another error.
const VALID_KEYS: &str = "[{ id: 1, key: \"00112233445566778899aabbccddeeff\" }]";

/// Returns true if a part of a key can be seen, also with points between its digits as in a number.
fn shows(text: &str, key: &str) -> bool {
    let plain = text.replace('.', "");
    (0..=key.len() - 8).any(|at| key.is_char_boundary(at) && plain.contains(&key[at..at + 8]))
}

/// Checks keys also outside the parameters for secrets.
#[test]
fn a_key_with_colons_is_hidden_like_a_plain_one() {
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
            (VALID_KEYS, "batch: KEY\n"),
            (VALID_KEYS, "KEY: 1\n"),
            (VALID_KEYS, "scheduler: KEY\n"),
            (VALID_KEYS, "control: { KEY: 1 }\n"),
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
        let file = crate::File::new(&text.replace("WITHIN", VALID_KEYS));
        for set in ["batch=KEY", "KEY=1", "KEY", "modules.n.ttl.KEY=1", "modules.KEY.ttl=null", "name=[KEY]"] {
            let done = forebay(&["check", file.path(), "--set", &set.replace("KEY", key)]);
            assert!(!shows(&format!("{}{}", done.out, done.err), key), "{set}: {}{}", done.out, done.err);
        }
    }
}

/// Arguments of every command, with a key in each position. No file or pipeline has this name.
const ARGUMENTS: &[&[&str]] = &[
    &["KEY"],
    &["modules.m.aes_gcm_encrypt.keys.0.key=KEY"],
    &["--KEY"],
    &["help", "KEY"],
    &["run", "KEY"],
    &["run", "usecase:KEY"],
    &["run", "function:KEY"],
    &["run", "usecase:gw", "KEY"],
    &["run", "usecase:gw", "modules.m.aes_gcm_encrypt.keys.0.key=KEY"],
    &["run", "usecase:gw", "--KEY"],
    &["run", "usecase:gw", "--KEY=1"],
    &["run", "usecase:gw", "--set", "KEY"],
    &["run", "usecase:gw", "--set", "KEY="],
    &["run", "usecase:gw", "--set=modules.m.aes_gcm_encrypt.keys.0.key=KEY"],
    &["run", "usecase:gw", "--sett=modules.m.aes_gcm_encrypt.keys.0.key=KEY"],
    &["run", "usecase:gw", "--scheduler", "KEY"],
    &["run", "usecase:gw", "--controller", "KEY"],
    &["run", "usecase:gw", "--workers", "KEY"],
    &["run", "usecase:gw", "--seed", "KEY"],
    &["run", "usecase:gw", "--trigger", "KEY"],
    &["run", "usecase:gw", "--trigger", "KEY=1"],
    &["run", "usecase:gw", "--duration", "KEY"],
    &["run", "usecase:gw", "--core", "KEY"],
    &["run", "usecase:gw", "--socket", "missing/KEY"],
    &["run", "usecase:gw", "--trace", "KEY"],
    &["run", "usecase:gw", "--trace", "1", "--filter", "KEY"],
    &["run", "usecase:gw", "--drops", "missing/KEY"],
    &["run", "usecase:gw", "--interval", "KEY"],
    &["run", "usecase:gw", "--virtual", "--duration", "1ms", "--cost", "KEY"],
    &["run", "usecase:gw", "--virtual", "--duration", "1ms", "--cost", "KEY=1+1"],
    &["run", "usecase:gw", "--virtual", "--duration", "1ms", "--cost", "m=KEY"],
    &["simulate", "KEY"],
    &["simulate", "usecase:gw", "--duration", "KEY"],
    &["simulate", "usecase:gw", "--duration", "1ms", "--cost", "KEY=1+1"],
    &["simulate", "usecase:gw", "--set", "KEY=1"],
    &["measure", "KEY"],
    &["measure", "function:KEY"],
    &["measure", "usecase:gw", "--duration", "KEY"],
    &["measure", "usecase:gw", "--search-time", "KEY"],
    &["measure", "usecase:gw", "--save", "../KEY"],
    &["measure", "handover", "KEY"],
    &["profile", "KEY"],
    &["profile", "ttl", "--batch", "KEY"],
    &["profile", "ttl", "--time", "KEY"],
    &["profile", "--co-runs", "KEY"],
    &["profile", "--co-runs", "ttl", "--passes", "KEY"],
    &["profile", "ttl", "--models", "KEY"],
    &["compare", "KEY", "--store", "missing"],
    &["compare", "KEY", "KEY", "--store", "missing/KEY"],
    &["compare", "x", "--time", "KEY"],
    &["gate", "KEY", "--baseline", "missing"],
    &["gate", "--baseline", "missing/KEY"],
    &["gate", "--baseline", "missing", "--max-ipp", "KEY"],
    &["gate", "--baseline", "missing", "--set", "KEY"],
    &["history", "--store", "missing/KEY"],
    &["history", "--store", "missing", "--pipeline", "KEY"],
    &["history", "--figure", "KEY"],
    &["lab", "KEY"],
    &["lab", "lean", "KEY"],
    &["lab", "batching", "--KEY"],
    &["replay", "KEY"],
    &["replay", "missing", "--guard", "KEY"],
    &["replay", "missing", "--periods", "KEY"],
    &["replay", "missing", "--set", "KEY"],
    &["doctor", "KEY"],
    &["place", "KEY"],
    &["place", "missing/KEY"],
    &["place", "KEY", "--topology", "KEY"],
    &["place", "missing", "--models", "KEY"],
    &["place", "missing", "--set", "KEY"],
    &["topology", "KEY"],
    &["topology", "missing/KEY"],
    &["topology", "KEY.xml"],
    &["topology", "2xKEY"],
    &["topology", "2x4:llc=KEY"],
    &["topology", "2x4:KEY=1"],
    &["topology", "modules.m.aes_gcm_encrypt.keys.0.key=KEY"],
    &["topology", "2x4", "KEY"],
    &["topology", "--KEY"],
    &["topology", "--root", "missing/KEY"],
    &["topology", "2x4", "--root", "KEY"],
    &["topology", "2x4", "--svg", "missing/KEY"],
    &["topology", "--json", "KEY"],
    &["top", "--interval", "KEY"],
    &["top", "--socket", "missing/KEY"],
    &["show", "KEY"],
    &["show", "modules", "--count", "KEY"],
    &["show", "trace", "--filter", "KEY"],
    &["show", "modules", "--socket", "missing/KEY"],
    &["show", "modules", "--json", "--socket", "missing/KEY"],
    &["reload", "--socket", "missing/KEY"],
    &["reload", "--set", "KEY", "--socket", "missing"],
    &["table", "m", "add KEY", "--socket", "missing/KEY"],
    &["table", "m", "--KEY"],
    &["run", "usecase:gw", "--instance", "KEY+"],
    &["show", "config", "--instance", "KEY"],
    &["show", "control", "--instance", "KEY"],
    &["stop", "--instance", "KEY"],
    &["stop", "--timeout", "KEY"],
    &["stop", "--json", "--socket", "missing/KEY"],
    &["drops", "--instance", "KEY"],
    &["drops", "--count", "KEY"],
    &["drops", "--duration", "KEY"],
    &["drops", "--filter", "KEY"],
    &["list", "running", "KEY"],
    &["graph", "KEY"],
    &["graph", "usecase:gw", "--set", "n=KEY"],
    &["graph", "--socket", "missing/KEY"],
    &["check", "KEY"],
    &["check", "usecase:KEY"],
    &["check", "usecase:gw", "--json", "--set", "KEY=1"],
    &["list", "KEY"],
    &["list", "functions", "KEY"],
    &["describe", "KEY"],
    &["describe", "usecase:KEY"],
    &["usecase", "KEY"],
    &["usecase", "gw", "--set", "KEY=1"],
    &["usecase", "gw", "--set", "n=KEY"],
    &["schema", "KEY"],
    &["schema", "topology", "KEY"],
    &["completions", "KEY"],
];

#[test]
fn no_error_about_arguments_shows_a_key() {
    let folder = tempfile::tempdir().expect("a writable folder for temporary files");
    for key in ["a0b1c2d3e4f506172839405162738495", PAIRS] {
        for row in ARGUMENTS {
            let arguments: Vec<_> = row.iter().map(|argument| argument.replace("KEY", key)).collect();
            let mut command = assert_cmd::Command::new(env!("CARGO_BIN_EXE_forebay"));
            command.args(&arguments).current_dir(folder.path()).env("HOME", folder.path());
            let done = crate::CommandResult::of(command.output().expect("the command can be started"));
            let all = format!("{}{}", done.out, done.err);
            assert!(!shows(&all, key), "{arguments:?}: {all}");
            assert_eq!(done.code, Some(2), "{arguments:?}: {all}");
        }
    }
}

/// A secret of letters is recognised by the setting in which it is, even if the command takes no setting.
#[test]
fn no_error_about_arguments_shows_the_value_of_a_secret() {
    for before in [&[][..], &["check"], &["check", "usecase:gw"], &["run", "usecase:gw", "--cost"], &["describe"]] {
        for setting in ["modules.m.aes_gcm_encrypt.keys.0.key=hunter2", "modules.m.esp_encrypt.associations.0=hunter2"]
        {
            let done = forebay(&[before, &[setting]].concat());
            let all = format!("{}{}", done.out, done.err);
            assert!(done.code == Some(2) && !all.contains("hunter2"), "{before:?} {setting}: {all}");
        }
    }
}

/// Regression: parts of long names and addresses were hidden because they have as many digits as a key.
#[test]
fn addresses_names_and_files_are_shown_in_errors() {
    let hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    let uuid = "cni-3f2504e0-4f89-41d3-9a0c-0305e82c3301";
    let ports = "ports: { in: { generator: }, out: { sink: } }";
    let two = format!("modules: {{ {uuid}: {{ ttl: }} }}\npipeline: [ in -> {uuid} -> {uuid}-x -> out ]");
    let route = "2001:db8:a1b2:c3d4:e5f6:a7b8::/96";
    let address = "fd00:a1b2:c3d4:e5f6:a7b8:c9d0:e1f2:1/129";
    for (text, expected) in [
        (
            format!(
                "{ports}
modules: {{ r: {{ ip_lookup: {{ routes: ['{route} 0', '{route} 1'] }} }} }}
pipeline: [ in -> r, 'r[0] -> out', 'r[1] -> out' ]"
            ),
            format!("modules.r.ip_lookup.routes[1]: {route} goes to 1"),
        ),
        (
            format!("state: {{ i: {{ interface: {{ mac: 02:00:00:00:00:01, addresses: ['{address}'] }} }} }}"),
            format!("'{address}' is not an interface address"),
        ),
        (
            format!("ports: {{ in: {{ pcap: {{ read: {hash}.pcap }} }}, out: {{ sink: }} }}\npipeline: [ in -> out ]"),
            format!("{hash}.pcap"),
        ),
        (format!("{ports}\n{two}"), format!("'{uuid}-x'")),
        (
            format!(
                "ports: {{ in: {{ af_packet: {{ interface: lo, namespace: {uuid} }} }}, out: {{ sink: }} }}
pipeline: [ in -> out ]"
            ),
            uuid.to_owned(),
        ),
        (
            format!(
                "{ports}
modules:
  gateway1-router: {{ ttl: {{ x: 1 }} }}
  m: {{ esp_encrypt: {{ source: 192.0.2.1, associations: {{ file: gateway1-tunnels }} }} }}
pipeline: [ in -> gateway1-router -> m -> out ]"
            ),
            "modules.gateway1-router.ttl".to_owned(),
        ),
    ] {
        let file = crate::File::new(&text);
        let done = forebay(&["run", file.path(), "--no-socket", "--no-live", "--duration", "1ms"]);
        assert!(done.code == Some(2) && done.err.contains(&expected), "{expected}: {}", done.err);
    }
    let file = crate::File::new("modules: { m: { esp_encrypt: } }");
    let done = forebay(&["check", file.path(), "--set", "modules.m.esp_encrypt.associations=onlyletters"]);
    assert!(done.err.contains("modules.m.esp_encrypt.associations: expected a list of associations"), "{}", done.err);
    let done = forebay(&["check", &format!("{hash}.yaml")]);
    assert!(done.code == Some(2) && done.err.contains(&format!("{hash}.yaml: cannot be read")), "{}", done.err);
}

/// With a valid configuration, no command prints a key, or writes one to a file other than the state.
#[test]
fn no_command_prints_or_writes_the_key_of_a_valid_configuration() {
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
            std::fs::write(file.beside(name), text).expect("a writable folder");
        }
        let line = format!("0x1001 key={salted} peer=192.0.2.2 for=0.0.0.0/0\n");
        std::fs::write(file.beside("a"), line).expect("a writable folder");
        let existing: std::collections::HashSet<_> = files(&file).into_iter().collect();
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
        for written in files(&file).iter().filter(|path| !existing.contains(*path)) {
            let bytes = std::fs::read(written).expect("it exists");
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
        assert!(!shows(&forebay(how).success(), &salted), "{how:?}");
    }
}

/// Returns all files of a configuration's folder.
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
