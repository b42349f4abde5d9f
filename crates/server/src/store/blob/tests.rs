//! Tests of the encoding: round trips, sizes, and bytes that are not a sample.

use proptest::prelude::*;

use super::*;

/// Returns the value that is left after rounding.
fn rounded(value: Option<f32>) -> Option<f32> {
    from_hundredths(to_hundredths(value))
}

fn figure() -> impl Strategy<Value = Option<f32>> {
    prop_oneof![Just(None), Just(Some(0.0)), (0.0f32..1e5).prop_map(Some), any::<f32>().prop_map(Some)]
}

fn count() -> impl Strategy<Value = u64> {
    prop_oneof![3 => Just(0), 3 => 0u64..2_000_000, 1 => any::<u64>()]
}

fn module() -> impl Strategy<Value = ModulePoint> {
    let busy = (count(), count(), count(), figure()).prop_map(|(packets, dropped, batches, ticks_per_packet)| {
        ModulePoint { packets, dropped, batches, ticks_per_packet }
    });
    prop_oneof![Just(ModulePoint::default()), busy]
}

fn flow() -> impl Strategy<Value = FlowPoint> {
    let busy = (count(), count(), figure(), figure(), figure()).prop_map(
        |(packets, violations, p50_us, p99_us, chosen_us)| FlowPoint { packets, violations, p50_us, p99_us, chosen_us },
    );
    prop_oneof![Just(FlowPoint::default()), busy]
}

fn sample() -> impl Strategy<Value = Sample> {
    let lists = (
        prop::collection::vec(module(), 0..20),
        prop::collection::vec(flow(), 0..20),
        prop::collection::vec(0u16..=10_000, 0..5),
    );
    (lists, 0u32..1_000_000, [count(), count(), count()]).prop_map(|((modules, flows, busy), ms, counts)| Sample {
        interval_s: (f64::from(ms) / 1e3) as f32,
        modules,
        flows,
        busy: busy.iter().map(|share| (f64::from(*share) / 1e4) as f32).collect(),
        entered: counts[0],
        out: counts[1],
        dropped: counts[2],
    })
}

/// Returns the sample with the figures that are left after rounding.
fn as_stored(sample: &Sample) -> Sample {
    let mut stored = sample.clone();
    for module in &mut stored.modules {
        module.ticks_per_packet = rounded(module.ticks_per_packet);
    }
    for flow in &mut stored.flows {
        for figure in [&mut flow.p50_us, &mut flow.p99_us, &mut flow.chosen_us] {
            *figure = rounded(*figure);
        }
    }
    stored
}

proptest! {
    #[test]
    fn a_sample_is_read_as_it_was_written(sample in sample()) {
        let bytes = encode(&sample).unwrap();
        let stored = as_stored(&sample);
        prop_assert_eq!(&decode(&bytes).unwrap(), &stored);
        let encoded = EncodedSample::read(&bytes).unwrap();
        for (index, module) in stored.modules.iter().enumerate() {
            prop_assert_eq!(&encoded.module(index, stored.modules.len()).unwrap(), module);
        }
        for (index, flow) in stored.flows.iter().enumerate() {
            prop_assert_eq!(&encoded.flow(index, stored.flows.len()).unwrap(), flow);
        }
        let wrong = stored.modules.len() + 1;
        let error = BlobError::Count { found: stored.modules.len(), expected: wrong };
        prop_assert_eq!(encoded.module(0, wrong), Err(error));
    }

    #[test]
    fn any_bytes_are_a_sample_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), index in 0usize..30) {
        if let Ok(sample) = decode(&bytes) {
            // Other bytes may stand for the same sample, but its own encoding must stand for it too.
            prop_assert_eq!(decode(&encode(&sample).unwrap()).unwrap(), sample);
        }
        if let Ok(encoded) = EncodedSample::read(&bytes) {
            let _ = (encoded.module(index, 30), encoded.flow(index, 30));
        }
        let _ = decode_layout(&bytes);
    }

    #[test]
    fn damaged_bytes_are_a_sample_or_an_error(sample in sample(), at: prop::sample::Index, byte: u8, shorter: bool) {
        let mut bytes = encode(&sample).unwrap();
        let at = at.index(bytes.len());
        if shorter {
            bytes.truncate(at);
            prop_assert!(decode(&bytes).is_err());
        } else {
            bytes[at] = byte;
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn rounding_is_below_a_hundredth(value in 0.0f32..100_000.0) {
        let near = rounded(Some(value)).unwrap();
        prop_assert!((near - value).abs() <= 0.01, "{value} became {near}");
    }
}

#[test]
fn a_value_that_does_not_exist_never_becomes_zero() {
    assert_eq!(rounded(None), None);
    assert_eq!(rounded(Some(f32::NAN)), None);
    assert_eq!(rounded(Some(0.0)), Some(0.0));
    assert_eq!(rounded(Some(0.004)), Some(0.0));
    assert_eq!(rounded(Some(-1.0)), Some(0.0));
    assert_eq!(rounded(Some(f32::INFINITY)), Some(42_949_672.0));
}

#[test]
fn an_idle_module_takes_a_bit() {
    let size = |modules: Vec<ModulePoint>| encode(&Sample { modules, ..Sample::default() }).unwrap().len();
    let idle = |count| vec![ModulePoint::default(); count];
    assert_eq!(size(idle(320)) - size(idle(0)), 40 + 1, "40 bytes of bits, and one byte for the larger number");
    let busy = ModulePoint { packets: 150_000, dropped: 0, batches: 4_800, ticks_per_packet: Some(85.25) };
    assert_eq!(size(vec![busy; 101]) - size(vec![busy; 100]), 3 + 1 + 2 + 2);
}

#[test]
fn rest_and_wrong_bits_are_errors() {
    let busy = ModulePoint { packets: 1, ..ModulePoint::default() };
    let mut bytes = encode(&Sample { modules: vec![busy; 3], ..Sample::default() }).unwrap();
    bytes.push(0);
    assert_eq!(decode(&bytes), Err(BlobError::Rest(1)));
    let points =
        |count: usize, bits: &[u8], busy: &[(u64, u64, u64, u32)]| postcard::to_allocvec(&(count, bits, busy)).unwrap();
    let read = |bytes: &[u8]| EncodedPoints::read(bytes)?.all::<ModulePoint>();
    let one = (1, 0, 0, 0);
    assert_eq!(read(&points(3, &[0b010], &[one])).unwrap()[1], busy);
    for wrong in [
        points(3, &[0b010], &[one, one]),
        points(3, &[0b1000], &[one]),
        points(9, &[0b010], &[one]),
        points(usize::MAX, &[0b010], &[one]),
        points(0, &[0], &[]),
    ] {
        assert_eq!(read(&wrong), Err(BlobError::Bits));
    }
}
