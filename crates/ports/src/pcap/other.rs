//! Recognises, by their first bytes, formats that cannot be read. The error for such a file names the format.

/// The number of bytes that are sufficient to recognise each of these formats. A longer magic number in [`MAGIC`]
/// requires a larger value.
pub(super) const LONGEST_MAGIC: usize = 16;

/// Returns the name of the format that starts with these bytes, with an article. Returns `None` if the format is
/// unknown.
pub(super) fn name(first: &[u8]) -> Option<&'static str> {
    MAGIC.iter().find(|(magic, _)| first.starts_with(magic)).map(|(_, name)| *name).or_else(|| erf(first))
}

/// The first bytes of formats, and the names of the formats.
const MAGIC: &[(&[u8], &str)] = &[
    (b"snoop\0\0\0", "a snoop capture (RFC 1761)"),
    (b"btsnoop\0", "a Bluetooth btsnoop capture"),
    (b"RTSS", "a capture of Microsoft Network Monitor 1"),
    (b"GMBU", "a capture of Microsoft Network Monitor 2"),
    (b"TRSNIFF data", "a capture of Network General Sniffer"),
    (b"XCP\0", "a capture of NetXRay or Windows Sniffer"),
    (b"VL\0\0", "a capture of NetXRay"),
    (b"iptrace 1.0", "an AIX iptrace capture"),
    (b"iptrace 2.0", "an AIX iptrace capture"),
    (b"\xaa\xaa\xaa\xaa", "a 5Views capture"),
    (b"\x05VNF", "a capture of Visual Networks"),
    (b"\x54\x52\x00\x64", "an HP-UX nettl capture"),
    (b"\x00\x00\x02\x00\x12\x05\x00\x10", "a Tektronix K12xx capture"),
    (b"\x7fver", "a capture of Peek (EtherPeek, OmniPeek)"),
    (b"LOGG", "a Vector BLF log"),
    (b"MRS\x80", "a capture of Juniper NetScreen"),
    (b"\x1c\x00\x01\xac", "an IXIA hardware capture (lcap)"),
    (b"\xac\x01\x00\x1c", "an IXIA hardware capture (lcap)"),
    (b"\x1c\x00\x01\xab", "an IXIA software capture (lcap)"),
    (b"\xab\x01\x00\x1c", "an IXIA software capture (lcap)"),
    (b"\xa1\xe2\xcb\x12", "a capture of Navtel"),
    (b"\x02\x21\x4c\x18", "an LZ4 file of the legacy frame format"),
    (b"BZh", "a bzip2 file"),
    (b"\xfd7zXZ\0", "an xz file"),
    (b"\x5d\0\0", "an lzma file"),
    (b"\x1f\x9d", "a file of the program compress"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"PK\x03\x04", "a zip archive"),
    (b"Rar!", "a RAR archive"),
];

/// Recognises Endace's ERF, which has no magic number. A record has a type from 1 to 27 in byte 8 (the highest bit
/// marks additional headers). Its length, in bytes 10 and 11, is at least the length of the header. It exceeds the
/// packet's length, in bytes 14 and 15, by at most 64.
fn erf(first: &[u8]) -> Option<&'static str> {
    let half = |at: usize| Some(usize::from(u16::from_be_bytes(*first.get(at..)?.first_chunk()?)));
    let (record, packet) = (half(10)?, half(14)?);
    let plausible = (1..=27).contains(&(first[8] & 0x7f)) && record >= 16 && record <= packet + 64 && record % 8 == 0;
    (plausible && packet > 0).then_some("an Endace ERF capture, by its looks")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_known_by_their_start() {
        assert_eq!(name(b"snoop\0\0\0\0\0\0\x02"), Some("a snoop capture (RFC 1761)"));
        assert_eq!(name(b"GET / HTTP/1.1\r\n"), None);
        let erf = [1, 2, 3, 4, 5, 6, 7, 8, 2, 4, 0, 80, 0, 0, 0, 60];
        assert_eq!(name(&erf), Some("an Endace ERF capture, by its looks"));
        assert!(MAGIC.iter().all(|(magic, _)| magic.len() <= LONGEST_MAGIC));
    }
}
