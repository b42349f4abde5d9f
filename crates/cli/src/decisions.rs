//! `--decisions`: what a controller sees and decides, written while it does.

use std::fs::{Permissions, TryLockError};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use forebay_control::recording::{Log, Recorder};
use forebay_graph::files::{OWNER_ALONE, open_to_write};

/// Writes what a controller sees and decides; what goes wrong is left in `trouble`.
pub(crate) fn write(path: &Path, trouble: &Arc<Mutex<Option<String>>>) -> anyhow::Result<Box<dyn Log>> {
    let place = || format!("--decisions {}", path.display());
    // Nothing of another's recording is touched while it is being written.
    let file = open_to_write(path, OWNER_ALONE).with_context(place)?;
    if let Err(TryLockError::WouldBlock) = file.try_lock() {
        anyhow::bail!("{}: another process is writing it: name another file", place());
    }
    if file.metadata().is_ok_and(|metadata| metadata.is_file()) {
        // Also one that an older recording has left for all to read.
        file.set_permissions(Permissions::from_mode(OWNER_ALONE)).with_context(place)?;
        file.set_len(0).with_context(place)?;
    }
    let out = io::BufWriter::new(file);
    let (trouble, path) = (Arc::clone(trouble), path.to_owned());
    Ok(Box::new(Recorder::new(out, move |error| {
        let place = format!("--decisions {}: {error}", path.display());
        *trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(place);
    })))
}
