//! What the command prints: as it is, but for characters that would act on a terminal instead of being shown.
//!
//! Names in configurations, lines of changes and arguments come from outside and are repeated in messages and tables. They
//! are escaped here, where everything passes, so that nobody who writes a message has to think of it.

use std::io::{self, StderrLock, StdoutLock, Write};
use std::time::{Duration, Instant};

pub(crate) use forebay_protocol::event::is_control;
use forebay_protocol::event::without_control;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

/// Standard output.
pub(crate) fn out() -> Printed<StdoutLock<'static>> {
    Printed(io::stdout().lock())
}

/// Standard error.
pub(crate) fn err() -> Printed<StderrLock<'static>> {
    Printed(io::stderr().lock())
}

/// How much standard error takes without a wait where it [takes](err_takes) anything: a pipe
/// says that it has room for so much.
const AT_ONCE: usize = 4_096;

/// Whether standard error takes more by `until`: it may be a pipe that is not read.
pub(crate) fn err_takes(until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&io::stderr(), PollFlags::OUT)], Some(&left)) {
            Err(Errno::INTR) => {}
            // One that cannot be asked says what is wrong when it is written to.
            polled => return polled.is_ok_and(|ready| ready > 0) || polled.is_err(),
        }
    }
}

/// Writes to standard error what it takes by `until` of `bytes`, and removes that; all where it takes nothing any more.
pub(crate) fn write_err(bytes: &mut Vec<u8>, until: Instant) {
    while !bytes.is_empty() && err_takes(until) {
        match io::stderr().lock().write(&bytes[..bytes.len().min(AT_ONCE)]) {
            Ok(written) => drop(bytes.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // A standard error that is gone does not end the run.
            Err(_) => bytes.clear(),
        }
    }
}

/// Writes a last line to standard error, unless it takes none within a second: the end of a command waits
/// for no reader.
pub(crate) fn last_err(line: &str) {
    let mut bytes = without_control(&format!("{line}\n")).into_bytes();
    write_err(&mut bytes, Instant::now() + Duration::from_secs(1));
}

/// Writes text with the characters escaped that are not to reach a terminal.
pub(crate) struct Printed<W>(pub(crate) W);

impl<W: Write> Write for Printed<W> {
    /// Takes all of `bytes`, which are whole characters: they come from formatted text.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Nothing that is escaped is of other bytes than these; most text has none of them.
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
    fn what_acts_on_a_terminal_is_escaped_and_nothing_else() {
        assert_eq!(printed("a\tb\nc → µs 'é'"), "a\tb\nc → µs 'é'");
        assert_eq!(printed("\u{1b}[31mx\0\r\u{7f}"), "\\u001b[31mx\\u0000\\u000d\\u007f");
        assert_eq!(printed("\u{9b}2J \u{202e}abc\u{61c}"), "\\u009b2J \\u202eabc\\u061c");
    }

    proptest! {
        #[test]
        fn no_text_acts_and_json_stays_what_it_is(text in "(\\PC|\\p{Cc}|[\u{61c}\u{200e}\u{202e}\u{2066}])*") {
            prop_assert!(!printed(&text).contains(is_control));
            let json = serde_json::to_string(&text).expect("a string");
            let again: String = serde_json::from_str(&printed(&json)).expect("JSON");
            prop_assert_eq!(again, text);
        }
    }
}
