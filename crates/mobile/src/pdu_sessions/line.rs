//! The text form of a session: the user, the tunnels, the limits, the bearers and their filters.
//!
//! `10.60.0.1 teid=0x1001 peer=192.0.2.10 peer-teid=0x2001 qfi=9 ambr-down=200Mbps
//! bearer qfi=1 gbr filter=10,udp,port=5060`

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::condition::{Condition, SYNTAX as CONDITIONS, whole};
use super::limit::{Clock, Limit};
use forebay_graph::short;
use forebay_tables::parameters::number;
use forebay_tunnels::settings::is_host;

/// The largest number of bearers of a session: QoS flows have 64 identifiers.
pub(super) const MOST_BEARERS: usize = 64;
/// The largest number of filters of a session.
const MOST_FILTERS: usize = 256;

/// The user of a session: an IPv4 address, an IPv6 /64 (TS 23.501 section 5.8.2.2.3), or both. 0 means no address.
/// Addresses are numbers in host byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct User {
    pub(super) ipv4: u32,
    /// The upper 64 bits of the addresses of the /64.
    pub(super) ipv6: u64,
}

/// One of a user's addresses, in the order in which sessions are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Name {
    V4(u32),
    V6(u64),
}

impl User {
    /// Returns the addresses of the user. The session is listed under the first.
    pub(super) fn names(self) -> impl Iterator<Item = Name> {
        let four = (self.ipv4 != 0).then_some(Name::V4(self.ipv4));
        let six = (self.ipv6 != 0).then_some(Name::V6(self.ipv6));
        four.into_iter().chain(six)
    }

    /// Parses `10.60.0.1`, `2001:db8:0:1::/64`, or both with a comma between them.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let shown = short(text);
        let wrong = || {
            format!(
                "'{shown}' is not a user: allowed are an IPv4 address, an IPv6 /64 such as 2001:db8:0:1::/64, or both \
                 with a comma between them"
            )
        };
        let mut user = Self::default();
        for part in text.split(',') {
            let (address, length) =
                part.split_once('/').map_or((part, None), |(address, length)| (address, Some(length)));
            match (address.parse().map_err(|_| wrong())?, length) {
                (IpAddr::V4(address), None | Some("32")) if user.ipv4 == 0 && is_host(address.to_bits()) => {
                    user.ipv4 = address.to_bits();
                }
                (IpAddr::V6(address), Some("64"))
                    if user.ipv6 == 0 && address.to_bits() as u64 == 0 && !address.is_multicast() =>
                {
                    user.ipv6 = (address.to_bits() >> 64) as u64;
                }
                _ => return Err(wrong()),
            }
        }
        if user == Self::default() { Err(wrong()) } else { Ok(user) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => write!(f, "{}", Ipv4Addr::from(*address)),
            Self::V6(prefix) => write!(f, "{}/64", Ipv6Addr::from(u128::from(*prefix) << 64)),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, name) in self.names().enumerate() {
            write!(f, "{}{name}", if at > 0 { "," } else { "" })?;
        }
        Ok(())
    }
}

/// A bearer (4G) or QoS flow (5G).
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct BearerLine {
    /// The tunnel in which packets come from the user; never 0.
    pub(super) teid: u32,
    /// The IPv4 address of the peer to which packets for the user go, as a number in host byte order; 0 if there is no
    /// tunnel to the user.
    pub(super) peer: u32,
    /// The peer's identifier of the tunnel to the user; 0 if there is none. `peer` and `peer_teid` are both 0, or both
    /// are not 0.
    pub(super) peer_teid: u32,
    /// The QoS flow, 0 to 63; 0 if none is given.
    pub(super) qfi: u8,
    /// The limits of the bearer, in the uplink and the downlink.
    pub(super) limits: [Limit; 2],
    /// True if the rate is guaranteed. The bearer's packets then do not count in the aggregate limits (TS 23.501
    /// section 5.7.2.6).
    pub(super) guaranteed: bool,
    /// The filters that select the bearer's packets, each with its precedence. Filters with lower precedence are
    /// checked first.
    pub(super) filters: Vec<(u32, Condition)>,
}

/// A session as a line describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) user: User,
    /// The aggregate limits of all bearers without guaranteed rate, in the uplink and the downlink.
    pub(super) limits: [Limit; 2],
    /// The bearers, at least one. The first bearer carries the packets that match no filter.
    pub(super) bearers: Vec<BearerLine>,
    /// The line without its comment, its words separated by one space.
    pub(super) text: Box<str>,
}

/// Returns a line without its comment, which starts with `#`.
pub(super) fn without_comment(line: &str) -> &str {
    line.split('#').next().unwrap_or_default().trim_ascii()
}

impl Line {
    /// Parses a line, which must not be empty. An error describes the first fault.
    pub(super) fn parse(line: &str, clock: Clock) -> Result<Self, String> {
        let line = without_comment(line);
        let mut words = line.split_ascii_whitespace();
        let user = User::parse(words.next().unwrap_or_default())?;
        let mut limits = [Limit::default(); 2];
        let mut bearers = vec![BearerLine::default()];
        let mut given: Vec<&str> = Vec::new();
        for word in words {
            let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            if name == "bearer" && value.is_none() {
                if bearers.len() == MOST_BEARERS {
                    return Err(format!("more than {MOST_BEARERS} bearers: allowed are up to {MOST_BEARERS}"));
                }
                // A bearer that names no tunnel has the tunnel of the first bearer.
                let BearerLine { teid, peer, peer_teid, .. } = bearers[0];
                bearers.push(BearerLine { teid, peer, peer_teid, ..BearerLine::default() });
                given.clear();
                continue;
            }
            if given.contains(&name) && name != "filter" {
                return Err(format!("'{name}' is given twice for one bearer: write it once"));
            }
            given.push(name);
            let first = bearers.len() == 1;
            let Some(bearer) = bearers.last_mut() else { continue };
            match (name, value) {
                ("ambr-up" | "ambr-down", Some(value)) if first => {
                    limits[usize::from(name == "ambr-down")] = at(name, Limit::parse(value, clock))?;
                }
                ("mbr-up" | "mbr-down", Some(value)) => {
                    bearer.limits[usize::from(name == "mbr-down")] = at(name, Limit::parse(value, clock))?;
                }
                ("teid", Some(value)) => bearer.teid = at(name, teid(value))?,
                ("peer-teid", Some(value)) => bearer.peer_teid = at(name, teid(value))?,
                ("peer", Some(value)) => bearer.peer = at(name, peer(value))?,
                ("qfi", Some(value)) => {
                    let shown = short(value);
                    let qfi = whole(value, 63).ok_or_else(|| format!("qfi: '{shown}': allowed are 0 to 63"))?;
                    bearer.qfi = qfi as u8;
                }
                ("gbr", None) => bearer.guaranteed = true,
                ("filter", Some(value)) if !first => bearer.filters.push(at(name, filter(value))?),
                ("filter", Some(_)) => {
                    return Err(
                        "filter: the first bearer carries all packets that match no filter: write filters after \
                         'bearer'"
                            .to_owned(),
                    );
                }
                ("ambr-up" | "ambr-down", Some(_)) => {
                    return Err(format!("{name} applies to the whole session: write it before the first 'bearer'"));
                }
                _ => {
                    let shown = short(word);
                    return Err(format!(
                        "'{shown}': allowed are teid=, peer=, peer-teid=, qfi=, gbr, ambr-up=, ambr-down=, mbr-up=, \
                         mbr-down=, filter= and bearer"
                    ));
                }
            }
        }
        for (index, bearer) in bearers.iter().enumerate() {
            if bearer.teid == 0 {
                return Err("the tunnel is missing: write teid=, 1 to 4294967295".to_owned());
            }
            if (bearer.peer == 0) != (bearer.peer_teid == 0) {
                return Err(
                    "the tunnel to the user is incomplete: write both peer=ADDRESS and peer-teid=NUMBER, or omit both"
                        .to_owned(),
                );
            }
            if index > 0 && bearer.filters.is_empty() {
                return Err("a further bearer needs a filter: write filter=PRECEDENCE,CONDITION".to_owned());
            }
        }
        let filters: usize = bearers.iter().map(|bearer| bearer.filters.len()).sum();
        if filters > MOST_FILTERS {
            return Err(format!("{filters} filters: allowed are up to {MOST_FILTERS} per session"));
        }
        let text = line.split_ascii_whitespace().collect::<Vec<_>>().join(" ").into();
        Ok(Self { user, limits, bearers, text })
    }
}

/// Puts `name`, the word with the error, before the message.
fn at<T>(name: &str, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|message| format!("{name}: {message}"))
}

/// Parses a tunnel endpoint identifier, which is not 0.
fn teid(text: &str) -> Result<u32, String> {
    let shown = short(text);
    let found = number(text).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
    found.ok_or_else(|| format!("'{shown}': allowed are 1 to 4294967295, or 0x1 to 0xffffffff"))
}

/// Parses the IPv4 address of a single host. Returns the address as a number in host byte order.
fn peer(text: &str) -> Result<u32, String> {
    let shown = short(text);
    let address = text.parse::<Ipv4Addr>().ok().map(Ipv4Addr::to_bits).filter(|address| is_host(*address));
    address.ok_or_else(|| format!("'{shown}': allowed are IPv4 addresses of one host"))
}

/// Parses a filter: `PRECEDENCE,CONDITION,...`
fn filter(text: &str) -> Result<(u32, Condition), String> {
    let mut parts = text.split(',');
    let first = parts.next().unwrap_or_default();
    let shown = short(first);
    let precedence = whole(first, u32::MAX)
        .ok_or_else(|| format!("'{shown}' is not a precedence: allowed are 0 to 4294967295, a comma and conditions"))?;
    let mut condition = Condition::default();
    let mut any = false;
    for part in parts {
        condition.add(part)?;
        any = true;
    }
    if any { Ok((precedence, condition)) } else { Err(format!("the condition is missing: allowed are {CONDITIONS}")) }
}

#[cfg(test)]
mod tests {
    use forebay_units::{Frequency, Nanos};

    use super::*;

    fn read(line: &str) -> Result<Line, String> {
        Line::parse(line, Clock { frequency: Frequency::new(1e9), burst: Nanos(100_000_000) })
    }

    #[test]
    fn sessions_are_read() {
        let line = read(
            " 10.60.0.1,2001:db8:0:1::/64  teid=0x1001 peer=192.0.2.10 peer-teid=7 qfi=9 ambr-down=8Mbps \
             bearer qfi=1 gbr mbr-up=1Mbps filter=10,udp,net=198.51.100.0/24,port=5000-5999 filter=11,dscp=46 \
             bearer teid=0x1002 filter=5,tcp # two",
        )
        .expect("well-formed");
        assert_eq!(line.user, User { ipv4: 0x0a3c_0001, ipv6: 0x2001_0db8_0000_0001 });
        assert_eq!(line.user.to_string(), "10.60.0.1,2001:db8:0:1::/64");
        let [first, voice, other] = &line.bearers[..] else { panic!("three") };
        assert_eq!((first.teid, first.peer, first.peer_teid, first.qfi), (0x1001, 0xc000_020a, 7, 9));
        assert_eq!((voice.teid, voice.peer_teid, voice.qfi, voice.guaranteed), (0x1001, 7, 1, true));
        assert_eq!((voice.filters.len(), voice.filters[1].0), (2, 11));
        assert_eq!((other.teid, other.peer, other.guaranteed), (0x1002, 0xc000_020a, false));
        assert_ne!(line.limits[1], Limit::default());
        assert_eq!(line.limits[0], Limit::default());
        assert_eq!(read(&line.text).as_ref(), Ok(&line), "the listed line can be parsed");
    }

    #[test]
    fn errors_say_what_is_allowed() {
        for (line, part) in [
            ("", "'' is not a user"),
            ("10.60.0.0/24 teid=1", "'10.60.0.0/24' is not a user"),
            ("2001:db8::1 teid=1", "'2001:db8::1' is not a user"),
            ("10.0.0.1,10.0.0.2 teid=1", "is not a user"),
            ("0.0.0.0 teid=1", "is not a user"),
            ("::/64 teid=1", "is not a user"),
            ("10.0.0.1", "the tunnel is missing"),
            ("10.0.0.1 teid=0", "teid: '0'"),
            ("10.0.0.1 teid=1 teid=2", "'teid' is given twice"),
            ("10.0.0.1 teid=1 peer=192.0.2.1", "is incomplete"),
            ("10.0.0.1 teid=1 peer=2001:db8::1 peer-teid=1", "peer: '2001:db8::1': allowed are IPv4"),
            ("10.0.0.1 teid=1 qfi=64", "qfi: '64': allowed are 0 to 63"),
            ("10.0.0.1 teid=1 ambr-up=fast", "ambr-up: "),
            ("10.0.0.1 teid=1 speed=9", "'speed=9': allowed are teid="),
            ("10.0.0.1 teid=1 filter=1,tcp", "the first bearer carries"),
            ("10.0.0.1 teid=1 bearer qfi=1", "needs a filter"),
            ("10.0.0.1 teid=1 bearer filter=1", "the condition is missing"),
            ("10.0.0.1 teid=1 bearer filter=x,tcp", "'x' is not a precedence"),
            ("10.0.0.1 teid=1 bearer filter=1,tcp,udp", "given twice"),
            ("10.0.0.1 teid=1 bearer filter=1,port=9-1", "'port=9-1': allowed are"),
            ("10.0.0.1 teid=1 bearer filter=1,net=10.0.0.1/8", "the prefix is 10.0.0.0/8"),
            ("10.0.0.1 teid=1 bearer filter=1,dscp=64", "'dscp=64': allowed are"),
            ("10.0.0.1 teid=1 bearer ambr-up=1Mbps filter=1,tcp", "before the first 'bearer'"),
        ] {
            let error = read(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
        let many = format!("10.0.0.1 teid=1{}", " bearer filter=1,tcp".repeat(MOST_BEARERS));
        assert!(read(&many).expect_err("too many").contains("more than 64 bearers"));
        assert!(read(&"x".repeat(1 << 16)).expect_err("long").len() < 300);
    }
}
