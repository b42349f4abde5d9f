//! Reads the pipelines that the command line names: a configuration file, a use case, a single function, standard input
//! or another open pipe.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use forebay_pipeline::{Problems, Source, built_in, is_built_in};

/// Reads the configuration that `pipeline` names, and adds settings.
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

/// A configuration that is not built in.
enum Input<'a> {
    /// A file.
    File(&'a Path),
    /// An open descriptor of this process, such as a shell's `<(forebay usecase gw)`.
    Open(&'a Path),
    /// Standard input, as `-`.
    Standard,
}

impl<'a> Input<'a> {
    fn of(pipeline: &'a str) -> Self {
        let path = Path::new(pipeline);
        let open = ["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|open| path.starts_with(open));
        match pipeline {
            "-" => Self::Standard,
            // A redirected file is read like any other file.
            _ if open && !path.is_file() => Self::Open(path),
            _ => Self::File(path),
        }
    }
}

/// Returns a name for `pipeline` that another process, or this process later, can open. Returns `None` for standard
/// input and pipes, which can be read only once.
pub(crate) fn origin(pipeline: &str) -> Option<String> {
    if is_built_in(pipeline) {
        return Some(pipeline.to_owned());
    }
    match Input::of(pipeline) {
        Input::File(path) => {
            // The descriptor's name means something else in another process: use the file's path.
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
