//! Tests both implementations with the vectors of the specification, and compares them with each other.

use proptest::prelude::*;

use super::*;

fn bytes(hex: &str) -> Vec<u8> {
    Material::from_hex(hex).expect("digits").bytes().to_vec()
}

/// Returns the implementations that this machine supports.
fn backends() -> Vec<Backend> {
    let all = [Backend::Hardware, Backend::Software];
    let available: Vec<_> = all.into_iter().filter(|backend| backend.resolve().is_ok()).collect();
    if available.len() < all.len() {
        // This does not use `println`, whose output the test harness captures.
        let why = format!("skipped: AES-GCM by processor instructions: {NoHardware}");
        drop(std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{why}\n")));
    }
    available
}

/// McGrew and Viega, *The Galois/Counter Mode of Operation*, appendix B: the cases whose nonce has 96 bits.
/// Key, nonce, associated bytes, plaintext, ciphertext, tag.
const CASES: [[&str; 6]; 8] = [
    ["00000000000000000000000000000000", "000000000000000000000000", "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"],
    [
        "00000000000000000000000000000000",
        "000000000000000000000000",
        "",
        "00000000000000000000000000000000",
        "0388dace60b6a392f328c2b971b2fe78",
        "ab6e47d42cec13bdf53a67b21257bddf",
    ],
    [
        "feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
         21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091473f5985",
        "4d5c2af327cd64a62cf35abd2ba6fab4",
    ],
    [
        "feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e\
         21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091",
        "5bc94fbc3221a5db94fae95ae7121a47",
    ],
    [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000",
        "",
        "",
        "",
        "530f8afbc74536b9a963b4f1c4cb738b",
    ],
    [
        "0000000000000000000000000000000000000000000000000000000000000000",
        "000000000000000000000000",
        "",
        "00000000000000000000000000000000",
        "cea7403d4d606b6e074ec5d3baf39d18",
        "d0d1c8a799996bf0265b98b5d48ab919",
    ],
    [
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662898015ad",
        "b094dac5d93471bdec1a502270e3cc6c",
    ],
    [
        "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308",
        "cafebabefacedbaddecaf888",
        "feedfacedeadbeeffeedfacedeadbeefabaddad2",
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
         1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
         8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662",
        "76fc6ece0f4e1768cddf8853bb2d551b",
    ],
];

#[test]
fn the_cases_of_the_specification() {
    for backend in backends() {
        for [key, nonce, associated, plain, cipher, tag] in CASES {
            let key = Key::new(&Material::from_hex(key).expect("digits"), backend).expect("a key");
            assert_eq!(key.backend(), backend);
            let (nonce, associated) = (bytes(nonce).try_into().expect("96 bits"), bytes(associated));
            let mut text = bytes(plain);
            let sealed = key.seal(&nonce, &associated, &mut text);
            assert_eq!((&text, &sealed[..]), (&bytes(cipher), &bytes(tag)[..]), "{backend}");
            assert_eq!(key.open(&nonce, &associated, &mut text, &sealed), Ok(()));
            assert_eq!(text, bytes(plain));
        }
    }
}

#[test]
fn every_flipped_bit_is_seen() {
    for backend in backends() {
        let key = Key::new(&Material::from_hex(CASES[3][0]).expect("digits"), backend).expect("a key");
        let (nonce, associated, mut text) = ([9; NONCE], [1; 8], [2; 33]);
        let tag = key.seal(&nonce, &associated, &mut text);
        let whole = [&nonce[..], &associated, &text, &tag].concat();
        for bit in 0..whole.len() * 8 {
            let mut wrong = whole.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            let (nonce, rest) = wrong.split_first_chunk::<NONCE>().expect("a nonce");
            let (associated, rest) = rest.split_at(8);
            let (text, tag) = rest.split_at(33);
            let opened = key.open(nonce, associated, &mut text.to_vec(), tag.try_into().expect("a tag"));
            assert_eq!(opened, Err(Forged), "{backend}: bit {bit}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_back_ends_agree(
        long: bool, key: [u8; 32], nonce: [u8; NONCE], associated in prop::collection::vec(any::<u8>(), 0..40),
        text in prop::collection::vec(any::<u8>(), 0..1_600),
    ) {
        let key = &key[..if long { 32 } else { 16 }];
        let hex: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        let material = Material::from_hex(&hex).expect("digits");
        let mut seen = None;
        for backend in backends() {
            let key = Key::new(&material, backend).expect("a key");
            let mut sealed = text.clone();
            let tag = key.seal(&nonce, &associated, &mut sealed);
            if let Some(before) = seen.replace((sealed, tag)) {
                prop_assert_eq!(Some(&before), seen.as_ref());
            }
        }
        let (mut sealed, tag) = seen.expect("software is always available");
        let key = Key::new(&material, Backend::Auto).expect("a key");
        prop_assert_eq!(key.open(&nonce, &associated, &mut sealed, &tag), Ok(()));
        prop_assert_eq!(sealed, text);
    }
}

#[test]
fn keys_are_not_shown() {
    let secret = "00112233445566778899aabbccddeeff";
    let material = Material::from_hex(&format!(" 0x{secret}\n")).expect("digits");
    let key = Key::new(&material, Backend::Software).expect("a key");
    let short = Key::new(&Material::from_hex("0011223344").expect("digits"), Backend::Auto).expect_err("too short");
    let errors = [
        Material::from_hex("0011z2").expect_err("z").to_string(),
        Material::from_hex("001").expect_err("odd").to_string(),
    ];
    for shown in [format!("{material:?}"), format!("{key:?}"), short.to_string(), errors.concat()] {
        assert!(!shown.contains("0011") && !shown.contains("z2"), "{shown}");
    }
    assert_eq!(short.to_string(), "5 bytes: allowed are 16 (AES-128) and 32 (AES-256)");
    assert!(errors[0].starts_with("byte 5 of the key is not a hexadecimal digit"));
    let (first, last) = material.split_last(4).expect("16 bytes");
    assert_eq!((first.bytes().len(), last.bytes()), (12, &[0xcc, 0xdd, 0xee, 0xff][..]));
    assert_eq!(material.split_last(17), None);
    assert_ne!(first.fingerprint(), material.fingerprint());
}

#[test]
fn back_ends_have_names() {
    let names = [Backend::Hardware, Backend::Software, Backend::Auto].map(|backend| backend.to_string());
    assert_eq!(names, ["hardware", "software", "auto"]);
    assert_ne!(Backend::Auto.resolve(), Ok(Backend::Auto));
}
