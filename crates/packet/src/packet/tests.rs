//! Compares edits of a packet with edits of plain bytes, over chunks of the native layout and of a driver's layout.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::pool::{Order, Pool, PoolOptions};
use crate::testing::cases;
use crate::testing::driver_memory::DriverMemory;

const FRAME: usize = 96;

#[derive(Clone, Debug)]
enum Edit {
    Prepend(usize),
    Strip(usize),
    Append(usize),
    Truncate(usize),
    Write(Vec<u8>),
    Poke(usize, u8),
    CopyFromOther,
    SwapWithOther,
    SetWord(usize, u32),
    SetFlow(u32),
    SetArrival(u64, bool),
    SetMark(u8),
    SetMissing(u32),
}

fn edit() -> impl Strategy<Value = Edit> {
    // Values beyond the room, and near the 16-bit limit of lengths.
    let n = || prop_oneof![8 => 0usize..40, 2 => 0usize..200, 1 => 65_500usize..65_600, 1 => Just(usize::MAX)];
    prop_oneof![
        4 => n().prop_map(Edit::Prepend),
        4 => n().prop_map(Edit::Strip),
        4 => n().prop_map(Edit::Append),
        2 => n().prop_map(Edit::Truncate),
        2 => vec(any::<u8>(), 0..220).prop_map(Edit::Write),
        4 => (any::<usize>(), any::<u8>()).prop_map(|(at, byte)| Edit::Poke(at, byte)),
        2 => Just(Edit::CopyFromOther),
        2 => Just(Edit::SwapWithOther),
        1 => (0..crate::WORDS, any::<u32>()).prop_map(|(word, value)| Edit::SetWord(word, value)),
        1 => any::<u32>().prop_map(Edit::SetFlow),
        1 => (any::<u64>(), any::<bool>()).prop_map(|(at, kernel)| Edit::SetArrival(at, kernel)),
        1 => any::<u8>().prop_map(Edit::SetMark),
        3 => prop_oneof![Just(0), any::<u32>()].prop_map(Edit::SetMissing),
    ]
}

/// A chunk's whole packet memory, the frame's position in it, and the metadata that edits of bytes must not change.
#[derive(Clone, Debug)]
struct Model {
    memory: Vec<u8>,
    start: usize,
    len: usize,
    notes: Notes,
    /// Memory that the number of missing bytes occupies, after the frame (`true`) or before it.
    taken: Option<(bool, Vec<u8>)>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Notes {
    words: [u32; crate::WORDS],
    flow: u32,
    arrival: Ticks,
    clock: ArrivalClock,
    mark: u8,
    missing: u32,
}

/// Returns a fresh packet with zeroed memory, and its model.
fn fresh(pool: &Pool) -> (Packet, Model) {
    let mut packet = pool.take().expect("one");
    let (headroom, tailroom) = (packet.headroom(), packet.tailroom());
    let room = packet
        .prepend(headroom)
        .map(|bytes| bytes.len())
        .and_then(|_| packet.append(tailroom).map(|bytes| bytes.len()));
    assert_eq!(room, Some(tailroom));
    packet.data_mut().fill(0);
    assert!(packet.strip(headroom));
    packet.truncate(0);
    let memory = vec![0; headroom + tailroom];
    let model = Model { memory, start: headroom, len: 0, notes: Notes::default(), taken: None };
    (packet, model)
}

impl Model {
    fn frame(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }

    fn tailroom(&self) -> usize {
        self.memory.len() - self.start - self.len
    }

    /// The memory of the number stays reserved.
    fn make_whole(&mut self) {
        (self.notes.missing, self.taken) = (0, None);
    }

    fn set_missing(&mut self, bytes: u32) -> bool {
        if bytes == 0 {
            self.make_whole();
            return true;
        }
        match self.taken.take() {
            Some((true, memory)) => self.memory.extend(memory),
            Some((false, memory)) => {
                self.start += memory.len();
                self.memory.splice(..0, memory);
            }
            None => {}
        }
        self.notes.missing = 0;
        let number = bytes.to_ne_bytes();
        if self.tailroom() >= 4 {
            self.memory.truncate(self.memory.len() - 4);
            self.taken = Some((true, number.to_vec()));
        } else if self.start >= 64 {
            let mut memory: Vec<_> = self.memory.drain(..64).collect();
            self.start -= 64;
            memory[..4].copy_from_slice(&number);
            self.taken = Some((false, memory));
        } else {
            return false;
        }
        self.notes.missing = bytes;
        true
    }
}

fn apply(edit: &Edit, packet: &mut Packet, model: &mut Model, other: (&Packet, &Model)) {
    match *edit {
        Edit::Prepend(n) => {
            let grown = packet.prepend(n);
            assert_eq!(grown.as_ref().map(|bytes| bytes.len()), (n <= model.start).then_some(n));
            if let Some(bytes) = grown {
                (model.start, model.len) = (model.start - n, model.len + n);
                assert_eq!(bytes, &model.frame()[..n], "the old bytes");
            }
        }
        Edit::Strip(n) => {
            let fits = n <= model.len;
            assert_eq!(packet.strip(n), fits);
            if fits {
                (model.start, model.len) = (model.start + n, model.len - n);
            }
        }
        Edit::Append(n) => {
            let grown = packet.append(n);
            assert_eq!(grown.as_ref().map(|bytes| bytes.len()), (n <= model.tailroom()).then_some(n));
            if let Some(bytes) = grown {
                model.len += n;
                let old = model.len - n;
                assert_eq!(bytes, &model.frame()[old..], "the old bytes");
            }
        }
        Edit::Truncate(n) => {
            packet.truncate(n);
            if n < model.len {
                model.make_whole();
                model.len = n;
            }
        }
        Edit::Write(ref bytes) => {
            let fits = model.start + bytes.len() <= model.memory.len();
            assert_eq!(packet.write(bytes), fits);
            if fits {
                model.make_whole();
                model.len = bytes.len();
                model.frame().copy_from_slice(bytes);
            }
        }
        Edit::Poke(at, byte) => {
            let at = at % model.len.max(1);
            if let (Some(theirs), Some(ours)) = (packet.data_mut().get_mut(at), model.frame().get_mut(at)) {
                (*theirs, *ours) = (byte, byte);
            }
        }
        Edit::CopyFromOther => {
            let (source, source_model) = other;
            let fits = model.start + source_model.len <= model.memory.len();
            assert_eq!(packet.copy_from(source), fits);
            if fits {
                model.taken = None;
                model.len = source_model.len;
                model.frame().copy_from_slice(source_model.clone().frame());
                model.notes = Notes { missing: 0, ..source_model.notes.clone() };
                model.set_missing(source_model.notes.missing);
            }
        }
        Edit::SwapWithOther => {}
        Edit::SetWord(index, value) => {
            packet.set_word(Word::new(index).expect("below the number of words"), value);
            model.notes.words[index] = value;
        }
        Edit::SetFlow(flow) => {
            packet.set_flow(flow);
            model.notes.flow = flow;
        }
        Edit::SetArrival(at, kernel) => {
            let clock = if kernel { ArrivalClock::Kernel } else { ArrivalClock::Intended };
            packet.set_arrival(Ticks(at), clock);
            (model.notes.arrival, model.notes.clock) = (Ticks(at), clock);
            model.make_whole();
        }
        Edit::SetMissing(bytes) => {
            assert_eq!(packet.set_missing(bytes), model.set_missing(bytes));
        }
        Edit::SetMark(mark) => {
            packet.set_mark(mark);
            model.notes.mark = mark;
        }
    }
}

fn compare(packet: &Packet, model: &mut Model) {
    assert_eq!(packet.data(), model.frame());
    assert_eq!((packet.len(), packet.headroom(), packet.tailroom()), (model.len, model.start, model.tailroom()));
    let words = std::array::from_fn(|index| packet.word(Word::new(index).expect("below the number of words")));
    let notes = Notes {
        words,
        flow: packet.flow(),
        arrival: packet.arrival(),
        clock: packet.arrival_clock(),
        mark: packet.mark(),
        missing: packet.missing(),
    };
    assert_eq!(notes, model.notes);
}

fn native(headroom: usize, frame: usize) -> Pool {
    Pool::new(PoolOptions { chunks: 4, frame, headroom, order: Order::Lifo, populated: true }).expect("a small pool")
}

proptest! {
    #![proptest_config(cases(512))]

    #[test]
    fn edits_do_what_they_do_to_plain_bytes(edits in vec(edit(), 1..60), headroom in 0usize..160, drivers: [bool; 2]) {
        let memory = DriverMemory::new(4, headroom, FRAME + 40);
        let (driver, native) = (memory.pool(), native(headroom, FRAME));
        let [mut one, mut two] = drivers.map(|driver_has_it| fresh(if driver_has_it { &driver } else { &native }));
        for edit in &edits {
            if let Edit::SwapWithOther = edit {
                std::mem::swap(&mut one, &mut two);
            }
            apply(edit, &mut one.0, &mut one.1, (&two.0, &two.1));
            compare(&one.0, &mut one.1);
            compare(&two.0, &mut two.1);
        }
        drop((one, two));
        driver.flush();
        prop_assert_eq!((driver.out(), memory.home(), memory.wrong()), (0, 4, 0));
    }
}

#[test]
fn the_largest_chunk_can_be_filled_at_both_ends() {
    for headroom in [0, 1, 65_535 - 64 - 9_216] {
        let pool = native(headroom, 9_216);
        let mut packet = pool.take().expect("one");
        assert_eq!((packet.headroom(), packet.tailroom()), (headroom, 9_216));
        assert!(packet.append(9_217).is_none() && packet.prepend(headroom + 1).is_none());
        assert!(packet.append(9_216).is_some() && packet.prepend(headroom).is_some());
        assert_eq!((packet.len(), packet.headroom(), packet.tailroom()), (headroom + 9_216, 0, 0));
    }
}

/// A frame that fills its chunk leaves no room after it for the number of missing bytes.
#[test]
fn a_cut_frame_that_fills_its_chunk_keeps_its_original_length() {
    for (headroom, kept) in [(0, false), (63, false), (64, true), (128, true)] {
        let pool = native(headroom, 64);
        let mut packet = pool.take().expect("one");
        assert!(packet.write(&[7; 64]));
        assert_eq!(packet.set_missing(1_436), kept);
        assert_eq!(packet.original_len(), if kept { 1_500 } else { 64 });
        assert_eq!((packet.data(), packet.tailroom()), (&[7; 64][..], 0));
        packet.prepend(packet.headroom()).expect("headroom").fill(9);
        assert_eq!(packet.missing(), if kept { 1_436 } else { 0 });
        assert!(packet.set_missing(0));
        assert_eq!(packet.headroom(), 0);
    }
}

/// Regression test: after padding was removed, bytes still counted as missing.
#[test]
fn a_shortened_frame_has_no_missing_bytes() {
    let mut packet = native(128, 64).take().expect("one");
    assert!(packet.write(&[7; 60]) && packet.set_missing(4));
    packet.truncate(60);
    assert_eq!(packet.original_len(), 64);
    packet.truncate(46);
    assert_eq!((packet.original_len(), packet.missing(), packet.tailroom()), (46, 0, 14));
}

/// Regression test: the headroom extended down to the metadata, over a driver's bytes before packet memory.
#[test]
fn headroom_ends_where_a_drivers_own_bytes_begin() {
    let memory = DriverMemory::new(1, 32, 64);
    let pool = memory.pool();
    let mut packet = pool.take().expect("one");
    assert_eq!(packet.headroom(), 32);
    assert!(packet.prepend(33).is_none());
    packet.prepend(32).expect("all of the headroom").fill(0);
    drop(packet);
    pool.flush();
    assert_eq!((memory.home(), memory.wrong()), (1, 0));
}

/// Regression test: the value for "no transport layer" was moved like an offset, out of range.
#[test]
fn a_packet_known_to_have_no_transport_layer_can_be_copied() {
    let pool = native(64, 128);
    let (mut from, mut to) = (pool.take().expect("one"), pool.take().expect("two"));
    assert!(from.write(&[0; 60]) && from.strip(3));
    assert_eq!(from.transport(), None);
    assert!(to.copy_from(&from));
    assert_eq!(to.data(), from.data());
    assert_eq!((to.transport(), to.network()), (None, from.network()));
}

/// Regression test: the transport offset of an earlier, longer frame was moved like a valid offset, out of range.
#[test]
fn a_packet_with_unknown_transport_layer_can_be_copied() {
    let pool = native(60_000, 4_096);
    let (mut from, mut to) = (pool.take().expect("one"), pool.take().expect("two"));
    // Eight extension headers of 2 048 bytes each, before UDP.
    let mut frame = vec![0; 14 + 40];
    (frame[12], frame[13], frame[14], frame[20]) = (0x86, 0xdd, 0x60, 60);
    for next in [60, 60, 60, 60, 60, 60, 60, 17] {
        frame.extend([next, 255]);
        frame.resize(frame.len() + 2_046, 0);
    }
    frame.resize(frame.len() + 8, 0);
    let payload = frame.len() as u16 - 54;
    frame[18..20].copy_from_slice(&payload.to_be_bytes());
    from.prepend(60_000).expect("headroom");
    assert!(from.write(&frame));
    assert_eq!(from.transport(), Some((17, 54 + 8 * 2_048)));
    from.truncate(60);
    assert!(to.copy_from(&from));
    assert_eq!(to.transport(), None);
}
