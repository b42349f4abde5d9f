//! Buffers on their way to a file. The packet path fills them, and a separate thread writes them.
//!
//! A full buffer is handed over to the thread, and returned after it is written. So the packet path makes no system
//! call for each packet and allocates no memory.

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

/// The behaviour when packets come faster than the disk accepts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The worker waits for the disk: no packet is lost, and the pipeline is as fast as the disk.
    #[default]
    Wait,
    /// Packets that find no room are refused and counted.
    Refuse,
}

/// Why a file cannot be written.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The file cannot be created.
    #[error("cannot create {path}: {source}")]
    Create {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file name requires a format that cannot be written.
    #[error(
        "{path}: captures cannot be written as {format}: use a name that ends in .pcap or .pcapng, optionally followed \
         by .gz"
    )]
    Format {
        /// The path of the file.
        path: PathBuf,
        /// The name of the format.
        format: &'static str,
    },
    /// The file name requires pcap, but comments need pcapng.
    #[error("{path}: packets with comments need pcapng: use a name that ends in .pcapng")]
    Comments {
        /// The path of the file.
        path: PathBuf,
    },
    /// The file was created, but not everything could be written.
    #[error("cannot write {path}, which is not complete: {source}")]
    Write {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The number of bytes written at a time.
const BUFFER: usize = 256 << 10;
/// The number of buffers: 2 MiB in all.
const BUFFERS: usize = 8;

pub(super) struct Spool {
    path: PathBuf,
    filling: Vec<u8>,
    full: Option<SyncSender<Vec<u8>>>,
    empty: Receiver<Vec<u8>>,
    when_full: WhenFull,
    failed: Arc<AtomicBool>,
    thread: Option<JoinHandle<std::io::Result<()>>>,
    /// True if the file did not exist before.
    created: bool,
    /// The number of `room` calls. The first one is for the header.
    room_calls: u64,
}

impl Spool {
    pub(super) fn create(path: &Path, gzip: bool, when_full: WhenFull) -> Result<Self, WriteError> {
        let create_error = |source| WriteError::Create { path: path.to_owned(), source };
        // The file is emptied when the first buffer is written. A run that is rejected before it starts leaves the file
        // unchanged.
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
            room_calls: 0,
        })
    }

    /// Returns the buffer to which the next `bytes` bytes must be appended. Returns `None` if there is no room now, or
    /// if the file cannot be written any more.
    #[inline]
    pub(super) fn room(&mut self, bytes: usize) -> Option<&mut Vec<u8>> {
        if self.filling.len() + bytes > BUFFER {
            self.hand_over()?;
        }
        self.room_calls += 1;
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

    /// Returns true if the file cannot be written any more.
    pub(super) fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Writes the rest and closes the file. A second call does nothing.
    pub(super) fn finish(&mut self) -> Result<(), WriteError> {
        if let Some(full) = self.full.take() {
            // If the thread has ended, its result below has the reason.
            let _ = full.send(std::mem::take(&mut self.filling));
        }
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let result = thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the writing thread panicked")));
        result.map_err(|source| WriteError::Write { path: self.path.clone(), source })
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.room_calls <= 1 && self.thread.is_some() {
            // Only the header was written, and `finish` was not called: the run did not start.
            self.filling.clear();
            let result = self.finish();
            if self.created && result.is_ok() {
                let _ = std::fs::remove_file(&self.path);
            }
            return;
        }
        // A caller that needs the errors calls `finish`.
        let _ = self.finish();
    }
}

/// A file, compressed or not.
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

/// Writes buffers until there are no more. After an error it continues to take them, so that the packet path does not
/// wait.
fn write_all(
    file: File,
    gzip: bool,
    to_write: &Receiver<Vec<u8>>,
    written: &SyncSender<Vec<u8>>,
    failed: &AtomicBool,
) -> std::io::Result<()> {
    let mut result = Ok(());
    // The first bytes, including those of gzip, are written with the first buffer.
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
