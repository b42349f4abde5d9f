//! What each fuzz target does with its bytes. The targets here and the test that replays the corpora both include
//! this file.

use forebay_graph::{Rig, Setup, Surroundings, functions, states};
use forebay_measure::Frequency;
use forebay_packet::{Batch, MAX_BATCH};

/// A target's name, and what it does with its input.
pub type Target = (&'static str, fn(&[u8]));

/// Every target: its name, which is its corpus' folder too, and what it does.
pub const TARGETS: &[Target] = &[
    ("frames", frames),
    ("routes", forebay_functions::tables::lpm::routes_file::fuzz_routes_file),
    ("rules", forebay_functions::tables::acl::classbench::fuzz_parse),
    ("capture", capture),
    ("yaml", yaml),
    ("filter", forebay_cli::filter::fuzz_filter),
    ("changes", changes),
];

/// Frames through every function's example: each starts with its length in one byte. Every packet gets a gate or is
/// held, and nothing panics.
pub fn frames(bytes: &[u8]) {
    thread_local! {
        static RIGS: std::cell::RefCell<Vec<Rig>> = std::cell::RefCell::new(rigs());
    }
    RIGS.with_borrow_mut(|rigs| {
        for rig in rigs {
            let mut batch = Batch::with_capacity(MAX_BATCH);
            let mut rest = bytes;
            while let Some((len, after)) = rest.split_first() {
                let (frame, after) = after.split_at(after.len().min(usize::from(*len)));
                if batch.push(rig.packet(frame)).is_err() {
                    break;
                }
                rest = after;
            }
            let before = batch.len();
            let gates = rig.process(&mut batch);
            assert_eq!(gates.len(), before, "every packet has a gate");
            let held = gates.iter().filter(|gate| gate.is_none()).count();
            assert_eq!(batch.len() + held, before, "no packet is lost");
            drop(rig.emitted());
            for index in 0..batch.len() {
                // What it would do, asked of what it has done: any packet will do.
                let _ = rig.function.effect(&mut batch[index]);
            }
        }
    });
}

/// Every registered function, made from its own example.
fn rigs() -> Vec<Rig> {
    let mut all = Surroundings::new(Frequency::new(1e9));
    all.simulated = true;
    all.base = std::env::temp_dir();
    let read = |text: &str| serde_saphyr::from_str(text).expect("examples are tested to be YAML");
    for state in states() {
        let built = state.build(&read(state.example), &mut Setup::new(state.name, &mut all));
        all.state.insert(state.name.to_owned(), built.expect("examples are tested to build"));
    }
    let make = |function: &&'static forebay_graph::Declaration| {
        let mut setup = Setup::new(function.name, &mut all);
        // A tap writes a file; what it does to packets is nothing.
        let built = function.build(&read(function.example), &mut setup).expect("examples are tested to build");
        Rig::over(built, setup.finish(), function.creates.len())
    };
    functions().iter().filter(|function| function.name != "tap").map(make).collect()
}

/// A capture file of any format.
pub fn capture(bytes: &[u8]) {
    // Any outcome is right; that there is one, soon and without a panic, is what is tried.
    drop(forebay_ports::pcap::read_memory(bytes));
}

/// A configuration: checked, never run.
pub fn yaml(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(problems) = forebay_pipeline::check_str(text, &std::env::temp_dir())
    {
        assert!(!problems.is_empty(), "a refusal has a reason");
    }
}

/// Changes, one a line, of every table that functions hand out: each is made or refused, and what is there afterwards can be
/// listed page by page, and taken out line by line.
pub fn changes(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let lines: Vec<&str> = text.lines().collect();
    for mut rig in rigs() {
        for (name, table) in std::mem::take(&mut rig.declared.tables) {
            let outcome = table.apply(&lines);
            assert_eq!(outcome.made + outcome.refused.len(), lines.len(), "{name}: each change has an outcome");
            let (mut all, mut after) = (Vec::<String>::new(), None);
            loop {
                let page = table.entries(after.as_deref(), 7).expect("an entry as it was listed");
                let Some(last) = page.last() else { break };
                after = Some(last.clone());
                all.extend(page);
            }
            assert_eq!(all.len(), table.len(), "{name}: every entry is listed once");
            // From the last one on, so that positions stay.
            let removals: Vec<String> = all.iter().rev().map(|entry| format!("remove {entry}")).collect();
            let removals: Vec<&str> = removals.iter().map(String::as_str).collect();
            assert_eq!(table.apply(&removals).refused, [], "{name}: what is listed is there");
            assert!(table.is_empty(), "{name}");
        }
    }
}
