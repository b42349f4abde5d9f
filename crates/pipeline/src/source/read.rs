//! Reads the text of a configuration from a file or a stream.

use std::io::{self, Read};
use std::path::Path;

use forebay_graph::files::{read_all_text, read_text};
use forebay_protocol::check::Fault;

use super::Source;
use crate::problems::{Problems, shown_file};
use crate::sample::PREFIX;
use crate::usecase::usecases;
use crate::yaml::MAX_TEXT;

/// The name of the standard input in messages.
const STDIN: &str = "stdin";

/// The first bytes of a capture. They stand for the contents of a capture file that is too long to read, so that
/// [`Source::of`] still reports a capture.
const CAPTURE: &[u8] = &[0xa1, 0xb2, 0xc3, 0xd4];

/// Returns whether a regular file begins like a capture.
fn begins_as_capture(path: &Path) -> bool {
    let mut bytes = [0; 4];
    let read = forebay_graph::files::open_regular(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.is_ok() && is_capture(&bytes)
}

/// Returns whether bytes begin like a capture: pcap of either byte order and resolution, pcapng, gzip, Zstandard and
/// LZ4.
fn is_capture(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 8] = [
        &[0xa1, 0xb2, 0xc3, 0xd4],
        &[0xd4, 0xc3, 0xb2, 0xa1],
        &[0xa1, 0xb2, 0x3c, 0x4d],
        &[0x4d, 0x3c, 0xb2, 0xa1],
        &[0x0a, 0x0d, 0x0d, 0x0a],
        &[0x1f, 0x8b, 0x08],
        &[0x28, 0xb5, 0x2f, 0xfd],
        &[0x04, 0x22, 0x4d, 0x18],
    ];
    BEGINNINGS.iter().any(|beginning| bytes.starts_with(beginning))
}

/// Returns a hint with the built-in pipeline that was probably meant by a file's name.
fn built_in_hint(path: &Path) -> Option<String> {
    let name = path.to_str()?;
    let prefix = if usecases().iter().any(|case| case.name == name) {
        "usecase:"
    } else if forebay_graph::functions().iter().any(|function| function.name == name) {
        PREFIX
    } else {
        return None;
    };
    Some(format!(" (did you mean '{prefix}{name}', which is built in?)"))
}

impl Source {
    /// Reads the regular file at `path`.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, is a capture or is not UTF-8.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        if path.as_os_str().is_empty() {
            let fault = Fault::with_hint("the file name is empty", "name a file, or `usecase:NAME`");
            return Err(Problems { faults: vec![fault] });
        }
        let bytes = match read_text(path, MAX_TEXT as u64) {
            // A capture may be longer than any configuration.
            Err(_) if begins_as_capture(path) => Ok(CAPTURE.to_vec()),
            read => read,
        };
        let bytes = bytes.map_err(|error| match built_in_hint(path) {
            Some(hint) if error.kind() == io::ErrorKind::NotFound => io::Error::other(format!("{error}{hint}")),
            _ => error,
        });
        let mut source = Self::of(bytes, path.display().to_string(), path.parent().unwrap_or(Path::new("")))?;
        source.path = Some(path.to_owned());
        Ok(source)
    }

    /// Reads a stream to its end. Messages call it `file`. File names in the text are relative to the current folder.
    ///
    /// # Errors
    /// Returns the same errors as [`read`](Self::read).
    pub fn read_from(stream: impl Read, file: &str) -> Result<Self, Problems> {
        Self::of(read_all_text(stream, MAX_TEXT as u64), file.to_owned(), Path::new(""))
    }

    /// Creates a configuration from bytes that were read, or turns the error of reading into a problem.
    fn of(bytes: io::Result<Vec<u8>>, file: String, base: &Path) -> Result<Self, Problems> {
        let wrong = |line, message| {
            let file = shown_file(&file);
            let shown = if line > 0 { format!("{file}:{line}") } else { file };
            Problems { faults: vec![Fault { place: shown, line: Some(line), column: Some(1), ..Fault::new(message) }] }
        };
        let bytes = bytes.map_err(|error| wrong(0, format!("cannot be read: {error}")))?;
        if is_capture(&bytes) {
            let shown = shown_file(&file);
            let message = format!(
                "it is a capture, not a configuration: write a configuration with a port that plays it, such as \
                 `in: {{ pcap: {{ read: {shown} }} }}`"
            );
            return Err(wrong(0, message));
        }
        if file == STDIN && bytes.trim_ascii().is_empty() {
            return Err(wrong(
                0,
                "the standard input is empty: write a configuration to it, or name a file".to_owned(),
            ));
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let good = error.utf8_error().valid_up_to();
            let lines = error.as_bytes()[..good].iter().filter(|byte| **byte == b'\n').count();
            let byte = error.as_bytes()[good];
            wrong(u32::try_from(lines + 1).unwrap_or(u32::MAX), format!("byte {byte:#04x} is not UTF-8 text"))
        })?;
        Ok(Self::new(text, file, base))
    }
}
