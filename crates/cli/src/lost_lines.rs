//! The message that files of modules lack lines.

use std::io::Write;

use forebay_protocol::report::LostLines;

use crate::printed;

/// Reports the lines that files of the pipeline called `name` lack.
pub(crate) fn report_lost_lines(name: &str, lost: &[LostLines]) {
    for lines in lost {
        // Without a standard error the report still has them.
        let _ = writeln!(printed::err(), "{name}: {}", lines.in_words());
    }
}
