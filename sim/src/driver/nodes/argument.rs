//! Arguments of ioctls: how they are copied in and out.

use nix::errno::Errno;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Result of a handler: the value the ioctl returns.
pub(crate) type Reply = Result<i32, Errno>;

/// Runs `f` on the argument struct in `bytes`.
pub(crate) fn with<A: FromBytes + IntoBytes + Immutable>(
    bytes: &mut [u8],
    f: impl FnOnce(&mut A) -> Reply,
) -> Reply {
    let mut args = A::read_from_bytes(bytes).map_err(|_| Errno::ENOTTY)?;
    let reply = f(&mut args);
    args.write_to(bytes).map_err(|_| Errno::ENOTTY)?;
    reply
}

/// `EINVAL` unless the arguments are right.
pub(crate) fn accept(right: bool) -> Reply {
    if right { Ok(0) } else { Err(Errno::EINVAL) }
}
