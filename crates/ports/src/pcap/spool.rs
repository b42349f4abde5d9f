//! Bytes on their way to a file: filled on the packet path, written by a thread of their own.
//!
//! A buffer is handed over when it is full and comes back when it is written, so that the packet path makes no system
//! call per packet and allocates nothing.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;
use forebay_graph::files::open_to_write;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// What happens when packets come faster than the disk takes them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The worker waits for the disk: nothing is lost, and the pipeline is as fast as the disk.
    #[default]
    Wait,
    /// What finds no room is refused, and counted as such.
    Refuse,
}

/// Why a file cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// It cannot be made.
    #[error("cannot create {path}: {source}")]
    Create {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Its name asks for a format that is not written.
    #[error(
        "{path}: captures are not written as {format}: allowed are names that end in .pcap or .pcapng, and .gz behind \
         it"
    )]
    Format {
        /// Which file.
        path: PathBuf,
        /// The format.
        format: &'static str,
    },
    /// Its name asks for pcap, and comments need pcapng.
    #[error("{path}: packets with comments are written as pcapng: allowed is a name that ends in .pcapng")]
    Comments {
        /// Which file.
        path: PathBuf,
    },
    /// It was made, but not all could be written.
    #[error("cannot write {path}, which is not complete: {source}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// How many bytes are written at a time.
const BUFFER: usize = 256 << 10;
/// How many buffers there are: 2 MiB in all.
const BUFFERS: usize = 8;

pub(super) struct Spool {
    path: PathBuf,
    filling: Vec<u8>,
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    when_full: WhenFull,
    failed: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    /// Whether there was no such file before.
    created: bool,
    /// How often room was asked for: the first time for the header.
    uses: u64,
}

impl Spool {
    pub(super) fn create(path: &Path, gzip: bool, when_full: WhenFull) -> Result<Self, WriteError> {
        let create_error = |source| WriteError::Create { path: path.to_owned(), source };
        // Emptied when the first buffer is written: a run that is refused before it begins leaves the file alone.
        let created = !path.exists();
        let file = open_to_write(path, 0o666).map_err(create_error)?;
        let (full, to_write) = sync_channel(BUFFERS);
        let (written, empty) = sync_channel(BUFFERS);
        for _ in 1..BUFFERS {
            written.send(Vec::with_capacity(BUFFER)).expect("room for every buffer, and a receiver");
        }
        let failed = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new().name("pcap-write".to_owned()).spawn({
            let failed = Arc::clone(&failed);
            move || write_all(file, gzip, &to_write, &written, &failed)
        });
        Ok(Self {
            path: path.to_owned(),
            filling: Vec::with_capacity(BUFFER),
            full: Some(full),
            empty,
            when_full,
            failed,
            thread: Some(thread.map_err(create_error)?),
            created,
            uses: 0,
        })
    }

    /// Where the next `bytes` bytes are to be put, at the end; `None` where there is no room for them now, or never
    /// will be, because the file cannot be written.
    #[inline]
    pub(super) fn room(&mut self, bytes: usize) -> Option<&mut Vec<u8>> {
        if self.filling.len() + bytes > BUFFER {
            self.hand_over()?;
        }
        self.uses += 1;
        Some(&mut self.filling)
    }

    #[cold]
    fn hand_over(&mut self) -> Option<()> {
        if self.failed() {
            return None;
        }
        let next = match self.when_full {
            WhenFull::Wait => self.empty.recv().ok()?,
            WhenFull::Refuse => self.empty.try_recv().ok()?,
        };
        let filled = std::mem::replace(&mut self.filling, next);
        self.full.as_ref()?.send(filled).ok()
    }

    /// Whether the file cannot be written any more.
    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Writes out what is left and closes the file; a second call does nothing.
    pub(super) fn finish(&mut self) -> Result<(), WriteError> {
        if let Some(full) = self.full.take() {
            // A thread that has ended says why below.
            let _ = full.send(std::mem::take(&mut self.filling));
        }
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let result = thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the writing thread panicked")));
        result.map_err(|source| WriteError::Write { path: self.path.clone(), source })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.uses <= 1 && self.thread.is_some() {
            // Nothing was written but the header, and nobody has finished the file: the run did not begin.
            self.filling.clear();
            let nothing = self.finish();
            if self.created && nothing.is_ok() {
                let _ = std::fs::remove_file(&self.path);
            }
            return;
        }
        // Who wants to know of errors calls `finish`.
        let _ = self.finish();
    }
}

/// A file, packed or not.
enum Sink {
    Plain(File),
    Gzip(GzEncoder<File>),
}

impl Sink {
    fn write_all(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Gzip(file) => file.write_all(bytes),
        }
    }

    fn finish(self) -> std::io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(file) => file.finish().map(|_| ()),
        }
    }
}

/// Writes buffers until there are no more. After an error it goes on taking them, so that the packet path does not
/// wait.
fn write_all(
    file: File,
    gzip: bool,
    to_write: &Receiver<Vec<u8>>,
    written: &SyncSender<Vec<u8>>,
    failed: &AtomicBool,
) -> std::io::Result<()> {
    let mut result = Ok(());
    // The first bytes, of gzip too, are written with the first buffer.
    let (mut waiting, mut sink) = (Some(file), None);
    for mut buffer in to_write {
        if !buffer.is_empty() && result.is_ok() {
            if let Some(file) = waiting.take() {
                if file.metadata().is_ok_and(|status| status.is_file()) {
                    result = file.set_len(0);
                }
                let packed = |file| Sink::Gzip(GzEncoder::new(file, Compression::fast()));
                sink = Some(if gzip { packed(file) } else { Sink::Plain(file) });
            }
            if let (Ok(()), Some(sink)) = (&result, &mut sink) {
                result = sink.write_all(&buffer);
            }
            failed.store(result.is_err(), Ordering::Relaxed);
        }
        buffer.clear();
        let _ = written.send(buffer);
    }
    result.and_then(|()| sink.map_or(Ok(()), Sink::finish))
}
