//! Tests of options that depend on each other: numbers in payloads, and options after expressions. The naive matcher
//! must agree.

use super::keywords::matches;
use super::*;

#[test]
fn options_about_payloads_have_a_packet_that_matches_and_one_that_does_not() {
    for (options, yes, no) in [
        ("isdataat:3;", &b"abcd"[..], &b"abc"[..]),
        ("isdataat:!3;", b"abc", b"abcd"),
        ("content:\"USER\"; isdataat:3,relative;", b"xUSERabcd", b"xUSERabc"),
        ("content:\"USER\"; isdataat:!1,relative,rawbytes;", b"USERa", b"USERab"),
        ("content:\"ab\"; endswith;", b"abxab", b"abx"),
        ("content:!\"ab\"; endswith;", b"abx", b"xab"),
        ("content:\"ab\"; startswith; endswith;", b"ab", b"abab"),
        ("content:\"a\"; content:\"b\"; distance:1; endswith;", b"axb", b"axbx"),
        ("content:\"x\"; byte_test:1,>,3,0,relative;", b"x\x04", b"x\x03"),
        ("content:\"x\"; byte_test:1,>,3,0,relative;", b"x\x01x\x09", b"x\x01x"),
        ("byte_test:2,=,258,1;", b"z\x01\x02", b"z\x02\x01"),
        ("byte_test:2,=,258,1,little;", b"z\x02\x01", b"z\x01\x02"),
        ("byte_test:4,<=,0x10,0,big;", b"\0\0\0\x10", b"\0\0\0\x11"),
        ("byte_test:3,>=,65536,0;", b"\x01\0\0", b"\0\xff\xff"),
        ("byte_test:1,&,0x80,0;", b"\x81", b"\x7f"),
        ("byte_test:1,!&,0x80,0;", b"\x7f", b"\x80"),
        ("byte_test:1,^,5,0;", b"\x04", b"\x05"),
        ("byte_test:1,!=,5,0;", b"\x04", b"\x05"),
        ("byte_test:1,!,5,0;", b"\x04", b"\x05"),
        ("byte_test:1,!<,5,0;", b"\x05", b"\x04"),
        ("byte_test:4,=,1234,0,string,dec;", b"1234", b"1243"),
        ("byte_test:4,=,255,1,string,hex;", b" 0xffz", b"xfg"),
        ("byte_test:4,=,64,0,string,oct;", b"100z", b"64zz"),
        ("byte_test:2,=,3,0,bitmask 0x0ff0;", b"\xf0\x3f", b"\x03\x00"),
        ("content:\"x\"; byte_test:1,=,7,-2,relative;", b"\x07x", b"\x08x"),
        ("byte_jump:1,0; content:\"b\"; distance:0; within:1;", b"\x02xxb", b"\x02xb"),
        ("byte_jump:1,0,multiplier 2; content:\"b\"; within:1;", b"\x01xxb", b"\x01xb"),
        ("byte_jump:1,0,align; content:\"b\"; within:1;", b"\x01xxxxb", b"\x01xb"),
        ("byte_jump:1,1,from_beginning; content:\"b\"; within:1;", b"z\x03xb", b"z\x03b"),
        ("byte_jump:1,0,from_end,post_offset -4; content:\"b\"; within:1;", b"\x02xxba", b"\x02xxab"),
        ("byte_jump:0,0,from_end,post_offset -2; content:\"b\"; within:1;", b"xxba", b"xxab"),
        ("byte_jump:1,0,post_offset -1; content:\"b\"; within:1;", b"\x02xb", b"\x02xxb"),
        ("byte_jump:1,0,relative,little; isdataat:!0,relative;", b"\x02xx", b"\x01xx"),
        ("byte_jump:2,0,string,dec; content:\"b\"; within:1;", b"02xxb", b"zz"),
        ("byte_extract:1,0,len; content:\"ab\"; distance:len; within:2;", b"\x02xxab", b"\x01xxab"),
        ("byte_extract:1,0,len; content:\"ab\"; offset:len;", b"\x02xab", b"\x04xab"),
        ("byte_extract:1,0,len; content:\"ab\"; depth:len;", b"\x04xab", b"\x03xab"),
        ("byte_extract:1,0,len; content:\"ab\"; within:len;", b"\x03xab", b"\x02xab"),
        ("byte_extract:1,0,len; byte_test:1,=,len,1;", b"\x05\x05", b"\x05\x06"),
        ("byte_extract:1,0,at; byte_test:1,=,9,at;", b"\x02x\x09", b"\x01x\x09"),
        ("byte_extract:1,0,at; isdataat:at;", b"\x02xx", b"\x03xx"),
        ("byte_extract:1,0,n,multiplier 4; isdataat:!n;", b"\x01xxx", b"\x01xxxx"),
        ("byte_extract:1,0,n,align 4; isdataat:n;", b"\x01xxxx", b"\x01xxx"),
        (
            "byte_extract:1,0,a; byte_extract:1,0,b,relative; byte_test:1,=,a,2; isdataat:b;",
            b"\x01\x03\x01z",
            b"\x01\x04\x01z",
        ),
        ("pcre:\"/a+/\"; content:\"b\"; distance:0; within:1;", b"xaab", b"xaaxb"),
        ("pcre:\"/a+/\"; content:\"b\"; distance:0; within:1;", b"axab", b"axa"),
        ("content:\"a\"; pcre:\"/^b/R\";", b"acab", b"acb"),
        ("content:\"a\"; pcre:\"/b/R\";", b"acb", b"ba"),
        ("content:\"a\"; pcre:!\"/^b/R\";", b"abac", b"ab"),
        ("content:\"a\"; pcre:\"/^.b/R\"; content:\"c\"; distance:0; within:1;", b"axbaxbc", b"axbxc"),
        ("content:\"a\"; pcre:\"/(\\w+)=\\1/\";", b"ab=ab", b"ab=cd"),
        ("pcre:\"/^(?!.*safe)/s\";", b"x", b"unsafe"),
    ] {
        assert!(matches("udp", options, &udp(yes, 1, 2, 3)), "{options} in {yes:?}");
        assert!(!matches("udp", options, &udp(no, 1, 2, 3)), "{options} not in {no:?}");
    }
}

#[test]
fn unknown_arguments_are_refused_by_name() {
    for (options, reported) in [
        ("byte_test:1,>,3,0,dce;", "byte_test 'dce': DCE/RPC is not decoded"),
        ("byte_test:1,~,3,0;", "byte_test '~': allowed are the operators"),
        ("byte_test:1,>,3;", "byte_test '1,>,3': write BYTES, OPERATOR, VALUE, OFFSET"),
        ("byte_test:5,>,3,0;", "byte_test '5': allowed are 1 to 4 bytes"),
        ("byte_test:11,>,3,0,string;", "byte_test '11': allowed are 1 to 10 bytes"),
        ("byte_test:1,>,x,0;", "byte_test 'x': no earlier byte_extract sets a variable of this name"),
        ("byte_test:1,>,3,99999;", "byte_test '99999': allowed are -65535 to 65535"),
        ("byte_test:1,>,3,0,hex;", "hex, dec and oct are allowed only with string"),
        ("byte_test:1,>,3,0,bitmask 0x1ff;", "a bitmask of more than 1 byte: allowed are 0x1 to 0xff"),
        ("byte_test:1,>,3,0,align;", "byte_test 'align': allowed with byte_test are relative"),
        ("byte_jump:5,0;", "byte_jump '5': allowed are 0 to 4 bytes (1 to 10 with string)"),
        ("byte_jump:0,0,bitmask 0xf;", "byte_jump '0': allowed are 1 to 4 bytes (1 to 10 with string)"),
        ("byte_jump:11,0,string;", "byte_jump '11': allowed are 1 to 10 bytes"),
        ("byte_jump:1;", "byte_jump '1': write BYTES, OFFSET"),
        ("byte_jump:1,0,multiplier 0;", "multiplier 0"),
        ("byte_extract:1,0;", "byte_extract '1,0': write BYTES, OFFSET, NAME"),
        ("byte_extract:1,0,1x;", "a name must begin with a letter"),
        ("byte_extract:1,0,a; byte_extract:1,0,b; byte_extract:1,0,c;", "a rule may have at most 2 variables"),
        ("isdataat:5,absolute;", "isdataat 'absolute': allowed are relative and rawbytes"),
        ("isdataat:n;", "isdataat 'n': no earlier byte_extract"),
        ("pcre:\"/a/U\";", "the flag 'U': HTTP buffers are not supported yet"),
    ] {
        let error = read(&format!("alert udp any any -> any any ({options} sid:1;)")).expect_err(options);
        assert!(error.contains(reported), "{options}: {error}");
    }
}

/// If a search takes too many steps, an alert is not reported, and a packet that a rule might drop is dropped. Both are
/// counted.
#[test]
fn a_packet_that_takes_too_many_steps_is_undecided() {
    let hostile = udp(&[b'a'; 1_400], 1, 2, 3);
    let slow = "pcre:\"/(a*)*\\1c/\";";
    for (action, gate, dropped) in [("alert", Gate::FIRST, 0), ("pass", Gate::FIRST, 0), ("drop", UNDECIDED, 1)] {
        let rule = format!("{action} udp any any -> any any ({slow} sid:1;)");
        let mut rig = Rig::of::<Nids>(&json!({ "rules": [rule], "steps": 10_000 })).expect("a rig");
        assert_eq!(rig.run(&hostile).0, gate, "{action}");
        let counts = rig.counters("packets");
        assert_eq!((counts["undecided"], counts["dropped"], counts["alerted"]), (1, dropped, 0), "{action}");
        assert_eq!(matched(&rig), [""; 0]);
        // The next packet has its own steps.
        rig.run(&udp(b"aac", 1, 2, 3));
        assert_eq!(rig.counters("packets")["undecided"], 1, "{action}");
    }
    // A rule that passes the packet decides. A rule that drops it gives its own reason.
    let drop = format!("drop udp any any -> any any ({slow} sid:1;)");
    let mut passed = rig(&[&drop, "pass udp any any -> any any (sid:2;)"]);
    assert_eq!(passed.run(&hostile).0, Gate::FIRST);
    let mut both = rig(&[&drop, "drop udp any any -> any any (sid:2;)"]);
    assert_eq!(both.run(&hostile).0, DENIED);
    let error = Rig::of::<Nids>(&json!({ "rules": [], "steps": 9 })).err().expect("refused").to_string();
    assert!(error.contains("steps: 9: allowed are 1000 to 100000000"), "{error}");
}

/// Chains that would take exponential time if each way were tried are decided.
#[test]
fn chains_of_options_do_not_take_exponential_time() {
    let options = format!("content:\"a\"; {}byte_test:1,=,98,0,relative;", "content:\"a\"; distance:0; ".repeat(30));
    let rule = format!("alert udp any any -> any any ({options} sid:1;)");
    let mut rig = rig(&[&rule]);
    rig.run(&udp(&[b'a'; 1_000], 1, 2, 3));
    rig.run(&udp(&[&[b'a'; 999][..], b"b"].concat(), 1, 2, 3));
    assert_eq!((matched(&rig), rig.counters("packets")["undecided"]), (vec!["1 1 rule 1".to_owned()], 0));
}

fn options() -> impl Strategy<Value = String> {
    let number = || prop::sample::select(vec!["0", "1", "2", "n"]);
    let content = || prop::sample::select(vec!["a", "b", "ab", "|02|", "A"]);
    let relative = || prop::sample::select(vec!["", ",relative", ",relative,little", ",relative,string,dec"]);
    let option = prop_oneof![
        (content(), any::<bool>(), number(), 2u32..5).prop_map(|(content, not, distance, within)| {
            let not = if not { "!" } else { "" };
            format!("content:{not}\"{content}\"; distance:{distance}; within:{within}; ")
        }),
        content().prop_map(|content| format!("content:\"{content}\"; nocase; ")),
        (content(), number()).prop_map(|(content, offset)| format!("content:\"{content}\"; offset:{offset}; ")),
        content().prop_map(|content| format!("content:\"{content}\"; distance:0; endswith; ")),
        (any::<bool>(), number(), relative()).prop_map(|(not, at, relative)| {
            let relative = if relative.is_empty() { "" } else { ",relative" };
            format!("isdataat:{}{at}{relative}; ", if not { "!" } else { "" })
        }),
        (1u8..3, prop::sample::select(vec!["<", "!=", "&", ">=", "^"]), number(), number(), relative()).prop_map(
            |(bytes, operator, value, offset, relative)| {
                format!("byte_test:{bytes},{operator},{value},{offset}{relative}; ")
            }
        ),
        (
            1u8..3,
            number(),
            relative(),
            prop::sample::select(vec!["", ",align", ",from_beginning", ",from_end", ",post_offset -1"])
        )
            .prop_map(|(bytes, offset, relative, rest)| format!("byte_jump:{bytes},{offset}{relative}{rest}; ")),
        (number(), relative()).prop_map(|(offset, relative)| format!("byte_extract:1,{offset},n{relative}; ")),
        prop::sample::select(vec![
            "pcre:\"/a+/\"; ",
            "pcre:\"/^[ab]/R\"; ",
            "pcre:!\"/^b/R\"; ",
            "pcre:\"/b?/R\"; ",
            "pcre:\"/(a|b)\\1/\"; ",
            "pcre:\"/a(?=b)/i\"; ",
            "pcre:\"/(?<!a)b|a*?b/Rs\"; ",
        ])
        .prop_map(str::to_owned),
    ];
    vec(option, 1..6).prop_map(|options| format!("byte_extract:1,0,n; {}", options.concat()))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn chains_match_like_the_naive_matcher(
        options in options(),
        payloads in vec(vec(prop::sample::select(b"abAB\x00\x01\x02\x0312".to_vec()), 0..14), 1..10),
    ) {
        let text = format!("alert udp any any -> any any ({options} sid:1;)");
        let rule = &read(&text).unwrap_or_else(|error| panic!("{error}")).rules[0];
        let mut rig = rig(&[&text]);
        let mut expected = 0;
        for payload in payloads {
            let frame = udp(&payload, 1, 2, 3);
            rig.run(&frame);
            expected += u64::from(naive::matches(rule, &naive::read(&frame).expect("IP")));
            let counts = rig.counters("packets");
            prop_assert_eq!((counts["alerted"], counts["undecided"]), (expected, 0), "{} in {:?}", options, payload);
        }
    }
}
