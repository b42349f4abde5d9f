//! Where sockets of running pipelines are, and which one is meant.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why no socket is found.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum PlaceError {
    /// Nothing runs.
    #[error("no pipeline is running here (looked in {}): start one with `forebay run`, or name its socket with --socket", .0.display())]
    None(PathBuf),
    /// Several run.
    #[error("several pipelines are running: name one's socket with --socket: {}", .0.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", "))]
    Several(Vec<PathBuf>),
}

/// The user's own folder for sockets.
fn folder() -> PathBuf {
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| Path::new(folder).is_dir()) {
        Some(folder) => PathBuf::from(folder).join("forebay"),
        None => {
            std::env::temp_dir().join(format!("forebay-{}", fs::metadata("/proc/self").map_or(0, |told| told.uid())))
        }
    }
}

/// Where the socket of a pipeline of this name goes that this process runs; the folder is made.
///
/// # Errors
/// As making folders; also a folder of that name that another user can enter or owns.
pub fn place(pipeline: &str) -> io::Result<PathBuf> {
    let folder = folder();
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let (told, own) = (fs::symlink_metadata(&folder)?, fs::metadata("/proc/self")?.uid());
    if !told.is_dir() || told.uid() != own || told.mode() & 0o077 != 0 {
        let why = format!("{} is not a folder that only this user can enter", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let name: String = pipeline.chars().map(plain).take(40).collect();
    Ok(folder.join(format!("{name}-{}.sock", std::process::id())))
}

/// The socket that is meant: the one that was named, else that of the only pipeline that runs.
///
/// # Errors
/// [`PlaceError`].
pub fn find(named: Option<&Path>) -> Result<PathBuf, PlaceError> {
    if let Some(path) = named {
        return Ok(path.to_owned());
    }
    let folder = folder();
    let entries = fs::read_dir(&folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let sockets = entries.filter(|path| path.extension().is_some_and(|extension| extension == "sock"));
    // One that nobody listens to was left by a process that was killed.
    let mut alive: Vec<_> = sockets.filter(|path| UnixStream::connect(path).is_ok()).collect();
    alive.sort();
    match alive.len() {
        0 => Err(PlaceError::None(folder)),
        1 => Ok(alive.remove(0)),
        _ => Err(PlaceError::Several(alive)),
    }
}
