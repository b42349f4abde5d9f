//! Compiles an expression into steps for the backtracking search.

use super::syntax::{ByteSet, Count, Node, Position};

/// The largest number of steps of a program.
const MAX_STEPS: usize = 16_384;
/// The largest number of slots of a search. Slots hold the starts and ends of groups, and the positions where
/// repetitions began.
pub const MAX_SLOTS: usize = 512;

/// A step of a program.
#[derive(Clone, Debug)]
pub enum Step {
    /// Matches one byte of a set.
    Byte(ByteSet),
    /// Matches bytes of a set repeatedly: the least count, the greatest count, and whether few are tried first.
    Run(ByteSet, u32, u32, bool),
    /// Tests a condition on the position.
    At(Position),
    /// Continues at the first step; if that fails, at the second.
    Split(usize, usize),
    /// Continues at another step.
    Jump(usize),
    /// Saves the position in a slot.
    Save(usize),
    /// Fails if the position equals the position in the slot. This ends a repetition of an empty match.
    Moved(usize),
    /// Matches the bytes that a group has captured. The flag is true if letters match in either case.
    Back(usize, bool),
    /// Moves the position back by a number of bytes. Fails if there are fewer bytes before the position.
    Rewind(usize),
    /// Enters a part that is matched on its own (an atomic part or a look-around). The second value is the step after
    /// the part.
    Enter(SubmatchKind, usize),
    /// Leaves a part that is matched on its own.
    Leave,
    /// The expression has matched.
    Match,
}

/// The kind of a part that is matched on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmatchKind {
    /// An atomic part. After it has matched, it is not tried in another way.
    Atomic,
    /// A look-around that must match here. The position does not change.
    Wanted,
    /// A look-around that must not match here.
    Unwanted,
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Program {
    /// The steps; the search starts at the first.
    pub steps: Vec<Step>,
    /// The number of slots.
    pub slots: usize,
    /// The bytes with which a match can begin. `None` if it can begin with any byte or be empty.
    pub first: Option<ByteSet>,
    /// True if a match must begin where the search starts.
    pub anchored: bool,
}

impl Program {
    /// Compiles an expression.
    ///
    /// # Errors
    /// The expression is too large.
    pub fn new(node: &Node) -> Result<Self, String> {
        let mut groups = Vec::new();
        referenced(node, &mut groups);
        let slots = groups.iter().max().map_or(0, |last| 2 * (last + 1));
        let mut compiler = Compiler { steps: Vec::new(), slots, groups };
        compiler.node(node)?;
        compiler.push(Step::Match)?;
        let (first, empty) = first(node);
        let first = first.filter(|set| !empty && *set != ByteSet::all());
        let anchored = matches!(leading(node), Node::At(Position::Start | Position::SearchStart));
        Ok(Self { steps: compiler.steps, slots: compiler.slots, first, anchored })
    }
}

/// Returns the first node that is matched.
fn leading(node: &Node) -> &Node {
    match node {
        Node::Concat(all) => all.first().map_or(node, leading),
        Node::Group(_, node) | Node::Atomic(node) => leading(node),
        _ => node,
    }
}

/// Returns the bytes with which a match can begin, or `None` if they are not known. The second value is true if the
/// match may be empty.
fn first(node: &Node) -> (Option<ByteSet>, bool) {
    match node {
        Node::Byte(set) => (Some(*set), false),
        Node::Empty | Node::At(_) | Node::Ahead(..) | Node::Behind(..) => (Some(ByteSet::default()), true),
        Node::Back(..) => (None, true),
        Node::Group(_, node) | Node::Atomic(node) => first(node),
        Node::Repeat(node, count) => {
            let (set, empty) = first(node);
            (set, empty || count.least == 0)
        }
        Node::Concat(all) => {
            let mut sum = ByteSet::default();
            for node in all {
                let (set, empty) = first(node);
                let Some(set) = set else { return (None, true) };
                sum.join(set);
                if !empty {
                    return (Some(sum), false);
                }
            }
            (Some(sum), true)
        }
        Node::Either(all) => {
            let (mut sum, mut any) = (ByteSet::default(), false);
            for node in all {
                let (set, empty) = first(node);
                let Some(set) = set else { return (None, true) };
                sum.join(set);
                any |= empty;
            }
            (Some(sum), any)
        }
    }
}

/// Collects the groups that back-references use. Only these groups are saved.
fn referenced(node: &Node, groups: &mut Vec<usize>) {
    match node {
        Node::Back(group, _) => groups.push(*group),
        Node::Concat(all) | Node::Either(all) => all.iter().for_each(|node| referenced(node, groups)),
        Node::Repeat(node, _) | Node::Group(_, node) | Node::Atomic(node) | Node::Ahead(node, _) => {
            referenced(node, groups);
        }
        Node::Behind(all, _) => all.iter().for_each(|(node, _)| referenced(node, groups)),
        Node::Empty | Node::Byte(_) | Node::At(_) => {}
    }
}

/// The program under construction.
struct Compiler {
    steps: Vec<Step>,
    /// The number of slots so far.
    slots: usize,
    /// The groups that back-references use.
    groups: Vec<usize>,
}

impl Compiler {
    /// Appends a step and returns its index. Fails if there are too many steps.
    fn push(&mut self, step: Step) -> Result<usize, String> {
        if self.steps.len() >= MAX_STEPS {
            return Err(format!("it takes more than {MAX_STEPS} steps: use fewer repetitions"));
        }
        self.steps.push(step);
        Ok(self.steps.len() - 1)
    }

    /// Returns the index of a new slot. Fails if there are too many slots.
    fn slot(&mut self) -> Result<usize, String> {
        self.slots += 1;
        if self.slots > MAX_SLOTS {
            return Err("it has too many repetitions of parts that may be empty: use fewer repetitions".to_owned());
        }
        Ok(self.slots - 1)
    }

    /// Appends the steps of a node.
    fn node(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::Empty => {}
            Node::Byte(set) => drop(self.push(Step::Byte(*set))?),
            Node::At(position) => drop(self.push(Step::At(*position))?),
            Node::Concat(all) => all.iter().try_for_each(|node| self.node(node))?,
            Node::Either(all) => self.either(all.iter().map(|node| (node, 0)))?,
            Node::Repeat(node, count) if count.possessive => {
                let greedy = Node::Repeat(node.clone(), Count { possessive: false, ..*count });
                self.submatch(SubmatchKind::Atomic, |compiler| compiler.node(&greedy))?;
            }
            Node::Repeat(node, count) => self.repeat(node, *count)?,
            Node::Group(number, node) if !self.groups.contains(number) => self.node(node)?,
            Node::Group(number, node) => {
                self.push(Step::Save(2 * number))?;
                self.node(node)?;
                self.push(Step::Save(2 * number + 1))?;
            }
            Node::Atomic(node) => self.submatch(SubmatchKind::Atomic, |compiler| compiler.node(node))?,
            Node::Ahead(node, wanted) => {
                let submatch = if *wanted { SubmatchKind::Wanted } else { SubmatchKind::Unwanted };
                self.submatch(submatch, |compiler| compiler.node(node))?;
            }
            Node::Behind(all, wanted) => {
                let submatch = if *wanted { SubmatchKind::Wanted } else { SubmatchKind::Unwanted };
                self.submatch(submatch, |compiler| compiler.either(all.iter().map(|(node, length)| (node, *length))))?;
            }
            Node::Back(group, nocase) => drop(self.push(Step::Back(*group, *nocase))?),
        }
        Ok(())
    }

    /// Compiles alternatives. The number of an alternative is the number of bytes by which it first moves the position
    /// back: its length in a look-behind, otherwise 0.
    fn either<'n>(&mut self, all: impl ExactSizeIterator<Item = (&'n Node, usize)>) -> Result<(), String> {
        let (mut ends, count) = (Vec::new(), all.len());
        for (at, (node, back)) in all.enumerate() {
            let split = if at + 1 < count { Some(self.push(Step::Split(0, 0))?) } else { None };
            if back > 0 {
                self.push(Step::Rewind(back))?;
            }
            self.node(node)?;
            if let Some(split) = split {
                ends.push(self.push(Step::Jump(0))?);
                self.steps[split] = Step::Split(split + 1, self.steps.len());
            }
        }
        let end = self.steps.len();
        ends.into_iter().for_each(|jump| self.steps[jump] = Step::Jump(end));
        Ok(())
    }

    /// Appends a part that is matched on its own. `inner` appends its steps.
    fn submatch(
        &mut self,
        submatch: SubmatchKind,
        inner: impl FnOnce(&mut Self) -> Result<(), String>,
    ) -> Result<(), String> {
        let enter = self.push(Step::Enter(submatch, 0))?;
        inner(self)?;
        self.push(Step::Leave)?;
        self.steps[enter] = Step::Enter(submatch, self.steps.len());
        Ok(())
    }

    /// Appends a repetition that is not possessive.
    fn repeat(&mut self, node: &Node, count: Count) -> Result<(), String> {
        let Count { least, most, lazy, .. } = count;
        if let Node::Byte(set) = node {
            self.push(Step::Run(*set, least, most.unwrap_or(u32::MAX), lazy))?;
            return Ok(());
        }
        let split = |to: usize, over: usize| if lazy { Step::Split(over, to) } else { Step::Split(to, over) };
        for _ in 0..least {
            let before = self.steps.len();
            self.node(node)?;
            // If a repetition adds no steps, the node matches only the empty string. Further repetitions would change
            // nothing.
            if self.steps.len() == before {
                break;
            }
        }
        match most {
            None => {
                let slot = self.slot()?;
                let start = self.push(Step::Split(0, 0))?;
                self.push(Step::Save(slot))?;
                self.node(node)?;
                self.push(Step::Moved(slot))?;
                self.push(Step::Jump(start))?;
                self.steps[start] = split(start + 1, self.steps.len());
            }
            Some(most) => {
                let mut splits = Vec::new();
                for _ in least..most {
                    splits.push(self.push(Step::Split(0, 0))?);
                    self.node(node)?;
                }
                let end = self.steps.len();
                splits.into_iter().for_each(|at| self.steps[at] = split(at + 1, end));
            }
        }
        Ok(())
    }
}
