//! Tests the rules that may match a packet, and decides about the packet.

use forebay_graph::Gate;
use forebay_packet::Packet;
use forebay_sessions::connection::LentSessions;
use forebay_units::Ticks;

use super::check;
use super::limits::LimitResult;
use super::regex::Undecided;
use super::rule::Action;
use super::view::View;
use super::{ALERTED, CLEAN, DENIED, DROPPED, LIMITED, Nids, PASSED};

impl Nids {
    /// Tests the rules that may match the packet at `index`. Afterwards `matching` contains the rules that match, and
    /// `pending` the rules that match except for tests of the session, which follow in
    /// [`test_session`](Self::test_session). [`search`](Self::search) must have searched the batch before. Each packet
    /// must be tested once, because matches are counted.
    pub(super) fn test_rules(&mut self, index: usize, view: &View, frame: &[u8], now: Ticks) {
        let Self {
            rules,
            limits,
            caches,
            scratch,
            found,
            words,
            any,
            last_tested,
            number,
            matching,
            pending,
            undecided,
            ..
        } = self;
        matching.clear();
        pending.clear();
        scratch.clear();
        *undecided = (false, false);
        *number += 1;
        let mut test = |rule: u32| {
            let at = rule as usize;
            let (Some(last), Some(known)) = (last_tested.get_mut(at), rules.rules.get(at)) else { return };
            if std::mem::replace(last, *number) == *number || !check::header(known, view) {
                return;
            }
            match check::body(known, &rules.finders[at], view, frame, scratch, &mut caches[at]) {
                Ok(true) => {}
                Ok(false) => return,
                Err(Undecided) => {
                    *undecided = (true, undecided.1 || known.action == Action::Drop);
                    return;
                }
            }
            if known.involves_session() {
                pending.push(rule);
                return;
            }
            // This must be the last test, because it counts packets that pass all other tests.
            let filtered = known
                .filter
                .as_ref()
                .is_some_and(|filter| limits.count_match(rule, filter, view, now) != LimitResult::Yes);
            // A rule with 'noalert' and the action 'alert' or 'log' has no further effect.
            if !(filtered || known.silent && known.action > Action::Drop) {
                matching.push(rule);
            }
        };
        let groups = rules.groups(view);
        for group in groups.iter().flatten() {
            group.always.iter().for_each(|rule| test(*rule));
        }
        if std::mem::take(&mut any[index]) {
            for (at, word) in found[index * *words..][..*words].iter_mut().enumerate() {
                let mut bits = std::mem::take(word);
                while bits != 0 {
                    let string = at * 64 + bits.trailing_zeros() as usize;
                    bits &= bits - 1;
                    let rules =
                        groups.iter().flatten().find_map(|group| group.rules.get(string.checked_sub(group.first)?));
                    if let Some(rules) = rules {
                        rules.iter().for_each(|rule| test(*rule));
                    }
                }
            }
        }
    }

    /// Tests the packet's session for the rules that are `pending`. The session may be unknown, because it cannot be
    /// found from the packet (for example from a fragment) or because another module holds the table of sessions. Then
    /// a rule that depends on the session is undecided. Moves the rules that match to `matching`, and changes the bits
    /// of the session as these rules specify.
    #[inline(never)]
    pub(super) fn test_session(
        &mut self,
        index: usize,
        packet: &mut Packet,
        mut sessions: Option<&mut LentSessions<'_>>,
        now: Ticks,
    ) {
        let Self { rules, limits, matching, pending, bits, undecided, views, .. } = self;
        let (before, Some(Some(view))) = (&views[..index], views.get(index)) else { return };
        let mut standing = sessions.as_deref().and_then(|sessions| sessions.standing(packet, now));
        // The module that opens sessions may be behind this module. Then that module has not seen the earlier packets
        // of this batch, which may establish the session or set its bits.
        let is_unknown = standing.is_some_and(|standing| standing.row.is_none());
        let unsettled = is_unknown && before.iter().flatten().any(|other| view.is_of_session(other));
        if bits.is_some() {
            pending.sort_unstable_by_key(|rule| (rules.rules[*rule as usize].evaluation_rank(), *rule));
        }
        for rule in pending.iter().copied() {
            let known = &rules.rules[rule as usize];
            let mut filtered =
                || known.filter.as_ref().is_some_and(|it| limits.count_match(rule, it, view, now) != LimitResult::Yes);
            let session_matches = match standing {
                _ if unsettled && known.needs_history() => {
                    *undecided = (true, undecided.1 || known.action == Action::Drop);
                    continue;
                }
                Some(standing) => {
                    known.flow.is_none_or(|flow| flow.matches(standing))
                        && bits.as_ref().is_none_or(|bits| bits.pass_tests(&known.bits, standing.row))
                }
                None if known.needs_session() => {
                    *undecided = (true, undecided.1 || known.action == Action::Drop);
                    continue;
                }
                None => true,
            };
            if !session_matches || filtered() {
                continue;
            }
            if let (Some(bits), Some(sessions), Some(standing)) = (&*bits, sessions.as_deref_mut(), &mut standing) {
                bits.change(&known.bits, &mut standing.row, sessions);
            }
            if !(known.silent && known.action > Action::Drop) {
                matching.push(rule);
            }
        }
    }

    /// Returns the gate of a packet and its counter, an index in [`PACKETS`](super::PACKETS), according to the rules in
    /// `matching`. Counts the matches of these rules, and reports the packet.
    pub(super) fn judge(&mut self, view: &View, now: Ticks) -> (Gate, usize) {
        let Self { rules, matching, limits, matches, report_matches, out, divert, .. } = self;
        let rule = |number: &u32| &rules.rules[*number as usize];
        matching.sort_unstable_by_key(|number| (rule(number).action, rule(number).priority, rule(number).sid));
        let Some(first) = matching.first() else { return (Gate::FIRST, CLEAN) };
        let action = rule(first).action;
        let reported = if action == Action::Pass { &matching[..1] } else { &matching[..] };
        for number in reported {
            for counts in [&*matches, &*report_matches] {
                if let Some(count) = counts.get(*number as usize) {
                    count.add(1);
                }
            }
            if action == Action::Pass {
                continue;
            }
            let known = rule(number);
            if known.silent {
                continue;
            }
            match known.threshold.as_ref().map(|limit| limits.count_match(*number, limit, view, now)) {
                Some(LimitResult::No) => out.counts[LIMITED].add(1),
                None | Some(LimitResult::Yes | LimitResult::NoRoom) => out.report(*number, known.action, view, now),
            }
        }
        match action {
            Action::Pass => (Gate::FIRST, PASSED),
            Action::Drop => (DENIED, DROPPED),
            Action::Alert => (if *divert { ALERTED } else { Gate::FIRST }, 1),
            Action::Log => (if *divert { ALERTED } else { Gate::FIRST }, 2),
        }
    }
}
