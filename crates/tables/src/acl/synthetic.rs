//! Generates rule lists and packets of the shape of real filter sets, from a seed.
//!
//! Real filter sets share a structure (Taylor and Turner, "ClassBench", INFOCOM 2005, section 3). Many rules name the
//! same few networks, most often hosts and /24s. Sources are wider than destinations. Source ports are almost always
//! unconstrained, and destination ports are mostly one well-known service. The shares below follow the access lists
//! described there. Random fields would make sets that no operator writes and tables that never share a row.

use super::key::{Decision, HeaderKey, Hits};
use super::oracle;
use super::rule::{Action, PortRange, ProtocolMatch, Rule, RuleAddress, RulePrefix};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const SERVICES: [u16; 16] = [80, 443, 22, 53, 25, 123, 161, 389, 445, 993, 1433, 1521, 3306, 3389, 5060, 8080];
/// The average number of rules that name the same network.
const RULES_PER_SITE: usize = 8;
/// The number of tries for each key that no rule matches.
const TRIES: usize = 256;

/// Random fields of rules. Equal seeds give equal lists on every machine.
struct Random(forebay_units::Random);

impl Random {
    fn next(&mut self) -> u64 {
        self.0.bits()
    }

    fn wide(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    /// Draws an index below `bound`. Returns 0 if `bound` is 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn port(&mut self) -> u16 {
        self.next() as u16
    }

    /// Draws one of `choices`, each with its share in percent. The last one also gets the remaining percent.
    fn choose<T: Copy>(&mut self, choices: &[(usize, T)]) -> T {
        let mut drawn = self.below(100);
        for &(share, choice) in choices {
            if drawn < share {
                return choice;
            }
            drawn -= share;
        }
        choices[choices.len() - 1].1
    }
}

/// Draws a unicast address in the family's usual range.
fn address<A: RuleAddress>(random: &mut Random) -> A {
    match A::BITS {
        // 1.0.0.0 to 223.255.255.255
        32 => A::truncate((1 << 24) + random.wide() % (223 << 24)),
        // 2000::/3
        _ => A::truncate(random.wide() >> 3 | 1 << 125),
    }
}

/// Draws an address inside a prefix.
fn inside<A: RuleAddress>(prefix: RulePrefix<A>, random: &mut Random) -> A {
    A::truncate(prefix.first().widen() | (random.wide() & (prefix.last().widen() - prefix.first().widen())))
}

/// Draws a prefix around or inside a site's network. `lengths` are IPv4 lengths with their shares; they are scaled to
/// the family's bits.
fn prefix<A: RuleAddress>(site: A, lengths: &[(usize, u8)], random: &mut Random) -> RulePrefix<A> {
    let length = random.choose(lengths) * (A::BITS / 32);
    // The site's network is the upper half of its address; the lower half differs from rule to rule.
    let network = RulePrefix::new(site, A::BITS / 2);
    RulePrefix::new(if length > A::BITS / 2 { inside(network, random) } else { site }, length)
}

/// Generates `count` rules. Equal seeds give equal rules.
#[must_use]
pub fn rules<A: RuleAddress>(count: usize, seed: u64) -> Vec<Rule<A>> {
    let mut random = Random(forebay_units::Random::new(seed));
    let sites: Vec<A> = (0..(count / RULES_PER_SITE).max(4)).map(|_| address(&mut random)).collect();
    (0..count).map(|_| rule(&sites, &mut random)).collect()
}

/// Generates `count` rules that take as much as possible to compile. They differ in the ranges of both ports and in
/// bits of the protocol, so that hardly any two combinations of these fields match the same rules.
#[must_use]
pub fn costly<A: RuleAddress>(count: usize) -> Vec<Rule<A>> {
    let ports = |at: usize, step: u16| {
        let low = (at as u16).wrapping_mul(step) % 60_000;
        PortRange::new(low, low + 2_500)
    };
    let rule = |at| Rule {
        sport: ports(at, 37),
        dport: ports(at, 101),
        protocol: ProtocolMatch::new(u8::MAX, 1 << (at % 8)),
        ..Rule::any(if at % 3 == 0 { Action::Permit } else { Action::Deny })
    };
    (0..count).map(rule).collect()
}

/// Draws a rule between two sites.
fn rule<A: RuleAddress>(sites: &[A], random: &mut Random) -> Rule<A> {
    let src_site = sites[random.below(sites.len())];
    let dst_site = sites[random.below(sites.len())];
    let src = prefix(src_site, &[(20, 0), (5, 8), (15, 16), (5, 20), (30, 24), (5, 28), (20, 32)], random);
    let dst = prefix(dst_site, &[(5, 0), (10, 16), (5, 20), (30, 24), (5, 28), (45, 32)], random);
    let protocol = random.choose(&[(60, Some(TCP)), (22, Some(UDP)), (5, Some(ICMP)), (13, None)]);
    let (mut sport, mut dport) = (PortRange::ANY, PortRange::ANY);
    if matches!(protocol, Some(TCP | UDP)) {
        let start = random.port();
        let service = SERVICES[random.below(SERVICES.len())];
        let user = PortRange::new(1024, u16::MAX);
        sport = random.choose(&[(92, PortRange::ANY), (5, user), (3, PortRange::new(service, service))]);
        let exact = PortRange::new(service, service);
        let odd = PortRange::new(start, start);
        let some = PortRange::new(start, start.saturating_add(random.port() % 1000));
        dport = random.choose(&[(25, PortRange::ANY), (48, exact), (10, odd), (7, user), (10, some)]);
    }
    // A rule for all addresses must name at least a service, or no packet would reach the rules below it.
    if src == RulePrefix::ANY && dst == RulePrefix::ANY && dport.is_any() {
        return Rule { src: RulePrefix::new(src_site, A::BITS), dst, ..rule(sites, random) };
    }
    let action = random.choose(&[(70, Action::Permit), (25, Action::Deny), (5, Action::Count)]);
    let protocol = protocol.map_or(ProtocolMatch::ANY, ProtocolMatch::exactly);
    Rule { src, dst, sport, dport, protocol, action }
}

/// Draws a key that `rule` matches.
fn matching<A: RuleAddress>(rule: &Rule<A>, random: &mut Random) -> HeaderKey<A> {
    let (src, dst) = (inside(rule.src, random), inside(rule.dst, random));
    let free = !rule.protocol.mask();
    let protocol = rule.protocol.value() | if free == u8::MAX { TCP } else { random.next() as u8 & free };
    if rule.constrains_icmp() {
        return HeaderKey::icmp(src, dst, rule.sport.low() as u8, rule.dport.low() as u8);
    }
    if protocol == ICMP && !rule.constrains_ports() {
        return HeaderKey::without_ports(src, dst, protocol);
    }
    let mut port = |range: PortRange| {
        let ports = u32::from(range.high() - range.low()) + 1;
        range.low() + (u32::from(random.port()) % ports) as u16
    };
    HeaderKey::new(src, dst, port(rule.sport), port(rule.dport), protocol)
}

/// Draws a key of typical traffic: about half of the addresses are in networks that rules name.
fn passing<A: RuleAddress>(rules: &[Rule<A>], random: &mut Random) -> HeaderKey<A> {
    let near = |of: fn(&Rule<A>) -> RulePrefix<A>, random: &mut Random| match rules.get(random.below(rules.len() * 2)) {
        Some(rule) => inside(RulePrefix::new(of(rule).first(), A::BITS / 2), random),
        None => address(random),
    };
    let (src, dst) = (near(|rule| rule.src, random), near(|rule| rule.dst, random));
    match random.choose(&[(75, TCP), (20, UDP), (5, ICMP)]) {
        ICMP => HeaderKey::without_ports(src, dst, ICMP),
        protocol => {
            let service = SERVICES[random.below(SERVICES.len())];
            let dport = random.choose(&[(60, service), (40, random.0.state() as u16)]);
            HeaderKey::new(src, dst, 1024 + random.port() % 64_000, dport, protocol)
        }
    }
}

/// Draws `count` keys. Each matches a rule that is drawn from `rules`, but an earlier rule may decide about the key.
/// Returns no keys if there are no rules.
#[must_use]
pub fn hitting_keys<A: RuleAddress>(rules: &[Rule<A>], count: usize, seed: u64) -> Vec<HeaderKey<A>> {
    let mut random = Random(forebay_units::Random::new(seed));
    let count = if rules.is_empty() { 0 } else { count };
    (0..count).map(|_| matching(&rules[random.below(rules.len())], &mut random)).collect()
}

/// Draws up to `count` keys that no rule decides about; fewer if the rules decide about nearly all keys.
#[must_use]
pub fn missing_keys<A: RuleAddress>(rules: &[Rule<A>], count: usize, seed: u64) -> Vec<HeaderKey<A>> {
    let mut random = Random(forebay_units::Random::new(seed));
    let mut hits = Hits::new(rules.len());
    let mut misses = |key: &HeaderKey<A>| oracle::classify(rules, Decision::Deny, key, &mut hits).rule().is_none();
    let candidates = (0..count.saturating_mul(TRIES)).map(|_| passing(rules, &mut random));
    candidates.filter(|key| misses(key)).take(count).collect()
}

/// Draws `count` keys in random order. About `hit_share` of them (0 to 1) match some rule, the others match none.
#[must_use]
pub fn keys<A: RuleAddress>(rules: &[Rule<A>], count: usize, hit_share: f64, seed: u64) -> Vec<HeaderKey<A>> {
    let hits = (count as f64 * hit_share.clamp(0.0, 1.0)).round() as usize;
    let mut keys = hitting_keys(rules, hits, seed);
    keys.extend(missing_keys(rules, count - keys.len(), !seed));
    let mut random = Random(forebay_units::Random::new(seed.rotate_left(32)));
    for index in (1..keys.len()).rev() {
        keys.swap(index, random.below(index + 1));
    }
    keys
}
