//! Starts the server, and runs it until a signal ends it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, RwLock};
use std::time::Duration;

use forebay_host::topology::{SourceType, TopologyReport};
use forebay_host::{Host, Topology, Tree, users};
use serde_json::Value;
use thiserror::Error;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep, timeout};

use crate::access::{self, Tokens};
use crate::affinity::Affinity;
use crate::alarms::Alarms;
use crate::api;
use crate::events::Events;
use crate::history::{Recorder, now_ms};
use crate::http::{BindError, Bound, Serving, Tls, TlsError, accept};
use crate::instances::{Discovery, Instances, Sockets};
use crate::log::Log;
use crate::notify::{Notifier, keep_alive_interval};
use crate::passed::Passed;
use crate::privilege::Helper;
use crate::rate::Rates;
use crate::settings::Settings;
use crate::shared::{CHANGES, Counts, Placed, Shared};
use crate::store::{Store, StoreError, StoreLimits};

/// The longest time for which the end of the server waits for changes that are being made.
const DRAIN: Duration = Duration::from_secs(10);

/// The time between two attempts to send messages that a busy service manager has not accepted.
const FLUSH: Duration = Duration::from_secs(2);

/// The time for sending the responses to these changes.
const RESPOND: Duration = Duration::from_millis(100);

/// Reads settings and tokens. The reader of YAML belongs to the caller.
pub trait Documents: Send + Sync {
    /// Returns the settings: those of the file, if there is one, with those of the command line.
    ///
    /// # Errors
    /// All faults of the file, one a line, each with its place.
    fn settings(&self) -> Result<Settings, String>;

    /// Reads the file of tokens, checks it against its [schema](access::schema), and passes its content to `check`.
    /// `check` returns the faults that the schema cannot judge.
    ///
    /// # Errors
    /// All faults of the file, one a line, each with its place.
    fn tokens(
        &self,
        path: &Path,
        check: &mut dyn FnMut(&Value) -> Vec<forebay_protocol::check::Fault>,
    ) -> Result<(), String>;
}

/// How the server is started.
pub struct Serve {
    /// Reads settings and tokens, now and on SIGHUP.
    pub documents: Box<dyn Documents>,
    /// The only socket to watch. `None`: all pipelines of this host.
    pub only: Option<PathBuf>,
    /// The root helper, if there is one.
    pub helper: Option<Helper>,
    /// The sockets that the service manager has opened. If there are any, the server opens none itself.
    /// `Documents::settings` must then return their addresses.
    pub passed: Passed,
    /// The log.
    pub log: Log,
    /// The version of the program.
    pub version: &'static str,
}

/// The reason why the server cannot start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The settings, or the tokens, have faults: one a line.
    #[error("{0}")]
    Faults(String),
    /// An address cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The system refuses something that the server needs.
    #[error("the system: {0}")]
    System(#[from] std::io::Error),
}

/// Runs the server until SIGTERM or SIGINT.
///
/// # Errors
/// [`ServeError`], before the first request is served.
pub fn serve(serve: Serve) -> Result<(), ServeError> {
    // Without a list of the allowed cores, threads stay where the system puts them.
    let affinity = Affinity::at_start().ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(4).build()?;
    // First, because the default action of each of these signals ends the process.
    let signals = runtime.block_on(async { Signals::receive() })?;
    let settings = serve.documents.settings().map_err(ServeError::Faults)?;
    let faults = settings.faults();
    if !faults.is_empty() {
        let lines: Vec<_> = faults.iter().map(|fault| fault.text()).collect();
        return Err(ServeError::Faults(lines.join("\n")));
    }
    let tokens = read_tokens(&*serve.documents, &settings).map_err(ServeError::Faults)?;
    let tls = settings.tls.as_ref().map(Tls::read).transpose()?;
    let limits = StoreLimits { bytes: settings.limits.store_mb * 1_000_000, ..StoreLimits::default() };
    let store = match store_path(&settings)? {
        Some(path) => Store::open(Some(&path), limits)?,
        None => Store::open(None, limits)?,
    };
    let (recorder, thread) = Recorder::start(store)?;
    let served = runtime.block_on(run(serve, settings, tokens, tls, recorder, affinity, signals));
    // Ends all tasks, and with them the last recorder, so that the thread of the store finishes its orders and ends.
    drop(runtime);
    let _ = thread.join();
    served
}

/// The signals that the server receives.
struct Signals {
    hangup: Signal,
    terminate: Signal,
    interrupt: Signal,
    user: Signal,
}

impl Signals {
    /// Receives the signals from now on.
    fn receive() -> std::io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            user: signal(SignalKind::user_defined1())?,
        })
    }
}

async fn run(
    serve: Serve,
    settings: Settings,
    tokens: Tokens,
    tls: Option<Tls>,
    store: Recorder,
    affinity: Option<Affinity>,
    signals: Signals,
) -> Result<(), ServeError> {
    let Serve { documents, only, helper, passed, log, version } = serve;
    let Signals { mut hangup, mut terminate, mut interrupt, mut user } = signals;
    let mut bound = Vec::new();
    if passed.is_empty() {
        for listen in settings.addresses() {
            bound.push(Bound::at(&listen).await?);
        }
    } else {
        for (listen, listener) in passed.into_sockets() {
            bound.push(Bound::passed(listen, listener)?);
        }
    }
    let status = format!("serving at {}", bound.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let helper = helper.map(Arc::new);
    let sockets = Sockets { only, folders: settings.sockets.clone(), helper: helper.clone() };
    let events: Arc<Events> = Arc::default();
    let instances = Instances::new(settings.interval());
    let shared = Arc::new(Shared {
        settings: RwLock::new(Arc::new(settings)),
        tokens: RwLock::new(Arc::new(tokens)),
        instances,
        sockets,
        helper,
        alarms: Alarms::new(Arc::clone(&events)),
        events,
        store,
        log,
        rates: Rates::default(),
        changes: Arc::new(Semaphore::new(CHANGES as usize)),
        counts: Counts::default(),
        affinity: affinity.map(|affinity| Mutex::new(Placed { affinity, workers: BTreeSet::new() })),
        topology: topology(),
        started_ms: now_ms(),
        steady: Mutex::default(),
        version,
    });
    let (replace_tls, tls) = watch::channel(tls);
    let serving = Serving::new(Arc::clone(&shared), api::router(Arc::clone(&shared)), tls);
    let mut tasks = JoinSet::new();
    tasks.spawn(Discovery::default().run(Arc::clone(&shared)));
    for bound in bound {
        shared.log.info("serving", &format!("at {bound}"));
        tasks.spawn(accept(bound, serving.clone()));
    }
    let helper_ended = wait_for_helper(shared.helper.clone());
    tokio::pin!(helper_ended);
    let (notifier, is_watched) = (Notifier::from_env(), keep_alive_interval().is_some());
    let mut keep_alive = interval_of(keep_alive_interval().unwrap_or(FLUSH));
    notifier.ready(&status);
    loop {
        tokio::select! {
            () = &mut helper_ended => break,
            // Tasks end only by a panic. It then ends the process, too, which the service manager starts again.
            Some(Err(ended)) = tasks.join_next() => std::panic::resume_unwind(ended.into_panic()),
            _ = hangup.recv() => {
                notifier.reloading();
                read_again(&shared, &*documents, &replace_tls);
                notifier.reloaded();
            }
            // Here, so that the service manager notices a server that serves no requests any more.
            _ = keep_alive.tick() => if is_watched { notifier.keep_alive() } else { notifier.flush() },
            // The log is standard error: there is no file to reopen.
            _ = user.recv() => {}
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
        }
    }
    notifier.stopping();
    shared.log.info("ending", "the server finishes the changes that are being made");
    // Changes that are being made end, with their records. Later ones wait, and are not made.
    if let Ok(_all) = timeout(DRAIN, shared.changes.acquire_many(CHANGES)).await {
        // The connections need time to send the responses.
        sleep(RESPOND).await;
    }
    shared.log.info("ended", "the server ends; pipelines continue");
    Ok(())
}

/// Returns a timer that begins now.
fn interval_of(span: Duration) -> Interval {
    let mut timer = interval(span);
    timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
    timer
}

/// Returns when the root helper has ended. Never returns if there is none.
async fn wait_for_helper(helper: Option<Arc<Helper>>) {
    let Some(helper) = helper else { return std::future::pending().await };
    let (send, ended) = tokio::sync::oneshot::channel();
    // A thread, because the wait blocks. It ends with the helper or with the process.
    std::thread::spawn(move || {
        helper.wait_for_end();
        // The server may have ended meanwhile.
        let _ = send.send(());
    });
    let _ = ended.await;
}

/// Reads settings, tokens and certificates again. If one has a fault, all stay as they are.
fn read_again(shared: &Shared, documents: &dyn Documents, replace_tls: &watch::Sender<Option<Tls>>) {
    let read = || -> Result<(Settings, Tokens, Option<Tls>), String> {
        let settings = documents.settings()?;
        let tokens = read_tokens(documents, &settings)?;
        let tls = settings.tls.as_ref().map(Tls::read).transpose().map_err(|error| error.to_string())?;
        Ok((settings, tokens, tls))
    };
    match read() {
        Ok((settings, tokens, tls)) => {
            let now = shared.settings();
            let fixed = |of: &Settings| {
                let limits = (of.limits.connections, of.limits.store_mb);
                (of.addresses(), of.store.clone(), of.user.clone(), of.sockets.clone(), of.interval(), limits)
            };
            if fixed(&settings) != fixed(&now) {
                let names =
                    "`listen`, `store`, `user`, `sockets`, `interval`, `limits.connections` and `limits.store_mb`";
                shared.log.warn("restart_needed", &format!("{names} change only when the server is started again"));
            }
            // The addresses stay, and with them the need for TLS.
            let (listen, store) = (now.listen.clone(), now.store.clone());
            let settings = Settings { listen, store, interval: now.interval, ..settings };
            let faults = settings.faults();
            if !faults.is_empty() || (now.tls.is_some() && settings.tls.is_none()) {
                let mut lines: Vec<_> = faults.iter().map(|fault| fault.text()).collect();
                if faults.is_empty() {
                    lines.push("`tls` is missing: it ends only when the server is started again".to_owned());
                }
                shared.log.error("settings_refused", &format!("the old settings stay: {}", lines.join("; ")));
                return;
            }
            replace_tls.send_replace(tls);
            *shared.tokens.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(tokens);
            *shared.settings.write().unwrap_or_else(std::sync::PoisonError::into_inner) = Arc::new(settings);
            shared.log.info("settings_read", "settings, tokens and certificates were read again");
        }
        Err(faults) => shared.log.error("settings_refused", &format!("the old settings stay: {faults}")),
    }
}

/// Reads the topology of this machine. It is read at the start, because the server later leaves the cores of workers:
/// they would not be usable.
fn topology() -> Result<TopologyReport, String> {
    let tree = Tree::at("/");
    let topology = Topology::read(&tree, &Host::read(&tree)).map_err(|error| error.to_string())?;
    Ok(TopologyReport::of(&topology, SourceType::Host, "host"))
}

/// Reads the tokens that the settings name.
fn read_tokens(documents: &dyn Documents, settings: &Settings) -> Result<Tokens, String> {
    let Some(path) = &settings.tokens else { return Ok(Tokens::default()) };
    access::check_file(path, rustix::process::geteuid().as_raw()).map_err(|why| format!("tokens: {why}"))?;
    let id = |user: &str| users::find(Path::new("/"), user).ok().map(|user| user.uid);
    let mut tokens = Tokens::default();
    documents.tokens(path, &mut |value| match Tokens::from_value(value, &id) {
        Ok(read) => {
            tokens = read;
            Vec::new()
        }
        Err(faults) => faults,
    })?;
    Ok(tokens)
}

/// Returns the first folder in `$STATE_DIRECTORY`. The service manager separates several by colons.
#[must_use]
pub fn state_folder() -> Option<PathBuf> {
    let folders = std::env::var_os("STATE_DIRECTORY")?;
    std::env::split_paths(&folders).find(|folder| !folder.as_os_str().is_empty())
}

/// Returns the path of the store, and makes its default folder. `None`: the store is in memory.
fn store_path(settings: &Settings) -> Result<Option<PathBuf>, ServeError> {
    if let Some(path) = &settings.store {
        return Ok((path.as_os_str() != "memory").then(|| path.clone()));
    }
    let folder = match (state_folder(), std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME")) {
        (Some(folder), ..) => folder,
        (None, Some(folder), _) => PathBuf::from(folder).join("forebay"),
        (None, None, Some(home)) => PathBuf::from(home).join(".local/state/forebay"),
        (None, None, None) => PathBuf::from("/var/lib/forebay"),
    };
    let made = std::fs::create_dir_all(&folder);
    made.map_err(|error| {
        ServeError::Faults(format!("store: {}: {error}: name a file with `store`", folder.display()))
    })?;
    Ok(Some(folder.join("serve.db")))
}
