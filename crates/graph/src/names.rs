//! Names in messages: suggestions for misspelt names, and lists of names.

/// Returns `" (did you mean 'x'?)"` if one of `names` is close to `wrong`, else an empty text.
#[must_use]
pub fn nearest<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    // A third of the letters may differ, or one letter in a short name. Names of more than 64 characters are ignored,
    // which bounds the work.
    let letters = wrong.chars().count();
    if !(2..=64).contains(&letters) {
        return String::new();
    }
    let (given, wrong) = (wrong, wrong.to_lowercase());
    let distance = |name: &str| strsim::osa_distance(&wrong, &name.to_lowercase());
    let near = names.into_iter().filter(|name| name.len() <= 64).map(|name| (distance(name), name));
    let best = near.min().filter(|(distance, _)| *distance <= 1.max(letters / 3));
    // A name that is equal to the given text is not suggested: the text is spelt correctly, but not allowed here.
    let best = best.filter(|(_, name)| *name != given);
    best.map_or_else(String::new, |(_, name)| format!(" (did you mean '{name}'?)"))
}

/// Lists names for a message. Shortens long lists. `none` if there are no names.
#[must_use]
pub fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    const MOST: usize = 24;
    let names: Vec<_> = names.into_iter().collect();
    if names.is_empty() {
        return "none".to_owned();
    }
    let mut text = names[..names.len().min(MOST)].join(", ");
    if names.len() > MOST {
        text.push_str(&format!(" and {} more", names.len() - MOST));
    }
    text
}

/// Returns the allowed names with their verb, for a message: `allowed are a, b`, `allowed is a` or `none is allowed`.
#[must_use]
pub fn allowed_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    match names[..] {
        [] => "none is allowed".to_owned(),
        [only] => format!("allowed is {only}"),
        _ => format!("allowed are {}", listed(names)),
    }
}

/// Returns the existing names with their verb, for a message: `there are a, b`, `there is a` or `there are none`.
#[must_use]
pub fn existing_names<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    format!("there {verb} {}", listed(names))
}

/// Returns the end of a message that nothing is called `wrong`: a similar name, if there is one, and the existing
/// names. An example is ` (did you mean 'acl'?): there are acl, dpi`.
#[must_use]
pub fn known_names<'a>(wrong: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.into_iter().collect();
    format!("{}: {}", nearest(wrong, names.iter().copied()), existing_names(names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_misses_are_suggested_and_others_not() {
        let names = ["ip_lookup", "ip_checksum", "acl"];
        assert_eq!(nearest("ip_lokoup", names), " (did you mean 'ip_lookup'?)");
        assert_eq!(nearest("ACL", names), " (did you mean 'acl'?)");
        assert_eq!(nearest("firewall", names), "");
        assert_eq!(nearest("acl", names), "", "the word itself");
        assert_eq!(nearest(&"x".repeat(100_000), names), "");
    }

    #[test]
    fn the_verb_agrees_with_the_number_of_names() {
        assert_eq!(allowed_names([]), "none is allowed");
        assert_eq!(allowed_names(["a"]), "allowed is a");
        assert_eq!(allowed_names(["a", "b"]), "allowed are a, b");
        assert_eq!(existing_names([]), "there are none");
        assert_eq!(existing_names(["a"]), "there is a");
        assert_eq!(existing_names(["a", "b"]), "there are a, b");
    }

    #[test]
    fn an_unknown_name_is_followed_by_a_similar_name_and_all_names() {
        assert_eq!(known_names("ac", ["acl", "dpi"]), " (did you mean 'acl'?): there are acl, dpi");
        assert_eq!(known_names("firewall", ["acl"]), ": there is acl");
    }

    #[test]
    fn lists_are_short_and_never_empty() {
        assert_eq!(listed([]), "none");
        assert_eq!(listed(["a"]), "a");
        assert_eq!(listed(["a", "b"]), "a, b");
        assert_eq!(listed(["a"; 24]), ["a"; 24].join(", "));
        assert_eq!(listed(["a"; 26]), format!("{} and 2 more", ["a"; 24].join(", ")));
    }
}
