//! The files that a configuration uses. Checks that no file has two users in conflict, such as a writer and a reader.

use forebay_graph::{Claim, Files, SetupEnvironment, SetupError};

use crate::draft::Read;
use crate::faults::FaultCollector;
use crate::located::SourceLocation;
use crate::section::{entries, kind_of};
use crate::source::Source;
use crate::yaml::Node;

/// Returns the files that were read since the last call as reads of `section`, and clears the list. So the caller must
/// call this function after it has created the parts of each section.
pub(crate) fn reads_of(section: &'static str, environment: &SetupEnvironment) -> Vec<Read> {
    let reads = environment.files.reads.take();
    reads.into_iter().map(|(name, path)| Read { section, name, path }).collect()
}

/// Adds a fault for each file that parts of one configuration use in conflicting ways. Ignores the files of a running
/// configuration. `reloads` is true if the configuration replaces a running one.
pub(crate) fn claim_all(
    root: &Node,
    (source, reloads): (&Source, bool),
    reads: &[Read],
    claims: &[Claim],
    faults: &mut FaultCollector,
) {
    let mut files = Files::default();
    claim_configuration(source, reloads, &mut files, faults);
    claim_reads(reads, root, &mut files, faults);
    for claim in claims {
        let Err(message) = claim.note(&mut files) else { continue };
        let section = ["modules", "ports"]
            .into_iter()
            .find(|section| entries(root, section).any(|entry| entry.key == claim.name));
        let Some(section) = section else { continue };
        let kind = entries(root, section).find(|entry| entry.key == claim.name).and_then(kind_of);
        let kind = kind.map_or("", |kind| &kind.key);
        faults.add_all(root, &[section, &claim.name, kind], SetupError::at(&claim.parameter, message));
    }
}

/// Claims the configuration's own file or the standard input for reading. If `reloads` is true, the standard input is
/// not claimed, because a reload does not read it here.
pub(crate) fn claim_configuration(source: &Source, reloads: bool, files: &mut Files, faults: &mut FaultCollector) {
    let who = "the configuration";
    let claimed = match &source.path {
        Some(path) => files.claim(who, path, false),
        None if source.file == "stdin" && !reloads => files.claim_input(who),
        None => Ok(()),
    };
    if let Err(message) = claimed {
        faults.add(SourceLocation::START, message);
    }
}

/// Claims the files that have been read. Adds an error if another part of the pipeline writes one of these files.
pub(crate) fn claim_reads(reads: &[Read], root: &Node, files: &mut Files, faults: &mut FaultCollector) {
    for Read { section, name, path } in reads {
        let who = if *section == "state" { format!("state '{name}'") } else { format!("'{name}'") };
        if let Err(message) = files.claim(&who, path, false) {
            faults.add_at(root, &[section, name], &message);
        }
    }
}
