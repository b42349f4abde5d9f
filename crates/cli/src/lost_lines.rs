//! The message that lines are missing in a pipeline's files.

use std::io::Write;

use forebay_protocol::report::LostLines;

use crate::printed;

/// Reports the lines that are missing from files of the pipeline called `name`.
pub(crate) fn report_lost_lines(name: &str, lost: &[LostLines]) {
    for lines in lost {
        // The report contains them too, so an error of standard error is ignored.
        let _ = writeln!(printed::err(), "{name}: {}", lines.in_words());
    }
}
