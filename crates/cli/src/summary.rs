//! The summary at the end of a run: short, or complete with `--full`.

mod brief;
mod full;

use std::io::{self, IsTerminal, Write};

use forebay_protocol::{
    Census,
    report::{FigureSource, Report},
};

pub(crate) use full::{flows, modules, ports, reasons, workers};

use crate::format::{span, whole, wrapped};
use crate::{control, machine};

/// The length and width of the summary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// True if all rows of all tables are printed.
    pub(crate) full: bool,
    /// The width at which sentences are wrapped, because a terminal would break words. `None` if they are not wrapped.
    width: Option<usize>,
}

impl Extent {
    /// Returns the extent for standard output.
    pub(crate) fn of_output(full: bool) -> Self {
        let columns = || rustix::termios::tcgetwinsize(io::stdout()).ok().map(|size| usize::from(size.ws_col));
        let width = if io::stdout().is_terminal() { columns().filter(|columns| *columns >= 20) } else { None };
        Self { full, width }
    }

    fn wrap(self, text: &str) -> String {
        self.width.map_or_else(|| text.to_owned(), |width| wrapped(text, 2, width))
    }
}

/// Prints a run's summary.
pub(crate) fn print(report: &Report, extent: Extent, out: &mut impl Write) -> io::Result<()> {
    let how = match report.kind {
        FigureSource::Measured => format!("measured on {} ({} GHz)", report.cpu.model, report.cpu.tsc_ghz),
        FigureSource::Simulated => "simulated time, a tick is a nanosecond".to_owned(),
    };
    let mut beginning = vec![format!("{}: {:.3} s, {how}", report.pipeline, report.duration_s)];
    beginning.extend(machine::notice(report, "the time"));
    if report.pool_exhausted > 0 {
        beginning.push(format!(
            "the packet pool was exhausted: it had no memory for {} packets (raise pool.chunks)",
            whole(report.pool_exhausted)
        ));
    }
    if !extent.full {
        beginning.push(account(report));
        return brief::print(report, extent, &beginning, out);
    }
    beginning.iter().try_for_each(|line| writeln!(out, "{}", extent.wrap(line)))?;
    writeln!(out)?;
    modules(report, out)?;
    flows(report, out)?;
    objectives(report, extent, out)?;
    ports(report, out)?;
    workers(report, out)?;
    writeln!(out)?;
    reasons("dropped", &report.packets.dropped, out)?;
    reasons("created", &report.packets.created, out)?;
    reasons("consumed", &report.packets.consumed, out)?;
    writeln!(out, "{}", extent.wrap(&account(report)))
}

/// Prints the summary of a simulation, of which `detail_s` seconds were simulated in detail.
pub(crate) fn simulated(report: &Report, detail_s: f64, extent: Extent, out: &mut impl Write) -> io::Result<()> {
    let seconds = report.duration_s;
    let detail = span(Some(detail_s * 1e6));
    let title = format!(
        "{}: {seconds:.3} s simulated batch by batch, {detail} of it in detail; a tick is a nanosecond",
        report.pipeline
    );
    let packets = &report.packets;
    let lost: u64 = report.ports.iter().map(|port| port.dropped).sum();
    let sum = format!(
        "in {}, out {}, dropped {}, waiting {}; lost before they came in {}",
        whole(packets.entered),
        whole(packets.out),
        whole(packets.all_dropped()),
        whole(packets.queued),
        whole(lost)
    );
    if !extent.full {
        return brief::print(report, extent, &[title, sum], out);
    }
    writeln!(out, "{}\n", extent.wrap(&title))?;
    modules(report, out)?;
    flows(report, out)?;
    objectives(report, extent, out)?;
    for worker in &report.workers {
        writeln!(out, "worker {}: {:.1} % busy", worker.id, worker.busy * 100.0)?;
    }
    writeln!(out)?;
    reasons("dropped", &report.packets.dropped, out)?;
    writeln!(out, "{}", extent.wrap(&sum))
}

/// Prints whether objectives were kept, and the decisions of the controller.
fn objectives(report: &Report, extent: Extent, out: &mut impl Write) -> io::Result<()> {
    let sentences = objective_sentences(report);
    sentences.iter().try_for_each(|sentence| writeln!(out, "{}", extent.wrap(sentence)))?;
    if sentences.is_empty() { Ok(()) } else { writeln!(out) }
}

/// Returns the sentences about objectives and the controller.
fn objective_sentences(report: &Report) -> Vec<String> {
    let mut sentences: Vec<_> = control::verdicts(report).into_iter().map(|verdict| verdict.text).collect();
    if let Some(control) = &report.control {
        sentences.push(control::state(control, &report.workers));
        sentences.extend(control::decision(control));
        sentences.extend(control::moves(control));
        sentences.extend(control::unkept(control, &report.flows));
        let trouble = control.trouble.iter();
        sentences
            .extend(trouble.map(|trouble| format!("the controller's last decision was not carried out: {trouble}")));
    }
    sentences
}

/// Returns the account of all packets.
fn account(report: &Report) -> String {
    let packets = &report.packets;
    let census = Census {
        entered: packets.entered,
        created: packets.all_created(),
        taken: 0,
        out: packets.out,
        dropped: packets.all_dropped(),
        consumed: packets.all_consumed(),
        queued: packets.queued,
        held: packets.held,
        in_flight: packets.in_flight,
        handed: 0,
    };
    whereabouts(&census, packets.lost)
}

/// Formats the account of all packets. `lost` is the number of packets that ports lost before they entered. These
/// packets are not part of the sum, and the text states them at the end.
pub(crate) fn whereabouts(census: &Census, lost: u64) -> String {
    let verdict = match (census.missing(), lost) {
        (0, 0) => "every packet accounted for".to_owned(),
        (0, lost) => format!("{} LOST before they entered", whole(lost)),
        (missing, 0) => format!("{missing} UNACCOUNTED FOR"),
        (missing, lost) => format!("{missing} UNACCOUNTED FOR, {} LOST before they entered", whole(lost)),
    };
    format!(
        "in {} + created {} = out {} + dropped {} + consumed {} + queued {} + held {} + in flight {}: {verdict}",
        whole(census.entered),
        whole(census.created),
        whole(census.out),
        whole(census.dropped),
        whole(census.consumed),
        // Packets on their way between workers also count as queued.
        whole(census.queued + census.handed.saturating_sub(census.taken)),
        whole(census.held),
        whole(census.in_flight),
    )
}
