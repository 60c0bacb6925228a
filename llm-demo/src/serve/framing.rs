//! Requests whose length is given twice: by `Content-Length` and by `Transfer-Encoding`.
//!
//! A proxy and this server could see different requests in one. `hyper` drops the length, so it is looked for in
//! the bytes that `hyper` reads.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes of a line that are looked at: the longest name, and the digits of any length.
const MOST_LINE: usize = 64;

/// Marks a request whose length is given twice.
#[derive(Clone, Copy, Debug)]
pub struct Ambiguous;

/// A connection whose requests are looked at.
#[derive(Debug)]
pub struct Watched {
    inner: TcpStream,
    heads: Heads,
    ambiguous: Arc<AtomicBool>,
}

impl Watched {
    /// Watches a connection; sets `ambiguous` for a request whose length is given twice.
    pub fn new(inner: TcpStream, ambiguous: Arc<AtomicBool>) -> Self {
        Self { inner, heads: Heads::default(), ambiguous }
    }
}

/// The place in the requests of a connection.
#[derive(Debug)]
enum Heads {
    Head {
        line: Vec<u8>,
        is_begun: bool,
        length: Option<u64>,
        is_encoded: bool,
    },
    Body(u64),
    /// After the head of an encoded body no further request is looked at: the connection ends with it.
    Encoded,
}

impl Default for Heads {
    fn default() -> Self {
        Self::Head { line: Vec::new(), is_begun: false, length: None, is_encoded: false }
    }
}

impl Heads {
    /// Reads on. Returns whether a head has both.
    fn read(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            match self {
                Self::Encoded => return false,
                Self::Body(left) => {
                    let skipped = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[skipped..];
                    *left -= skipped as u64;
                    if *left == 0 {
                        *self = Self::default();
                    }
                }
                Self::Head { line, is_begun, length, is_encoded } => {
                    let byte = bytes[0];
                    bytes = &bytes[1..];
                    if byte != b'\n' {
                        if line.len() < MOST_LINE && byte != b'\r' {
                            line.push(byte);
                        }
                        continue;
                    }
                    match field(line) {
                        Some(("content-length", value)) => *length = value.parse().ok().or(Some(0)),
                        Some(("transfer-encoding", _)) => *is_encoded = true,
                        _ => {}
                    }
                    // Empty lines before a request are none of it.
                    let is_end = line.is_empty() && *is_begun;
                    *is_begun |= !line.is_empty();
                    line.clear();
                    if is_end {
                        let both = *is_encoded && length.is_some();
                        *self = match (*is_encoded, *length) {
                            (true, _) => Self::Encoded,
                            (false, Some(length @ 1..)) => Self::Body(length),
                            (false, _) => Self::default(),
                        };
                        if both {
                            return true;
                        }
                    }
                }
            }
        }
        false
    }
}

/// Name and value of a header, if it is one of those that say how long a body is.
fn field(line: &[u8]) -> Option<(&'static str, &str)> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    let names = ["content-length", "transfer-encoding"];
    Some((names.into_iter().find(|known| known.eq_ignore_ascii_case(name))?, value.trim()))
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        if this.heads.read(&buf.filled()[before..]) {
            this.ambiguous.store(true, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether some head of `text` has both, however it is cut.
    fn both(text: &str) -> bool {
        let whole = Heads::default().read(text.as_bytes());
        let mut heads = Heads::default();
        let bytes = text.bytes().filter(|byte| heads.read(&[*byte])).count();
        assert_eq!(whole, bytes > 0, "{text}");
        whole
    }

    #[test]
    fn a_length_beside_an_encoding_is_found_in_any_head() {
        let first = "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab\r\n\rGET / HTTP/1.1\r\n\r\n";
        for (head, expected) in [
            ("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", true),
            ("transfer-encoding:chunked\r\nX: y\r\nCONTENT-LENGTH:3\r\n", true),
            ("Transfer-Encoding: chunked\r\n", false),
            ("Content-Length: 0\r\nX-Transfer-Encoding: chunked\r\n", false),
        ] {
            let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n");
            assert_eq!(both(&head), expected, "{head}");
            assert_eq!(both(&format!("\r\n{first}{head}")), expected, "{head}");
            assert!(!both(&format!("POST / HTTP/1.1\r\nContent-Length: {}\r\n\r\n{head}", head.len())));
        }
    }
}
