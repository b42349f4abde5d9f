//! Tests the arrival times of packets, and the ingress queue in which packets wait.

use super::*;

#[test]
fn constant_arrivals_are_evenly_spaced_and_do_not_drift() {
    let times: Vec<_> = take(json!({ "rate": "3Mpps" }), 30_001).iter().map(|(at, _)| *at).collect();
    assert!(times.iter().zip(0_u64..).all(|(at, n)| *at == n * 1000 / 3 || *at + 1 == n * 1000 / 3), "to the tick");
    // 84 and 1538 bytes on the wire.
    let times: Vec<_> = take(json!({ "rate": "10Gbps" }), 3).iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 67, 134]);
    let list = json!([{ "size": 1514 }, { "size": 60 }]);
    let packets = take(json!({ "rate": "1Gbps", "size": list }), 100);
    for pair in packets.windows(2) {
        let (gap, wire) = (pair[1].0 - pair[0].0, (pair[0].1.len() as u64 + 24) * 8);
        assert!(gap.abs_diff(wire) <= 1, "{gap} ns for {wire} bits");
    }
}

#[test]
fn the_wait_is_until_the_next_arrival_and_packets_carry_when_they_were_due() {
    let (mut port, pool) = (open(json!({ "rate": "1Mpps" })), pool());
    assert_eq!(receive(&mut port, &pool, 5_000, 32).1, Ready::At(Ticks(6_000)));
    assert_eq!(receive(&mut port, &pool, 5_999, 32).0.len(), 0);
    let (packets, ready) = receive(&mut port, &pool, 8_500, 2);
    assert_eq!((packets.iter().map(|(at, _)| *at).collect::<Vec<_>>(), ready), (vec![6_000, 7_000], Ready::Now));
    let mut batch = Batch::with_capacity(8);
    port.port.receive(&mut batch, &Intake { now: Ticks(8_600), pool: &pool, most: 8 });
    assert_eq!((batch.len(), batch[0].arrival(), batch[0].arrival_clock()), (1, Ticks(8_000), ArrivalClock::Intended));
}

#[test]
fn a_closed_loop_fills_every_request_until_the_count() {
    let (mut port, pool) = (open(json!({ "count": 70 })), pool());
    assert_eq!(receive(&mut port, &pool, 9, 64).1, Ready::Now);
    let (packets, ready) = receive(&mut port, &pool, 17, 64);
    assert_eq!((packets.len(), packets[0].0, ready), (6, 17, Ready::Never));
    assert_eq!(receive(&mut port, &pool, 18, 64).0.len(), 0);
}

#[test]
fn random_gaps_are_exponential() {
    let n = 100_000;
    let packets = take(json!({ "rate": "1Mpps", "arrivals": "poisson", "seed": 3 }), n + 1);
    assert!(packets.is_sorted_by_key(|(at, _)| *at));
    let gaps: Vec<f64> = packets.windows(2).map(|pair| (pair[1].0 - pair[0].0) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / n as f64;
    assert!((mean - 1000.0).abs() < 4.0 * 1000.0 / (n as f64).sqrt(), "mean gap {mean}");
    // Twenty classes of equal probability: chi-square with 19 degrees of freedom, 43.8 at one in a thousand.
    let mut classes = [0.0_f64; 20];
    gaps.iter().for_each(|gap| classes[(((1.0 - (-(gap + 0.5) / 1000.0).exp()) * 20.0) as usize).min(19)] += 1.0);
    let expected = n as f64 / 20.0;
    let chi: f64 = classes.iter().map(|count| (count - expected).powi(2) / expected).sum();
    assert!(chi < 43.8, "chi-square {chi}");
    // Neighbouring gaps are not correlated.
    let covariance = gaps.windows(2).map(|pair| (pair[0] - mean) * (pair[1] - mean)).sum::<f64>() / n as f64;
    assert!((covariance / mean / mean).abs() < 4.0 / (n as f64).sqrt());
}

#[test]
fn the_exponential_variate_is_the_logarithm() {
    let mut random = Random::new(1);
    for _ in 0..100_000 {
        let uniform = (random.clone().bits() | 1) as f64 / 2_f64.powi(64);
        let (value, exact) = (random.exponential(), -uniform.ln());
        assert!((value - exact).abs() < 1e-9, "{value} for {exact}");
    }
}

#[test]
fn bursts_have_their_lengths_and_the_rate_is_the_mean() {
    let arrivals = json!({ "on_off": { "on": "10us", "off": "30us" } });
    let times: Vec<_> =
        take(json!({ "rate": "1Mpps", "arrivals": arrivals }), 40_001).iter().map(|(at, _)| *at).collect();
    assert!(times.iter().all(|at| at % 40_000 < 10_000), "no packets arrive while off");
    assert_eq!(times[40_000], 40_000_000, "40 000 packets take 40 ms");
    let first: Vec<_> = times.iter().take_while(|at| **at < 40_000).collect();
    assert_eq!(first.len(), 40, "four times as fast while on");
    assert_eq!((times[39], times[40]), (9_750, 40_000));
}

/// Polls a generator at the given times for the given numbers of packets, and compares it with a plain queue that
/// handles every single arrival.
fn against_the_plain_queue(params: Value, polls: &[(u64, usize)]) -> Result<(), TestCaseError> {
    let queue = params["queue"].as_u64().expect("given") as usize;
    let mut schedule = params.clone();
    schedule["queue"] = json!(1 << 20);
    let (mut plain, mut port, pool) = (open(schedule), open(params), pool());
    let (mut now, mut waiting, mut dropped) = (0, std::collections::VecDeque::new(), 0);
    let mut ended = false;
    for (step, most) in polls {
        now += step;
        // Every arrival up to `now`, one at a time.
        while !ended {
            let (arrived, ready) = receive(&mut plain, &pool, now, 1);
            ended = ready == Ready::Never;
            let Some((at, frame)) = arrived.first() else { break };
            if waiting.len() < queue { waiting.push_back((*at, frame.len())) } else { dropped += 1 }
        }
        let expected: Vec<_> = waiting.drain(..waiting.len().min(*most)).collect();
        let (packets, ready) = receive(&mut port, &pool, now, *most);
        let got: Vec<_> = packets.iter().map(|(at, frame)| (*at, frame.len())).collect();
        prop_assert_eq!(got, expected);
        prop_assert_eq!(port.counters.dropped.get(), dropped);
        match ready {
            Ready::Now => prop_assert!(!waiting.is_empty()),
            Ready::At(at) => prop_assert!(waiting.is_empty() && at.0 > now),
            Ready::Never => prop_assert!(waiting.is_empty() && ended),
            Ready::Input(_) => prop_assert!(false, "a generator does not wait for input"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]
    #[test]
    fn the_ingress_queue_drops_the_same_packets_as_a_plain_queue(
        polls in proptest::collection::vec((0_u64..40_000, 0_usize..100), 1..30),
        queue in 1_usize..80,
        arrivals in prop_oneof![
            Just(json!("constant")),
            Just(json!("poisson")),
            Just(json!({ "on_off": { "on": "3us", "off": "7us" } })),
            Just(json!({ "on_off": { "on": "50ns", "off": "1us" } })),
        ],
        mixed: bool,
        count in prop_oneof![Just(1_000_000_u64), 1_u64..300],
    ) {
        // At most 64 random arrivals may be lost at a time. If more are lost, their number is drawn, and not equal to
        // the number here.
        let scale = if arrivals == json!("poisson") { 40 } else { 1 };
        let polls: Vec<_> = polls.into_iter().map(|(step, most)| (step / scale, most)).collect();
        let size = if mixed { json!("imix") } else { json!(60) };
        let rate = if mixed { "100Gbps" } else { "7Mpps" };
        let params = json!({ "rate": rate, "arrivals": arrivals, "queue": queue, "size": size, "count": count });
        against_the_plain_queue(params, &polls)?;
    }
}

#[test]
fn after_a_long_stall_the_overrun_is_counted_at_once() {
    const DAY: u64 = 86_400_000_000_000;
    let lost = |params: Value| {
        let (mut port, pool) = (open(params), pool());
        receive(&mut port, &pool, 0, 32);
        let before = port.counters.dropped.get();
        let (packets, ready) = receive(&mut port, &pool, DAY, 32);
        assert_eq!((packets.len(), ready, before), (32, Ready::Now, 0));
        // The queue has the packets that arrived first.
        assert!(packets.iter().all(|(at, _)| *at < 2_000_000));
        port.counters.dropped.get()
    };
    // One packet at 0 was taken. Then a packet arrives every 100 ns until the end of the day. The queue has room for
    // 4096 of these packets.
    assert_eq!(lost(json!({ "rate": "10Mpps" })), DAY / 100 - 4096);
    let burst = json!({ "on_off": { "on": "100us", "off": "900us" } });
    // A day is a whole number of periods. At its end, the first packet of the next burst has arrived.
    assert_eq!(lost(json!({ "rate": "10Mpps", "arrivals": burst })), DAY / 100 - 4096);
    let (random, mean) = (lost(json!({ "rate": "10Mpps", "arrivals": "poisson" })) as f64, (DAY / 100 - 4096) as f64);
    assert!((random - mean).abs() < 5.0 * mean.sqrt(), "{random} lost, {mean} expected");
    let mut counted = open(json!({ "rate": "10Mpps", "count": 5000 }));
    let (packets, ready) = receive(&mut counted, &pool(), 0, 256);
    assert_eq!((packets.len(), ready), (1, Ready::At(Ticks(100))));
    receive(&mut counted, &pool(), DAY, 256);
    assert_eq!(counted.counters.dropped.get(), 5000 - 1 - 4096);
}

#[test]
fn an_exhausted_pool_keeps_packets_waiting_in_order() {
    let small = Pool::new(PoolOptions { chunks: 3, ..PoolOptions::default() }).expect("memory");
    let mut port = open(json!({ "rate": "1Mpps", "count": 10 }));
    receive(&mut port, &small, 0, 1);
    let mut times = Vec::new();
    for _ in 0..3 {
        let (packets, ready) = receive(&mut port, &small, 9_000, 32);
        times.extend(packets.iter().map(|(at, _)| *at));
        assert_eq!(ready, if times.len() == 9 { Ready::Never } else { Ready::Now });
    }
    assert_eq!(times, (1..10).map(|n| n * 1000).collect::<Vec<_>>());
    assert_eq!(port.counters.dropped.get(), 0);
}
