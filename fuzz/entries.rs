//! The code of each fuzz target. The targets here and the test that replays the corpora both include this file.

use forebay_graph::{Gate, Rig, Setup, SetupEnvironment, functions, states};
use forebay_packet::{
    Batch, MAX_BATCH, SessionKey,
    wire::{gtpu, vxlan},
};
use forebay_units::Frequency;

/// A target's name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target: its name, which is also the folder of its corpus, and its function.
pub const TARGETS: &[Target] = &[
    ("frames", frames),
    ("tunnels", tunnels),
    ("decrypt", decrypt),
    ("routes", forebay_functions::tables::lpm::routes_file::fuzz_routes_file),
    ("rules", forebay_functions::tables::acl::rule_file::fuzz_parse),
    ("capture", capture),
    ("block", forebay_ports::af_packet::block::fuzz_block),
    ("yaml", yaml),
    ("filter", forebay_observe::filter::fuzz_filter),
    ("changes", changes),
    ("baseline", forebay_bench::baseline::fuzz_baseline),
    ("profile", forebay_bench::profile::fuzz_profile),
    ("host", forebay_host::fuzz_files),
    ("topology", forebay_host::fuzz_topology),
    ("chains", forebay_placement::chains::fuzz_chains),
    ("corun", forebay_corun::record::fuzz_records),
    ("registry", forebay_placement::registry::fuzz_registry),
    ("neighbour", forebay_packet::wire::neighbour::fuzz_neighbour),
    ("recording", forebay_control::recording::fuzz_recording),
    ("patterns", forebay_functions::security::dpi::pattern::fuzz_patterns),
    ("nids", forebay_functions::security::nids::parse::fuzz_rules),
    ("matching", matching),
    ("sessions", forebay_functions::mobile::pdu_sessions::fuzz_lines),
    ("selection", forebay_functions::sessions::listing::fuzz_selector),
    ("secret", forebay_graph::secret::fuzz_secret),
    ("server", forebay_server::fuzz_server),
];

/// Sends frames through the example of every function; each frame is preceded by its length in one byte. Every packet
/// must get a gate or be held, and nothing may panic.
pub fn frames(bytes: &[u8]) {
    thread_local! {
        static RIGS: std::cell::RefCell<Vec<Rig>> = std::cell::RefCell::new(rigs());
    }
    RIGS.with_borrow_mut(|rigs| {
        for rig in rigs {
            let mut batch = Batch::with_capacity(MAX_BATCH);
            let mut rest = bytes;
            while let Some((len, after)) = rest.split_first() {
                let (frame, after) = after.split_at(after.len().min(usize::from(*len)));
                if batch.push(rig.packet(frame)).is_err() {
                    break;
                }
                rest = after;
            }
            let before = batch.len();
            let gates = rig.process(&mut batch);
            assert_eq!(gates.len(), before, "every packet has a gate");
            let held = gates.iter().filter(|gate| gate.is_none()).count();
            assert_eq!(batch.len() + held, before, "no packet is lost");
            drop(rig.emitted());
            for index in 0..batch.len() {
                // The effect of a packet before processing, requested for a packet after it: any packet may be used.
                let _ = rig.function.effect(&mut batch[index]);
            }
        }
    });
}

/// Matches frames against rules of `nids`. The input is one rule per line, an empty line, and frames, each preceded by
/// its length in one byte. Rules that cannot be loaded are skipped. Every packet must get a gate and must not change.
/// If the first line is `# state`, rules also use the sessions of a firewall that sees the packets.
pub fn matching(bytes: &[u8]) {
    let Some(end) = bytes.windows(2).position(|pair| pair == b"\n\n") else { return };
    let rules: Vec<_> = String::from_utf8_lossy(&bytes[..end]).lines().take(20).map(str::to_owned).collect();
    let mut all = SetupEnvironment::new(Frequency::new(1e9));
    let with_state = rules.first().is_some_and(|line| line == "# state");
    let mut wall = with_state.then(|| {
        let state = states().into_iter().find(|state| state.name == "connections").expect("it is registered");
        let built = state.build(&serde_json::json!({ "sessions": 4 }), &mut Setup::new("fw", &mut all));
        all.objects.states.insert("fw".to_owned(), built.expect("a small table"));
        let params = serde_json::json!({ "state": "fw", "default": "permit" });
        rig_of("firewall", &params, &mut all).expect("parameters")
    });
    let flow = if with_state { serde_json::json!({ "state": "fw" }) } else { "approximate".into() };
    let params = serde_json::json!({ "rules": rules, "unknown": "skip", "skip_drop": true, "flow": flow,
        "steps": 10_000 });
    let Some(mut rig) = rig_of("nids", &params, &mut all) else { return };
    let mut rest = &bytes[end + 2..];
    while let Some((len, after)) = rest.split_first() {
        let (frame, after) = after.split_at(after.len().min(usize::from(*len)));
        if let Some(wall) = &mut wall {
            wall.run(frame);
        }
        let mut batch = Batch::with_capacity(1);
        batch.push(rig.packet(frame)).expect("room for one");
        let gates = rig.process(&mut batch);
        assert!(gates.len() == 1 && gates[0].is_some(), "every packet has a gate");
        assert_eq!(batch[0].data(), frame, "no packet is changed");
        rest = after;
    }
}

/// Returns a registered function with these parameters, or `None` if it refuses them.
fn rig_of(name: &str, params: &serde_json::Value, all: &mut SetupEnvironment) -> Option<Rig> {
    let function = functions().into_iter().find(|function| function.name == name).expect("it is registered");
    let mut setup = Setup::new(function.name, all);
    let built = function.build(params, &mut setup).ok()?;
    Some(Rig::over(built, setup.finish(), function.creates.len()))
}

/// Returns every registered function, created from its own example.
fn rigs() -> Vec<Rig> {
    let mut all = SetupEnvironment::new(Frequency::new(1e9));
    all.simulated = true;
    all.files.base = std::env::temp_dir();
    let read = |text: &str| serde_saphyr::from_str(text).expect("examples are tested to be YAML");
    for state in states() {
        let built = state.build(&read(state.example), &mut Setup::new(state.name, &mut all));
        all.objects.states.insert(state.name.to_owned(), built.expect("examples are tested to build"));
    }
    let make = |function: &&'static forebay_graph::Declaration| {
        let mut setup = Setup::new(function.name, &mut all);
        // The tap is left out: it writes a file and does nothing with packets.
        let built = function.build(&read(function.example), &mut setup).expect("examples are tested to build");
        Rig::over(built, setup.finish(), function.creates.len())
    };
    functions().iter().filter(|function| function.name != "tap").map(make).collect()
}

/// The payload of UDP to a tunnel's port, complete and with valid outer headers: tests the parsers, the functions that
/// decapsulate, and the session of the packet. The first byte selects the protocol: even GTP-U, with bit 2 over IPv6;
/// odd VXLAN.
pub fn tunnels(bytes: &[u8]) {
    thread_local! {
        static RIGS: std::cell::RefCell<Vec<Rig>> = std::cell::RefCell::new(decapsulations());
    }
    let Some((which, payload)) = bytes.split_first() else { return };
    let payload = &payload[..payload.len().min(1_400)];
    let vxlan = which & 1 == 1;
    if let Ok(message) = gtpu::Message::parse(payload) {
        assert_eq!(message.payload, &payload[message.payload_at..][..message.payload.len()]);
        let _ = gtpu::Signal::parse(&message);
    }
    let _ = vxlan::Vxlan::parse(payload);
    let udp = (payload.len() as u16 + 8).to_be_bytes();
    let ip = (payload.len() as u16 + 28).to_be_bytes();
    let port = if vxlan { vxlan::PORT } else { gtpu::PORT }.to_be_bytes();
    let six = !vxlan && which & 4 == 4;
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if six {
        frame.extend([0x86, 0xdd, 0x60, which << 4 & 0x30, 0, 0, udp[0], udp[1], 17, 64]);
        frame.extend([0xfd; 32]);
    } else {
        frame.extend([8, 0, 0x45, which & 3, ip[0], ip[1], 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 10, 192, 0, 2, 1]);
    }
    let start = frame.len();
    frame.extend([0x9c, 0x40, port[0], port[1], udp[0], udp[1], 0, 0]);
    frame.extend(payload);
    if six {
        let sum = udp6_checksum(&frame[22..54], &frame[start..]);
        frame[start + 6..start + 8].copy_from_slice(&sum.to_be_bytes());
    }
    RIGS.with_borrow_mut(|rigs| {
        let rig = &mut rigs[usize::from(vxlan)];
        let mut batch = Batch::with_capacity(1);
        let mut packet = rig.packet(&frame);
        let session = packet.session_key();
        assert_ne!(session.symmetric_hash(), 0);
        batch.push(packet).expect("room for one");
        let gates = rig.process(&mut batch);
        assert_eq!((gates.len(), batch.len()), (1, 1), "a gate, and the packet");
        assert!(rig.emitted().len() <= 1, "at most one response");
        if gates[0] == Some(Gate::FIRST) {
            assert!(batch[0].len() <= payload.len() + 14, "the result was inside the packet");
            let known = batch[0].network();
            batch[0].forget_layers();
            assert_eq!(known, batch[0].network(), "known layers are those that parsing finds");
            let whole = batch[0].network_end() == batch[0].len();
            if !vxlan && whole && session.protocol != SessionKey::TUNNEL && !is_tunnel(&session) {
                assert_eq!(session, batch[0].session_key(), "a packet's session is the same in its tunnel");
            }
        }
    });
}

/// Unencrypted frames with valid headers for the functions that decrypt: none may pass. Also parses the bytes as the
/// inside of a packet, as if a sender with the key had sent them. The first byte selects the protocol: 0 UDP to
/// `aes_gcm_decrypt`; 1 ESP over IP; 2 ESP in UDP; with bit 2 over IPv6.
pub fn decrypt(bytes: &[u8]) {
    thread_local! {
        static RIGS: std::cell::RefCell<Vec<Rig>> = std::cell::RefCell::new(decryptions());
    }
    let Some((which, payload)) = bytes.split_first() else { return };
    let payload = &payload[..payload.len().min(1_400)];
    forebay_functions::encryption::esp_decrypt::fuzz_inside(payload);
    let (udp, six) = (which & 3 != 1, which & 4 == 4);
    let mut segment = Vec::new();
    if udp {
        let length = (payload.len() as u16 + 8).to_be_bytes();
        segment.extend([0x11, 0x94, 0x11, 0x94, length[0], length[1], 0, 0]);
    }
    segment.extend(payload);
    let protocol = if udp { 17 } else { 50 };
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if six {
        let length = (segment.len() as u16).to_be_bytes();
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, length[0], length[1], protocol, 64]);
        frame.extend([0xfd; 32]);
    } else {
        let length = (segment.len() as u16 + 20).to_be_bytes();
        frame
            .extend([8, 0, 0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 10, 192, 0, 2, 1]);
    }
    frame.extend(segment);
    RIGS.with_borrow_mut(|rigs| {
        let rig = &mut rigs[usize::from(which & 3 != 0)];
        let (gate, _) = rig.run(&frame);
        assert_ne!(gate, Gate::FIRST, "a tag of 128 bits is not guessed");
        assert!(rig.emitted().is_empty());
    });
}

/// Returns the functions that decrypt: `aes_gcm_decrypt` and `esp_decrypt`.
fn decryptions() -> Vec<Rig> {
    let key = "000102030405060708090a0b0c0d0e0f";
    let make = |name: &str, params: &str| {
        let mut all = SetupEnvironment::new(Frequency::new(1e9));
        let function = functions().into_iter().find(|function| function.name == name).expect("it is registered");
        let mut setup = Setup::new(name, &mut all);
        let params = serde_saphyr::from_str(params).expect("YAML");
        let built = function.build(&params, &mut setup).expect("valid parameters");
        Rig::over(built, setup.finish(), function.creates.len())
    };
    let associations = format!("[\"0x1001 key={key}deadbeef\", \"0x1002 key={key}cafebabe esn\"]");
    vec![
        make("aes_gcm_decrypt", &format!("{{ keys: [{{ id: 1, key: \"{key}\" }}] }}")),
        make("esp_decrypt", &format!("{{ associations: {associations}, udp: 4500 }}")),
    ]
}

/// True if the packets of a session are for a tunnel's endpoint: there are more nested tunnels than are parsed.
fn is_tunnel(session: &SessionKey) -> bool {
    session.protocol == 17 && session.destination_port == gtpu::PORT
}

/// Returns UDP's checksum over IPv6 (RFC 8200 section 8.1), calculated word by word.
fn udp6_checksum(addresses: &[u8], datagram: &[u8]) -> u16 {
    let words = |bytes: &[u8]| -> u32 {
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(addresses) + words(datagram) + datagram.len() as u32 + 17;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    match !(sum as u16) {
        0 => 0xffff,
        sum => sum,
    }
}

/// Returns the two functions that decapsulate, for any tunnel.
fn decapsulations() -> Vec<Rig> {
    let make = |name: &str, params: &str| {
        let mut all = SetupEnvironment::new(Frequency::new(1e9));
        let function = functions().into_iter().find(|function| function.name == name).expect("it is registered");
        let mut setup = Setup::new(name, &mut all);
        let params = serde_saphyr::from_str(params).expect("YAML");
        let built = function.build(&params, &mut setup).expect("valid parameters");
        Rig::over(built, setup.finish(), function.creates.len())
    };
    vec![make("gtpu_decap", "{ teids: 1-65535 }"), make("vxlan_decap", "{}")]
}

/// Reads a capture file of any format.
pub fn capture(bytes: &[u8]) {
    // Any result is valid; the test is that there is one, soon and without a panic.
    drop(forebay_ports::pcap::read_memory(bytes));
}

/// Checks a configuration without running it.
pub fn yaml(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(problems) = forebay_pipeline::check_str(text, &std::env::temp_dir())
    {
        assert!(!problems.is_empty(), "a refusal has a reason");
    }
}

/// Applies changes, one per line, to every table of a function. Each change is made or refused. Afterwards, the entries
/// can be listed page by page, and removed line by line.
pub fn changes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines: Vec<&str> = text.lines().collect();
    for mut rig in rigs() {
        for (name, table) in std::mem::take(&mut rig.declared.tables) {
            let outcome = table.apply(&lines);
            assert_eq!(outcome.made + outcome.refused.len(), lines.len(), "{name}: each change has an outcome");
            let (mut all, mut after) = (Vec::<String>::new(), None);
            loop {
                let page = table.entries(after.as_deref(), 7).expect("a listed entry");
                let Some(last) = page.last() else { break };
                after = Some(last.clone());
                all.extend(page);
            }
            assert_eq!(all.len(), table.len(), "{name}: every entry is listed once");
            // From the last entry on, so that positions do not change.
            let removals: Vec<String> = all.iter().rev().map(|entry| format!("remove {entry}")).collect();
            let removals: Vec<&str> = removals.iter().map(String::as_str).collect();
            assert_eq!(table.apply(&removals).refused, [], "{name}: a listed entry exists");
            assert!(table.is_empty(), "{name}");
        }
    }
}
