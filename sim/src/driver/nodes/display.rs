//! `/dev/nvidiactl` of a display driver beside nvgpu: an Orin whose screen is on has one
//! (`nvidia.ko`, 540.4.0 with r36.4.4). It says which driver it is and that it has no GPU.

use crate::driver::nodes::argument::Reply;
use nix::errno::Errno;

/// `NV_ESC_CHECK_VERSION_STR` and `NV_ESC_CARD_INFO` without the size of their arguments
/// (`nv-ioctl-numbers.h` of NVIDIA's open-gpu-kernel-modules).
const CHECK_VERSION: u32 = 0xc000_46d2;
const CARD_INFO: u32 = 0xc000_46c8;
const SIZE: u32 = 0x3fff << 16;
/// `NV_RM_API_VERSION_CMD_QUERY`: which version is there. Any other command compares.
const QUERY: u32 = b'2' as u32;
/// Bytes of the reply and of the version's text in `nv_ioctl_rm_api_version_t`.
const REPLY: std::ops::Range<usize> = 4..8;
const TEXT: std::ops::Range<usize> = 8..72;
/// The version of an Orin's `nvidia.ko` in r36.4 (field notes of a Jetson AGX Orin).
const VERSION: &[u8] = b"540.4.0";

/// Serves a command of the desktop driver's kind.
pub(super) fn ioctl(request: u32, bytes: &mut [u8]) -> Reply {
    match request & !SIZE {
        CHECK_VERSION if bytes.len() == TEXT.end => {
            let (head, text) = bytes.split_at_mut(TEXT.start);
            let same = text.starts_with(VERSION) && text[VERSION.len()] == 0;
            let known = same || head.starts_with(&QUERY.to_ne_bytes());
            head[REPLY].copy_from_slice(&u32::from(known).to_ne_bytes());
            text.fill(0);
            text[..VERSION.len()].copy_from_slice(VERSION);
            if known { Ok(0) } else { Err(Errno::EINVAL) }
        }
        // An Orin's display has no card that computes.
        CARD_INFO => {
            bytes.fill(0);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}
