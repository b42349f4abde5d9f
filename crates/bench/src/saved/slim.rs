//! Removes the debug sections from a program; they are most of its size. Symbols stay: counting needs them to
//! distinguish modules.
//!
//! Sections that are not loaded are copied one after the other, behind the loaded sections. The section table keeps its
//! length, because sections refer to each other by number. A file that is not a 64-bit little-endian ELF file is not
//! changed (System V gABI, chapters 4 and 5).

use std::borrow::Cow;
use std::ops::Range;

/// The length of the ELF header, in bytes.
const HEADER: usize = 64;
/// The offset of the field of the ELF header that contains the offset of the section table.
const SECTIONS_AT: usize = 0x28;
/// The offset of the field of the ELF header that contains the size of an entry of the section table (16 bits). The
/// number of entries and the index of the section of names follow, in 16 bits each.
const SECTION_SIZE: usize = 0x3a;
/// The length of an entry of the section table, in bytes.
const SECTION: usize = 64;
/// The type of an unused entry.
const NULL: u32 = 0;
/// The type of a section without contents in the file.
const NO_BITS: u32 = 8;
/// The largest alignment of a section that is not loaded.
const ALIGNED: usize = 64;
/// The flag of a section that is loaded.
const LOADED: u64 = 2;

/// The header of a section.
#[derive(Clone, Copy)]
struct Section {
    /// The offset of the section's name in the section of names.
    name: usize,
    kind: u32,
    flags: u64,
    /// The offset of the contents in the file.
    at: usize,
    /// The length of the contents, in bytes.
    size: usize,
    align: usize,
}

/// Reads `N` bytes. `None` beyond the end.
fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Reads a number of 64 bits.
fn long(bytes: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u64::from_le_bytes(word(bytes, at)?)).ok()
}

/// Reads a number of 16 bits.
fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_le_bytes(word(bytes, at)?)))
}

impl Section {
    /// Reads the entry of the section table at the offset `at`.
    fn read(bytes: &[u8], at: usize) -> Option<Self> {
        Some(Self {
            name: u32::from_le_bytes(word(bytes, at)?) as usize,
            kind: u32::from_le_bytes(word(bytes, at + 4)?),
            flags: u64::from_le_bytes(word(bytes, at + 8)?),
            at: long(bytes, at + 24)?,
            size: long(bytes, at + 32)?,
            align: long(bytes, at + 48)?,
        })
    }

    /// Returns the range of the contents in the file.
    fn range(&self) -> Option<Range<usize>> {
        Some(self.at..self.at.checked_add(self.size)?)
    }

    /// True if the section has contents in the file, and they are not loaded.
    fn is_unloaded(&self) -> bool {
        self.kind != NULL && self.kind != NO_BITS && self.flags & LOADED == 0
    }
}

/// Returns the program without debug sections. A file that is not understood is returned unchanged.
pub(super) fn slim(program: &[u8]) -> Cow<'_, [u8]> {
    cut(program).map_or(Cow::Borrowed(program), Cow::Owned)
}

/// Returns the program without debug sections, or `None` if its header or the order of its sections is not as expected.
fn cut(program: &[u8]) -> Option<Vec<u8>> {
    if !program.starts_with(b"\x7fELF\x02\x01\x01") {
        return None;
    }
    let (table, size, count) =
        (long(program, SECTIONS_AT)?, short(program, SECTION_SIZE)?, short(program, SECTION_SIZE + 2)?);
    let names = short(program, SECTION_SIZE + 4)?;
    if size != SECTION || names >= count {
        return None;
    }
    let sections: Vec<Section> =
        (0..count).map(|number| Section::read(program, table + number * SECTION)).collect::<Option<_>>()?;
    let text = program.get(sections[names].range()?)?;
    let is_for_debuggers = |section: &Section| {
        section.is_unloaded() && text.get(section.name..).is_some_and(|name| name.starts_with(b".debug_"))
    };
    // The loaded sections and the headers before them stay at their offsets.
    let loaded = sections.iter().filter(|section| section.flags & LOADED != 0 && section.kind != NO_BITS);
    let mut end = HEADER;
    for section in loaded {
        end = end.max(section.range()?.end);
    }
    if sections.iter().any(|section| section.is_unloaded() && section.at < end) || table < end {
        return None;
    }
    let mut cut = program.get(..end)?.to_vec();
    let mut headers = program.get(table..table.checked_add(count.checked_mul(SECTION)?)?)?.to_vec();
    for (section, header) in sections.iter().zip(headers.chunks_exact_mut(SECTION)) {
        if is_for_debuggers(section) {
            header.fill(0);
        } else if section.is_unloaded() {
            cut.resize(cut.len().checked_next_multiple_of(section.align.clamp(1, ALIGNED))?, 0);
            header[24..32].copy_from_slice(&(cut.len() as u64).to_le_bytes());
            cut.extend_from_slice(program.get(section.range()?)?);
        }
    }
    cut.resize(cut.len().next_multiple_of(8), 0);
    let at = (cut.len() as u64).to_le_bytes();
    cut.get_mut(SECTIONS_AT..SECTIONS_AT + 8)?.copy_from_slice(&at);
    cut.extend_from_slice(&headers);
    Some(cut)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// This test's own program runs without its debug sections, and is smaller.
    #[test]
    fn a_program_runs_without_its_debug_sections() {
        let own = std::env::current_exe().and_then(std::fs::read).expect("this program");
        let slimmed = slim(&own);
        assert!(slimmed.len() < own.len(), "{} bytes of {}", slimmed.len(), own.len());
        assert_eq!(slim(&slimmed), slimmed, "a second pass removes nothing");
        let folder = tempfile::tempdir().expect("a folder");
        let copy = folder.path().join("copy");
        std::fs::write(&copy, &*slimmed).expect("it can be written");
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&copy, permissions).expect("our own file");
        let output = std::process::Command::new(&copy).args(["--list", "a_program_runs_without"]).output();
        let output = output.expect("it runs");
        let named = String::from_utf8_lossy(&output.stdout).contains("a_program_runs_without_its_debug_sections: test");
        assert!(output.status.success() && named, "{output:?}");
    }

    #[test]
    fn a_file_that_is_not_a_program_is_not_changed() {
        for bytes in [&b""[..], b"#!/bin/sh\n", &[7; 200], b"\x7fELF\x02\x01\x01"] {
            assert_eq!(&*slim(bytes), bytes);
        }
    }

    /// A program with a loaded section, a debug section, and symbols.
    fn made() -> Vec<u8> {
        let names = b"\0.text\0.debug_line\0.symtab\0.names\0";
        let (text, lines, symbols) = (64, 80, 1_080);
        let (at, table) = (symbols + 24, 1_152);
        let mut made = vec![0; table];
        made[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        made[SECTIONS_AT..SECTIONS_AT + 8].copy_from_slice(&(table as u64).to_le_bytes());
        for (offset, value) in [(SECTION_SIZE, 64_u16), (SECTION_SIZE + 2, 5), (SECTION_SIZE + 4, 4)] {
            made[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        }
        made[text..lines].fill(1);
        made[lines..symbols].fill(2);
        made[symbols..at].fill(3);
        made[at..at + names.len()].copy_from_slice(names);
        let sections = [
            [0_u64; 5],
            [1, 1, LOADED, text as u64, 16],
            [7, 1, 0, lines as u64, 1_000],
            [19, 2, 0, symbols as u64, 24],
            [27, 3, 0, at as u64, names.len() as u64],
        ];
        for [name, kind, flags, at, size] in sections {
            let mut header = [0; SECTION];
            header[..4].copy_from_slice(&(name as u32).to_le_bytes());
            header[4..8].copy_from_slice(&(kind as u32).to_le_bytes());
            for (offset, value) in [(8, flags), (24, at), (32, size), (48, 8)] {
                header[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
            }
            made.extend_from_slice(&header);
        }
        made
    }

    #[test]
    fn symbols_stay_and_sections_keep_their_numbers() {
        let slimmed = slim(&made()).into_owned();
        assert!(slimmed.len() < made().len() - 900, "{} bytes", slimmed.len());
        let table = long(&slimmed, SECTIONS_AT).expect("a table");
        let section = |number: usize| Section::read(&slimmed, table + number * SECTION).expect("a section");
        assert_eq!(section(2).kind, NULL);
        let bytes = |number: usize| &slimmed[section(number).range().expect("a range")];
        assert_eq!((bytes(1), bytes(3)), (&[1; 16][..], &[3; 24][..]));
        assert!(bytes(4).starts_with(b"\0.text\0"));
    }

    proptest! {
        #[test]
        fn broken_files_do_not_panic(
            changes in proptest::collection::vec((0_usize..1_500, any::<u8>()), 0..6),
            length in 0_usize..1_500,
        ) {
            let mut bytes = made();
            bytes.truncate(length.max(7));
            for (at, value) in changes {
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
            }
            let most = bytes.len() * 8 + 4_096;
            prop_assert!(slim(&bytes).len() <= most);
        }
    }
}
