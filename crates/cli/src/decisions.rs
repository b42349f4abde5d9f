//! Writes the recording of `--decisions`: the inputs and decisions of a controller.

use std::fs::{Permissions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use forebay_control::recording::{Log, Recorder};
use forebay_graph::files::{OWNER_ALONE, open_to_write};

/// Opens a recording. The first error while writing is stored in `trouble`, because the run continues after it.
pub(crate) fn write(path: &Path, trouble: &Arc<Mutex<Option<String>>>) -> anyhow::Result<Box<dyn Log>> {
    let option = || format!("--decisions {}", path.display());
    // Lock before truncating, so that another process's recording is not damaged.
    let file = open_to_write(path, OWNER_ALONE).with_context(option)?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        anyhow::bail!("{}: another process writes this file: name another file", option());
    }
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        // Also restrict a file from an older version that others could read.
        file.set_permissions(Permissions::from_mode(OWNER_ALONE)).with_context(option)?;
        file.set_len(0).with_context(option)?;
    }
    let out = io::BufWriter::new(file);
    let (trouble, path) = (Arc::clone(trouble), path.to_owned());
    Ok(Box::new(Recorder::new(out, move |error| {
        let message = format!("--decisions {}: {error}", path.display());
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(message);
    })))
}
