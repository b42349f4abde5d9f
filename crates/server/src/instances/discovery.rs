//! Finds pipelines by their sockets.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use forebay_protocol::response::Hello;
use forebay_protocol::{ClientError, locate};
use tokio::net::UnixStream;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::connection::Connection;
use super::watcher::{Watched, watch};
use crate::privilege::Helper;
use crate::shared::Shared;

/// The time between two looks at the folders of sockets.
const LOOK: Duration = Duration::from_secs(1);
/// The time limit of connecting.
const CONNECT: Duration = Duration::from_secs(2);
/// The time for which a pipeline that has ended stays listed.
const REMEMBER: Duration = Duration::from_secs(3_600);

/// The sockets of pipelines, and how the server connects to them.
#[derive(Debug, Default)]
pub struct Sockets {
    /// The only socket. `None`: all in the folders that `run` uses by default, and in `folders`.
    pub only: Option<PathBuf>,
    /// More folders with sockets, which this process can open itself.
    pub folders: Vec<PathBuf>,
    /// The root helper, which opens the sockets of all users.
    pub helper: Option<Arc<Helper>>,
}

impl Sockets {
    /// Lists the sockets. Some may have no listener. `None` if the root helper does not respond.
    pub(super) async fn list(&self) -> Option<HashSet<PathBuf>> {
        if let Some(only) = &self.only {
            return Some(HashSet::from([only.clone()]));
        }
        let paths = |found: Vec<locate::Located>| found.into_iter().map(|socket| socket.path);
        let mut found: HashSet<_> = paths(locate::sockets_in(&self.folders)).collect();
        match &self.helper {
            Some(helper) => {
                let helper = Arc::clone(helper);
                // The helper may be slow, and must not delay other clients.
                let listed = spawn_blocking(move || helper.sockets()).await;
                found.extend(paths(listed.ok()?.ok()?));
            }
            None => found.extend(paths(locate::sockets_in(&locate::default_folders()))),
        }
        Some(found)
    }

    /// Returns whether a pipeline may have any name: it belongs to root or to this process' user, it is a service, or
    /// the settings name its folder. Any other user could take the name of a pipeline, and receive its next
    /// configuration.
    pub(super) fn is_trusted(&self, path: &Path, owner: u32) -> bool {
        let is_named = self.only.is_some() || self.folders.iter().any(|folder| path.starts_with(folder));
        is_named || locate::is_of_service(path) || owner == 0 || owner == rustix::process::geteuid().as_raw()
    }

    /// Connects to the pipeline at `path`, and exchanges versions. Also returns the user of its process.
    pub(crate) async fn open(&self, path: &Path) -> Result<(Connection, Hello, u32), ClientError> {
        let failed = |error| ClientError::Connect { path: path.to_owned(), error };
        let own = match timeout(CONNECT, UnixStream::connect(path)).await {
            Ok(connected) => connected,
            Err(_) => Err(io::ErrorKind::WouldBlock.into()),
        };
        let stream = match (own, &self.helper) {
            (Err(error), Some(helper)) if error.kind() == io::ErrorKind::PermissionDenied => {
                let (helper, path) = (Arc::clone(helper), path.to_owned());
                let connected = spawn_blocking(move || helper.connect(&path)).await;
                let connected = connected.map_err(|error| failed(io::Error::other(error)))?;
                let stream = connected.map_err(|error| failed(io::Error::new(error.kind(), error.to_string())))?;
                stream.set_nonblocking(true).and_then(|()| UnixStream::from_std(stream)).map_err(failed)?
            }
            (own, _) => own.map_err(failed)?,
        };
        let owner = stream.peer_cred().map_err(failed)?.uid();
        let (mut connection, hello) = Connection::begin(stream, path).await?;
        connection.allow_long_responses(self.is_trusted(path, owner));
        Ok((connection, hello, owner))
    }
}

/// The identity of a socket's file. A pipeline that starts again makes a new file.
type FileIdentity = (u64, u64, Option<SystemTime>);

fn identity(path: &Path) -> Option<FileIdentity> {
    let metadata = path.symlink_metadata().ok()?;
    Some((metadata.dev(), metadata.ino(), metadata.modified().ok()))
}

/// The search for pipelines.
#[derive(Debug, Default)]
pub struct Discovery {
    /// The sockets that were tried, with their identity at that time.
    tried: HashMap<PathBuf, FileIdentity>,
    /// The sockets that are tried again, with the time of the next attempt.
    later: HashMap<PathBuf, Instant>,
    /// The sockets at which the last attempt found no pipeline, or one that is ignored.
    failed: HashSet<PathBuf>,
    /// The sockets that have a watcher.
    watching: HashSet<PathBuf>,
    watchers: JoinSet<Watched>,
}

impl Discovery {
    /// Looks for pipelines every second, and watches each until it ends. Never returns.
    pub async fn run(mut self, shared: Arc<Shared>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = looks.tick() => self.look(&shared).await,
                Some(Ok(watched)) = self.watchers.join_next() => self.end(watched),
            }
        }
    }

    /// Notes that a watcher has ended. Its socket is tried again when its file has changed, or after the time that the
    /// watcher names. If changes of the file cannot be seen, it is tried again at the next look.
    fn end(&mut self, watched: Watched) {
        let Watched { path, again, is_found } = watched;
        self.watching.remove(&path);
        let again = again.or_else(|| identity(&path).is_none().then_some(Duration::ZERO));
        if let Some(again) = again {
            self.tried.remove(&path);
            self.later.insert(path.clone(), Instant::now() + again);
        }
        if is_found {
            self.failed.remove(&path);
        } else {
            self.failed.insert(path);
        }
    }

    /// Begins to watch new sockets, and forgets pipelines that ended long ago.
    async fn look(&mut self, shared: &Arc<Shared>) {
        // Without a list, everything stays as it is: the sockets are listed again in a second.
        let Some(found) = shared.sockets.list().await else { return };
        self.tried.retain(|path, _| found.contains(path));
        self.failed.retain(|path| found.contains(path));
        let now = Instant::now();
        self.later.retain(|path, at| found.contains(path) && *at > now);
        for path in found.into_iter().filter(|path| !self.later.contains_key(path)) {
            // The helper sees files that this process cannot see.
            let identity = identity(&path).unwrap_or_default();
            if !self.watching.contains(&path) && self.tried.insert(path.clone(), identity) != Some(identity) {
                self.watching.insert(path.clone());
                let is_first = !self.failed.contains(&path);
                self.watchers.spawn(watch(Arc::clone(shared), path, is_first));
            }
        }
        for instance in shared.instances.list() {
            let is_old = instance.ended().is_some_and(|(_, at)| at.elapsed() > REMEMBER);
            if is_old && shared.instances.remove(&instance) {
                shared.publish_end(instance.name());
            }
        }
        shared.look();
    }
}
