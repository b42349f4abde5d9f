//! Bindings of inside ports to outside ports: one binding for all peers (RFC 4787 REQ-1, endpoint-independent mapping).

use forebay_memory::NoMemory;
use forebay_packet::wire::ipv4::{ICMP, TCP};
use forebay_tables::sessions::{Found, Key, NEVER, Refused, Seed, Session, Sessions};
use zerocopy::FromZeros;

/// Address, port and protocol on one side. The side is part of the value, so inside and outside never share a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, FromZeros)]
#[repr(transparent)]
pub(super) struct Endpoint(u64);

impl Endpoint {
    /// Creates an endpoint: `address` is in host byte order, `side` is 0 inside, 1 outside.
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

/// An inside port and its outside port.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
pub(super) struct Binding {
    /// The inside port, if all sessions of the inside port share the binding. With several workers they do not share
    /// it. Then this is a number derived from the outside port, because each binding needs a unique key
    /// ([`Bindings::insert`]).
    pub(super) inside: Endpoint,
    pub(super) outside: Endpoint,
    /// Number of sessions that use the binding. A forward counts one more, so that it is never released.
    sessions: u32,
    /// Number of the inside address in the table of tenants. 0 if there is no such table.
    tenant: u32,
    /// 1 for a forward: it exists without sessions, and packets from outside may open sessions.
    forward: u8,
    /// 1 if the binding is also found by its outside port, because packets from outside may open sessions.
    from_outside: u8,
    /// Padding: `FromZeros` is derived only for structs without implicit padding.
    _spare: [u8; 6],
}

impl Binding {
    /// Returns true if the binding is a forward, which is permanent.
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

/// An inside address that has outside ports.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C)]
struct Tenant {
    address: Endpoint,
    /// The number of outside ports for each protocol ([`protocol_index`]).
    ports: [u16; 3],
}

impl Session for Tenant {
    type Key = Endpoint;
    const SIDES: u32 = 1;

    fn key(&self, _: u32) -> Endpoint {
        self.address
    }
}

/// The bindings, and the number of ports of each inside address.
pub(super) struct Bindings {
    table: Sessions<Binding>,
    /// Present if `ports_per_address` limits the ports.
    tenants: Option<Sessions<Tenant>>,
    /// Maximum number of outside ports of one inside address, for each protocol.
    most: u16,
    /// True if all bindings are also found by their outside port.
    from_outside: bool,
}

/// Returns the key of the tenant of an inside port.
fn tenant(inside: Endpoint) -> Endpoint {
    Endpoint::new(inside.address(), 0, 0, 0)
}

/// Returns the index of a protocol in [`Tenant::ports`].
fn protocol_index(protocol: u8) -> usize {
    match protocol {
        TCP => 0,
        ICMP => 2,
        _ => 1,
    }
}

impl Bindings {
    /// Creates a table for up to `count` bindings and `forwards` forwards. One inside address may have up to `most`
    /// bindings of each protocol; `u16::MAX` means no limit. With `from_outside`, bindings are also found by their
    /// outside port.
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

    /// Memory of full tables, in bytes.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.table.bytes() + self.tenants.as_ref().map_or(0, Sessions::bytes)
    }

    /// Returns the binding of an inside port. A forward is also found by its outside port. In a table that was created
    /// with `from_outside`, every binding is also found by its outside port.
    pub(super) fn find(&self, endpoint: Endpoint) -> Option<(Found, Binding)> {
        let found = self.table.find(endpoint);
        found.is_some().then(|| (found, *self.table.get(found)))
    }

    /// Returns the number of bindings.
    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns an upper bound of the numbers that were ever used: each number is smaller.
    pub(super) fn number_bound(&self) -> u32 {
        self.table.number_bound()
    }

    /// Returns the binding in a slot: inside port, outside port and number of sessions. The extra count of a forward is
    /// not included. Use this only with one worker: with several workers, bindings do not store the inside port.
    pub(super) fn binding_at(&self, slot: u32) -> Option<(Endpoint, Endpoint, u32)> {
        let (_, binding, _) = self.table.session_at(slot)?;
        Some((binding.inside, binding.outside, binding.sessions - u32::from(binding.forward)))
    }

    /// Prefetches the entries that a new session of an inside port needs.
    #[inline(always)]
    pub(super) fn prefetch(&self, inside: Endpoint) {
        self.table.prefetch(inside);
        if let Some(tenants) = &self.tenants {
            tenants.prefetch(tenant(inside));
        }
    }

    /// Prefetches the binding of this number.
    #[inline(always)]
    pub(super) fn prefetch_numbered(&self, number: u32) {
        self.table.prefetch_numbered(number);
    }

    /// Returns the tenant of an inside address for [`insert`](Self::insert), or `Found::NONE` if the tenant is new or
    /// tenants are not counted. Returns `None` if the address has reached its limit of outside ports.
    pub(super) fn may(&self, inside: Endpoint) -> Option<Found> {
        let Some(tenants) = &self.tenants else { return Some(Found::NONE) };
        let found = tenants.find(tenant(inside));
        let may = !found.is_some() || tenants.get(found).ports[protocol_index(inside.protocol())] < self.most;
        may.then_some(found)
    }

    /// Adds a session to an existing binding. When the session ends, [`release`](Self::release) must be called.
    pub(super) fn hold(&mut self, found: Found) {
        self.table.get_mut(found).sessions += 1;
    }

    /// Adds a permanent binding. Its port is not checked against the limit of its inside address, but is counted.
    pub(super) fn forward(&mut self, inside: Endpoint, outside: Endpoint) -> Result<(), Refused> {
        let of = self.tenants.as_ref().map_or(Found::NONE, |tenants| tenants.find(tenant(inside)));
        let new = Binding { inside, outside, sessions: 1, tenant: 0, forward: 1, from_outside: 1, _spare: [0; 6] };
        self.add(new, inside, of).map(|_| ())
    }

    /// Adds a binding with one session and returns its number. `of` is the tenant that [`may`](Self::may) has returned.
    /// A binding that is not `shared` is not found by its inside port, because the inside port may have several
    /// bindings.
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

    /// Adds a binding and counts it for its tenant. Nothing is added after an error.
    fn add(&mut self, binding: Binding, inside: Endpoint, of: Found) -> Result<u32, Refused> {
        // Bindings end with their sessions, so they never expire.
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
        tenants.get_mut(tenant).ports[protocol_index(inside.protocol())] += 1;
        Ok(found.number())
    }

    /// Removes a session from the binding of this number. Returns the outside port if that was the last session.
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
            ports[protocol_index(outside.protocol())] -= 1;
            if *ports == [0; 3] {
                tenants.remove(found);
            }
        }
        Some(outside)
    }
}
