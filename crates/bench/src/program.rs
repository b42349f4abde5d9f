//! Helpers for the programs that Forebay starts in order to measure or count: they detect a replaced program file, name
//! the parent process, and quote the error output.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Output;

/// The environment variable with the process number of the parent. A process that runs for a comparison or a count ends
/// when its parent ends.
pub const PARENT: &str = "FOREBAY_PARENT";
/// The largest number of lines that an error quotes from a program's output.
const MOST_LINES: usize = 20;

/// Identifies the contents of a program file. If the stamp has changed, a build has replaced the file meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Stamp {
    /// Returns the stamp of the file at `path`, if it exists.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let metadata = path.metadata().ok()?;
        Some(Self { inode: metadata.ino(), size: metadata.size(), changed: (metadata.mtime(), metadata.mtime_nsec()) })
    }
}

/// Returns the last lines of the error output of a program that failed, or `otherwise` with its exit status if there
/// are none.
pub(crate) fn last_lines(output: &Output, otherwise: &str) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = text.trim().lines().collect();
    match &lines[lines.len().saturating_sub(MOST_LINES)..] {
        [] => format!("{otherwise} ({})", output.status),
        last => last.join("\n"),
    }
}
