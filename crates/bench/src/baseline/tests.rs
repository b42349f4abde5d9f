//! Valid and invalid files.

use proptest::prelude::*;

use super::*;

fn part(name: &str, figures: (u64, u64, u64)) -> PartCounts {
    PartCounts::new(name, "acl", figures.0, figures.1, figures.2)
}

pub(crate) fn case(pipeline: &str, modules: Vec<PartCounts>, residue: u64, packets: u64) -> Case {
    let calls = modules.iter().map(|module| module.calls).sum();
    let all = modules.iter().map(|module| module.instructions).sum::<u64>() + residue;
    Case {
        pipeline: pipeline.to_owned(),
        set: vec!["n=4".to_owned()],
        modules,
        residue: PartCounts::new("(residue)", "", residue, packets, calls),
        whole: PartCounts::new("(all)", "", all, packets, calls),
    }
}

fn baseline() -> Baseline {
    let modules = vec![part("fw", (3_000, 100, 10)), part("dry", (0, 0, 0))];
    Baseline {
        schema: SCHEMA,
        build: CountedBuild::default(),
        extent: Extent::default(),
        cases: vec![case("usecase:gw", modules, 500, 100), case("empty.yaml", Vec::new(), 1, 3)],
    }
}

fn refusal(text: &str) -> String {
    Baseline::parse(text.as_bytes()).expect_err("it is wrong").to_string()
}

#[test]
fn a_written_file_is_read_back_and_has_one_part_per_line() {
    let (folder, baseline) = (tempfile::tempdir().expect("a folder"), baseline());
    let path = folder.path().join("file.json");
    assert!(Baseline::read(&path).expect("the file does not exist").is_none());
    baseline.write(&path).expect("a writable folder");
    assert_eq!(Baseline::read(&path).expect("a baseline"), Some(baseline.clone()));
    let text = std::fs::read_to_string(&path).expect("it exists");
    let lines: Vec<_> = text.lines().filter(|line| line.contains("\"fw\"")).collect();
    assert_eq!(
        lines,
        [concat!(
            r#"        {"name":"fw","function":"acl","ipp":30.0,"packets_per_call":10.0,"#,
            r#""instructions":3000,"packets":100,"calls":10},"#
        )]
    );
    // Writing replaces the file and leaves no other file beside it.
    baseline.write(&path).expect("a writable folder");
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 1);
    assert!(matches!(baseline.write(&folder.path().join("not/there")), Err(BaselineError::Io(_))));
}

#[test]
fn an_invalid_baseline_is_refused_with_a_reason() {
    let text = baseline().text().expect("plain values");
    assert_eq!(
        refusal(&text.replace("\"schema\": 2", "\"schema\": 1")),
        "schema 1 is not supported, allowed is 2: remove the file and count again (--update)"
    );
    assert!(refusal("{").starts_with("not a baseline: EOF"), "{}", refusal("{"));
    assert!(refusal("[]").starts_with("not a baseline: it is not a JSON object"), "{}", refusal("[]"));
    assert!(refusal(&text.replace("\"set\"", "\"sett\"")).contains("unknown field `sett`"));
    let lowered = text.replace("\"ipp\":30.0", "\"ipp\":20.0");
    assert!(refusal(&lowered).starts_with("'usecase:gw n=4', fw: ipp, packets_per_call"), "{}", refusal(&lowered));
    // A part whose figures agree with each other but not with the whole.
    let lowered =
        text.replace("\"ipp\":30.0", "\"ipp\":20.0").replace("\"instructions\":3000", "\"instructions\":2000");
    assert!(refusal(&lowered).starts_with("'usecase:gw n=4', (all): "), "{}", refusal(&lowered));
    assert_eq!(refusal(&text.replace("empty.yaml", "usecase:gw")), "'usecase:gw n=4' is listed twice: list it once");
    assert_eq!(refusal(&text.replace("\"dry\"", "\"fw\"")), "'usecase:gw n=4, fw' is listed twice: list it once");
    for figure in ["-1", "1e300", "\"1\"", "null"] {
        assert!(Baseline::parse(text.replace("\"calls\":10}", &format!("\"calls\":{figure}}}")).as_bytes()).is_err());
    }
}

proptest! {
    #[test]
    fn any_figures_are_read_as_they_were_written(
        figures in prop::collection::vec((0..u64::MAX / 64, 0..1u64 << 40, 0..1u64 << 40), 0..8),
        residue in 0..u64::MAX / 64,
        packets in 0..1u64 << 40,
        name in "\\PC{1,12}",
    ) {
        let modules = figures.iter().enumerate().map(|(at, figures)| part(&format!("{name}{at}"), *figures)).collect();
        let one = Baseline { cases: vec![case(&name, modules, residue, packets)], ..baseline() };
        let text = one.text().expect("plain values");
        prop_assert_eq!(Baseline::parse(text.as_bytes()).expect("as it was written"), one);
    }

    #[test]
    fn no_bytes_make_it_panic(cut in 0usize..2_000, at in 0usize..2_000, byte in any::<u8>()) {
        let mut bytes = baseline().text().expect("plain values").into_bytes();
        let length = bytes.len();
        bytes[at % length] = byte;
        bytes.truncate(cut.max(1));
        fuzz_baseline(&bytes);
    }
}

#[test]
fn an_extent_out_of_range_is_refused() {
    let with = |before: u64, packets: u64| {
        let text = Baseline { extent: Extent { before, packets }, ..baseline() }.text().expect("plain values");
        Baseline::parse(text.as_bytes()).map_err(|error| error.to_string())
    };
    assert!(with(0, 1).is_ok() && with(Extent::MOST, Extent::MOST).is_ok());
    for (before, packets) in [(0, 0), (0, Extent::MOST + 1), (u64::MAX, 1)] {
        let error = with(before, packets).expect_err("too many or none");
        assert!(error.contains(&format!("before {before}, packets {packets}: allowed are up to 100000000")), "{error}");
    }
}
