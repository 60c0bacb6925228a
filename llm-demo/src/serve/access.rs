//! Access: the key, and no pages of other sites.

use std::net::IpAddr;

use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN};
use subtle::ConstantTimeEq;

use crate::serve::openai::error::Error;

/// The conditions of access.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The key that requests name, if they have to.
    pub key: Option<String>,
    /// Whether the server listens on a loopback address alone.
    pub loopback: bool,
}

impl Access {
    /// An error for requests that may not ask; `open` needs no key.
    pub fn check(&self, headers: &HeaderMap, open: bool) -> Result<(), Error> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        // The name of another site that was made to resolve to this machine.
        if self.loopback && !is_loopback(host) {
            let message = "the server listens on a loopback address, and the Host of the request is none";
            return Err(Error::new(StatusCode::FORBIDDEN, message));
        }
        if let Some(origin) = headers.get(ORIGIN) {
            let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
            if origin.is_none_or(|(_, name)| name != host) {
                return Err(Error::new(
                    StatusCode::FORBIDDEN,
                    "pages of other sites may not ask this server",
                ));
            }
        }
        let Some(key) = self.key.as_ref().filter(|_| !open) else { return Ok(()) };
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let given = given.split_at_checked(b"Bearer ".len());
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")).map(|(_, key)| key);
        if given.is_some_and(|given| bool::from(given.ct_eq(key.as_bytes()))) {
            return Ok(());
        }
        let message = "the key is missing or wrong: Authorization: Bearer KEY";
        Err(Error::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"))
    }
}

/// Whether a `Host` names this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(access: &Access, headers: &[(&'static str, &str)], open: bool) -> u16 {
        let pair = |(name, value): &(&'static str, &str)| {
            (name.parse().expect("a name"), HeaderValue::from_str(value).expect("a value"))
        };
        let headers: HeaderMap = headers.iter().map(pair).collect();
        access.check(&headers, open).map_or_else(|error| error.status.as_u16(), |()| 200)
    }

    #[test]
    fn a_key_is_compared_whole() {
        let access = Access { key: Some("secret".into()), loopback: false };
        let with = |value: &str| check(&access, &[("host", "a"), ("authorization", value)], false);
        assert_eq!(with("Bearer secret"), 200);
        assert_eq!(with("bearer secret"), 200);
        for wrong in ["Bearer secre", "Bearer secrets", "Bearer ", "Bearer", "secret", "Basic secret"] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        assert_eq!(check(&access, &[], false), 401);
        assert_eq!(check(&access, &[], true), 200);
    }

    #[test]
    fn other_sites_may_not_ask() {
        let access = Access { key: None, loopback: true };
        for host in ["localhost:8080", "127.0.0.1", "127.8.9.1:80", "[::1]:8080", "LOCALHOST"] {
            assert_eq!(check(&access, &[("host", host)], false), 200, "{host}");
        }
        for host in ["evil.example:8080", "192.168.0.1", "", "localhost.evil.example", "127.0.0.1.evil"] {
            assert_eq!(check(&access, &[("host", host)], false), 403, "{host}");
        }
        let from = |origin| check(&access, &[("host", "localhost:80"), ("origin", origin)], true);
        assert_eq!(from("http://localhost:80"), 200);
        assert_eq!(from("http://localhost:81"), 403);
        assert_eq!(from("null"), 403);
        assert_eq!(check(&Access::default(), &[("host", "box.lan")], false), 200);
    }
}
