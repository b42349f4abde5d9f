//! `threshold` and `detection_filter`: how often a rule matches, or is reported.

use super::super::short;
use super::number;
use crate::nids::rule::{Kind, Limit, Track};

/// `track by_src, count 5, seconds 60`, and for a threshold `type limit`.
pub(super) fn limit(name: &str, value: &str) -> Result<Limit, String> {
    let filter = name == "detection_filter";
    let form = if filter {
        "track by_src|by_dst|by_both|by_rule, count N, seconds N"
    } else {
        "type limit|threshold|both, track by_src|by_dst|by_both|by_rule, count N, seconds N"
    };
    let wrong = |part: &str| format!("{name} '{}': write {form}", short(part));
    let (mut kind, mut track, mut count, mut seconds) = (filter.then_some(Kind::Filter), None, None, None);
    for part in value.split(',').map(str::trim_ascii) {
        let (key, value) = part.split_once(' ').ok_or_else(|| wrong(part))?;
        let positive = |value: &str| number::<u32>(name, value, 1_000_000).ok().filter(|number| *number > 0);
        match (key, value.trim_ascii()) {
            ("type", "limit") if !filter => kind = Some(Kind::Limit),
            ("type", "threshold") if !filter => kind = Some(Kind::Threshold),
            ("type", "both") if !filter => kind = Some(Kind::Both),
            ("track", "by_src") => track = Some(Track::Source),
            ("track", "by_both") => track = Some(Track::Both),
            ("track", "by_rule") => track = Some(Track::Rule),
            ("track", "by_dst") => track = Some(Track::Destination),
            ("count", value) => {
                count = Some(
                    positive(value)
                        .ok_or_else(|| format!("{name} count '{}': allowed are 1 to 1000000", short(value)))?,
                )
            }
            ("seconds", value) => {
                let allowed = positive(value).filter(|seconds| *seconds <= 86_400);
                seconds =
                    Some(allowed.ok_or_else(|| format!("{name} seconds '{}': allowed are 1 to 86400", short(value)))?);
            }
            _ => return Err(wrong(part)),
        }
    }
    match (kind, track, count, seconds) {
        (Some(kind), Some(track), Some(count), Some(seconds)) => Ok(Limit { kind, track, count, seconds }),
        _ => Err(wrong(value)),
    }
}
