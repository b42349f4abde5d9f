//! Lines on their way into a file and, when the file is rotated, into the next one.
//!
//! If the disk becomes full in the middle of a line, the rest of the line is written as soon as there is room. A line
//! that is still incomplete when the next file begins or the journal ends counts as unwritten. A new file begins with
//! records that lead to the present state. The lines of a file that has been removed are counted as unwritten, because
//! no program can read them.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use forebay_graph::files::{LogFile, Turn, open_regular};
use forebay_measure::Counter;

use super::line_writer::UNWRITTEN;
use super::{CHUNK, Memory, Record, Shared, Taken, take};

/// The number of restated lines that are written before the rings are emptied again.
const RESTATED: usize = 4_096;

/// An output of lines.
pub(super) trait Out: Write {
    /// Checks whether the file was renamed, removed or truncated, and if so continues with its successor. Also returns
    /// an error if the successor could not be opened: then the present file stays open.
    fn look(&mut self) -> (Turn, io::Result<()>) {
        (Turn::Same, Ok(()))
    }

    /// Returns true if the file was removed, so that no program can read its lines.
    fn is_removed(&self) -> bool {
        false
    }

    /// Returns true if the last line of the file is incomplete: the run that wrote the line was killed, or the disk was
    /// full.
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

/// Returns true if the last line of a file is incomplete. Returns an error if the file cannot be read.
fn is_cut(path: &Path) -> io::Result<bool> {
    // The name may belong to a pipe by now. Opening it would wait for its writer.
    let (mut file, mut last) = (open_regular(path)?, [0]);
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// A journal's file, and the state with which the next file will begin.
pub(super) struct Page<R: Record, O: Out> {
    lines: Lines<O>,
    /// True if this journal has written a line to the file.
    begun: bool,
    /// The error of the last attempt to open the file again, if this attempt failed.
    not_reopened: Option<String>,
    /// The state that results from all records so far.
    memory: R::Memory,
    /// The formatting data of the latest record. Restated records are formatted with it, too.
    with: Option<Arc<R::With>>,
}

impl<R: Record, O: Out> Page<R, O> {
    pub(super) fn new(out: O) -> Self {
        Self { lines: Lines::new(out), begun: false, not_reopened: None, memory: R::Memory::default(), with: None }
    }

    /// Writes the records in `taken`, in order of time. It may take more records from the rings first. Counts lines
    /// that are not accepted, and returns the first error. `last` is true at the end of the run.
    pub(super) fn write(&mut self, taken: &mut Vec<Taken<R>>, last: bool, shared: &Shared<R>) -> io::Result<()> {
        let mut result = self.turn(taken, shared);
        // The records that were taken together are sorted by time. The sort is stable, so records of the same time keep
        // their order.
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

    /// Returns the error of the last attempt to open the file again, if this attempt failed. Lines then go into the
    /// file that is still open.
    pub(super) fn not_reopened(&self) -> Option<&str> {
        self.not_reopened.as_deref()
    }

    /// If the present file was renamed, removed or truncated, continues with the next file and begins it with the
    /// present state. While the state is written, records are moved from the rings to `taken`, so that the rings do not
    /// become full.
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
                // Empty the rings, so that workers find room.
                take(&mut shared.lock(), taken);
            }
        }
        result
    }

    /// Adds the line of a record, if it has one. `counts` is `None` for a restated record, which is not counted.
    fn add(
        &mut self,
        record: &R,
        with: &R::With,
        counts: Option<&Arc<[Counter]>>,
        shared: &Shared<R>,
    ) -> io::Result<()> {
        let Some(mut line) = record.line(&shared.owner, with) else { return Ok(()) };
        // The first line of this journal must not continue an incomplete line in the file. If the file can be written
        // but not read, this is not checked.
        if !self.begun {
            self.begun = true;
            if self.lines.out.is_cut() {
                // The line break is kept until there is room, like the line after it.
                self.lines.bytes.push(b'\n');
            }
        }
        line.push('\n');
        self.lines.add(&line, counts)
    }
}

/// The buffered lines of a file. A line that is written in part stays here until its rest is written. Lines that are
/// still here at the end are counted as unwritten.
struct Lines<O: Out> {
    out: O,
    /// The bytes that are not in the file yet.
    bytes: Vec<u8>,
    /// The end of each line in `bytes`, and the counters of the line, if it is counted.
    ends: VecDeque<(usize, Option<Arc<[Counter]>>)>,
    /// True if a part of the first line is in the file.
    is_partial: bool,
    /// The number of lines that are in the file, for each set of counters.
    written: Vec<(Arc<[Counter]>, u64)>,
}

impl<O: Out> Lines<O> {
    fn new(out: O) -> Self {
        Self { out, bytes: Vec::with_capacity(CHUNK), ends: VecDeque::new(), is_partial: false, written: Vec::new() }
    }

    /// Adds a line. If the lines before it cannot be written and leave no room, counts this line as unwritten and
    /// returns the error.
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

    /// Writes as much of the lines as the output accepts. Returns the first error, after which the rest stays here.
    fn flush(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            let rest = self.bytes.get(written..).unwrap_or_default();
            if rest.is_empty() {
                break self.out.flush();
            }
            match self.out.write(rest) {
                Ok(0) => break Err(ErrorKind::WriteZero.into()),
                Ok(many) => written += many,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        if written > 0 {
            self.bytes.drain(..written);
            self.is_partial = true;
            while let Some((end, counts)) = self.ends.pop_front_if(|(end, _)| *end <= written) {
                self.is_partial = end < written;
                counts.into_iter().for_each(|counts| self.note_written(counts));
            }
            self.ends.iter_mut().for_each(|(end, _)| *end -= written);
        }
        result
    }

    /// Notes that the present file has one more line of these counters.
    fn note_written(&mut self, counts: Arc<[Counter]>) {
        if let Some((_, written)) = self.written.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &counts)) {
            *written += 1;
            return;
        }
        // Counters without another owner belong to a configuration that no longer exists.
        self.written.retain(|(known, _)| Arc::strong_count(known) > 1);
        self.written.push((counts, 1));
    }

    /// Starts a file. The rest of a partly written line is dropped and counted, because the beginning of the line is in
    /// the previous file.
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

    /// Counts the lines of a file that was removed as unwritten. Returns an error if the file had lines.
    fn count_removed(&mut self) -> io::Result<()> {
        let mut lines = 0;
        for (counts, written) in self.written.drain(..) {
            count_unwritten(Some(&counts), written);
            lines += written;
        }
        match lines {
            0 => Ok(()),
            _ => Err(io::Error::other(format!(
                "the file was removed with {lines} lines: to rotate the file, rename it and send SIGUSR1"
            ))),
        }
    }
}

impl<O: Out> Drop for Lines<O> {
    fn drop(&mut self) {
        self.ends.iter().for_each(|(_, counts)| count_unwritten(counts.as_ref(), 1));
    }
}

/// Counts lines as unwritten, if they have counters.
fn count_unwritten(counts: Option<&Arc<[Counter]>>, lines: u64) {
    counts.and_then(|counts| counts.get(UNWRITTEN)).into_iter().for_each(|count| count.add(lines));
}

#[cfg(test)]
mod tests;
