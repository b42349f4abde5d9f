//! Replays the committed corpora of the fuzz targets: inputs of past failures, and one input of each type.

#[path = "../../../fuzz/entries.rs"]
mod entries;

use std::path::Path;

#[test]
fn every_corpus_is_replayed() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, run) in entries::TARGETS {
        let folder = corpora.join(name);
        let inputs = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        let mut replayed = 0;
        for input in inputs {
            let file = input.expect("a readable folder").path();
            run(&std::fs::read(&file).expect("a readable file"));
            replayed += 1;
        }
        assert!(replayed > 0, "{name}: a corpus has inputs");
    }
}
