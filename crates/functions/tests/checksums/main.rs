//! The effect of every function on checksums: a checksum changed by the difference equals a full recomputation, and no
//! function turns a wrong checksum into a correct one.

mod words;

use forebay_functions as _;
use forebay_graph::{Declaration, Gate, Rig, Setup, SetupEnvironment, functions, states};
use forebay_units::Frequency;
use serde_json::{Value, json};

use words::{correct_all, frames, network, of_frame};

fn environment() -> SetupEnvironment {
    let mut all = SetupEnvironment::new(Frequency::new(1e9));
    all.files.base = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    for state in states() {
        let example = serde_saphyr::from_str(state.example).expect("an example is YAML");
        let built = state.build(&example, &mut Setup::new(state.name, &mut all)).expect("an example builds");
        all.objects.states.insert(state.name.to_owned(), built);
    }
    all
}

fn rig(function: &Declaration, params: &Value) -> Rig {
    let mut environment = environment();
    let mut setup = Setup::new(function.name, &mut environment);
    let built = function.build(params, &mut setup);
    let built = built.unwrap_or_else(|error| panic!("{} {params}: {error}", function.name));
    Rig::over(built, setup.finish(), function.creates.len())
}

fn named(name: &str) -> &'static Declaration {
    functions()
        .into_iter()
        .find(|function| function.name == name)
        .unwrap_or_else(|| panic!("'{name}' is not registered"))
}

/// Returns every function with its example, and some with parameters that change more packets.
fn all() -> Vec<(&'static Declaration, Value)> {
    let examples = functions().into_iter().map(|function| {
        let example = serde_saphyr::from_str(function.example).expect("an example is YAML");
        (function, example)
    });
    let wide = |direction: &str| {
        let mappings = json!([
            { "inside": "0.0.0.0/1", "outside": "128.0.0.0/1" },
            { "inside": "128.0.0.0/1", "outside": "0.0.0.0/1" },
        ]);
        json!({ "direction": direction, "mappings": mappings })
    };
    let marks = |class: u8| {
        let rates = json!({ "cir": "1kbps", "cbs": "100B", "pir": "1kbps", "pbs": "100B" });
        json!({ "trtcm": rates, "key": "source", "remark": class })
    };
    let others = [
        ("static_nat", wide("out")),
        ("static_nat", wide("in")),
        ("meter", marks(1)),
        ("meter", marks(4)),
        ("firewall", json!({ "state": "connections", "default": "permit" })),
        ("mtu", json!({ "mtu": 68 })),
    ];
    examples.chain(others.map(|(name, params)| (named(name), params))).collect()
}

/// Returns the frame afterwards, with all frames that the function created.
fn outcome(rig: &mut Rig, frame: &[u8]) -> Vec<Vec<u8>> {
    let mut batch = forebay_packet::Batch::with_capacity(1);
    batch.push(rig.packet(frame)).expect("room");
    let passes = |gate: Gate| matches!(gate.decision(), forebay_graph::Decision::Out(_));
    let is_forwarded = rig.process(&mut batch).into_iter().all(|gate| gate.is_some_and(passes));
    let forwarded = batch.iter().filter(|_| is_forwarded).map(|packet| packet.data().to_vec());
    let made = rig.emitted().into_iter().filter(|(_, gate)| passes(*gate)).map(|(packet, _)| packet.data().to_vec());
    forwarded.chain(made).collect()
}

/// Regression: if all words except one were zero, a checksum changed by the difference did not equal a full
/// recomputation.
#[test]
fn every_change_by_the_difference_equals_a_full_recomputation() {
    let frames = frames();
    let mut changed = std::collections::BTreeSet::new();
    for (function, params) in all() {
        let mut rig = rig(function, &params);
        for frame in &frames {
            for after in outcome(&mut rig, frame) {
                // A shortened copy has the checksums of the whole packet.
                if after.len() < frame.len() && frame.starts_with(&after) {
                    continue;
                }
                for field in of_frame(&after) {
                    let actual = u16::from_be_bytes([after[field.at], after[field.at + 1]]);
                    if actual == field.correct || field.optional && actual == 0 {
                        continue;
                    }
                    let name = (function.name, field.name);
                    panic!(
                        "{name:?}: {actual:04x}, correct is {:04x}: {frame:02x?} became {after:02x?}",
                        field.correct
                    );
                }
                if after != *frame {
                    changed.insert(function.name);
                }
            }
        }
    }
    for name in
        ["aes_gcm_encrypt", "balance", "interface_in", "ip_swap", "meter", "mtu", "nat_out", "static_nat", "ttl"]
    {
        assert!(changed.contains(name), "{name} has changed no frame: {changed:?}");
    }
}

/// Functions that encrypt a packet and put it into a new packet, or that create messages. `ip_checksum` exists to
/// correct checksums.
const EXEMPT: [&str; 3] = ["esp_encrypt", "interface_out", "ip_checksum"];

/// Regression: fragments of a packet with a wrong header checksum had correct checksums.
#[test]
fn no_function_corrects_a_wrong_checksum() {
    let frames: Vec<_> = frames().into_iter().step_by(7).collect();
    for (function, params) in all() {
        let mut rig = rig(function, &params);
        for frame in &frames {
            for number in 0..of_frame(frame).len().min(2) {
                let mut wrong = frame.clone();
                let at = of_frame(frame)[number].at;
                wrong[at] ^= 0x40;
                // This skips the other form of zero, and the value that means no checksum.
                if wrong[at..at + 2] == [0; 2] || wrong[at..at + 2] == [0xff; 2] {
                    continue;
                }
                for after in outcome(&mut rig, &wrong) {
                    let start = network(&wrong).expect("an IP packet");
                    let inside = after.windows(wrong.len() - start).any(|window| *window == wrong[start..]);
                    if inside || EXEMPT.contains(&function.name) {
                        continue;
                    }
                    let fields = of_frame(&after);
                    let Some(field) = fields.get(number) else { continue };
                    let actual = u16::from_be_bytes([after[field.at], after[field.at + 1]]);
                    assert_ne!(
                        actual, field.correct,
                        "{} {}: {wrong:02x?} became {after:02x?}",
                        function.name, field.name
                    );
                }
            }
        }
    }
}

/// A packet in a tunnel that has met congestion on the way is changed when it is taken out (RFC 6040).
#[test]
fn packets_from_tunnels_keep_correct_and_wrong_checksums() {
    let vxlan = (
        ("vxlan_encap", json!({ "source": "192.0.2.7", "peer": "192.0.2.1", "vni": 4096 })),
        ("vxlan_decap", json!({ "vnis": [4096], "local": ["192.0.2.1"] })),
    );
    let tunnels: Vec<String> =
        ["10.0.0.1 0x1001 192.0.2.1", "192.0.2.1 0x1001 192.0.2.1", "2001:db8::/64 0x1001 192.0.2.1"]
            .map(str::to_owned)
            .into();
    let gtpu = (
        ("gtpu_encap", json!({ "source": "192.0.2.7", "tunnels": tunnels })),
        ("gtpu_decap", json!({ "teids": ["0x1001"], "local": ["192.0.2.1"] })),
    );
    for ((encap, to), (decap, from)) in [vxlan, gtpu] {
        let (mut encap, mut decap) = (rig(named(encap), &to), rig(named(decap), &from));
        let mut taken = 0;
        for (frame, wrong) in frames().into_iter().flat_map(|frame| [(frame.clone(), false), (frame, true)]) {
            let mut frame = frame;
            let start = network(&frame).expect("an IP packet");
            // The transport supports congestion notification.
            frame[start + 1] |= if frame[start] >> 4 == 4 { 2 } else { 0x20 };
            correct_all(&mut frame);
            if wrong {
                frame[start + 10] ^= u8::from(frame[start] >> 4 == 4) << 3;
            }
            let (gate, mut outer) = encap.run(&frame);
            if gate != Gate::FIRST {
                continue;
            }
            outer[15] |= 3;
            let correct = of_frame(&outer)[0].correct;
            outer[24..26].copy_from_slice(&correct.to_be_bytes());
            let (gate, inner) = decap.run(&outer);
            if gate != Gate::FIRST {
                continue;
            }
            taken += 1;
            let at = network(&inner).expect("an IP packet");
            assert_eq!(inner[at + 1] & 3 | inner[at + 1] >> 4 & 3, 3, "the inner packet is marked");
            for field in of_frame(&inner) {
                let actual = u16::from_be_bytes([inner[field.at], inner[field.at + 1]]);
                let is_corrupt = wrong && field.name == "IPv4" && field.at == at + 10;
                assert_eq!(actual != field.correct, is_corrupt, "{}: {actual:04x}: {inner:02x?}", field.name);
            }
        }
        assert!(taken > 100, "{taken} frames were in the tunnel");
    }
}

/// A datagram that is encrypted and decrypted is restored, with a checksum that is correct or as wrong as before.
#[test]
fn decrypted_datagrams_have_their_original_checksums() {
    let rig = |name: &str| {
        let function = named(name);
        rig(function, &serde_saphyr::from_str(function.example).expect("an example is YAML"))
    };
    let (mut encrypt, mut decrypt) = (rig("aes_gcm_encrypt"), rig("aes_gcm_decrypt"));
    let mut encrypted = 0;
    for (frame, wrong) in frames().into_iter().flat_map(|frame| [(frame.clone(), 0), (frame, 0x55)]) {
        let mut frame = frame;
        let fields = of_frame(&frame);
        let Some(field) = fields.last().filter(|field| field.name == "UDP") else { continue };
        frame[field.at] ^= wrong;
        // The changed checksum would mean that there is no checksum, or would be the other form of zero, which
        // decryption does not preserve.
        if frame[field.at..field.at + 2] == [0; 2] {
            continue;
        }
        let (gate, hidden) = encrypt.run(&frame);
        if gate != Gate::FIRST || hidden.len() == frame.len() {
            continue;
        }
        encrypted += 1;
        let outer = of_frame(&hidden);
        let is_correct = |field: &words::Field| hidden[field.at..field.at + 2] == field.correct.to_be_bytes();
        assert_eq!(outer.last().is_some_and(is_correct), wrong == 0, "{hidden:02x?}");
        assert_eq!(decrypt.run(&hidden), (Gate::FIRST, frame));
    }
    assert!(encrypted > 100, "{encrypted} datagrams were encrypted");
}
