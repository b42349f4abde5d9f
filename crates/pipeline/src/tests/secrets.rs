//! The marker test: puts a marker in place of every secret in the schema, with every kind of error. No message may
//! contain a part of the marker.

use serde_json::{Map, Value, json};

use crate::conform::has_secret;
use crate::{Source, check};

/// Keys, numbers and words. The test searches messages for any eight consecutive characters of them.
const MARKERS: [&str; 5] = [
    "a0b1c2d3e4f506172839405162738495",
    "98765432109876543210987654321098",
    "Kq7wZr5tXy3uVb9nMp2s",
    "9876543210987.6543210e12",
    "c0ffee11c0ffee22c0ffee33c0ffee44c0ffee55c0ffee66c0ffee77c0ffee88",
];

/// The forms of a marker (`M`) in place of a value.
const FORMS: &[&str] = &[
    "M",
    "\"M\"",
    "[M]",
    "[[\"M\"]]",
    "{ M: 1 }",
    "{ M: M }",
    "{ x: M }",
    "{ M: }",
    "{ M: 1, M: 2 }",
    "&M x",
    "*M",
    "&M [M, *M]",
    "!M x",
    "!!M x",
    "[M",
    "{ M",
    "M: M: M",
    "\"M",
    "'M",
    "@M",
    "`M",
    "M]",
    "M }",
    "- M",
    "? M",
    "|M",
    "%M",
    "\"\\M\"",
    "\"x\" M",
    "M #M",
    "{ \"a #M\": 2, \"a #M\": 3 }",
    "[{ 'a #M': 2, 'a #M': 3 }]",
    "M\n M: x\n",
    "\n\tM: [\n",
    "\nM\n",
    "\nkey: M\n",
    "\"@M\"",
    "\"M.key\"",
    "0xM",
    "-M",
    "1M",
];

/// The forms of a marker in place of a word of a text, and beside it.
const WORDS: &[&str] = &["M", "M=1", "key=M", "key=@M", "M=M", "=M", "M/24", "192.0.2.1/M", "1M", "0xM", "#M M"];

/// Finds the paths to `value` and to every value in it.
fn ways(value: &Value, way: &[String], found: &mut Vec<Vec<String>>) {
    found.push(way.to_vec());
    let mut step = |part: String, value: &Value| ways(value, &[way, &[part]].concat(), found);
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| step(key.clone(), value)),
        Value::Array(list) => list.iter().enumerate().for_each(|(at, value)| step(at.to_string(), value)),
        _ => {}
    }
}

fn at<'v>(value: &'v mut Value, way: &[String]) -> &'v mut Value {
    way.iter().fold(value, |value, part| match value {
        Value::Array(list) => &mut list[part.parse::<usize>().expect("a number")],
        value => &mut value[part.as_str()],
    })
}

/// A configuration with `params` for a module of `kind`; `@@` stands for `form`.
fn text(kind: &str, params: &Value, form: &str) -> String {
    let params = params.to_string().replace("\"@@\"", form).replace("@@", form);
    format!(
        "ports: {{ in: {{ generator: }}, out: {{ sink: }} }}\nmodules:\n  m:\n    {kind}: {params}\n\
         pipeline: [ in -> m -> out ]\n"
    )
}

/// Returns a part of the marker that is in the message.
fn part_of<'m>(message: &str, marker: &'m str) -> Option<&'m str> {
    let digits = |text: &str| text.replace('.', "");
    (0..=marker.len() - 8)
        .map(|at| &marker[at..at + 8])
        .find(|part| message.contains(part) || digits(message).contains(&digits(part)[..digits(part).len().min(8)]))
}

#[test]
fn no_message_has_a_part_of_a_marker_in_the_place_of_a_secret() {
    let (mut cases, mut refused) = (0_usize, 0_usize);
    let mut check_message = |source: Source, written: &str, marker: &str| {
        cases += 1;
        if let Err(problems) = check(&source) {
            refused += 1;
            let message = format!("{problems} {problems:?}");
            let part = part_of(&message, marker);
            assert!(part.is_none(), "{part:?} of {written}\nin {message}");
        }
    };
    let schema = crate::schema();
    let mut kinds = 0;
    let mut number = 0;
    for (kind, rule) in
        schema["properties"]["modules"]["additionalProperties"]["properties"].as_object().expect("kinds")
    {
        if !has_secret(rule) {
            continue;
        }
        kinds += 1;
        let example = rule["examples"][0].clone();
        let parameters = rule["properties"].as_object().or_else(|| rule["anyOf"][0]["properties"].as_object());
        let secret: Vec<_> = parameters.expect("parameters").iter().filter(|(_, rule)| has_secret(rule)).collect();
        assert!(!secret.is_empty(), "{kind} has a secret that is in no parameter");
        for (name, _) in secret {
            // A parameter that is not in the example is added.
            let mut params = example.clone();
            params.as_object_mut().expect("parameters").entry(name.clone()).or_insert(json!("x"));
            let mut all = Vec::new();
            ways(&params[name.as_str()], std::slice::from_ref(name), &mut all);
            for way in &all {
                for form in FORMS {
                    number += 1;
                    let marker = MARKERS[number % MARKERS.len()];
                    let form = form.replace('M', marker);
                    let mut with = params.clone();
                    *at(&mut with, way) = json!("@@");
                    let written = text(kind, &with, &form);
                    check_message(Source::new(&written, "t.yaml", ""), &written, marker);
                    // The same form as a setting.
                    if number % 3 == 0 {
                        let set = format!("modules.m.{kind}.{}={form}", way.join("."));
                        let source = Source::new(text(kind, &params, ""), "t.yaml", "").set(&set);
                        check_message(source, &set, marker);
                    }
                }
                let marker = MARKERS[number % MARKERS.len()];
                for set in [
                    "modules.m.KIND.WAY.M=x",
                    "modules.m.KIND.M=x",
                    "modules.m.KIND.WAY:M",
                    "modules.m.KIND.WAY.M",
                    "modules.m.WAY=M",
                    "modules.m.KINDx.WAY=M",
                ] {
                    let set = set.replace('M', marker).replace("KIND", kind).replace("WAY", &way.join("."));
                    check_message(Source::new(text(kind, &params, ""), "t.yaml", "").set(&set), &set, marker);
                }
                let mut with = params.clone();
                match at(&mut with, way) {
                    // Renames every key to an unknown one.
                    Value::Object(map) => {
                        let keys: Vec<String> = map.keys().cloned().collect();
                        for key in &keys {
                            let mut renamed: Map<String, Value> = map.clone();
                            let value = renamed.remove(key).expect("it is there");
                            renamed.insert(marker.to_owned(), value);
                            let mut with = params.clone();
                            *at(&mut with, way) = Value::Object(renamed);
                            let written = text(kind, &with, "");
                            check_message(Source::new(&written, "t.yaml", ""), &written, marker);
                        }
                    }
                    // Every word of a text.
                    Value::String(line) => {
                        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
                        for (place, form) in
                            (0..=words.len()).flat_map(|place| WORDS.iter().map(move |form| (place, form)))
                        {
                            number += 1;
                            let marker = MARKERS[number % MARKERS.len()];
                            let (mut instead, mut beside) = (words.clone(), words.clone());
                            let form = form.replace('M', marker);
                            beside.insert(place, form.clone());
                            if let Some(word) = instead.get_mut(place) {
                                let name = word.split_once('=').map(|(name, _)| format!("{name}={marker}"));
                                *word = if number % 2 == 0 { form } else { name.unwrap_or(form) };
                            }
                            for words in [instead, beside] {
                                let mut with = params.clone();
                                *at(&mut with, way) = json!(words.join(" "));
                                let written = text(kind, &with, "");
                                check_message(Source::new(&written, "t.yaml", ""), &written, marker);
                            }
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    assert!(kinds >= 4 && refused > cases / 2, "{kinds} kinds, {refused} of {cases} refused");
}
