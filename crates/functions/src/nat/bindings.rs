//! Which inside port has which outside port: one for all that it talks to (RFC 4787 REQ-1, endpoint-independent mapping).

use forebay_memory::NoMemory;
use forebay_packet::wire::ipv4::{ICMP, TCP};
use zerocopy::FromZeros;

use crate::tables::sessions::{Found, Key, NEVER, Refused, Seed, Session, Sessions};

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
    /// The number of its inside address among the tenants.
    tenant: u32,
    /// 1 of a forward: it stays without sessions, and sessions may begin outside.
    forward: u8,
    /// 1 where it is found by the outside port, too: where sessions may begin outside.
    from_outside: u8,
    /// Keeps the length even, as the derive wants it.
    _spare: [u8; 6],
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

    #[inline(always)]
    fn sides(&self) -> u32 {
        1 + u32::from(self.from_outside)
    }

    #[inline(always)]
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
    /// Where one may not have as many as there are.
    tenants: Option<Sessions<Tenant>>,
    most: u16,
    /// Whether all are found by their outside port, too.
    from_outside: bool,
}

/// The tenant that an inside port is of, as far as there is one.
fn tenant(inside: Endpoint) -> Endpoint {
    Endpoint::new(inside.address(), 0, 0, 0)
}

fn place(protocol: u8) -> usize {
    match protocol {
        TCP => 0,
        ICMP => 2,
        _ => 1,
    }
}

impl Bindings {
    /// Up to `count` bindings and `forwards`, of which one inside address has up to `most` of each protocol; whether they are to
    /// be found by their outside port.
    pub(super) fn new(
        count: usize,
        forwards: usize,
        most: u16,
        from_outside: bool,
        secret: u64,
    ) -> Result<Self, NoMemory> {
        let (all, sides) = (count + forwards, 1 + usize::from(from_outside));
        let table = Sessions::with_keys(all, count * sides + forwards * 2, Seed::new(secret ^ 1))?;
        let limited = most < u16::MAX;
        let tenants = if limited { Some(Sessions::new(all, Seed::new(secret ^ 2))?) } else { None };
        Ok(Self { table, tenants, most, from_outside })
    }

    /// How much memory they take when there are as many as there can be, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.tenants.as_ref().map_or(0, Sessions::bytes)
    }

    /// The binding of an inside port; or of an outside port, of a forward, or of any where all are found so.
    pub(super) fn find(&self, endpoint: Endpoint) -> Option<(Found, Binding)> {
        let found = self.table.find(endpoint);
        found.is_some().then(|| (found, *self.table.get(found)))
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// How many places were ever used.
    pub(super) fn places(&self) -> u32 {
        self.table.places()
    }

    /// What is at a place: an inside port, the outside port that it has, and how many sessions use it. A forward counts none of
    /// its own.
    pub(super) fn placed(&self, place: u32) -> Option<(Endpoint, Endpoint, u32)> {
        let (_, binding, _) = self.table.placed(place)?;
        Some((binding.inside, binding.outside, binding.sessions - u32::from(binding.forward)))
    }

    /// Asks the processor for what a new session of an inside port needs.
    #[inline(always)]
    pub(super) fn prefetch(&self, inside: Endpoint) {
        self.table.prefetch(inside);
        if let Some(tenants) = &self.tenants {
            tenants.prefetch(tenant(inside));
        }
    }

    /// Asks the processor for the binding of a number.
    #[inline(always)]
    pub(super) fn prefetch_numbered(&self, number: u32) {
        self.table.prefetch_numbered(number);
    }

    /// Whether an inside address may have another outside port; which of the tenants it is.
    pub(super) fn may(&self, inside: Endpoint) -> Option<Found> {
        let Some(tenants) = &self.tenants else { return Some(Found::NONE) };
        let found = tenants.find(tenant(inside));
        let may = !found.is_some() || tenants.get(found).ports[place(inside.protocol())] < self.most;
        may.then_some(found)
    }

    /// One more session of a binding that is there.
    pub(super) fn hold(&mut self, found: Found) {
        self.table.get_mut(found).sessions += 1;
    }

    /// A binding that is always there.
    pub(super) fn forward(&mut self, inside: Endpoint, outside: Endpoint) -> Result<(), Refused> {
        let of = self.tenants.as_ref().map_or(Found::NONE, |tenants| tenants.find(tenant(inside)));
        let new = Binding { inside, outside, sessions: 1, tenant: 0, forward: 1, from_outside: 1, _spare: [0; 6] };
        self.add(new, inside, of).map(|_| ())
    }

    /// A new binding, with one session, of an inside address that [`may`](Self::may) have it; its number. One that is not
    /// `shared` is not found by the inside port, which may have others.
    pub(super) fn insert(
        &mut self,
        inside: Endpoint,
        outside: Endpoint,
        shared: bool,
        of: Found,
    ) -> Result<u32, Refused> {
        let key = if shared { inside } else { Endpoint(outside.0 | 2) };
        let from_outside = u8::from(self.from_outside);
        let new = Binding { inside: key, outside, sessions: 1, tenant: 0, forward: 0, from_outside, _spare: [0; 6] };
        self.add(new, inside, of)
    }

    fn add(&mut self, binding: Binding, inside: Endpoint, of: Found) -> Result<u32, Refused> {
        // Bindings end with their sessions, not by time.
        let found = self.table.insert(binding, NEVER)?;
        let Some(tenants) = &mut self.tenants else { return Ok(found.number()) };
        let tenant = if of.is_some() {
            of
        } else {
            match tenants.insert(Tenant { address: tenant(inside), ports: [0; 3] }, NEVER) {
                Ok(tenant) => tenant,
                Err(refused) => {
                    self.table.remove(found);
                    return Err(refused);
                }
            }
        };
        self.table.get_mut(found).tenant = tenant.number();
        tenants.get_mut(tenant).ports[place(inside.protocol())] += 1;
        Ok(found.number())
    }

    /// One session less of the binding of this number: its outside port, if that was the last one and the port is free.
    pub(super) fn release(&mut self, number: u32) -> Option<Endpoint> {
        let found = self.table.numbered(number);
        let binding = self.table.get_mut(found);
        binding.sessions -= 1;
        if binding.sessions > 0 {
            return None;
        }
        let Binding { outside, tenant, .. } = self.table.remove(found);
        if let Some(tenants) = &mut self.tenants {
            let found = tenants.numbered(tenant);
            let ports = &mut tenants.get_mut(found).ports;
            ports[place(outside.protocol())] -= 1;
            if *ports == [0; 3] {
                tenants.remove(found);
            }
        }
        Some(outside)
    }
}
