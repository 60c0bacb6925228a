//! Finding the GPU, and asking what it is.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};

use nvgpu_sys::Sys;
use rm_sys::{
    Escape, NV_RM_API_VERSION_CMD_QUERY, NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS,
    NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS, NV2080_CTRL_FB_GET_INFO_PARAMS, NV2080_CTRL_FB_INFO,
    NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE, NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE,
    NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS, NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS_R595,
    NV2080_CTRL_GR_GET_INFO_PARAMS, NV2080_CTRL_GR_INFO, NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS,
    NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC, NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC,
    NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM, NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT,
    NV2080_CTRL_GR_INFO_INDEX_SM_VERSION, NV2080_ENGINE_TYPE_COPY0, Release, Version, nv_ioctl_card_info_t,
    nv_ioctl_rm_api_version_t,
};

use super::client::{Object, escape, open, send};
use super::generation::Generation;
use crate::error::{DriverError, Error, OpenError};
use crate::info::{BackendKind, Info};

/// GPUs that one `NV_ESC_CARD_INFO` can list.
const CARDS: usize = 64;
/// Copy engines `NV2080_ENGINE_TYPE_COPY0 + n` counts up to; those above are numbered elsewhere.
const COPY_ENGINES: usize = 10;

/// A GPU whose node could be opened.
#[derive(Debug)]
pub(super) struct Card {
    /// The driver's number for it.
    pub id: u32,
    /// Its node.
    pub path: CString,
    /// The open node.
    pub fd: OwnedFd,
}

/// The version the loaded driver says it is.
pub(super) fn driver_version(sys: &dyn Sys, control: &OwnedFd) -> Result<Version, Error> {
    let mut args = nv_ioctl_rm_api_version_t { cmd: NV_RM_API_VERSION_CMD_QUERY, ..Default::default() };
    // SAFETY: the struct holds no addresses.
    unsafe { escape(sys, control.as_fd(), &mut args) }?;
    let text: Vec<u8> = args.versionString.into_iter().take_while(|b| *b != 0).collect();
    Version::in_text(&String::from_utf8_lossy(&text)).map_err(Error::driver)
}

/// The first GPU the driver lists whose node this process may open.
pub(super) fn find(sys: &dyn Sys, control: &OwnedFd) -> Result<Card, Error> {
    let mut cards = [nv_ioctl_card_info_t::default(); CARDS];
    let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut cards);
    // The request carries the size of what is passed: here of the whole array.
    let request = nv_ioctl_card_info_t::REQUEST & !(0x3fff << 16) | (bytes.len() as u32) << 16;
    // SAFETY: the driver fills as many entries as the size in the request says, which is that of `cards`.
    unsafe { send(sys, control.as_fd(), nv_ioctl_card_info_t::NAME, request, bytes) }?;
    let mut refused = None;
    for card in cards.iter().filter(|c| c.valid != 0) {
        let Ok(path) = CString::new(format!("/dev/nvidia{}", card.minor_number)) else { continue };
        match open(sys, &path) {
            Ok(fd) => return Ok(Card { id: card.gpu_id, path, fd }),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(Error::Driver(DriverError::Answer {
        name: nv_ioctl_card_info_t::NAME,
        value: 0,
        expected: "at least one GPU",
    })))
}

/// The classes the GPU offers.
pub(super) fn class_list(device: &Object) -> Result<Vec<u32>, Error> {
    let mut args = NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS::default();
    // SAFETY: without a list the driver writes the count alone.
    unsafe { device.control(&mut args) }?;
    let count = usize::try_from(args.numClasses).unwrap_or(0).min(4096);
    let mut list = vec![0u32; count];
    args.classList = list.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the address is that of `list`, which is as long as `numClasses` says and outlives the call.
    unsafe { device.control(&mut args) }?;
    list.truncate(usize::try_from(args.numClasses).unwrap_or(0));
    Ok(list)
}

fn gr_info<const N: usize>(subdevice: &Object, indices: [u32; N]) -> Result<[u32; N], Error> {
    let mut list = indices.map(|index| NV2080_CTRL_GR_INFO { index, data: 0 });
    let mut args = NV2080_CTRL_GR_GET_INFO_PARAMS {
        grInfoListSize: N as u32,
        grInfoList: list.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: the address is that of `list`, which is as long as stated and outlives the call.
    unsafe { subdevice.control(&mut args) }?;
    Ok(list.map(|info| info.data))
}

/// Video memory that nobody has allocated.
pub(super) fn free_memory(subdevice: &Object) -> Result<u64, Error> {
    fb_kib(subdevice, NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE)
}

/// A figure about video memory, which the driver counts in KiB.
fn fb_kib(subdevice: &Object, index: u32) -> Result<u64, Error> {
    let mut list = [NV2080_CTRL_FB_INFO { index, data: 0 }];
    let mut args = NV2080_CTRL_FB_GET_INFO_PARAMS {
        fbInfoListSize: 1,
        fbInfoList: list.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: the address is that of `list`, which is as long as stated and outlives the call.
    unsafe { subdevice.control(&mut args) }?;
    Ok(u64::from(list[0].data) << 10)
}

fn name(subdevice: &Object, release: Release) -> Result<String, Error> {
    let ascii = if release >= Release::R595 {
        let mut args = NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS_R595::default();
        // SAFETY: the struct holds no addresses.
        unsafe { subdevice.control(&mut args) }?;
        args.gpuNameString_ascii
    } else {
        let mut args = NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS::default();
        // SAFETY: the struct holds no addresses.
        unsafe { subdevice.control(&mut args) }?;
        args.gpuNameString_ascii
    };
    let text: Vec<u8> = ascii.into_iter().take_while(|b| *b != 0).collect();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The GPU's description.
pub(super) fn describe(
    subdevice: &Object,
    generation: &Generation,
    release: Release,
    version: Version,
) -> Result<Info, Error> {
    let [sm, warps, tpcs, gpcs_by_design, tpcs_by_design, sms_per_tpc] = gr_info(
        subdevice,
        [
            NV2080_CTRL_GR_INFO_INDEX_SM_VERSION,
            NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM,
            NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT,
            NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS,
            NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC,
            NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC,
        ],
    )?;
    let number = (sm >> 8) * 10 + (sm & 0xff);
    let target = qmd::Target::from_sm(number).filter(|target| target.is_run());
    let target = target.ok_or(Error::Open(OpenError::UnsupportedSm { sm: number }))?;
    Ok(Info {
        name: name(subdevice, release)?,
        backend: BackendKind::Rm,
        sm,
        sm_count: tpcs.saturating_mul(sms_per_tpc),
        tpc_count: gpcs_by_design.saturating_mul(tpcs_by_design),
        max_warps_per_sm: warps,
        max_shared_per_block: u64::from(target.max_shared_bytes() - qmd::RESERVED_SHARED_BYTES),
        classes: generation.classes,
        memory: fb_kib(subdevice, NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE)?,
        unified_memory: false,
        driver_version: version.to_string(),
        max_clock_hz: None,
        gpu_cache: None,
    })
}

/// First byte of an engine's capabilities (`ctrl2080ce.h`): it shares the compute engine's runlist.
const GRAPHICS: u8 = 0x01;
/// It is among the best for reading system memory, and for writing it.
const SYSTEM_MEMORY: u8 = 0x04 | 0x08;

/// Engine type of a copy engine that does not share the compute engine's runlist, if there is one: the first
/// of those that are best for system memory.
pub(super) fn copy_engine(subdevice: &Object) -> Option<u32> {
    let mut caps = NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS::default();
    // SAFETY: the struct holds no addresses.
    if let Err(error) = unsafe { subdevice.control(&mut caps) } {
        tracing::debug!(%error, "copies go by the compute runlist");
        return None;
    }
    let bytes = zerocopy::IntoBytes::as_bytes(&caps.capsTbl);
    let capabilities: Vec<u8> = bytes.chunks_exact(2).map(|engine| engine[0]).collect();
    choose_copy_engine(caps.present, &capabilities)
}

fn choose_copy_engine(present: u64, capabilities: &[u8]) -> Option<u32> {
    (NV2080_ENGINE_TYPE_COPY0..)
        .zip(capabilities.iter().take(COPY_ENGINES).enumerate())
        .filter(|(_, (n, caps))| present >> n & 1 == 1 && *caps & GRAPHICS == 0)
        .min_by_key(|(_, (_, caps))| 2 - (*caps & SYSTEM_MEMORY).count_ones())
        .map(|(engine, _)| engine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_copy_engine_off_the_compute_runlist_is_chosen() {
        let caps = [GRAPHICS | SYSTEM_MEMORY, 0, SYSTEM_MEMORY, SYSTEM_MEMORY, 0x04];
        assert_eq!(choose_copy_engine(0b11111, &caps), Some(NV2080_ENGINE_TYPE_COPY0 + 2));
        assert_eq!(choose_copy_engine(0b11011, &caps), Some(NV2080_ENGINE_TYPE_COPY0 + 3));
        assert_eq!(choose_copy_engine(0b10011, &caps), Some(NV2080_ENGINE_TYPE_COPY0 + 4));
        assert_eq!(choose_copy_engine(0b00011, &caps), Some(NV2080_ENGINE_TYPE_COPY0 + 1));
        assert_eq!(choose_copy_engine(0b00001, &caps), None);
        assert_eq!(choose_copy_engine(0, &caps), None);
    }
}
