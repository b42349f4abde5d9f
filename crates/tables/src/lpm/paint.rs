//! Writes the compressed table: routes are painted over its present content, shorter ones first.
//!
//! The same procedure builds and updates a table. It takes routes in [`Prefix`] order. So a covering prefix comes
//! before the prefixes that it covers, and these are painted over it. A full build paints all routes on an empty table.
//! An update paints the changed prefix (with the covering value if it was removed) and all routes below it. Outside the
//! first prefix, only the rows on the path to it are read and written.

use super::fib::{Entry, Fib, ROOT_BITS, ROOT_ROW_BITS, Row, Tail};
use super::prefix::{Address, Prefix};

/// The array that holds a row: the root or a node.
#[derive(Clone, Copy)]
enum RowArray {
    Root,
    Node(u32),
}

impl<A: Address> Fib<A> {
    /// Paints `routes`: prefixes of at least 1 bit with the values to store, in [`Prefix`] order.
    pub(super) fn paint(&mut self, routes: &[(Prefix<A>, u32)]) {
        self.paint_rows(RowArray::Root, 0, routes);
    }

    /// Paints routes on the rows of the root, or of the node whose slots start after `depth` bits.
    fn paint_rows(&mut self, array: RowArray, depth: u32, routes: &[(Prefix<A>, u32)]) {
        let (row_bits, slot_bits) = match array {
            RowArray::Root => (ROOT_ROW_BITS, ROOT_BITS),
            RowArray::Node(_) => (depth + 2, depth + 8),
        };
        let row_of = |prefix: Prefix<A>| match array {
            RowArray::Root => (prefix.first().first_word() >> (32 - ROOT_ROW_BITS)) as usize,
            RowArray::Node(_) => usize::from(prefix.first().octet_after(depth) >> 6),
        };
        let mut rest = routes;
        while let Some(&(prefix, value)) = rest.first() {
            let row = row_of(prefix);
            if prefix.length() <= row_bits {
                for row in row..row + (1 << (row_bits - prefix.length())) {
                    self.repaint_row(array, row, value);
                }
                rest = &rest[1..];
            } else {
                let count = rest.iter().take_while(|&&(prefix, _)| row_of(prefix) == row).count();
                self.paint_row(array, row, slot_bits, &rest[..count]);
                rest = &rest[count..];
            }
        }
    }

    /// Sets all slots of a row to one value, and frees the nodes and tails to which they pointed.
    fn repaint_row(&mut self, array: RowArray, index: usize, value: u32) {
        let row = self.row(array, index);
        for run in 0..row.runs() as u32 {
            self.release(self.runs.get(row.base + run));
        }
        self.runs.free(row.base, row.runs());
        let base = self.runs.allocate(&[value]);
        self.set_row(array, index, Row { starts: 0, base });
    }

    /// Paints routes on the 64 slots of a row. All routes lie in the row and are longer than the row's prefix. A slot's
    /// prefix has `slot_bits` bits.
    fn paint_row(&mut self, array: RowArray, index: usize, slot_bits: u32, routes: &[(Prefix<A>, u32)]) {
        let row = self.row(array, index);
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
        self.compress(array, index, row, &slots);
    }

    /// Paints routes below a slot whose present entry is `entry`, and returns the slot's new entry. All routes lie in
    /// the slot and are longer than the slot's prefix, which has `depth` bits.
    fn paint_below(&mut self, entry: u32, depth: u32, mut routes: &[(Prefix<A>, u32)]) -> u32 {
        let node = match Entry::decode(entry) {
            Entry::Value(cover) => {
                // Painting the value that is already there changes nothing.
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
                    // The first route paints over the whole tail. If the tail's prefix still exists, it is among the
                    // routes.
                    return self.paint_below(tail.outside, depth, routes);
                }
                let node = self.new_node(tail.outside);
                self.paint_rows(RowArray::Node(node), depth, &[(tail.prefix, tail.inside)]);
                node
            }
            Entry::Node(node) => node,
        };
        self.paint_rows(RowArray::Node(node), depth, routes);
        self.collapse(node)
    }

    /// Returns the entry for a node. If all slots of the node have the same value, frees the node and returns this
    /// value.
    fn collapse(&mut self, node: u32) -> u32 {
        let rows = self.nodes[node as usize].map(Row::unpack);
        let value = self.runs.get(rows[0].base);
        // No two slots point to the same node or tail, so an entry that all slots have is a value.
        if rows.iter().any(|row| row.starts != 0 || self.runs.get(row.base) != value) {
            return Entry::Node(node).encode();
        }
        self.release(Entry::Node(node).encode());
        value
    }

    /// Creates a node whose slots all have this value, and returns its number.
    fn new_node(&mut self, value: u32) -> u32 {
        let rows = [(); 4].map(|()| Row { starts: 0, base: self.runs.allocate(&[value]) }.pack());
        if let Some(node) = self.free_nodes.pop() {
            self.nodes[node as usize] = rows;
            return node;
        }
        self.nodes.push(rows);
        (self.nodes.len() - 1) as u32
    }

    /// Stores a tail and returns the entry that points to it.
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

    /// Frees the node or the tail that an entry points to.
    fn release(&mut self, entry: u32) {
        match Entry::decode(entry) {
            Entry::Value(_) => {}
            Entry::Tail(tail) => self.free_tails.push(tail),
            Entry::Node(node) => {
                for row in 0..4 {
                    self.repaint_row(RowArray::Node(node), row, 0);
                }
                self.free_nodes.push(node);
            }
        }
    }

    fn row(&self, array: RowArray, index: usize) -> Row {
        Row::unpack(match array {
            RowArray::Root => self.root[index],
            RowArray::Node(node) => self.nodes[node as usize][index],
        })
    }

    fn set_row(&mut self, array: RowArray, index: usize, row: Row) {
        match array {
            RowArray::Root => self.root[index] = row.pack(),
            RowArray::Node(node) => self.nodes[node as usize][index] = row.pack(),
        }
    }

    /// Returns the 64 entries of a row.
    fn slots(&self, row: Row) -> [u32; 64] {
        let mut slots = [0; 64];
        let mut starts = row.starts;
        let mut start = 0;
        for run in 0..row.runs() as u32 {
            // `trailing_zeros` of 0 is 64, the end of the last run.
            let end = starts.trailing_zeros() as usize;
            starts &= starts.wrapping_sub(1);
            slots[start..end].fill(self.runs.get(row.base + run));
            start = end;
        }
        slots
    }

    /// Stores 64 entries in the row that had the content `old`.
    fn compress(&mut self, array: RowArray, index: usize, old: Row, slots: &[u32; 64]) {
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
            self.set_row(array, index, Row { starts, base });
        }
    }
}
