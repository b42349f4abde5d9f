//! Where questions about a worker's tables come in, and are answered a few places at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_graph::Context;
use forebay_units::{Frequency, Nanos, Ticks};
use rtrb::{Consumer, Producer, RingBuffer};

use super::Shown;
use super::row::Row;
use super::select::Selector;

/// Places that are gone through in a call with packets.
pub(crate) const LOOKS: u32 = 64;
/// The same in a call without.
pub(crate) const WOKEN: u32 = 256;
/// How many looks it costs to end something.
const ENDING: u32 = 8;
/// A worker's tables, of which each is counted by itself.
const TABLES: usize = 2;

/// How long a worker may take to answer: it looks four times a second when no packets come.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_micros(100);

/// What is asked of a worker, which fills in the answer.
pub(super) struct Question {
    pub(super) number: u64,
    pub(super) select: Selector,
    /// Which table.
    pub(super) table: u8,
    /// The place to begin at; where it was left, in the answer.
    pub(super) place: u32,
    /// How many places may be gone through.
    pub(super) walk: u32,
    /// Whether what is found is to be ended, instead of told.
    pub(super) ends: bool,
    /// What was found, up to the capacity that it came with.
    pub(super) rows: Vec<Row>,
    pub(super) ended: u64,
    /// Whether there is nothing behind the place.
    pub(super) over: bool,
}

impl Question {
    /// One that is to be filled in.
    pub(super) const NONE: Self = Self {
        number: 0,
        select: Selector::ALL,
        table: 0,
        place: 0,
        walk: 0,
        ends: false,
        rows: Vec::new(),
        ended: 0,
        over: false,
    };

    /// Goes on with up to so many looks; whether it is done.
    fn go_on(&mut self, tables: &mut impl Shown, mut looks: u32) -> bool {
        loop {
            if self.place >= tables.places(self.table) {
                self.over = true;
                return true;
            }
            let full = !self.ends && self.rows.len() == self.rows.capacity();
            if self.walk == 0 || full {
                return true;
            }
            if looks == 0 {
                return false;
            }
            let row = tables.row(self.table, self.place).filter(|row| self.select.means(row));
            looks -= 1;
            if let Some(row) = row {
                if self.ends {
                    tables.end(self.table, self.place);
                    self.ended += 1;
                    looks = looks.saturating_sub(ENDING);
                } else {
                    self.rows.push(row.at(self.table, self.place));
                }
            }
            self.place += 1;
            self.walk -= 1;
        }
    }
}

/// Both rings as operators see them.
struct Window {
    questions: Producer<Question>,
    answers: Consumer<Question>,
    number: u64,
}

/// One worker's tables, from outside.
#[derive(Default)]
pub(crate) struct Part {
    window: Mutex<Option<Window>>,
    /// How many modules look after the tables.
    attendants: AtomicUsize,
    /// How many entries there are, as was last told.
    open: [AtomicUsize; TABLES],
}

impl Part {
    /// The worker's side of it: what was before is no more.
    pub(crate) fn desk(self: &Arc<Self>) -> Desk {
        let (questions, asked) = RingBuffer::new(1);
        let (told, answers) = RingBuffer::new(1);
        *self.window.lock().unwrap_or_else(PoisonError::into_inner) = Some(Window { questions, answers, number: 0 });
        self.open.iter().for_each(|open| open.store(0, Ordering::Relaxed));
        Desk { asked, told, current: None, part: Arc::clone(self) }
    }

    pub(super) fn is_attended(&self) -> bool {
        self.attendants.load(Ordering::Acquire) > 0
    }

    /// How many entries a table has.
    pub(super) fn len(&self, table: u8) -> usize {
        self.open.get(usize::from(table)).map_or(0, |open| open.load(Ordering::Relaxed))
    }

    /// How many entries there are in all. Where there are none nobody may be there to answer.
    pub(super) fn open(&self) -> usize {
        self.open.iter().map(|open| open.load(Ordering::Relaxed)).sum()
    }

    /// Asks, and waits for the answer; `None` where none comes.
    pub(super) fn ask(&self, mut question: Question) -> Option<Question> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let Window { questions, answers, number } = window.as_mut()?;
        *number += 1;
        question.number = *number;
        let until = Instant::now() + PATIENCE;
        let mut waiting = Some(question);
        loop {
            // Answers that nobody waits for any more make room.
            while let Ok(answer) = answers.pop() {
                if answer.number == *number {
                    return Some(answer);
                }
            }
            if let Some(question) = waiting.take() {
                waiting = questions.push(question).err().map(|rtrb::PushError::Full(question)| question);
            }
            if Instant::now() > until || !self.is_attended() {
                return None;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// The same from inside: with the tables.
pub(crate) struct Desk {
    asked: Consumer<Question>,
    told: Producer<Question>,
    /// What is being answered.
    current: Option<Question>,
    part: Arc<Part>,
}

impl Desk {
    /// Whether there is anything to be answered.
    #[inline(always)]
    pub(crate) fn is_asked(&self) -> bool {
        self.current.is_some() || !self.asked.is_empty()
    }

    /// Tells how many entries each table has.
    pub(crate) fn tell(&self, open: [usize; TABLES]) {
        self.part.open.iter().zip(open).for_each(|(told, open)| told.store(open, Ordering::Relaxed));
    }
}

/// Goes on with what has been asked of a module's tables, if anything has, by about so many looks.
#[inline(always)]
pub(crate) fn attend(tables: &mut impl Shown, looks: u32, context: &mut Context<'_>) {
    if tables.desk().is_asked() && answer(tables, looks) {
        context.wake_at(context.now());
    }
}

/// The same; whether there is more to do.
#[cold]
pub(super) fn answer(tables: &mut impl Shown, looks: u32) -> bool {
    let desk = tables.desk();
    let Some(mut question) = desk.current.take().or_else(|| desk.asked.pop().ok()) else { return false };
    // No answer is under way that was not asked for, so that there is room; if not it has to wait.
    let done = question.go_on(tables, looks) && !tables.desk().told.is_full();
    let desk = tables.desk();
    if done {
        // There is room, as was just seen.
        let _ = desk.told.push(question);
    } else {
        desk.current = Some(question);
    }
    desk.is_asked()
}

/// A module that looks after a worker's tables: what is due though no packets come.
pub(crate) struct Attendant {
    part: Arc<Part>,
    /// How often it looks, and when next.
    period: Ticks,
    next: Ticks,
    /// Whether it will be woken.
    waits: bool,
}

impl Attendant {
    /// One of these tables.
    pub(crate) fn new(part: Arc<Part>, frequency: Frequency) -> Self {
        part.attendants.fetch_add(1, Ordering::AcqRel);
        Self { part, period: frequency.ticks(Nanos(250_000_000)), next: Ticks::ZERO, waits: false }
    }

    /// Whether the module should look now: four times a second, and at once where entries have come while nobody waits for
    /// their end.
    #[inline(always)]
    pub(crate) fn is_due(&self, now: Ticks, empty: bool) -> bool {
        now >= self.next || !(self.waits || empty)
    }

    /// It has looked: it is woken again as long as there are entries.
    pub(crate) fn looked(&mut self, empty: bool, context: &mut Context<'_>) {
        self.next = context.now() + self.period;
        self.waits = !empty;
        if self.waits {
            context.look_at(self.next);
        }
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.part.attendants.fetch_sub(1, Ordering::AcqRel);
    }
}
