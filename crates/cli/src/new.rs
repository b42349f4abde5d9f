//! `forebay new`: prints a configuration template with the user's interfaces and addresses.
//!
//! The templates are files of `examples/`. A setting replaces words of the text wherever they occur. Comments and
//! layout stay.

mod words;

use std::io::Write;

use anyhow::bail;
use forebay_pipeline::{Source, allowed_names, nearest};

use crate::format::{Align, table};
use crate::printed;
use words::{Replaced, Words};

/// A configuration template.
struct Template {
    name: &'static str,
    summary: &'static str,
    text: &'static str,
    settings: &'static [Setting],
}

/// A setting of a template, and the words that it replaces.
struct Setting {
    key: &'static str,
    summary: &'static str,
    words: Words,
}

const fn setting(key: &'static str, words: Words, summary: &'static str) -> Setting {
    Setting { key, summary, words }
}

const TEMPLATES: &[Template] = &[
    Template {
        name: "office-gateway",
        summary: "an office's Internet gateway: NAT, firewall, IPv6, the host's own DHCP and DNS",
        text: include_str!("../../../examples/office-gateway.yaml"),
        settings: &[
            setting("lan", Words::Name("enp2s0"), "the interface to the office"),
            setting("wan", Words::Name("enp1s0"), "the interface to the provider"),
            setting("host", Words::Name("fb0"), "the host's own interface"),
            setting("office", Words::Own("192.168.1.1/24"), "the gateway's address in the office"),
            setting("office6", Words::Own("2001:db8:1::1/64"), "the gateway's IPv6 address in the office"),
            setting("public", Words::Own("203.0.113.2/24"), "the public address"),
            setting("public6", Words::Own("2001:db8:2::2/64"), "the public IPv6 address"),
            setting("provider", Words::Address("203.0.113.1"), "the provider's router"),
            setting("provider6", Words::Address("2001:db8:2::1"), "the IPv6 address of the provider's router"),
            setting("server", Words::Address("192.168.1.10"), "the office's server for port 443"),
            setting("lan_mac", Words::Name("02:00:00:00:01:01"), "the gateway's Ethernet address in the office"),
            setting("wan_mac", Words::Name("02:00:00:00:02:01"), "the gateway's Ethernet address to the provider"),
        ],
    },
    Template {
        name: "router",
        summary: "a router between two networks, over IPv4 and IPv6, with ICMP errors",
        text: include_str!("../../../examples/router.yaml"),
        settings: &[],
    },
    Template {
        name: "balancer",
        summary: "a load balancer for three servers, which send their responses through it",
        text: include_str!("../../../examples/netns/balancer.yaml"),
        settings: &[],
    },
    Template {
        name: "vxlan",
        summary: "the end of a VXLAN tunnel between an IP network and a plain Ethernet",
        text: include_str!("../../../examples/netns/vxlan.yaml"),
        settings: &[],
    },
    Template {
        name: "interfaces",
        summary: "two interfaces joined, with the checks of a router: for trying `af_packet`",
        text: include_str!("../../../examples/interfaces.yaml"),
        settings: &[],
    },
    Template {
        name: "wire",
        summary: "a firewall in the wire between two interfaces, by `af_xdp`",
        text: include_str!("../../../examples/wire.yaml"),
        settings: &[],
    },
    Template {
        name: "gateway",
        summary: "tenants behind VLANs with firewalls and translation, on generated traffic",
        text: include_str!("../../../examples/gateway.yaml"),
        settings: &[],
    },
];

/// Prints the template `name` with the settings `sets`. Without a name, lists all templates.
pub(crate) fn new(name: Option<&str>, sets: &[String]) -> anyhow::Result<()> {
    let Some(name) = name else { return Ok(list()?) };
    let Some(template) = TEMPLATES.iter().find(|template| template.name == name) else {
        let names: Vec<_> = TEMPLATES.iter().map(|template| template.name).collect();
        let near = nearest(name, names.iter().copied());
        bail!("there is no template '{name}'{near}: allowed are {}", names.join(", "));
    };
    let text = template.with(sets)?;
    // Check here, so that a template with wrong settings is refused now and not when it runs.
    forebay_pipeline::check(&Source::new(text.clone(), template.name, "."))?;
    Ok(write!(printed::out(), "{text}")?)
}

fn list() -> std::io::Result<()> {
    let mut out = printed::out();
    let rows: Vec<_> = TEMPLATES.iter().map(|it| vec![it.name.to_owned(), it.summary.to_owned()]).collect();
    write!(out, "{}", table(&[("template", Align::Left), ("description", Align::Left)], &rows))?;
    for template in TEMPLATES.iter().filter(|template| !template.settings.is_empty()) {
        writeln!(out, "\n{}, --set KEY=VALUE:", template.name)?;
        for Setting { key, summary, words } in template.settings {
            writeln!(out, "  {:<28}{summary}", format!("{key}={}", words.written()))?;
        }
    }
    writeln!(out, "\nforebay new {} > edge.yaml   writes a template to edge.yaml", TEMPLATES[0].name)
}

impl Template {
    /// Returns the template's text with the words of these settings replaced.
    fn with(&self, sets: &[String]) -> anyhow::Result<String> {
        let mut replaced = Replaced::default();
        for set in sets {
            let (key, value) = set.split_once('=').unwrap_or((set, ""));
            let (key, value) = (key.trim(), value.trim());
            let Some(setting) = self.settings.iter().find(|setting| setting.key == key) else {
                let keys: Vec<_> = self.settings.iter().map(|setting| setting.key).collect();
                let near = nearest(key, keys.iter().copied());
                let allowed = allowed_names(keys);
                bail!("the template {} has no setting '{key}'{near}: {allowed}", self.name);
            };
            setting.words.replace(value, &mut replaced).map_err(|why| anyhow::anyhow!("--set {key}={value}: {why}"))?;
        }
        // The schema's path is relative to the examples, so the line is removed.
        let lines = self.text.lines().filter(|line| !line.starts_with("# yaml-language-server:"));
        Ok(lines.map(|line| replaced.apply(line) + "\n").collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_a_setting_is_in_its_template() {
        for template in TEMPLATES {
            for Setting { key, words, .. } in template.settings {
                let mut same = Replaced::default();
                words.replace(words.written(), &mut same).expect("its own words");
                for (from, to) in &same.all {
                    assert_eq!(from, to, "{} {key}", template.name);
                }
                let mut other = Replaced::default();
                other.all.push((words.written().to_owned(), "?".to_owned()));
                assert!(template.text.lines().any(|line| other.apply(line) != line), "{} {key}", template.name);
            }
        }
    }
}
