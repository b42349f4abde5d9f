//! Limits the rate of requests of each client: a token bucket per client.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The largest number of clients whose rates are known. More clients share one bucket.
const MOST: usize = 4_096;
/// The requests that a client may send at once, in seconds of its rate.
const BURST_S: f64 = 2.0;

/// A client whose rate is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Client {
    /// A user of this host, at a Unix socket.
    User(u32),
    /// An address. IPv6 addresses count by their /64 network, which usually belongs to one host.
    Address(IpAddr),
    /// All clients beyond the largest number of known ones.
    Other,
}

impl Client {
    /// Returns the client at an address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let [a, b, c, d, ..] = v6.segments();
                IpAddr::from([a, b, c, d, 0, 0, 0, 0])
            }
            v4 => v4,
        })
    }
}

/// The rates of all clients.
#[derive(Debug, Default)]
pub struct Rates {
    buckets: Mutex<HashMap<Client, Bucket>>,
}

/// A token bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Rates {
    /// Takes a request of `client` into account, at a rate of `per_second`.
    ///
    /// # Errors
    /// The time after which the client may try again, if it sends too many requests.
    pub fn admit(&self, client: Client, per_second: u32, now: Instant) -> Result<(), Duration> {
        let rate = f64::from(per_second);
        let burst = (rate * BURST_S).max(1.0);
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MOST && !buckets.contains_key(&client) {
            // A full bucket is as good as none.
            buckets.retain(|_, bucket| bucket.filled(rate, burst, now) < burst);
        }
        let client = if buckets.len() >= MOST && !buckets.contains_key(&client) { Client::Other } else { client };
        let bucket = buckets.entry(client).or_insert(Bucket { tokens: burst, at: now });
        bucket.tokens = bucket.filled(rate, burst, now);
        bucket.at = now;
        if bucket.tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - bucket.tokens) / rate));
        }
        bucket.tokens -= 1.0;
        Ok(())
    }
}

impl Bucket {
    fn filled(&self, rate: f64, burst: f64, now: Instant) -> f64 {
        (self.tokens + rate * now.saturating_duration_since(self.at).as_secs_f64()).min(burst)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let at = |text: &str| Client::at(text.parse().expect("an address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::ffff"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    }

    #[test]
    fn many_clients_take_bounded_memory() {
        let (rates, now) = (Rates::default(), Instant::now());
        for number in 0..10_000_u32 {
            let _ = rates.admit(Client::at(std::net::Ipv4Addr::from(number).into()), 1, now);
        }
        assert!(rates.buckets.lock().expect("no panic").len() <= MOST + 1);
        assert!(rates.admit(Client::User(0), 1, now + Duration::from_secs(100)).is_ok());
    }

    proptest! {
        /// In any span, a client sends at most its burst and its rate times the span; and another client does not
        /// reduce it.
        #[test]
        fn no_client_exceeds_its_rate(gaps in prop::collection::vec(0..50_u64, 1..300), rate in 1..200_u32) {
            let (rates, start) = (Rates::default(), Instant::now());
            let (mut now, mut admitted) = (start, 0_u32);
            for (gap, offered) in gaps.into_iter().zip(1_u32..) {
                now += Duration::from_millis(gap);
                admitted += u32::from(rates.admit(Client::User(1), rate, now).is_ok());
                let most = f64::from(rate) * BURST_S + f64::from(rate) * (now - start).as_secs_f64();
                prop_assert!(f64::from(admitted) <= most + 1e-6);
                prop_assert!(f64::from(admitted) >= f64::from(offered).min(f64::from(rate) * BURST_S).floor());
                if let Err(wait) = rates.admit(Client::User(2), rate, now) {
                    prop_assert!(rates.admit(Client::User(2), rate, now + wait + Duration::from_micros(1)).is_ok());
                }
            }
        }
    }
}
