//! Full reports of a pipeline for clients that poll, such as Prometheus: one request a second, whatever the number of
//! clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_protocol::{ClientError, Report, Request, Response};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::discovery::Sockets;
use super::instance::Instance;

/// The time for which a report is used again.
const AGE: Duration = Duration::from_secs(1);

/// The time limit of a report. Clients that poll give up after a few seconds.
const PATIENCE: Duration = Duration::from_secs(3);

/// The last full report.
#[derive(Debug, Default)]
pub struct Reports {
    last: Mutex<Option<(Instant, Arc<Report>)>>,
}

impl Reports {
    /// Returns the report of the whole run with the distributions of delays. It is at most a second old. Clients that
    /// come meanwhile wait for the same report.
    ///
    /// # Errors
    /// [`ClientError`].
    pub(crate) async fn get(&self, instance: &Instance, sockets: &Sockets) -> Result<Arc<Report>, ClientError> {
        let mut last = self.last.lock().await;
        if let Some((at, report)) = &*last
            && at.elapsed() < AGE
        {
            return Ok(Arc::clone(report));
        }
        *last = None;
        let request = Request::Report { recent: false, rules: Vec::new(), histograms: true };
        let Ok(response) = timeout(PATIENCE, instance.request(sockets, &request)).await else {
            return Err(ClientError::Silent);
        };
        let response = response?;
        let Response::Report { whole, .. } = response else {
            return Err(ClientError::Refused("the pipeline sent no report".to_owned()));
        };
        let report = Arc::new(*whole);
        *last = Some((Instant::now(), Arc::clone(&report)));
        Ok(report)
    }

    /// Forgets the report.
    pub(crate) async fn clear(&self) {
        *self.last.lock().await = None;
    }
}
