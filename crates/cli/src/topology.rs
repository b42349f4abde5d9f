//! `forebay topology`: prints packages, memory nodes, last-level caches and cores as text, a picture or JSON.

mod outline;
mod picture;
mod text;

use std::io::Write;
use std::path::Path;

use anyhow::{Context, bail};
use forebay_graph::files::{read_text, replace};
use forebay_host::topology::{SourceType, TopologyReport};
use forebay_host::{Host, Topology, TopologyError, Tree};
use forebay_pipeline::nearest;

use crate::{args, printed};
use outline::Outline;

/// Maximum size of a hwloc file, in bytes: a machine with 8 192 processors needs 10 MB.
const MOST: u64 = 64 << 20;
/// Maximum number of files in a folder whose names are compared with a wrong name, for a suggestion.
const MOST_NAMES: usize = 1_000;
/// The allowed sources, for errors.
const ALLOWED: &str = "`host`, an XML file that hwloc wrote (`lstopo FILE.xml`), or NODESxCORES such as 4x10:llc=5";

/// Prints a topology.
pub(crate) fn topology(arguments: &args::Topology) -> anyhow::Result<()> {
    let (source, topology) = read("topology", &arguments.source, arguments.root.as_deref())?;
    let outline = Outline::of(&topology, source);
    if let Some(file) = &arguments.svg {
        let picture = picture::nest(&outline, &arguments.source).svg()?;
        replace(file, picture.as_bytes()).with_context(|| format!("topology: --svg {}", file.display()))?;
    }
    let mut out = printed::out();
    if arguments.json {
        let report = TopologyReport::of(&topology, source, &arguments.source);
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        write!(out, "{}", text::text(&outline))?;
    }
    Ok(())
}

/// Reads the topology that `source` names. `root` is the root of the kernel's files, only for `host`. Errors begin with
/// `what`.
pub(crate) fn read(what: &str, source: &str, root: Option<&Path>) -> anyhow::Result<(SourceType, Topology)> {
    if source == "host" {
        let root = root.unwrap_or(Path::new("/"));
        let tree = Tree::at(root);
        if !tree.has("/proc") && !tree.has("/sys") {
            bail!("{what}: --root {}: name a folder that contains a machine's proc and sys", root.display());
        }
        let topology = Topology::read(&tree, &Host::read(&tree)).with_context(|| format!("{what}: host"))?;
        return Ok((SourceType::Host, topology));
    }
    if let Some(root) = root {
        bail!("{what}: --root {}: --root needs `host`, not {source}", root.display());
    }
    // A file of this name has precedence, even if its type is wrong: a folder is then refused as a folder.
    if Path::new(source).symlink_metadata().is_ok() {
        let bytes = read_text(Path::new(source), MOST).with_context(|| format!("{what}: {source}"))?;
        return Ok((SourceType::Hwloc, hwloc(what, source, &bytes)?));
    }
    if source.contains(['/', '.']) {
        let suggestion = suggestion(source);
        bail!("{what}: {source}: there is no such file{suggestion}: allowed is {ALLOWED}");
    }
    match Topology::synthetic(source) {
        Ok(topology) => Ok((SourceType::Synthetic, topology)),
        Err(error) if source.starts_with(|first: char| first.is_ascii_digit()) => {
            Err(error).with_context(|| format!("{what}: {source}"))
        }
        Err(_) => {
            bail!(
                "{what}: {source}: neither a file nor a machine description{}: allowed is {ALLOWED}",
                suggestion(source)
            )
        }
    }
}

/// Parses a topology file of hwloc.
fn hwloc(what: &str, file: &str, bytes: &[u8]) -> anyhow::Result<Topology> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        anyhow::anyhow!("{what}: {file}:{line}: a byte is not UTF-8: allowed is XML as `lstopo FILE.xml` writes it")
    })?;
    Topology::hwloc(text).map_err(|error| match error {
        TopologyError::NotXml { .. } | TopologyError::Hwloc { .. } => anyhow::anyhow!("{what}: {file}:{error}"),
        _ => anyhow::anyhow!("{what}: {file}: {error}"),
    })
}

/// Suggests a name instead of a source that does not exist: `host`, or a file in the same folder. Returns an empty text
/// if no name is similar.
fn suggestion(source: &str) -> String {
    let with_ending = format!("{source}.xml");
    if Path::new(&with_ending).is_file() {
        return format!(" (did you mean '{with_ending}'?)");
    }
    let (folder, name) = source.rsplit_once('/').map_or(("", source), |(folder, name)| (folder, name));
    let start = &source[..source.len() - name.len()];
    let folder = if start == "/" { "/" } else { folder };
    let entries = std::fs::read_dir(if folder.is_empty() { "." } else { folder });
    let entries = entries.into_iter().flatten().flatten().take(MOST_NAMES);
    let mut names: Vec<_> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.retain(|name| name.ends_with(".xml"));
    if start.is_empty() {
        names.push("host".to_owned());
    }
    let near = nearest(name, names.iter().map(String::as_str));
    near.replacen("mean '", &format!("mean '{start}"), 1)
}
