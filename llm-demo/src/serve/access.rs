//! Access: the key, the names of this server, and the sites whose pages may ask it.

use std::net::IpAddr;

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, AUTHORIZATION, HOST, HeaderMap, HeaderValue, ORIGIN, VARY,
};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode};
use subtle::ConstantTimeEq;

use crate::serve::framing::Ambiguous;
use crate::serve::openai::error::Error;

/// The conditions of access.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The key that requests name, if they have to.
    pub key: Option<String>,
    /// Whether the server listens on a loopback address alone.
    pub loopback: bool,
    /// Names of this server in `Host` beside those of a loopback address, with a port or for all.
    pub hosts: Vec<String>,
    /// Sites whose pages may ask this server, or `*`.
    pub origins: Vec<String>,
}

impl Access {
    /// An error for requests that may not ask; `open` needs no key. Else the site whose page asks, if that is
    /// a listed one.
    pub fn check(&self, request: &Parts, open: bool) -> Result<Option<HeaderValue>, Error> {
        if request.extensions.get::<Ambiguous>().is_some() {
            let message = "the request has a Content-Length and a Transfer-Encoding: one says how long it is";
            return Err(Error::bad(message));
        }
        let host = host(request)?;
        let given = self.has_key(&request.headers);
        if self.key.is_some() && !given && !open && !is_preflight(request) {
            let message = "the key is missing or wrong: Authorization: Bearer KEY";
            return Err(Error::new(StatusCode::UNAUTHORIZED, message).with_code("invalid_api_key"));
        }
        // Else it may be the name of another site that was made to resolve to this machine. Who has the key is
        // none.
        if self.loopback
            && !given
            && !is_loopback(host)
            && !self.hosts.iter().any(|name| is_named(host, name))
        {
            let host: String = host.chars().take(100).collect();
            let message = format!(
                "the server listens on a loopback address, and the Host of the request is {host:?}: start it with \
                 --allow-host NAME, or with a key that the request names"
            );
            return Err(Error::new(StatusCode::FORBIDDEN, message).with_code("host_not_allowed"));
        }
        let Some(origin) = request.headers.get(ORIGIN) else { return Ok(None) };
        let name = origin.to_str().unwrap_or_default();
        if self.origins.iter().any(|listed| listed == "*" || listed.eq_ignore_ascii_case(name)) {
            return Ok(Some(origin.clone()));
        }
        if given || name.split_once("://").is_some_and(|(_, name)| name.eq_ignore_ascii_case(host)) {
            return Ok(None);
        }
        let name: String = name.chars().take(100).collect();
        let message = format!(
            "pages of other sites may not ask this server, and {name:?} is one: --allow-origin lets it"
        );
        Err(Error::new(StatusCode::FORBIDDEN, message).with_code("origin_not_allowed"))
    }

    /// Whether a request names the key.
    fn has_key(&self, headers: &HeaderMap) -> bool {
        let Some(key) = &self.key else { return false };
        let given = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes).unwrap_or_default();
        let given = given.split_at_checked(b"Bearer ".len());
        let given = given.filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"Bearer ")).map(|(_, key)| key);
        given.is_some_and(|given| bool::from(given.ct_eq(key.as_bytes())))
    }
}

/// Whether a browser asks if a page may send a request; it names no key.
pub fn is_preflight(request: &Parts) -> bool {
    let headers = &request.headers;
    request.method == Method::OPTIONS
        && headers.contains_key(ORIGIN)
        && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The headers that let a page of `origin` read an answer, and send the request that a browser asks for.
pub fn permissions(origin: HeaderValue, request: &HeaderMap) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(VARY, HeaderValue::from_static("origin"));
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id, retry-after"));
    if request.contains_key(ACCESS_CONTROL_REQUEST_METHOD) {
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
        let wanted = request.get(ACCESS_CONTROL_REQUEST_HEADERS);
        headers.extend(wanted.map(|names| (ACCESS_CONTROL_ALLOW_HEADERS, names.clone())));
    }
    headers
}

/// The host that a request names; empty for none.
fn host(request: &Parts) -> Result<&str, Error> {
    let mut named = request.headers.get_all(HOST).iter();
    let host = named.next().map_or(Ok(""), |host| host.to_str());
    let host = host.map_err(|_| Error::bad("the Host of the request is no name"))?;
    let other = request.uri.authority().is_some_and(|name| !name.as_str().eq_ignore_ascii_case(host));
    match other || named.next().is_some() {
        true => Err(Error::bad("the request names its host more than once")),
        false => Ok(host),
    }
}

/// The name in a `Host`, without its port.
fn name(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => name,
        _ => host,
    }
}

/// Whether a `Host` is `listed`, which has a port or stands for all.
fn is_named(host: &str, listed: &str) -> bool {
    host.eq_ignore_ascii_case(listed) || name(host).eq_ignore_ascii_case(listed)
}

/// Whether a `Host` names this machine.
fn is_loopback(host: &str) -> bool {
    let name = name(host);
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    fn parts(headers: &[(&'static str, &str)]) -> Parts {
        let mut request = Request::new(()).into_parts().0;
        for (name, value) in headers {
            request.headers.append(*name, HeaderValue::from_str(value).expect("a value"));
        }
        request
    }

    fn check(access: &Access, headers: &[(&'static str, &str)], open: bool) -> u16 {
        access.check(&parts(headers), open).map_or_else(|error| error.status.as_u16(), |_| 200)
    }

    #[test]
    fn a_key_is_compared_whole_and_opens_the_door() {
        let access = Access { key: Some("secret".into()), loopback: true, ..Access::default() };
        let with = |value: &str| check(&access, &[("host", "a"), ("authorization", value)], false);
        assert_eq!(with("Bearer secret"), 200, "a proxy keeps its name");
        assert_eq!(with("bearer secret"), 200);
        for wrong in ["Bearer secre", "Bearer secrets", "Bearer ", "Bearer", "secret", "Basic secret"] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        assert_eq!(check(&access, &[], false), 401);
        assert_eq!(check(&access, &[("host", "localhost")], true), 200);
        assert_eq!(check(&access, &[("host", "a")], true), 403, "what is open to this machine alone");
        let site = [("host", "a"), ("authorization", "Bearer secret"), ("origin", "http://b")];
        assert_eq!(check(&access, &site, false), 200);
    }

    #[test]
    fn other_sites_may_not_ask() {
        let access = Access { loopback: true, ..Access::default() };
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

    #[test]
    fn listed_hosts_and_sites_may_ask() {
        let hosts = vec!["box.lan".into(), "chat.example:8443".into()];
        let origins = vec!["https://chat.example".into()];
        let access = Access { key: None, loopback: true, hosts, origins };
        for host in ["box.lan", "BOX.lan:80", "chat.example:8443", "localhost"] {
            assert_eq!(check(&access, &[("host", host)], false), 200, "{host}");
        }
        for host in ["other.lan", "chat.example", "chat.example:80", "box.lan.evil"] {
            assert_eq!(check(&access, &[("host", host)], false), 403, "{host}");
        }
        let from = |origin| check(&access, &[("host", "localhost"), ("origin", origin)], false);
        assert_eq!((from("https://chat.example"), from("http://chat.example")), (200, 403));
        let all = Access { origins: vec!["*".into()], ..access };
        assert_eq!(check(&all, &[("host", "localhost"), ("origin", "null")], false), 200);
    }

    #[test]
    fn a_request_has_one_host() {
        let access = Access { loopback: true, ..Access::default() };
        assert_eq!(check(&access, &[("host", "localhost"), ("host", "evil.example")], false), 400);
        let mut request = parts(&[("host", "localhost")]);
        request.uri = "http://evil.example/v1/models".parse().expect("an address");
        assert_eq!(access.check(&request, false).expect_err("another").status, 400);
    }
}
