//! The options `threshold` and `detection_filter`, which limit how often a rule matches or is reported.

use forebay_graph::short;

use super::number;
use crate::nids::rule::{Limit, LimitKind, Track};

/// Parses a limit: `track by_src, count 5, seconds 60`, and for a threshold also `type limit`.
pub(super) fn limit(name: &str, value: &str) -> Result<Limit, String> {
    let filter = name == "detection_filter";
    let form = if filter {
        "track by_src|by_dst|by_both|by_rule, count N, seconds N"
    } else {
        "type limit|threshold|both, track by_src|by_dst|by_both|by_rule, count N, seconds N"
    };
    let wrong = |part: &str| format!("{name} '{}': write {form}", short(part));
    let (mut kind, mut track, mut count, mut seconds) = (filter.then_some(LimitKind::Filter), None, None, None);
    for part in value.split(',').map(str::trim_ascii) {
        let (key, value) = part.split_once(' ').ok_or_else(|| wrong(part))?;
        let positive = |value: &str| number::<u32>(name, value, 1_000_000).ok().filter(|number| *number > 0);
        match (key, value.trim_ascii()) {
            ("type", "limit") if !filter => kind = Some(LimitKind::Limit),
            ("type", "threshold") if !filter => kind = Some(LimitKind::Threshold),
            ("type", "both") if !filter => kind = Some(LimitKind::Both),
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
