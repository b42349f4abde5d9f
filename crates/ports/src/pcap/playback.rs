//! Playing a capture: its packets in order, again and again, each with its time.
//!
//! A capture of up to 64 MiB is read before the start and stays in memory, so that playing it is copying. Of a larger
//! one the first 64 MiB are read before the start, and a thread reads on, 4 MiB at a time, at most three such pieces
//! ahead; where it falls behind, the player waits for it: nothing is left out.

use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};

use super::reader::{ReadError, Reader, Record};
use super::skipped::Skipped;
use super::stream;

/// How many bytes of packets (and their index) are held ready.
const RESIDENT: usize = 64 << 20;
pub(super) const PIECE: usize = 4 << 20;
pub(super) const AHEAD: usize = 2;

/// Where a record lies.
#[derive(Clone, Copy)]
struct Entry {
    nanos: u64,
    start: u32,
    len: u32,
    /// Bytes that the capture cut off.
    missing: u32,
}

/// Some of a capture's packets.
#[derive(Default)]
pub(super) struct Piece {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// Packets before, between and after these that were passed over.
    pub(super) skipped: Skipped,
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
        let end = piece.fill(reader, limit);
        piece.skipped = reader.take_skipped();
        (piece, end)
    }

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

    /// How much memory its packets take.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.skipped.is_empty()
    }

    pub(super) fn push(&mut self, record: &Record<'_>) {
        let (start, len) = (self.bytes.len() as u32, record.bytes.len() as u32);
        self.bytes.extend_from_slice(record.bytes);
        let missing = record.original_len.saturating_sub(len);
        self.entries.push(Entry { nanos: record.nanos, start, len, missing });
    }
}

/// What the reading thread sends.
pub(super) enum Message {
    Piece(Piece),
    /// The capture starts again.
    Again,
    Failed(String),
    /// All is read.
    Ended,
}

/// A packet whose turn it is.
#[derive(Clone, Copy)]
pub(super) struct Next<'a> {
    /// Nanoseconds after the first packet of the first round.
    pub after: u64,
    pub bytes: &'a [u8],
    /// Bytes that the capture cut off.
    pub missing: u32,
}

/// A capture that is being played.
pub(super) struct Playback {
    piece: Piece,
    next: usize,
    /// Where more comes from; without it the piece is all there is.
    more: Option<Receiver<Message>>,
    /// Whether the player polls for more instead of waiting for it.
    polls: bool,
    /// How many rounds there are after this one; a thread counts its own.
    rounds_left: u64,
    /// The capture's first time stamp, once there is one.
    first: Option<u64>,
    /// When this round began, in nanoseconds after the first.
    began: u64,
    /// The latest packet of this round so far, in nanoseconds after its start, and how many there were.
    latest: u64,
    packets: u64,
    /// What went wrong while reading, and packets that were passed over.
    errors: Vec<String>,
    skipped: Skipped,
    /// Whether one of both has grown since they were taken.
    news: bool,
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
        let mut playback = Self { errors, ..Self::new(more, rounds) };
        playback.take(piece);
        Ok(playback)
    }

    /// Opens a capture that comes by a stream, to be played once. Its header is waited for. Where packets are not there
    /// yet, the player waits for them, or with `polls` goes on without them.
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
            rounds_left: rounds.saturating_sub(1),
            first: None,
            began: 0,
            latest: 0,
            packets: 0,
            errors: Vec::new(),
            skipped: Skipped::default(),
            news: true,
        }
    }

    /// Goes on with these packets.
    fn take(&mut self, piece: Piece) {
        if !piece.skipped.is_empty() {
            self.skipped.merge(&piece.skipped);
            self.news = true;
        }
        self.first = self.first.or_else(|| piece.entries.first().map(|entry| entry.nanos));
        (self.piece, self.next) = (piece, 0);
    }

    /// The capture's first time stamp, in nanoseconds after 1970; 0 before there is one.
    pub(super) fn first(&self) -> u64 {
        self.first.unwrap_or(0)
    }

    /// Whether it is played without an end: 2⁶⁴ - 1 rounds.
    pub(super) fn is_endless(&self) -> bool {
        self.rounds_left > u64::MAX / 2
    }

    /// Whether more packets may come by and by.
    pub(super) fn is_open(&self) -> bool {
        self.polls && self.more.is_some()
    }

    /// Whether something went wrong while reading, or packets were passed over, since that was last taken.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        self.news
    }

    /// What went wrong while reading, and packets that were passed over, since they were last taken.
    pub(super) fn take_news(&mut self) -> (Vec<String>, Skipped) {
        self.news = false;
        (std::mem::take(&mut self.errors), std::mem::take(&mut self.skipped))
    }

    /// The `ahead`-th packet from now on, of those that are at hand; 0 is the next.
    #[inline]
    pub(super) fn peek(&self, ahead: usize) -> Option<Next<'_>> {
        let entry = self.piece.entries.get(self.next + ahead)?;
        // Stamps that go back count as no later than what came before.
        let after = self.began.saturating_add(entry.nanos.saturating_sub(self.first()).max(self.latest));
        let bytes = self.piece.bytes.get(entry.start as usize..)?.get(..entry.len as usize)?;
        Some(Next { after, bytes, missing: entry.missing })
    }

    /// Goes on by one packet.
    #[inline]
    pub(super) fn advance(&mut self) {
        if let Some(entry) = self.piece.entries.get(self.next) {
            self.latest = entry.nanos.saturating_sub(self.first()).max(self.latest);
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
            self.skipped.merge(&self.piece.skipped);
            self.news |= !self.piece.skipped.is_empty();
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
                self.fail("the thread that reads the capture has failed".to_owned());
                return self.end();
            }
        }
        self.ready()
    }

    /// No more packets come.
    fn end(&mut self) -> bool {
        (self.more, self.piece, self.next, self.rounds_left) = (None, Piece::default(), 0, 0);
        false
    }

    fn fail(&mut self, error: String) {
        self.errors.push(error);
        self.news = true;
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

/// Reads what is left of this round and the rounds after it, until all is read or the player is gone.
fn read_on(reader: Reader<'static>, path: &Path, rounds: u64, to: &SyncSender<Message>) {
    read_rounds(reader, path, rounds, to);
    // The player may be gone.
    let _ = to.send(Message::Ended);
}

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
