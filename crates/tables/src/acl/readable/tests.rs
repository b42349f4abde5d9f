//! Tests of lines that are parsed, and of the errors of lines that are not.

use super::super::rule_file::{self, parse_line};
use super::*;

/// Returns the rules of the lines in their readable form.
fn parsed(lines: &str) -> Vec<String> {
    let file = rule_file::parse("f", lines.as_bytes()).unwrap_or_else(|errors| panic!("{lines}: {errors}"));
    let v6 = file.v6.iter().map(|rule| Readable(rule).to_string());
    file.v4.iter().map(|rule| Readable(rule).to_string()).chain(v6).collect()
}

fn refused(line: &str) -> String {
    parse_line(line, &Sets::default()).expect_err(line)
}

#[test]
fn a_rule_is_shown_as_it_is_written() {
    for line in [
        "permit tcp from 10.0.0.0/8 to 192.168.1.10 port 80",
        "deny ip from any to any",
        "deny ip6 from any to any",
        "permit ip tcp from any to any port 22",
        "count udp from 10.0.0.1 port 1024-65535 to any port 53",
        "permit icmp type echo-request from any to any",
        "permit icmp6 type packet-too-big code 0 from any to 2001:db8::1",
        "deny icmp type 8-10 from 10.0.0.0/8 to any",
        "deny ip 58 from any to any",
        "deny 1 from 2001:db8::/32 to any",
        "permit esp from 192.0.2.1 to 192.0.2.2",
        "permit ip6 0x06/0x0F from any to any",
        "deny ip 0x01/0xFF from any port 300 to any",
        "deny ip6 0x01/0xFF from any to any port 8",
        "deny ip 0x3A/0xFF from any to any port 8",
    ] {
        assert_eq!(parsed(line), [line]);
    }
}

#[test]
fn a_rule_in_words_is_the_rule_of_classbench() {
    for (line, classbench) in [
        ("permit tcp from 10.0.0.0/8 to 192.168.1.10 port http", "@10.0.0.0/8 192.168.1.10/32 0:65535 80:80 6/255"),
        ("drop udp from 10.0.0.1 port 1-9", "@10.0.0.1/32 0.0.0.0/0 1:9 0:65535 17/255 deny"),
        ("permit ip6", "@::/0 ::/0 0:65535 0:65535 0/0"),
        ("count icmp type 3 code 4", "@0.0.0.0/0 0.0.0.0/0 3:3 4:4 1/255 count"),
        ("permit ip from 192.168.1.0/24", "@192.168.1.0/24 0.0.0.0/0 0 : 65535 0 : 65535 0x00/0x00 permit"),
        ("permit ip6 from 2001:db8:1::/64", "@2001:db8:1::/64 ::/0 0 : 65535 0 : 65535 0x00/0x00 permit"),
        (
            "permit tcp from any to 192.168.1.10 port 443",
            "@0.0.0.0/0 192.168.1.10/32 0 : 65535 443 : 443 0x06/0xff permit",
        ),
        ("deny ip to 10.0.0.0/8 port domain", "@0.0.0.0/0 10.0.0.0/8 0:65535 53:53 0/0 deny"),
    ] {
        assert_eq!(parse_line(line, &Sets::default()), parse_line(classbench, &Sets::default()), "{line}");
    }
}

#[test]
fn lists_sets_and_any_mean_several_rules() {
    assert_eq!(
        parsed("permit tcp from any to any port 80, 443,440-450,80").join("\n"),
        "\
        permit ip tcp from any to any port 80\npermit ip tcp from any to any port 440-450\n\
        permit ip6 tcp from any to any port 80\npermit ip6 tcp from any to any port 440-450"
    );
    assert_eq!(
        parsed(
            "set home=10.1.0.0/16,10.0.0.0/8\nset all = home, 2001:db8::/32 # both\ndeny udp,tcp from all to 192.0.2.1"
        ),
        ["deny udp from 10.0.0.0/8 to 192.0.2.1", "deny tcp from 10.0.0.0/8 to 192.0.2.1"]
    );
    assert_eq!(parsed("deny icmp, icmp6"), ["deny icmp from any to any", "deny icmp6 from any to any"]);
    assert_eq!(
        parsed("deny tcp,6,0x06 from 10.0.0.1"),
        ["deny tcp from 10.0.0.1 to any"],
        "each protocol gives one rule"
    );
}

#[test]
fn a_file_may_mix_both_forms() {
    let text =
        "# both\npermit tcp from 10.0.0.0/8 to any port 22\n@10.0.0.0/8 0.0.0.0/0 0 : 65535 0 : 65535 0/0 deny\n";
    let file = rule_file::parse("f", text.as_bytes()).expect("rules");
    assert_eq!((file.v4.len(), file.v4_lines), (2, vec![2, 3]));
}

#[test]
fn errors_name_the_word_and_what_is_allowed() {
    for (line, expected) in [
        (
            "allow tcp from any to any",
            "'allow' is not a valid action (did you mean 'permit'?): allowed are permit, deny (or drop)",
        ),
        ("premit tcp", "'premit' is not a valid action (did you mean 'permit'?)"),
        ("permit", "the rule ends before the packets: allowed are any, ip, ip6, a protocol's name"),
        ("permit tpc from any", "'tpc' is not a valid protocol (did you mean 'tcp'?): allowed are any, ip"),
        ("permit from any", "'from' is not a valid protocol (did you mean 'any'?)"),
        ("permit 256 from any", "'256' is not a valid protocol: allowed"),
        ("permit tcp from 10.0.0.0/33 to any", "10.0.0.0/33: prefix length 33 is out of range (0 to 32)"),
        ("permit tcp from 2001:db8::/129", "prefix length 129 is out of range (0 to 128)"),
        ("permit tcp from 10.1.2.3/8 to any", "write 10.0.0.0/8 for the network, or 10.1.2.3 for the address"),
        (
            "permit tcp from 10.0.0.256 to any",
            "'10.0.0.256' is not a valid address, prefix or set: allowed are any, an address",
        ),
        (
            "permit tcp from any to any port htpp",
            "'htpp' is not a valid port (did you mean 'http'?): allowed are numbers",
        ),
        ("permit tcp from any to any port 70000", "'70000' is not a valid port: allowed are numbers from 0 to 65535"),
        ("permit tcp from any to any port 90-80", "90-80 is in the wrong order: the lower value comes first"),
        (
            "permit tcp from any to any port 80:90",
            "'80:90' is not a valid port: allowed are numbers from 0 to 65535, ranges such",
        ),
        ("permit tcp from any to any port 80,", "the rule ends before a port: allowed"),
        ("permit tcp from any port", "the rule ends before a port"),
        ("permit tcp port 80", "'port' is not a valid continuation of the rule"),
        ("permit tcp any any eq 80", "'any' is not a valid continuation of the rule"),
        ("permit tcp to any from any", "allowed is 'from' before 'to'"),
        ("permit tcp from any to any established", "use the function `firewall` to match connections"),
        ("permit icmp echo-request", "allowed is icmp type echo-request"),
        (
            "permit icmp type ping",
            "'ping' is not a valid type of ICMP: allowed are numbers from 0 to 255, ranges such as 3-4, and echo-",
        ),
        ("permit icmp type 256", "'256' is not a valid type of ICMP"),
        ("permit tcp type 8", "'type' is not a valid continuation of the rule"),
        ("permit icmp from any to any port 8", "icmp has no ports: allowed with 'port' are tcp"),
        (
            "permit tcp from 10.0.0.1 to 2001:db8::1",
            "'10.0.0.1' matches no packet here: it is IPv4, and 'to' has no address",
        ),
        ("permit ip6 tcp from 10.0.0.1", "'10.0.0.1' matches no packet here: the rule is for IPv6 only"),
        ("permit icmp6 from 10.0.0.1", "'10.0.0.1' matches no packet here: 'icmp6' is of the other address family"),
        ("permit ip icmp6", "'icmp6' matches no packet here"),
        ("permit ipv6 from any", "'ipv6' is not a valid protocol (did you mean 'ip6'?)"),
        ("set x = 10.0.0.0/8", "a change cannot define a set"),
    ] {
        let error = refused(line);
        assert!(error.contains(expected), "{line}\n{error}\n{expected}");
    }
}

#[test]
fn errors_of_a_file_name_its_lines_and_sets_their_faults() {
    let text = "set office = 10.0.0.0/8\nset office = 10.0.0.0/8\nset any = 10.0.0.0/8\nset x 10.0.0.0/8\n\
        set\nset y =\nset z = 10.0.0.0/8 11.0.0.0/8\npermit tcp from ofice to any\n";
    let error = rule_file::parse("r", text.as_bytes()).expect_err("faults").to_string();
    let starts = [
        "r:2: the set 'office' is defined already",
        "r:3: 'any' is not a valid name of a set",
        "r:4: '10.0.0.0/8' is not a valid sign after the name: allowed is \"=\"",
        "r:5: the rule ends before a name",
        "r:6: the rule ends before an address",
        "r:7: '11.0.0.0/8' is not a valid separator: allowed is",
        "r:8: 'ofice' is not a valid address, prefix or set (did you mean 'office'?)",
    ];
    assert_eq!(error.lines().count(), starts.len(), "{error}");
    for (line, start) in error.lines().zip(starts) {
        assert!(line.starts_with(start), "{line}\n{start}");
    }
}

#[test]
fn a_line_means_a_bounded_number_of_rules() {
    let many: Vec<String> = (0..200).map(|n| format!("10.{n}.0.0/24")).collect();
    let ports: Vec<String> = (0..200).map(|n| (n * 2).to_string()).collect();
    let line = format!("permit tcp from {0} to {0} port {1}", many.join(","), ports.join(","));
    assert_eq!(refused(&line), "the line stands for 8000000 rules: at most 16384 are allowed in one line");
    let most = format!("permit tcp from {} to any port {}", many.join(","), ports[..81].join(","));
    assert_eq!(parsed(&most).len(), 200 * 81);
}

/// Returns a set of `count` addresses, no two of which are adjacent.
fn large_set(name: &str, from: u8, count: usize) -> String {
    let members: Vec<_> =
        (0..count).map(|n| format!("{from}.{}.{}.{}", n >> 15, n >> 7 & 255, (n & 127) * 2)).collect();
    format!("set {name} = {}\n", members.join(","))
}

/// Regression: 4 000 times 16 000 prefixes took hundreds of megabytes.
#[test]
fn a_set_that_a_list_names_again_is_in_it_once() {
    let again = vec!["a"; 4_000].join(",");
    let file = format!("{}permit ip from {again}\nset b = {again}\npermit ip from b", large_set("a", 10, 16_000));
    let file = rule_file::parse("f", file.as_bytes()).expect("rules");
    assert_eq!((file.v4.len(), file.sets.members()), (32_000, 32_000));
}

#[test]
fn a_list_of_sets_is_refused_before_it_is_put_together() {
    let names: Vec<_> = (1..=8).map(|n| format!("a{n}")).collect();
    let sets: String = names.iter().zip(1..).map(|(name, n)| large_set(name, n, 16_000)).collect();
    let long = "the list has more than 16384 prefixes of one address family: allowed are up to 16384 in one line";
    for line in [names.join(","), names[..2].join(","), format!("{},{}", names.join(","), "0.0.0.0,".repeat(99) + "no")]
    {
        for line in
            [format!("permit ip from {line}"), format!("permit ip to {line} port 80"), format!("set b = {line}")]
        {
            let error = rule_file::parse("f", format!("{sets}{line}").as_bytes()).expect_err("too long").to_string();
            assert_eq!(error, format!("f:9: {long}"));
        }
    }
    // Prefixes that other prefixes cover do not count.
    let whole = format!("{sets}permit ip from {},0.0.0.0/1", names[..3].join(","));
    assert_eq!(rule_file::parse("f", whole.as_bytes()).expect("rules").v4.len(), 1);
}

#[test]
fn a_wrong_word_is_not_suggested_itself() {
    for line in ["permit tcp port 80", "permit tcp from any to any from any", "permit tcp from any to any to any"] {
        let error = refused(line);
        assert!(error.contains("is not a valid continuation of the rule: allowed"), "{line}\n{error}");
    }
}

#[test]
fn icmp_by_number_has_no_ports() {
    for line in ["permit 1 from any to any port 8", "permit 0x3a from any port 8", "permit ip6 tcp,58 to any port 8"] {
        let error = refused(line);
        assert!(error.contains("has no ports: allowed with 'port' are tcp"), "{line}\n{error}");
    }
    assert_eq!(parsed("permit ip 6 to any port 8"), ["permit ip tcp from any to any port 8"]);
}

#[test]
fn a_prefix_length_does_not_begin_with_0() {
    for (line, expected) in [
        ("permit ip from 10.0.0.0/08", "10.0.0.0/08: prefix length 08 begins with 0: write 10.0.0.0/8"),
        ("permit ip from 0.0.0.0/00", "0.0.0.0/00: prefix length 00 begins with 0: write 0.0.0.0/0"),
        ("permit ip6 from 2001:db8::/032", "2001:db8::/032: prefix length 032 begins with 0: write 2001:db8::/32"),
    ] {
        assert_eq!(refused(line), expected);
    }
    assert_eq!(parsed("permit ip from 0.0.0.0/0"), ["permit ip from any to any"]);
}
