//! Parsers of argument values.

use std::ops::RangeInclusive;

use forebay_pipeline::shown_setting;
use forebay_protocol::WantedWorkers;
use forebay_units::Nanos;

/// Parses a setting of a configuration. Refuses an empty value, because it would remove a key such as an objective by
/// mistake. `null` removes a key.
pub(super) fn setting(text: &str) -> Result<String, String> {
    let setting = parameter(text)?;
    match setting.split_once('=') {
        Some((key, value)) if value.trim().is_empty() => {
            let shown = shown_setting(&format!("{}=null", key.trim()));
            let key = shown.split_once('=').map_or(shown.as_str(), |(key, _)| key);
            Err(format!(
                "the value is missing: `{key}=null` removes the key, `{key}={{}}` sets the key without parameters"
            ))
        }
        _ => Ok(setting),
    }
}

/// Parses a parameter. Its value may be empty: the parameter's schema defines the meaning.
pub(super) fn parameter(text: &str) -> Result<String, String> {
    match text.split_once('=') {
        Some((key, _)) if !key.trim().is_empty() => Ok(text.to_owned()),
        _ => Err("write KEY=VALUE, such as n=16".to_owned()),
    }
}

/// Parses a module with its trigger.
pub(super) fn trigger(text: &str) -> Result<(String, usize), String> {
    let parts = text.rsplit_once('=').and_then(|(module, n)| Some((module.to_owned(), n.parse().ok()?)));
    parts.ok_or_else(|| "write MODULE=N, such as route=16".to_owned())
}

/// Parses a module with the workers that shall run it.
pub(super) fn moved(text: &str) -> Result<WantedWorkers, String> {
    let parts = text.rsplit_once('=').and_then(|(module, workers)| {
        let to = workers.split(',').map(str::parse).collect::<Result<_, _>>().ok()?;
        (!module.is_empty()).then(|| WantedWorkers { module: module.to_owned(), to })
    });
    parts.ok_or_else(|| "write MODULE=WORKER, such as crypto=1, or several workers, such as ttl=0,1".to_owned())
}

/// Parses a number of entries, events or packets.
pub(super) fn count(text: &str) -> Result<u64, String> {
    whole_within(text, 1..=100_000)
}

/// Parses a whole number in the allowed range.
pub(super) fn whole_within<N: TryFrom<u64>>(text: &str, allowed: RangeInclusive<u64>) -> Result<N, String> {
    let number = text.parse::<u64>().ok().filter(|number| allowed.contains(number));
    let number = number.and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| format!("allowed are {} to {}", allowed.start(), allowed.end()))
}

pub(super) fn workers(text: &str) -> Result<usize, String> {
    whole_within(text, 1..=256)
}

pub(super) fn interval(text: &str) -> Result<Nanos, String> {
    let interval: Nanos = text.parse().map_err(|error: forebay_units::quantity::UnitError| error.to_string())?;
    let allowed = Nanos(50_000_000)..=Nanos(3_600_000_000_000);
    if allowed.contains(&interval) { Ok(interval) } else { Err("allowed are 50ms to 1h".to_owned()) }
}

/// Parses the duration of a run.
pub(super) fn duration(text: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: forebay_units::quantity::UnitError| error.to_string())?;
    if time > Nanos(0) { Ok(time) } else { Err("allowed are times above 0, such as 20s".to_owned()) }
}

pub(super) fn timeout(text: &str) -> Result<Nanos, String> {
    time_within(text, Nanos(1_000_000)..=Nanos(3_600_000_000_000), "1ms to 3600s")
}

pub(super) fn watched(text: &str) -> Result<Nanos, String> {
    time_within(text, Nanos(1_000_000)..=Nanos(86_400_000_000_000), "1ms to 86400s")
}

/// Parses a time in the allowed range; `range` is the range in words, for the error.
pub(super) fn time_within(text: &str, allowed: RangeInclusive<Nanos>, range: &str) -> Result<Nanos, String> {
    let time: Nanos = text.parse().map_err(|error: forebay_units::quantity::UnitError| error.to_string())?;
    if allowed.contains(&time) { Ok(time) } else { Err(format!("allowed are {range}")) }
}

/// Parses a module, function or `*` with the cost of its calls in nanoseconds. A missing cost per packet is 0.
pub(super) fn cost(text: &str) -> Result<(String, forebay_graph::Cost), String> {
    let parts = text.rsplit_once('=').and_then(|(name, cost)| {
        let (per_batch, per_packet) = cost.split_once('+').unwrap_or((cost, "0"));
        // The sum must not overflow the clock; an hour per packet is more than enough.
        let nanos = |text: &str| text.trim().parse().ok().filter(|nanos| *nanos <= 3_600_000_000_000u64);
        let cost = forebay_graph::Cost { per_batch: nanos(per_batch)?, per_packet: nanos(per_packet)? };
        (!name.trim().is_empty()).then(|| (name.to_owned(), cost))
    });
    parts.ok_or_else(|| {
        "write NAME=CALL+PACKET, such as acl=500+20: whole nanoseconds from 0 to 3600000000000".to_owned()
    })
}

/// Parses a whole number. The error states the allowed range.
pub(super) fn whole<N: TryFrom<u64>>(text: &str) -> Result<N, String> {
    let number = text.parse::<u64>().ok().and_then(|number| N::try_from(number).ok());
    number.ok_or_else(|| format!("allowed are whole numbers from 0 to {}", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn triggers_settings_and_costs_are_read() {
        assert_eq!(trigger("route=16"), Ok(("route".to_owned(), 16)));
        assert!(trigger("route").is_err() && trigger("route=-1").is_err());
        assert!(setting("n=16").is_ok() && setting("=16").is_err() && setting("n").is_err());
        // Regression: an unset variable of a script removed an objective.
        for wrong in ["flows.0.slo=", "flows.0.slo= "] {
            assert!(setting(wrong).is_err_and(|error| error.contains("`flows.0.slo=null` removes the key")), "{wrong}");
        }
        assert!(setting("flows.0.slo=null").is_ok() && parameter("trigger=").is_ok() && parameter("=3").is_err());
        let (name, cost) = cost("acl=500+20").expect("well-formed");
        assert_eq!((name.as_str(), cost.per_batch, cost.per_packet), ("acl", 500, 20));
        for wrong in ["acl=5+5+5", "=5", " =5+1", "acl=", "acl=1.5+2", "acl=-1+2", "acl=3600000000001", "acl"] {
            assert!(super::cost(wrong).is_err_and(|error| error.contains("whole nanoseconds from 0 to")), "{wrong}");
        }
        for wrong in ["-1", "x", "", "99999999999999999999"] {
            assert!(whole::<usize>(wrong).is_err_and(|error| error.contains("whole numbers")), "{wrong}");
        }
        assert!(interval("1ns").is_err() && whole("7") == Ok(7_usize));
        assert_eq!((count("1"), count("100000")), (Ok(1), Ok(100_000)));
        for wrong in ["0", "100001", "x", "-1", ""] {
            assert_eq!(count(wrong), Err("allowed are 1 to 100000".to_owned()), "{wrong}");
        }
        assert_eq!(duration("1ns"), Ok(Nanos(1)));
        assert!(duration("0s").is_err_and(|error| error.contains("above 0")));
    }
}
