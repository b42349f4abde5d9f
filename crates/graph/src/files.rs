//! The files that a pipeline reads and writes: no two writers of one, and none that is read elsewhere.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// The longest table of routes or rules, in bytes: ten times what the Internet's takes.
pub const MOST_TABLE: u64 = 1 << 30;

/// Who uses which file for what.
#[derive(Clone, Debug, Default)]
pub struct Files(Vec<Use>);

#[derive(Clone, Debug)]
struct Use {
    who: String,
    file: PathBuf,
    written: bool,
}

impl Files {
    /// Notes that `who` reads, or writes, the file at `path`.
    ///
    /// # Errors
    /// In words: it is written by somebody, or is to be written and is used by somebody. Devices and pipes (`/dev/null`)
    /// are nobody's.
    pub fn claim(&mut self, who: &str, path: &Path, written: bool) -> Result<(), String> {
        if path.metadata().is_ok_and(|told| !told.is_file()) {
            return Ok(());
        }
        let file = identity(path);
        if let Some(other) = self.0.iter().find(|other| other.file == file && (other.written || written)) {
            let does = if other.written { "writes" } else { "reads" };
            return Err(format!("{} is the file that {} {does}: allowed is one of its own", path.display(), other.who));
        }
        self.0.push(Use { who: who.to_owned(), file, written });
        Ok(())
    }

    /// Whether somebody writes the file at `path`.
    #[must_use]
    pub fn is_written(&self, path: &Path) -> bool {
        self.0.iter().any(|known| known.written && known.file == identity(path))
    }

    /// Forgets the files of all but those that `keeps` names.
    pub fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.0.retain(|kept| keeps(kept.who.trim_matches('\'')));
    }
}

/// The same for all names of one file, whether or not it is there yet.
fn identity(path: &Path) -> PathBuf {
    if let Ok(there) = path.canonicalize() {
        return there;
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => path.to_owned(),
    }
}

/// Reads a whole file of up to `most` bytes.
///
/// # Errors
/// As reading; and a file that is longer, of which no more is read: a device, or the wrong file.
pub fn read_up_to(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is longer than {} MiB", most >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
