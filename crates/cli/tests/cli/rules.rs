//! Rules in words on a running pipeline: shown, added, removed by number.

use crate::running::Running;
use crate::{File, forebay};

const PIPELINE: &str = "
ports:
  in:  { generator: { rate: 1kpps, destination: 10.0.0.0/16 } }
  out: { sink: }
modules:
  fw:
    acl:
      rules:
        - set office = 10.0.0.0/8, 2001:db8::/32
        - permit tcp from office to any port 80,443
        - '@10.0.0.0/8 0.0.0.0/0 0 : 65535 22 : 22 0x06/0xff deny'
pipeline: [in -> fw -> out]
";

#[test]
fn rules_are_shown_in_words_and_removed_by_their_numbers() {
    let pipeline = Running::of(PIPELINE);
    let shown = || pipeline.request(&["show", "table", "fw"]).success();
    assert_eq!(
        shown(),
        "0 permit tcp from 10.0.0.0/8 to any port 80\n1 permit tcp from 10.0.0.0/8 to any port 443\n\
         2 deny tcp from 10.0.0.0/8 to any port 22\n3 permit tcp from 2001:db8::/32 to any port 80\n\
         4 permit tcp from 2001:db8::/32 to any port 443\n"
    );
    // The format for programs is unchanged.
    let json = pipeline.request(&["show", "table", "fw", "--json"]).success();
    assert!(json.starts_with("\"0 @10.0.0.0/8\\t0.0.0.0/0\\t0 : 65535\\t80 : 80\\t0x06/0xFF\\tpermit\"\n"), "{json}");
    let table = |more: &[&str]| pipeline.request(&[&["table", "fw"][..], more].concat());
    assert_eq!(table(&["remove", "2"]).success(), "1 change made, 0 refused\n");
    assert_eq!(table(&["remove 0", "remove 0"]).success(), "2 changes made, 0 refused\n");
    assert!(shown().starts_with("0 permit tcp from 2001:db8::/32 to any port 80\n1 permit"), "{}", shown());
    let refused = table(&["remove", "2"]);
    assert_eq!((refused.code, refused.err.as_str()), (Some(1), "change 1: no rule has number 2: allowed are 0 to 1\n"));
    // A change as several arguments, a change whose entry is one argument, a set of the list, and ClassBench's form.
    assert_eq!(
        table(&["add", "deny", "udp", "from", "office", "to", "any"]).success(),
        "1 change of 2 entries made, 0 refused\n"
    );
    assert_eq!(
        table(&["add", "0", "deny icmp type echo-request from any to any"]).success(),
        "1 change made, 0 refused\n"
    );
    assert_eq!(
        table(&["add @10.1.0.0/16 0.0.0.0/0 0 : 65535 0 : 65535 0/0 permit"]).success(),
        "1 change made, 0 refused\n"
    );
    assert_eq!(
        shown().lines().take(4).collect::<Vec<_>>(),
        [
            "0 deny icmp type echo-request from any to any",
            "1 deny udp from 10.0.0.0/8 to any",
            "2 permit ip from 10.1.0.0/16 to any",
            "3 permit tcp from 2001:db8::/32 to any port 80"
        ]
    );
    let wrong = table(&["add", "allow tcp from any to any"]);
    assert!(
        wrong.code == Some(1) && wrong.err.contains("'allow' is not a valid action (did you mean 'permit'?)"),
        "{}",
        wrong.err
    );
}

#[test]
fn invalid_rules_are_reported_with_their_lines() {
    let file = File::new(&PIPELINE.replace("port 80,443", "prot 80").replace("set office", "set office office"));
    let done = forebay(&["check", file.path()]);
    assert_eq!(done.code, Some(2));
    for expected in [
        "test.yaml:9: modules.fw.acl.rules[0]: 'office' is not a valid sign after the name",
        "test.yaml:10: modules.fw.acl.rules[1]: 'office' is not a valid address",
    ] {
        assert!(done.err.contains(expected), "{expected}\n{}", done.err);
    }
    let file = File::new(&PIPELINE.replace("port 80,443", "prot 80"));
    let err = forebay(&["check", file.path()]).err;
    assert!(err.contains("rules[1]: 'prot' is not a valid continuation of the rule (did you mean 'port'?)"), "{err}");
    let text = PIPELINE.split("      rules:").next().expect("a beginning");
    let file = File::new(&format!("{text}      rules: permit tcp from any to any\npipeline: [in -> fw -> out]\n"));
    let err = forebay(&["check", file.path()]).err;
    assert!(err.contains("write rules: ['permit tcp from any to any']"), "{err}");
}

/// Regression: a rule after `deny ip from any to any` had no effect, and there was no warning.
#[test]
fn rules_that_match_no_packet_cause_a_warning() {
    let hidden = PIPELINE.replace("        - '@", "        - deny ip from any to any\n        - '@");
    let warning = "rule 3 (deny tcp from 10.0.0.0/8 to any port 22) matches no packet: rule 2 (deny ip from any \
                   to any) comes first and decides about all of its packets";
    let file = File::new(&hidden);
    let checked = forebay(&["check", file.path()]).success();
    assert!(checked.contains(&format!("warning: fw: {warning}\n")), "{checked}");
    let json = forebay(&["check", "--json", file.path()]).json();
    assert_eq!(json["warnings"], serde_json::json!([{ "module": "fw", "message": warning }]));
    assert_eq!(forebay(&["check", "--json", File::new(PIPELINE).path()]).json()["warnings"], serde_json::json!([]));

    let mut pipeline = Running::of(PIPELINE);
    let table = |more: &[&str]| pipeline.request(&[&["table", "fw"][..], more].concat());
    let added = table(&["add deny ip from any to any", "add permit tcp from any to any port 22"]);
    let expected =
        "warning: rule 4 (permit ip tcp from any to any port 22) matches no packet: rule 3 (deny ip from any to any)";
    assert!(added.code == Some(0) && added.err.contains(expected), "{}", added.err);
    let json = table(&["add", "0", "permit tcp from 10.0.0.0/7 to any", "--json"]).json();
    let expected = "rule 1 (permit tcp from 10.0.0.0/8 to any port 80) matches no packet: rule 0 \
                (permit tcp from 10.0.0.0/7 to any)";
    assert!(json["changed"]["warnings"][0].as_str().is_some_and(|it| it.starts_with(expected)), "{json}");
    assert_eq!(table(&["remove", "0"]).err, "");
    // A reload records an event.
    pipeline.write(&hidden);
    pipeline.request(&["reload"]).success();
    let lines = pipeline.line("event=rules_hidden");
    assert!(lines.contains("module=fw") && lines.contains(warning), "{lines}");
    pipeline.end();
}
