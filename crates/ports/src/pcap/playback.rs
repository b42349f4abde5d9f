//! Replays a capture: its packets in order, repeatedly, each with its time.
//!
//! A capture of up to 64 MiB is read before the start and stays in memory, so that packets are only copied during the
//! replay. If a capture is larger, its first 64 MiB are read before the start. A thread reads the rest, in pieces of 4
//! MiB and at most three pieces ahead of the player. If the thread is too slow, the player waits for the thread, so
//! that no packet is omitted.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use super::reader::{ReadError, Reader, Record};
use super::skipped::Skipped;
use super::stream;

/// The number of bytes that are read before the start and kept in memory: the packets and their index.
const RESIDENT: usize = 64 << 20;
/// The size of a piece that a thread reads, in bytes of packets and their index.
pub(super) const PIECE: usize = 4 << 20;
/// The number of pieces that wait in the channel. One more piece is being read.
pub(super) const AHEAD: usize = 2;

/// The position of a packet in a piece.
#[derive(Clone, Copy)]
struct Entry {
    /// The time stamp, in nanoseconds since 1970.
    nanos: u64,
    /// The offset of the packet in [`Piece::bytes`].
    start: u32,
    /// The number of bytes of the packet in the capture.
    len: u32,
    /// The number of bytes that the capture truncated.
    missing: u32,
}

/// Successive packets of a capture.
#[derive(Default)]
pub(super) struct Piece {
    /// The bytes of the packets, one after the other.
    bytes: Vec<u8>,
    /// The packets in order.
    entries: Vec<Entry>,
    /// Packets skipped before, between and after these packets.
    pub(super) skipped: Skipped,
}

/// The reason why a piece ended.
enum End {
    /// The piece is full.
    Full,
    /// The capture is at its end.
    Last,
    /// The capture cannot be read further.
    Failed(ReadError),
}

impl Piece {
    /// Reads packets until they take `limit` bytes, or until the capture ends or has a fault. The packets before a
    /// fault are in the piece.
    fn read(reader: &mut Reader<'_>, limit: usize) -> (Self, End) {
        let mut piece = Self::default();
        let end = piece.fill(reader, limit);
        piece.skipped = reader.take_skipped();
        (piece, end)
    }

    /// Adds packets until the piece takes `limit` bytes. The skipped packets are not counted here.
    fn fill(&mut self, reader: &mut Reader<'_>, limit: usize) -> End {
        while self.size() < limit {
            let record = match reader.next() {
                None => return End::Last,
                Some(Err(error)) => return End::Failed(error),
                Some(Ok(record)) => record,
            };
            self.push(&record);
        }
        End::Full
    }

    /// Returns the memory that the packets and their index take, in bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// Returns true if the piece has no packets and no skipped packets.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.skipped.is_empty()
    }

    /// Adds a packet.
    pub(super) fn push(&mut self, record: &Record<'_>) {
        let (start, len) = (self.bytes.len() as u32, record.bytes.len() as u32);
        self.bytes.extend_from_slice(record.bytes);
        let missing = record.original_len.saturating_sub(len);
        self.entries.push(Entry { nanos: record.nanos, start, len, missing });
    }
}

/// A message from the reading thread to the player. [`Message::Ended`] is the last message.
pub(super) enum Message {
    /// The next packets.
    Piece(Piece),
    /// The capture starts again.
    Again,
    /// The rest of this round cannot be read. The text is for the user.
    Failed(String),
    /// All packets of all rounds have been read.
    Ended,
}

/// The next packet.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    /// The time at which the packet is due, in nanoseconds after the first packet of the first round.
    pub after: u64,
    /// The Ethernet frame.
    pub bytes: &'a [u8],
    /// The number of bytes that the capture truncated.
    pub missing: u32,
}

/// A capture that is being replayed. The caller calls [`ready`](Self::ready), reads packets with [`peek`](Self::peek),
/// and [advances](Self::advance) after each packet.
pub(super) struct Playback {
    /// The packets in memory.
    piece: Piece,
    /// The index of the next packet in `piece`.
    next: usize,
    /// The source of more pieces. If it is `None`, `piece` is the whole capture, or the replay has ended.
    more: Option<Receiver<Message>>,
    /// True if the player polls for more pieces. Otherwise, the player waits until a piece arrives.
    polls: bool,
    /// The number of rounds after this round. If a thread reads the capture, the thread counts the rounds, and this
    /// number stays the same.
    remaining_rounds: u64,
    /// The capture's first time stamp, in nanoseconds since 1970. `None` until it is known.
    first: Option<u64>,
    /// The start of this round, in nanoseconds after the first packet of the first round.
    began: u64,
    /// The time of the latest packet of this round so far, in nanoseconds after the start of the round.
    latest: u64,
    /// The number of packets of this round so far.
    packets: u64,
    /// The read errors since the last `take_events`.
    errors: Vec<String>,
    /// The packets skipped since the last `take_events`.
    skipped: Skipped,
    /// True if there are new errors or skipped packets since the last `take_events`.
    has_new_events: bool,
}

impl Playback {
    /// Opens a capture that is replayed `rounds` times, or forever if `rounds` is `u64::MAX`. If the capture has a
    /// fault, the packets before the fault are replayed, and the fault is an [event](Self::take_events).
    ///
    /// # Errors
    /// Returns an error if the capture cannot be opened, has a fault before its first packet, or has only packets that
    /// are skipped.
    pub(super) fn open(path: &Path, rounds: u64) -> Result<Self, ReadError> {
        Self::with_limit(path, rounds, RESIDENT)
    }

    /// Opens a capture as [`open`](Self::open) does, but reads only `limit` bytes before the start.
    pub(super) fn with_limit(path: &Path, rounds: u64, limit: usize) -> Result<Self, ReadError> {
        let mut reader = Reader::open(path)?;
        let (piece, end) = Piece::read(&mut reader, limit);
        let (mut errors, mut more) = (Vec::new(), None);
        match end {
            End::Last => {}
            End::Failed(error) if piece.entries.is_empty() => return Err(error),
            End::Failed(error) => errors.push(error.to_string()),
            End::Full => {
                let (sender, receiver) = sync_channel(AHEAD);
                let path = path.to_owned();
                let thread = std::thread::Builder::new().name("pcap-read".to_owned());
                thread.spawn(move || read_on(reader, &path, rounds, &sender)).map_err(ReadError::Open)?;
                more = Some(receiver);
            }
        }
        let mut playback = Self { errors, ..Self::new(more, rounds) };
        playback.take(piece);
        Ok(playback)
    }

    /// Opens a capture that arrives in a stream and is replayed once. Waits until its header has arrived. If the next
    /// packet has not arrived yet, [`ready`](Self::ready) waits for it. With `polls`, `ready` does not wait, and
    /// returns `false`.
    pub(super) fn stream(from: impl std::io::Read + Send + 'static, polls: bool) -> Result<Self, ReadError> {
        let more = stream::read(from)?;
        Ok(Self { polls, ..Self::new(Some(more), 1) })
    }

    fn new(more: Option<Receiver<Message>>, rounds: u64) -> Self {
        Self {
            piece: Piece::default(),
            next: 0,
            more,
            polls: false,
            remaining_rounds: rounds.saturating_sub(1),
            first: None,
            began: 0,
            latest: 0,
            packets: 0,
            errors: Vec::new(),
            skipped: Skipped::default(),
            has_new_events: true,
        }
    }

    /// Replaces the packets in memory by the packets of `piece`.
    fn take(&mut self, piece: Piece) {
        if !piece.skipped.is_empty() {
            self.skipped.merge(&piece.skipped);
            self.has_new_events = true;
        }
        self.first = self.first.or_else(|| piece.entries.first().map(|entry| entry.nanos));
        (self.piece, self.next) = (piece, 0);
    }

    /// Returns the capture's first time stamp, in nanoseconds since 1970. Returns 0 if it is not known yet.
    pub(super) fn first(&self) -> u64 {
        self.first.unwrap_or(0)
    }

    /// Returns true if the capture is replayed forever: its number of rounds is `u64::MAX`.
    pub(super) fn is_endless(&self) -> bool {
        self.remaining_rounds > u64::MAX / 2
    }

    /// Returns true if more packets may arrive later. Always returns false if the player does not poll.
    pub(super) fn is_open(&self) -> bool {
        self.polls && self.more.is_some()
    }

    /// Returns true if there are new errors or skipped packets since the last `take_events`.
    #[inline]
    pub(super) fn has_events(&self) -> bool {
        self.has_new_events
    }

    /// Returns the read errors and the skipped packets since the last call.
    pub(super) fn take_events(&mut self) -> (Vec<String>, Skipped) {
        self.has_new_events = false;
        (std::mem::take(&mut self.errors), std::mem::take(&mut self.skipped))
    }

    /// Returns the packet that is `ahead` packets after the next packet. Returns `None` if it is not in memory.
    /// `peek(0)` is the next packet.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> Option<Next<'_>> {
        let entry = self.piece.entries.get(self.next + ahead)?;
        // A time stamp that goes back is replaced by the latest time stamp.
        let after = self.began.saturating_add(entry.nanos.saturating_sub(self.first()).max(self.latest));
        let bytes = self.piece.bytes.get(entry.start as usize..)?.get(..entry.len as usize)?;
        Some(Next { after, bytes, missing: entry.missing })
    }

    /// Advances by one packet.
    #[inline]
    pub(super) fn advance(&mut self) {
        if let Some(entry) = self.piece.entries.get(self.next) {
            self.latest = entry.nanos.saturating_sub(self.first()).max(self.latest);
            self.packets += 1;
            self.next += 1;
        }
    }

    /// Gets more packets if there are none in memory, and starts the next round if necessary. Returns true if a packet
    /// is available. Otherwise, the replay has ended, or more packets may arrive later ([`is_open`](Self::is_open)).
    #[inline]
    pub(super) fn ready(&mut self) -> bool {
        self.next < self.piece.entries.len() || self.get_more()
    }

    /// Gets the next message of the thread, or starts the next round of a capture that is in memory.
    #[cold]
    fn get_more(&mut self) -> bool {
        let Some(more) = &self.more else {
            if self.remaining_rounds == 0 || self.piece.entries.is_empty() {
                return false;
            }
            // `loops: forever` is 2⁶⁴ - 1 rounds, so in practice this number never becomes 0.
            self.remaining_rounds -= 1;
            self.skipped.merge(&self.piece.skipped);
            self.has_new_events |= !self.piece.skipped.is_empty();
            self.next = 0;
            self.begin_again();
            return true;
        };
        let message = match more.try_recv() {
            Err(TryRecvError::Empty) if self.polls => return false,
            Err(TryRecvError::Empty) => more.recv().ok(),
            message => message.ok(),
        };
        match message {
            Some(Message::Piece(piece)) => self.take(piece),
            Some(Message::Failed(error)) => self.fail(error),
            Some(Message::Again) => self.begin_again(),
            Some(Message::Ended) => return self.end(),
            None => {
                self.fail("the thread that reads the capture panicked".to_owned());
                return self.end();
            }
        }
        self.ready()
    }

    /// Ends the replay. Returns `false`, the result of [`ready`](Self::ready).
    fn end(&mut self) -> bool {
        (self.more, self.piece, self.next, self.remaining_rounds) = (None, Piece::default(), 0, 0);
        false
    }

    /// Adds a read error to the events.
    fn fail(&mut self, error: String) {
        self.errors.push(error);
        self.has_new_events = true;
    }

    /// Starts the next round one mean gap after the last packet of this round.
    fn begin_again(&mut self) {
        // The sum saturates, because a repeated capture whose time stamps are decades apart can exceed 64 bits.
        self.began = self.began.saturating_add(self.latest).saturating_add(self.gap());
        (self.latest, self.packets) = (0, 0);
    }

    /// Returns the mean gap between the packets of this round in nanoseconds. Returns a microsecond if the mean is 0,
    /// or if the round had fewer than two packets.
    fn gap(&self) -> u64 {
        self.latest.checked_div(self.packets.saturating_sub(1)).filter(|gap| *gap > 0).unwrap_or(1000)
    }
}

/// Reads the rest of this round and the following rounds, and sends the packets to the player. Ends when all rounds are
/// read or the player no longer exists. This is the body of the reading thread.
fn read_on(reader: Reader<'static>, path: &Path, rounds: u64, to: &SyncSender<Message>) {
    read_rounds(reader, path, rounds, to);
    // This fails if the player no longer exists.
    let _ = to.send(Message::Ended);
}

/// Does the work of [`read_on`], except for the last message.
fn read_rounds(mut reader: Reader<'static>, path: &Path, rounds: u64, to: &SyncSender<Message>) {
    let mut round = 1;
    loop {
        let (piece, end) = Piece::read(&mut reader, PIECE);
        let mut found = !piece.entries.is_empty();
        if to.send(Message::Piece(piece)).is_err() {
            return;
        }
        match end {
            End::Full => continue,
            // A fault occurs in every round and is reported once.
            End::Failed(error) if round == 1 => found |= to.send(Message::Failed(error.to_string())).is_ok(),
            End::Last => found |= round == 1,
            End::Failed(_) => {}
        }
        // Without this check, a file that became empty in the meantime would be read forever.
        if !found || round >= rounds || to.send(Message::Again).is_err() {
            return;
        }
        round = round.saturating_add(1);
        match Reader::open(path) {
            Ok(again) => reader = again,
            Err(error) => {
                let _ = to.send(Message::Failed(error.to_string()));
                return;
            }
        }
    }
}
