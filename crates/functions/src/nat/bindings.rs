//! Which inside port has which outside port: one for all that it talks to (RFC 4787 REQ-1, endpoint-independent mapping).

use forebay_packet::wire::ipv4::{ICMP, TCP};
use zerocopy::FromZeros;

use crate::tables::sessions::{Found, Key, Refused, Seed, Session, Sessions};

/// An address and port of a protocol, of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, FromZeros)]
#[repr(transparent)]
pub(super) struct Endpoint(u64);

impl Endpoint {
    /// Inside where `side` is 0, outside where it is 1.
    pub(super) fn new(address: u32, port: u16, protocol: u8, side: u64) -> Self {
        Self(u64::from(address) << 32 | u64::from(port) << 16 | u64::from(protocol) << 8 | side)
    }

    pub(super) fn address(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn port(self) -> u16 {
        (self.0 >> 16) as u16
    }

    pub(super) fn protocol(self) -> u8 {
        (self.0 >> 8) as u8
    }
}

impl Key for Endpoint {
    fn hash(&self, seed: Seed) -> u64 {
        seed.hash(self.0, 0)
    }
}

/// An inside port and the outside port that it has.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Binding {
    pub(super) inside: Endpoint,
    pub(super) outside: Endpoint,
    /// How many sessions use it; a forward has one more.
    sessions: u32,
    /// 1 of a forward: it stays without sessions, and sessions may begin outside.
    forward: u32,
}

impl Binding {
    /// Whether it is always there.
    pub(super) fn is_forward(&self) -> bool {
        self.forward == 1
    }
}

impl Session for Binding {
    type Key = Endpoint;
    const SIDES: u32 = 2;

    fn key(&self, side: u32) -> Endpoint {
        if side == 0 { self.inside } else { self.outside }
    }
}

/// How many outside ports an inside address has, by protocol.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Tenant {
    address: Endpoint,
    ports: [u16; 3],
}

impl Session for Tenant {
    type Key = Endpoint;
    const SIDES: u32 = 1;

    fn key(&self, _: u32) -> Endpoint {
        self.address
    }
}

/// The bindings, and how many each inside address has.
pub(super) struct Bindings {
    table: Sessions<Binding>,
    tenants: Sessions<Tenant>,
    most: u16,
}

/// Bindings end with their sessions, not by time.
const NEVER: u32 = u32::MAX;

fn place(protocol: u8) -> usize {
    match protocol {
        TCP => 0,
        ICMP => 2,
        _ => 1,
    }
}

impl Bindings {
    /// Up to `count` bindings, of which one inside address has up to `most` of each protocol.
    pub(super) fn new(count: usize, most: u16, secret: u64) -> Option<Self> {
        let table = Sessions::new(count, Seed::new(secret ^ 1))?;
        Some(Self { table, tenants: Sessions::new(count, Seed::new(secret ^ 2))?, most })
    }

    pub(super) fn find(&self, endpoint: Endpoint) -> Option<(Found, Binding)> {
        let found = self.table.find(endpoint);
        found.is_some().then(|| (found, *self.table.get(found)))
    }

    /// Whether an inside address may have another outside port.
    pub(super) fn may(&self, inside: Endpoint) -> bool {
        let tenant = self.tenants.find(Endpoint::new(inside.address(), 0, 0, 0));
        !tenant.is_some() || self.tenants.get(tenant).ports[place(inside.protocol())] < self.most
    }

    /// One more session of a binding that is there.
    pub(super) fn hold(&mut self, found: Found) {
        self.table.get_mut(found).sessions += 1;
    }

    /// A binding that is always there.
    pub(super) fn forward(&mut self, inside: Endpoint, outside: Endpoint) -> Result<(), Refused> {
        self.insert(inside, outside, true)?;
        let found = self.table.find(outside);
        self.table.get_mut(found).forward = 1;
        Ok(())
    }

    /// A new binding, with one session; one that is not `shared` is not found by the inside port, which may have others.
    pub(super) fn insert(&mut self, inside: Endpoint, outside: Endpoint, shared: bool) -> Result<(), Refused> {
        let address = Endpoint::new(inside.address(), 0, 0, 0);
        let mut tenant = self.tenants.find(address);
        let key = if shared { inside } else { Endpoint(outside.0 | 2) };
        let found = self.table.insert(Binding { inside: key, outside, sessions: 1, forward: 0 }, NEVER)?;
        if !tenant.is_some() {
            tenant = match self.tenants.insert(Tenant { address, ports: [0; 3] }, NEVER) {
                Ok(tenant) => tenant,
                Err(refused) => {
                    self.table.remove(found);
                    return Err(refused);
                }
            };
        }
        self.tenants.get_mut(tenant).ports[place(inside.protocol())] += 1;
        Ok(())
    }

    /// One session less of the binding of these ports; whether that was the last one, so that the outside port is free.
    pub(super) fn release(&mut self, inside: Endpoint, outside: Endpoint) -> bool {
        let found = self.table.find(outside);
        if !found.is_some() {
            return false;
        }
        let binding = self.table.get_mut(found);
        binding.sessions -= 1;
        if binding.sessions > 0 {
            return false;
        }
        self.table.remove(found);
        let tenant = self.tenants.find(Endpoint::new(inside.address(), 0, 0, 0));
        if tenant.is_some() {
            let ports = &mut self.tenants.get_mut(tenant).ports;
            ports[place(inside.protocol())] -= 1;
            if *ports == [0; 3] {
                self.tenants.remove(tenant);
            }
        }
        true
    }
}
