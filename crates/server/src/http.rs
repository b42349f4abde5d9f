//! Accepts connections and serves HTTP/1.1 on them, with limits that hold whatever a client does.

mod bound;
mod connections;
mod stream;
mod tls;

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tower_service::Service;

pub use bound::{BindError, Bound, check_address};
pub use tls::{Tls, TlsError};

use crate::access::Peer;
use crate::shared::Shared;
use connections::{Connections, Slot};
use stream::Timed;

/// The longest head of a request, in bytes: its first line and its headers.
const MAX_HEAD: usize = 16 << 10;
/// The largest number of headers.
const MAX_HEADERS: usize = 64;
/// The time to wait after an error of `accept`, for example if the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The parts that every connection needs.
#[derive(Clone)]
pub(crate) struct Serving {
    pub(crate) shared: Arc<Shared>,
    pub(crate) router: Router,
    /// The present certificate; replaced on SIGHUP.
    pub(crate) tls: watch::Receiver<Option<Tls>>,
    connections: Arc<Connections>,
}

impl Serving {
    pub(crate) fn new(shared: Arc<Shared>, router: Router, tls: watch::Receiver<Option<Tls>>) -> Self {
        let connections = Connections::new(shared.settings().limits.connections);
        Self { shared, router, tls, connections }
    }
}

/// Accepts connections at one address. Never returns.
pub(crate) async fn accept(bound: Bound, serving: Serving) {
    loop {
        match bound.accept().await {
            Ok((stream, peer)) => {
                let slot = serving.connections.enter();
                tokio::spawn(serve(stream, peer, slot, serving.clone()));
            }
            Err(error) => {
                // The error may be one of the client: the connection was closed before it was accepted.
                if !matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset) {
                    serving.shared.log.warn("accept_failed", &format!("{bound}: {error}"));
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Serves one connection until one of the two sides closes it.
async fn serve(stream: bound::Stream, peer: Peer, slot: Slot, serving: Serving) {
    let patience = Duration::from_secs(serving.shared.settings().limits.patience_s.into());
    let tls = serving.tls.borrow().clone();
    let closed = slot.closed();
    let served = async {
        match (tls, peer) {
            (Some(tls), Peer::Remote { .. }) => {
                // A client that speaks plain HTTP, or has no valid certificate, gets no response.
                if let Ok(Ok(stream)) = tokio::time::timeout(patience, tls.accept(stream)).await {
                    speak(Timed::new(stream, patience, slot.clone()), peer, patience, &serving).await;
                }
            }
            _ => speak(Timed::new(stream, patience, slot.clone()), peer, patience, &serving).await,
        }
    };
    tokio::select! {
        () = served => {}
        // Another connection needs the room.
        () = closed => {}
    }
}

/// Speaks HTTP/1.1 on a stream.
async fn speak(stream: impl AsyncRead + AsyncWrite + Unpin, peer: Peer, patience: Duration, serving: &Serving) {
    let router = serving.router.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(peer);
        let mut router = router.clone();
        async move {
            let response = router.call(request.map(Body::new)).await;
            Ok::<_, Infallible>(response.unwrap_or_else(|never| match never {}))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(patience)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .half_close(false)
        .serve_connection(TokioIo::new(stream), service);
    // Errors are those of the client: it has gone away, or sent something that is not HTTP, and hyper has responded.
    let _ = connection.await;
}
