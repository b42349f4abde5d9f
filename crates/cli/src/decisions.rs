//! `--decisions`: what a controller sees and decides, written while it does.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use forebay_control::recording::{Log, Recorder};

/// Writes what a controller sees and decides; what goes wrong is left in `trouble`.
pub(crate) fn write(path: &Path, trouble: &Arc<Mutex<Option<String>>>) -> anyhow::Result<Box<dyn Log>> {
    let told = || format!("--decisions {}", path.display());
    let out = io::BufWriter::new(std::fs::File::create(path).with_context(told)?);
    let (trouble, path) = (Arc::clone(trouble), path.to_owned());
    Ok(Box::new(Recorder::new(out, move |error| {
        let told = format!("--decisions {}: {error}", path.display());
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    })))
}
