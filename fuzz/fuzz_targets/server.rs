//! Fuzz target `server`: see `entries.rs`.
#![no_main]

#[path = "../entries.rs"]
mod entries;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (_, run) = entries::TARGETS.iter().find(|(name, _)| *name == "server").expect("a target of this name");
    run(bytes);
});
