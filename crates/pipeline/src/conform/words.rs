//! Describes values, and the values that a schema allows, in words.

use std::sync::LazyLock;

use forebay_graph::{listed, nearest};
use forebay_units::quantity::{most, units_of};
use regex_lite::Regex;
use serde_json::Value;

use crate::wording::quote;

/// Returns whether a rule allows only values of one type, apart from null.
pub(super) fn is_only(rule: &Value, name: &str) -> bool {
    match &rule["type"] {
        Value::Array(names) => names.iter().all(|it| it == name || it == "null"),
        it => it == name,
    }
}

/// Returns the verb for `count` things.
pub(super) fn be(count: usize) -> &'static str {
    if count == 1 { "is" } else { "are" }
}

/// Returns the keys that a schema allows in a mapping.
pub(super) fn keys_of(rule: &Value) -> impl Iterator<Item = &str> {
    rule["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str())
}

/// Returns the message for an unknown key at the end of `path`, with a suggestion and the known keys.
pub(super) fn unknown_key(path: &[&str], key: &str, rule: &Value) -> String {
    let names: Vec<&str> = keys_of(rule).collect();
    let meant = meant(path, key, &names);
    let near = if meant.is_empty() { nearest(key, names.iter().copied()) } else { meant };
    let known = listed(names.iter().copied());
    match path {
        ["modules", _, _] => format!("there is no function {}{near}: there are {known}", quote(key)),
        ["ports", _, _] => format!("there is no kind of port {}{near}: there are {known}", quote(key)),
        ["state", _, _] if names.is_empty() => format!("there is no kind of state {}: none is known", quote(key)),
        ["state", _, _] => format!("there is no kind of state {}{near}: there are {known}", quote(key)),
        _ if names.is_empty() => format!("unknown key {}: none is allowed", quote(key)),
        _ => format!("unknown key {}{near}: allowed {} {known}", quote(key), be(names.len())),
    }
}

/// The names that other programs use for functions and ports, and the corresponding names of Forebay: section, foreign
/// name, names. A test checks that Forebay's names exist.
pub(super) const MEANT: &[(&str, &str, &[&str])] = &[
    ("modules", "nat", &["nat_out", "nat_in", "static_nat"]),
    ("modules", "snat", &["nat_out", "static_nat"]),
    ("modules", "dnat", &["nat_in", "static_nat"]),
    ("modules", "masquerade", &["nat_out"]),
    ("modules", "napt", &["nat_out", "nat_in"]),
    ("modules", "route", &["ip_lookup"]),
    ("modules", "routes", &["ip_lookup"]),
    ("modules", "router", &["ip_lookup"]),
    ("modules", "routing", &["ip_lookup"]),
    ("modules", "lookup", &["ip_lookup", "exact_match"]),
    ("modules", "lpm", &["ip_lookup"]),
    ("modules", "fib", &["ip_lookup"]),
    ("modules", "forward", &["ip_lookup", "mac_table"]),
    ("modules", "bridge", &["mac_table"]),
    ("modules", "switch", &["mac_table"]),
    ("modules", "l2", &["mac_table"]),
    ("modules", "vlan", &["vlan_split", "vlan_push", "vlan_pop"]),
    ("modules", "vxlan", &["vxlan_encap", "vxlan_decap"]),
    ("modules", "gtp", &["gtpu_encap", "gtpu_decap"]),
    ("modules", "gtpu", &["gtpu_encap", "gtpu_decap"]),
    ("modules", "upf", &["upf_uplink", "upf_downlink"]),
    ("modules", "esp", &["esp_encrypt", "esp_decrypt"]),
    ("modules", "ipsec", &["esp_encrypt", "esp_decrypt"]),
    ("modules", "vpn", &["esp_encrypt", "esp_decrypt"]),
    ("modules", "encrypt", &["esp_encrypt", "aes_gcm_encrypt"]),
    ("modules", "decrypt", &["esp_decrypt", "aes_gcm_decrypt"]),
    ("modules", "fw", &["firewall", "acl"]),
    ("modules", "filter", &["acl", "firewall"]),
    ("modules", "rules", &["acl"]),
    ("modules", "access_list", &["acl"]),
    ("modules", "conntrack", &["firewall"]),
    ("modules", "stateful", &["firewall"]),
    ("modules", "lb", &["balance"]),
    ("modules", "load_balancer", &["balance"]),
    ("modules", "loadbalancer", &["balance"]),
    ("modules", "balancer", &["balance"]),
    ("modules", "ids", &["nids"]),
    ("modules", "ips", &["nids"]),
    ("modules", "snort", &["nids"]),
    ("modules", "suricata", &["nids"]),
    ("modules", "policer", &["meter"]),
    ("modules", "police", &["meter"]),
    ("modules", "limit", &["meter", "shaper"]),
    ("modules", "rate_limit", &["meter", "shaper"]),
    ("modules", "qos", &["meter", "shaper"]),
    ("modules", "queue", &["shaper"]),
    ("modules", "mirror", &["copy", "tap"]),
    ("modules", "tee", &["copy"]),
    ("modules", "arp", &["interface_in", "interface_out"]),
    ("modules", "ping", &["interface_in"]),
    ("modules", "icmp", &["interface_in", "icmp_error"]),
    ("modules", "fragment", &["mtu", "reassemble"]),
    ("modules", "defragment", &["reassemble"]),
    ("modules", "split", &["hash_split", "ether_split", "vlan_split"]),
    ("modules", "rss", &["hash_split"]),
    ("modules", "count", &["counter"]),
    ("modules", "checksum", &["ip_checksum"]),
    ("modules", "mss", &["mss_clamp"]),
    ("modules", "pass", &["bypass"]),
    ("ports", "eth", &["af_packet", "af_xdp"]),
    ("ports", "ethernet", &["af_packet", "af_xdp"]),
    ("ports", "interface", &["af_packet", "af_xdp"]),
    ("ports", "nic", &["af_packet", "af_xdp"]),
    ("ports", "raw", &["af_packet"]),
    ("ports", "socket", &["af_packet"]),
    ("ports", "xdp", &["af_xdp"]),
    ("ports", "dpdk", &["af_xdp", "af_packet"]),
    ("ports", "tun", &["tap"]),
    ("ports", "veth", &["af_packet"]),
    ("ports", "file", &["pcap"]),
    ("ports", "capture", &["pcap"]),
    ("ports", "pcapng", &["pcap"]),
    ("ports", "traffic", &["generator"]),
    ("ports", "source", &["generator"]),
    ("ports", "null", &["sink"]),
    ("ports", "discard", &["sink"]),
    ("ports", "drop", &["sink"]),
];

/// Suggests functions or kinds of ports for a name that other programs use. `names` are the existing names. Returns an
/// empty text without a suggestion.
fn meant(path: &[&str], key: &str, names: &[&str]) -> String {
    let [section, _, _] = path else { return String::new() };
    let key = key.to_ascii_lowercase().replace('-', "_");
    let of = MEANT.iter().find(|(of, name, _)| of == section && *name == key);
    let known = of.into_iter().flat_map(|(_, _, meant)| meant.iter()).filter(|meant| names.contains(meant));
    match known.map(|name| format!("'{name}'")).collect::<Vec<_>>() {
        known if known.is_empty() => String::new(),
        known => format!(" (did you mean {}?)", known.join(" or ")),
    }
}

/// Returns a hint with the long form of a module, port or state that was written as a single word. `path` leads to the
/// word, and `rule` is the schema of the long form. `None` if the long form cannot be guessed.
pub(super) fn long_form(path: &[&str], text: &str, rule: &Value) -> Option<String> {
    let plain = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-/".contains(&byte))
    };
    if !plain(text) {
        return None;
    }
    match path {
        // `fw: acl`
        [section @ ("modules" | "ports" | "state"), name] => {
            let known = rule["properties"].as_object()?;
            let kind = known.keys().find(|known| *known == text);
            let noun = if *section == "modules" { "function" } else { "kind" };
            match kind {
                Some(kind) => {
                    Some(format!("write `{name}: {{ {kind}: }}`, or with parameters `{name}: {{ {kind}: {{ ... }} }}`"))
                }
                None => Some(format!(
                    "write `{name}: {{ ... }}` with a {noun} in it{}",
                    nearest(text, known.keys().map(String::as_str))
                )),
            }
        }
        // `af_packet: eth0`
        ["modules" | "ports" | "state", _, kind] => {
            let texts = rule["properties"]
                .as_object()?
                .iter()
                .filter(|(_, rule)| rule["type"] == "string" || rule.get("$ref").is_some());
            let names: Vec<&str> = texts.map(|(name, _)| name.as_str()).collect();
            let required = rule["required"].as_array()?.iter().filter_map(Value::as_str).collect::<Vec<_>>();
            match required[..] {
                [only] if names.contains(&only) => Some(format!("write `{kind}: {{ {only}: {text} }}`")),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Returns the units that the schema of a quantity allows, the largest last; `None` if it is not a quantity.
pub(super) fn units(rule: &Value) -> Option<Vec<&str>> {
    units_of(rule["pattern"].as_str()?)
}

/// Describes the values that at least one of `forms` allows, except null: a key without a value is like no key.
pub(super) fn allowed_of(forms: &[Value]) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for form in forms.iter().filter(|form| form["type"] != "null") {
        let keys: Vec<&str> = keys_of(form).collect();
        // The keys of a mapping are not listed a second time.
        let is_listed = !keys.is_empty() && words.iter().eq(&keys);
        if is_listed {
            words.push("a mapping with one of these names".to_owned());
        } else {
            words.extend(allowed(form));
        }
    }
    words
}

/// Describes the values that a schema allows.
pub(super) fn allowed(rule: &Value) -> Vec<String> {
    if let Some(value) = rule.get("const") {
        return vec![bare(value)];
    }
    if let Some(values) = rule["enum"].as_array() {
        return values.iter().map(bare).collect();
    }
    if let Some(forms) = rule.get("anyOf").or_else(|| rule.get("oneOf")).and_then(Value::as_array) {
        return allowed_of(forms);
    }
    if let Some(units) = units(rule) {
        return vec![format!("a number with a unit ({})", units.join(", "))];
    }
    let kind = match &rule["type"] {
        Value::Array(kinds) => kinds.iter().find(|kind| *kind != "null").unwrap_or(&Value::Null),
        kind => kind,
    };
    vec![match kind.as_str() {
        Some("integer") => format!("a whole number{}", range(rule)),
        Some("number") => format!("a number{}", range(rule)),
        Some("string") if rule["pattern"].is_string() => {
            rule["description"].as_str().map_or_else(|| format!("text like {}", rule["pattern"]), first_sentence)
        }
        Some("object") => {
            match rule["properties"].as_object().map(|it| it.keys().map(String::as_str).collect::<Vec<_>>()) {
                Some(keys) if !keys.is_empty() => format!("a mapping with {}", listed(keys)),
                _ => "a mapping".to_owned(),
            }
        }
        other => word(other).to_owned(),
    }]
}

/// Returns the range that the first sentence of a description states, for example `1kbps to 1Tbps`. If the description
/// has a second range for another unit, it is included.
pub(super) fn stated(rule: &Value) -> Option<String> {
    static RANGE: LazyLock<Regex> = LazyLock::new(|| {
        let amount = r"\d[\d.]*( \d{3})*[A-Za-z]*";
        Regex::new(&format!(r"{amount} to {amount}( or {amount} to {amount})?")).expect("a regular expression")
    });
    let description = first_sentence(rule["description"].as_str()?);
    RANGE.find(&description).map(|found| found.as_str().to_owned())
}

/// Returns the bounds of a quantity from the description of its rule, or else from its type.
pub(super) fn bounds(rule: &Value) -> Option<String> {
    stated(rule).map(|stated| format!("from {stated}")).or_else(|| Some(format!("up to {}", most(units(rule)?)?)))
}

/// Returns the largest number of an integer type of the schema.
fn largest(rule: &Value) -> Option<u64> {
    match rule["format"].as_str()? {
        "uint32" => Some(u32::MAX.into()),
        "uint" | "uint64" => Some(u64::MAX),
        _ => None,
    }
}

/// Returns the range of a number with a blank in front: ` from 1 to 9`. Empty if every number is allowed.
pub(super) fn range(rule: &Value) -> String {
    let bounded = ["maximum", "exclusiveMaximum"].iter().any(|bound| rule.get(bound).is_some());
    if !bounded && let Some(stated) = stated(rule) {
        return format!(" from {stated}");
    }
    let largest = largest(rule).filter(|_| !bounded);
    let least = rule.get("minimum").map(|least| format!(" from {}", bare(least)));
    let above = rule.get("exclusiveMinimum").map(|bound| format!(" above {}", bare(bound)));
    let most = rule.get("maximum").map(|most| format!(" to {}", bare(most)));
    let below = rule.get("exclusiveMaximum").map(|bound| format!(" below {}", bare(bound)));
    let largest = largest.map(|most| format!(" to {most}"));
    [least, above, most, below, largest].into_iter().flatten().collect()
}

/// Returns the range of a number like [`range`]. Empty also if the rule is not about numbers.
pub(super) fn within(rule: &Value) -> String {
    if ["integer", "number"].iter().any(|name| is_only(rule, name)) { range(rule) } else { String::new() }
}

/// Returns the number that a text with the letter of a factor stands for: 100000 for `100k`. `None` for any other text.
pub(super) fn multiple(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        _ => return None,
    };
    digits.trim_end().parse::<u64>().ok()?.checked_mul(factor)
}

/// Lists the types that a schema allows.
pub(super) fn types(rule: &Value) -> String {
    match &rule["type"] {
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null");
            kinds.map(|kind| word(Some(kind))).collect::<Vec<_>>().join(" or ")
        }
        kind => word(kind.as_str()).to_owned(),
    }
}

/// Returns the noun for a type of JSON Schema.
fn word(kind: Option<&str>) -> &'static str {
    match kind {
        Some("integer") => "a whole number",
        Some("number") => "a number",
        Some("string") => "text",
        Some("boolean") => "true or false",
        Some("array") => "a list",
        Some("object") => "a mapping",
        Some("null") => "nothing",
        _ => "any value",
    }
}

/// Returns a value without quotes, for a list of allowed values.
pub(super) fn bare(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a value in quotes, for a message. Lists and mappings are not shown.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        value => quote(&bare(value)),
    }
}

/// Returns the first sentence of a description, on one line.
pub(super) fn first_sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let end = text.find(". ").unwrap_or(text.len());
    text[..end].trim_end_matches('.').to_owned()
}
