//! The state `pdu_sessions`, shared by both directions of a user plane function.
//!
//! [`upf_uplink`](crate::upf_uplink) looks sessions up by the packet's tunnel, [`upf_downlink`](crate::upf_downlink) by
//! the user's address. Sessions are read from a file and can change while packets run. All workers share one table,
//! because a user's flows are spread over all workers and the limits apply to the user.

mod accounts;
mod condition;
mod control;
mod limit;
mod line;
mod places;
mod rules;
mod users;

use std::sync::Arc;

use forebay_graph::{
    DeclareState, Reader, Setup, SetupError,
    files::{MOST_TABLE, read_text},
    register,
};
use forebay_packet::{Network, Packet, wire::ipv6};
use forebay_tables::parameters::no_memory;
use forebay_tables::sessions::Seed;
use forebay_units::{Nanos, Ticks};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use accounts::Direction;
use accounts::{Accounts, MOST_RULES, Writer};
use condition::{Condition, Seen};
pub use control::Core;
use control::{EndedTable, Limits, UsageTable};
use limit::Clock;
use line::{MOST_BEARERS, Name};
pub(crate) use rules::GROUP;
use rules::{Rules, Scratch};
use users::{Bearer, Filters, Session, Step, Users};

/// Parameters of a state `pdu_sessions`.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Params {
    /// The sessions at the start: a file's name or a list, one session per line, such as `10.60.0.1 teid=0x1001
    /// peer=192.0.2.10 peer-teid=0x2001 qfi=9 ambr-down=200Mbps`. None by default.
    sessions: Option<Source>,
    /// The charging rules: a file's name or a list, one rule per line, such as `7 tcp net=198.51.100.0/24 port=443`.
    /// The first rule that matches a packet is charged. None by default: all packets are counted under `other`.
    rules: Option<Source>,
    /// The largest number of sessions, 65536 by default. docs/upf.md describes the memory for a session.
    #[schemars(extend("default" = 65_536))]
    limit: Option<usize>,
    /// The largest number of bearers of all sessions, by default twice the value of `limit`.
    bearers: Option<usize>,
    /// The number of rules for which a user can have separate counts at a time, 1 to 64, 4 by default. Further rules
    /// are counted under `other`.
    #[schemars(extend("default" = 4))]
    rules_per_user: Option<usize>,
    /// The burst of rates without their own burst, as a time: 1ms to 1min, 100ms by default. The bytes that the rate
    /// allows in this time may be sent at once, and at least 16 KiB.
    #[schemars(extend("default" = "100ms"))]
    burst: Option<Nanos>,
    /// The number of ended sessions whose counts are kept until they are removed from the table `ended`. When it is
    /// reached, removals of sessions are refused. With 0, the default, counts of ended sessions are not kept.
    #[schemars(extend("default" = 0))]
    ended: Option<usize>,
}

/// The source of lines.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(untagged, expecting = "expected a file's name, or a list of lines")]
enum Source {
    /// A file's name, relative to the configuration.
    File(String),
    /// The lines of such a file.
    List(Vec<String>),
}

/// The default number of sessions.
const SESSIONS: usize = 1 << 16;
/// The largest `limit`, and the largest `bearers`.
const MOST: usize = 1 << 24;
/// The number of errors of a file that are reported one by one. Further errors are only counted.
const MOST_FAULTS: usize = 20;

/// Sessions, charging rules and counts.
pub struct PduSessions {
    /// The sessions, their limits and their counts.
    core: Arc<Core>,
    /// The charging rules. They do not change.
    rules: Arc<Rules>,
}

/// The lines of a file or list, with the location that errors name.
struct Lines {
    parameter: &'static str,
    /// The file's name; `None` for a list.
    file: Option<String>,
    text: Vec<String>,
}

impl Lines {
    /// Reads the lines of a parameter; no lines if the parameter is not given.
    fn read(parameter: &'static str, source: Option<&Source>, setup: &Setup<'_>) -> Result<Self, SetupError> {
        let (file, text) = match source {
            None => (None, Vec::new()),
            Some(Source::List(list)) => (None, list.clone()),
            Some(Source::File(name)) => {
                let bytes = read_text(&setup.path(parameter, name)?, MOST_TABLE)
                    .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other));
                let text =
                    bytes.map_err(|error| SetupError::at(parameter, format!("cannot read '{name}': {error}")))?;
                (Some(name.clone()), text.lines().map(str::to_owned).collect())
            }
        };
        Ok(Self { parameter, file, text })
    }

    /// Returns the lines with their indices from 0, without the lines that are empty or contain only a comment.
    fn non_empty(&self) -> Vec<(usize, &str)> {
        let lines = self.text.iter().map(String::as_str).enumerate();
        lines.filter(|(_, line)| !line::without_comment(line).is_empty()).collect()
    }

    /// Returns an error about a line. `number` is the line's index from 0. The message about a file counts lines from
    /// 1.
    fn fault(&self, number: usize, message: &str) -> SetupError {
        match &self.file {
            Some(file) => SetupError::at(self.parameter, format!("{file}:{}: {message}", number + 1)),
            None => SetupError::at(format!("{}[{number}]", self.parameter), message),
        }
    }
}

/// Errors of lines. The first [`MOST_FAULTS`] are reported one by one, the others are only counted.
#[derive(Default)]
struct Faults {
    reported: SetupError,
    further: usize,
}

impl Faults {
    fn add(&mut self, fault: SetupError) {
        if self.reported.faults.len() < MOST_FAULTS {
            self.reported.and(fault);
        } else {
            self.further += 1;
        }
    }

    /// Returns all errors, or `Ok` if there are none.
    fn end(mut self, parameter: &str) -> Result<(), SetupError> {
        if self.further > 0 {
            self.reported.and(SetupError::at(parameter, format!("{} further errors", self.further)));
        }
        if self.reported.faults.is_empty() { Ok(()) } else { Err(self.reported) }
    }
}

impl PduSessions {
    /// Creates the access of a module to the sessions, for packets in one direction on one worker. Registers the tables
    /// `sessions`, `usage` and `ended`, and the counter `unlisted`.
    pub(crate) fn worker(&self, direction: Direction, setup: &mut Setup<'_>) -> Worker {
        let unlisted = setup.counters("charged", ["unlisted".to_owned()]);
        setup.table("sessions", Arc::clone(&self.core) as Arc<dyn forebay_graph::Table>);
        setup.table("usage", Arc::new(UsageTable(Arc::clone(&self.core))));
        setup.table("ended", Arc::new(EndedTable(Arc::clone(&self.core))));
        Worker {
            users: Reader::new(Arc::clone(&self.core.live)),
            writer: Writer::new(&self.core.accounts, direction, unlisted),
            rules: Arc::clone(&self.rules),
            scratch: Box::default(),
        }
    }
}

impl DeclareState for PduSessions {
    type Params = Params;
    const NAME: &'static str = "pdu_sessions";
    const SUMMARY: &'static str =
        "users' sessions that upf_uplink and upf_downlink share: tunnels, limits, bearers, charging";
    const EXAMPLE: &'static str = "\
        { sessions: [\"10.60.0.1 teid=0x1001 peer=192.0.2.10 peer-teid=0x2001 qfi=9 ambr-down=200Mbps bearer qfi=1 gbr \
        filter=10,udp,port=5060\"], rules: [\"7 tcp port=443\"] }";

    fn new(params: Params, setup: &mut Setup<'_>) -> Result<Self, SetupError> {
        let within = |name: &str, value: Option<usize>, default: usize, least: usize, most: usize| {
            let value = value.unwrap_or(default);
            if !(least..=most).contains(&value) {
                return Err(SetupError::not_allowed(name, value, format!("{least} to {most}")));
            }
            Ok(value)
        };
        let sessions = within("limit", params.limit, SESSIONS, 1, MOST)?;
        let bearers = within("bearers", params.bearers, (sessions * 2).min(MOST), 1, MOST)?;
        let rules_per_user = within("rules_per_user", params.rules_per_user, 4, 1, MOST_RULES)?;
        let ended = within("ended", params.ended, 0, 0, MOST)?;
        let burst = params.burst.unwrap_or(Nanos(100_000_000));
        if !(1_000_000..=60_000_000_000).contains(&burst.0) {
            return Err(SetupError::not_allowed("burst", burst, "1ms to 1min"));
        }
        let lines = Lines::read("sessions", params.sessions.as_ref(), setup)?;
        let rules = Lines::read("rules", params.rules.as_ref(), setup)?;
        let seed = setup.secret();
        let rules = Arc::new(compile(&rules, seed)?);
        let clock = Clock { frequency: setup.frequency(), burst };
        let most = Limits { sessions, bearers, ended };
        // The key contains everything that determines the sessions. If a changed configuration has the same key, the
        // current sessions continue.
        let settings = serde_json::to_string(&params).unwrap_or_default();
        let key = format!("pdu_sessions {} {settings} {:x}", setup.name(), fingerprint(&lines.text));
        let core = setup.handed_over(&key, |_| {
            let purpose = || format!("{sessions} sessions with {bearers} bearers");
            let accounts = Accounts::new(sessions, bearers + MOST_BEARERS, rules_per_user)
                .map_err(no_memory("limit", purpose()))?;
            let mut faults = Faults::default();
            let core =
                Core::new(&lines.non_empty(), clock, most, Arc::new(accounts), Seed::new(seed), |number, message| {
                    faults.add(lines.fault(number, &message));
                });
            faults.end("sessions").and_then(|()| core.map_err(no_memory("limit", purpose())))
        })?;
        Ok(Self { core, rules })
    }
}

/// Compiles the charging rules in these lines. An error lists the faults of the first lines.
fn compile(lines: &Lines, seed: u64) -> Result<Rules, SetupError> {
    let mut faults = Faults::default();
    let mut list: Vec<(u32, Condition)> = Vec::new();
    for (number, line) in lines.non_empty() {
        match rules::parse(line) {
            Ok(rule) => list.push(rule),
            Err(message) => faults.add(lines.fault(number, &message)),
        }
    }
    faults.end("rules")?;
    Rules::of(&list, seed).map_err(|message| SetupError::at("rules", message))
}

/// Returns a hash of texts (FNV-1a).
fn fingerprint(lines: &[String]) -> u64 {
    let bytes = lines.iter().flat_map(|line| line.bytes().chain([b'\n']));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A module's access to the sessions, on one worker.
pub(crate) struct Worker {
    /// The sessions, which the control plane may change between two batches.
    users: Reader<Users, Vec<Step>>,
    /// The limits and counts, which packets change.
    writer: Writer,
    rules: Arc<Rules>,
    scratch: Box<Scratch>,
}

/// The decision about a packet.
pub(crate) enum Verdict {
    /// The packet passes. In the downlink, `gtpu_encap` puts the packet into this tunnel.
    Pass(Tunnel),
    /// In the uplink: no session has the packet's tunnel. In the downlink: no user has the packet's destination.
    Unknown,
    /// The packet's source is not the address of the tunnel's user.
    Spoofed,
    /// A limit is exceeded.
    OverRate,
    /// The packet names a QoS flow other than the QoS flow of its bearer.
    WrongFlow,
    /// The session has no tunnel to the user.
    NoTunnel,
    /// The packet is not a complete IP packet.
    Unfit,
    /// A filter or a rule needs the packet's protocol or ports, and they cannot be read (see
    /// [`Hidden`](forebay_packet::Hidden)).
    Undecidable,
}

/// The tunnel to a user, in the downlink. The uplink does not use this value. If the session has no tunnel to its user,
/// `peer` and `teid` are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tunnel {
    /// The peer's IPv4 address, as a number in host byte order: 192.0.2.10 is `0xc000_020a`. `gtpu_encap` reads the
    /// address in this form.
    pub(crate) peer: u32,
    /// The tunnel endpoint identifier that the peer has assigned.
    pub(crate) teid: u32,
    /// The QoS flow; 0 if the bearer has none.
    pub(crate) qfi: u8,
}

/// The fields of a packet that a [`Worker`] needs.
#[derive(Clone, Copy, Default)]
pub(crate) struct PacketFields {
    /// The length of the IP packet, without the headers before it; 0 if the packet is not a complete IP packet.
    pub(crate) length: u32,
    /// In the uplink: the tunnel in which the packet came.
    pub(crate) teid: u32,
    /// In the uplink: the QoS flow that the packet names, with [`HAS_QFI`](crate::gtpu_decap::HAS_QFI) set; 0 if it
    /// names none.
    pub(crate) flow: u32,
    /// The user's address: the source in the uplink, the destination in the downlink.
    pub(crate) name: Option<UserName>,
}

/// The address by which a packet names its user: an IPv4 address, or the upper 64 bits of an IPv6 address (the user's
/// /64).
pub(crate) type UserName = Name;

impl UserName {
    /// Returns the name of an IPv4 address.
    #[inline(always)]
    pub(crate) fn ipv4(address: [u8; 4]) -> Self {
        Self::V4(u32::from_be_bytes(address))
    }

    /// Returns the name of an IPv6 address.
    #[inline(always)]
    pub(crate) fn ipv6(address: [u8; 16]) -> Self {
        Self::V6((u128::from_be_bytes(address) >> 64) as u64)
    }
}

impl Worker {
    /// Decides about up to [`GROUP`] packets from users, and counts the packets that pass. `fields[i]` contains the
    /// fields of packet i. `misaligned` is called for each packet that names a QoS flow other than the QoS flow of its
    /// bearer, and returns true to refuse the packet. `report` is called once for each packet.
    #[inline]
    pub(crate) fn up(
        &mut self,
        batch: &mut [Packet],
        fields: &[PacketFields; GROUP],
        now: Ticks,
        mut misaligned: impl FnMut() -> bool,
        mut report: impl FnMut(usize, &mut Packet, Verdict),
    ) {
        let Self { users, writer, rules, scratch } = self;
        let users = users.read();
        let mut teids = [0; GROUP];
        teids.iter_mut().zip(fields).for_each(|(teid, fields)| *teid = fields.teid);
        let mut found = [u32::MAX; GROUP];
        users.find_bearers(&teids, &mut found);
        let mut charged = [0; GROUP];
        let undecidable = rules.classify(batch, true, scratch, &mut charged);
        for number in found.iter().take(batch.len()) {
            if let Some(bearer) = users.bearer(*number) {
                writer.prefetch(bearer.session);
            }
        }
        for (index, packet) in batch.iter_mut().enumerate().take(GROUP) {
            let fields = &fields[index];
            let verdict = match users.bearer(found[index]) {
                _ if fields.length == 0 => Verdict::Unfit,
                Some(bearer) => match users.session(bearer.session) {
                    Some(session) if is_of(session, fields.name) => 'verdict: {
                        let mut number = found[index];
                        if undecidable >> index & 1 == 1 {
                            break 'verdict Verdict::Undecidable;
                        }
                        if bearer.several {
                            let Some(other) = session.bearer_of(|| Seen::of(packet, true).unwrap_or_default()) else {
                                break 'verdict Verdict::Undecidable;
                            };
                            let same = users.bearer(other).is_some_and(|other| other.teid == bearer.teid);
                            number = if same { other } else { number };
                        }
                        let bearer = users.bearer(number).unwrap_or(bearer);
                        let aligned = fields.flow == 0 || bearer.has_flow(fields.flow);
                        if aligned || may_be_of_flow(packet, &users, session, fields) || !misaligned() {
                            count(writer, (number, bearer), session, fields.length, Direction::Up, now, charged[index])
                        } else {
                            Verdict::WrongFlow
                        }
                    }
                    _ => Verdict::Spoofed,
                },
                None => Verdict::Unknown,
            };
            report(index, packet, verdict);
        }
    }

    /// Decides about up to [`GROUP`] packets to users, and counts the packets that pass. `fields[i]` contains the
    /// fields of packet i. `report` is called once for each packet.
    #[inline]
    pub(crate) fn down(
        &mut self,
        batch: &mut [Packet],
        fields: &[PacketFields; GROUP],
        now: Ticks,
        mut report: impl FnMut(usize, &mut Packet, Verdict),
    ) {
        let Self { users, writer, rules, scratch } = self;
        let users = users.read();
        // Packets without an address are looked up by 0, which is no user's address.
        let mut names = [Name::V4(0); GROUP];
        names.iter_mut().zip(fields).for_each(|(name, fields)| *name = fields.name.unwrap_or(Name::V4(0)));
        let mut found = [u32::MAX; GROUP];
        users.find_sessions(&names, &mut found);
        users.prefetch_filters(&found, Filters::Lists);
        let mut charged = [0; GROUP];
        let undecidable = rules.classify(batch, false, scratch, &mut charged);
        users.prefetch_filters(&found, Filters::Conditions);
        found.iter().take(batch.len()).filter(|number| **number != u32::MAX).for_each(|it| writer.prefetch(*it));
        for (index, packet) in batch.iter_mut().enumerate().take(GROUP) {
            let fields = &fields[index];
            let verdict = match users.session(found[index]) {
                _ if fields.length == 0 => Verdict::Unfit,
                Some(session) => {
                    let number = session.bearer_of(|| Seen::of(packet, false).unwrap_or_default());
                    match number.and_then(|number| Some((number, users.bearer(number)?))) {
                        None if number.is_none() => Verdict::Undecidable,
                        Some(_) if undecidable >> index & 1 == 1 => Verdict::Undecidable,
                        Some((number, bearer)) if bearer.peer_teid != 0 => count(
                            writer,
                            (number, bearer),
                            session,
                            fields.length,
                            Direction::Down,
                            now,
                            charged[index],
                        ),
                        _ => Verdict::NoTunnel,
                    }
                }
                None => Verdict::Unknown,
            };
            report(index, packet, verdict);
        }
    }
}

/// Returns true if the packet is a later fragment, and a bearer of its session has the fragment's tunnel and the QoS
/// flow that the fragment names. A later fragment contains no ports, so the filters may have selected another bearer.
#[cold]
fn may_be_of_flow(packet: &mut Packet, users: &Users, session: &Session, fields: &PacketFields) -> bool {
    let filters = session.filters.as_deref().map(Vec::as_slice).unwrap_or_default();
    let mut bearers = filters.iter().map(|(_, bearer)| *bearer).chain([session.first]);
    let is_later = match packet.network() {
        (Network::Ipv4, _) => packet.ipv4().is_some_and(|header| header.fragment_offset() != 0),
        (Network::Ipv6, start) => ipv6::is_later_fragment(packet.data(), start),
        (Network::Other, _) => false,
    };
    let of_tunnel = |bearer: &Bearer| bearer.teid == fields.teid && bearer.has_flow(fields.flow);
    is_later && bearers.any(|number| users.bearer(number).is_some_and(of_tunnel))
}

/// Returns whether an address belongs to the session's user.
#[inline(always)]
fn is_of(session: &Session, name: Option<Name>) -> bool {
    match name {
        Some(Name::V4(address)) => session.user.ipv4 == address && address != 0,
        Some(Name::V6(prefix)) => session.user.ipv6 == prefix && prefix != 0,
        None => false,
    }
}

/// Checks a packet against the limits of its bearer and its session. If it passes, charges it under `rule`. `number` is
/// the number of `bearer`. Packets of a bearer with a guaranteed rate are not checked against the session's limit.
#[inline(always)]
fn count(
    writer: &Writer,
    (number, bearer): (u32, &Bearer),
    session: &Session,
    bytes: u32,
    direction: Direction,
    now: Ticks,
    rule: u32,
) -> Verdict {
    let aggregate = (!bearer.guaranteed).then_some(session.limits[direction as usize]);
    if !writer.take((number, bearer.limits[direction as usize]), (bearer.session, aggregate), bytes, now) {
        return Verdict::OverRate;
    }
    writer.charge(bearer.session, rule, bytes);
    Verdict::Pass(Tunnel { peer: bearer.peer, teid: bearer.peer_teid, qfi: bearer.qfi })
}

/// Fuzz entry: parses any text as lines of sessions and of rules. Every accepted line must be parsed again from its
/// listed form.
pub fn fuzz_lines(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let clock = Clock { frequency: forebay_units::Frequency::new(1e9), burst: Nanos(100_000_000) };
    for line in text.lines() {
        if let Ok(read) = line::Line::parse(line, clock) {
            assert_eq!(line::Line::parse(&read.text, clock).as_ref(), Ok(&read));
        }
        if let Ok(rule) = rules::parse(line) {
            assert!(Rules::of(&[rule], 1).is_ok());
        }
    }
}

register!(state PduSessions);

#[cfg(test)]
mod tests;
