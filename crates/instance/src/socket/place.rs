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
    #[error("several pipelines are running: name the socket of one{}", options(.0))]
    Several(Vec<PathBuf>),
}

/// Each path as the option that names it, a line each: to be copied.
fn options(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| format!("\n  --socket {}", path.display())).collect()
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

/// The user's own folder, which is made.
pub(crate) fn own_folder() -> io::Result<PathBuf> {
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
    Ok(folder)
}

/// Where the socket of a pipeline of this name goes that this process runs; the folder is made.
///
/// # Errors
/// As making folders; also a folder of that name that another user can enter or owns.
pub fn place(pipeline: &str) -> io::Result<PathBuf> {
    let folder = own_folder()?;
    sweep(&folder);
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' };
    let name: String = pipeline.chars().map(plain).take(40).collect();
    Ok(folder.join(format!("{name}-{}.sock", std::process::id())))
}

/// Takes away what processes left that are not there any more: they were killed.
fn sweep(folder: &Path) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let process = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")?.rsplit_once('-'));
        let gone = |(_, process): (&str, &str)| {
            process.parse::<u32>().is_ok_and(|process| !Path::new(&format!("/proc/{process}")).exists())
        };
        // One of another container has a number that means nothing here, and listens.
        let refuses =
            || UnixStream::connect(&path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if process.is_some_and(gone) && refuses() {
            // Another may have been faster.
            let _ = fs::remove_file(&path);
        }
    }
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

#[cfg(test)]
mod tests {
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
        let told = PlaceError::Several(vec!["/a".into(), "/b c".into()]).to_string();
        assert_eq!(told, "several pipelines are running: name the socket of one\n  --socket /a\n  --socket /b c");
    }
}
