//! The structs of the drivers' requests, field by field, and which request takes which.
//!
//! The table (`data/ioctls.txt`) is made from the fact tables that nvgpu-sys and rm-sys are tested against; a
//! test compares it with those crates.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A driver, or a part of one with request numbers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// nvgpu and nvmap.
    Tegra,
    /// Escapes of the desktop driver's `/dev/nvidiactl` and `/dev/nvidiaN`; numbers without direction and
    /// size.
    Escape,
    /// `/dev/nvidia-uvm`.
    Uvm,
    /// Commands of `NV_ESC_RM_CONTROL`.
    Control,
    /// Classes of `NV_ESC_RM_ALLOC`.
    Class,
}

/// A struct.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Its name.
    pub name: &'static str,
    /// Its size.
    pub size: usize,
    /// Its integers, in the order of the header.
    pub fields: Vec<Field>,
}

/// An integer of a struct, or an array of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name; parts of structs inside are joined with dots.
    pub name: &'static str,
    /// Its offset.
    pub offset: usize,
    /// Bytes of one element. Not always those of an integer: elements may be structs.
    pub width: usize,
    /// Number of elements.
    pub count: usize,
    /// Whether it is signed.
    pub signed: bool,
    /// First bit and number of bits, for a bit-field.
    pub bits: Option<(u32, u32)>,
}

/// A request, a command or a class.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// The layouts its struct has in different releases; none if it takes no argument.
    pub layouts: Vec<&'static Layout>,
    /// Whether the argument is a bare number of this many bytes.
    pub number: Option<(usize, bool)>,
}

/// A field that points to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointer {
    /// The field.
    pub field: &'static str,
    /// Address.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
    /// Layout of the memory, or of an element of an array where it is shorter than the memory.
    pub layout: Option<&'static Layout>,
}

/// Most bytes that are read at a pointer.
const MAX_MEMORY: usize = 64 << 10;

/// Fields that point to memory: struct, field with the address, field with the count, bytes of an element,
/// its struct.
const POINTERS: &[(&str, &str, &str, usize, &str)] = &[
    (
        "nvgpu_gpu_get_characteristics",
        "gpu_characteristics_buf_addr",
        "gpu_characteristics_buf_size",
        1,
        "nvgpu_gpu_characteristics",
    ),
    ("nvgpu_gpu_get_tpc_masks_args", "mask_buf_addr", "mask_buf_size", 1, "u32"),
    ("nvgpu_gpu_get_fbp_l2_masks_args", "mask_buf_addr", "mask_buf_size", 1, "u32"),
    (
        "nvgpu_gpu_get_engine_info_args",
        "engine_info_buf_addr",
        "engine_info_buf_size",
        1,
        "nvgpu_gpu_get_engine_info_item",
    ),
    ("nvgpu_as_get_va_regions_args", "buf_addr", "buf_size", 1, "nvgpu_as_va_region"),
    ("nvgpu_as_map_buffer_batch_args", "unmaps", "num_unmaps", 8, "nvgpu_as_unmap_buffer_args"),
    ("nvgpu_as_map_buffer_batch_args", "maps", "num_maps", 40, "nvgpu_as_map_buffer_ex_args"),
    ("nvgpu_as_remap_args", "ops", "num_ops", 40, "nvgpu_as_remap_op"),
    ("nvgpu_submit_gpfifo_args", "gpfifo", "num_entries", 8, "nvgpu_gpfifo"),
    (
        "nvgpu_tsg_read_single_sm_error_state_args",
        "record_mem",
        "record_size",
        1,
        "nvgpu_tsg_sm_error_state_record",
    ),
    (
        "nvgpu_tsg_read_all_sm_error_state_args",
        "buffer_mem",
        "buffer_size",
        1,
        "nvgpu_tsg_sm_error_state_record",
    ),
    (
        "nvgpu_dbg_gpu_read_single_sm_error_state_args",
        "sm_error_state_record_mem",
        "sm_error_state_record_size",
        1,
        "nvgpu_dbg_gpu_sm_error_state_record",
    ),
    ("nvgpu_dbg_gpu_exec_reg_ops_args", "ops", "num_ops", 32, "nvgpu_dbg_gpu_reg_op"),
    ("nvgpu_dbg_gpu_get_mappings_args", "ops_buffer", "count", 16, "nvgpu_dbg_gpu_get_mappings_entry"),
    ("nvgpu_dbg_gpu_va_access_args", "ops_buf", "count", 24, "nvgpu_dbg_gpu_va_access_entry"),
    ("nvgpu_sched_get_tsgs_args", "buffer", "size", 1, "u64"),
    ("nvmap_set_tag_label", "addr", "len", 1, ""),
    ("NVOS54_PARAMETERS", "params", "paramsSize", 1, "control"),
    ("NVOS64_PARAMETERS", "pAllocParms", "paramsSize", 1, "class"),
    ("NVOS21_PARAMETERS", "pAllocParms", "paramsSize", 1, "class"),
    ("nv_ioctl_xfer_t", "ptr", "size", 1, "escape"),
];

#[derive(Debug, Default)]
struct Tables {
    layouts: HashMap<&'static str, Vec<&'static Layout>>,
    known: HashMap<(Family, u32), Known>,
}

static TABLES: LazyLock<Tables> = LazyLock::new(|| parse(include_str!("../../data/ioctls.txt")));

/// Words of bit masks, in the form of the table.
const WORDS: &str = "struct u32 4 mask:0:u4\nstruct u64 8 mask:0:u8";

/// The request, command or class of that number.
#[must_use]
pub fn find(family: Family, number: u32) -> Option<&'static Known> {
    TABLES.known.get(&(family, number))
}

/// The layout of that name, in the newest release.
#[must_use]
pub fn layout(name: &str) -> Option<&'static Layout> {
    TABLES.layouts.get(name)?.first().copied()
}

/// Everything in the table.
pub fn all() -> impl Iterator<Item = (Family, u32, &'static Known)> {
    TABLES.known.iter().map(|((family, number), known)| (*family, *number, known))
}

/// The family of the requests that a node takes, by its name.
#[must_use]
pub fn family(node: &str) -> Family {
    match node.strip_prefix("/dev/nvidia") {
        Some(rest) if rest.starts_with("-uvm") => Family::Uvm,
        Some(_) => Family::Escape,
        None => Family::Tegra,
    }
}

/// The request that a node is sent.
#[must_use]
pub fn request(node: &str, request: u32) -> Option<&'static Known> {
    let family = family(node);
    let number = match family {
        Family::Escape if request >> 8 & 0xff != u32::from(b'F') => return None,
        Family::Escape => request & 0xff,
        _ => request,
    };
    find(family, number)
}

/// Bytes of the argument of a request: by the number, or by the table for requests whose number has none.
#[must_use]
pub fn argument_bytes(node: &str, number: u32) -> usize {
    match family(node) {
        Family::Uvm => {
            request(node, number).map_or(0, |known| known.layouts.iter().map(|l| l.size).max().unwrap_or(0))
        }
        _ if number >> 30 == 0 => 0,
        _ => (number >> 16 & 0x3fff) as usize,
    }
}

impl Known {
    /// The layout for so many bytes, or the newest if the size is that of none.
    #[must_use]
    pub fn layout(&self, bytes: usize) -> Option<&'static Layout> {
        self.layouts.iter().find(|l| l.size == bytes).or(self.layouts.first()).copied()
    }
}

impl Layout {
    /// The field of that name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// The value of the field of that name; `None` if there is none or the bytes end before it.
    #[must_use]
    pub fn value(&self, name: &str, bytes: &[u8]) -> Option<u64> {
        self.field(name)?.value(bytes, 0)
    }
}

impl Field {
    /// An element's value; `None` if the bytes end before it, or if it is no integer.
    #[must_use]
    pub fn value(&self, bytes: &[u8], index: usize) -> Option<u64> {
        let start = self.offset.checked_add(self.width.checked_mul(index)?)?;
        let bytes = bytes.get(start..start.checked_add(self.width)?)?;
        if bytes.len() > 8 {
            return None;
        }
        let mut word = [0; 8];
        word.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let word = u64::from_le_bytes(word);
        let (bit, bits) = self.bits.unwrap_or((0, 64));
        Some(if bits < 64 { word >> bit & ((1 << bits) - 1) } else { word })
    }
}

/// Returns the pointers of an argument: the fields of `layout` that hold addresses, with lengths, in the
/// order of the table.
#[must_use]
pub fn pointers(layout: &'static Layout, bytes: &[u8]) -> Vec<Pointer> {
    let of_struct = POINTERS.iter().filter(|(name, ..)| *name == layout.name);
    let pointer = |&(_, field, count, width, what): &(&str, &'static str, &str, usize, &str)| {
        let address = layout.value(field, bytes)?;
        let count = usize::try_from(layout.value(count, bytes)?).ok()?;
        let mut len = count.checked_mul(width)?;
        let known = match what {
            "control" => find(Family::Control, layout.value("cmd", bytes)? as u32),
            "class" => find(Family::Class, layout.value("hClass", bytes)? as u32),
            "escape" => find(Family::Escape, layout.value("cmd", bytes)? as u32),
            _ => None,
        };
        let inner = match known {
            // The size of a class's parameters may be left to the driver.
            Some(known) if len == 0 && what == "class" => {
                let newest = known.layouts.first().copied();
                len = newest.map_or(0, |l| l.size);
                newest
            }
            Some(known) => known.layout(len),
            None => self::layout(what),
        };
        (address != 0 && len != 0).then_some(Pointer {
            field,
            address,
            len: len.min(MAX_MEMORY),
            layout: inner,
        })
    };
    of_struct.filter_map(pointer).collect()
}

/// Reads the table; lines that are none of its forms are left out, which a test would notice.
fn parse(table: &'static str) -> Tables {
    let mut tables = Tables::default();
    for line in WORDS.lines().chain(table.lines()).filter(|line| !line.starts_with('#')) {
        let mut words = line.split(' ');
        let (Some(kind), Some(first), Some(second)) = (words.next(), words.next(), words.next()) else {
            continue;
        };
        let family = match kind {
            "struct" => {
                let fields = words.map(field).collect::<Option<Vec<_>>>();
                if let (Ok(size), Some(fields)) = (second.parse(), fields) {
                    // The tables live as long as the program.
                    let layout: &'static Layout = Box::leak(Box::new(Layout { name: first, size, fields }));
                    tables.layouts.entry(first).or_default().push(layout);
                }
                continue;
            }
            "nvgpu" => Family::Tegra,
            "escape" => Family::Escape,
            "uvm" => Family::Uvm,
            "control" => Family::Control,
            "class" => Family::Class,
            _ => continue,
        };
        let (Ok(number), Some(argument)) = (u32::from_str_radix(first, 16), words.next()) else { continue };
        let number_bytes = match argument {
            "u4" => Some((4, false)),
            "s4" => Some((4, true)),
            _ => None,
        };
        let layouts = tables.layouts.get(argument).cloned().unwrap_or_default();
        let known = tables.known.entry((family, number)).or_insert(Known {
            name: second,
            layouts: Vec::new(),
            number: number_bytes,
        });
        known.layouts.extend(layouts);
    }
    tables
}

fn field(text: &'static str) -> Option<Field> {
    let mut parts = text.split(':');
    let (name, offset, kind) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
    let (signed, size) = match kind.split_at_checked(1)? {
        ("s", size) => (true, size),
        ("u", size) => (false, size),
        _ => return None,
    };
    let (width, count) = match size.split_once('*') {
        Some((width, count)) => (width.parse().ok()?, count.parse().ok()?),
        None => (size.parse().ok()?, 1),
    };
    let bits = match (parts.next(), parts.next()) {
        (Some(bit), Some(bits)) => Some((bit.parse().ok()?, bits.parse().ok()?)),
        _ => None,
    };
    Some(Field { name, offset, width, count, signed, bits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_of_nvgpu_and_nvmap_is_known_with_its_size() {
        const OLD: &str = "data/ioctls.txt is of other requests than nvgpu-sys: tools/diag-tables.py";
        for expected in nvgpu_sys::REQUESTS {
            let known = find(Family::Tegra, expected.request);
            let known = known.unwrap_or_else(|| panic!("{} is missing; {OLD}", expected.name));
            assert_eq!(known.name, expected.name);
            let by_value = nvgpu_sys::BY_VALUE.contains(&expected.request);
            let size = match (known.number, known.layouts.as_slice()) {
                (Some((bytes, _)), _) => bytes,
                (None, [layout]) => layout.size,
                _ => 0,
            };
            assert!(by_value || size == expected.size, "{}: {size}", expected.name);
        }
        let tegra = all().filter(|(family, ..)| *family == Family::Tegra).count();
        assert_eq!(tegra, nvgpu_sys::REQUESTS.len(), "{OLD}");
    }

    #[test]
    fn everything_of_the_desktop_driver_is_known_with_its_size() {
        let families = [
            (Family::Uvm, rm_sys::UVM),
            (Family::Control, rm_sys::CONTROLS),
            (Family::Class, rm_sys::CLASSES),
            (Family::Escape, rm_sys::ESCAPES),
        ];
        for (family, entries) in families {
            for entry in entries {
                let number = if family == Family::Escape { entry.number & 0xff } else { entry.number };
                let known = find(family, number).unwrap_or_else(|| panic!("{} is missing", entry.name));
                // The table has one name for the two forms of an escape.
                assert!(entry.name.starts_with(known.name), "{}: {}", entry.name, known.name);
                let sizes: Vec<_> = known.layouts.iter().map(|l| l.size).collect();
                assert!(sizes.contains(&entry.size) || entry.size == 0, "{}: {sizes:?}", entry.name);
            }
        }
    }

    #[test]
    fn fields_lie_inside_their_structs() {
        for layout in TABLES.layouts.values().flatten() {
            for field in &layout.fields {
                let end = field.offset + field.width * field.count;
                assert!(end <= layout.size, "{}.{}", layout.name, field.name);
            }
        }
    }

    #[test]
    fn pointers_name_fields_that_exist() {
        for (name, address, count, _, what) in POINTERS {
            let layout = layout(name).unwrap_or_else(|| panic!("{name} is missing"));
            assert!(layout.field(address).is_some_and(|f| f.width == 8), "{name}.{address}");
            assert!(layout.field(count).is_some(), "{name}.{count}");
            let is_family = ["", "control", "class", "escape"].contains(what);
            assert!(is_family || super::layout(what).is_some(), "{what}");
        }
    }

    #[test]
    fn a_control_leads_to_its_parameters() {
        let control = find(Family::Escape, 0x2a).and_then(|k| k.layout(32)).expect("known");
        let mut bytes = vec![0; 32];
        bytes[8..12].copy_from_slice(&0xa06c_0101u32.to_le_bytes());
        bytes[16..24].copy_from_slice(&0x7000u64.to_le_bytes());
        bytes[24..28].copy_from_slice(&2u32.to_le_bytes());
        let found = pointers(control, &bytes);
        assert_eq!((found[0].address, found[0].len), (0x7000, 2));
        assert_eq!(
            found[0].layout.map(|l| (l.name, l.size)),
            Some(("NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS", 2))
        );
        assert_eq!(pointers(control, &bytes[..20]), []);
    }
}
