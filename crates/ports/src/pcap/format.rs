//! The format of a written capture. The file name determines it, so that other programs can open the file.

use std::path::Path;

use super::spool::WriteError;

/// The format that a file name determines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// True for pcapng, and false for pcap. `None` if the name does not determine the format.
    pub ng: Option<bool>,
    /// True if the file is compressed with gzip.
    pub gzip: bool,
}

/// Extensions of formats that cannot be written, with their names.
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
    /// Returns the format that the extension of `path` determines: `.pcapng` or `.pcap` (or a synonym), with or without
    /// `.gz` after it. For another extension, `ng` is `None`.
    ///
    /// # Errors
    /// [`WriteError::Format`]: the name requires a format that cannot be written.
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
