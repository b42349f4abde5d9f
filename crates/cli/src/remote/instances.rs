//! `forebay list running`: the pipelines that run on this machine.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use forebay_protocol::{
    Client, Request, Response,
    locate::{Listing, Located, running},
    response::Hello,
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::format::Align::{Left, Right};
use crate::format::{short, table};
use crate::printed;

/// Time limit for a pipeline's response.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time over which packets are counted for a rate.
const WINDOW: Duration = Duration::from_millis(500);

/// A running pipeline and its responses. Values are `None` if it has not responded.
struct Found {
    located: Located,
    /// The connection. It is closed after the first request without a response.
    client: Option<Client>,
    hello: Option<Hello>,
    /// The packets per second that entered and left.
    rates: Option<(f64, f64)>,
}

impl Found {
    fn of(located: Located) -> Self {
        let client = Client::connect(&located.path).ok().and_then(|client| client.with_patience(PATIENCE).ok());
        let mut found = Self { located, client, hello: None, rates: None };
        found.hello = found.client.as_mut().and_then(|client| client.hello().ok().cloned());
        if found.hello.is_none() {
            found.client = None;
        }
        found
    }

    /// Sends a request. A pipeline that does not respond in time gets no further requests.
    fn request(&mut self, request: &Request) -> Option<Response> {
        let response = self.client.as_mut()?.request(request);
        if response.is_err() {
            self.client = None;
        }
        response.ok()
    }

    /// Sets the rates to those since the previous call.
    fn read(&mut self) {
        let request = Request::Report { recent: true, rules: Vec::new(), histograms: false };
        if let Some(Response::Report { recent: Some(recent), .. }) = self.request(&request) {
            let per_second = |count: u64| count as f64 / recent.duration_s;
            let is_known = recent.duration_s > 0.0;
            self.rates = is_known.then(|| (per_second(recent.packets.entered), per_second(recent.packets.out)));
        } else {
            self.rates = None;
        }
    }

    /// Returns the time at which the pipeline was started.
    fn started(&self) -> Option<Timestamp> {
        self.hello.as_ref()?.started.parse().ok()
    }

    /// Returns the seconds since the start.
    fn uptime_s(&self) -> Option<f64> {
        Some(Timestamp::now().duration_since(self.started()?).as_secs_f64().max(0.0))
    }

    /// Returns the process number that the pipeline has reported. If it has not responded, returns the number in its
    /// socket's name, which only pipelines without `--instance` have.
    fn pid(&self) -> Option<u32> {
        self.hello.as_ref().map(|hello| hello.pid).or(self.located.pid)
    }

    fn as_json(&self, name: &str) -> Value {
        let hello = self.hello.as_ref();
        json!({
            "name": name,
            "pipeline": hello.map(|hello| &hello.pipeline),
            "pid": self.pid(),
            "since": hello.map(|hello| &hello.started),
            "uptime_s": self.uptime_s(),
            "workers": hello.map(|hello| hello.workers),
            "in_pps": self.rates.map(|(entered, _)| entered),
            "out_pps": self.rates.map(|(_, out)| out),
            "forebay": hello.map(|hello| &hello.forebay),
            "socket": self.located.path.display().to_string(),
            "answers": hello.is_some(),
        })
    }

    fn as_row(&self, name: &str) -> Vec<String> {
        let known = |text: Option<String>| text.unwrap_or_else(|| "n/a".to_owned());
        let since = self.started().map(|at| at.strftime("%m-%d %H:%M").to_string());
        vec![
            name.to_owned(),
            known(self.pid().map(|pid| pid.to_string())),
            known(since),
            known(self.uptime_s().map(uptime)),
            known(self.hello.as_ref().map(|hello| hello.workers.to_string())),
            known(self.rates.map(|(entered, _)| short(entered.round()))),
            known(self.rates.map(|(_, out)| short(out.round()))),
            self.located.path.display().to_string(),
        ]
    }
}

/// Formats a time since a start in two units: `3d 4h`.
pub(crate) fn uptime(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        86_400.. => format!("{}d {}h", seconds / 86_400, seconds / 3_600 % 24),
        3_600.. => format!("{}h {}m", seconds / 3_600, seconds / 60 % 60),
        60.. => format!("{}m {}s", seconds / 60, seconds % 60),
        _ => format!("{seconds}s"),
    }
}

/// Lists the running pipelines.
pub(crate) fn list(as_json: bool) -> anyhow::Result<()> {
    let listing = running();
    let names = listing.handles();
    let Listing { alive, dead } = listing;
    let mut all: Vec<_> = alive.into_iter().map(Found::of).collect();
    all.iter_mut().for_each(Found::read);
    if !all.is_empty() {
        std::thread::sleep(WINDOW);
    }
    all.iter_mut().for_each(Found::read);
    let mut out = printed::out();
    if as_json {
        let listed: Vec<_> = all.iter().zip(&names).map(|(found, name)| found.as_json(name)).collect();
        writeln!(out, "{}", Value::from(listed))?;
    } else if all.is_empty() {
        writeln!(
            out,
            "no pipeline is running; `forebay run` starts one. Pipelines started with --socket are not listed"
        )?;
    } else {
        let columns = [
            ("name", Left),
            ("pid", Right),
            ("since (UTC)", Left),
            ("up", Left),
            ("workers", Right),
            ("in pps", Right),
            ("out pps", Right),
            ("socket", Left),
        ];
        let rows: Vec<_> = all.iter().zip(&names).map(|(found, name)| found.as_row(name)).collect();
        write!(out, "{}", table(&columns, &rows))?;
    }
    for (found, name) in all.iter().zip(&names).filter(|(found, _)| found.hello.is_none()) {
        let why = "the pipeline does not respond: its process is suspended, or runs an older version of Forebay";
        let _ = writeln!(printed::err(), "{name}: {why} ({})", found.located.path.display());
    }
    dead.iter().for_each(|path| note_dead(path));
    Ok(())
}

/// Reports a socket without a process.
fn note_dead(path: &Path) {
    let _ = writeln!(
        printed::err(),
        "{}: the process of this socket was killed; the next `forebay run` removes the socket",
        path.display()
    );
}
