//! Cubins of one source for several GPUs, and which of them a device takes.

use std::slice;

use crate::cubin::error::CubinError;
use crate::cubin::file::File;

/// The SM version of Tegra's GPUs, which NVIDIA's binary compatibility of desktop GPUs does not include.
const TEGRA: u32 = 87;

/// Code runs on its own SM version and on later ones of the same major version; code for desktop GPUs does
/// not run on Tegra's, nor the other way round ("Binary Compatibility", CUDA C++ Programming Guide).
pub(crate) fn runs_on(code: u32, device: u32) -> bool {
    let same_family = (code == TEGRA) == (device == TEGRA);
    code / 10 == device / 10 && code % 10 <= device % 10 && same_family
}

/// The argument of [`Device::load`](crate::Device::load): a cubin, or several of one source for it to choose
/// from. [`images!`](crate::images) embeds several.
#[derive(Clone, Copy, Debug)]
pub struct Images<'a>(Set<'a>);

#[derive(Clone, Copy, Debug)]
enum Set<'a> {
    One(&'a [u8]),
    Several(&'a [&'a [u8]]),
}

impl<'a> Images<'a> {
    /// These cubins.
    pub const fn new(cubins: &'a [&'a [u8]]) -> Self {
        Self(Set::Several(cubins))
    }

    /// The cubins.
    pub(crate) fn all(&self) -> &[&'a [u8]] {
        match &self.0 {
            Set::One(cubin) => slice::from_ref(cubin),
            Set::Several(cubins) => cubins,
        }
    }

    /// The cubin that runs on an sm_`sm`: the one for that version, else for the latest one before it whose
    /// code it runs.
    ///
    /// # Errors
    /// [`CubinError::NoneFits`] names the versions there are; those of a file that is no cubin.
    pub fn for_sm(&self, sm: u32) -> Result<&'a [u8], CubinError> {
        let code = self.all().iter().map(|cubin| Ok(File::parse(cubin)?.sm()));
        let code = code.collect::<Result<Vec<u32>, CubinError>>()?;
        let fitting = self.all().iter().zip(&code).filter(|(_, code)| runs_on(**code, sm));
        match fitting.max_by_key(|(_, code)| **code) {
            Some((cubin, _)) => Ok(cubin),
            None => Err(CubinError::NoneFits { device: sm, images: code }),
        }
    }
}

impl<'a> From<&'a [u8]> for Images<'a> {
    fn from(cubin: &'a [u8]) -> Self {
        Self(Set::One(cubin))
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Images<'a> {
    fn from(cubin: &'a [u8; N]) -> Self {
        Self(Set::One(cubin))
    }
}

impl<'a> From<&'a Vec<u8>> for Images<'a> {
    fn from(cubin: &'a Vec<u8>) -> Self {
        Self(Set::One(cubin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Images<'_> = images!("../../examples/kernels/examples", sm_80, sm_87, sm_90);

    /// The SM that the chosen cubin is for.
    fn chosen(images: Images<'_>, sm: u32) -> Result<u32, String> {
        let cubin = images.for_sm(sm).map_err(|error| error.to_string())?;
        Ok(File::parse(cubin).expect("a cubin").sm())
    }

    #[test]
    fn a_device_takes_its_own_code_or_the_latest_before_it() {
        let code = [80, 86, 87, 89, 90].map(|sm| chosen(ALL, sm));
        assert_eq!(code, [80, 80, 87, 80, 90].map(Ok));
        let scale = images!("../../examples/kernels/ptxgen/scale", sm_80, sm_86, sm_87, sm_89, sm_90);
        for sm in [80, 86, 87, 89, 90] {
            assert_eq!(chosen(scale, sm), Ok(sm));
        }
    }

    #[test]
    fn the_refusal_names_the_device_and_the_images() {
        let text = "no image runs on the device, an sm_75: there are sm_80, sm_87, sm_90";
        assert_eq!(chosen(ALL, 75), Err(text.to_owned()));
        let tegra = Images::from(include_bytes!("../../examples/kernels/examples.sm_87.cubin"));
        assert_eq!(
            chosen(tegra, 86),
            Err("no image runs on the device, an sm_86: there are sm_87".to_owned())
        );
        assert_eq!(
            chosen(Images::new(&[]), 86),
            Err("no image runs on the device, an sm_86: there are none".to_owned())
        );
        assert!(matches!(Images::new(&[b"text"]).for_sm(87), Err(CubinError::Elf { .. })));
    }
}
