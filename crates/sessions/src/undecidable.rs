//! Help text of the drop reason `undecidable`, for functions that translate addresses.

/// The help text for packets whose network layer cannot be determined (`Packet::hides_network`).
pub(crate) const HIDES_ADDRESSES: &str = "\
    The packet has more than 4 VLAN tags, or an LLC and SNAP header before IP, or its IP header cannot be read, so \
    its addresses are not known.";

const _: () = assert!(forebay_packet::MOST_TAGS == 4, "the text names it");
