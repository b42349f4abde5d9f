//! Lines are in order and complete, and lines that are not written are counted.

use std::io::{self, Write};

use forebay_units::Ticks;

use super::line_writer::{LOST, UNWRITTEN, WRITTEN};
use super::*;

#[derive(Clone, Copy, Debug)]
struct Number {
    nanos: u64,
    number: u32,
}

impl Record for Number {
    type With = &'static str;
    const RING: usize = 64;
    type Memory = ();

    fn nanos(&self) -> u64 {
        self.nanos
    }

    fn line(&self, owner: &str, with: &&'static str) -> Option<String> {
        Some(format!("{owner} {with} {} {}", self.number, "x".repeat(2_000)))
    }
}

/// A disk of limited size.
#[derive(Clone)]
struct Disk(Arc<Mutex<(Vec<u8>, usize)>>);

impl Disk {
    fn of(bytes: usize) -> Self {
        Self(Arc::new(Mutex::new((Vec::new(), bytes))))
    }

    fn grow(&self, bytes: usize) {
        self.0.lock().expect("no other thread panicked").1 = bytes;
    }

    fn lines(&self) -> Vec<u32> {
        let text = String::from_utf8(self.0.lock().expect("no other thread panicked").0.clone()).expect("text");
        let lines = text.lines().filter(|line| line.len() > 2_000);
        lines.map(|line| line.split(' ').nth(2).and_then(|word| word.parse().ok()).expect("a number")).collect()
    }
}

impl Out for Disk {}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut disk = self.0.lock().expect("no other thread panicked");
        let fits = bytes.len().min(disk.1 - disk.0.len());
        if fits == 0 {
            return Err(io::Error::new(io::ErrorKind::StorageFull, "the disk is full"));
        }
        disk.0.extend_from_slice(&bytes[..fits]);
        Ok(fits)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn counters() -> Arc<[Counter]> {
    COUNTERS.iter().map(|_| Counter::new()).collect()
}

fn journal(disk: &Disk) -> Arc<Journal<Number>> {
    let start = Journal::start(disk.clone(), Path::new("a disk"), "me", Frequency::new(1e9));
    Arc::new(start.expect("a thread"))
}

/// Each line is written once and completely, or counted. Lines that come when there is room again are written.
#[test]
fn lines_for_a_full_disk_are_counted_and_no_worker_waits() {
    let disk = Disk::of(100_000);
    let (journal, counts) = (journal(&disk), counters());
    let mut writer = journal.line_writer(Arc::new("with"), Arc::clone(&counts), None, true);
    let mut number = 0;
    let mut put = |writer: &mut LineWriter<Number>, many: u32| {
        for _ in 0..many {
            writer.write(Ticks(u64::from(number)), |nanos| Number { nanos, number });
            number += 1;
        }
    };
    for _ in 0..4 {
        put(&mut writer, 50);
        let _ = journal.flush();
    }
    assert!(
        journal.flush().expect_err("it is not complete").contains("cannot write a disk"),
        "the error has the reason"
    );
    assert_eq!((counts[WRITTEN].get(), counts[LOST].get()), (200, 0));
    disk.grow(10_000_000);
    put(&mut writer, 10);
    let _ = journal.flush();
    let lines = disk.lines();
    assert_eq!(lines.len() as u64 + counts[UNWRITTEN].get(), 210, "each line is written or counted");
    assert!(lines.windows(2).all(|pair| pair[0] < pair[1]), "in order, each line once");
    assert!(lines.ends_with(&(200..210).collect::<Vec<_>>()), "{lines:?}");
    assert!(counts[UNWRITTEN].get() > 50);
}

#[test]
fn records_that_find_the_ring_full_are_lost_and_counted() {
    let disk = Disk::of(usize::MAX);
    let (journal, counts) = (journal(&disk), counters());
    // No thread empties this ring.
    let (sender, _records) = RingBuffer::<Number>::new(Number::RING);
    let mut writer = LineWriter::new(sender, Arc::clone(&journal), Arc::clone(&counts), None, true);
    for number in 0..100 {
        writer.write(Ticks(0), |nanos| Number { nanos, number });
    }
    assert_eq!((counts[WRITTEN].get(), counts[LOST].get()), (64, 36));
}

#[test]
fn times_are_those_of_the_system_unless_they_are_simulated() {
    let disk = Disk::of(usize::MAX);
    let shared = Journal::<Number>::start(disk, Path::new("a disk"), "me", Tsc.frequency()).expect("a thread");
    let journal = Arc::new(shared);
    let stamp = |simulated| journal.line_writer(Arc::new(""), counters(), None, simulated).stamp(Tsc.now());
    let before = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    // The test only checks which clock is used, so it tolerates an hour. It asserts nothing about speed.
    assert!(stamp(false).abs_diff(before.as_nanos() as u64) < 3_600_000_000_000);
    assert_eq!(journal.line_writer(Arc::new(""), counters(), None, true).stamp(Ticks(0)), 0);
    assert_eq!(time(1_500_000_000), "1970-01-01T00:00:01.500000000Z");
}

#[test]
fn workers_records_are_put_in_order() {
    let disk = Disk::of(usize::MAX);
    let journal = journal(&disk);
    let mut writers = [0, 1].map(|_| journal.line_writer(Arc::new("with"), counters(), None, true));
    // The thread waits for the lock meanwhile, so it takes all records together.
    let state = journal.shared.lock();
    for number in 0..40u32 {
        let writer = &mut writers[number as usize % 2];
        writer.write(Ticks(u64::from(number)), |nanos| Number { nanos, number });
    }
    drop(state);
    journal.flush().expect("room");
    assert_eq!(disk.lines(), (0..40).collect::<Vec<_>>());
}

#[test]
fn a_pens_records_stay_in_order_when_the_clock_is_set_back() {
    let disk = Disk::of(usize::MAX);
    let journal = journal(&disk);
    let mut writer = journal.line_writer(Arc::new("with"), counters(), None, false);
    // The thread waits for the lock meanwhile, so it takes all records together.
    let state = journal.shared.lock();
    for (number, origin) in [(0u32, 1_000_000), (1, 0)] {
        journal.shared.origin.store(origin, Ordering::Relaxed);
        writer.write(Ticks(u64::from(number)), |nanos| Number { nanos, number });
    }
    drop(state);
    journal.flush().expect("room");
    assert_eq!(disk.lines(), [0, 1]);
}

/// Four lines fit, the fifth only in part.
#[test]
fn lines_that_wait_for_room_at_the_end_are_counted() {
    let disk = Disk::of(10_000);
    let (journal, counts) = (journal(&disk), counters());
    let mut writer = journal.line_writer(Arc::new("with"), Arc::clone(&counts), None, true);
    for number in 0..20u32 {
        writer.write(Ticks(u64::from(number)), |nanos| Number { nanos, number });
    }
    drop((writer, journal));
    assert_eq!(disk.lines(), [0, 1, 2, 3]);
    assert_eq!((counts[WRITTEN].get(), counts[UNWRITTEN].get()), (20, 16));
}
