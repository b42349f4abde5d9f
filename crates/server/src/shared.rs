//! Everything that the parts of the server share.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use forebay_host::topology::TopologyReport;
use tokio::sync::Semaphore;

use crate::access::Tokens;
use crate::affinity::Affinity;
use crate::alarms::Alarms;
use crate::events::{EventKind, Events, content};
use crate::history::Recorder;
use crate::instances::{Instance, Instances, Sockets};
use crate::log::Log;
use crate::metrics::SteadyCounters;
use crate::overview::InstanceOverview;
use crate::privilege::Helper;
use crate::rate::Rates;
use crate::settings::Settings;

/// The largest number of changes at a time.
pub(crate) const CHANGES: u32 = 1_024;

/// Everything that the parts of the server share.
#[derive(Debug)]
pub struct Shared {
    /// The settings in force.
    pub(crate) settings: RwLock<Arc<Settings>>,
    /// The tokens in force.
    pub(crate) tokens: RwLock<Arc<Tokens>>,
    pub(crate) instances: Instances,
    pub(crate) sockets: Sockets,
    /// The root helper, if the server was started as root.
    pub(crate) helper: Option<Arc<Helper>>,
    pub(crate) events: Arc<Events>,
    pub(crate) alarms: Alarms,
    pub(crate) store: Recorder,
    pub(crate) log: Log,
    pub(crate) rates: Rates,
    /// A permit for each change that is being made. The server ends when it has all permits.
    pub(crate) changes: Arc<Semaphore>,
    pub(crate) counts: Counts,
    /// The cores of this process' threads; `None` if it does not choose them.
    pub(crate) affinity: Option<Mutex<Placed>>,
    /// The topology of this machine, or why it is unknown.
    pub(crate) topology: Result<TopologyReport, String>,
    /// When the server started, in milliseconds since 1970.
    pub(crate) started_ms: i64,
    /// The counters of the last metrics.
    pub(crate) steady: Mutex<SteadyCounters>,
    /// The version of the program.
    pub(crate) version: &'static str,
}

/// The cores of this process.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) affinity: Affinity,
    /// The cores with workers at the last look.
    pub(crate) workers: BTreeSet<usize>,
}

/// Counts of the server's own work.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Responses, by the first digit of their status.
    pub(crate) responses: [AtomicU64; 6],
    /// Viewers that receive events.
    pub(crate) viewers: AtomicUsize,
}

impl Counts {
    /// Counts a response.
    pub(crate) fn count(&self, status: u16) {
        if let Some(count) = self.responses.get(usize::from(status / 100)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// Returns the settings in force.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the tokens in force.
    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.tokens.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends the state of a pipeline to all viewers.
    pub(crate) fn publish_instance(&self, instance: &Instance) {
        let data = content(instance.name(), "overview", &InstanceOverview::of(self, instance));
        self.events.publish(EventKind::Instance, Some(instance.name()), data);
    }

    /// Sends all viewers the event that a pipeline is no longer listed.
    pub(crate) fn publish_end(&self, name: &str) {
        self.events.publish(EventKind::Instance, Some(name), content(name, "overview", &()));
    }

    /// Looks at the pipelines once a second: which are silent, and which cores have workers.
    pub(crate) fn look(&self) {
        for instance in self.instances.list() {
            let (pid, silence) = (instance.hello().pid, instance.silence());
            if self.alarms.status(instance.name(), pid, instance.status(), silence) {
                self.publish_instance(&instance);
            }
        }
        self.alarms.look(Instant::now());
        self.keep_off_workers();
    }

    /// Moves the threads of this process to cores without workers, if the cores of workers have changed.
    pub(crate) fn keep_off_workers(&self) {
        let workers: BTreeSet<_> = self.instances.list().iter().flat_map(|instance| instance.cores()).collect();
        if let Some(placed) = &self.affinity {
            let mut placed = placed.lock().unwrap_or_else(PoisonError::into_inner);
            // New threads inherit the cores, so that nothing is to do while the workers stay.
            if placed.workers != workers {
                if let Err(error) = placed.affinity.keep_off(&workers) {
                    self.log.warn("cores_not_set", &error.to_string());
                }
                placed.workers = workers;
            }
        }
    }
}
