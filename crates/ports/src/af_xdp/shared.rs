//! The memory that all `af_xdp` ports of a pipeline share.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use forebay_graph::SetupError;

use super::umem::{Shape, Umem};

/// The name of the port that created the memory of all `af_xdp` ports, and this memory. The memory exists as long as
/// one of these ports exists. The value is kept on a reload, as long as the pipeline runs.
#[derive(Default)]
pub(super) struct SharedMemory(Mutex<(String, Weak<Umem>)>);

impl SharedMemory {
    /// Returns the memory for the port with this name, and creates it if there is none. `stated` is the shape that the
    /// port's parameters require, or `None` if they accept any shape.
    ///
    /// # Errors
    /// Returns an error if the memory exists with another shape, or cannot be created.
    pub(super) fn take(&self, port: &str, stated: Option<Shape>) -> Result<Arc<Umem>, SetupError> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(umem) = shared.1.upgrade() {
            let Shape { chunks, frame, aligned } = umem.shape();
            return match stated.filter(|stated| *stated != umem.shape()) {
                None => Ok(umem),
                Some(_) => Err(SetupError::at(
                    "memory",
                    format!(
                        "all `af_xdp` ports share one memory, which the port '{}' has created with `chunks: {chunks}`, \
                         `frame: {frame}`, `aligned: {aligned}`: use the same values at all ports; the memory cannot \
                         be changed while packets run",
                        shared.0
                    ),
                )),
            };
        }
        let umem = Umem::new(stated.unwrap_or_default());
        let umem = Arc::new(umem.map_err(|error| SetupError::at("memory", error.to_string()))?);
        *shared = (port.to_owned(), Arc::downgrade(&umem));
        Ok(umem)
    }
}
