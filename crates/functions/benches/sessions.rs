//! Measures the ticks of the time-stamp counter per look-up in the session table, in batches of 32, at 85 % of its
//! capacity. The table has each of the sizes of the design, with keys in random order. In the same run, the same keys
//! are looked up in a hash map of the crate `hashbrown` with the same entries, one key at a time, because its interface
//! has no batches.
//!
//! Every round visits all sessions once, so that a table larger than a cache is cold. The figures are the median and
//! the least of several rounds. Run with `cargo bench -p forebay-functions --bench sessions`. With `--record` the
//! figures go into `target/bench.json`.

mod record;

use std::collections::HashMap;
use std::hint::black_box;

use forebay_functions::tables::sessions::{Found, Seed, Session, Sessions, Tuple4};
use forebay_measure::clock::{Clock, Tsc};
use zerocopy::FromZeros;

const BATCH: usize = 32;

/// An entry of the same size as an entry of the address translation.
#[derive(Clone, Copy, FromZeros)]
#[repr(C)]
struct Entry {
    key: Tuple4,
    value: [u32; 9],
}

impl Session for Entry {
    type Key = Tuple4;
    const SIDES: u32 = 1;

    fn key(&self, _: u32) -> Tuple4 {
        self.key
    }
}

fn keys(count: u32) -> Vec<Tuple4> {
    let key = |number: u32| {
        let [_, a, b, c] = (number >> 4).to_be_bytes();
        Tuple4::new([10, a, b, c], [192, 0, 2, (number % 200) as u8], (1_024 + (number % 16) as u16, 443), 6)
    };
    let mut keys: Vec<_> = (0..count).map(key).collect();
    // A shuffle by Fisher and Yates, with a linear congruential generator.
    let mut state = 1u64;
    for at in (1..keys.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        keys.swap(at, (state >> 33) as usize % (at + 1));
    }
    keys
}

/// Returns the ticks per key of each round over all keys, in ascending order.
fn ticks(keys: &[Tuple4], mut look: impl FnMut(&[Tuple4]) -> u64) -> Vec<f64> {
    let rounds = (40_000_000 / keys.len()).clamp(15, 401);
    let mut ticks: Vec<f64> = (0..rounds)
        .map(|_| {
            let start = Tsc.now();
            for keys in keys.chunks_exact(BATCH) {
                black_box(look(black_box(keys)));
            }
            Tsc.now().since(start).0 as f64 / keys.len() as f64
        })
        .collect();
    ticks.sort_by(f64::total_cmp);
    ticks
}

fn main() -> Result<(), String> {
    println!("{:>9} {:>10} {:>8} {:>8} {:>14} {:>8}", "sessions", "table MB", "median", "least", "hashbrown", "least");
    for count in [4_096u32, 1 << 16, 1 << 20] {
        let keys = keys(count);
        let mut table = Sessions::<Entry>::new(count as usize, Seed::new(1)).expect("memory");
        let mut map = HashMap::with_capacity_and_hasher(count as usize, foldhash::fast::RandomState::default());
        for key in &keys {
            let entry = Entry { key: *key, value: [key.ports().0.into(); 9] };
            table.insert(entry, 1_000).expect("as many as it was made for");
            map.insert((key.source(), key.destination(), key.ports(), key.protocol()), entry.value);
        }
        let ours = ticks(&keys, |keys| {
            let mut found = [Found::NONE; BATCH];
            table.find_each(keys, &mut found);
            found.iter().map(|found| u64::from(table.get(*found).value[0])).sum()
        });
        let of_map = ticks(&keys, |keys| {
            let value = |key: &Tuple4| {
                map.get(&(key.source(), key.destination(), key.ports(), key.protocol())).map_or(0, |value| value[0])
            };
            keys.iter().map(|key| u64::from(value(key))).sum()
        });
        let megabytes = table.bytes() as f64 / 1e6;
        let [(median, least), (map, least_of_map)] = [&ours, &of_map].map(|ticks| (ticks[ticks.len() / 2], ticks[0]));
        println!("{count:>9} {megabytes:>10.1} {median:>8.1} {least:>8.1} {map:>14.1} {least_of_map:>8.1}");
        let name = match count {
            4_096 => "session_4k",
            65_536 => "session_64k",
            _ => "session_1m",
        };
        record::record(&[record::Figure { name, ticks: &ours, against: ("hashbrown", map) }])?;
    }
    Ok(())
}
