//! Measures the ticks of the time-stamp counter per packet: `aes_gcm_encrypt` and `aes_gcm_decrypt`, in turns with the
//! function `seal` of the crate `ring` for the same bytes, and the cost of a packet in ESP.
//!
//! Batches of 32, AES-128, median of many passes. The cost of the test rig itself, measured with a function that does
//! nothing, is subtracted. Run with `cargo bench -p forebay-functions --bench aes`. The ratio in each row is to `seal`
//! of `ring` for the same number of bytes. With `--record` the figures of `aes_gcm_encrypt`, with and without UDP
//! checksum, go into `target/bench.json`.

mod record;

use std::hint::black_box;

use forebay_functions::encryption::aes_gcm_decrypt::AesGcmDecrypt;
use forebay_functions::encryption::aes_gcm_encrypt::AesGcmEncrypt;
use forebay_functions::encryption::esp_decrypt::EspDecrypt;
use forebay_functions::encryption::esp_encrypt::EspEncrypt;
use forebay_functions::forwarding::bypass::Bypass;
use forebay_graph::Rig;
use forebay_measure::clock::{Clock, Tsc};
use forebay_packet::Batch;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use serde_json::json;

const BATCH: usize = 32;
const PASSES: usize = 2_001;
const KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// The offset of the payload in a frame.
const HEADERS: usize = 42;

/// Returns a frame of IPv4 and UDP with a payload of `len` bytes. The UDP checksum is correct if `summed`, otherwise 0.
fn frame(len: usize, session: u8, summed: bool) -> Vec<u8> {
    let mut frame = Vec::new();
    let payload: Vec<u8> = (0..len).map(|at| at as u8 ^ session).collect();
    etherparse::PacketBuilder::ethernet2([2; 6], [4; 6])
        .ipv4([198, 51, 100, session], [10, 60, 0, session], 64)
        .udp(1_000, 2_000)
        .write(&mut frame, &payload)
        .expect("memory");
    if !summed {
        frame[40..42].fill(0);
    }
    frame
}

fn batch(rig: &Rig, frames: &[Vec<u8>]) -> Batch {
    let mut batch = Batch::with_capacity(BATCH);
    frames.iter().for_each(|frame| batch.push(rig.packet(frame)).expect("room"));
    batch
}

/// Returns the ticks per packet of one call with these frames.
fn run(rig: &mut Rig, frames: &[Vec<u8>]) -> f64 {
    let mut batch = batch(rig, frames);
    let start = Tsc.now();
    let gates = rig.process(&mut batch);
    let ticks = Tsc.now().since(start).0 as f64 / BATCH as f64;
    assert!(gates.iter().all(|gate| *gate == Some(forebay_graph::Gate::FIRST)), "{gates:?}");
    black_box(&batch);
    ticks
}

/// Returns the frames as the function leaves them.
fn through(rig: &mut Rig, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| rig.run(frame).1).collect()
}

fn median(mut ticks: Vec<f64>) -> f64 {
    ticks.sort_by(f64::total_cmp);
    ticks[ticks.len() / 2]
}

fn row(name: &str, len: usize, ticks: f64, ring: f64) {
    println!("{name:>26} {len:>6} {ticks:>9.1} {:>7.3}", ticks / ring);
}

fn main() -> Result<(), String> {
    let keys = |backend: &str| json!({ "keys": [{ "id": 1, "key": KEY }], "backend": backend });
    let key: Vec<u8> = (0..16).collect();
    let ring = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).expect("16 bytes"));
    println!("{:>26} {:>6} {:>9} {:>7}", "", "bytes", "ticks", "ratio");
    for len in [18, 64, 256, 1_400] {
        let [plain, summed] =
            [false, true].map(|summed| (0..BATCH as u8).map(|at| frame(len, at, summed)).collect::<Vec<_>>());
        let mut empty = Rig::of::<Bypass>(&json!({})).expect("right");
        let mut seal = Rig::of::<AesGcmEncrypt>(&keys("hardware")).expect("right");
        let mut open = Rig::of::<AesGcmDecrypt>(&keys("hardware")).expect("valid parameters");
        let sealed = [&plain, &summed].map(|frames| through(&mut seal, frames));
        let esp = |backend: &str| {
            let line = format!("0x1001 key={KEY}deadbeef peer=192.0.2.10 for=0.0.0.0/0");
            Rig::of::<EspEncrypt>(&json!({ "source": "192.0.2.1", "associations": [line], "backend": backend }))
                .expect("valid parameters")
        };
        let mut into = esp("hardware");
        let mut sent = esp("hardware");
        let line = json!([format!("0x1001 key={KEY}deadbeef")]);
        let mut out =
            Rig::of::<EspDecrypt>(&json!({ "associations": line, "backend": "hardware" })).expect("valid parameters");
        let mut ticks: [Vec<f64>; 8] = Default::default();
        let mut number = 0u64;
        for _ in 0..PASSES {
            let mut packets = batch(&empty, &plain);
            let mut tags = [[0u8; 16]; BATCH];
            let start = Tsc.now();
            for (index, tag) in tags.iter_mut().enumerate() {
                number += 1;
                let mut nonce = [0; 12];
                nonce[4..].copy_from_slice(&number.to_be_bytes());
                let nonce = Nonce::assume_unique_for_key(nonce);
                let text = &mut packets[index].data_mut()[HEADERS..];
                let tag_bytes = ring.seal_in_place_separate_tag(nonce, Aad::empty(), text).expect("short");
                tag.copy_from_slice(tag_bytes.as_ref());
            }
            ticks[0].push(Tsc.now().since(start).0 as f64 / BATCH as f64);
            black_box((&packets, &tags));
            drop(packets);
            ticks[1].push(run(&mut empty, &plain));
            ticks[2].push(run(&mut seal, &plain));
            ticks[3].push(run(&mut seal, &summed));
            ticks[4].push(run(&mut open, &sealed[0]));
            ticks[5].push(run(&mut open, &sealed[1]));
            ticks[6].push(run(&mut into, &plain));
            let fresh = through(&mut sent, &plain);
            ticks[7].push(run(&mut out, &fresh));
        }
        let net = |of: usize| ticks[of].iter().zip(&ticks[1]).map(|(seal, empty)| seal - empty).collect::<Vec<f64>>();
        let (without, with) = (net(2), net(3));
        let [ring, empty, rest @ ..] = ticks.map(median);
        for (of, name, ticks) in [
            (64, "aes_64", &with),
            (64, "aes_64_unsummed", &without),
            (1_400, "aes_1400", &with),
            (1_400, "aes_1400_unsummed", &without),
        ] {
            if of == len {
                record::record(&[record::Figure { name, ticks, against: ("ring's seal", ring) }])?;
            }
        }
        row("ring's seal", len, ring, ring);
        let names = [
            "encrypt, no UDP checksum",
            "encrypt",
            "decrypt, no UDP checksum",
            "decrypt",
            "esp_encrypt",
            "esp_decrypt",
        ];
        for (name, ticks) in names.into_iter().zip(rest) {
            row(name, len, ticks - empty, ring);
        }
        let mut software = Rig::of::<AesGcmEncrypt>(&keys("software")).expect("valid parameters");
        let slow = median((0..101).map(|_| run(&mut software, &plain)).collect());
        row("encrypt, software", len, slow - empty, ring);
    }
    Ok(())
}
