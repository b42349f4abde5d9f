//! Playing a capture: its packets in order, again and again, each with its time.
//!
//! A capture of up to 64 MiB is read before the start and stays in memory, so that playing it is copying. Of a larger
//! one the first 64 MiB are read before the start, and a thread reads on, 4 MiB at a time, at most three such pieces
//! ahead; where it falls behind, the player waits for it: nothing is left out.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use super::reader::{ReadError, Reader};

/// How many bytes of packets (and their index) are held ready.
const RESIDENT: usize = 64 << 20;
const PIECE: usize = 4 << 20;
const AHEAD: usize = 2;

/// Where a record lies.
#[derive(Clone, Copy)]
struct Entry {
    nanos: u64,
    start: u32,
    len: u32,
}

/// Some of a capture's packets.
#[derive(Default)]
struct Piece {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

/// How reading a piece ended.
enum End {
    /// It is full.
    Full,
    /// The capture is at its end.
    Last,
    /// It cannot be read further.
    Failed(ReadError),
}

impl Piece {
    fn read(reader: &mut Reader<'_>, limit: usize) -> (Self, End) {
        let mut piece = Self::default();
        while piece.bytes.len() + piece.entries.len() * size_of::<Entry>() < limit {
            let record = match reader.next() {
                None => return (piece, End::Last),
                Some(Err(error)) => return (piece, End::Failed(error)),
                Some(Ok(record)) => record,
            };
            let (start, len) = (piece.bytes.len() as u32, record.bytes.len() as u32);
            piece.bytes.extend_from_slice(record.bytes);
            piece.entries.push(Entry { nanos: record.nanos, start, len });
        }
        (piece, End::Full)
    }
}

/// What the reading thread says.
enum Message {
    Piece(Piece),
    /// The capture begins anew.
    Again,
    Failed(String),
}

/// A packet whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    /// Nanoseconds after the first packet of the first round.
    pub after: u64,
    pub bytes: &'a [u8],
}

/// A capture that is being played.
pub(super) struct Playback {
    piece: Piece,
    next: usize,
    /// Where more comes from; without it the piece is all there is.
    more: Option<Receiver<Message>>,
    /// How many rounds there are after this one; a thread counts its own.
    rounds_left: u64,
    /// The capture's first time stamp.
    first: u64,
    /// When this round began, in nanoseconds after the first.
    began: u64,
    /// The latest packet of this round so far, in nanoseconds after its start, and how many there were.
    latest: u64,
    packets: u64,
    /// What went wrong while reading.
    errors: Vec<String>,
}

impl Playback {
    /// Opens a capture to be played `rounds` times. A fault after the first packets leaves those to be played.
    pub(super) fn open(path: &Path, rounds: u64) -> Result<Self, ReadError> {
        Self::with_limit(path, rounds, RESIDENT)
    }

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
        let first = piece.entries.first().map_or(0, |entry| entry.nanos);
        Ok(Self {
            piece,
            next: 0,
            more,
            rounds_left: rounds.saturating_sub(1),
            first,
            began: 0,
            latest: 0,
            packets: 0,
            errors,
        })
    }

    /// The capture's first time stamp, in nanoseconds after 1970.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Whether something went wrong while reading, since [`take_errors`](Self::take_errors) was last asked.
    #[inline]
    pub(super) fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// What went wrong while reading, since this was last asked.
    pub(super) fn take_errors(&mut self) -> Vec<String> {
        std::mem::take(&mut self.errors)
    }

    /// The `ahead`-th packet from now on, of those that are at hand; 0 is the next.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> Option<Next<'_>> {
        let entry = self.piece.entries.get(self.next + ahead)?;
        // Stamps that go back count as no later than what came before.
        let after = self.began.saturating_add(entry.nanos.saturating_sub(self.first).max(self.latest));
        let bytes = self.piece.bytes.get(entry.start as usize..)?.get(..entry.len as usize)?;
        Some(Next { after, bytes })
    }

    /// Goes on by one packet.
    #[inline]
    pub(super) fn advance(&mut self) {
        if let Some(entry) = self.piece.entries.get(self.next) {
            self.latest = entry.nanos.saturating_sub(self.first).max(self.latest);
            self.packets += 1;
            self.next += 1;
        }
    }

    /// Gets packets to hand where there are none; `false` where none are left at all.
    #[inline]
    pub(super) fn ready(&mut self) -> bool {
        self.next < self.piece.entries.len() || self.get_more()
    }

    #[cold]
    fn get_more(&mut self) -> bool {
        let Some(more) = &self.more else {
            if self.rounds_left == 0 || self.piece.entries.is_empty() {
                return false;
            }
            // Forever is 2⁶⁴ - 1 rounds.
            self.rounds_left -= 1;
            self.next = 0;
            self.begin_again();
            return true;
        };
        // An error says that the thread has ended: that was all.
        let Ok(message) = more.recv() else { return false };
        match message {
            Message::Piece(piece) => (self.piece, self.next) = (piece, 0),
            Message::Failed(error) => self.errors.push(error),
            Message::Again => self.begin_again(),
        }
        self.ready()
    }

    /// The next round begins a mean gap after the last packet of this one.
    fn begin_again(&mut self) {
        // A capture with stamps decades apart, played again and again, comes to the end of time.
        self.began = self.began.saturating_add(self.latest).saturating_add(self.gap());
        (self.latest, self.packets) = (0, 0);
    }

    /// The mean gap between packets; a microsecond where that cannot be said.
    fn gap(&self) -> u64 {
        self.latest.checked_div(self.packets.saturating_sub(1)).filter(|gap| *gap > 0).unwrap_or(1000)
    }
}

/// Reads what is left of this round and the rounds after it, until all is read or nobody listens.
fn read_on(mut reader: Reader<'static>, path: &Path, rounds: u64, to: &SyncSender<Message>) {
    let mut round = 1;
    loop {
        let (piece, end) = Piece::read(&mut reader, PIECE);
        let mut found = !piece.entries.is_empty();
        if to.send(Message::Piece(piece)).is_err() {
            return;
        }
        match end {
            End::Full => continue,
            // What is broken is broken in every round: it is said once.
            End::Failed(error) if round == 1 => found |= to.send(Message::Failed(error.to_string())).is_ok(),
            End::Last => found |= round == 1,
            End::Failed(_) => {}
        }
        // A file that has been emptied meanwhile would be read for ever.
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
