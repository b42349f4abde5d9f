//! The message that files of modules lack lines.

use std::io::Write;

use forebay_graph::report::LostLines;

use crate::printed;

/// Reports the lines that files of the pipeline called `name` lack.
pub(crate) fn report_lost_lines(name: &str, lost: &[LostLines]) {
    for lines in lost {
        let causes = [
            (lines.over_rate, "over rate"),
            (lines.lost, "lost: they came faster than they were written"),
            (lines.unwritten, "unwritten: the disk did not take them, or their file was removed"),
        ];
        let causes = causes.iter().filter(|(count, _)| *count > 0).map(|(count, cause)| format!("{count} {cause}"));
        let causes = causes.collect::<Vec<_>>().join("; ");
        let (module, heading, total) = (&lines.module, &lines.lines, lines.total());
        let noun = if heading == "copies" { "packets" } else { "lines" };
        // Without a standard error the report still has them.
        let _ = writeln!(printed::err(), "{name}: {module}: {heading}: {total} {noun} are not in the file ({causes})");
    }
}
