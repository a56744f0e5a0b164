//! From a server's address in a manifest to a connection: the host is read once, resolved once, every address is
//! judged, and one of the judged addresses is connected to.
//!
//! Between the judgement and the connection there is no second look-up, so a name that changes its answer (DNS
//! rebinding) gains nothing. One blocked address among a name's addresses refuses them all: such a name is not what
//! its author says it is.
//!
//! Hosts whose last label is a number are read here, in all the spellings of `inet_aton` (`127.1`, `0x7f000001`,
//! `2130706433`, `0177.0.0.1`, a dot at the end), so that the outcome does not depend on the system's resolver. What
//! looks like that and is no address is refused.
//!
//! Limits: [`LOOKUPS_MAX`] look-ups at once, since a look-up that hangs holds a thread and cannot be ended;
//! [`ADDRESSES_MAX`] addresses of a name.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs as _},
    pin::Pin,
    sync::Arc,
};

use hyper::http::uri::Authority;
use tokio::{
    net::TcpStream,
    sync::Semaphore,
    time::{Instant, timeout_at},
};

use super::{Failure, policy::TargetPolicy};

/// Look-ups of names at once.
pub const LOOKUPS_MAX: usize = 16;
/// Addresses of one name that are judged; a name with more is refused.
pub const ADDRESSES_MAX: usize = 64;

/// Turns a name into addresses.
///
/// A trait, so that tests can have a name that changes its answer; the gateway uses [`SystemResolver`].
pub trait Resolve: fmt::Debug + Send + Sync {
    /// The addresses of a name, in the order in which they should be tried.
    fn resolve(&self, name: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;
}

/// The operating system's resolver, on the blocking pool.
#[derive(Debug)]
pub struct SystemResolver {
    slots: Arc<Semaphore>,
}

impl Default for SystemResolver {
    fn default() -> Self {
        Self { slots: Arc::new(Semaphore::new(LOOKUPS_MAX)) }
    }
}

impl Resolve for SystemResolver {
    fn resolve(&self, name: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
        let (name, slots) = (name.to_owned(), Arc::clone(&self.slots));
        Box::pin(async move {
            let slot = slots.acquire_owned().await.map_err(io::Error::other)?;
            let looking = tokio::task::spawn_blocking(move || {
                // ORDER: the slot is free when the thread is, not when its caller has given up.
                let _slot = slot;
                Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect())
            });
            looking.await.map_err(io::Error::other)?
        })
    }
}

/// What stands in the place of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Host {
    /// An address.
    Address(IpAddr),
    /// A name to be resolved.
    Name(String),
}

impl Host {
    /// Reads a host as it stands in a URL, an IPv6 address in brackets. `None` when it is neither an address nor a name.
    pub fn parse(host: &str) -> Option<Self> {
        if let Some(address) = host.strip_prefix('[') {
            let address: Ipv6Addr = address.strip_suffix(']')?.parse().ok()?;
            return Some(Self::Address(address.into()));
        }
        let bare = host.strip_suffix('.').unwrap_or(host);
        let last = bare.rsplit('.').next().unwrap_or_default();
        let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
        let is_number = (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
            || hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_number {
            return inet_aton(bare).map(|address| Self::Address(address.into()));
        }
        let good = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        };
        (bare.len() <= 253 && bare.split('.').all(good)).then(|| Self::Name(host.to_owned()))
    }
}

/// The numbers-and-dots notation: one to four parts, each decimal, octal (`0`) or hexadecimal (`0x`), of which the last
/// fills all bytes that are left.
fn inet_aton(text: &str) -> Option<Ipv4Addr> {
    let parts: Vec<&str> = text.split('.').collect();
    if parts.len() > 4 {
        return None;
    }
    let (last, leading) = parts.split_last()?;
    let mut bits: u32 = 0;
    for (part, shift) in leading.iter().zip([24_u32, 16, 8]) {
        bits |= u32::from(u8::try_from(number(part)?).ok()?) << shift;
    }
    let last = number(last)?;
    let room = 32 - 8 * u32::try_from(leading.len()).ok()?;
    (u64::from(last) < 1_u64 << room).then(|| Ipv4Addr::from_bits(bits | last))
}

fn number(text: &str) -> Option<u32> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&text[2..], 16),
        [b'0', _, ..] => (&text[1..], 8),
        _ => (text, 10),
    };
    if radix == 16 && digits.is_empty() {
        return Some(0);
    }
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, radix).ok())?
}

/// Resolves and judges: the addresses that may be connected to, in order.
///
/// # Errors
/// [`Failure::Blocked`] when the host is not one, a name cannot be resolved, or any of its addresses is blocked.
pub(super) async fn vetted(
    authority: &Authority,
    port: u16,
    resolver: &dyn Resolve,
    policy: &TargetPolicy,
) -> Result<Vec<SocketAddr>, Failure> {
    let shown = authority.host();
    let host = Host::parse(shown)
        .ok_or_else(|| Failure::Blocked(format!("'{shown}' is neither an address nor a host name")))?;
    let addresses = match host {
        Host::Address(address) => {
            policy.check(address).map_err(|kind| Failure::Blocked(format!("'{shown}' is {kind}")))?;
            vec![address]
        }
        Host::Name(name) => {
            let addresses = resolver.resolve(&name).await.map_err(|error| {
                tracing::debug!(%error, "an app's server cannot be resolved");
                Failure::Blocked(format!("the name '{shown}' cannot be resolved"))
            })?;
            if addresses.is_empty() {
                return Err(Failure::Blocked(format!("the name '{shown}' has no address")));
            }
            if addresses.len() > ADDRESSES_MAX {
                let count = addresses.len();
                return Err(Failure::Blocked(format!(
                    "the name '{shown}' has {count} addresses, at most {ADDRESSES_MAX} are judged"
                )));
            }
            for address in &addresses {
                policy.check(*address).map_err(|kind| {
                    Failure::Blocked(format!("the name '{shown}' leads to {address}, {kind}"))
                })?;
            }
            addresses
        }
    };
    let mut targets: Vec<SocketAddr> = Vec::with_capacity(addresses.len());
    for address in addresses {
        // The judged form is the one connected to: a mapped address is the IPv4 one.
        let target = SocketAddr::new(address.to_canonical(), port);
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// Connects to the first of the addresses that takes the connection. Each gets an equal part of the time that is left,
/// so that a dead address does not use up the time of the next.
pub(super) async fn connect(targets: &[SocketAddr], deadline: Instant) -> Result<TcpStream, Failure> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for (index, target) in targets.iter().enumerate() {
        let now = Instant::now();
        let left = u32::try_from(targets.len() - index).unwrap_or(u32::MAX);
        let until = now + deadline.saturating_duration_since(now) / left;
        match timeout_at(until, TcpStream::connect(target)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true).map_err(|error| Failure::io(&error))?;
                return Ok(stream);
            }
            Ok(Err(error)) => last = error,
            Err(_elapsed) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(Failure::io(&last))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn v4(text: &str) -> Host {
        Host::Address(text.parse::<Ipv4Addr>().unwrap().into())
    }

    #[test]
    fn every_spelling_of_an_address_is_that_address() {
        for text in [
            "127.0.0.1",
            "127.0.0.1.",
            "127.1",
            "127.0.1",
            "2130706433",
            "0x7f000001",
            "0X7F.1",
            "0177.0.0.1",
            "0x7f.0x0.0x0.0x1",
            "017700000001",
            "0177.1",
            "127.0x1",
            "00177.0.0.01",
            "127.0.0.0x1",
        ] {
            assert_eq!(Host::parse(text), Some(v4("127.0.0.1")), "{text}");
        }
        assert_eq!(Host::parse("0"), Some(v4("0.0.0.0")));
        assert_eq!(Host::parse("0x"), Some(v4("0.0.0.0")));
        assert_eq!(Host::parse("0xa9fea9fe"), Some(v4("169.254.169.254")));
        assert_eq!(Host::parse("192.168.257"), Some(v4("192.168.1.1")));
        assert_eq!(Host::parse("4294967295"), Some(v4("255.255.255.255")));
        assert_eq!(
            Host::parse("[::ffff:127.0.0.1]"),
            Some(Host::Address("::ffff:127.0.0.1".parse().unwrap()))
        );
    }

    #[test]
    fn what_only_looks_like_an_address_is_nothing() {
        for text in [
            "256.0.0.1",
            "127.0.0.256",
            "4294967296",
            "1.2.3.4.5",
            "08",
            "0x100000000",
            "127..1",
            "a.1",
            "1.2.3.0xg0",
            "[::1",
            "[fe80::1%25eth0]",
            "[fe80::1%eth0]",
            "[1.2.3.4]",
            "",
            ".",
            "a..b",
            "127%2e0.0.1",
            "１２７.0.0.1",
            "127。0。0。1",
            "-.+",
            "a b",
            "999999999999999999999999",
            "+1",
            "1.+2",
        ] {
            let host = Host::parse(text);
            assert!(!matches!(host, Some(Host::Address(_))), "{text}: {host:?}");
            if text != "1.2.3.0xg0" {
                assert_eq!(host, None, "{text}");
            }
        }
        assert_eq!(Host::parse(&"a".repeat(64)), None);
        for name in ["localhost", "localhost.", "a-b.example", "nas_1", "1a", "0x7g.com", "127.0.0.1.nip.io"]
        {
            assert_eq!(Host::parse(name), Some(Host::Name(name.to_owned())), "{name}");
        }
    }

    /// Gives one answer after the other, then none.
    #[derive(Debug)]
    struct Scripted(Mutex<Vec<Vec<IpAddr>>>);

    impl Resolve for Scripted {
        fn resolve(&self, _name: &str) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>> {
            let mut answers = self.0.lock().unwrap();
            let answer =
                if answers.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(answers.remove(0)) };
            Box::pin(async move { answer })
        }
    }

    async fn vet(host: &str, answers: &[&[&str]]) -> Result<Vec<String>, String> {
        let answer = |answer: &&[&str]| answer.iter().map(|address| address.parse().unwrap()).collect();
        let resolver = Scripted(Mutex::new(answers.iter().map(answer).collect()));
        let authority = host.parse().unwrap();
        vetted(&authority, 80, &resolver, &TargetPolicy::default())
            .await
            .map(|targets| targets.iter().map(ToString::to_string).collect())
            .map_err(|failure| failure.to_string())
    }

    #[tokio::test]
    async fn one_blocked_address_refuses_the_name() {
        assert_eq!(
            vet("a.test", &[&["192.168.1.5", "fd00::5"]]).await.unwrap(),
            ["192.168.1.5:80", "[fd00::5]:80"]
        );
        for answer in [
            &["192.168.1.5", "127.0.0.1"][..],
            &["::1"],
            &["8.8.8.8", "::ffff:169.254.169.254"],
            &["fe80::1", "8.8.8.8"],
        ] {
            let error = vet("a.test", &[answer]).await.unwrap_err();
            assert!(error.starts_with("blocked server target: the name 'a.test' leads to "), "{error}");
        }
        for (answers, expected) in [
            (&[&[][..]][..], "blocked server target: the name 'a.test' has no address"),
            (&[], "blocked server target: the name 'a.test' cannot be resolved"),
        ] {
            assert_eq!(vet("a.test", answers).await.unwrap_err(), expected);
        }
        let many = vec!["8.8.8.8"; ADDRESSES_MAX + 1];
        assert!(vet("a.test", &[&many]).await.unwrap_err().contains("65 addresses, at most 64"));
    }

    #[tokio::test]
    async fn a_name_is_looked_up_once_and_a_literal_never() {
        // A second look-up would give loopback, and for the literal any look-up would be an error.
        assert_eq!(vet("rebind.test", &[&["10.0.0.9"], &["127.0.0.1"]]).await.unwrap(), ["10.0.0.9:80"]);
        assert_eq!(vet("10.1:8080", &[]).await.unwrap(), ["10.0.0.1:80"]);
        assert_eq!(vet("[::ffff:10.0.0.1]", &[]).await.unwrap(), ["10.0.0.1:80"]);
        for host in ["127.1", "0x7f000001", "[::1]", "[::]", "0", "[64:ff9b::7f00:1]", "[2002:7f00:1::]"] {
            let error = vet(host, &[]).await.unwrap_err();
            assert!(
                error.starts_with(&format!("blocked server target: '{host}' is a")) || host == "[::]",
                "{error}"
            );
        }
    }
}
