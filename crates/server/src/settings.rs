//! serve.yaml: the settings of the server, with their JSON Schema and the checks that a schema cannot express.
//!
//! The caller reads the text, because the reader of YAML with places belongs to the command line. It checks the text
//! against [`schema`], and then calls [`Settings::from_value`].

mod limits;
mod listen;

use std::path::PathBuf;
use std::time::Duration;

use forebay_protocol::check::Fault;
use forebay_units::Nanos;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use limits::Limits;
pub use listen::{Listen, ListenError};

/// The default of `interval`.
pub(crate) const INTERVAL: Duration = Duration::from_secs(1);
/// The smallest and the largest `interval`.
const INTERVALS: [Nanos; 2] = [Nanos(250_000_000), Nanos(10_000_000_000)];

/// The settings of the server.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The addresses at which the server listens: `127.0.0.1:9640`, `[::1]:9640`, or `unix:` and the path of a socket.
    /// The default is 127.0.0.1:9640. An address that is not a loopback address needs `tls` and `tokens`.
    #[schemars(length(min = 1, max = 16))]
    pub listen: Vec<Listen>,
    /// The user of the process that serves HTTP, if the server is started as root. The default is `forebay`.
    #[schemars(length(min = 1, max = 256))]
    pub user: Option<String>,
    /// Folders with sockets of pipelines (`run --socket`). The server also looks in the folders that `run` uses by
    /// default.
    #[schemars(length(max = 64))]
    pub sockets: Vec<PathBuf>,
    /// The time between two reports of a pipeline, from 250ms to 10s. The default is 1s.
    pub interval: Option<Nanos>,
    /// The database with the audit log and the history, or `memory`. The default is `forebay/serve.db` in the user's
    /// folder for state, and for root /var/lib/forebay/serve.db.
    #[schemars(length(min = 1))]
    pub store: Option<PathBuf>,
    /// The file with the tokens of clients. Without it, the server accepts no change.
    #[schemars(length(min = 1))]
    pub tokens: Option<PathBuf>,
    /// The certificate of the server.
    pub tls: Option<TlsFiles>,
    /// Names of this host that clients use in URLs, apart from `localhost` and the addresses in `listen`.
    #[schemars(length(max = 64))]
    pub hosts: Vec<String>,
    /// The folders in which a configuration that comes over HTTP may name files. Without any, it may name none.
    #[schemars(length(max = 64))]
    pub config_paths: Vec<PathBuf>,
    /// The limits of clients.
    pub limits: Limits,
    /// The settings of `/metrics`.
    pub metrics: MetricsSettings,
}

/// The files of TLS. They are read again on SIGHUP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// The certificate chain of the server (PEM).
    #[schemars(length(min = 1))]
    pub certificate: PathBuf,
    /// The private key (PEM). Users outside the file's group must not be able to read or change it.
    #[schemars(length(min = 1))]
    pub key: PathBuf,
    /// The certificates of authorities (PEM). If they are given, a client needs a certificate of one of them.
    #[schemars(length(min = 1))]
    pub client_ca: Option<PathBuf>,
}

/// The settings of `/metrics`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MetricsSettings {
    /// Whether each of 64 and more equal modules has its own series. By default they have one series together.
    pub all_modules: bool,
}

/// Returns the JSON Schema (2020-12) of serve.yaml.
#[must_use]
pub fn schema() -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    let mut schema = Settings::json_schema(&mut settings.into_generator()).to_value();
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Forebay server".into();
    schema
}

impl Settings {
    /// Returns the settings in `value`, which the [schema](schema) allows.
    ///
    /// # Errors
    /// All values that the schema cannot judge: addresses, and settings that need another.
    pub fn from_value(value: &Value) -> Result<Self, Vec<Fault>> {
        let mut faults = Vec::new();
        let texts = value["listen"].as_array().into_iter().flatten().enumerate();
        for (at, text) in texts.filter_map(|(at, text)| Some((at, text.as_str()?))) {
            if let Err(error) = Listen::parse(text) {
                let fault = Fault::wrong(text, format!("'{text}'"), error.allowed());
                faults.push(Fault { path: format!("listen[{at}]"), ..fault });
            }
        }
        for (at, host) in value["hosts"].as_array().into_iter().flatten().enumerate() {
            let host = host.as_str().unwrap_or_default();
            if !is_host_name(host) {
                let allowed = "a name or an address without a port, such as edge.example.net";
                let fault = Fault::wrong(host, format!("'{host}' is not the name of a host"), allowed);
                faults.push(Fault { path: format!("hosts[{at}]"), ..fault });
            }
        }
        for key in ["sockets", "config_paths"] {
            for (at, path) in value[key].as_array().into_iter().flatten().enumerate() {
                let path = path.as_str().unwrap_or_default();
                if !path.starts_with('/') {
                    let fault = Fault::wrong(path, format!("'{path}'"), "a path that begins with /");
                    faults.push(Fault { path: format!("{key}[{at}]"), ..fault });
                }
            }
        }
        let is_allowed = |text: &str| text.parse().is_ok_and(|it: Nanos| (INTERVALS[0]..=INTERVALS[1]).contains(&it));
        if let Some(interval) = value["interval"].as_str().filter(|text| !is_allowed(text)) {
            let allowed = format!("{} to {}", INTERVALS[0], INTERVALS[1]);
            let fault = Fault::wrong(interval, format!("'{interval}' is out of range"), allowed);
            faults.push(Fault { path: "interval".to_owned(), ..fault });
        }
        faults.extend(Limits::faults(&value["limits"]));
        if !faults.is_empty() {
            return Err(faults);
        }
        let settings: Self =
            serde_json::from_value(value.clone()).map_err(|error| vec![Fault::new(error.to_string())])?;
        let faults = settings.faults();
        if faults.is_empty() { Ok(settings) } else { Err(faults) }
    }

    /// Returns the addresses at which the server listens.
    #[must_use]
    pub fn addresses(&self) -> Vec<Listen> {
        if self.listen.is_empty() { vec![Listen::default()] } else { self.listen.clone() }
    }

    /// Returns the time between two reports of a pipeline.
    #[must_use]
    pub fn interval(&self) -> Duration {
        self.interval.map_or(INTERVAL, |interval| Duration::from_nanos(interval.0))
    }

    /// Returns the faults of settings that need another setting. Must be called again if the command line has changed
    /// settings.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let missing = |value: bool, key: &'static str| if value { None } else { Some(key) };
        for (at, listen) in self.listen.iter().enumerate().filter(|(_, listen)| listen.is_public()) {
            let needed: Vec<_> = [missing(self.tls.is_some(), "`tls`"), missing(self.tokens.is_some(), "`tokens`")]
                .into_iter()
                .flatten()
                .collect();
            if !needed.is_empty() {
                let wrong = format!("{listen} can be reached from other machines");
                let fault = Fault::with_hint(wrong, format!("add {}, or listen at 127.0.0.1", needed.join(" and ")));
                faults.push(Fault { path: format!("listen[{at}]"), ..fault });
            }
        }
        faults
    }
}

/// Returns whether a text is a host name or an address as it stands in a URL.
fn is_host_name(text: &str) -> bool {
    let is_name = |text: &str| {
        !text.is_empty()
            && text.len() <= 253
            && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
    };
    is_name(text) || text.trim_matches(['[', ']']).parse::<std::net::Ipv6Addr>().is_ok()
}

#[cfg(test)]
mod tests;
