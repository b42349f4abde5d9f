//! `rc n`: a random split over branches of equal weight. Branch 0, the robot's control, costs 1 cycle per call and 1
//! cycle per packet. Each other branch costs 10 000 cycles per call and `c` cycles per packet. n + 1 modules.

use forebay_units::Nanos;

use super::parameters::{Values, Wrong};
use super::text::{Text, Traffic, prefix};

pub(super) fn write(values: &Values) -> Result<String, Wrong> {
    let (n, c) = (values.whole("n", 2, 4_096)?, values.whole("c", 0, 1_000_000)?);
    let mut text = Text::new(&format!("rc-{n}"), values)?;
    text.generator("in", &Traffic { destinations: &[prefix(0)], vlans: 0 });
    text.sink();
    text.line("in -> split");
    text.module("split", "random_split", &format!(" gates: {n} "));
    for branch in 0..n {
        let (name, batch, packet) =
            if branch == 0 { ("control".to_owned(), 1, 1) } else { (format!("work{branch}"), 10_000, c) };
        text.module(&name, "bypass", &format!(" cycles_per_batch: {batch}, cycles_per_packet: {packet} "));
        // Published: 35 us for the robot, 100 ms for the rest.
        let slo = text.slo().map(|slo| if branch == 0 { slo } else { Nanos(100_000_000) });
        text.branch(&name, "", &format!("split[{branch}]"), std::slice::from_ref(&name), slo);
    }
    Ok(text.finish())
}
