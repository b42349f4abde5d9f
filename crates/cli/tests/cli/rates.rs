//! Rate objectives from the configuration to the tables.

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
fn a_rate_is_kept_and_told() {
    let file = File::new(TWO);
    let run = |more: &[&str]| forebay(&[&["run", file.path()], &COSTS[..], more].concat());
    let out = run(&["--strict"]).well();
    assert!(out.contains("least packets/s") && out.contains("rates: 1 of 1 kept"), "{out}");
    let report = run(&["--json"]).json();
    let video = &report["flows"][0];
    assert_eq!((&video["min_rate_pps"], &video["rate_kept"]), (&1e6.into(), &true.into()));
    assert!(video["turned_away"].as_u64() > Some(0) && report["flows"][1].get("min_rate_pps").is_none());
    // More than there is time for, and a controller that does not care.
    let done = run(&["--strict", "--set", "flows.1.min_rate=500kpps"]);
    let said = "rest cannot have 500.0k pps";
    assert!(done.code == Some(1) && done.out.contains("MISSED") && done.out.contains(said), "{}", done.out);
    let out = run(&["--controller", "wfq"]).well();
    assert!(out.contains("wfq does nothing for stated rates: fair does"), "{out}");
    // In the simulator it is the same.
    let arguments: Vec<_> = COSTS.into_iter().filter(|argument| *argument != "--virtual").collect();
    let told = forebay(&[&["simulate", file.path(), "--json"], &arguments[..]].concat()).json();
    let rate = |told: &serde_json::Value| told["flows"][0]["rate_pps"].as_f64().expect("a rate");
    assert!((rate(&told) / rate(&report) - 1.0).abs() < 0.05, "{} instead of {}", rate(&told), rate(&report));
}

/// What any port lost counted for every flow: one that had all that it offered had missed its rate.
#[test]
fn what_another_port_loses_is_nothing_to_a_flow_in_the_simulator_either() {
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
    let (told, truth) = (flows(&["simulate"]), flows(&["run", "--virtual"]));
    for flows in [told, truth] {
        let [many, little] = [&flows[0], &flows[1]];
        assert!(many["turned_away"].as_u64() > Some(100_000), "{many}");
        assert_eq!((&many["rate_kept"], &little["rate_kept"]), (&false.into(), &true.into()), "{flows}");
        assert_eq!(little["turned_away"], 0, "{little}");
    }
}

/// One packet in two is 25 times as long as the other: bits are counted packet by packet, of frames without what the
/// wire adds.
#[test]
fn a_rate_in_bits_counts_what_packets_have() {
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
    // As many packets of 60 bytes as these bits of mixed ones are too few.
    let few = ["--set", "ports.in.generator.size=60", "--json"];
    let missed = run(&few).json()["flows"][0].clone();
    assert!(missed["rate_kept"] == false && rate(&missed, "rate_bps") < 2e9, "{missed}");
    let out = run(&["--strict"]).well();
    assert!(out.contains("least rate") && out.contains(" of 6.000Gbps") && out.contains("rates: 1 of 1 kept"), "{out}");
    let done = run(&["--strict", "--set", "flows.1.min_rate=8Gbps"]);
    assert!(done.code == Some(1) && done.out.contains("rest cannot have 8.000Gbps (1."), "{}", done.out);
    // In the simulator it is the same.
    let arguments: Vec<_> = COSTS.into_iter().filter(|argument| *argument != "--virtual").collect();
    let told = forebay(&[&["simulate", file.path(), "--json"], &arguments[..]].concat()).json()["flows"][0].clone();
    assert!((rate(&told, "rate_bps") / rate(&kept, "rate_bps") - 1.0).abs() < 0.05, "{told} instead of {kept}");
    let graph = forebay(&["graph", file.path(), "--json"]).json();
    assert_eq!(graph["flows"][0]["min_rate_bps"], 6e9);
}
