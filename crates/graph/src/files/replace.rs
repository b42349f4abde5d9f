//! Writing a file whole or not at all: whatever ends the process, and however full the disk is.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{check, open_to_write};

/// Writes `bytes` to the file at `path`: at any moment there is the old one or the new one, whole. It is written beside its
/// place first, and then renamed. A link to a file stays one, but for one that leads nowhere; a read-only file is replaced where
/// its folder allows it; what keeps nothing, such as a terminal, a pipe or `/dev/null`,
/// is written to as it is.
///
/// # Errors
/// As writing files; and a pipe without a reader. The errors are those of `path`: they do not name the file beside it,
/// and nothing is left of that file.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, None)
}

/// The same of a file with secrets in it: its owner alone may read and write it, whatever the umask and the mode of the
/// old file are. A path that is no regular file is refused: it has no owner alone.
///
/// # Errors
/// As [`replace`]; and what is no regular file.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, Some(OWNER_ALONE))
}

/// The mode of a file with secrets in it.
pub const OWNER_ALONE: u32 = 0o600;

fn put(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let there = path.metadata().ok();
    if let Some(metadata) = there.as_ref().filter(|metadata| !metadata.is_file()) {
        return match mode {
            Some(_) => check(metadata.file_type()),
            None => open_to_write(path, 0o666)?.write_all(bytes),
        };
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    // What could fail afterwards comes first.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder)?;
    // One that a killed process of this number has left; and nobody else's is followed or opened.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        let mut options = File::options();
        // The umask takes bits away from these.
        let mut file = options.write(true).create_new(true).mode(mode.unwrap_or(0o666)).open(&beside)?;
        // Who may read the old one may read this, and nobody else.
        let permissions = mode.map(fs::Permissions::from_mode).or_else(|| there.map(|metadata| metadata.permissions()));
        permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    if let Err(error) = write() {
        // Half a file takes room on a disk that is full.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    // The name, too, should be on the disk; the file is the new one whatever becomes of that.
    let _ = folder.sync_all();
    Ok(())
}

/// Removes what processes that were killed have left beside the file at `path` while they replaced it.
/// Only for the one user of the file: a process of another container has a number that no process has here.
pub fn remove_left(path: &Path) {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let there = entry.file_name();
        let rest = there.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".new"));
        let number = number.and_then(|number| std::str::from_utf8(number).ok()).filter(|number| {
            number.bytes().all(|digit| digit.is_ascii_digit()) && number.parse::<u32>().is_ok_and(|number| number > 0)
        });
        let is_left = number.is_some_and(|number| !Path::new("/proc").join(number).exists());
        if is_left && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            // It takes room, and does no other harm.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("forebay-replace-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a writable folder for temporary files");
        folder
    }

    fn beside(path: &Path) -> PathBuf {
        PathBuf::from(format!("{}.{}.new", path.display(), std::process::id()))
    }

    /// A page was written in place: a reader, or who came after a full disk, had half of it.
    #[test]
    fn who_has_the_old_file_open_reads_all_of_it_and_the_new_one_is_as_private() {
        let folder = folder("old");
        let path = folder.join("page");
        replace(&path, b"old").expect("a writable folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("our own file");
        let mut open = File::open(&path).expect("it is there");
        replace(&path, b"new and longer").expect("a writable folder");
        let mut text = String::new();
        io::Read::read_to_string(&mut open, &mut text).expect("it is open");
        assert_eq!((text.as_str(), fs::read(&path).expect("it is there")), ("old", b"new and longer".to_vec()));
        assert_eq!(path.metadata().expect("it is there").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn a_link_stays_one_and_what_lies_beside_is_neither_followed_nor_left() {
        let folder = folder("links");
        let [path, link, precious] = ["page", "link", "precious"].map(|name| folder.join(name));
        fs::write(&precious, "kept").expect("a writable folder");
        symlink(&precious, beside(&path)).expect("a link");
        replace(&path, b"1").expect("a writable folder");
        symlink(&path, &link).expect("a link");
        replace(&link, b"2").expect("a writable folder");
        assert!(link.symlink_metadata().expect("it is there").is_symlink());
        assert_eq!(fs::read(&path).expect("it is there"), b"2");
        assert_eq!(fs::read(&precious).expect("it is there"), b"kept");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 3);
        fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn what_cannot_be_replaced_is_told_plainly_and_what_keeps_nothing_stays_what_it_is() {
        let folder = folder("wrong");
        let told = replace(&folder.join("not/there"), b"1").expect_err("no folder").to_string();
        assert_eq!(told, "No such file or directory (os error 2)");
        let told = replace(&folder, b"1").expect_err("a folder").to_string();
        assert_eq!(told, "Is a directory (os error 21)");
        // A device that is always full stands for a disk that is.
        let told = replace(Path::new("/dev/full"), b"1").expect_err("full").to_string();
        assert_eq!(told, "No space left on device (os error 28)");
        replace(Path::new("/dev/null"), b"1").expect("it takes all");
        assert!(!Path::new("/dev/null").metadata().expect("it is there").is_file());
        assert!(!beside(Path::new("/dev/null")).exists());
        fs::remove_dir_all(&folder).expect("made above");
    }

    fn pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().expect("the command mkfifo").success());
    }

    /// A start waited for ever for a reader of a pipe that was in the place of the old state.
    #[test]
    fn a_pipe_that_nobody_reads_is_told_and_a_private_file_is_never_written_to_one() {
        let folder = folder("pipe");
        let path = folder.join("pipe");
        pipe(&path);
        let error = replace(&path, b"1").expect_err("no reader").to_string();
        assert_eq!(error, "it is a pipe without a reader: start its reader first");
        let error = replace_private(&path, b"1").expect_err("no file").to_string();
        assert_eq!(error, "it is a pipe: allowed are regular files");
        // One that is read is written to as it is.
        let options = |path: &Path| File::options().read(true).write(true).open(path);
        let mut reader = options(&path).expect("both ends");
        replace(&path, b"page").expect("it is read");
        let mut bytes = [0; 4];
        io::Read::read_exact(&mut reader, &mut bytes).expect("it was written");
        assert_eq!(&bytes, b"page");
        fs::remove_dir_all(&folder).expect("made above");
    }

    /// A run that was killed during a reload left a file beside its state, which stayed for good.
    #[test]
    fn what_a_killed_process_has_left_is_removed_and_nothing_else() {
        let folder = folder("left");
        let path = folder.join("s");
        // No process has such a number: the system's largest is 2^22.
        let left = ["s.4194999.new"];
        let own = format!("s.{}.new", std::process::id());
        let kept = ["s", own.as_str(), "s.old", "s.4194999", "s.x.new", "s.+4194999.new", "ss.4194999.new", "s..new"];
        for name in left.iter().chain(&kept) {
            fs::write(folder.join(name), "x").expect("a writable folder");
        }
        remove_left(&path);
        assert!(left.iter().all(|name| !folder.join(name).exists()));
        for name in kept {
            assert!(folder.join(name).exists(), "{name}");
        }
        fs::remove_dir_all(&folder).expect("made above");
    }
}
