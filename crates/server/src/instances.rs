//! The pipelines that run on this host: the server finds them by their sockets, and watches them.
//!
//! The server never starts or ends a pipeline. Each pipeline is watched over a few connections, whatever the number of
//! viewers. A pipeline whose socket is gone stays listed for a while, so that its end is visible.

pub mod connection;
mod discovery;
mod instance;
mod reports;
mod watcher;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use forebay_protocol::response::Hello;

pub use discovery::{Discovery, Sockets};
pub use instance::{Instance, Live, Status};
pub use reports::Reports;

use crate::settings::INTERVAL;

/// The largest number of listed pipelines of a user that is not trusted: such a user could start any number.
const MAX_FOREIGN: usize = 32;

/// The pipelines of this host, by name.
#[derive(Debug)]
pub struct Instances {
    all: Mutex<BTreeMap<String, Arc<Instance>>>,
    /// The time between two reports of a pipeline.
    interval: Duration,
}

impl Default for Instances {
    fn default() -> Self {
        Self::new(INTERVAL)
    }
}

impl Instances {
    /// Creates an empty list. `interval` is the time between two reports of a pipeline.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self { all: Mutex::default(), interval }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Instance>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pipeline of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Arc<Instance>> {
        self.lock().get(name).cloned()
    }

    /// Returns all pipelines, in the order of their names.
    #[must_use]
    pub fn list(&self) -> Vec<Arc<Instance>> {
        self.lock().values().cloned().collect()
    }

    /// Adds a pipeline that responded at `socket`. Its name is that of the run, or the pipeline's name if the run has
    /// none. `foreign` is the user of a pipeline that is not trusted: the number of the user is added. If another
    /// running pipeline has this name, the process ID is added. A name does not change while the pipeline runs. Returns
    /// `None` if [`MAX_FOREIGN`] pipelines of this user are running already. One that has ended makes room.
    pub(crate) fn add(&self, hello: Hello, socket: PathBuf, foreign: Option<u32>) -> Option<Arc<Instance>> {
        let mut all = self.lock();
        // One process listens at a socket. So another pipeline with this socket has ended, even if that is not known
        // yet.
        let is_gone = |other: &Arc<Instance>| !other.status().is_running() || other.socket() == socket;
        let is_free = |name: &str| all.get(name).is_none_or(is_gone);
        // No run has a name with `@`. Pipelines may, so it is replaced.
        let own = hello.instance.as_ref().unwrap_or(&hello.pipeline).replace('@', "_");
        let plain = match foreign {
            Some(user) => format!("{own}@{user}"),
            None => own,
        };
        // Processes in different containers may have the same ID.
        let numbered = (2_u64..).map(|number| format!("{plain}-{}-{number}", hello.pid));
        let mut names = [plain.clone(), format!("{plain}-{}", hello.pid)].into_iter().chain(numbered);
        let name = names.find(|name| is_free(name)).expect("numbers do not end");
        let same_user = || all.values().filter(|other| other.foreign() == foreign);
        if foreign.is_some() && same_user().count() >= MAX_FOREIGN && !all.contains_key(&name) {
            let ended = same_user().filter_map(|other| Some((other.ended()?.1, other.name().to_owned())));
            let (_, first) = ended.min()?;
            all.remove(&first);
        }
        let instance = Arc::new(Instance::new(name.clone(), socket, hello, foreign, self.interval));
        all.insert(name, Arc::clone(&instance));
        Some(instance)
    }

    /// Removes a pipeline, unless another one has its name now. Returns whether it was removed.
    pub(crate) fn remove(&self, instance: &Arc<Instance>) -> bool {
        let mut all = self.lock();
        let is_same = all.get(instance.name()).is_some_and(|other| Arc::ptr_eq(other, instance));
        if is_same {
            all.remove(instance.name());
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(pipeline: &str, instance: Option<&str>, pid: u32) -> Hello {
        Hello {
            protocol: forebay_protocol::VERSION,
            forebay: "0".to_owned(),
            pipeline: pipeline.to_owned(),
            instance: instance.map(str::to_owned),
            pid,
            started: "2026-01-01T00:00:00Z".to_owned(),
            workers: 1,
            capabilities: Vec::new(),
        }
    }

    /// Regression: any user of the host could take the name of another user's pipeline.
    #[test]
    fn the_pipeline_of_a_foreign_user_never_has_a_plain_name() {
        let instances = Instances::default();
        let add = |hello, foreign| instances.add(hello, format!("{foreign:?}").into(), foreign);
        let name = |hello, foreign| add(hello, foreign).expect("few").name().to_owned();
        assert_eq!(name(hello("edge", None, 7), Some(1_001)), "edge@1001");
        assert_eq!(name(hello("edge@1002", Some("edge"), 8), Some(1_002)), "edge@1002");
        assert_eq!(name(hello("edge@1003", None, 9), Some(1_004)), "edge_1003@1004");
        assert_eq!(name(hello("edge", None, 10), None), "edge");
        let sockets = Sockets { folders: vec!["/run/forebay".into()], ..Sockets::default() };
        let own = rustix::process::geteuid().as_raw();
        for (path, owner, is_trusted) in [
            ("/tmp/forebay-7/a.sock", 4_000_000, false),
            ("/tmp/forebay-7/a.sock", 0, true),
            ("/tmp/forebay-7/a.sock", own, true),
            ("/run/forebay/a.sock", 4_000_000, true),
            ("/run/forebay-2/a.sock", 4_000_000, false),
        ] {
            assert_eq!(sockets.is_trusted(std::path::Path::new(path), owner), is_trusted, "{path} {owner}");
        }
    }

    #[test]
    fn the_pipelines_of_each_foreign_user_are_limited() {
        let instances = Instances::default();
        let add = |number: u32, user| {
            let socket = format!("{number} {user:?}").into();
            instances.add(hello(&format!("p{number}"), None, number), socket, user)
        };
        let first = add(0, Some(1_001)).expect("it is the first");
        assert!((1..32).all(|number| add(number, Some(1_001)).is_some()));
        assert!(add(32, Some(1_001)).is_none());
        assert!(add(32, Some(1_002)).is_some() && add(32, None).is_some(), "other users have room");
        first.end(Status::Ended);
        assert!(add(33, Some(1_001)).is_some(), "one that has ended makes room");
        assert!(add(34, Some(1_001)).is_none() && instances.get("p0@1001").is_none());
        assert_eq!(instances.list().len(), 34);
    }

    #[test]
    fn a_name_is_kept_and_a_second_pipeline_of_the_name_gets_its_process_id() {
        let instances = Instances::default();
        let names = || instances.list().iter().map(|instance| instance.name().to_owned()).collect::<Vec<_>>();
        let add = |hello, socket: &str| instances.add(hello, socket.into(), None).expect("a trusted user");
        let first = add(hello("gw", None, 7), "a");
        add(hello("gw", None, 8), "b");
        add(hello("gw", Some("edge"), 9), "c");
        assert_eq!(names(), ["edge", "gw", "gw-8"]);
        first.end(Status::Ended);
        let again = add(hello("gw", None, 10), "d");
        assert_eq!(again.name(), "gw", "the name is free, because its pipeline has ended");
        assert_eq!(names(), ["edge", "gw", "gw-8"]);
        instances.remove(&first);
        assert_eq!(names(), ["edge", "gw", "gw-8"], "another pipeline has the name now");
        instances.remove(&again);
        assert_eq!(names(), ["edge", "gw-8"]);
    }

    #[test]
    fn a_pipeline_is_silent_when_a_report_is_late() {
        for (interval_ms, silence_ms) in [(250, 1_900), (1_000, 1_900), (2_000, 2_900), (10_000, 10_900)] {
            let instances = Instances::new(Duration::from_millis(interval_ms));
            let instance = instances.add(hello("gw", None, 7), "a".into(), None).expect("one");
            assert_eq!(instance.silence(), Duration::from_millis(silence_ms));
        }
    }
}
