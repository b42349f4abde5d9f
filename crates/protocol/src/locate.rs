//! Finds the sockets of running pipelines.
//!
//! A run without a name has the socket `PIPELINE-PID.sock`. A run with a name has `named/NAME.sock`, so that two runs
//! never have the same name at the same time.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

use crate::connect;

/// The longest path of a socket, in bytes (unix(7): 108 bytes with the zero at the end).
const LONGEST_PATH: usize = 107;
/// The folder with the folders of runs that are services of the system: `RuntimeDirectory=forebay/NAME` in their units.
const SERVICES: &str = "/run/forebay";
/// The longest name of a run.
const LONGEST_NAME: usize = 40;
/// The age up to which a named socket without a listener is kept, because its process may be about to listen.
const NEW: Duration = Duration::from_secs(60);

/// The reason why no socket was found.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum LocateError {
    /// No pipeline runs.
    #[error(
        "no pipeline is running here (looked in {}): start one with `forebay run`, or name its socket with --socket",
        .0.display()
    )]
    None(PathBuf),
    /// Several pipelines run: their names.
    #[error("several pipelines are running: name one{}", options(.0))]
    Several(Vec<String>),
    /// No pipeline has this name.
    #[error("no running pipeline is called '{name}'{hint}{}", known(running))]
    Unknown {
        /// The name.
        name: String,
        /// The names of all running pipelines.
        running: Vec<String>,
        /// A suggestion, such as `" (did you mean 'edge'?)"`. This crate leaves it empty. A program that talks to a
        /// user may set it.
        hint: String,
    },
    /// Several pipelines have this name.
    #[error("several running pipelines are called '{name}': name one{}", options(handles))]
    Ambiguous {
        /// The name.
        name: String,
        /// A unique name of each of them.
        handles: Vec<String>,
    },
}

/// Lists names as options, one per line, ready to be copied.
fn options(names: &[String]) -> String {
    names.iter().map(|name| format!("\n  --instance {name}")).collect()
}

/// Lists the names of running pipelines for an error, at most eight of them.
fn known(names: &[String]) -> String {
    if names.is_empty() {
        return ": none is running (`forebay list running`)".to_owned();
    }
    let more = if names.len() > 8 { format!(" and {} more", names.len() - 8) } else { String::new() };
    format!(": running are {}{more}", names.iter().take(8).cloned().collect::<Vec<_>>().join(", "))
}

/// A running pipeline.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Located {
    /// Its name. Other pipelines may have the same.
    pub name: String,
    /// Its process ID, from the socket's name; `None` if the run has a name.
    pub pid: Option<u32>,
    /// The socket.
    pub path: PathBuf,
}

impl Located {
    /// Returns a unique name: with the process ID if the run has no name.
    fn handle(&self) -> String {
        self.pid.map_or_else(|| self.name.clone(), |pid| format!("{}-{pid}", self.name))
    }
}

/// Sockets with and without a listener.
#[derive(Debug, Default)]
pub struct Listing {
    /// Running pipelines, by name.
    pub alive: Vec<Located>,
    /// Sockets that killed processes left behind.
    pub dead: Vec<PathBuf>,
}

impl Listing {
    /// Returns the names for `--instance`: with the process ID if several pipelines have the same name.
    #[must_use]
    pub fn handles(&self) -> Vec<String> {
        let mut counts = BTreeMap::new();
        self.alive.iter().for_each(|it| *counts.entry(&it.name).or_insert(0) += 1);
        self.alive.iter().map(|it| if counts[&it.name] > 1 { it.handle() } else { it.name.clone() }).collect()
    }

    /// Returns the socket of the pipeline that `name` identifies: by the name of its run, else by its pipeline's name,
    /// else by its name with the process ID. Returns an error if there is none, or if there are several.
    fn called(self, name: &str) -> Result<PathBuf, LocateError> {
        let plain = plain(name);
        let by = |is: &dyn Fn(&Located) -> bool| self.alive.iter().filter(|it| is(it)).cloned().collect::<Vec<_>>();
        // The name of a run is tried first, then that of a pipeline, then one with a process ID.
        let found =
            [by(&|it| it.pid.is_none() && it.name == name), by(&|it| it.name == plain), by(&|it| it.handle() == name)];
        let mut found = found.into_iter().find(|found| !found.is_empty()).unwrap_or_default();
        match found.len() {
            0 => Err(LocateError::Unknown { name: name.to_owned(), running: self.handles(), hint: String::new() }),
            1 => Ok(found.remove(0).path),
            _ => {
                let handles = found.iter().map(Located::handle).collect();
                Err(LocateError::Ambiguous { name: name.to_owned(), handles })
            }
        }
    }
}

/// Returns the user ID of this process.
fn own_user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// Returns the folder for sockets of this process, which may not exist: that of the user, or that of a service. A
/// service has no folder of its user, and often sees only its own temporary files.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_dir()) {
        return PathBuf::from(folder).join("forebay");
    }
    let of_service = std::env::var_os("RUNTIME_DIRECTORY").and_then(|folders| service_folder(&folders, SERVICES));
    of_service.unwrap_or_else(|| std::env::temp_dir().join(format!("forebay-{}", own_user())))
}

/// Returns the first of a service's folders (`$RUNTIME_DIRECTORY`) that is in the folder `services`.
fn service_folder(folders: &OsStr, services: &str) -> Option<PathBuf> {
    std::env::split_paths(folders).find(|folder| folder.parent() == Some(Path::new(services)))
}

/// Returns whether a socket is in the folder of a service of the system. The administrator decides which users have
/// services, and which names these have.
#[must_use]
pub fn is_of_service(socket: &Path) -> bool {
    socket.starts_with(SERVICES)
}

/// Returns the folders in which pipelines listen if they are started without `--socket`: the user's own folder, and
/// those of this user's services. For the administrator (user ID 0), also those of all other users. A folder may not
/// exist. A new user or service has a new folder, so a program that runs for long calls this function each time it
/// lists sockets.
#[must_use]
pub fn default_folders() -> Vec<PathBuf> {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all = vec![folder()];
    // Only the administrator can make folders there.
    all.extend(entries(Path::new(SERVICES)).filter(|folder| is_trusted(folder)));
    if own_user() == 0 {
        let by_user = entries(Path::new("/run/user")).map(|user| user.join("forebay"));
        let temporary = std::env::temp_dir();
        let is_one = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix("forebay-"));
            name.is_some_and(|user| user.parse::<u32>().is_ok())
        };
        all.extend(by_user.chain(entries(&temporary).filter(is_one)));
    }
    let mut known = std::collections::HashSet::new();
    all.retain(|folder| known.insert(folder.clone()));
    all
}

/// Makes the folder if it does not exist. Returns an error if another user owns it or can enter it, because another
/// user must not be able to replace sockets in it.
fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != own_user() || metadata.mode() & 0o077 != 0 {
        let why = format!(
            "{} must be a folder that belongs to this user and that no other user can enter (mode 0700)",
            folder.display()
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// Makes and returns the user's folder for sockets.
///
/// # Errors
/// The folder cannot be created, or another user owns it or can enter it.
pub fn own_folder() -> io::Result<PathBuf> {
    let folder = folder();
    make_folder(&folder)?;
    Ok(folder)
}

/// Returns `name` as it stands in the names of sockets: at most [`LONGEST_NAME`] characters. The character `_` replaces
/// each character that is not allowed there.
fn plain(name: &str) -> String {
    let plain = |letter: char| if is_plain(letter) { letter } else { '_' };
    name.chars().map(plain).take(LONGEST_NAME).collect()
}

/// Returns whether a character is allowed in the names of sockets.
fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.".contains(letter)
}

/// Returns the path for the socket of a pipeline that this process runs. Makes the folder.
///
/// # Errors
/// As [`own_folder`].
pub fn socket_path(pipeline: &str) -> io::Result<PathBuf> {
    let folder = own_folder()?;
    sweep(&folder);
    Ok(folder.join(format!("{}-{}.sock", plain(pipeline), std::process::id())))
}

/// Returns the path for the socket of a run that is called `name`. Makes the folder.
///
/// # Errors
/// As [`own_folder`]; also an invalid name, or the name of a running pipeline.
pub fn named_socket_path(name: &str) -> io::Result<PathBuf> {
    let is_name =
        (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_plain) && !name.starts_with(['-', '.']);
    if !is_name {
        let why = format!(
            "allowed are up to {LONGEST_NAME} letters, digits, '-', '_' and '.', with a letter, digit or '_' first"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    let folder = own_folder()?;
    sweep(&folder);
    let taken = look(&folder).alive.into_iter().find(|it| it.name == name);
    if let Some(taken) = taken {
        let process = taken.pid.map_or_else(String::new, |pid| format!(" (process {pid})"));
        let why = format!(
            "a pipeline of that name runs already{process}: choose another name, or end that one with `forebay stop \
             --instance {name}`"
        );
        return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    }
    let named = folder.join("named");
    make_folder(&named)?;
    Ok(named.join(format!("{name}.sock")))
}

/// Lists the sockets of a folder.
fn sockets(folder: &Path) -> Vec<Located> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let stem = |path: PathBuf| Some((path.file_name()?.to_str()?.strip_suffix(".sock")?.to_owned(), path));
        entries.filter_map(stem).collect::<Vec<_>>()
    };
    let mut all: Vec<_> =
        entries(&folder.join("named")).into_iter().map(|(name, path)| Located { name, pid: None, path }).collect();
    all.extend(entries(folder).into_iter().map(|(stem, path)| match stem.rsplit_once('-') {
        Some((name, process)) if process.parse::<u32>().is_ok() => {
            Located { name: name.to_owned(), pid: process.parse().ok(), path }
        }
        _ => Located { name: stem, pid: None, path },
    }));
    all
}

/// Returns whether a socket has a listener. Also true if the listener is too busy to accept a connection.
///
/// # Errors
/// Errors of the system's `connect`, except a missing listener.
pub fn is_listened_at(path: &Path) -> io::Result<bool> {
    match connect::connect(path, Duration::ZERO) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

/// Checks the length of a socket's path.
///
/// # Errors
/// An empty path, or a path that is too long for a socket.
pub fn check_socket_path(path: &Path) -> io::Result<()> {
    let length = path.as_os_str().len();
    if (1..=LONGEST_PATH).contains(&length) {
        return Ok(());
    }
    let wrong = format!("a path of {length} bytes: allowed are 1 to {LONGEST_PATH}: choose another path with --socket");
    Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
}

/// Returns whether sockets in the folder may be trusted: it belongs to this user, or this process belongs to the
/// administrator.
fn is_trusted(folder: &Path) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|metadata| metadata.is_dir() && (metadata.uid() == own_user() || own_user() == 0))
}

/// Lists the sockets in these folders and in their subfolders `named`, each once, by name. It does not connect to them,
/// so a socket may have no listener. A program that must notice new pipelines soon, such as the server, lists the
/// sockets every second, and connects only to those that it does not know yet. So a pipeline accepts one connection of
/// this program, and not one every second.
///
/// A [default folder](default_folders) that belongs to another user is skipped, except if this process belongs to the
/// administrator. Another user could respond in place of a pipeline. Other folders are listed for any owner, because
/// the caller has named them. A folder that does not exist has no sockets.
#[must_use]
pub fn sockets_in(folders: &[PathBuf]) -> Vec<Located> {
    let defaults = default_folders();
    let is_listed = |folder: &&PathBuf| !defaults.contains(folder) || is_trusted(folder);
    let is_socket =
        |located: &Located| fs::metadata(&located.path).is_ok_and(|metadata| metadata.file_type().is_socket());
    let all = folders.iter().filter(is_listed).flat_map(|folder| sockets(folder));
    let mut all: Vec<_> = all.filter(is_socket).collect();
    all.sort();
    all.dedup();
    all
}

/// Lists the sockets of a folder with and without a listener. Skips a folder of another user, except if this process
/// belongs to the administrator. Skips sockets that cannot be connected to for a reason other than a missing listener.
fn look(folder: &Path) -> Listing {
    let mut listing = Listing::default();
    if !is_trusted(folder) {
        return listing;
    }
    for socket in sockets(folder) {
        match is_listened_at(&socket.path) {
            Ok(true) => listing.alive.push(socket),
            Ok(false) => listing.dead.push(socket.path),
            Err(_) => {}
        }
    }
    listing.alive.sort();
    listing
}

/// Lists the running pipelines of this user, also its services; for the administrator, those of all users.
#[must_use]
pub fn running() -> Listing {
    let mut all = Listing::default();
    for listing in default_folders().iter().map(|folder| look(folder)) {
        all.alive.extend(listing.alive);
        all.dead.extend(listing.dead);
    }
    all.alive.sort();
    all
}

/// Removes the sockets of killed processes from a folder. A socket is removed only if it has no listener. In addition,
/// its process must not exist. The name of a named socket contains no process ID, so a named socket must be older than
/// [`NEW`] instead.
fn sweep(folder: &Path) {
    for socket in sockets(folder) {
        let gone = match socket.pid {
            Some(process) => !Path::new(&format!("/proc/{process}")).exists(),
            // The process is unknown: it may be about to listen.
            None => {
                let made = fs::symlink_metadata(&socket.path).and_then(|metadata| metadata.modified());
                made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > NEW))
            }
        };
        // The IDs of processes in another container have no meaning here. The process is alive if it listens.
        let refuses = || matches!(is_listened_at(&socket.path), Ok(false));
        if gone && refuses() {
            // Another process may have removed it already.
            let _ = fs::remove_file(&socket.path);
        }
    }
}

/// Returns the socket at `path`, or of the pipeline called `instance`, or of the only running pipeline.
///
/// # Errors
/// [`LocateError`].
pub fn find(path: Option<&Path>, instance: Option<&str>) -> Result<PathBuf, LocateError> {
    if let Some(path) = path {
        return Ok(path.to_owned());
    }
    let folder = folder();
    let mut own = look(&folder);
    match instance {
        Some(name) => match own.called(name) {
            // The administrator may name a pipeline of another user.
            Err(LocateError::Unknown { .. }) => running().called(name),
            found => found,
        },
        None => match own.alive.len() {
            0 => Err(LocateError::None(folder)),
            1 => Ok(own.alive.remove(0).path),
            _ => Err(LocateError::Several(own.handles())),
        },
    }
}

#[cfg(test)]
mod tests;
