//! Reads a capture from a stream, for example from a pipe into which another program captures.
//!
//! A thread reads the stream. Before the thread waits for more bytes, it hands over the packets that it has read. So a
//! packet never waits in the thread until the next packet arrives. If the channel has [`AHEAD`] pieces, the thread
//! waits for the player and does not read the stream.

use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::playback::{AHEAD, Message, PIECE, Piece};
use super::reader::{ReadError, Reader};

/// Packets on their way to the player.
struct Outbox {
    /// The packets that were read and not handed over yet.
    piece: Piece,
    to: SyncSender<Message>,
    /// True if the player no longer exists.
    player_gone: bool,
}

impl Outbox {
    /// Hands over the present piece. Waits if the channel is full.
    fn flush(&mut self) {
        if !self.piece.is_empty() {
            let piece = std::mem::take(&mut self.piece);
            self.send(Message::Piece(piece));
        }
    }

    /// Sends a message to the player. Waits if the channel is full.
    fn send(&mut self, message: Message) {
        self.player_gone |= self.to.send(message).is_err();
    }
}

/// Locks the outbox. Only one thread at a time uses it, so the lock is free.
fn lock(outbox: &Mutex<Outbox>) -> MutexGuard<'_, Outbox> {
    outbox.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that hands over the packets in the outbox before each reading, because the reading may wait. The stream
/// ends when the player no longer exists.
struct Flushing<R> {
    stream: R,
    outbox: Arc<Mutex<Outbox>>,
}

impl<R: Read> Read for Flushing<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut outbox = lock(&self.outbox);
        outbox.flush();
        if outbox.player_gone {
            return Ok(0);
        }
        drop(outbox);
        self.stream.read(bytes)
    }
}

/// Reads the header of a capture, and starts a thread that reads the rest. Returns the messages of the thread.
pub(super) fn read(stream: impl Read + Send + 'static) -> Result<Receiver<Message>, ReadError> {
    let (to, from) = sync_channel(AHEAD);
    let outbox = Arc::new(Mutex::new(Outbox { piece: Piece::default(), to, player_gone: false }));
    let reader = Reader::new(Flushing { stream, outbox: Arc::clone(&outbox) })?;
    let thread = std::thread::Builder::new().name("pcap-read".to_owned());
    thread.spawn(move || read_all(reader, &outbox)).map_err(ReadError::Open)?;
    Ok(from)
}

/// Reads all packets and hands them over. This is the body of the thread.
fn read_all(mut reader: Reader<'_>, outbox: &Mutex<Outbox>) {
    loop {
        let outcome = reader.next().map(|read| read.map(|record| lock(outbox).piece.push(&record)));
        let mut outbox = lock(outbox);
        outbox.piece.skipped.merge(&reader.take_skipped());
        match outcome {
            Some(Ok(())) if outbox.piece.size() < PIECE => continue,
            Some(Ok(())) => {}
            Some(Err(error)) => {
                outbox.flush();
                outbox.send(Message::Failed(error.to_string()));
            }
            None => {
                outbox.flush();
                outbox.send(Message::Ended);
                return;
            }
        }
        outbox.flush();
        if outbox.player_gone {
            return;
        }
    }
}
