//! The files that a pipeline reads and writes. A file has one writer, or any number of readers.

mod json;
mod log;
mod replace;
mod text;

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

pub use json::check_object;
pub use log::{LogFile, Turn, reopen_logs, take_reopen_failures};
pub use replace::{OWNER_ALONE, remove_left, replace, replace_private};
pub use text::{read_all_text, read_text, skip_mark};

/// The largest file of routes, tunnels or sessions that is read, in bytes. It has room for more than twice the routes
/// of the Internet, or for two million sessions.
pub const MOST_TABLE: u64 = 256 << 20;

/// The largest file of rules or patterns that is read, in bytes: several times the size of the largest sets that can be
/// compiled.
pub const MOST_RULES: u64 = 64 << 20;

/// The files in use: who uses them, and how. The first field has the claims in the order in which they were made. The
/// second field is the user that reads the standard input, or has read it. `None` if no user has.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<Use>, Option<String>);

/// A claim of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    /// The user, as errors name it.
    who: String,
    /// The [canonical] path of the file when it was claimed.
    path_key: PathBuf,
    /// Whether the user writes the file. Otherwise the user only reads it.
    written: bool,
    /// Whether the user writes by appending.
    appends: bool,
    /// Whether the claim lasts as long as the run ([`claim_for_good`](Files::claim_for_good)).
    lasts: bool,
}

impl Files {
    /// Claims the file at `path` for `who`, for reading or writing.
    ///
    /// # Errors
    /// A text for the user: another user writes the file, or the claim is for writing and another user uses the file.
    /// Devices and pipes (`/dev/null`) are not checked.
    pub fn claim(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        self.note(who, path, written, (false, false))
    }

    /// Claims the file at `path` for `who`, for appending. In a later configuration, a user of the same name may claim
    /// the file again in this way. A file that the user claims in another way, for example for reading, is a conflict.
    ///
    /// # Errors
    /// A text for the user: another user uses the file, or the same user uses it and does not append to it.
    pub fn claim_on(&mut self, who: &str, path: &Path) -> Result<(), String> {
        self.note(who, path, true, (true, false))
    }

    /// Claims a file for a use that lasts beyond the configuration: [`settle`](Self::settle) does not remove it.
    ///
    /// # Errors
    /// Those of [`claim`](Self::claim).
    pub fn claim_for_good(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        self.note(who, path, written, (false, true))
    }

    /// Claims the standard input for `who`. It can be read only once, so it is never free again.
    ///
    /// # Errors
    /// A text for the user that names the present or earlier reader.
    pub fn claim_input(&mut self, who: &str) -> Result<(), String> {
        if let Some(other) = &self.1 {
            return Err(format!("{other} already reads the standard input: allowed is one reader in a run"));
        }
        self.1 = Some(who.to_owned());
        Ok(())
    }

    /// Adds a claim, if no other claim conflicts with it.
    fn note(&mut self, who: &str, path: &Path, written: bool, (appends, lasts): (bool, bool)) -> Result<(), String> {
        if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(());
        }
        let path_key = canonical(path);
        let goes_on = |other: &Use| appends && other.appends && other.who == who;
        let mut others = self.0.iter().filter(|other| (other.written || written) && !goes_on(other));
        if let Some(other) = others.find(|other| is_same(&other.path_key, &path_key)) {
            let does = if other.written { "writes" } else { "reads" };
            return Err(format!("{}: {} already {does} this file: allowed is another file", path.display(), other.who));
        }
        self.0.push(Use { who: who.to_owned(), path_key, written, appends, lasts });
        Ok(())
    }

    /// Returns whether any user writes the file at `path`.
    #[must_use]
    pub fn is_written(&self, path: &Path) -> bool {
        let path_key = canonical(path);
        self.0.iter().any(|known| known.written && is_same(&known.path_key, &path_key))
    }

    /// Returns the number of claims, for a later [`settle`](Self::settle).
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Ends a change of the configuration. `count` is the result of [`count`](Self::count) before the change. Of the
    /// first `count` claims, this keeps the claims that last as long as the run, and the claims of users for which
    /// `keeps` returns true. A claim that was made later and is equal to a kept claim is removed as a duplicate.
    pub fn settle(&mut self, count: usize, keeps: impl Fn(&str) -> bool) {
        let mut later = self.0.split_off(count.min(self.0.len()));
        self.0.retain(|kept| kept.lasts || keeps(&kept.who));
        later.retain(|new| !self.0.contains(new));
        self.0.append(&mut later);
    }
}

/// Returns the same path for all paths of one file, whether or not the file exists. Hard links keep different paths.
fn canonical(path: &Path) -> PathBuf {
    if let Ok(existing) = path.canonicalize() {
        return existing;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Checks that a request, which may name only files in `folders`, may name the file at `path`. The file need not exist
/// yet. `shown` is its name in the error.
///
/// # Errors
/// The file is in none of the folders.
pub fn check_in_folders(path: &Path, shown: &str, folders: &[PathBuf]) -> Result<(), String> {
    if is_in_folders(path, folders) {
        return Ok(());
    }
    let folders: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    let folders = if folders.is_empty() { "none".to_owned() } else { folders.join(", ") };
    Err(format!("'{shown}' is outside the folders that this request may name: {folders}"))
}

/// Returns whether a file is in one of these folders. Symbolic links are resolved.
fn is_in_folders(path: &Path, folders: &[PathBuf]) -> bool {
    if path.is_symlink() && path.canonicalize().is_err() {
        // Writing to a link without a target creates the target, which may be in any folder.
        return false;
    }
    let path = canonical(path);
    // A path that cannot be resolved, because its folder does not exist, may lead to any folder.
    let is_resolved = path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir);
    is_resolved && folders.iter().any(|folder| folder.canonicalize().is_ok_and(|folder| path.starts_with(folder)))
}

/// Returns whether both paths are the same file now. A hard link is another name of a file.
fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| path.metadata().ok().map(|metadata| (metadata.dev(), metadata.ino()));
    one == other || inode(one).is_some_and(|one| Some(one) == inode(other))
}

/// Checks, without creating the file, whether a file can be written: it must not be a folder, and its folder must
/// exist. Does not check permissions.
///
/// # Errors
/// The same error as opening the file.
pub fn check_writable(path: &Path) -> io::Result<()> {
    let folder = match path.metadata() {
        Ok(metadata) if metadata.is_dir() => return Err(Errno::ISDIR.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => path.parent(),
        metadata => return metadata.map(|_| ()),
    };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.metadata()?.is_dir() { Ok(()) } else { Err(Errno::NOTDIR.into()) }
}

/// Opens a regular file for reading. Other files may block their reader for ever; a pipe may do so on opening.
///
/// # Errors
/// Those of opening, and a file that is not regular.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // The type is checked before opening, because some devices react to being opened.
    check(path.metadata()?.file_type())?;
    open_if_regular(path)
}

/// Opens a file that may have been replaced since the check. A pipe is opened without waiting, and then refused.
fn open_if_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Opens a file of any type for writing, without emptying it. A new file gets the permissions `mode` without the umask.
/// A pipe without a reader is refused, because opening it would wait for a reader, maybe for ever.
///
/// # Errors
/// Those of opening, and a pipe without a reader.
pub fn open_to_write(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(mode).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NXIO) if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) => {
            io::Error::other("it is a pipe without a reader: start its reader first")
        }
        _ => error,
    })?;
    // From now on, a write waits for a slow reader.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

/// Checks that a file is regular.
fn check(kind: FileType) -> io::Result<()> {
    match refusal(kind) {
        Some(file_type) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {file_type}: allowed are regular files")))
        }
        None => Ok(()),
    }
}

/// Returns a description of a file that is not regular. `None` for a regular file.
fn refusal(kind: FileType) -> Option<&'static str> {
    Some(match kind {
        kind if kind.is_file() => return None,
        kind if kind.is_dir() => "a folder",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    })
}

/// Reads a whole regular file of up to `most` bytes.
///
/// # Errors
/// Those of [opening](open_regular) and reading; a longer file, which is not read at all; and too little memory for the
/// file. Memory is allocated for the file's length and one byte more. Only a file that grows while it is read takes
/// more. `most` must be less than `u64::MAX`.
fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let len = file.metadata()?.len();
    if len > most {
        let message = format!("it is longer than {}: it has {}", size(most), size(len));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    read_into(room(len)?, file, most)
}

/// Allocates memory for a file of `len` bytes, and one byte more. Without the additional byte, the read that finds the
/// end of the file would allocate memory again.
fn room(len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX).saturating_add(1))
        .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, format!("there is no memory for its {}", size(len))))?;
    Ok(bytes)
}

/// Reads a stream of up to `most` bytes to its end.
///
/// # Errors
/// Those of reading, and a longer stream.
fn read_all(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    read_into(Vec::new(), from, most)
}

/// Reads a stream of up to `most` bytes to its end, and appends the bytes to `bytes`. Reads one byte more, to detect a
/// longer stream.
fn read_into(mut bytes: Vec<u8>, from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {}", size(most))));
    }
    Ok(bytes)
}

/// Formats a number of bytes in GiB, MiB, KiB or bytes: the largest unit that is not larger than the number. The text
/// has one decimal, or no decimal if the number is a multiple of the unit.
#[must_use]
pub fn size(bytes: u64) -> String {
    let (unit, name) = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")]
        .into_iter()
        .find(|(unit, _)| bytes >= *unit)
        .unwrap_or((1, "bytes"));
    if bytes.is_multiple_of(unit) {
        format!("{} {name}", bytes / unit)
    } else {
        format!("{:.1} {name}", bytes as f64 / unit as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file of 1 GB with a wrong name once took 2 GB of memory before it was refused, and the limit for a key was
    /// printed as 0 MiB.
    #[test]
    fn a_file_that_is_too_long_is_refused_unread_with_both_sizes() {
        let folder = std::env::temp_dir().join(format!("forebay-long-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let long = folder.join("long");
        // A hole of a terabyte. Reading it would take very long.
        File::create(&long).and_then(|file| file.set_len(1 << 40)).expect("a writable folder");
        let error = |most| read_up_to(&long, most).expect_err("too long").to_string();
        assert_eq!(error(4_096), "it is longer than 4 KiB: it has 1024 GiB");
        assert_eq!(error(MOST_RULES), "it is longer than 64 MiB: it has 1024 GiB");
        assert_eq!(error(MOST_TABLE), "it is longer than 256 MiB: it has 1024 GiB");
        // Below the limit, memory is missing.
        let error = room(1 << 63).expect_err("more than the address space").to_string();
        assert!(error.starts_with("there is no memory for its "), "{error}");
        std::fs::write(&long, "12345").expect("a writable folder");
        assert_eq!(
            read_up_to(&long, 4).expect_err("too long").to_string(),
            "it is longer than 4 bytes: it has 5 bytes"
        );
        assert_eq!(read_all(&[0; 1_501][..], 1_500).expect_err("too long").to_string(), "it is longer than 1.5 KiB");
        let whole = read_up_to(&long, 5).expect("it fits");
        assert_eq!((whole.as_slice(), whole.capacity()), (&b"12345"[..], 6));
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    /// Once, a capture that one port read was emptied by a port, tap or option that wrote a file of the same name.
    #[test]
    fn a_file_has_one_writer_or_any_number_of_readers() {
        let folder = std::env::temp_dir().join(format!("forebay-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let (present, new) = (folder.join("present"), folder.join("new"));
        std::fs::write(&present, "x").expect("a writable folder");
        let mut files = Files::default();
        assert_eq!(files.claim("port 'a'", &present, false), Ok(()));
        assert_eq!(files.claim("port 'b'", &folder.join("./present"), false), Ok(()));
        let refused =
            files.claim("port 'c'", &folder.join("../").join(folder.file_name().expect("named")).join("present"), true);
        assert!(refused.expect_err("it is read").contains("port 'a' already reads"));
        assert_eq!(files.claim("port 'd'", &new, true), Ok(()));
        assert!(
            files
                .claim("--drops", &folder.join("./new"), true)
                .is_err_and(|error| error.contains("port 'd' already writes"))
        );
        assert!(files.claim("port 'e'", &new, false).is_err());
        for who in ["one", "two"] {
            assert_eq!(files.claim(who, Path::new("/dev/null"), true), Ok(()));
        }
        assert_eq!(read_up_to(&present, 1).expect("it exists"), b"x");
        assert!(read_up_to(&present, 0).is_err());
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    /// Once, a capture was written over a file through a second name of it, made with `ln`.
    #[test]
    fn a_hard_link_is_the_same_file_even_if_made_later() {
        let folder = std::env::temp_dir().join(format!("forebay-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let [present, link, new, later] = ["present", "link", "new", "later"].map(|name| folder.join(name));
        std::fs::write(&present, "x").expect("a writable folder");
        std::fs::hard_link(&present, &link).expect("links");
        let mut files = Files::default();
        assert_eq!(files.claim("'a'", &present, false), Ok(()));
        assert!(files.claim("'b'", &link, true).is_err_and(|error| error.contains("'a' already reads")));
        assert_eq!(files.claim("'b'", &new, true), Ok(()));
        std::fs::write(&new, "").expect("a writable folder");
        std::fs::hard_link(&new, &later).expect("links");
        assert!(files.is_written(&later));
        assert!(files.claim("'c'", &later, false).is_err_and(|error| error.contains("'b' already writes")));
        files.settle(1, |_| false);
        assert_eq!(files.count(), 1);
        assert_eq!(files.claim("'c'", &link, true), Ok(()));
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn a_user_that_appends_to_a_file_goes_on_after_a_change() {
        let folder = std::env::temp_dir().join(format!("forebay-added-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let file = folder.join("alerts");
        let mut files = Files::default();
        assert_eq!(files.claim_on("'a'", &file), Ok(()));
        let used = files.count();
        assert!(files.claim("'a'", &file, true).is_err(), "a user that replaces the file cannot");
        assert!(files.claim_on("'b'", &file).is_err_and(|error| error.contains("'a' already writes")));
        assert_eq!(files.claim_on("'a'", &file), Ok(()));
        // Reading and replacing are other uses.
        let read = folder.join("rules");
        assert_eq!(files.claim("'a'", &read, false), Ok(()));
        assert!(files.claim_on("'a'", &read).is_err_and(|error| error.contains("'a' already reads")));
        files.settle(used, |_| false);
        assert!(files.is_written(&file) && files.claim_on("'b'", &file).is_err());
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn lasting_claims_outlast_their_configuration() {
        let folder = std::env::temp_dir().join(format!("forebay-lasting-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let [first, second] = ["first", "second"].map(|name| folder.join(name));
        let mut files = Files::default();
        assert_eq!(files.claim_for_good("the configuration", &first, false), Ok(()));
        for path in [&first, &second] {
            assert_eq!(files.claim("the configuration", path, false), Ok(()));
        }
        files.settle(files.count(), |_| false);
        assert_eq!(files.count(), 1);
        assert!(files.claim("'a'", &first, true).is_err());
        assert_eq!(files.claim("'a'", &second, true), Ok(()));
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn check_writable_fails_as_opening_does() {
        let folder = std::env::temp_dir().join(format!("forebay-writable-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        std::fs::write(folder.join("file"), "x").expect("a writable folder");
        for name in ["", "file", "file/x", "missing/x", "new", ".", "a\0b"] {
            let path = folder.join(name);
            let error = check_writable(&path).map_err(|error| error.to_string());
            let existed = path.exists();
            let opened = File::options().write(true).create(true).truncate(false).open(&path);
            assert_eq!(error, opened.map(|_| ()).map_err(|error| error.to_string()), "{name}");
            if !existed && error.is_ok() {
                std::fs::remove_file(&path).expect("made just now");
            }
        }
        assert!(check_writable(Path::new("/dev/null")).is_ok());
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    /// Opening a named pipe once blocked a reload, and all later ones, until some process wrote into the pipe.
    #[test]
    fn files_that_are_not_regular_are_refused_unopened() {
        let folder = std::env::temp_dir().join(format!("forebay-pipe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("the command mkfifo");
        assert!(made.success());
        // Also if a pipe replaces the file between the check and the opening.
        let error = open_if_regular(&pipe).expect_err("no regular file").to_string();
        assert_eq!(error, "it is a pipe: allowed are regular files");
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        for (path, message) in [
            (pipe.as_path(), "it is a pipe: allowed are regular files"),
            (&folder, "it is a folder: allowed are regular files"),
            (&socket, "it is a socket: allowed are regular files"),
            (Path::new("/dev/zero"), "it is a device: allowed are regular files"),
        ] {
            assert_eq!(read_up_to(path, 9).expect_err("no regular file").to_string(), message);
        }
        assert_eq!(read_all(&b"abc"[..], 3).expect("it fits"), b"abc");
        assert!(read_all(&b"abcd"[..], 3).is_err());
        std::fs::remove_dir_all(&folder).expect("made above");
    }
}
