//! Buffers on their way to a file. The packet path fills them, and a separate thread writes them.
//!
//! A full buffer is handed over to the thread, which returns the buffer after it is written. So the packet path does
//! not make a system call per packet, and allocates no memory.

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

/// The behaviour if packets arrive faster than the disk accepts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenFull {
    /// The worker waits for the disk. No packet is lost, but the pipeline is only as fast as the disk.
    #[default]
    Wait,
    /// Packets for which there is no room are refused and counted.
    Refuse,
}

/// An error when a capture is written.
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
    /// The file was created, but some of the packets could not be written.
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

/// A file that is being written, with the buffers and the thread that writes them. [`finish`](Self::finish) returns the
/// errors of the thread.
pub(super) struct Spool {
    path: PathBuf,
    /// The buffer that the packet path fills.
    filling: Vec<u8>,
    /// Full buffers, to the thread. `None` once the file is finished.
    full: Option<SyncSender<Vec<u8>>>,
    /// Written buffers, from the thread.
    empty: Receiver<Vec<u8>>,
    when_full: WhenFull,
    /// True if the thread could not write.
    failed: Arc<AtomicBool>,
    /// The thread, whose result is the first error. `None` once the file is finished.
    thread: Option<JoinHandle<std::io::Result<()>>>,
    /// True if the file did not exist before.
    created: bool,
    /// The number of calls of `room` that returned a buffer. The first of these calls is for the file's header, so a
    /// number above 1 means that packets were written.
    room_calls: u64,
}

impl Spool {
    /// Opens the file and starts the thread. An existing file is emptied only when the first buffer is written.
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

    /// Returns the buffer to which the caller must append the next `bytes` bytes. With [`WhenFull::Wait`], waits for an
    /// empty buffer if necessary. With [`WhenFull::Refuse`], returns `None` if there is no empty buffer. Also returns
    /// `None` if the file cannot be written any more.
    #[inline]
    pub(super) fn room(&mut self, bytes: usize) -> Option<&mut Vec<u8>> {
        if self.filling.len() + bytes > BUFFER {
            self.hand_over()?;
        }
        self.room_calls += 1;
        Some(&mut self.filling)
    }

    /// Hands the buffer over to the thread, and takes an empty buffer. Returns `None` if the file cannot be written any
    /// more, or if there is no empty buffer and `when_full` is [`WhenFull::Refuse`].
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
    ///
    /// # Errors
    /// [`WriteError::Write`]: an error now or earlier.
    pub(super) fn finish(&mut self) -> Result<(), WriteError> {
        if let Some(full) = self.full.take() {
            // If this fails, the thread has ended. `join` returns the reason.
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
        // A caller that needs the errors calls `finish` before.
        let _ = self.finish();
    }
}

/// A file that is written plain or compressed.
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

    /// Writes the end of the compressed data.
    fn finish(self) -> std::io::Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Gzip(file) => file.finish().map(|_| ()),
        }
    }
}

/// Writes buffers until the channel is closed, and returns each buffer. Returns the first error. After an error, the
/// function continues to take buffers, without writing them, so that the packet path does not wait. This is the body of
/// the thread.
fn write_all(
    file: File,
    gzip: bool,
    to_write: &Receiver<Vec<u8>>,
    written: &SyncSender<Vec<u8>>,
    failed: &AtomicBool,
) -> std::io::Result<()> {
    let mut result = Ok(());
    // The gzip header is also written with the first buffer and not when the file is opened, so that an existing file
    // remains unchanged until then.
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
