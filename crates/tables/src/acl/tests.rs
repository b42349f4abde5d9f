//! Tests of every back end against the oracle, with random and synthetic lists.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Checks that all back ends that hold the list give the oracle's verdicts and counts.
fn agree<A: RuleAddress>(rules: &[Rule<A>], default: Decision, keys: &[HeaderKey<A>]) {
    let mut expected_hits = Hits::new(rules.len());
    let expected: Vec<Verdict> =
        keys.iter().map(|key| oracle::classify(rules, default, key, &mut expected_hits)).collect();
    let built = Backend::ALL.map(|backend| Classifier::build_with(rules.to_vec(), default, backend));
    assert!(built[1].is_ok(), "bit vectors hold every list");
    for classifier in built.into_iter().flatten().chain(Classifier::build(rules.to_vec(), default)) {
        let mut hits = classifier.hits();
        let mut verdicts = vec![Verdict::default(); keys.len()];
        classifier.classify_batch(keys, &mut verdicts, &mut hits);
        for ((key, verdict), expected) in keys.iter().zip(&verdicts).zip(&expected) {
            assert_eq!(verdict, expected, "{} for {key:?}", classifier.backend());
        }
        assert_eq!(
            (hits.rules(), hits.by_default()),
            (expected_hits.rules(), expected_hits.by_default()),
            "{}",
            classifier.backend()
        );
    }
    let (mut verdicts, mut hits) = (vec![Verdict::default(); keys.len()], Hits::new(rules.len()));
    tuples_of(rules, default).classify_batch(keys, &mut verdicts, &mut hits);
    assert_eq!(verdicts, expected, "tuples");
    assert_eq!((hits.rules(), hits.by_default()), (expected_hits.rules(), expected_hits.by_default()), "tuples");
}

/// Returns the tuples of a list.
fn tuples_of<A: RuleAddress>(rules: &[Rule<A>], default: Decision) -> Tuples<A> {
    let mut tuples = Tuples::new(0, default, 1);
    for ((rule, label), number) in rules.iter().zip(labels(rules.len())).zip(0..) {
        tuples.apply(&Step::Insert { rule: *rule, label, number });
    }
    tuples
}

/// Overlapping prefixes: few networks, all lengths.
fn prefix<A: RuleAddress>() -> impl Strategy<Value = RulePrefix<A>> {
    let networks = [0u128, 1, u128::MAX, 0x0a01_0203_0405_0607_0809_0a0b_0c0d_0e0f];
    (prop::sample::select(networks.to_vec()), any::<u8>(), prop::bool::weighted(0.2)).prop_map(
        |(network, length, wild)| RulePrefix::new(A::truncate(network), if wild { 0 } else { length % (A::BITS + 1) }),
    )
}

fn ports() -> impl Strategy<Value = PortRange> {
    prop_oneof![
        3 => Just(PortRange::ANY),
        1 => any::<(u16, u16)>().prop_map(|(one, other)| PortRange::new(one, other)),
        1 => (0..4u16).prop_map(|port| PortRange::new(port, port)),
        1 => (250..260u16, 0..600u16).prop_map(|(low, span)| PortRange::new(low, low + span)),
        1 => (0..3u16).prop_map(|below| PortRange::new(u16::MAX - below, u16::MAX)),
    ]
}

fn rule<A: RuleAddress>() -> impl Strategy<Value = Rule<A>> {
    let protocol = prop_oneof![
        Just(ProtocolMatch::ANY),
        Just(ProtocolMatch::exactly(6)),
        Just(ProtocolMatch::exactly(A::ICMP)),
        any::<(u8, u8)>().prop_map(|(value, mask)| ProtocolMatch::new(value, mask)),
    ];
    let action = prop::sample::select(vec![Action::Permit, Action::Deny, Action::Count]);
    (prefix(), prefix(), ports(), ports(), protocol, action)
        .prop_map(|(src, dst, sport, dport, protocol, action)| Rule { src, dst, sport, dport, protocol, action })
}

/// Makes each key as drawn, or moves it to a corner of one of the rules, just inside or just outside.
fn keys<A: RuleAddress>(rules: &[Rule<A>], draws: &[(u128, u128, u16, u16, u8, u8)]) -> Vec<HeaderKey<A>> {
    draws
        .iter()
        .map(|&(src, dst, sport, dport, protocol, how)| {
            let (src, dst) = (A::truncate(src), A::truncate(dst));
            let rule = rules.get(usize::from(sport) % rules.len().max(1)).filter(|_| how & 1 != 0);
            let Some(rule) = rule else {
                return if how & 2 != 0 {
                    HeaderKey::new(src, dst, sport, dport, protocol)
                } else {
                    HeaderKey::without_ports(src, dst, protocol)
                };
            };
            let corner = |prefix: RulePrefix<A>, bits: u8| match bits & 3 {
                0 => prefix.first(),
                1 => prefix.last(),
                2 => prefix.first().before(),
                _ => A::truncate(prefix.last().widen().wrapping_add(1)),
            };
            let edge = |range: PortRange, bits: u8| match bits & 3 {
                0 => range.low(),
                1 => range.high(),
                2 => range.low().wrapping_sub(1),
                _ => range.high().wrapping_add(1),
            };
            let (src, dst) = (corner(rule.src, how >> 2), corner(rule.dst, how >> 4));
            let protocol = if how & 64 != 0 { rule.protocol.value() } else { protocol };
            if protocol == A::ICMP && how & 32 != 0 {
                HeaderKey::icmp(src, dst, edge(rule.sport, how >> 3) as u8, edge(rule.dport, how >> 6) as u8)
            } else if protocol % 5 == 4 {
                HeaderKey::without_ports(src, dst, protocol)
            } else {
                HeaderKey::new(src, dst, edge(rule.sport, how >> 3), edge(rule.dport, how >> 6), protocol)
            }
        })
        .collect()
}

/// Rules that differ only in ports and protocols, so that all have the same pair of prefixes.
fn services<A: RuleAddress>() -> impl Strategy<Value = Rule<A>> {
    let dport = prop_oneof![
        2 => (0..6u16).prop_map(|port| PortRange::new(port, port)),
        1 => ports(),
    ];
    (rule(), dport).prop_map(|(rule, dport)| Rule { src: RulePrefix::ANY, dst: RulePrefix::ANY, dport, ..rule })
}

/// Inserts, removes and relabels rules of the pool, and checks the tuples against the list after groups of steps.
fn tuples_follow<A: RuleAddress>(
    pool: &[Rule<A>],
    steps: &[(usize, u16, u8)],
    draws: &[(u128, u128, u16, u16, u8, u8)],
) {
    let mut list: BTreeMap<Label, (Rule<A>, u32)> = BTreeMap::new();
    let mut tuples = Tuples::new(0, Decision::Deny, 3);
    let keys = keys(pool, draws);
    for (at, (which, label, operation)) in steps.iter().enumerate() {
        let rule = pool[which % pool.len()];
        // Multiples of 8, so that labels between them are free to move to.
        let label = (1 << 40) + u64::from(*label) * 8;
        let present = list.range(label..).next().map(|(label, rule)| (*label, *rule));
        let number = at as u32;
        match (operation % 4, present) {
            (0 | 1, _) if !list.contains_key(&label) => {
                list.insert(label, (rule, number));
                tuples.apply(&Step::Insert { rule, label, number });
            }
            (2, Some((label, (rule, _)))) => {
                list.remove(&label);
                tuples.apply(&Step::Remove { rule, label });
            }
            (3, Some((from, (rule, number)))) if !list.contains_key(&(from + 1)) => {
                list.remove(&from);
                list.insert(from + 1, (rule, number));
                tuples.apply(&Step::Relabel { rule, from, to: from + 1 });
            }
            _ => {}
        }
        if at % 16 != 0 && at + 1 < steps.len() {
            continue;
        }
        assert_eq!((tuples.len(), tuples.is_empty()), (list.len(), list.is_empty()));
        for rule in pool {
            let present = list.iter().find(|(_, (present, _))| present == rule).map(|(label, _)| *label);
            assert_eq!(tuples.find(rule), present);
        }
        let (rules, numbers): (Vec<_>, Vec<_>) = list.values().copied().unzip();
        let mut verdicts = vec![Verdict::default(); keys.len()];
        let (mut hits, mut expected) = (Hits::new(0), Hits::new(0));
        tuples.classify_batch(&keys, &mut verdicts, &mut hits);
        for (key, verdict) in keys.iter().zip(verdicts) {
            let scan = oracle::classify(&rules, Decision::Deny, key, &mut expected);
            let number = scan.rule().map(|at| numbers[at as usize]);
            assert_eq!((verdict.decision(), verdict.rule()), (scan.decision(), number), "{key:?} of {rules:?}");
        }
        assert_eq!((hits.added(), hits.by_default()), (expected.added(), expected.by_default()));
    }
}

fn default_decision() -> impl Strategy<Value = Decision> {
    prop::sample::select(vec![Decision::Permit, Decision::Deny])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn ipv4_back_ends_equal_the_oracle(rules in prop::collection::vec(rule::<u32>(), 0..80),
            draws in prop::collection::vec(any::<(u128, u128, u16, u16, u8, u8)>(), 0..100),
            default in default_decision()) {
        agree(&rules, default, &keys(&rules, &draws));
    }

    #[test]
    fn ipv6_back_ends_equal_the_oracle(rules in prop::collection::vec(rule::<u128>(), 0..80),
            draws in prop::collection::vec(any::<(u128, u128, u16, u16, u8, u8)>(), 0..100),
            default in default_decision()) {
        agree(&rules, default, &keys(&rules, &draws));
    }

    #[test]
    fn lists_of_services_equal_the_oracle(rules in prop::collection::vec(services::<u32>(), 0..60),
            draws in prop::collection::vec(any::<(u128, u128, u16, u16, u8, u8)>(), 0..100),
            default in default_decision()) {
        agree(&rules, default, &keys(&rules, &draws));
    }

    #[test]
    fn tuples_follow_rules_that_come_and_go(
            pool in prop::collection::vec(prop_oneof![rule::<u32>(), services::<u32>()], 1..24),
            pool6 in prop::collection::vec(prop_oneof![rule::<u128>(), services::<u128>()], 1..24),
            steps in prop::collection::vec((0..24usize, 0..400u16, any::<u8>()), 0..120),
            draws in prop::collection::vec(any::<(u128, u128, u16, u16, u8, u8)>(), 0..40)) {
        tuples_follow(&pool, &steps, &draws);
        tuples_follow(&pool6, &steps, &draws);
    }

    /// So many rules of a few shapes that they are moved from a row into a crowd, and then so few that they move back.
    #[test]
    fn tuples_follow_many_equal_rules(pool in prop::collection::vec(services::<u32>(), 1..4),
            more in prop::collection::vec(
                (0usize..4, any::<u16>(), prop::sample::select(vec![0u8, 0, 0, 1, 2, 3])), 150..500),
            fewer in prop::collection::vec(
                (0usize..4, any::<u16>(), prop::sample::select(vec![0u8, 2, 2, 2, 2, 3])), 0..500),
            draws in prop::collection::vec(any::<(u128, u128, u16, u16, u8, u8)>(), 0..30)) {
        tuples_follow(&pool, &[more, fewer].concat(), &draws);
    }

    #[test]
    fn a_written_rule_reads_back(rules in prop::collection::vec(rule::<u32>(), 0..20),
            rules6 in prop::collection::vec(rule::<u128>(), 0..20)) {
        let text: String = rules.iter().map(|rule| format!("{rule}\n"))
            .chain(rules6.iter().map(|rule| format!("{rule}\n"))).collect();
        let read = rule_file::parse("rules", text.as_bytes()).expect("a written rule is valid");
        prop_assert_eq!((read.v4, read.v6), (rules, rules6));
    }

    #[test]
    fn a_readable_rule_reads_back_as_the_same_rule_of_classbench(rules in prop::collection::vec(rule::<u32>(), 0..20),
            rules6 in prop::collection::vec(rule::<u128>(), 0..20)) {
        let text: String = rules.iter().map(|rule| format!("{}\n", readable::Readable(rule)))
            .chain(rules6.iter().map(|rule| format!("{}\n", readable::Readable(rule)))).collect();
        let read = rule_file::parse("rules", text.as_bytes());
        let read = read.map_err(|errors| TestCaseError::fail(format!("{errors}")))?;
        prop_assert_eq!((read.v4, read.v6), (rules, rules6), "{}", text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        rule_file::fuzz_parse(&bytes);
    }

    #[test]
    fn bytes_like_rules_are_read_or_refused(bytes in "[@0-9:/xa-f.# \t\n+-]{0,200}") {
        rule_file::fuzz_parse(bytes.as_bytes());
    }

    #[test]
    fn words_like_rules_are_read_or_refused(words in prop::collection::vec(prop::sample::select(vec![
            "permit", "deny", "count", "any", "ip", "ip6", "tcp", "udp", "icmp", "icmp6", "6", "0x11/0x1f", "from",
            "to", "port", "type", "code", "10.0.0.0/8", "10.1.2.3", "2001:db8::/32", "80", "http", "1-3",
            "echo-request", ",", "set", "x", "=", "\n",
        ]), 0..30)) {
        rule_file::fuzz_parse(words.join(" ").as_bytes());
    }
}

#[test]
fn synthetic_lists_of_every_size_agree_across_block_borders() {
    for count in [0, 1, 15, 16, 17, 100, 255, 257, 1000, 1024, 1025, 2100] {
        let rules = synthetic::rules::<u32>(count, count as u64);
        agree(&rules, Decision::Deny, &synthetic::keys(&rules, 700, 0.5, 3));
        let rules = synthetic::rules::<u128>(count, count as u64);
        agree(&rules, Decision::Permit, &synthetic::keys(&rules, 700, 0.5, 3));
    }
}

#[test]
fn lists_of_count_rules_only_count_all_of_them() {
    let rules = vec![Rule::<u32>::any(Action::Count); 1500];
    let keys = [HeaderKey::without_ports(1, 2, 1), HeaderKey::new(1, 2, 3, 4, 6)];
    agree(&rules, Decision::Deny, &keys);
    let classifier = Classifier::build(rules, Decision::Deny).unwrap();
    let mut hits = classifier.hits();
    classifier.classify_batch(&keys, &mut [Verdict::default(); 2], &mut hits);
    assert!(hits.rules().iter().all(|&count| count == 2));
    assert_eq!(hits.by_default(), 2);
}

#[test]
fn a_packet_without_ports_passes_by_rules_that_constrain_them() {
    let ports = Rule { dport: PortRange::new(0, 1023), ..Rule::<u32>::any(Action::Deny) };
    let rules = vec![ports, Rule::any(Action::Permit)];
    let keys = [HeaderKey::without_ports(1, 2, 17), HeaderKey::new(1, 2, 0, 0, 17)];
    agree(&rules, Decision::Deny, &keys);
    let verdicts = keys.map(|key| oracle::classify(&rules, Decision::Deny, &key, &mut Hits::new(2)).rule());
    assert_eq!(verdicts, [Some(1), Some(0)]);
}

#[test]
fn synthetic_keys_hit_and_miss_as_requested() {
    let rules = synthetic::rules::<u32>(300, 9);
    assert_eq!(rules, synthetic::rules(300, 9));
    assert_ne!(rules, synthetic::rules(300, 10));
    for key in synthetic::hitting_keys(&rules, 500, 1) {
        assert!(rules.iter().any(|rule| rule.matches(&key)), "{key:?}");
    }
    let missing = synthetic::missing_keys(&rules, 500, 1);
    assert_eq!(missing.len(), 500);
    for key in missing {
        assert!(!rules.iter().any(|rule| rule.action != Action::Count && rule.matches(&key)), "{key:?}");
    }
}

#[test]
fn typical_lists_are_crossed_and_others_use_bit_vectors() {
    let backend = |rules| Classifier::build(rules, Decision::Permit).unwrap().backend();
    assert_eq!(backend(Vec::new()), Backend::Cross);
    assert_eq!(backend(synthetic::rules::<u32>(100, 1)), Backend::Cross);
    assert_eq!(backend(synthetic::rules::<u32>(10_000, 1)), Backend::Bits);
    let too_many = vec![Rule::<u32>::any(Action::Permit); MAX_RULES + 1];
    assert_eq!(
        Classifier::build(too_many, Decision::Permit).map(|_| ()),
        Err(BuildError::TooManyRules { rules: MAX_RULES + 1 })
    );
}

#[test]
fn memory_grows_with_the_rules_and_not_with_their_square() {
    // The worst case for bit vectors: every rule adds a class to every field.
    let rules: Vec<Rule4> = (0..8192u32)
        .map(|index| Rule {
            src: RulePrefix::new(index << 12, 32),
            dst: RulePrefix::new(index << 11, 32),
            sport: PortRange::new(index as u16, index as u16 + 9),
            dport: PortRange::new(index as u16 * 3, index as u16 * 3 + 1),
            ..Rule::any(Action::Permit)
        })
        .collect();
    let bytes = |count: usize| {
        Classifier::build_with(rules[..count].to_vec(), Decision::Permit, Backend::Bits).unwrap().memory_bytes()
    };
    assert!(bytes(8192) < 9 * bytes(1024), "{} and {}", bytes(8192), bytes(1024));
    assert!(bytes(8192) < 8192 * 3000);
}

#[test]
fn lists_that_take_too_much_to_compile_are_refused() {
    let few = synthetic::costly::<u32>(600);
    agree(&few, Decision::Deny, &synthetic::hitting_keys(&few, 500, 1));
    let rules = synthetic::costly::<u32>(10_000);
    let mut budget = Budget::whole();
    let built = Classifier::build_within(rules.clone().into(), Decision::Deny, Backend::Bits, &mut budget);
    let refused = BuildError::DoesNotFit { rules: 10_000, backend: Backend::Bits };
    assert_eq!(built.map(|_| ()), Err(refused.clone()));
    assert!(budget.is_spent());
    assert_eq!(Classifier::build(rules, Decision::Deny).map(|_| ()), Err(refused));
    let rules = synthetic::costly::<u128>(10_000);
    assert!(Classifier::build(rules, Decision::Deny).is_err());
}

/// Returns the most work and bytes that any back end takes from a full budget, and checks that a compiled list is no
/// larger than the bytes counted.
fn taken<A: RuleAddress>(rules: &[Rule<A>]) -> (u64, u64) {
    let mut most = (0, 0);
    for backend in Backend::ALL {
        let mut budget = Budget::whole();
        let built = Classifier::build_within(rules.into(), Decision::Deny, backend, &mut budget);
        let (work, bytes) = budget.taken();
        if let Ok(built) = built {
            assert!(bytes >= built.memory_bytes() as u64, "{bytes} counted, {} taken", built.memory_bytes());
        }
        most = (work.max(most.0), bytes.max(most.1));
    }
    most
}

#[test]
fn typical_lists_take_a_part_of_the_budget() {
    // Typical lists take less than half of the budget, so the budget does not decide how they are compiled.
    for (count, seed) in [(100, 1), (1_000, 1), (1_000, 2), (10_000, 1)] {
        let (work, bytes) = taken(&synthetic::rules::<u32>(count, seed));
        assert!(work * 2 < budget::WORK && bytes * 2 < budget::BYTES, "{count} rules: {work} and {bytes}");
        let (work, bytes) = taken(&synthetic::rules::<u128>(count, seed));
        assert!(work * 2 < budget::WORK && bytes * 2 < budget::BYTES, "{count} rules: {work} and {bytes}");
    }
    let built = Classifier::build(synthetic::rules::<u32>(1_000, 1), Decision::Deny);
    assert_eq!(built.map(|built| built.backend()), Ok(Backend::Cross));
    taken(&synthetic::costly::<u32>(1_000));
}

#[test]
fn long_lists_are_not_compiled_to_something_slower() {
    let built = Classifier::build(synthetic::rules::<u32>(10_241, 1), Decision::Deny);
    assert_eq!(built.map(|_| ()), Err(BuildError::Slower { rules: 10_241 }));
}

#[test]
fn errors_name_the_place_the_value_and_what_is_allowed() {
    let text = "# a comment\n\
        @10.0.0.0/8 0.0.0.0/0 0 : 65535 80 : 80 0x06/0xFF 0x1000/0x1000 deny # why\n\
        \n\
        @10.0.0.0/33\t0.0.0.0\t0 : 65536\t80 : 79\t0x106/0xFF drop\r\n\
        @::/0 10.0.0.0/8 0 : 65535 0 : 65535 0x00/0x00\n\
        permit\n\
        @2001:db8::/32 ::/0 0:65535 0 :1023 17/255 count\n\
        @1.2.3.4/32 5.6.7.8/32 0 : 65535\n\
        @1.2.3.4/32 5.6.7.8/32 0 : 1 0 : 1 0x00/0x00 0x0/0x0 permit all";
    let errors = rule_file::parse("acl.rules", text.as_bytes()).unwrap_err();
    let text_of_errors = errors.to_string();
    let lines: Vec<&str> = text_of_errors.lines().collect();
    let starts = [
        "acl.rules:4: '10.0.0.0/33' is not a valid source prefix; allowed",
        "acl.rules:4: '0.0.0.0' is not a valid destination prefix; allowed",
        "acl.rules:4: '65536' is not a valid source port; allowed",
        "acl.rules:4: the destination ports 80 : 79 are in the wrong order; the lower",
        "acl.rules:4: '0x106/0xFF' is not a valid protocol; allowed",
        "acl.rules:4: 'drop' is not a valid flags field or action; allowed",
        "acl.rules:5: the destination '10.0.0.0/8' is of another address family",
        "acl.rules:6: the rule ends before the packets: allowed are any, ip,",
        "acl.rules:8: the line ends before the destination port",
        "acl.rules:9: 'all' follows the end of the rule",
    ];
    assert_eq!(lines.len(), starts.len(), "{text_of_errors}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}");
    }
    let good: String =
        text.lines().filter(|line| line.contains("why") || line.contains("17/255")).collect::<Vec<_>>().join("\n");
    let read = rule_file::parse("acl.rules", good.as_bytes()).unwrap();
    assert_eq!((read.v4.len(), read.v6.len(), read.flags_ignored), (1, 1, 1));
    assert_eq!((read.v4_lines, read.v6_lines), (vec![1], vec![2]));
    assert_eq!((read.v4[0].action, read.v6[0].action), (Action::Deny, Action::Count));
    assert_eq!((read.v6[0].dport, read.v6[0].protocol), (PortRange::new(0, 1023), ProtocolMatch::exactly(17)));
}

#[test]
fn a_file_of_nonsense_is_refused_with_bounded_errors() {
    let errors = rule_file::parse("x", "nonsense\n".repeat(1000).as_bytes()).unwrap_err();
    assert_eq!((errors.errors.len(), errors.further), (50, 950));
    let long = rule_file::parse("x", &[b'@'; 1 << 16]).unwrap_err().to_string();
    assert!(long.len() < 1000, "{}", long.len());
}
