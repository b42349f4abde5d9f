//! Lines on their way into files: one after the other, where a file is rotated.
//!
//! A line is written wholly or not at all as long as there is room sooner or later. A new file begins with what the
//! records before it have come to, and lines of a file that has been removed are counted: no program can read them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use forebay_graph::files::{LogFile, Turn, open_regular};
use forebay_measure::Counter;

use super::pen::UNWRITTEN;
use super::{CHUNK, Memory, Record, Shared, Taken, take};

/// Lines that a new file begins with which are written before the rings are looked at again.
const RESTATED: usize = 4_096;

/// Where lines go.
pub(super) trait Out: Write {
    /// Looks what has happened to the file since, and goes on to the next one.
    fn look(&mut self) -> (Turn, io::Result<()>) {
        (Turn::Same, Ok(()))
    }

    /// Whether no program can read the lines that were written.
    fn is_removed(&self) -> bool {
        false
    }

    /// Whether the last line of the file has no end: that of a run that was killed, or of a disk that was full.
    fn is_cut(&self) -> bool {
        false
    }
}

impl Out for LogFile {
    fn look(&mut self) -> (Turn, io::Result<()>) {
        LogFile::look(self)
    }

    fn is_removed(&self) -> bool {
        LogFile::is_removed(self)
    }

    fn is_cut(&self) -> bool {
        is_cut(self.path()).unwrap_or(false)
    }
}

fn is_cut(path: &Path) -> io::Result<bool> {
    // The name may be a pipe's by now, which would wait for its writer.
    let (mut file, mut last) = (open_regular(path)?, [0]);
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// A journal's file, and what the next one will begin with.
pub(super) struct Page<R: Record, O: Out> {
    lines: Lines<O>,
    /// Whether a line of this journal is in the file.
    begun: bool,
    /// Why the file could not be opened again, while that is so.
    not_reopened: Option<String>,
    memory: R::Memory,
    with: Option<Arc<R::With>>,
}

impl<R: Record, O: Out> Page<R, O> {
    pub(super) fn new(out: O) -> Self {
        Self { lines: Lines::new(out), begun: false, not_reopened: None, memory: R::Memory::default(), with: None }
    }

    /// Writes records; lines that are not taken are counted, and the first error is returned. `last`: the run is over.
    pub(super) fn write(&mut self, taken: &mut Vec<Taken<R>>, last: bool, shared: &Shared<R>) -> io::Result<()> {
        let mut result = self.turn(taken, shared);
        // Workers' records in the order of their times, as far as they came together; those of one time stay as they
        // are.
        taken.sort_by_key(|(record, ..)| record.nanos());
        for (record, with, counts) in taken.iter() {
            self.memory.note(record);
            result = result.and(self.add(record, with, Some(counts), shared));
        }
        if let Some((_, with, _)) = taken.last() {
            self.with = Some(Arc::clone(with));
        }
        result = result.and(self.lines.flush());
        if last && self.lines.out.is_removed() {
            result = result.and(self.lines.count_removed());
        }
        result
    }

    /// Why the file could not be opened again, while that is so. Its lines go into the file that is open.
    pub(super) fn not_reopened(&self) -> Option<&str> {
        self.not_reopened.as_deref()
    }

    /// Goes on to the next file, where the one before has been renamed, removed or truncated.
    fn turn(&mut self, taken: &mut Vec<Taken<R>>, shared: &Shared<R>) -> io::Result<()> {
        let (turn, opened) = self.lines.out.look();
        self.not_reopened = opened.err().map(|error| error.to_string());
        let mut result = match turn {
            Turn::Same => return Ok(()),
            Turn::Removed => self.lines.count_removed(),
            Turn::Renamed | Turn::Truncated => Ok(()),
        };
        self.lines.begin_file();
        self.begun = false;
        if self.not_reopened.is_some() {
            return result;
        }
        for (number, record) in self.memory.restate().iter().enumerate() {
            let Some(with) = self.with.clone() else { break };
            result = result.and(self.add(record, &with, None, shared));
            if number % RESTATED == RESTATED - 1 {
                // Workers go on meanwhile.
                take(&mut shared.lock(), taken);
            }
        }
        result
    }

    fn add(
        &mut self,
        record: &R,
        with: &R::With,
        counts: Option<&Arc<[Counter]>>,
        shared: &Shared<R>,
    ) -> io::Result<()> {
        let Some(mut line) = record.line(&shared.owner, with) else { return Ok(()) };
        // The first line begins on a line of its own. Where the file may be written and not read, it comes after
        // whatever is there.
        if !self.begun {
            self.begun = true;
            if self.lines.out.is_cut() {
                // It waits as the line after it does.
                self.lines.bytes.push(b'\n');
            }
        }
        line.push('\n');
        self.lines.add(&line, counts)
    }
}

/// Lines on their way into a file. A line that is written in part stays here and is written on. Lines that are still
/// here at the end are counted.
struct Lines<O: Out> {
    out: O,
    bytes: Vec<u8>,
    /// Where each line ends in `bytes`, and where it is counted.
    ends: VecDeque<(usize, Option<Arc<[Counter]>>)>,
    /// Whether a part of the first of them is in the file.
    is_partial: bool,
    /// Lines that are in the file.
    written: Vec<(Arc<[Counter]>, u64)>,
}

impl<O: Out> Lines<O> {
    fn new(out: O) -> Self {
        Self { out, bytes: Vec::with_capacity(CHUNK), ends: VecDeque::new(), is_partial: false, written: Vec::new() }
    }

    /// Adds a line, or counts it where those before it leave no room.
    fn add(&mut self, line: &str, counts: Option<&Arc<[Counter]>>) -> io::Result<()> {
        if self.bytes.len() + line.len() > CHUNK
            && let Err(error) = self.flush()
            && self.bytes.len() + line.len() > CHUNK
        {
            count_unwritten(counts, 1);
            return Err(error);
        }
        self.bytes.extend_from_slice(line.as_bytes());
        self.ends.push_back((self.bytes.len(), counts.cloned()));
        Ok(())
    }

    /// Writes what is here, as far as it is taken.
    fn flush(&mut self) -> io::Result<()> {
        let mut gone = 0;
        let result = loop {
            let rest = self.bytes.get(gone..).unwrap_or_default();
            if rest.is_empty() {
                break self.out.flush();
            }
            match self.out.write(rest) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(many) => gone += many,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if gone > 0 {
            self.bytes.drain(..gone);
            self.is_partial = true;
            while let Some((end, counts)) = self.ends.pop_front_if(|(end, _)| *end <= gone) {
                self.is_partial = end < gone;
                counts.into_iter().for_each(|counts| self.note_written(counts));
            }
            self.ends.iter_mut().for_each(|(end, _)| *end -= gone);
        }
        result
    }

    fn note_written(&mut self, counts: Arc<[Counter]>) {
        if let Some((_, written)) = self.written.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &counts)) {
            *written += 1;
            return;
        }
        // Names that have no other owner are of a configuration that is gone.
        self.written.retain(|(known, _)| Arc::strong_count(known) > 1);
        self.written.push((counts, 1));
    }

    /// A file begins: the rest of a line goes with the file that has its beginning.
    fn begin_file(&mut self) {
        self.written.clear();
        if std::mem::take(&mut self.is_partial)
            && let Some((end, counts)) = self.ends.pop_front()
        {
            self.bytes.drain(..end);
            self.ends.iter_mut().for_each(|(later, _)| *later -= end);
            count_unwritten(counts.as_ref(), 1);
        }
    }

    /// Counts the lines of a file that has been removed.
    fn count_removed(&mut self) -> io::Result<()> {
        let mut lines = 0;
        for (counts, written) in self.written.drain(..) {
            count_unwritten(Some(&counts), written);
            lines += written;
        }
        match lines {
            0 => Ok(()),
            _ => {
                Err(io::Error::other(format!("it was removed, and {lines} lines with it: rename it, and send SIGUSR1")))
            }
        }
    }
}

impl<O: Out> Drop for Lines<O> {
    fn drop(&mut self) {
        self.ends.iter().for_each(|(_, counts)| count_unwritten(counts.as_ref(), 1));
    }
}

fn count_unwritten(counts: Option<&Arc<[Counter]>>, lines: u64) {
    counts.and_then(|counts| counts.get(UNWRITTEN)).into_iter().for_each(|count| count.add(lines));
}

#[cfg(test)]
mod tests;
