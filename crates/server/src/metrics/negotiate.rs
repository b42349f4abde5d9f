//! Selects the format of a response by the request's `Accept` header (RFC 9110 section 12.5.1).

use super::{openmetrics, protobuf, text};

/// A format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The Prometheus text format.
    Text,
    /// The OpenMetrics text format.
    OpenMetrics,
    /// The Prometheus protobuf format, which has native histograms.
    Protobuf,
}

impl Format {
    /// Returns the value of the response's `Content-Type` header.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => text::CONTENT_TYPE,
            Self::OpenMetrics => openmetrics::CONTENT_TYPE,
            Self::Protobuf => protobuf::CONTENT_TYPE,
        }
    }
}

/// A media range of the header.
struct Range<'h> {
    /// The type in lower case: `text/plain`, `text/*`.
    media: String,
    /// The parameters, without the quality: names in lower case.
    parameters: Vec<(String, &'h str)>,
    /// The quality, in thousandths. Ranges with quality 0 are refused.
    quality: u32,
}

impl<'h> Range<'h> {
    /// Parses a range. `None` if its quality is not a number from 0 to 1.
    fn parse(text: &'h str) -> Option<Self> {
        let mut parts = text.split(';').map(str::trim);
        let media = parts.next()?.to_ascii_lowercase();
        let mut range = Self { media, parameters: Vec::new(), quality: 1_000 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
            if name == "q" {
                let quality: f64 = value.parse().ok()?;
                range.quality = (0.0..=1.0).contains(&quality).then_some((quality * 1e3).round() as u32)?;
            } else {
                range.parameters.push((name, value));
            }
        }
        Some(range)
    }

    /// Returns how exactly the range matches a format: 0 for every type, 1 for a main type, 2 for a type. `None` if it
    /// does not match. Protobuf has to be named, because people cannot read it.
    fn precision(&self, format: Format) -> Option<u32> {
        let is = |name: &str, allowed: &[&str]| {
            let mut values = self.parameters.iter().filter(|(parameter, _)| parameter == name);
            values.all(|(_, value)| allowed.contains(value))
        };
        match (self.media.as_str(), format) {
            ("*/*", Format::Text | Format::OpenMetrics) => Some(0),
            ("text/*", Format::Text) | ("application/*", Format::OpenMetrics) => Some(1),
            ("text/plain", Format::Text) if is("version", &["0.0.4"]) => Some(2),
            ("application/openmetrics-text", Format::OpenMetrics) if is("version", &["1.0.0"]) => Some(2),
            ("application/vnd.google.protobuf", Format::Protobuf)
                if is("proto", &["io.prometheus.client.MetricFamily"]) && is("encoding", &["delimited"]) =>
            {
                Some(2)
            }
            _ => None,
        }
    }
}

/// Selects the format with the highest quality. The quality of a format is that of the range that matches it most
/// exactly. Of formats with the same quality, the one whose range comes first is selected, and the Prometheus text
/// before others of the same range. If no format matches, the Prometheus text is selected: a client that does not know
/// the formats, such as a browser, shows it.
#[must_use]
pub fn negotiate(accept: Option<&str>) -> Format {
    let ranges: Vec<_> = accept.unwrap_or_default().split(',').filter_map(Range::parse).collect();
    let mut best: Option<(u32, usize, Format)> = None;
    for format in [Format::Text, Format::OpenMetrics, Format::Protobuf] {
        let matches = ranges.iter().enumerate();
        let matches = matches.filter_map(|(at, range)| Some((range.precision(format)?, at, range.quality)));
        // Of equally exact ranges, the one with the highest quality, then the first.
        let Some((_, at, quality)) =
            matches.max_by_key(|(precision, at, quality)| (*precision, *quality, std::cmp::Reverse(*at)))
        else {
            continue;
        };
        let is_better = best.is_none_or(|(highest, first, _)| quality > highest || (quality == highest && at < first));
        if quality > 0 && is_better {
            best = Some((quality, at, format));
        }
    }
    best.map_or(Format::Text, |(_, _, format)| format)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_format_with_the_highest_quality_is_selected() {
        use Format::{OpenMetrics, Protobuf, Text};
        let first = |text: &str| format!("{};q=0.7,{text}", protobuf::CONTENT_TYPE);
        for (accept, expected) in [
            ("", Text),
            ("*/*", Text),
            ("text/plain", Text),
            ("text/*", Text),
            ("application/*", OpenMetrics),
            ("TEXT/Plain; Version=0.0.4", Text),
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", Text),
            // Prometheus 2 and 3.
            ("application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1", OpenMetrics),
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                 application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                OpenMetrics,
            ),
            ("application/openmetrics-text;version=0.0.1,text/plain;version=0.0.4;q=0.5", Text),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.6", Text),
            ("application/openmetrics-text; q = 0.5 , text/plain; q = 0.4", OpenMetrics),
            ("text/plain,application/openmetrics-text", Text),
            ("application/openmetrics-text,text/plain", OpenMetrics),
            ("text/plain;q=0,*/*;q=0.1", OpenMetrics),
            ("*/*;q=0.9,text/plain;q=0.1", OpenMetrics),
            ("*/*;q=0", Text),
            ("application/openmetrics-text;q=2", Text),
            ("application/openmetrics-text;q=none,text/plain;q=0.1", Text),
            ("application/openmetrics-text;version=\"1.0.0\"", OpenMetrics),
            ("application/json", Text),
            ("application/vnd.google.protobuf", Protobuf),
            ("application/vnd.google.protobuf;proto=other.Message", Text),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text", Text),
            (protobuf::CONTENT_TYPE, Protobuf),
            (first("application/openmetrics-text;version=1.0.0;q=0.6,*/*;q=0.1").as_str(), Protobuf),
            (first("text/plain;q=0.8").as_str(), Text),
        ] {
            assert_eq!(negotiate(Some(accept)), expected, "{accept}");
        }
        assert_eq!(negotiate(None), Text);
    }

    proptest! {
        #[test]
        fn any_header_selects_a_format(accept in "[a-z/*;=,. q0-9\"]{0,60}") {
            let is_named = accept.contains("application/vnd.google.protobuf");
            prop_assert!(negotiate(Some(&accept)) != Format::Protobuf || is_named);
        }
    }
}
