//! Records the history of pipelines, and runs the store on a thread of its own.
//!
//! A write to the disk may take long. It must not delay responses, so the thread of the server never touches the store.

use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use forebay_protocol::report::{FlowReport, ModuleReport};
use forebay_protocol::{Report, Request, Response};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::instances::Instance;
use crate::shared::Shared;
use crate::store::{FlowPoint, ModulePoint, Sample, SampleLayout, Store, StoreError};

/// The time between two samples.
pub(crate) const SAMPLE: Duration = Duration::from_secs(10);
/// The time between two removals of old samples.
const PRUNE: Duration = Duration::from_secs(60);
/// The largest number of orders that wait for the store. If the disk is slower, samples are discarded.
const WAITING: usize = 256;

type Order = Box<dyn FnOnce(&mut Store) + Send>;

/// The store, on its own thread.
#[derive(Clone, Debug)]
pub struct Recorder {
    orders: mpsc::SyncSender<Order>,
}

/// Returns the present time, in seconds since 1970.
#[must_use]
pub fn now_s() -> i64 {
    now_ms().div_euclid(1_000)
}

/// Returns the present time, in milliseconds since 1970.
#[must_use]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Recorder {
    /// Starts the thread of the store. The thread ends when the last recorder is dropped, after all orders.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(mut store: Store) -> std::io::Result<(Self, std::thread::JoinHandle<()>)> {
        let (orders, received) = mpsc::sync_channel::<Order>(WAITING);
        let run = move || {
            let mut pruned = std::time::Instant::now();
            while let Ok(order) = received.recv() {
                order(&mut store);
                if pruned.elapsed() >= PRUNE {
                    // A store that cannot be pruned refuses the next write, too, and that error is reported.
                    let _ = store.prune(now_ms());
                    pruned = std::time::Instant::now();
                }
            }
        };
        let thread = std::thread::Builder::new().name("store".to_owned()).spawn(run)?;
        Ok((Self { orders }, thread))
    }

    /// Runs `work` with the store, and returns its result.
    ///
    /// # Errors
    /// The error of `work`; [`StoreError::Busy`] if too many orders wait.
    pub async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Store) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (send, result) = oneshot::channel();
        let order = Box::new(move |store: &mut Store| {
            // The client may have gone away.
            let _ = send.send(work(store));
        });
        self.orders.try_send(order).map_err(|_| StoreError::Busy)?;
        result.await.unwrap_or(Err(StoreError::Busy))
    }
}

/// Records a sample of the pipeline every ten seconds. Tries again if a connection breaks.
pub(crate) async fn record(shared: &Shared, instance: &Instance) {
    // The first report begins the first sample.
    let mut samples = interval_at(Instant::now(), SAMPLE);
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        samples.tick().await;
        let Ok(mut connection) = instance.connect(&shared.sockets).await else { continue };
        let request = Request::Report { recent: true, rules: Vec::new(), histograms: false };
        let mut is_first = true;
        while let Ok(Response::Report { recent, .. }) = connection.request(&request).await {
            // The first one covers the time since the start of the run.
            if let Some(recent) = recent.filter(|_| !is_first) {
                save(shared, instance, &recent).await;
            }
            is_first = false;
            samples.tick().await;
        }
    }
}

async fn save(shared: &Shared, instance: &Instance, recent: &Report) {
    let (layout, sample) = sample(recent);
    let name = instance.name().to_owned();
    // Clients name times in seconds, so that a sample has a whole one.
    let at = now_s().saturating_mul(1_000);
    let saved = shared.store.with(move |store| store.add_sample(&name, at, &layout, &sample)).await;
    shared.alarms.store(saved.err().map(|error| error.to_string()));
}

/// Returns the sample of a span, with the names of its parts.
fn sample(recent: &Report) -> (SampleLayout, Sample) {
    let layout = SampleLayout {
        modules: recent.modules.iter().map(|module| module.name.clone()).collect(),
        flows: recent.flows.iter().map(|flow| flow.name.clone()).collect(),
    };
    let module = |module: &ModuleReport| ModulePoint {
        packets: module.packets,
        dropped: module.dropped,
        batches: module.batches,
        ticks_per_packet: module.ticks_per_packet.map(|ticks| ticks as f32),
    };
    let flow = |flow: &FlowReport| FlowPoint {
        packets: flow.packets,
        violations: flow.violations.unwrap_or(0),
        p50_us: flow.delay_us.p50.map(|delay| delay as f32),
        p99_us: flow.delay_us.p99.map(|delay| delay as f32),
        chosen_us: flow.at_percentile_us.map(|delay| delay as f32),
    };
    let sample = Sample {
        interval_s: recent.duration_s as f32,
        modules: recent.modules.iter().map(module).collect(),
        flows: recent.flows.iter().map(flow).collect(),
        busy: recent.workers.iter().map(|worker| worker.busy as f32).collect(),
        entered: recent.packets.entered,
        out: recent.packets.out,
        dropped: recent.packets.all_dropped() + recent.packets.lost,
    };
    (layout, sample)
}
