//! Writes a file completely or not at all, even if the process ends or the disk is full.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use super::{check, open_to_write};

/// Writes `bytes` to the file at `path`. At any moment the path has the complete old or the complete new file: the new
/// file is written beside it first, and then renamed. If `path` is a symbolic link and its target exists, the link
/// stays and the target is replaced. A link without a target is replaced by the file. A read-only file is replaced if
/// its folder allows it. If `path` is not a regular file, for example a terminal, a pipe or `/dev/null`, the bytes are
/// written to it directly.
///
/// # Errors
/// Those of writing files, and a pipe without a reader. The errors are about `path`, not about the file beside it.
/// After an error the file beside it is removed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, None)
}

/// Writes a file with secrets like [`replace`]. Only its owner can read and write it, whatever the umask and the mode
/// of the old file are. A path that is not a regular file is refused, because other users may be able to read it.
///
/// # Errors
/// Those of [`replace`], and a file that is not regular.
pub fn replace_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    put(path, bytes, Some(OWNER_ALONE))
}

/// The mode of a file with secrets in it.
pub const OWNER_ALONE: u32 = 0o600;

/// Replaces a file. `mode` is the mode of a private file. `None`: the file keeps the permissions of the old file.
fn put(path: &Path, bytes: &[u8], mode: Option<u32>) -> io::Result<()> {
    let existing = path.metadata().ok();
    if let Some(metadata) = existing.as_ref().filter(|metadata| !metadata.is_file()) {
        return match mode {
            Some(_) => check(metadata.file_type()),
            None => open_to_write(path, 0o666)?.write_all(bytes),
        };
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    // The folder is opened first, so that this step cannot fail after the new file was written.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = File::open(folder)?;
    // A killed process with the same process number may have left this file. If another user has created a link with
    // this name, the link is removed and not followed.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let write = || {
        let mut options = File::options();
        // The umask clears bits of this mode.
        let mut file = options.write(true).create_new(true).mode(mode.unwrap_or(0o666)).open(&beside)?;
        // The new file gets the permissions of the old one, so that the same users can read it.
        let permissions =
            mode.map(fs::Permissions::from_mode).or_else(|| existing.map(|metadata| metadata.permissions()));
        permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    if let Err(error) = write() {
        // An incomplete file would take room on a full disk.
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    // The rename should reach the disk, too. If that fails, the path already has the new file.
    let _ = folder.sync_all();
    Ok(())
}

/// Removes the files that killed processes left beside the file at `path` while they replaced it. Only the sole user of
/// the file may call this. If a process in another container were replacing the file at this time, it would seem to
/// have ended, and its file would be removed.
pub fn remove_left(path: &Path) {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Some(name) = path.file_name() else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(b".")?.strip_suffix(b".new"));
        let number = number.and_then(|number| std::str::from_utf8(number).ok()).filter(|number| {
            number.bytes().all(|digit| digit.is_ascii_digit()) && number.parse::<u32>().is_ok_and(|number| number > 0)
        });
        let is_leftover = number.is_some_and(|number| !Path::new("/proc").join(number).exists());
        if is_leftover && entry.file_type().is_ok_and(|kind| kind.is_file()) {
            // A remaining file takes room, and does no other harm.
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

    /// Once, a page was written in place. A reader, or a run after a full disk, got half of it.
    #[test]
    fn a_reader_of_the_old_file_gets_all_of_it_and_the_new_one_is_as_private() {
        let folder = folder("old");
        let path = folder.join("page");
        replace(&path, b"old").expect("a writable folder");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("our own file");
        let mut open = File::open(&path).expect("it exists");
        replace(&path, b"new and longer").expect("a writable folder");
        let mut text = String::new();
        io::Read::read_to_string(&mut open, &mut text).expect("it is open");
        assert_eq!((text.as_str(), fs::read(&path).expect("it exists")), ("old", b"new and longer".to_vec()));
        assert_eq!(path.metadata().expect("it exists").permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 1);
        fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn a_link_stays_a_link_and_the_file_beside_is_neither_followed_nor_left() {
        let folder = folder("links");
        let [path, link, precious] = ["page", "link", "precious"].map(|name| folder.join(name));
        fs::write(&precious, "kept").expect("a writable folder");
        symlink(&precious, beside(&path)).expect("a link");
        replace(&path, b"1").expect("a writable folder");
        symlink(&path, &link).expect("a link");
        replace(&link, b"2").expect("a writable folder");
        assert!(link.symlink_metadata().expect("it exists").is_symlink());
        assert_eq!(fs::read(&path).expect("it exists"), b"2");
        assert_eq!(fs::read(&precious).expect("it exists"), b"kept");
        assert_eq!(fs::read_dir(&folder).expect("a folder").count(), 3);
        fs::remove_dir_all(&folder).expect("made above");
    }

    #[test]
    fn errors_are_those_of_the_path_and_devices_stay_devices() {
        let folder = folder("wrong");
        let error = replace(&folder.join("not/there"), b"1").expect_err("no folder").to_string();
        assert_eq!(error, "No such file or directory (os error 2)");
        let error = replace(&folder, b"1").expect_err("a folder").to_string();
        assert_eq!(error, "Is a directory (os error 21)");
        // A device that is always full stands for a full disk.
        let error = replace(Path::new("/dev/full"), b"1").expect_err("full").to_string();
        assert_eq!(error, "No space left on device (os error 28)");
        replace(Path::new("/dev/null"), b"1").expect("it takes all bytes");
        assert!(!Path::new("/dev/null").metadata().expect("it exists").is_file());
        assert!(!beside(Path::new("/dev/null")).exists());
        fs::remove_dir_all(&folder).expect("made above");
    }

    fn pipe(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().expect("the command mkfifo").success());
    }

    /// Once, a start waited for ever for a reader of a pipe in place of the old state.
    #[test]
    fn a_pipe_without_a_reader_is_refused_and_a_private_file_never_goes_to_a_pipe() {
        let folder = folder("pipe");
        let path = folder.join("pipe");
        pipe(&path);
        let error = replace(&path, b"1").expect_err("no reader").to_string();
        assert_eq!(error, "it is a pipe without a reader: start its reader first");
        let error = replace_private(&path, b"1").expect_err("no file").to_string();
        assert_eq!(error, "it is a pipe: allowed are regular files");
        // A pipe with a reader is written to directly.
        let options = |path: &Path| File::options().read(true).write(true).open(path);
        let mut reader = options(&path).expect("both ends");
        replace(&path, b"page").expect("it is read");
        let mut bytes = [0; 4];
        io::Read::read_exact(&mut reader, &mut bytes).expect("it was written");
        assert_eq!(&bytes, b"page");
        fs::remove_dir_all(&folder).expect("made above");
    }

    /// Once, a run that was killed during a reload left a file beside its state for ever.
    #[test]
    fn only_files_of_killed_processes_are_removed() {
        let folder = folder("leftover");
        let path = folder.join("s");
        // No process has this number: the system's largest is 2^22.
        let leftover = ["s.4194999.new"];
        let own = format!("s.{}.new", std::process::id());
        let kept = ["s", own.as_str(), "s.old", "s.4194999", "s.x.new", "s.+4194999.new", "ss.4194999.new", "s..new"];
        for name in leftover.iter().chain(&kept) {
            fs::write(folder.join(name), "x").expect("a writable folder");
        }
        remove_left(&path);
        assert!(leftover.iter().all(|name| !folder.join(name).exists()));
        for name in kept {
            assert!(folder.join(name).exists(), "{name}");
        }
        fs::remove_dir_all(&folder).expect("made above");
    }
}
