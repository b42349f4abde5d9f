//! Ticks per packet, measured: the pipeline runs on this machine for a while.

use std::time::Duration;

use forebay_graph::Plan;
use forebay_graph::report::{Packets, Report};
use forebay_instance::{Instance, Outcome, StartError};
use forebay_measure::{Clock, Tsc};
use forebay_pipeline::Made;

use crate::disturbance::{Disturbance, Witness};

/// How long a pipeline runs before it is measured: caches and tables fill, the governor makes up its mind.
const WARM_UP: Duration = Duration::from_millis(200);

/// What a real run has shown.
#[derive(Clone, Debug)]
pub struct Timed {
    /// What happened while it was measured.
    pub report: Report,
    /// Where all packets are that came from the start to the end, the warm-up included.
    pub whole: Packets,
    /// By worker: what disturbed it while it was measured.
    pub disturbances: Vec<Disturbance>,
    /// Ticks a second.
    pub hertz: f64,
    /// What went wrong at its end.
    pub troubles: Vec<(String, String)>,
}

impl Timed {
    /// Whether what was measured says little about the pipeline: a worker was without its core for too long.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        self.disturbances.iter().any(Disturbance::voids)
    }

    /// Effective CPU utilisation of all workers.
    #[must_use]
    pub fn cur(&self) -> f64 {
        let workers = &self.report.workers;
        workers.iter().map(|worker| worker.busy).sum::<f64>() / workers.len().max(1) as f64
    }

    /// Ticks of busy turns, per packet that entered.
    #[must_use]
    pub fn cpp(&self) -> Option<f64> {
        let busy = self.cur() * self.report.workers.len() as f64 * self.report.duration_s * self.hertz;
        (self.report.packets.entered > 0).then(|| busy / self.report.packets.entered as f64)
    }
}

/// Runs plans on these cores, and measures them for `span`.
///
/// # Errors
/// [`StartError`].
pub fn measure(plans: Vec<Plan>, cores: &[usize], made: Made, span: Duration) -> Result<Timed, StartError> {
    let instance = forebay_instance::start(plans, cores, made, Box::new(|_| None))?;
    let board = instance.board();
    std::thread::sleep(WARM_UP);
    let threads = instance.threads();
    let before = Witness::look(&threads);
    let earlier = board.read(Tsc.now());
    std::thread::sleep(span);
    let report = board.report(&earlier, &board.read(Tsc.now()));
    let disturbances = Witness::look(&threads).since(&before);
    let Outcome { at, troubles } = Instance::end(&*instance);
    let whole = board.report(&board.nothing(), &board.read(at)).packets;
    Ok(Timed { report, whole, disturbances, hertz: Tsc.frequency().hertz(), troubles })
}
