//! Random operations on several pools, batches and loose packets from two threads, against a model that counts.
//!
//! Every packet is stamped in its metadata and at both ends of its packet memory, so that two packets that share memory
//! are detected. The model knows where each packet is. Of caches, it only knows which threads may have one.

use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, Weak, mpsc};
use std::thread::{self, JoinHandle};

use forebay_units::Ticks;
use proptest::collection::vec;
use proptest::prelude::*;

use super::super::{Inner, Order, Pool, PoolOptions};
use crate::testing::cases;
use crate::testing::driver_memory::DriverMemory;
use crate::{ArrivalClock, Batch, Packet, WORDS, Word};

/// The thread on which an operation runs.
#[derive(Clone, Copy, Debug)]
enum Runner {
    Here,
    Other,
}

#[derive(Clone, Copy, Debug)]
enum Memory {
    Native(Order),
    Driver,
}

/// Numbers select one of the existing pools, batches or packets.
#[derive(Clone, Debug)]
enum Operation {
    Open(Memory, usize),
    Close(usize, Runner),
    Take(usize, Runner),
    Fill(usize, usize, usize, Runner),
    Push(usize, usize),
    Pop(usize),
    Append(usize, usize),
    /// The closure keeps each packet, and panics at the packet with the given index.
    Drain(usize, Option<usize>, Runner),
    Clear(usize, Runner),
    DropBatch(usize, Runner),
    DropPacket(usize, Runner),
    Flush(usize, Runner),
    EndThread,
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let runner = || prop_oneof![Just(Runner::Here), Just(Runner::Other)];
    let memory =
        prop_oneof![Just(Memory::Native(Order::Lifo)), Just(Memory::Native(Order::Fifo)), Just(Memory::Driver)];
    let (many, batch) = (0usize..1_000, 0..BATCHES.len());
    prop_oneof![
        2 => (memory, prop_oneof![1usize..4, 4usize..40]).prop_map(|(memory, chunks)| Open(memory, chunks)),
        1 => (many.clone(), runner()).prop_map(|(pool, runner)| Close(pool, runner)),
        8 => (many.clone(), runner()).prop_map(|(pool, runner)| Take(pool, runner)),
        4 => (many.clone(), batch.clone(), 0usize..40, runner())
            .prop_map(|(pool, batch, n, runner)| Fill(pool, batch, n, runner)),
        4 => (batch.clone(), many.clone()).prop_map(|(batch, packet)| Push(batch, packet)),
        2 => batch.clone().prop_map(Pop),
        2 => (batch.clone(), batch.clone()).prop_map(|(from, to)| Append(from, to)),
        2 => (batch.clone(), proptest::option::of(0usize..8), runner())
            .prop_map(|(batch, panic, runner)| Drain(batch, panic, runner)),
        2 => (batch.clone(), runner()).prop_map(|(batch, runner)| Clear(batch, runner)),
        1 => (batch, runner()).prop_map(|(batch, runner)| DropBatch(batch, runner)),
        6 => (many.clone(), runner()).prop_map(|(packet, runner)| DropPacket(packet, runner)),
        1 => (many, runner()).prop_map(|(pool, runner)| Flush(pool, runner)),
        1 => Just(EndThread),
    ]
}

/// The batches' capacities; 0 is a batch without room.
const BATCHES: [usize; 4] = [0, 3, 16, 64];

/// A thread that runs the jobs sent to it.
struct OtherThread(mpsc::Sender<Box<dyn FnOnce() + Send>>, JoinHandle<()>);

impl OtherThread {
    fn start() -> Self {
        let (jobs, inbox) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        Self(jobs, thread::spawn(move || inbox.into_iter().for_each(|job| job())))
    }

    fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        let (reply, result) = mpsc::channel();
        let job = move || reply.send(job()).expect("the test waits for it");
        self.0.send(Box::new(job)).expect("the thread waits for jobs");
        result.recv().expect("the job does not panic")
    }

    fn end(self) {
        drop(self.0);
        self.1.join().expect("no job panics");
    }
}

/// The model's record of a pool.
struct Account {
    pool: Option<Arc<Pool>>,
    inner: Weak<Inner>,
    memory: Option<Arc<DriverMemory>>,
    capacity: usize,
    /// Number of packets outside the pool.
    live: usize,
    exhausted: u64,
    /// Whether the test's thread and the other thread may have a cache of the pool.
    cached: [bool; 2],
}

/// The model's record of a packet: its stamp, and the index of its pool's account.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Tag {
    stamp: u64,
    account: usize,
}

struct World {
    accounts: Vec<Account>,
    batches: Vec<(Batch, Vec<Tag>)>,
    loose: Vec<(Packet, Tag)>,
    other_thread: OtherThread,
    stamps: u64,
}

/// Checks that a packet is fresh, and stamps its metadata and both ends of its memory.
fn stamp(packet: &mut Packet, stamp: u64) {
    assert_eq!((packet.len(), packet.arrival(), packet.flow(), packet.mark()), (0, Ticks::ZERO, 0, 0));
    assert_eq!(packet.arrival_clock(), ArrivalClock::Poll);
    assert!((0..WORDS).filter_map(Word::new).all(|word| packet.word(word) == 0));
    let (headroom, tailroom) = (packet.headroom(), packet.tailroom());
    assert!(packet.prepend(headroom).is_some() && packet.append(tailroom).is_some());
    packet.set_arrival(Ticks(stamp), ArrivalClock::Intended);
    let data = packet.data_mut();
    let last = data.len() - 8;
    data[..8].copy_from_slice(&stamp.to_ne_bytes());
    data[last..].copy_from_slice(&stamp.to_ne_bytes());
}

fn verify(packet: &Packet, tag: Tag) {
    let (data, stamp) = (packet.data(), tag.stamp.to_ne_bytes());
    assert_eq!(packet.arrival(), Ticks(tag.stamp));
    assert!(data.starts_with(&stamp) && data.ends_with(&stamp), "{tag:?}: another packet's bytes");
}

impl World {
    fn new() -> Self {
        let batches = BATCHES.iter().map(|&room| if room == 0 { Batch::none() } else { Batch::with_capacity(room) });
        Self {
            accounts: vec![],
            batches: batches.map(|batch| (batch, vec![])).collect(),
            loose: vec![],
            other_thread: OtherThread::start(),
            stamps: 0,
        }
    }

    fn on<R: Send + 'static>(&self, runner: Runner, job: impl FnOnce() -> R + Send + 'static) -> R {
        match runner {
            Runner::Here => job(),
            Runner::Other => self.other_thread.run(job),
        }
    }

    /// Returns one of the open pools.
    fn choose(&self, number: usize) -> Option<(usize, Arc<Pool>)> {
        let open: Vec<_> = (0..self.accounts.len()).filter(|&index| self.accounts[index].pool.is_some()).collect();
        let index = *open.get(number % open.len().max(1))?;
        Some((index, Arc::clone(self.accounts[index].pool.as_ref()?)))
    }

    fn tag(&mut self, account: usize) -> Tag {
        self.stamps += 1;
        self.accounts[account].live += 1;
        Tag { stamp: self.stamps, account }
    }

    /// Records that `runner` requested `wanted` packets and got `got`.
    fn requested(&mut self, index: usize, wanted: usize, got: usize, runner: Runner) {
        let account = &mut self.accounts[index];
        account.cached[runner as usize] = true;
        account.exhausted += (wanted - got) as u64;
        let pool = account.pool.as_ref().expect("requests go to open pools only");
        let remaining = account.capacity - account.live;
        assert!(got <= remaining, "{got} more of {account:?}", account = (account.capacity, account.live));
        if got < wanted {
            assert_eq!(pool.out(), account.capacity, "no chunk is in the backing");
        }
        if !account.cached[1 - runner as usize] {
            assert_eq!(got, wanted.min(remaining), "the other thread has no cache");
        }
    }

    /// Records that `runner` returned these packets' chunks.
    fn returned(&mut self, tags: &[Tag], runner: Runner) {
        for tag in tags {
            let account = &mut self.accounts[tag.account];
            account.live -= 1;
            account.cached[runner as usize] |= account.pool.is_some();
        }
    }

    fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Open(memory, capacity) => self.open(memory, capacity),
            Operation::Close(number, runner) => {
                let Some((index, pool)) = self.choose(number) else {
                    return;
                };
                self.accounts[index].pool = None;
                self.on(runner, move || drop(pool));
                self.accounts[index].cached[runner as usize] = false;
            }
            Operation::Take(number, runner) => {
                let Some((index, pool)) = self.choose(number) else {
                    return;
                };
                let packet = self.on(runner, move || pool.take());
                self.requested(index, 1, usize::from(packet.is_some()), runner);
                if let Some(mut packet) = packet {
                    let tag = self.tag(index);
                    stamp(&mut packet, tag.stamp);
                    self.loose.push((packet, tag));
                }
            }
            Operation::Fill(number, batch, n, runner) => {
                let Some((index, pool)) = self.choose(number) else {
                    return;
                };
                let mut taken = std::mem::replace(&mut self.batches[batch].0, Batch::none());
                let (wanted, before) = (n.min(taken.room()), taken.len());
                let (taken, got) = self.on(runner, move || {
                    let got = pool.fill(&mut taken, n);
                    (taken, got)
                });
                assert_eq!(taken.len(), before + got);
                self.batches[batch].0 = taken;
                self.requested(index, wanted, got, runner);
                for position in before..before + got {
                    let tag = self.tag(index);
                    let (packets, tags) = &mut self.batches[batch];
                    stamp(&mut packets[position], tag.stamp);
                    tags.push(tag);
                }
            }
            Operation::Push(batch, number) => {
                if self.loose.is_empty() {
                    return;
                }
                let (packet, tag) = self.loose.swap_remove(number % self.loose.len());
                let (packets, tags) = &mut self.batches[batch];
                let full = tags.len() == BATCHES[batch];
                match packets.push(packet) {
                    Ok(()) => tags.push(tag),
                    Err(packet) => self.loose.push((packet, tag)),
                }
                assert_eq!(self.batches[batch].0.room() + self.batches[batch].1.len(), BATCHES[batch]);
                assert_eq!(full, self.loose.last().is_some_and(|(_, last)| *last == tag));
            }
            Operation::Pop(batch) => {
                let (packets, tags) = &mut self.batches[batch];
                let popped = packets.pop();
                assert_eq!(popped.is_some(), !tags.is_empty());
                self.loose.extend(popped.into_iter().zip(tags.pop()));
            }
            Operation::Append(from, to) => {
                if let Ok([(source, source_tags), (target, target_tags)]) = self.batches.get_disjoint_mut([from, to]) {
                    let room = target.room();
                    let moved = target.append(source);
                    assert_eq!(moved, room.min(source_tags.len()));
                    target_tags.extend(source_tags.drain(..moved));
                }
            }
            Operation::Drain(batch, panic_at, runner) => self.drain(batch, panic_at, runner),
            Operation::Clear(batch, runner) => {
                let (mut taken, tags) = std::mem::replace(&mut self.batches[batch], (Batch::none(), vec![]));
                self.batches[batch].0 = self.on(runner, move || {
                    taken.clear();
                    taken
                });
                self.returned(&tags, runner);
            }
            Operation::DropBatch(batch, runner) => {
                let (taken, tags) =
                    std::mem::replace(&mut self.batches[batch], (Batch::with_capacity(BATCHES[batch]), vec![]));
                if BATCHES[batch] == 0 {
                    self.batches[batch].0 = Batch::none();
                }
                self.on(runner, move || drop(taken));
                self.returned(&tags, runner);
            }
            Operation::DropPacket(number, runner) => {
                if self.loose.is_empty() {
                    return;
                }
                let (packet, tag) = self.loose.swap_remove(number % self.loose.len());
                self.on(runner, move || drop(packet));
                self.returned(&[tag], runner);
            }
            Operation::Flush(number, runner) => {
                let Some((index, pool)) = self.choose(number) else {
                    return;
                };
                self.on(runner, move || pool.flush());
                self.accounts[index].cached[runner as usize] = false;
            }
            Operation::EndThread => {
                std::mem::replace(&mut self.other_thread, OtherThread::start()).end();
                self.accounts.iter_mut().for_each(|account| account.cached[Runner::Other as usize] = false);
            }
        }
    }

    fn open(&mut self, memory: Memory, capacity: usize) {
        if self.accounts.iter().filter(|account| account.inner.strong_count() > 0).count() > 8 {
            return;
        }
        let (pool, memory) = match memory {
            Memory::Native(order) => {
                let options = PoolOptions { chunks: capacity, frame: 64, headroom: 16, order, populated: false };
                (Pool::new(options).expect("a small pool"), None)
            }
            Memory::Driver => {
                let memory = DriverMemory::new(capacity, 16, 64);
                (memory.pool(), Some(memory))
            }
        };
        assert_eq!((pool.capacity(), pool.out(), pool.frame_limit()), (capacity, 0, 64));
        let inner = Arc::downgrade(&pool.inner);
        self.accounts.push(Account {
            pool: Some(Arc::new(pool)),
            inner,
            memory,
            capacity,
            live: 0,
            exhausted: 0,
            cached: [false; 2],
        });
    }

    fn drain(&mut self, batch: usize, panic_at: Option<usize>, runner: Runner) {
        let (mut taken, tags) = std::mem::replace(&mut self.batches[batch], (Batch::none(), vec![]));
        let (taken, kept, panicked) = self.on(runner, move || {
            let mut kept = vec![];
            let drained = panic::catch_unwind(AssertUnwindSafe(|| {
                taken.drain_each(|index, packet| {
                    assert_eq!(index, kept.len());
                    if panic_at == Some(index) {
                        // This avoids the message that `panic!` prints.
                        panic::resume_unwind(Box::new("on purpose"));
                    }
                    kept.push(packet);
                });
            }));
            (taken, kept, drained.is_err())
        });
        assert_eq!((taken.len(), taken.capacity()), (0, BATCHES[batch]));
        self.batches[batch].0 = taken;
        let stop = panic_at.filter(|&index| index < tags.len());
        assert_eq!((panicked, kept.len()), (stop.is_some(), stop.unwrap_or(tags.len())));
        let (handed, rest) = tags.split_at(kept.len());
        self.loose.extend(kept.into_iter().zip(handed.iter().copied()));
        self.returned(rest, runner);
    }

    fn check(&self) {
        self.loose.iter().for_each(|(packet, tag)| verify(packet, *tag));
        for (packets, tags) in &self.batches {
            assert_eq!(packets.len(), tags.len());
            packets.iter().zip(tags).for_each(|(packet, tag)| verify(packet, *tag));
        }
        for account in &self.accounts {
            let settled = account.cached == [false; 2];
            match &account.pool {
                Some(pool) => {
                    assert_eq!(pool.exhausted(), account.exhausted);
                    assert!((account.live..=account.capacity).contains(&pool.out()));
                    assert!(!settled || pool.out() == account.live, "{} out, {} live", pool.out(), account.live);
                }
                None if account.live > 0 => {
                    assert_ne!(account.inner.strong_count(), 0, "packets keep their memory")
                }
                None => assert!(!settled || account.inner.strong_count() == 0, "a closed pool is released"),
            }
            if let Some(memory) = &account.memory {
                assert_eq!(memory.wrong(), 0);
                assert!(!settled || memory.home() == account.capacity - account.live);
            }
        }
    }

    /// Drops everything and checks that all chunks are back.
    fn finish(mut self, runners: [Runner; 2]) {
        let [packets, pools] = runners;
        for batch in 0..self.batches.len() {
            self.apply(Operation::Clear(batch, packets));
        }
        while !self.loose.is_empty() {
            self.apply(Operation::DropPacket(0, packets));
        }
        while self.choose(0).is_some() {
            self.apply(Operation::Close(0, pools));
            self.check();
        }
        self.apply(Operation::EndThread);
        // Using a new pool makes this thread release the closed ones.
        drop(Pool::new(PoolOptions { chunks: 1, ..PoolOptions::default() }).expect("a small pool").take());
        self.accounts.iter_mut().for_each(|account| account.cached = [false; 2]);
        self.check();
        self.other_thread.end();
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn pools_batches_and_packets_do_what_the_model_does(
        operations in vec(operation(), 1..if cfg!(miri) { 40 } else { 120 }),
        packets_here: bool,
        pools_here: bool,
    ) {
        let runner = |here| if here { Runner::Here } else { Runner::Other };
        let mut world = World::new();
        for memory in [Memory::Native(Order::Lifo), Memory::Driver, Memory::Native(Order::Fifo)] {
            world.apply(Operation::Open(memory, 12));
        }
        for operation in operations {
            world.apply(operation);
            world.check();
        }
        world.finish([runner(packets_here), runner(pools_here)]);
    }
}
