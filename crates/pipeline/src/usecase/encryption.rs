//! `vpn n`: Octans' VPN (section VI.A): an ESP tunnel whose two ends are modules. Packets are encrypted with their
//! headers, pass the tunnel, are authenticated, decrypted and forwarded to n next hops. 3 + n modules.
//!
//! `aes n`: EdgeMiner's AES_encryption (section 3.1.2): UDP payloads are encrypted, and packets are forwarded. 2 + n
//! modules; with a second end 3 + n.

use super::parameters::{Values, Wrong};
use super::text::{Text, Traffic, hops, prefix};

/// A public key (AES-128), for generated traffic only.
const KEY: &str = "000102030405060708090a0b0c0d0e0f";
/// The salt of the key in ESP.
const SALT: &str = "10111213";

pub(super) fn write_vpn(values: &Values) -> Result<String, Wrong> {
    let (n, stages) = (values.whole("n", 1, 4_096)?, values.whole("stages", 1, 2)?);
    let backend = backend(values)?;
    let mut text = begin("vpn", values, n)?;
    text.line("in -> seal -> open -> route");
    // RFC 5737.
    let ends =
        [("seal", "peer=192.0.2.2 for=10.0.0.0/8"), ("open", "peer=192.0.2.1 local=192.0.2.2 for=192.168.0.0/16")];
    for (name, end) in ends {
        let (function, source) =
            if name == "seal" { ("esp_encrypt", "source: 192.0.2.1, ") } else { ("esp_decrypt", "") };
        let association = format!("\"0x1001 key={KEY}{SALT} {end} esn\"");
        text.module(name, function, &format!(" {source}backend: {backend}, associations: [{association}] "));
    }
    hops(&mut text, n, "");
    if stages == 2 {
        let behind = (0..n).map(|hop| format!("mac{hop}"));
        text.worker(&["seal".to_owned()]);
        text.worker(&["open", "route"].map(str::to_owned).into_iter().chain(behind).collect::<Vec<_>>());
    }
    Ok(text.finish())
}

pub(super) fn write_aes(values: &Values) -> Result<String, Wrong> {
    let (n, ends) = (values.whole("n", 1, 4_096)?, values.whole("ends", 1, 2)?);
    let backend = backend(values)?;
    let mut text = begin("aes", values, n)?;
    let params = format!(" backend: {backend}, keys: [{{ id: 1, key: \"{KEY}\" }}] ");
    text.module("seal", "aes_gcm_encrypt", &params);
    if ends == 2 {
        text.module("open", "aes_gcm_decrypt", &params);
    }
    text.line(if ends == 2 { "in -> seal -> open -> route" } else { "in -> seal -> route" });
    hops(&mut text, n, "");
    Ok(text.finish())
}

/// Begins a configuration: its name, a generator of packets to `n` prefixes, and the output port.
fn begin(name: &str, values: &Values, n: u64) -> Result<Text, Wrong> {
    let mut text = Text::new(&format!("{name}-{n}"), values)?;
    let destinations: Vec<_> = (0..n).map(prefix).collect();
    text.generator("in", &Traffic { destinations: &destinations, vlans: 0 });
    text.sink();
    Ok(text)
}

/// Returns the value of the parameter `backend`, if it is allowed.
fn backend(values: &Values) -> Result<&str, Wrong> {
    match values.text("backend") {
        known @ ("auto" | "hardware" | "software") => Ok(known),
        text => Err(("backend", format!("'{text}' is not a backend: allowed are auto, hardware and software"))),
    }
}
