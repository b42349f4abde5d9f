//! `forebay serve`: starts the server of this host.

use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, anyhow, bail};
use forebay_host::users;
use forebay_pipeline::{Document, Problems, Rules, Source};
use forebay_protocol::check::Fault;
use forebay_server::access;
use forebay_server::notify;
use forebay_server::privilege::{self, Helper, Operations, Starter};
use forebay_server::settings::{self, Settings};
use forebay_server::{Documents, Log, Passed, Serve};
use serde_json::Value;

use crate::events::LogFormat;
use crate::{Answer, args, refused};

/// The user of the HTTP process, if root starts the server.
pub(crate) const USER: &str = "forebay";
/// The folder of the store, if root starts the server and the service manager names no other.
const STATE: &str = "/var/lib/forebay";

/// The settings on the command line, and the file of settings.
struct Arguments {
    config: Option<PathBuf>,
    /// The addresses on the command line, or those of the sockets that the service manager has opened.
    listen: Vec<forebay_server::Listen>,
    store: Option<PathBuf>,
    tokens: Option<PathBuf>,
}

impl Documents for Arguments {
    fn settings(&self) -> Result<Settings, String> {
        static RULES: OnceLock<Rules> = OnceLock::new();
        let rules = RULES.get_or_init(|| Rules::new(settings::schema()));
        let mut settings = Settings::default();
        if let Some(path) = &self.config {
            let read = |value: &Value| {
                settings = Settings::from_value(value)?;
                Ok(())
            };
            document(path, rules, read).map_err(|problems| problems.to_string())?;
        }
        if !self.listen.is_empty() {
            settings.listen.clone_from(&self.listen);
        }
        settings.store = self.store.clone().or(settings.store);
        settings.tokens = self.tokens.clone().or(settings.tokens);
        Ok(settings)
    }

    fn tokens(&self, path: &Path, check: &mut dyn FnMut(&Value) -> Vec<Fault>) -> Result<(), String> {
        static RULES: OnceLock<Rules> = OnceLock::new();
        let rules = RULES.get_or_init(|| Rules::new(access::schema()));
        let read = |value: &Value| {
            let faults = check(value);
            if faults.is_empty() { Ok(()) } else { Err(faults) }
        };
        document(path, rules, read).map_err(|problems| problems.to_string())
    }
}

/// Reads a YAML file, checks it against `rules`, and passes its value to `read`.
fn document(path: &Path, rules: &Rules, read: impl FnOnce(&Value) -> Result<(), Vec<Fault>>) -> Result<(), Problems> {
    let mut source = Source::read(path)?;
    let is_blank = |line: &str| line.trim_start().is_empty() || line.trim_start().starts_with('#');
    if source.text().lines().all(is_blank) {
        // A file without settings is allowed. Read it as an empty object.
        source = Source::new("{}", source.file(), source.base());
    }
    let document = Document::read(&source, rules)?;
    read(&document.value()).map_err(|faults| document.problems(faults))
}

/// Serves until a signal ends the server.
pub(crate) fn serve(arguments: &args::Serve) -> anyhow::Result<Answer> {
    match serve_to_end(arguments) {
        // With the JSON log format, every line on standard error is JSON, including the error.
        Err(error) if arguments.log_format == LogFormat::Json => {
            log(arguments).error("serve_failed", &refused::message(&error));
            Ok(Answer::Failed)
        }
        served => served,
    }
}

/// Creates the server's log.
fn log(arguments: &args::Serve) -> Log {
    Log::new(arguments.log_format == LogFormat::Json)
}

fn serve_to_end(arguments: &args::Serve) -> anyhow::Result<Answer> {
    // First, because it changes the environment: no other thread may run yet.
    let passed = Passed::take(arguments.http_process).context("serve")?;
    // Processes that are started as /proc/self/exe are called `exe`.
    rustix::thread::set_name(c"forebay").context("serve")?;
    // The HTTP process follows the root helper.
    if let Some(parent) = arguments.parent.filter(|_| !arguments.http_process) {
        privilege::end_with_parent(parent).context("serve")?;
    }
    let documents = Arguments {
        config: arguments.config.clone(),
        listen: if passed.addresses().is_empty() { arguments.listen.clone() } else { passed.addresses() },
        store: arguments.store.clone(),
        tokens: arguments.tokens.clone(),
    };
    let helper = if arguments.http_process {
        privilege::enter(Starter::RootHelper).context("serve")?;
        Some(Helper::from_stdin().context("serve: the root helper")?)
    } else if rustix::process::geteuid().is_root() {
        return serve_as_user(arguments, &documents, passed);
    } else {
        if let Some(user) = &arguments.user {
            bail!("serve: --user {user}: only root can start the server as another user: leave the option out");
        }
        privilege::enter(Starter::Other).context("serve")?;
        None
    };
    let serve = Serve {
        documents: Box::new(documents),
        only: arguments.only.clone(),
        helper,
        passed,
        log: log(arguments),
        version: env!("CARGO_PKG_VERSION"),
    };
    // The server runs for months with a small part of the code that the start has used.
    forebay_memory::release_program_pages();
    forebay_server::serve(serve).map_err(|error| anyhow!("{error}"))?;
    Ok(Answer::Yes)
}

/// Starts the HTTP process as another user, and serves its requests as the root helper.
fn serve_as_user(arguments: &args::Serve, documents: &Arguments, passed: Passed) -> anyhow::Result<Answer> {
    let settings = documents.settings().map_err(|faults| anyhow!("{faults}"))?;
    let name = arguments.user.as_deref().or(settings.user.as_deref());
    let user = users::find(Path::new("/"), name.unwrap_or(USER)).map_err(|error| match name {
        Some(_) => anyhow!("serve: the user of the HTTP process: {error}"),
        None => anyhow!(
            "serve: root needs another user for the HTTP process: add it with `useradd --system {USER}`, or name one \
             with --user"
        ),
    })?;
    if user.uid == 0 {
        bail!("serve: --user {}: the HTTP process must not be root: name another user", user.name);
    }
    let mut command = std::process::Command::new("/proc/self/exe");
    command.arg0("forebay").args(std::env::args_os().skip(1)).arg("--http-process");
    notify::hand_over(&mut command);
    if settings.store.is_none() {
        let state = forebay_server::state_folder().unwrap_or_else(|| PathBuf::from(STATE));
        give_folder(&state, user.uid, user.gid).with_context(|| format!("serve: the store: {}", state.display()))?;
        command.env("STATE_DIRECTORY", state);
    }
    // The helper works for a moment each second, with a small part of the code that the start has used.
    forebay_memory::release_program_pages();
    let only = arguments.only.as_deref().and_then(Path::parent).map(Path::to_owned);
    let folders: Vec<_> = settings.sockets.iter().cloned().chain(only).collect();
    let log = log(arguments);
    let warn = |line: &str| log.warn("helper", line);
    let status = privilege::supervise(command, &user, Operations::new(&folders, &warn), passed).context("serve")?;
    match status.code() {
        Some(0) => Ok(Answer::Yes),
        // The HTTP process has printed its error.
        Some(_) => Ok(Answer::Failed),
        None => bail!("serve: a signal ended the HTTP process ({status})"),
    }
}

/// Makes a folder for a user. The service manager makes such a folder for root, the user of the service.
fn give_folder(folder: &Path, uid: u32, gid: u32) -> std::io::Result<()> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    // A folder of another user may belong to a server of this user that runs.
    match std::fs::metadata(folder)?.uid() {
        0 => std::os::unix::fs::chown(folder, Some(uid), Some(gid)),
        _ => Ok(()),
    }
}
