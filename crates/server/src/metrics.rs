//! The metrics of the server and of all instances, for Prometheus (`docs/metrics.md`).
//!
//! [`families`] turns reports into families of samples. [`SteadyCounters`] keeps counters from decreasing by a little.
//! [`encode`] writes the families in the format that [`negotiate`] selects. No label has the text of a rule, a session
//! or an address.

mod flows;
mod groups;
mod instance;
mod line;
mod model;
mod modules;
mod native;
mod negotiate;
mod openmetrics;
mod protobuf;
mod samples;
mod steady;
mod table;
mod text;

use forebay_protocol::Report;
use forebay_protocol::response::Hello;

pub use model::{Family, Histogram, Label, MetricType, Sample, Unit, Value};
pub use negotiate::{Format, negotiate};
pub use steady::SteadyCounters;
pub use table::{FamilyId, all_families};

use samples::Samples;

/// The values of an instance.
#[derive(Clone, Copy, Debug)]
pub struct InstanceMetrics<'a> {
    /// The name of the instance: the value of the label `instance`.
    pub name: &'a str,
    /// Whether the instance responds.
    pub is_up: bool,
    /// The instance, as it names itself.
    pub hello: Option<&'a Hello>,
    /// The start time, in seconds since 1970.
    pub started_s: Option<f64>,
    /// The report of the whole run; `None` if the instance does not respond.
    pub report: Option<&'a Report>,
    /// The number of accepted changes of the configuration.
    pub config_changes: Option<u64>,
    /// The number of active alarms.
    pub alarms: usize,
}

/// The values of the server itself. A value that is unknown is `None`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerMetrics {
    /// The version of the program.
    pub version: &'static str,
    /// The start time, in seconds since 1970.
    pub started_s: Option<f64>,
    /// The number of requests by class of the response's status: 2xx, 3xx, 4xx and 5xx.
    pub requests: [u64; 4],
    /// The number of clients that read the stream of events.
    pub viewers: usize,
    /// The size of the store's file, in bytes.
    pub store_bytes: Option<u64>,
    /// The resident memory, in bytes.
    pub resident_bytes: Option<u64>,
    /// The processor time of all threads, in seconds.
    pub cpu_s: Option<f64>,
}

/// What a response contains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Whether each module and each flow has its own series. Otherwise 64 and more equal ones have one series together.
    pub all_modules: bool,
}

/// Returns the families of all instances and of the server, in the order of the table. Families without samples are
/// left out.
#[must_use]
pub fn families(instances: &[InstanceMetrics<'_>], server: &ServerMetrics, options: &Options) -> Vec<Family> {
    let mut samples = Samples::new();
    add_server(&mut samples, server);
    for instance in instances {
        instance::add(&mut samples, instance, options);
    }
    samples.finish()
}

fn add_server(samples: &mut Samples<'_>, server: &ServerMetrics) {
    samples.info(FamilyId::BuildInfo, &[("version", server.version)]);
    samples.some(FamilyId::ServerStartTime, &[], server.started_s);
    for (status, count) in ["2xx", "3xx", "4xx", "5xx"].into_iter().zip(server.requests) {
        samples.count(FamilyId::ServerRequests, &[("status", status)], count);
    }
    samples.number(FamilyId::ServerViewers, &[], server.viewers as f64);
    samples.some(FamilyId::ServerStore, &[], server.store_bytes.map(|bytes| bytes as f64));
    samples.some(FamilyId::ServerMemory, &[], server.resident_bytes.map(|bytes| bytes as f64));
    samples.some(FamilyId::ServerCpu, &[], server.cpu_s);
}

/// Returns the body of a response in this format.
#[must_use]
pub fn encode(format: Format, families: &[Family]) -> Vec<u8> {
    match format {
        Format::Text => text::encode(families).into_bytes(),
        Format::OpenMetrics => openmetrics::encode(families).into_bytes(),
        Format::Protobuf => protobuf::encode(families),
    }
}

#[cfg(test)]
mod tests;
