//! Tests that a refused configuration changes nothing, whatever the reason and however late it is refused.

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use forebay_graph::{DeclarePort, Intake, Port, PortCounters, Ready, Setup, SetupError, Waits, register};
use forebay_instance::{Instance, ReloadError, choose, start};
use forebay_measure::{Clock, Tsc};
use forebay_packet::Batch;
use forebay_pipeline::{Conditions, Loaded, Source, load};
use forebay_units::Ticks;
use schemars::JsonSchema;
use serde::Deserialize;

/// The number of open probes, and the number of probes opened so far.
static OPEN: AtomicUsize = AtomicUsize::new(0);
static OPENED: AtomicUsize = AtomicUsize::new(0);

/// Parameters of `probe`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Params {}

/// A port that counts its instances and receives no packets.
struct Probe;

impl Port for Probe {
    fn receive(&mut self, _: &mut Batch, intake: &Intake<'_>) -> Ready {
        Ready::Input(intake.now)
    }

    fn wait_on(&self) -> Waits<'_> {
        Waits::None
    }

    fn send(&mut self, _: &mut Batch, _: Ticks) {}
}

impl Drop for Probe {
    fn drop(&mut self) {
        // Code that does not wait for the end of the drop sees the old count.
        std::thread::sleep(Duration::from_millis(20));
        OPEN.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DeclarePort for Probe {
    type Params = Params;
    const NAME: &'static str = "probe";
    const SUMMARY: &'static str = "counts its instances";
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

/// Adds another port, and a module with fewer next hops on the same routes.
fn further() -> String {
    RUNNING
        .replace("state:\n", "  more: { probe: {} }\nstate:\n")
        .replace("pipeline:", "  b: { ip_lookup: { state: table, next_hops: 2, to: word } }\npipeline:")
        + "  - more -> b -> out\n"
}

/// Returns the error of a reload with `text`. Asserts that nothing has changed.
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

/// Regression: ports were opened before the core and the largest batch were checked, and a refused module restricted
/// the shared routes to its own next hops.
#[test]
fn a_refused_configuration_changes_nothing() {
    let source = Source::new(RUNNING, "test.yaml", Path::new(""));
    let conditions = Conditions { frequency: Tsc.frequency(), simulated: false };
    let Loaded { plans, cores, made, .. } = load(&source, conditions).unwrap_or_else(|problems| panic!("{problems}"));
    let cores = choose(&cores).expect("a core");
    let instance =
        start(plans, &cores, made, Box::new(|_| None), forebay_instance::ControlInputs::default()).expect("it starts");
    assert_eq!(OPENED.load(Ordering::Relaxed), 1);

    let error = refusal(&*instance, &format!("batch: 16\n{}", further()), Ok(())).to_string();
    assert!(error.contains("batch"), "{error}");
    let error = refusal(&*instance, &format!("workers: [{{ core: {} }}]\n{}", cores[0] + 1, further()), Ok(()));
    assert!(matches!(error, ReloadError::Bound { .. }), "{error}");
    // Errors of functions and ports are found before any port is opened.
    let error = refusal(&*instance, &further().replace("next_hops: 2", "next_hops: 1"), Ok(())).to_string();
    assert!(error.contains("has next hop 1: allowed is only 0"), "{error}");
    assert_eq!(OPENED.load(Ordering::Relaxed), 1, "nothing was opened");

    let full = io::Error::other("the disk is full");
    let error = refusal(&*instance, &further(), Err(full)).to_string();
    assert!(error.contains("the disk is full"), "{error}");
    assert_eq!(OPENED.load(Ordering::Relaxed), 2, "it was closed again");

    // Regression: a worker that was to join released its port and the routes some time after the refusal. So the next
    // reload found the port and the routes in use, or lost those that it had created.
    if choose(&[None, None]).is_ok() {
        for round in 0..3 {
            let full = io::Error::other("the disk is full");
            let joining = format!("workers: [{{}}, {{ modules: [b] }}]\n{}", further());
            let error = refusal(&*instance, &joining, Err(full)).to_string();
            assert!(error.contains("the disk is full"), "{error}");
            assert_eq!(OPENED.load(Ordering::Relaxed), 3 + round, "it was closed again");
        }
    } else {
        let _ =
            writeln!(io::stderr(), "skipped: a_refused_configuration_changes_nothing: no core for a worker that joins");
    }

    // Without an error the same configuration is accepted and takes effect.
    let source = Source::new(further(), "test.yaml", Path::new(""));
    let reloaded = instance.reload(&source, &mut || Ok(())).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((reloaded.change.ports_opened, reloaded.change.added), (vec!["more".to_owned()], vec!["b".to_owned()]));
    assert_eq!(instance.tables()[0].table.apply(&["add 192.0.2.0/24 7"]).made, 0);
    assert!(instance.end().troubles.is_empty());
    assert_eq!(OPEN.load(Ordering::Relaxed), 0);
}
