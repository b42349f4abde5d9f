//! The format in which a capture is written: the file's name says it, so that other programs open what they expect.

use std::path::Path;

use super::spool::WriteError;

/// The format that a file's name asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// Whether the blocks are pcapng's; `None`: the name does not say.
    pub ng: Option<bool>,
    /// Whether the file is packed by gzip.
    pub gzip: bool,
}

/// Endings of packed files that are not written, and what they stand for.
const OTHERS: [(&str, &str); 7] = [
    ("zst", "Zstandard"),
    ("lz4", "LZ4"),
    ("xz", "xz"),
    ("bz2", "bzip2"),
    ("br", "Brotli"),
    ("zip", "ZIP"),
    ("snoop", "snoop"),
];

impl Format {
    /// The format of the file `path`: `.pcapng` or `.pcap`, either with `.gz` behind it. A name with another ending
    /// says nothing of the format.
    ///
    /// # Errors
    /// [`WriteError::Format`]: the name asks for a format that is not written.
    pub(super) fn of(path: &Path) -> Result<Self, WriteError> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let (rest, gzip) = name.strip_suffix(".gz").map_or((&*name, false), |rest| (rest, true));
        let ending = rest.rsplit_once('.').map_or("", |(_, ending)| ending);
        if let Some((_, format)) = OTHERS.iter().find(|(other, _)| *other == ending) {
            return Err(WriteError::Format { path: path.to_owned(), format });
        }
        let ng = match ending {
            "pcapng" | "ntar" => Some(true),
            "pcap" | "cap" | "dmp" => Some(false),
            _ => None,
        };
        Ok(Self { ng, gzip })
    }
}
