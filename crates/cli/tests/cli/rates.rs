//! Rate objectives, from the configuration to the printed tables.

use crate::{File, forebay};

const TWO: &str = "\
scheduler: weighted-fair
ports: { in: { generator: { rate: 4Mpps } }, out: { sink: } }
modules: { split: { weighted_split: { weights: [3, 1] } }, video: { counter: }, fw: { counter: } }
pipeline: [in -> split, 'split[0] -> video -> out', 'split[1] -> fw -> out']
flows:
  - { name: video, path: split[0] -> video, min_rate: 1Mpps }
  - { name: rest, path: split[1] -> fw }
shares: { video: { when_full: drop }, fw: { when_full: drop } }
control: { batching: fair, period: 10ms }
";
const COSTS: [&str; 8] =
    ["--virtual", "--cost", "split=50+5", "--cost", "video=50+400", "--cost", "fw=200+1600", "--duration=300ms"];

#[test]
fn a_rate_objective_is_kept_and_reported() {
    let file = File::new(TWO);
    let run = |more: &[&str]| forebay(&[&["run", file.path()], &COSTS[..], more].concat());
    let out = run(&["--strict"]).success();
    assert!(out.contains("least packets/s") && out.contains("rates: 1 of 1 kept"), "{out}");
    let report = run(&["--json"]).json();
    let video = &report["flows"][0];
    assert_eq!((&video["min_rate_pps"], &video["rate_kept"]), (&1e6.into(), &true.into()));
    assert!(video["turned_away"].as_u64() > Some(0) && report["flows"][1].get("min_rate_pps").is_none());
    // The objectives need more time than there is, and then the controller ignores them.
    let done = run(&["--strict", "--set", "flows.1.min_rate=500kpps"]);
    let expected = "rest cannot have 500.0k pps";
    assert!(done.code == Some(1) && done.out.contains("MISSED") && done.out.contains(expected), "{}", done.out);
    let out = run(&["--controller", "wfq"]).success();
    assert!(out.contains("wfq does not control rates: use fair"), "{out}");
    // The simulator has the same result.
    let arguments: Vec<_> = COSTS.into_iter().filter(|argument| *argument != "--virtual").collect();
    let simulated = forebay(&[&["simulate", file.path(), "--json"], &arguments[..]].concat()).json();
    let rate = |report: &serde_json::Value| report["flows"][0]["rate_pps"].as_f64().expect("a rate");
    assert!((rate(&simulated) / rate(&report) - 1.0).abs() < 0.05, "{} instead of {}", rate(&simulated), rate(&report));
}

/// Regression: losses of any port counted for every flow, so that a flow that sent all its packets missed its rate.
#[test]
fn losses_of_another_port_do_not_count_for_a_flow() {
    let file = File::new(
        "\
scheduler: weighted-fair
ports: { in: { generator: { rate: 4Mpps } }, few: { generator: { rate: 10kpps } }, out: { sink: } }
modules: { slow: { counter: }, quick: { counter: } }
pipeline: [in -> slow -> out, few -> quick -> out]
flows:
  - { name: many, path: slow, min_rate: 3Mpps }
  - { name: little, path: quick, min_rate: 1Mpps }
control: { batching: wfq, period: 10ms }
",
    );
    let costs = ["--cost", "slow=200+1600", "--cost", "quick=50+5", "--duration", "300ms", "--json"];
    let flows = |command: &[&str]| forebay(&[command, &[file.path()], &costs].concat()).json()["flows"].clone();
    let (simulated, executed) = (flows(&["simulate"]), flows(&["run", "--virtual"]));
    for flows in [simulated, executed] {
        let [many, little] = [&flows[0], &flows[1]];
        assert!(many["turned_away"].as_u64() > Some(100_000), "{many}");
        assert_eq!((&many["rate_kept"], &little["rate_kept"]), (&false.into(), &true.into()), "{flows}");
        assert_eq!(little["turned_away"], 0, "{little}");
    }
}

/// One packet in two is 25 times as long as the other. Bits are counted packet by packet, of frames without the
/// overhead of the wire.
#[test]
fn a_rate_in_bits_counts_the_lengths_of_packets() {
    let mix = "rate: 4Mpps, size: [{ size: 60, weight: 1 }, { size: 1500, weight: 1 }]";
    let text = TWO.replace("rate: 4Mpps", mix).replace("min_rate: 1Mpps", "min_rate: 6Gbps");
    let file = File::new(&text);
    let run = |more: &[&str]| forebay(&[&["run", file.path()], &COSTS[..], more].concat());
    let rate = |flow: &serde_json::Value, name: &str| flow[name].as_f64().unwrap_or_else(|| panic!("{name}: {flow}"));
    let kept = run(&["--json"]).json()["flows"][0].clone();
    assert_eq!((&kept["min_rate_bps"], &kept["rate_kept"]), (&6e9.into(), &true.into()), "{kept}");
    assert!(kept.get("min_rate_pps").is_none() && kept["turned_away"].as_u64() > Some(0), "{kept}");
    // The mean of both lengths.
    let length = rate(&kept, "rate_bps") / 8.0 / rate(&kept, "rate_pps");
    assert!((length / 780.0 - 1.0).abs() < 0.01, "{length} bytes a packet");
    // The same number of packets, all of 60 bytes, has too few bits.
    let few = ["--set", "ports.in.generator.size=60", "--json"];
    let missed = run(&few).json()["flows"][0].clone();
    assert!(missed["rate_kept"] == false && rate(&missed, "rate_bps") < 2e9, "{missed}");
    let out = run(&["--strict"]).success();
    assert!(out.contains("least rate") && out.contains(" of 6.000Gbps") && out.contains("rates: 1 of 1 kept"), "{out}");
    let done = run(&["--strict", "--set", "flows.1.min_rate=8Gbps"]);
    assert!(done.code == Some(1) && done.out.contains("rest cannot have 8.000Gbps (1."), "{}", done.out);
    // The simulator has the same result.
    let arguments: Vec<_> = COSTS.into_iter().filter(|argument| *argument != "--virtual").collect();
    let simulated =
        forebay(&[&["simulate", file.path(), "--json"], &arguments[..]].concat()).json()["flows"][0].clone();
    assert!(
        (rate(&simulated, "rate_bps") / rate(&kept, "rate_bps") - 1.0).abs() < 0.05,
        "{simulated} instead of {kept}"
    );
    let graph = forebay(&["graph", file.path(), "--json"]).json();
    assert_eq!(graph["flows"][0]["min_rate_bps"], 6e9);
}
