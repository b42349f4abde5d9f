//! Tests the offered rate of a source: queries, changes, and saturation.

use super::*;

fn source(port: &mut OpenPort) -> &mut dyn ScheduledSource {
    port.port.schedule().expect("a generator has a schedule")
}

#[test]
fn a_saturated_generator_fills_every_request_with_the_remaining_packets() {
    let params = json!({ "rate": "1Mpps", "count": 100, "sessions": 7 });
    let (mut port, pool) = (open(params.clone()), pool());
    // Three packets have arrived, and one of them is taken.
    let (first, _) = receive(&mut port, &pool, 2_500, 1);
    source(&mut port).saturate();
    let (rest, ready) = receive(&mut port, &pool, 2_500, 256);
    assert_eq!((first.len(), rest.len(), ready), (1, 99, Ready::Never));
    assert!(rest.iter().all(|(at, _)| *at == 2_500));
    // The frames and their order are the same as with the schedule.
    let frames = |packets: Vec<(u64, Vec<u8>)>| packets.into_iter().map(|(_, frame)| frame).collect::<Vec<_>>();
    assert_eq!(frames([first, rest].concat()), frames(take(params, 100)));
}

#[test]
fn the_offered_rate_can_be_read_and_changed() {
    let offer = |params: Value| source(&mut open(params)).offer();
    assert_eq!(offer(json!({ "rate": "1Mpps" })), Some(Offer { pps: 1e6, burst: 0.0 }));
    // 64 bytes on the wire are 84 with preamble and gap.
    let line = offer(json!({ "rate": "10Gbps", "size": 60 })).expect("a rate");
    assert!((line.pps - 14_880_952.0).abs() < 1.0, "{line:?}");
    let bursts = json!({ "rate": "1Mpps", "arrivals": { "on_off": { "on": "100us", "off": "900us" } } });
    let bursts = offer(bursts).expect("a rate");
    assert!((bursts.pps - 1e6).abs() < 1.0 && (bursts.burst - 1000.0).abs() < 0.01, "{bursts:?}");
    // Without a rate, or with a count, the offered rate is unknown.
    assert_eq!([offer(json!({})), offer(json!({ "rate": "1Mpps", "count": 5 }))], [None, None]);
    assert!(!source(&mut open(json!({}))).set_offer(2.0));

    let (mut port, pool) = (open(json!({ "rate": "1Mpps", "size": "imix" })), pool());
    let instants = |port: &mut OpenPort, now: u64| {
        let (packets, ready) = receive(port, &pool, now, 256);
        (packets.into_iter().map(|(at, _)| at).collect::<Vec<_>>(), ready)
    };
    assert_eq!(instants(&mut port, 1000), (vec![1000], Ready::At(Ticks(2000))));
    assert!(source(&mut port).set_offer(4.0));
    // After the change, the schedule starts again on the next call, with a quarter of the gaps.
    assert_eq!(instants(&mut port, 5_000), (vec![5_000], Ready::At(Ticks(5_250))));
    assert_eq!(instants(&mut port, 5_800), (vec![5_250, 5_500, 5_750], Ready::At(Ticks(6_000))));
    // During a pause, the packets that have already arrived are delivered. No other packets are delivered until the
    // schedule continues.
    receive(&mut port, &pool, 7_000, 1);
    assert!(source(&mut port).set_offer(0.0) && source(&mut port).set_offer(0.0));
    assert_eq!(instants(&mut port, 9_000), (vec![6_250, 6_500, 6_750, 7_000], Ready::Never));
    assert_eq!(
        (instants(&mut port, 1_000_000).0.len(), source(&mut port).offer().map(|offer| offer.pps)),
        (0, Some(1e6))
    );
    assert!(source(&mut port).set_offer(0.5));
    assert_eq!(instants(&mut port, 2_000_000), (vec![2_000_000], Ready::At(Ticks(2_002_000))));
}

#[test]
fn the_pace_of_packets_can_be_read() {
    let pace = |params: Value| source(&mut open(params)).pace();
    let queued = |spread| Some(Pace { spread, queue: 4096 });
    assert_eq!(pace(json!({ "rate": "2Mpps" })), queued(Spread::Constant { pps: 2e6 }));
    assert_eq!(pace(json!({ "rate": "1Mpps", "arrivals": "poisson" })), queued(Spread::Poisson { pps: 1e6 }));
    let bursts = json!({ "rate": "1Mpps", "arrivals": { "on_off": { "on": "100us", "off": "900us" } } });
    let Some(Pace { spread: Spread::OnOff { pps, on_s, off_s }, .. }) = pace(bursts) else { panic!("bursts") };
    assert!((pps - 1e6).abs() < 1.0 && (on_s - 1e-4).abs() < 1e-9 && (off_s - 9e-4).abs() < 1e-9);
    assert_eq!(pace(json!({})), Some(Pace { spread: Spread::Saturating, queue: 0 }));
    assert_eq!([pace(json!({ "count": 5 })), pace(json!({ "rate": "1Mpps", "count": 5 }))], [None, None]);
}

proptest! {
    /// With a changed rate, the same numbers of packets are due and lost as with the same configured rate.
    #[test]
    fn a_changed_rate_is_like_a_configured_one(
        factor in 0.01f64..50.0, imix: bool, bursts: bool, pause: bool,
        polls in prop::collection::vec((1u64..200_000, 1usize..64), 1..40),
    ) {
        let params = |pps: f64| {
            let on_off = json!({ "on_off": { "on": "30us", "off": "70us" } });
            let arrivals = if bursts { on_off } else { json!("constant") };
            let size = if imix { json!("imix") } else { json!(60) };
            json!({ "rate": format!("{pps:.9}pps"), "size": size, "arrivals": arrivals, "queue": 100 })
        };
        let (mut changed, mut other, pool) = (open(params(1e6)), open(params(1e6 * factor)), pool());
        receive(&mut changed, &pool, 7, 256);
        if pause {
            source(&mut changed).set_offer(0.0);
        }
        source(&mut changed).set_offer(factor);
        let (mut now, mut got) = (0, [0; 2]);
        for (step, most) in polls {
            now += step;
            for (port, got) in [&mut changed, &mut other].into_iter().zip(&mut got) {
                *got += receive(port, &pool, now, most).0.len() as u64;
            }
            let lost = [&changed, &other].map(|port| port.counters.dropped.get());
            // The gaps are rounded once more than with a configured rate.
            prop_assert!(got[0].abs_diff(got[1]) <= 1 && lost[0].abs_diff(lost[1]) <= 1, "{got:?} {lost:?}");
        }
    }
}
