//! Which addresses an app's server may have: the one classifier, applied to the addresses that are connected to.
//!
//! A manifest is written by somebody else, often by a model, and the gateway stands where its author does not: beside
//! programs that listen on loopback only, and beside the metadata service of a cloud. So an app's server may be any
//! machine, in the local network too (RFC 1918, `fc00::/7`, and 100.64.0.0/10, which VPNs use), but not this one by
//! its loopback address, not a link-local neighbour, and not a group of machines (seed, "HTTP actions").
//!
//! An IPv6 address that carries an IPv4 one (mapped, compatible, translated, NAT64, 6to4, Teredo, ISATAP) is judged by
//! what it carries as well, since the network may deliver it there.
//!
//! Left out on purpose: the machine's own address in the local network is allowed, as in every release before.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// A range of addresses: `127.0.0.0/8`, `fd00::/8`, or one address without a slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    prefix: u8,
}

/// The text is not a range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an address range like 192.168.1.0/24 or fd00::/8")]
pub struct CidrError;

impl Cidr {
    /// Whether the address is in the range. An IPv4-mapped IPv6 address counts as the IPv4 address.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(range), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (range.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V6(range), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (range.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = match text.trim().split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text.trim(), None),
        };
        let address: IpAddr = address.parse().map_err(|_malformed| CidrError)?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => bits,
            Some(prefix) if prefix.bytes().all(|byte| byte.is_ascii_digit()) => {
                prefix.parse().map_err(|_malformed| CidrError)?
            }
            Some(_) => return Err(CidrError),
        };
        if prefix > bits { Err(CidrError) } else { Ok(Self { address, prefix }) }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

/// What may be connected to: all that [`blocked`] does not name, and what the owner allows besides.
#[derive(Debug, Clone, Default)]
pub struct TargetPolicy {
    allowed: Vec<Cidr>,
}

impl TargetPolicy {
    /// Takes the ranges that are allowed whatever they are (`security.ssrfWhitelist`).
    pub fn new(allowed: Vec<Cidr>) -> Self {
        Self { allowed }
    }

    /// Judges an address.
    ///
    /// # Errors
    /// What kind of address it is, as a noun with its article, when it may not be connected to.
    pub fn check(&self, address: IpAddr) -> Result<(), &'static str> {
        match blocked(address) {
            Some(kind) if !self.allowed.iter().any(|range| range.contains(address)) => Err(kind),
            Some(_) | None => Ok(()),
        }
    }
}

/// The kind of an address that no app's server may have; `None` for any other.
pub fn blocked(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(address) => blocked_v4(address),
        IpAddr::V6(address) => blocked_v6(address),
    }
}

fn blocked_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [first, second, ..] = address.octets();
    Some(match (first, second) {
        (0, _) => "an address of this host (0.0.0.0/8)",
        (127, _) => "a loopback address",
        (169, 254) => "a link-local address",
        (224..=239, _) => "a multicast address",
        (240..=255, _) => "a broadcast or reserved address",
        (_, _) => return None,
    })
}

fn blocked_v6(address: Ipv6Addr) -> Option<&'static str> {
    if address.is_unspecified() {
        return Some("the unspecified address");
    }
    if address.is_loopback() {
        return Some("a loopback address");
    }
    let segments = address.segments();
    match segments[0] {
        0xfe80..=0xfebf => return Some("a link-local address"),
        0xfec0..=0xfeff => return Some("a site-local address"),
        0xff00..=0xffff => return Some("a multicast address"),
        // RFC 8215: where in it the IPv4 address stands is known to the local network only.
        0x0064 if segments[1..3] == [0xff9b, 1] => return Some("an address of a local NAT64"),
        _ => {}
    }
    carried(segments).into_iter().flatten().find_map(blocked_v4)
}

/// The IPv4 addresses that an IPv6 address may be delivered to, by its form.
fn carried(segments: [u16; 8]) -> [Option<Ipv4Addr>; 2] {
    let v4 = |high: u16, low: u16| Some(Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)));
    let last = v4(segments[6], segments[7]);
    match segments {
        // Compatible (RFC 4291), translated (RFC 2765), NAT64 (RFC 6052).
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => [last, None],
        // 6to4 (RFC 3056).
        [0x2002, high, low, ..] => [v4(high, low), isatap(segments)],
        // Teredo (RFC 4380): the server as it is, the client with every bit turned over.
        [0x2001, 0, high, low, ..] => [v4(high, low), v4(!segments[6], !segments[7])],
        _ => [isatap(segments), None],
    }
}

/// ISATAP (RFC 5214): the interface part says so, whatever the prefix.
fn isatap(segments: [u16; 8]) -> Option<Ipv4Addr> {
    let [.., mark, kind, high, low] = segments;
    let marked = matches!(mark, 0 | 0x200) && kind == 0x5efe;
    marked.then(|| Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cidr(text: &str) -> Cidr {
        text.parse().unwrap()
    }

    #[track_caller]
    fn check(addresses: &[&str], expected: Option<&str>) {
        for address in addresses {
            let kind = blocked(address.parse().unwrap());
            match expected {
                Some(word) => assert!(kind.is_some_and(|kind| kind.contains(word)), "{address}: {kind:?}"),
                None => assert_eq!(kind, None, "{address}"),
            }
        }
    }

    #[test]
    fn the_local_network_is_allowed_and_what_is_nearer_is_not() {
        check(
            &[
                "10.0.0.1",
                "172.16.0.1",
                "192.168.1.50",
                "100.64.0.1",
                "100.127.255.255",
                "8.8.8.8",
                "169.253.255.255",
                "169.255.0.0",
                "126.255.255.255",
                "128.0.0.0",
                "1.0.0.0",
                "223.255.255.255",
                "fd00::1",
                "fc00::1",
                "2606:4700::1111",
                "fe7f::1",
                "2001:db8::1",
                "64:ff9b:2::1",
            ],
            None,
        );
        check(&["127.0.0.1", "127.255.255.255", "::1", "::ffff:127.0.0.1"], Some("loopback"));
        check(&["0.0.0.0", "0.255.255.255", "::ffff:0.0.0.0"], Some("this host"));
        check(&["169.254.169.254", "fe80::1", "febf::1", "::ffff:169.254.169.254"], Some("link-local"));
        check(&["224.0.0.1", "239.255.255.255", "ff02::1", "ff00::"], Some("multicast"));
        check(&["240.0.0.0", "255.255.255.255"], Some("reserved"));
        check(&["::"], Some("unspecified"));
        check(&["fec0::1", "feff::1"], Some("site-local"));
        check(&["64:ff9b:1::", "64:ff9b:1:7f00:0:100::", "64:ff9b:1:ffff::808:808"], Some("NAT64"));
    }

    /// Every form in which an IPv6 address carries an IPv4 one.
    fn forms(address: Ipv4Addr) -> [(&'static str, Ipv6Addr); 9] {
        let bits = u128::from(address.to_bits());
        let at = |prefix: &str, shift: u32| {
            Ipv6Addr::from_bits(prefix.parse::<Ipv6Addr>().unwrap().to_bits() | (bits << shift))
        };
        let teredo = (0x2001_u128 << 112) | (u128::from(u32::from_be_bytes([8; 4])) << 64);
        [
            ("mapped", at("::ffff:0:0", 0)),
            ("compatible", at("::", 0)),
            ("translated", at("::ffff:0:0:0", 0)),
            ("nat64", at("64:ff9b::", 0)),
            ("6to4", at("2002::1234:0:0:1", 80)),
            ("teredo server", at("2001::f7f7:f7f7", 64)),
            ("teredo client", Ipv6Addr::from_bits(teredo | u128::from(!address.to_bits()))),
            ("isatap", at("2001:db8::5efe:0:0", 0)),
            ("isatap, global", at("2001:db8::200:5efe:0:0", 0)),
        ]
    }

    #[test]
    fn an_embedded_address_is_blocked_just_when_the_bare_one_is() {
        // Each first and second octet, and of the rest the ends and a few between: no rule looks further.
        for high in 0..=u16::MAX {
            for low in [0_u32, 1, 0x0101, 0x7f00, 0xa9fe, 0xfffe, 0xffff] {
                let address = Ipv4Addr::from_bits((u32::from(high) << 16) | low);
                let expected = blocked_v4(address).is_some();
                for (form, embedded) in forms(address) {
                    let judged = blocked(embedded.into()).is_some();
                    // The compatible forms of the lowest addresses are `::` and `::1`, blocked by themselves too.
                    assert_eq!(judged, expected, "{form} {embedded} of {address}");
                }
            }
        }
    }

    #[test]
    fn an_allowed_range_overrides_the_list_and_nothing_beside_it() {
        let policy = TargetPolicy::new(vec![cidr("127.0.0.1/32"), cidr("fe80::/64")]);
        for good in ["127.0.0.1", "::ffff:127.0.0.1", "fe80::5", "10.0.0.1"] {
            assert_eq!(policy.check(good.parse().unwrap()), Ok(()), "{good}");
        }
        for bad in ["127.0.0.2", "::1", "fe80:0:0:1::5", "64:ff9b::7f00:1", "0.0.0.0"] {
            assert!(policy.check(bad.parse().unwrap()).is_err(), "{bad}");
        }
        assert_eq!(TargetPolicy::new(vec![cidr("0.0.0.0/0")]).check([127, 9, 9, 9].into()), Ok(()));
        assert_eq!(TargetPolicy::new(vec![cidr("::/0")]).check(Ipv6Addr::LOCALHOST.into()), Ok(()));
        assert!(TargetPolicy::new(vec![cidr("::/0")]).check([127, 0, 0, 1].into()).is_err());
    }

    #[test]
    fn a_range_is_an_address_and_a_prefix() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            (" 127.0.0.1 ", "127.0.0.1/32"),
            ("::1", "::1/128"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(cidr(text).to_string(), shown);
        }
        for text in
            ["", "localhost", "10.0.0.0/33", "::/129", "10.0.0.0/", "10.0.0.0/+8", "10.0.0/8", "1.2.3.4/8/9"]
        {
            assert_eq!(text.parse::<Cidr>(), Err(CidrError), "{text}");
        }
    }
}
