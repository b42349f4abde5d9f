//! The files that a pipeline reads and writes: no two writers of one, and none that is read elsewhere.

mod log;
mod replace;
mod text;

use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

pub use log::{LogFile, Turn, reopen_logs, take_reopen_failures};
pub use replace::{OWNER_ALONE, remove_left, replace, replace_private};
pub use text::{read_all_text, read_text, skip_mark};

/// The longest file of routes, tunnels or sessions, in bytes: more than twice what the Internet's routes take, or two million
/// sessions.
pub const MOST_TABLE: u64 = 256 << 20;

/// The longest file of rules or patterns, in bytes: several times what the largest sets take that may be compiled.
pub const MOST_RULES: u64 = 64 << 20;

/// Who uses which file for what.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<Use>, Option<String>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Use {
    who: String,
    place: PathBuf,
    written: bool,
    /// What is written is added to what is there.
    adds: bool,
    /// For as long as the run lasts.
    lasts: bool,
}

impl Files {
    /// Notes that `who` reads, or writes, the file at `path`.
    ///
    /// # Errors
    /// In words: it is written by somebody, or is to be written and is used by somebody. Devices and pipes (`/dev/null`)
    /// are nobody's.
    pub fn claim(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        self.note(who, path, written, (false, false))
    }

    /// Notes that `who` writes the file at `path`, or goes on writing it: for files that are added to, which whoever comes after
    /// somebody of the same name shares with him. A file that he reads is no such file.
    ///
    /// # Errors
    /// Who else uses it, or himself for something else.
    pub fn claim_on(&mut self, who: &str, path: &Path) -> Result<(), String> {
        self.note(who, path, true, (true, false))
    }

    /// Notes the same of who uses it whatever the configuration: no other [takes its place](Self::settle).
    ///
    /// # Errors
    /// As [`claim`](Self::claim).
    pub fn claim_for_good(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        self.note(who, path, written, (false, true))
    }

    /// Notes that `who` reads the standard input, which can be read once only: it is never free again.
    ///
    /// # Errors
    /// In words: who else reads it, or has read it.
    pub fn claim_input(&mut self, who: &str) -> Result<(), String> {
        if let Some(other) = &self.1 {
            return Err(format!("the standard input is what {other} reads: allowed is one reader in a run"));
        }
        self.1 = Some(who.to_owned());
        Ok(())
    }

    fn note(&mut self, who: &str, path: &Path, written: bool, (adds, lasts): (bool, bool)) -> Result<(), String> {
        if path.metadata().is_ok_and(|told| !told.is_file()) {
            return Ok(());
        }
        let place = place(path);
        let goes_on = |other: &Use| adds && other.adds && other.who == who;
        let mut others = self.0.iter().filter(|other| (other.written || written) && !goes_on(other));
        if let Some(other) = others.find(|other| is_same(&other.place, &place)) {
            let does = if other.written { "writes" } else { "reads" };
            return Err(format!("{} is the file that {} {does}: allowed is one of its own", path.display(), other.who));
        }
        self.0.push(Use { who: who.to_owned(), place, written, adds, lasts });
        Ok(())
    }

    /// Whether somebody writes the file at `path`.
    #[must_use]
    pub fn is_written(&self, path: &Path) -> bool {
        let place = place(path);
        self.0.iter().any(|known| known.written && is_same(&known.place, &place))
    }

    /// How many uses have been noted.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Of the first `count` uses, forgets those that are not for good and whose user `keeps` does not mean.
    pub fn settle(&mut self, count: usize, keeps: impl Fn(&str) -> bool) {
        let mut later = self.0.split_off(count.min(self.0.len()));
        self.0.retain(|kept| kept.lasts || keeps(&kept.who));
        later.retain(|new| !self.0.contains(new));
        self.0.append(&mut later);
    }
}

/// The same for all names of one place, whether or not a file is there yet.
fn place(path: &Path) -> PathBuf {
    if let Ok(there) = path.canonicalize() {
        return there;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Returns whether a file, which need not exist yet, is in one of these folders. Symbolic links are resolved.
#[must_use]
pub fn is_in_folders(path: &Path, folders: &[PathBuf]) -> bool {
    if path.is_symlink() && path.canonicalize().is_err() {
        // Writing to a link without a target makes the target, which may be anywhere.
        return false;
    }
    let path = place(path);
    // A path that cannot be resolved, because its folder does not exist, may lead anywhere.
    let is_resolved = path.is_absolute() && !path.components().any(|part| part == std::path::Component::ParentDir);
    is_resolved && folders.iter().any(|folder| folder.canonicalize().is_ok_and(|folder| path.starts_with(folder)))
}

/// Whether there is one file at both places now: a hard link is another name of it.
fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| path.metadata().ok().map(|told| (told.dev(), told.ino()));
    one == other || inode(one).is_some_and(|one| Some(one) == inode(other))
}

/// What can be told of a file that is to be written without making it: that it is a folder, or that there is none for it. Who may
/// write there is not looked at.
///
/// # Errors
/// What opening it would say of that.
pub fn check_writable(path: &Path) -> io::Result<()> {
    let folder = match path.metadata() {
        Ok(told) if told.is_dir() => return Err(Errno::ISDIR.into()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path.file_name().is_some() => path.parent(),
        told => return told.map(|_| ()),
    };
    let folder = folder.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.metadata()?.is_dir() { Ok(()) } else { Err(Errno::NOTDIR.into()) }
}

/// Opens a regular file for reading. Whatever else has a name may keep its reader waiting for ever, a pipe already while it
/// is being opened.
///
/// # Errors
/// As opening; and what is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Some devices do something when they are opened.
    check(path.metadata()?.file_type())?;
    open_if_regular(path)
}

/// The same of what has become another thing since it was looked at: a pipe is opened without a wait, and then refused.
fn open_if_regular(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed()).open(path)?;
    check(file.metadata()?.file_type())?;
    Ok(file)
}

/// Opens a file of any kind for writing, without emptying it; a new one gets the permissions `mode`, of which the
/// umask is taken away. Opening a pipe without a reader would wait for one, maybe for ever.
///
/// # Errors
/// As opening; and a pipe without a reader.
pub fn open_to_write(path: &Path, mode: u32) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(false).mode(mode).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = options.open(path).map_err(|error| match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NXIO) if path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo()) => {
            io::Error::other("it is a pipe without a reader: start its reader first")
        }
        _ => error,
    })?;
    // A slow reader is waited for.
    fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn check(kind: FileType) -> io::Result<()> {
    match refusal(kind) {
        Some(what) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}: allowed are regular files")))
        }
        None => Ok(()),
    }
}

/// What a file is that is not a regular one.
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
/// As [opening](open_regular) and reading; and a file that is longer, of which none is read: the wrong one. No more than its own
/// length is taken of memory, and where there is not as much it is refused.
fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let file = open_regular(path)?;
    let len = file.metadata()?.len();
    if len > most {
        let told = format!("it is longer than {}: it has {}", size(most), size(len));
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, told));
    }
    read_into(room(len)?, file, most)
}

/// Room for a file of so many bytes, and one more, by which its end is found without room for what does not come.
fn room(len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes
        .try_reserve_exact(usize::try_from(len).unwrap_or(usize::MAX).saturating_add(1))
        .map_err(|_| io::Error::new(io::ErrorKind::OutOfMemory, format!("there is no memory for its {}", size(len))))?;
    Ok(bytes)
}

/// Reads up to `most` bytes to the end.
///
/// # Errors
/// As reading; and where there are more, of which none is read.
fn read_all(from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    read_into(Vec::new(), from, most)
}

fn read_into(mut bytes: Vec<u8>, from: impl Read, most: u64) -> io::Result<Vec<u8>> {
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {}", size(most))));
    }
    Ok(bytes)
}

/// Writes a number of bytes in the unit that fits: whole where that is exact, else with one decimal.
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

    /// A wrong name of a file of 1 GB took 2 GB of memory before it was refused, and of a key's the limit was told as 0 MiB.
    #[test]
    fn a_file_that_is_too_long_is_refused_unread_with_both_sizes() {
        let folder = std::env::temp_dir().join(format!("forebay-long-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let long = folder.join("long");
        // A hole of a terabyte: who read it would be told of it by nobody for long.
        File::create(&long).and_then(|file| file.set_len(1 << 40)).expect("a writable folder");
        let told = |most| read_up_to(&long, most).expect_err("too long").to_string();
        assert_eq!(told(4_096), "it is longer than 4 KiB: it has 1024 GiB");
        assert_eq!(told(MOST_RULES), "it is longer than 64 MiB: it has 1024 GiB");
        assert_eq!(told(MOST_TABLE), "it is longer than 256 MiB: it has 1024 GiB");
        // Below its limit it is memory that is lacking.
        let told = room(1 << 63).expect_err("more than there can be").to_string();
        assert!(told.starts_with("there is no memory for its "), "{told}");
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

    /// The capture that one port read was emptied by the port, tap or option that wrote a file of the same name.
    #[test]
    fn a_file_has_one_writer_or_any_number_of_readers() {
        let folder = std::env::temp_dir().join(format!("forebay-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let (there, new) = (folder.join("there"), folder.join("new"));
        std::fs::write(&there, "x").expect("a writable folder");
        let mut files = Files::default();
        assert_eq!(files.claim("port 'a'", &there, false), Ok(()));
        assert_eq!(files.claim("port 'b'", &folder.join("./there"), false), Ok(()));
        let refused =
            files.claim("port 'c'", &folder.join("../").join(folder.file_name().expect("named")).join("there"), true);
        assert!(refused.expect_err("it is read").contains("port 'a' reads"));
        assert_eq!(files.claim("port 'd'", &new, true), Ok(()));
        assert!(
            files.claim("--drops", &folder.join("./new"), true).is_err_and(|told| told.contains("port 'd' writes"))
        );
        assert!(files.claim("port 'e'", &new, false).is_err());
        for who in ["one", "two"] {
            assert_eq!(files.claim(who, Path::new("/dev/null"), true), Ok(()));
        }
        assert_eq!(read_up_to(&there, 1).expect("it is there"), b"x");
        assert!(read_up_to(&there, 0).is_err());
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    /// A capture was written over a file by another of its names, which the other had been given by `ln`.
    #[test]
    fn a_hard_link_is_the_same_file_also_one_that_is_made_later() {
        let folder = std::env::temp_dir().join(format!("forebay-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let [there, link, new, later] = ["there", "link", "new", "later"].map(|name| folder.join(name));
        std::fs::write(&there, "x").expect("a writable folder");
        std::fs::hard_link(&there, &link).expect("links");
        let mut files = Files::default();
        assert_eq!(files.claim("'a'", &there, false), Ok(()));
        assert!(files.claim("'b'", &link, true).is_err_and(|told| told.contains("'a' reads")));
        assert_eq!(files.claim("'b'", &new, true), Ok(()));
        std::fs::write(&new, "").expect("a writable folder");
        std::fs::hard_link(&new, &later).expect("links");
        assert!(files.is_written(&later));
        assert!(files.claim("'c'", &later, false).is_err_and(|told| told.contains("'b' writes")));
        files.settle(1, |_| false);
        assert_eq!(files.count(), 1);
        assert_eq!(files.claim("'c'", &link, true), Ok(()));
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn who_adds_to_a_file_goes_on_after_a_change() {
        let folder = std::env::temp_dir().join(format!("forebay-added-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let file = folder.join("alerts");
        let mut files = Files::default();
        assert_eq!(files.claim_on("'a'", &file), Ok(()));
        let used = files.count();
        assert!(files.claim("'a'", &file, true).is_err(), "what replaces a file does not");
        assert!(files.claim_on("'b'", &file).is_err_and(|told| told.contains("'a' writes")));
        assert_eq!(files.claim_on("'a'", &file), Ok(()));
        // What it reads, or wrote in place of what was there, is another use.
        let read = folder.join("rules");
        assert_eq!(files.claim("'a'", &read, false), Ok(()));
        assert!(files.claim_on("'a'", &read).is_err_and(|told| told.contains("'a' reads")));
        files.settle(used, |_| false);
        assert!(files.is_written(&file) && files.claim_on("'b'", &file).is_err());
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn what_is_claimed_for_good_outlasts_its_configuration() {
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
    fn what_cannot_be_written_is_told_as_opening_would() {
        let folder = std::env::temp_dir().join(format!("forebay-writable-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        std::fs::write(folder.join("file"), "x").expect("a writable folder");
        for name in ["", "file", "file/x", "missing/x", "new", ".", "a\0b"] {
            let path = folder.join(name);
            let told = check_writable(&path).map_err(|error| error.to_string());
            let there = path.exists();
            let opened = File::options().write(true).create(true).truncate(false).open(&path);
            assert_eq!(told, opened.map(|_| ()).map_err(|error| error.to_string()), "{name}");
            if !there && told.is_ok() {
                std::fs::remove_file(&path).expect("made just now");
            }
        }
        assert!(check_writable(Path::new("/dev/null")).is_ok());
        std::fs::remove_dir_all(&folder).expect("made above");
    }

    /// Opening a named pipe kept a reload, and all after it, waiting for somebody to write into it.
    #[test]
    fn what_is_no_regular_file_is_refused_unopened() {
        let folder = std::env::temp_dir().join(format!("forebay-pipe-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().expect("the command mkfifo");
        assert!(made.success());
        // Also one that takes a file's place between the look at it and the opening.
        let told = open_if_regular(&pipe).expect_err("no regular file").to_string();
        assert_eq!(told, "it is a pipe: allowed are regular files");
        let socket = folder.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        for (path, what) in [
            (pipe.as_path(), "it is a pipe: allowed are regular files"),
            (&folder, "it is a folder: allowed are regular files"),
            (&socket, "it is a socket: allowed are regular files"),
            (Path::new("/dev/zero"), "it is a device: allowed are regular files"),
        ] {
            assert_eq!(read_up_to(path, 9).expect_err("no regular file").to_string(), what);
        }
        assert_eq!(read_all(&b"abc"[..], 3).expect("it fits"), b"abc");
        assert!(read_all(&b"abcd"[..], 3).is_err());
        std::fs::remove_dir_all(&folder).expect("made above");
    }
}
