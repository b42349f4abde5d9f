//! TLS of the server.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use thiserror::Error;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::bound::Stream;
use crate::settings::TlsFiles;

/// The reason why there is no TLS.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be used. The text contains nothing of a key.
    #[error("tls: {}: {why}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
}

/// A certificate with its key, ready for connections.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl Tls {
    /// Reads the files of TLS.
    ///
    /// # Errors
    /// [`TlsError`] if a file cannot be read, if users outside the group of the key's file can read it, or if the key
    /// does not belong to the certificate.
    pub fn read(files: &TlsFiles) -> Result<Self, TlsError> {
        let wrong = |path: &Path, why: String| TlsError::File { path: path.to_owned(), why };
        let chain = certificates(&files.certificate)?;
        let mode = files.key.metadata().map_err(|error| wrong(&files.key, error.to_string()))?.mode() & 0o777;
        if mode & 0o007 != 0 {
            let why = format!("mode {mode:04o}: every user can read or change the key: run chmod 600");
            return Err(wrong(&files.key, why));
        }
        std::fs::File::open(&files.key).map_err(|error| wrong(&files.key, error.to_string()))?;
        let key = PrivateKeyDer::from_pem_file(&files.key)
            .map_err(|_| wrong(&files.key, "there is no private key in PEM form".to_owned()))?;
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| wrong(&files.certificate, error.to_string()))?;
        let builder = match &files.client_ca {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let mut roots = rustls::RootCertStore::empty();
                for certificate in certificates(path)? {
                    roots.add(certificate).map_err(|error| wrong(path, error.to_string()))?;
                }
                let provider = Arc::new(ring::default_provider());
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(path, error.to_string()))?)
            }
        };
        let mut config = builder
            .with_single_cert(chain, key)
            .map_err(|error| wrong(&files.certificate, format!("the certificate and the key: {error}")))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Exchanges the keys of a connection.
    pub(super) async fn accept(&self, stream: Stream) -> io::Result<TlsStream<Stream>> {
        self.0.accept(stream).await
    }
}

/// Reads the certificates of a file.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |why: String| TlsError::File { path: path.to_owned(), why };
    // Opening first gives the system's error for a file that cannot be read.
    std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
    let all: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(path).map(Iterator::collect).map_err(|error| wrong(error.to_string()))?;
    let all = all.map_err(|_| wrong("a certificate is not in PEM form".to_owned()))?;
    if all.is_empty() { Err(wrong("there is no certificate in PEM form".to_owned())) } else { Ok(all) }
}
