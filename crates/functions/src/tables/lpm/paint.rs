//! Writing the compressed table: routes are painted over what is there, shorter ones first.
//!
//! One procedure builds and updates. It takes routes in [`Prefix`] order, so a covering prefix comes before what it
//! covers and is painted over by it. A full build paints all routes on an empty table; an update paints the changed
//! prefix (with the covering value if it was removed) and everything below it. What lies outside the first prefix is
//! neither read nor written, apart from the rows on the way down to it.

use super::fib::{Entry, Fib, ROOT_BITS, ROOT_ROW_BITS, Row, Tail};
use super::prefix::{Address, Prefix};

/// Where a row is.
#[derive(Clone, Copy)]
enum Place {
    Root,
    Node(u32),
}

impl<A: Address> Fib<A> {
    /// Paints `routes`: prefixes of at least 1 bit with the values to store, in order.
    pub(super) fn paint(&mut self, routes: &[(Prefix<A>, u32)]) {
        self.paint_rows(Place::Root, 0, routes);
    }

    /// Paints routes on the rows of the root or of the node whose slots start after `depth` bits.
    fn paint_rows(&mut self, place: Place, depth: u32, routes: &[(Prefix<A>, u32)]) {
        let (row_bits, slot_bits) = match place {
            Place::Root => (ROOT_ROW_BITS, ROOT_BITS),
            Place::Node(_) => (depth + 2, depth + 8),
        };
        let row_of = |prefix: Prefix<A>| match place {
            Place::Root => (prefix.first().first_word() >> (32 - ROOT_ROW_BITS)) as usize,
            Place::Node(_) => usize::from(prefix.first().octet_after(depth) >> 6),
        };
        let mut rest = routes;
        while let Some(&(prefix, value)) = rest.first() {
            let row = row_of(prefix);
            if prefix.length() <= row_bits {
                for row in row..row + (1 << (row_bits - prefix.length())) {
                    self.repaint_row(place, row, value);
                }
                rest = &rest[1..];
            } else {
                let count = rest.iter().take_while(|&&(prefix, _)| row_of(prefix) == row).count();
                self.paint_row(place, row, slot_bits, &rest[..count]);
                rest = &rest[count..];
            }
        }
    }

    /// Makes a row uniform.
    fn repaint_row(&mut self, place: Place, index: usize, value: u32) {
        let row = self.row(place, index);
        for run in 0..row.runs() as u32 {
            self.release(self.runs.get(row.base + run));
        }
        self.runs.free(row.base, row.runs());
        let base = self.runs.allocate(&[value]);
        self.set_row(place, index, Row { starts: 0, base });
    }

    /// Paints routes that are longer than a row on the 64 slots of one.
    fn paint_row(&mut self, place: Place, index: usize, slot_bits: u32, routes: &[(Prefix<A>, u32)]) {
        let row = self.row(place, index);
        let mut slots = self.slots(row);
        let slot_of = |prefix: Prefix<A>| usize::from(prefix.first().octet_after(slot_bits - 8) & 63);
        let mut rest = routes;
        while let Some(&(prefix, value)) = rest.first() {
            let slot = slot_of(prefix);
            if prefix.length() <= slot_bits {
                for entry in &mut slots[slot..slot + (1 << (slot_bits - prefix.length()))] {
                    self.release(*entry);
                    *entry = value;
                }
                rest = &rest[1..];
            } else {
                let count = rest.iter().take_while(|&&(prefix, _)| slot_of(prefix) == slot).count();
                slots[slot] = self.paint_below(slots[slot], slot_bits, &rest[..count]);
                rest = &rest[count..];
            }
        }
        self.compress(place, index, row, &slots);
    }

    /// Paints routes that are longer than a slot below it, and returns the slot's new entry.
    fn paint_below(&mut self, entry: u32, depth: u32, mut routes: &[(Prefix<A>, u32)]) -> u32 {
        let node = match Entry::decode(entry) {
            Entry::Value(cover) => {
                // What paints the colour that is there paints nothing.
                while routes.first().is_some_and(|&(_, value)| value == cover) {
                    routes = &routes[1..];
                }
                match *routes {
                    [] => return cover,
                    [(prefix, inside)] => {
                        return self.new_tail(Tail { prefix, inside, outside: cover });
                    }
                    _ => self.new_node(cover),
                }
            }
            Entry::Tail(number) => {
                let tail = self.tails[number as usize];
                self.free_tails.push(number);
                if routes.first().is_some_and(|&(prefix, _)| prefix.covers(tail.prefix)) {
                    // All of the tail is painted over: if it still exists it is among the routes.
                    return self.paint_below(tail.outside, depth, routes);
                }
                let node = self.new_node(tail.outside);
                self.paint_rows(Place::Node(node), depth, &[(tail.prefix, tail.inside)]);
                node
            }
            Entry::Node(node) => node,
        };
        self.paint_rows(Place::Node(node), depth, routes);
        self.collapse(node)
    }

    /// The entry for a node: the node, or its value if it has become uniform.
    fn collapse(&mut self, node: u32) -> u32 {
        let rows = self.nodes[node as usize].map(Row::unpack);
        let value = self.runs.get(rows[0].base);
        // No two slots point to the same node or tail, so that rows with equal entries hold a value.
        if rows.iter().any(|row| row.starts != 0 || self.runs.get(row.base) != value) {
            return Entry::Node(node).encode();
        }
        self.release(Entry::Node(node).encode());
        value
    }

    fn new_node(&mut self, value: u32) -> u32 {
        let rows = [(); 4].map(|()| Row { starts: 0, base: self.runs.allocate(&[value]) }.pack());
        if let Some(node) = self.free_nodes.pop() {
            self.nodes[node as usize] = rows;
            return node;
        }
        self.nodes.push(rows);
        (self.nodes.len() - 1) as u32
    }

    fn new_tail(&mut self, tail: Tail<A>) -> u32 {
        let number = if let Some(number) = self.free_tails.pop() {
            self.tails[number as usize] = tail;
            number
        } else {
            self.tails.push(tail);
            (self.tails.len() - 1) as u32
        };
        Entry::Tail(number).encode()
    }

    /// Frees what an entry points to.
    fn release(&mut self, entry: u32) {
        match Entry::decode(entry) {
            Entry::Value(_) => {}
            Entry::Tail(tail) => self.free_tails.push(tail),
            Entry::Node(node) => {
                for row in 0..4 {
                    self.repaint_row(Place::Node(node), row, 0);
                }
                self.free_nodes.push(node);
            }
        }
    }

    fn row(&self, place: Place, index: usize) -> Row {
        Row::unpack(match place {
            Place::Root => self.root[index],
            Place::Node(node) => self.nodes[node as usize][index],
        })
    }

    fn set_row(&mut self, place: Place, index: usize, row: Row) {
        match place {
            Place::Root => self.root[index] = row.pack(),
            Place::Node(node) => self.nodes[node as usize][index] = row.pack(),
        }
    }

    /// A row's 64 entries.
    fn slots(&self, row: Row) -> [u32; 64] {
        let mut slots = [0; 64];
        let mut starts = row.starts;
        let mut start = 0;
        for run in 0..row.runs() as u32 {
            // 64 after the last run's start.
            let end = starts.trailing_zeros() as usize;
            starts &= starts.wrapping_sub(1);
            slots[start..end].fill(self.runs.get(row.base + run));
            start = end;
        }
        slots
    }

    /// Stores 64 entries in a row that was `old`.
    fn compress(&mut self, place: Place, index: usize, old: Row, slots: &[u32; 64]) {
        let mut runs = [slots[0]; 64];
        let mut count = 1;
        let mut starts = 0u64;
        for slot in 1..64 {
            if slots[slot] != slots[slot - 1] {
                starts |= 1 << slot;
                runs[count] = slots[slot];
                count += 1;
            }
        }
        let runs = &runs[..count];
        if starts != old.starts || runs != self.runs.block(old.base, count) {
            self.runs.free(old.base, old.runs());
            let base = self.runs.allocate(runs);
            self.set_row(place, index, Row { starts, base });
        }
    }
}
