//! A function registered from outside the workspace's crates. This file is its own crate, as that of a user would be.
//! The function is the worked example of CONTRIBUTING.md.

use forebay_graph::{Context, Declare, Function, Gate, Reason, Setup, SetupError, StateKind, register};
use forebay_packet::Packet;
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {
    /// The shortest frame that passes, in bytes.
    bytes: usize,
}

const SHORT: Gate = Gate::drop(0);

struct LeastSize(Params);

impl Declare for LeastSize {
    type Params = Params;
    const NAME: &'static str = "least_size";
    const SUMMARY: &'static str = "drops frames that are shorter than a limit";
    const HELP: &'static str = "Lengths are those of the frame as it stands, without the frame check sequence.";
    const EXAMPLE: &'static str = "{ bytes: 60 }";
    const DROPS: &'static [Reason] = &[Reason { name: "short", help: "The frame is shorter than the limit." }];
    const STATE: StateKind = StateKind::None;

    fn new(params: Params, _: &mut Setup<'_>) -> Result<Self, SetupError> {
        if params.bytes > 9_216 {
            return Err(SetupError::not_allowed("bytes", params.bytes, "0 to 9216"));
        }
        Ok(Self(params))
    }
}

impl Function for LeastSize {
    fn process(&mut self, batch: &mut [Packet], context: &mut Context<'_>) {
        for (index, packet) in batch.iter().enumerate() {
            if packet.len() < self.0.bytes {
                context.put(index, SHORT);
            }
        }
    }
}

register!(LeastSize);

const PIPELINE: &str = "
ports:
  in: { generator: { count: 320, size: [{ size: 60, weight: 1 }, { size: 100, weight: 1 }] } }
  out: { sink: }
modules:
  least: { least_size: { bytes: LIMIT } }
pipeline:
  - in -> least -> out
";

#[test]
fn a_foreign_function_runs_in_a_pipeline() {
    use forebay_graph::{RunToCompletion, Worker, drive};
    use forebay_measure::Simulated;
    use forebay_units::Frequency;
    let frequency = Frequency::new(1e9);
    let source = forebay_pipeline::Source::new(PIPELINE.replace("LIMIT", "80"), "outside.yaml", ".");
    let conditions = forebay_pipeline::Conditions { frequency, simulated: true };
    let plan = forebay_pipeline::load(&source, conditions).expect("a sound pipeline").plans.remove(0);
    let mut worker: Worker<_, RunToCompletion> =
        Worker::new(plan, Simulated::new(frequency), vec![]).expect("a sound plan");
    drive::simulate(&mut worker, forebay_units::Ticks(1_000_000_000));
    let census = worker.census();
    assert_eq!((census.entered, census.missing()), (320, 0));
    let telemetry = worker.telemetry();
    let drops: Vec<_> = telemetry.modules[0].drops.iter().collect();
    assert_eq!(drops, [("short", census.dropped)]);
    assert!(census.dropped > 0 && census.out > 0, "{census:?}");
}

#[test]
fn errors_of_a_foreign_function_are_reported() {
    let refused = forebay_pipeline::check_str(&PIPELINE.replace("LIMIT", "10000"), std::path::Path::new("."));
    let problems = refused.expect_err("too long a limit");
    let text = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    assert!(text.contains("10000") && text.contains("0 to 9216"), "{text}");
    assert_eq!(problems.len(), 1, "{text}");
}
