//! A configuration that is refused, for whatever reason and however late, changes nothing.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, register};
use forebay_instance::{Instance, ReloadError, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_packet::Batch;
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

/// How many probes are open, and how many have been opened at all.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Parameters of `probe`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {}

/// A port that is counted, and by which nothing ever comes.
struct Probe;

impl Port for Probe {
    fn receive(&mut self, _: &mut Batch, _: &Intake<'_>) -> Ready {
        Ready::Input
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Whoever does not wait for it to be closed is seen not to.
        std::thread::sleep(Duration::from_millis(20));
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeclarePort for Probe {
    type Params = Params;
    const NAME: &'static str = "probe";
    const SUMMARY: &'static str = "is counted";
    const HELP: &'static str = "";
    const EXAMPLE: &'static str = "{}";

    fn receives(_: &Params) -> bool {
        true
    }

    fn sends(_: &Params) -> bool {
        false
    }

    fn new(_: Params, _: &mut Setup<'_>, _: Arc<PortCounters>) -> Result<Self, SetupError> {
        OPEN.fetch_add(1, Ordering::Relaxed);
        OPENED.fetch_add(1, Ordering::Relaxed);
        Ok(Self)
    }
}

register!(port Probe);

const RUNNING: &str = "
ports:
  in:  { probe: {} }
  out: { sink: {} }
state:
  table: { routes: { routes: ['10.0.0.0/8 1'] } }
modules:
  a: { ip_lookup: { state: table, next_hops: 8, to: word } }
pipeline:
  - in -> a -> out
";

/// Another port, and a module with fewer next hops on the same routes.
fn further() -> String {
    RUNNING
        .replace("state:\n", "  more: { probe: {} }\nstate:\n")
        .replace("pipeline:", "  b: { ip_lookup: { state: table, next_hops: 2, to: word } }\npipeline:")
        + "  - more -> b -> out\n"
}

/// What a change to `text` is refused with; nothing may be different afterwards.
fn refusal(instance: &dyn Instance, text: &str, accept: io::Result<()>) -> ReloadError {
    let mut accept = Some(accept);
    let source = Source::new(text, "test.yaml", Path::new(""));
    let refused = instance.reload(&source, &mut || accept.take().unwrap_or(Ok(()))).expect_err("it is refused");
    assert_eq!(OPEN.load(Ordering::Relaxed), 1, "{refused}");
    let table = &instance.tables()[0].table;
    let outcome = table.apply(&["add 192.0.2.0/24 7", "remove 192.0.2.0/24"]);
    assert_eq!((outcome.made, outcome.refused), (2, Vec::new()), "{refused}");
    refused
}

/// Ports were opened before the core, or a batch that cannot change, was looked at; and a module that was never to run held
/// the routes that it would have shared to its own next hops.
#[test]
fn a_refused_configuration_changes_nothing() {
    let source = Source::new(RUNNING, "test.yaml", Path::new(""));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core");
    let instance =
        start(plans, &cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default()).expect("it starts");
    assert_eq!(OPENED.load(Ordering::Relaxed), 1);

    let told = refusal(&*instance, &format!("batch: 16\n{}", further()), Ok(())).to_string();
    assert!(told.contains("batch"), "{told}");
    let told = refusal(&*instance, &format!("workers: [{{ core: {} }}]\n{}", cores[0] + 1, further()), Ok(()));
    assert!(matches!(told, ReloadError::Bound { .. }), "{told}");
    // What is wrong with functions and ports that are made is found before any is opened.
    let told = refusal(&*instance, &further().replace("next_hops: 2", "next_hops: 1"), Ok(())).to_string();
    assert!(told.contains("has next hop 1: allowed are 0 to 0"), "{told}");
    assert_eq!(OPENED.load(Ordering::Relaxed), 1, "nothing was opened");

    let full = io::Error::other("the disk is full");
    let told = refusal(&*instance, &further(), Err(full)).to_string();
    assert!(told.contains("the disk is full"), "{told}");
    assert_eq!(OPENED.load(Ordering::Relaxed), 2, "it was closed again");

    // A worker that was to join let go of its port and of the routes some time after the refusal had been told, so that the
    // next try found them in its way, or had its own undone.
    if choose(&[None, None]).is_ok() {
        for round in 0..3 {
            let full = io::Error::other("the disk is full");
            let joining = format!("workers: [{{}}, {{ modules: [b] }}]\n{}", further());
            let told = refusal(&*instance, &joining, Err(full)).to_string();
            assert!(told.contains("the disk is full"), "{told}");
            assert_eq!(OPENED.load(Ordering::Relaxed), 3 + round, "it was closed again");
        }
    } else {
        let _ =
            writeln!(io::stderr(), "skipped: a_refused_configuration_changes_nothing: no core for a worker that joins");
    }

    // The same is accepted where nothing is in the way; then it counts.
    let source = Source::new(further(), "test.yaml", Path::new(""));
    let told = instance.reload(&source, &mut || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((told.change.ports_opened, told.change.added), (vec!["more".to_owned()], vec!["b".to_owned()]));
    assert_eq!(instance.tables()[0].table.apply(&["add 192.0.2.0/24 7"]).made, 0);
    assert!(instance.end().troubles.is_empty());
    assert_eq!(OPEN.load(Ordering::Relaxed), 0);
}
