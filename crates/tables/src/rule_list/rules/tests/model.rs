//! Random changes of a list, beside a plain list that must give the same verdicts.

use proptest::prelude::*;

use super::*;

/// One address family of a table under test.
trait Side: RuleAddress {
    fn table(rules: Vec<Rule<Self>>) -> RuleTable;
    fn form(list: &List) -> &Form<Self>;
}

impl Side for u32 {
    fn table(rules: Vec<Rule4>) -> RuleTable {
        table_of(rules, Vec::new(), NEVER)
    }
    fn form(list: &List) -> &Form<u32> {
        &list.v4
    }
}

impl Side for u128 {
    fn table(rules: Vec<Rule6>) -> RuleTable {
        table_of(Vec::new(), rules, NEVER)
    }
    fn form(list: &List) -> &Form<u128> {
        &list.v6
    }
}

/// A table, and the plain list that it must equal: each rule with the number of its counter.
struct Model<A: RuleAddress> {
    table: RuleTable,
    reader: Reader<List, Log>,
    plain: Vec<(Rule<A>, usize)>,
    at_first: usize,
    hits: Hits,
    counted: Vec<u64>,
}

impl<A: Side> Model<A> {
    fn of(rules: Vec<Rule<A>>) -> Self {
        let table = A::table(rules.clone());
        let (reader, at_first) = (table.reader(), rules.len());
        let plain = rules.into_iter().zip(0..).collect();
        Self { table, reader, plain, at_first, hits: Hits::new(at_first), counted: vec![0; at_first + 1] }
    }

    /// Makes changes to both.
    fn change(&mut self, changes: &[(Verb, Option<usize>, Rule<A>)]) {
        let (mut lines, mut refused) = (Vec::new(), Vec::new());
        for (at, (verb, position, rule)) in changes.iter().enumerate() {
            let word = format!("{verb:?}").to_lowercase();
            let number = position.map_or(String::new(), |position| format!("{position} "));
            lines.push(format!("{word} {number}{rule}"));
            let len = self.plain.len();
            let found = position.or_else(|| self.plain.iter().position(|(it, _)| it == rule));
            let new = (*rule, self.at_first);
            match verb {
                Verb::Add if position.unwrap_or(len) <= len => self.plain.insert(position.unwrap_or(len), new),
                Verb::Remove if found.is_some_and(|found| self.plain.get(found).is_some_and(|(it, _)| it == rule)) => {
                    self.plain.remove(found.unwrap_or(0));
                }
                Verb::Replace if position.is_some_and(|position| position < len) => {
                    self.plain[position.unwrap_or(0)] = new;
                }
                _ => refused.push(at),
            }
        }
        let lines: Vec<_> = lines.iter().map(String::as_str).collect();
        let outcome = self.table.apply(&lines);
        assert_eq!(outcome.refused.iter().map(|refused| refused.change).collect::<Vec<_>>(), refused);
        assert_eq!(outcome.made, lines.len() - refused.len());
    }

    /// Both give the same verdicts and counts for the keys, and hold the same rules.
    fn check(&mut self, keys: &[HeaderKey<A>]) {
        let list = self.reader.read();
        assert_eq!(A::form(&list).len(), self.plain.len());
        let verdicts = verdicts(A::form(&list), keys, &mut self.hits);
        let rules: Vec<_> = self.plain.iter().map(|(rule, _)| *rule).collect();
        let mut hits = Hits::new(rules.len());
        for (key, verdict) in keys.iter().zip(verdicts) {
            let scan = oracle::classify(&rules, Decision::Permit, key, &mut hits);
            let number = scan.rule().map(|at| self.plain[at as usize].1 as u32);
            assert_eq!((verdict.decision(), verdict.rule()), (scan.decision(), number), "{key:?}");
        }
        for ((_, number), hits) in self.plain.iter().zip(hits.rules()) {
            self.counted[*number] += hits;
        }
        let (added, at_first) = self.counted.split_last().expect("one counter for the added rules");
        assert_eq!((self.hits.rules().as_slice(), self.hits.added()), (at_first, *added));
        let entries: Vec<_> =
            rules.iter().enumerate().map(|(number, rule)| format!("{number} {}", Readable(rule))).collect();
        assert_eq!(self.table.entries(None, usize::MAX).expect("all"), entries);
    }
}

/// Changes in random batches: a verb, a position that may not exist, and a rule of a small set, so that changes meet.
/// After some batches the list is compiled.
type Batches = Vec<(Vec<(Verb, Option<usize>, usize)>, bool)>;

fn batches(rules: usize) -> impl Strategy<Value = Batches> {
    let verb = prop::sample::select(vec![Verb::Add, Verb::Add, Verb::Remove, Verb::Remove, Verb::Replace]);
    let change = (verb, prop::option::of(0usize..14), 0..rules);
    prop::collection::vec((prop::collection::vec(change, 0..20), prop::bool::weighted(0.25)), 1..10)
}

fn lists_agree<A: Side>(mut pool: Vec<Rule<A>>, seed: u64, batches: &Batches) {
    // Some rules match all addresses, so that many share one pair of prefixes.
    for rule in pool.iter_mut().skip(1).step_by(3) {
        (rule.src, rule.dst) = (RulePrefix::ANY, RulePrefix::ANY);
    }
    let keys = synthetic::keys(&pool, 64, 0.9, seed);
    let mut model = Model::of(pool[..8].to_vec());
    model.check(&keys);
    for (batch, compile) in batches {
        let changes: Vec<_> = batch.iter().map(|(verb, position, which)| (*verb, *position, pool[*which])).collect();
        model.change(&changes);
        model.check(&keys);
        if *compile {
            assert!(model.table.shared.compile().is_ok());
            assert!(A::form(&model.reader.read()).is_compiled());
            model.check(&keys);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn lists_are_what_a_scan_says(seed: u64, batches in batches(40)) {
        lists_agree(synthetic::rules::<u32>(40, seed), seed, &batches);
        lists_agree(synthetic::rules::<u128>(40, seed), seed, &batches);
    }
}

/// So many rules are inserted at one position that repeatedly no label is free between two of them.
fn crowds<A: Side>() {
    let pool = synthetic::rules::<A>(400, 5);
    let keys = synthetic::keys(&pool, 300, 0.9, 6);
    let mut model = Model::of(pool[..100].to_vec());
    for round in 0..6 {
        let changes: Vec<_> = (0..300).map(|at| (Verb::Add, Some(50 - round), pool[(at * 7 + round) % 400])).collect();
        model.change(&changes);
        model.check(&keys);
        if round == 3 {
            assert!(model.table.shared.compile().is_ok());
        }
    }
    let changes: Vec<_> = model.plain.iter().rev().map(|(rule, _)| (Verb::Remove, None, *rule)).collect();
    model.change(&changes[..1_700]);
    model.check(&keys);
    model.change(&changes[1_700..]);
    model.check(&keys);
    assert_eq!(model.table.len(), 0);
    model.change(&[(Verb::Add, None, Rule::any(Action::Deny))]);
    model.check(&keys);
}

#[test]
fn rules_that_crowd_in_one_place_are_in_order() {
    crowds::<u32>();
    crowds::<u128>();
}
