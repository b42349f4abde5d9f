//! Removes the code of the program from the resident memory.

use std::ffi::c_void;
use std::fs;
use std::path::Path;

use rustix::mm::{Advice, madvise};

/// Removes the code of this program from the resident memory. When a page is executed later, the system takes it from
/// its page cache again.
///
/// At the start, a program executes much code once: it parses its arguments, and registers its functions. A process
/// that then runs for days with little code would keep these pages, and 15 neighbours of each (fault around), as long
/// as the system has memory. Returns the number of bytes of the mappings; 0 if they cannot be found or removed.
pub fn release_program_pages() -> usize {
    let (Ok(maps), Ok(program)) = (fs::read_to_string("/proc/self/maps"), fs::read_link("/proc/self/exe")) else {
        return 0;
    };
    maps.lines()
        .filter_map(|line| code_of(line, &program))
        .filter(|(start, length)| release(*start, *length))
        .map(|(_, length)| length)
        .sum()
}

/// Returns the start and the length of a mapping of the program's code; `None` for other mappings. A mapping that can
/// be written, or that has relocated data, is never the code.
fn code_of(line: &str, program: &Path) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (range, rights) = (fields.next()?, fields.next()?);
    let path = fields.nth(3)?;
    if rights != "r-xp" || Path::new(path) != program {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let (start, end) = (number(start)?, number(end)?);
    Some((start, end.checked_sub(start)?))
}

/// Removes the pages of a mapping of code.
fn release(start: usize, length: usize) -> bool {
    // SAFETY: the range is one mapping of this process, as the kernel lists it. It is a private mapping of a file that
    // was never writable (`r-xp`, and the program has no text relocations), so all its pages are those of the file. The
    // kernel reads them again when they are accessed, with the same content (madvise(2), MADV_DONTNEED).
    unsafe { madvise(start as *mut c_void, length, Advice::LinuxDontNeed) }.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_code_of_the_program_is_found() {
        let program = Path::new("/usr/bin/forebay");
        let code = "55d0c0000000-55d0c0002000 r-xp 00001000 fe:00 12 /usr/bin/forebay";
        assert_eq!(code_of(code, program), Some((0x55d0_c000_0000, 0x2000)));
        for (from, to) in [
            ("r-xp", "r--p"),
            ("r-xp", "rw-p"),
            ("r-xp", "r-xs"),
            ("forebay", "other"),
            ("55d0c0000000", "x"),
            ("-55d0c0002000", "-0"),
        ] {
            assert_eq!(code_of(&code.replace(from, to), program), None, "{to}");
        }
        assert_eq!(code_of("", program), None);
        assert_eq!(code_of("7f00-7f01 r-xp 0 00:00 0", program), None);
    }

    #[test]
    fn the_program_continues_and_its_pages_are_no_longer_resident() {
        let resident = || {
            let smaps = fs::read_to_string("/proc/self/smaps").expect("/proc");
            let program = fs::read_link("/proc/self/exe").expect("a program");
            let mut lines = smaps.lines().skip_while(|line| code_of(line, &program).is_none());
            let rss = lines.find_map(|line| line.strip_prefix("Rss:")).expect("a size");
            rss.trim().trim_end_matches(" kB").trim().parse::<usize>().expect("a number")
        };
        let before = resident();
        assert!(release_program_pages() > 0);
        let after = resident();
        assert!(after < before, "{before} kB before, {after} kB after");
    }
}
