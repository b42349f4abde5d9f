//! What a command line names: a configuration file, a use case, a function by itself, or what comes by standard input or another open pipe.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use forebay_pipeline::{Problems, Source, built_in, is_built_in};

/// The text that `pipeline` names, with settings.
pub(crate) fn source(pipeline: &str, sets: &[String]) -> Result<Source, Problems> {
    if let Some(read) = built_in(pipeline, sets) {
        return read;
    }
    let source = match Input::of(pipeline) {
        Input::File(path) => Source::read(path)?,
        Input::Open(path) => match File::open(path) {
            Ok(file) => Source::read_from(file, "stdin")?,
            Err(_) => Source::read(path)?,
        },
        Input::Standard => Source::read_from(io::stdin().lock(), "stdin")?,
    };
    Ok(sets.iter().fold(source, Source::set))
}

/// What is named without a use case.
enum Input<'a> {
    /// A file of any name.
    File(&'a Path),
    /// One that this process has open, such as a shell's `<(forebay usecase gw)`.
    Open(&'a Path),
    /// `-`.
    Standard,
}

impl<'a> Input<'a> {
    fn of(pipeline: &'a str) -> Self {
        let path = Path::new(pipeline);
        let open = ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|open| path.starts_with(open));
        match pipeline {
            "-" => Self::Standard,
            // A file that a shell has redirected is one like any other.
            _ if open && !path.is_file() => Self::Open(path),
            _ => Self::File(path),
        }
    }
}

/// What `pipeline` names, as another process finds it, or this one at another time; nothing where that cannot be.
pub(crate) fn origin(pipeline: &str) -> Option<String> {
    if is_built_in(pipeline) {
        return Some(pipeline.to_owned());
    }
    match Input::of(pipeline) {
        Input::File(path) => {
            // What a descriptor stands for is another thing elsewhere.
            let path = if path.starts_with("/dev") || path.starts_with("/proc") {
                path.canonicalize().unwrap_or_else(|_| PathBuf::from(path))
            } else {
                std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
            };
            Some(path.display().to_string())
        }
        Input::Open(_) | Input::Standard => None,
    }
}
