//! Where sockets of running pipelines are, and which one is meant.
//!
//! A run without a name of its own has the socket `NAME-PID.sock`; one that was given a name has `named/NAME.sock`,
//! which no other run can have at the same time.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use forebay_pipeline::nearest;
use thiserror::Error;

use super::peer;

/// The longest name of a run.
const LONGEST_NAME: usize = 40;
/// A socket that was made so lately may not be listened at yet.
const NEW: Duration = Duration::from_secs(60);

/// Why no socket is found.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlaceError {
    /// Nothing runs.
    #[error("no pipeline is running here (looked in {}): start one with `forebay run`, or name its socket with --socket", .0.display())]
    None(PathBuf),
    /// Several run: the names of all.
    #[error("several pipelines are running: name one{}", options(.0))]
    Several(Vec<String>),
    /// None has this name.
    #[error("no running pipeline is called '{name}'{}{}", nearest(name, running.iter().map(String::as_str)), known(running))]
    Unknown {
        /// The name.
        name: String,
        /// The names of all that run.
        running: Vec<String>,
    },
    /// Several have this name.
    #[error("several running pipelines are called '{name}': name one{}", options(handles))]
    Ambiguous {
        /// The name.
        name: String,
        /// A name for each that no other has.
        handles: Vec<String>,
    },
}

/// Each name as the option that names it, a line each: to be copied.
fn options(names: &[String]) -> String {
    names.iter().map(|name| format!("\n  --instance {name}")).collect()
}

fn known(names: &[String]) -> String {
    if names.is_empty() {
        return ": none is running (`forebay list running`)".to_owned();
    }
    let more = if names.len() > 8 { format!(" and {} more", names.len() - 8) } else { String::new() };
    format!(": running are {}{more}", names.iter().take(8).cloned().collect::<Vec<_>>().join(", "))
}

/// A pipeline that runs, by its socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Located {
    /// Its name, which others may have, too.
    pub name: String,
    /// The number of its process as the socket's name has it; `None` of a run with a name of its own.
    pub pid: Option<u32>,
    /// The socket.
    pub path: PathBuf,
}

impl Located {
    /// A name that no other has.
    fn handle(&self) -> String {
        self.pid.map_or_else(|| self.name.clone(), |pid| format!("{}-{pid}", self.name))
    }
}

/// Sockets, by whether somebody listens there.
#[derive(Debug, Default)]
pub struct Listing {
    /// Of pipelines that run, by name.
    pub alive: Vec<Located>,
    /// Those that killed processes have left.
    pub dead: Vec<PathBuf>,
}

impl Listing {
    /// The names that `--instance` takes: with the process's number where several have the same.
    #[must_use]
    pub fn handles(&self) -> Vec<String> {
        let mut counts = BTreeMap::new();
        self.alive.iter().for_each(|it| *counts.entry(&it.name).or_insert(0) += 1);
        self.alive.iter().map(|it| if counts[&it.name] > 1 { it.handle() } else { it.name.clone() }).collect()
    }

    /// The one that is called so.
    fn called(self, name: &str) -> Result<PathBuf, PlaceError> {
        let plain = plain(name);
        let by = |is: &dyn Fn(&Located) -> bool| self.alive.iter().filter(|it| is(it)).cloned().collect::<Vec<_>>();
        // Its own name, a pipeline's name, then a name with the process's number.
        let found =
            [by(&|it| it.pid.is_none() && it.name == name), by(&|it| it.name == plain), by(&|it| it.handle() == name)];
        let mut found = found.into_iter().find(|found| !found.is_empty()).unwrap_or_default();
        match found.len() {
            0 => Err(PlaceError::Unknown { name: name.to_owned(), running: self.handles() }),
            1 => Ok(found.remove(0).path),
            _ => {
                let handles = found.iter().map(Located::handle).collect();
                Err(PlaceError::Ambiguous { name: name.to_owned(), handles })
            }
        }
    }
}

fn own_user() -> u32 {
    fs::metadata("/proc/self").map_or(0, |told| told.uid())
}

/// The user's own folder for sockets.
fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_dir()) {
        Some(folder) => PathBuf::from(folder).join("forebay"),
        None => std::env::temp_dir().join(format!("forebay-{}", own_user())),
    }
}

/// The folders of all users, which the administrator can enter.
fn folders() -> Vec<PathBuf> {
    let mut all = vec![folder()];
    if own_user() == 0 {
        let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let by_user = entries(Path::new("/run/user")).map(|user| user.join("forebay"));
        let temporary = std::env::temp_dir();
        let is_one = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix("forebay-"));
            name.is_some_and(|user| user.parse::<u32>().is_ok())
        };
        all.extend(by_user.chain(entries(&temporary).filter(is_one)));
        let mut known = std::collections::HashSet::new();
        all.retain(|folder| known.insert(folder.clone()));
    }
    all
}

fn make_folder(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let told = fs::symlink_metadata(folder)?;
    if !told.is_dir() || told.uid() != own_user() || told.mode() & 0o077 != 0 {
        let why = format!("{} is not a folder that only this user can enter", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(())
}

/// The user's own folder, which is made.
pub(crate) fn own_folder() -> io::Result<PathBuf> {
    let folder = folder();
    make_folder(&folder)?;
    Ok(folder)
}

/// A name as a socket's name has it.
fn plain(name: &str) -> String {
    let plain = |letter: char| if is_plain(letter) { letter } else { '_' };
    name.chars().map(plain).take(LONGEST_NAME).collect()
}

fn is_plain(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "-_.".contains(letter)
}

/// Where the socket of a pipeline of this name goes that this process runs; the folder is made.
///
/// # Errors
/// As making folders; also a folder of that name that another user can enter or owns.
pub fn place(pipeline: &str) -> io::Result<PathBuf> {
    let folder = own_folder()?;
    sweep(&folder);
    Ok(folder.join(format!("{}-{}.sock", plain(pipeline), std::process::id())))
}

/// Where the socket of a run goes that is called `name`; the folder is made.
///
/// # Errors
/// As [`place`]; a name that is none, or that a running pipeline has.
pub fn place_named(name: &str) -> io::Result<PathBuf> {
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

/// The sockets of a folder, by their names.
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

/// Whether somebody listens at a socket, also one that is too busy to let anybody in.
pub(super) fn is_listened_at(path: &Path) -> io::Result<bool> {
    match peer::connect(path, Duration::ZERO) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

/// Looks who listens in a folder. One that another user has put there is passed over.
fn look(folder: &Path) -> Listing {
    let mut listing = Listing::default();
    let is_trusted =
        fs::symlink_metadata(folder).is_ok_and(|told| told.is_dir() && (told.uid() == own_user() || own_user() == 0));
    if !is_trusted {
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

/// All pipelines of this user that run; of the administrator, those of all users.
#[must_use]
pub fn running() -> Listing {
    let mut all = Listing::default();
    for listing in folders().iter().map(|folder| look(folder)) {
        all.alive.extend(listing.alive);
        all.dead.extend(listing.dead);
    }
    all.alive.sort();
    all
}

/// Takes away what processes left that are not there any more: they were killed.
fn sweep(folder: &Path) {
    for socket in sockets(folder) {
        let gone = match socket.pid {
            Some(process) => !Path::new(&format!("/proc/{process}")).exists(),
            // Its process is not known: it may be about to listen.
            None => {
                let made = fs::symlink_metadata(&socket.path).and_then(|told| told.modified());
                made.is_ok_and(|made| made.elapsed().is_ok_and(|age| age > NEW))
            }
        };
        // One of another container has a number that means nothing here, and listens.
        let refuses = || matches!(is_listened_at(&socket.path), Ok(false));
        if gone && refuses() {
            // Another may have been faster.
            let _ = fs::remove_file(&socket.path);
        }
    }
}

/// The socket that is meant: the one at the path or of the run that was named, else that of the only pipeline that
/// runs.
///
/// # Errors
/// [`PlaceError`].
pub fn find(path: Option<&Path>, instance: Option<&str>) -> Result<PathBuf, PlaceError> {
    if let Some(path) = path {
        return Ok(path.to_owned());
    }
    let folder = folder();
    let mut own = look(&folder);
    match instance {
        Some(name) => match own.called(name) {
            // The administrator may mean another user's.
            Err(PlaceError::Unknown { .. }) => running().called(name),
            found => found,
        },
        None => match own.alive.len() {
            0 => Err(PlaceError::None(folder)),
            1 => Ok(own.alive.remove(0).path),
            _ => Err(PlaceError::Several(own.handles())),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn sockets_of_processes_that_are_gone_are_taken_away() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let file = |name: &str| folder.path().join(name);
        let own = format!("a-b-{}.sock", std::process::id());
        // No process has the greatest number: there are 2^22 at the most.
        for name in [own.as_str(), "gw-4294967295.sock", "gw-x.sock", "notes"] {
            fs::write(file(name), "").expect("a writable folder");
        }
        sweep(folder.path());
        let left = [own.as_str(), "gw-4294967295.sock", "gw-x.sock", "notes"].map(|name| file(name).exists());
        assert_eq!(left, [true, false, true, true]);
    }

    #[test]
    fn several_are_told_as_options() {
        let told = PlaceError::Several(vec!["edge".to_owned(), "gw-7".to_owned()]).to_string();
        assert_eq!(told, "several pipelines are running: name one\n  --instance edge\n  --instance gw-7");
        let told = PlaceError::Unknown { name: "edg".to_owned(), running: vec!["edge".to_owned()] }.to_string();
        assert_eq!(told, "no running pipeline is called 'edg' (did you mean 'edge'?): running are edge");
    }

    /// A stopped process whose socket had no room kept every command that looks for runs waiting.
    #[test]
    fn a_run_without_room_for_a_connection_is_listed_and_told_busy() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let path = folder.path().join("gw-4294967295.sock");
        let _full = peer::tests::busy(&path);
        assert_eq!(look(folder.path()).handles(), ["gw"]);
        sweep(folder.path());
        assert!(path.exists(), "somebody listens there");
        let error = super::super::Client::connect(&path).err().expect("no room").to_string();
        assert!(error.contains("it accepts no connection, and no other has room to wait"), "{error}");
    }

    #[test]
    fn a_run_is_found_by_its_name_and_the_dead_are_told_apart() {
        let folder = tempfile::tempdir().expect("a writable folder for temporary files");
        let named = folder.path().join("named");
        fs::create_dir(&named).expect("a writable folder");
        let bind = |path: PathBuf| (UnixListener::bind(&path).expect("a socket"), path);
        let at = |name: &str| bind(folder.path().join(name));
        let (_gw, first) = at("gw-7.sock");
        let (_other, second) = at("gw-8.sock");
        let (_edge, edge) = at("edge-9.sock");
        let (_own, own) = bind(named.join("edge-1.sock"));
        let (killed, dead) = at("old-3.sock");
        drop(killed);
        let look = || look(folder.path());
        assert_eq!(look().dead, [dead]);
        assert_eq!(look().handles(), ["edge", "edge-1", "gw-7", "gw-8"]);
        // A name with a number at its end is a name; the process's number is none.
        for (name, path) in [("edge", &edge), ("edge-9", &edge), ("edge-1", &own), ("gw-7", &first), ("gw-8", &second)]
        {
            assert_eq!(look().called(name).as_ref(), Ok(path), "{name}");
        }
        let handles = vec!["gw-7".to_owned(), "gw-8".to_owned()];
        assert_eq!(look().called("gw"), Err(PlaceError::Ambiguous { name: "gw".to_owned(), handles }));
        assert!(matches!(look().called("g"), Err(PlaceError::Unknown { running, .. }) if running.len() == 4));
    }
}
