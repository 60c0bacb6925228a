//! GPU generations: which classes go together, and which chips are driven.

use rm_sys::{
    ADA_COMPUTE_A, AMPERE_CHANNEL_GPFIFO_A, AMPERE_COMPUTE_A, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_A,
    AMPERE_DMA_COPY_B, AMPERE_USERMODE_A, BLACKWELL_COMPUTE_A, BLACKWELL_COMPUTE_B, HOPPER_CHANNEL_GPFIFO_A,
    HOPPER_COMPUTE_A, HOPPER_DMA_COPY_A, HOPPER_USERMODE_A, TURING_COMPUTE_A,
};

use crate::error::{Error, OpenError};
use crate::info::Classes;

/// Classes that a generation's channels are made of. The compute class decides the QMD and the constant bank,
/// the channel class the width of addresses: one never goes with another generation's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// Name of the chips.
    pub name: &'static str,
    /// Classes of compute, copy and channel objects.
    pub classes: Classes,
    /// Class of the doorbell page.
    pub usermode: u32,
    /// Whether the doorbell has to be reached through the same aperture as video memory, so that it stays
    /// after earlier stores there.
    pub doorbell_with_memory: bool,
}

/// Newest first. Source: class lists of the open kernel driver 580.
const GENERATIONS: [Generation; 4] = [
    Generation {
        name: "Hopper (GH100)",
        classes: Classes {
            compute: HOPPER_COMPUTE_A,
            copy: HOPPER_DMA_COPY_A,
            channel: HOPPER_CHANNEL_GPFIFO_A,
        },
        usermode: HOPPER_USERMODE_A,
        doorbell_with_memory: true,
    },
    Generation {
        name: "Ada (AD10x)",
        classes: Classes {
            compute: ADA_COMPUTE_A,
            copy: AMPERE_DMA_COPY_B,
            channel: AMPERE_CHANNEL_GPFIFO_A,
        },
        usermode: AMPERE_USERMODE_A,
        doorbell_with_memory: false,
    },
    Generation {
        name: "Ampere (GA10x)",
        classes: Classes {
            compute: AMPERE_COMPUTE_B,
            copy: AMPERE_DMA_COPY_B,
            channel: AMPERE_CHANNEL_GPFIFO_A,
        },
        usermode: AMPERE_USERMODE_A,
        doorbell_with_memory: false,
    },
    Generation {
        name: "Ampere (GA100)",
        classes: Classes {
            compute: AMPERE_COMPUTE_A,
            copy: AMPERE_DMA_COPY_A,
            channel: AMPERE_CHANNEL_GPFIFO_A,
        },
        usermode: AMPERE_USERMODE_A,
        doorbell_with_memory: false,
    },
];

const SUPPORTED: &str = "Ampere (sm_80, sm_86), Ada (sm_89), Hopper (sm_90)";

impl Generation {
    /// The generation of a GPU that offers the classes in `list`.
    ///
    /// Every chip offers one compute class; that names it. Its other classes must be offered too.
    pub fn of(list: &[u32]) -> Result<&'static Self, Error> {
        let refused = |what| Error::Open(OpenError::Unsupported { what, value: 0, supported: SUPPORTED });
        let Some(found) = GENERATIONS.iter().find(|g| list.contains(&g.classes.compute)) else {
            let other = [
                (BLACKWELL_COMPUTE_B, "the generation Blackwell (GB20x, sm_120), compute class"),
                (BLACKWELL_COMPUTE_A, "the generation Blackwell (GB10x, sm_100), compute class"),
                (TURING_COMPUTE_A, "the generation Turing (sm_75), compute class"),
            ];
            return Err(match other.into_iter().find(|(class, _)| list.contains(class)) {
                Some((class, what)) => {
                    Error::Open(OpenError::Unsupported { what, value: class.into(), supported: SUPPORTED })
                }
                None => refused("a GPU without a known compute class"),
            });
        };
        for class in [found.classes.copy, found.classes.channel, found.usermode] {
            if !list.contains(&class) {
                let what = "a GPU that offers its compute class without class";
                return Err(Error::Open(OpenError::Unsupported {
                    what,
                    value: class.into(),
                    supported: SUPPORTED,
                }));
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Classes each chip lists, from a table compiled out of the driver's own lists.
    fn class_lists() -> Vec<(String, Vec<u32>)> {
        let abi: serde_json::Value =
            serde_json::from_str(include_str!("../../../tests/data/rm-abi.json")).unwrap();
        let number = |name: &String| rm_sys::CLASSES.iter().find(|c| c.name == *name).map(|c| c.number);
        let chips = abi["chip_classes"].as_object().unwrap();
        chips
            .iter()
            .map(|(chip, list)| (chip.clone(), list.as_object().unwrap().keys().filter_map(number).collect()))
            .collect()
    }

    #[test]
    fn every_chip_is_recognised_or_refused_by_name() {
        for (chip, list) in class_lists() {
            let found = Generation::of(&list);
            match &chip[..2] {
                "GH" => assert_eq!(found.unwrap().name, "Hopper (GH100)", "{chip}"),
                "AD" => assert_eq!(found.unwrap().name, "Ada (AD10x)", "{chip}"),
                "GA" if chip == "GA100" => assert_eq!(found.unwrap().name, "Ampere (GA100)"),
                "GA" => assert_eq!(found.unwrap().name, "Ampere (GA10x)", "{chip}"),
                "TU" => assert!(found.unwrap_err().to_string().contains("Turing"), "{chip}"),
                "GB" => assert!(found.unwrap_err().to_string().contains("Blackwell"), "{chip}"),
                _ => panic!("{chip} is of no known family"),
            }
        }
    }

    #[test]
    fn an_empty_list_is_no_gpu() {
        assert!(Generation::of(&[]).is_err());
    }
}
