//! Output to standard output and standard error. Escapes characters that would control a terminal.
//!
//! Configurations, table changes and arguments contain text from outside, and messages and tables repeat this text. All
//! output must pass this module. Then no message has to escape the text itself.

use std::io::{self, StderrLock, StdoutLock, Write};
use std::time::{Duration, Instant};

pub(crate) use forebay_protocol::event::is_control;
use forebay_protocol::event::without_control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Returns standard output, for output that ends by itself. If the reader of a pipe has closed it (`| head`), the
/// output is discarded, so that the command still returns its result.
pub(crate) fn out() -> Printed<Discarding<Named<StdoutLock<'static>>>> {
    Printed(Discarding(Named(io::stdout().lock())))
}

/// Returns standard output, for output that may have no end. If the reader of a pipe has closed it, a write returns
/// [`io::ErrorKind::BrokenPipe`], which ends the command.
pub(crate) fn stream() -> Printed<Named<StdoutLock<'static>>> {
    Printed(Named(io::stdout().lock()))
}

/// Returns standard error. If the reader of a pipe has closed it, the output is discarded.
pub(crate) fn err() -> Printed<Discarding<StderrLock<'static>>> {
    Printed(Discarding(io::stderr().lock()))
}

/// Maximum number of bytes per write to standard error. If standard error [accepts](err_takes) output, a write of this
/// length does not wait: the system reports a pipe as ready only if it has room for at least this number of bytes.
const AT_ONCE: usize = 4_096;

/// Waits until standard error accepts output, at most until `until`. Returns false if standard error is then still a
/// full pipe that no process reads.
pub(crate) fn err_takes(until: Instant) -> bool {
    loop {
        let wait = until.saturating_duration_since(Instant::now());
        let wait = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&io::stderr(), PollFlags::OUT)], Some(&wait)) {
            Err(Errno::INTR) => {}
            // If polling fails, the write reports the error.
            polled => return polled.is_ok_and(|ready| ready > 0) || polled.is_err(),
        }
    }
}

/// Writes as much of `bytes` to standard error as it accepts until `until`, and removes the written bytes. If standard
/// error has gone away, removes all bytes.
pub(crate) fn write_err(bytes: &mut Vec<u8>, until: Instant) {
    while !bytes.is_empty() && err_takes(until) {
        match io::stderr().lock().write(&bytes[..bytes.len().min(AT_ONCE)]) {
            Ok(written) => drop(bytes.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // A closed standard error does not end the run.
            Err(_) => bytes.clear(),
        }
    }
}

/// Writes the last line to standard error. Gives up after a second, so that the end of a command does not wait for a
/// reader.
pub(crate) fn last_err(line: &str) {
    let mut bytes = without_control(&format!("{line}\n")).into_bytes();
    write_err(&mut bytes, Instant::now() + Duration::from_secs(1));
}

/// Standard output. Its errors name it.
pub(crate) struct Named<W>(W);

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map_err(named)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush().map_err(named)
    }
}

/// Adds the place to an error. The error keeps its kind.
fn named(error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("standard output: {error}"))
}

/// A writer that discards its output once the reader of the pipe has gone away.
pub(crate) struct Discarding<W>(W);

impl<W: Write> Write for Discarding<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(bytes.len()),
            written => written,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.0.flush() {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            flushed => flushed,
        }
    }
}

/// A writer that escapes characters that must not reach a terminal.
pub(crate) struct Printed<W>(pub(crate) W);

impl<W: Write> Write for Printed<W> {
    /// Writes all of `bytes`. The bytes are whole characters, because they come from formatted text.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // All escaped characters begin with one of these bytes; most text has none of them.
        if bytes.iter().any(|&byte| is_control(byte.into()) || matches!(byte, 0xc2 | 0xd8 | 0xe2)) {
            self.0.write_all(without_control(&String::from_utf8_lossy(bytes)).as_bytes())?;
        } else {
            self.0.write_all(bytes)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn printed(text: &str) -> String {
        let mut printed = Printed(Vec::new());
        write!(printed, "{text}").expect("memory");
        String::from_utf8(printed.0).expect("UTF-8")
    }

    #[test]
    fn only_control_characters_are_escaped() {
        assert_eq!(printed("a\tb\nc → µs 'é'"), "a\tb\nc → µs 'é'");
        assert_eq!(printed("\u{1b}[31mx\0\r\u{7f}"), "\\u001b[31mx\\u0000\\u000d\\u007f");
        assert_eq!(printed("\u{9b}2J \u{202e}abc\u{61c}"), "\\u009b2J \\u202eabc\\u061c");
    }

    #[test]
    fn only_a_closed_pipe_discards_output() {
        struct Failing(io::ErrorKind);
        impl Write for Failing {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(self.0.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Err(self.0.into())
            }
        }
        let mut closed = Discarding(Failing(io::ErrorKind::BrokenPipe));
        assert!(closed.write_all(b"text").is_ok() && closed.flush().is_ok());
        let mut full = Discarding(Failing(io::ErrorKind::StorageFull));
        assert!(full.write_all(b"text").is_err() && full.flush().is_err());
    }

    proptest! {
        #[test]
        fn no_text_controls_a_terminal_and_json_is_unchanged(
            text in "(\\PC|\\p{Cc}|[\u{61c}\u{200e}\u{202e}\u{2066}])*",
        ) {
            prop_assert!(!printed(&text).contains(is_control));
            let json = serde_json::to_string(&text).expect("a string");
            let again: String = serde_json::from_str(&printed(&json)).expect("JSON");
            prop_assert_eq!(again, text);
        }
    }
}
