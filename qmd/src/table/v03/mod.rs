//! QMD v3.0, 256 bytes: Ampere's compute classes, `AMPERE_COMPUTE_B` (0xC7C0, ga10b) among them.
//!
//! Source: `NVC7C0_QMDV03_00_*` in NVIDIA's `clc7c0qmd.h`. `AMPERE_COMPUTE_A` lays its v3.0 out the same way
//! and names fewer fields.

mod fields;

use crate::table::layout::{Address, ConstantBufferFields, DependentFields, Layout, ReleaseFields};

pub use fields::*;

const fn constant_buffer(i: u8) -> ConstantBufferFields {
    ConstantBufferFields {
        valid: CONSTANT_BUFFER_VALID.at(i),
        address: Address::new(CONSTANT_BUFFER_ADDR_LOWER.at(i), Some(CONSTANT_BUFFER_ADDR_UPPER.at(i)), 0),
        size: CONSTANT_BUFFER_SIZE_SHIFTED4.at(i),
        invalidate: CONSTANT_BUFFER_INVALIDATE.at(i),
        prefetch: CONSTANT_BUFFER_PREFETCH_POST.at(i),
    }
}

macro_rules! release {
    ($address_lower:ident, $address_upper:ident, $enable:ident, $structure:ident, $membar:ident, $reduction:ident,
     $op:ident, $format:ident, $trap:ident, $wide:ident, $payload_lower:ident, $payload_upper:ident) => {
        ReleaseFields {
            enable: $enable,
            address: Address::new($address_lower, Some($address_upper), 0),
            structure_size: $structure,
            membar: $membar,
            reduction_enable: $reduction,
            reduction_op: $op,
            reduction_format: $format,
            trap: $trap,
            payload_64: $wide,
            payload: [$payload_lower, $payload_upper],
        }
    };
}

/// Fields of the launch parameters.
pub(crate) const LAYOUT: Layout = Layout {
    fields: FIELDS,
    named: NAMED,
    major: QMD_MAJOR_VERSION,
    minor: QMD_VERSION,
    group: QMD_GROUP_ID,
    grid: [CTA_RASTER_WIDTH, CTA_RASTER_HEIGHT, CTA_RASTER_DEPTH],
    resume: [CTA_RASTER_WIDTH_RESUME, CTA_RASTER_HEIGHT_RESUME, CTA_RASTER_DEPTH_RESUME],
    block: [CTA_THREAD_DIMENSION0, CTA_THREAD_DIMENSION1, CTA_THREAD_DIMENSION2],
    registers: REGISTER_COUNT_V,
    barriers: BARRIER_COUNT,
    shared: SHARED_MEMORY_SIZE,
    carve_out_min: MIN_SM_CONFIG_SHARED_MEM_SIZE,
    carve_out_target: TARGET_SM_CONFIG_SHARED_MEM_SIZE,
    carve_out_max: MAX_SM_CONFIG_SHARED_MEM_SIZE,
    local_low: SHADER_LOCAL_MEMORY_LOW_SIZE,
    local_high: SHADER_LOCAL_MEMORY_HIGH_SIZE,
    sass_version: SASS_VERSION,
    program: Address::new(PROGRAM_ADDRESS_LOWER, Some(PROGRAM_ADDRESS_UPPER), 0),
    program_prefetch: Address::new(
        PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED,
        Some(PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED),
        8,
    ),
    program_prefetch_size: PROGRAM_PREFETCH_SIZE,
    call_limit: API_VISIBLE_CALL_LIMIT,
    sampler_index: SAMPLER_INDEX,
    membar: CWD_MEMBAR_TYPE,
    task_chasing: None,
    invalidate: [
        INVALIDATE_TEXTURE_HEADER_CACHE,
        INVALIDATE_TEXTURE_SAMPLER_CACHE,
        INVALIDATE_TEXTURE_DATA_CACHE,
        INVALIDATE_SHADER_DATA_CACHE,
        INVALIDATE_INSTRUCTION_CACHE,
        INVALIDATE_SHADER_CONSTANT_CACHE,
    ],
    sequential: SEQUENTIALLY_RUN_CTAS,
    dependence_counter: DEPENDENCE_COUNTER,
    require_scheduling: REQUIRE_SCHEDULING_PCAS,
    debug_id: [DEBUG_ID_LOWER, DEBUG_ID_UPPER],
    constant_buffers: [
        constant_buffer(0),
        constant_buffer(1),
        constant_buffer(2),
        constant_buffer(3),
        constant_buffer(4),
        constant_buffer(5),
        constant_buffer(6),
        constant_buffer(7),
    ],
    releases: [
        release!(
            RELEASE0_ADDRESS_LOWER,
            RELEASE0_ADDRESS_UPPER,
            RELEASE0_ENABLE,
            RELEASE0_STRUCTURE_SIZE,
            RELEASE0_MEMBAR_TYPE,
            RELEASE0_REDUCTION_ENABLE,
            RELEASE0_REDUCTION_OP,
            RELEASE0_REDUCTION_FORMAT,
            RELEASE0_TRAP_TYPE,
            RELEASE0_PAYLOAD64B,
            RELEASE0_PAYLOAD_LOWER,
            RELEASE0_PAYLOAD_UPPER
        ),
        release!(
            RELEASE1_ADDRESS_LOWER,
            RELEASE1_ADDRESS_UPPER,
            RELEASE1_ENABLE,
            RELEASE1_STRUCTURE_SIZE,
            RELEASE1_MEMBAR_TYPE,
            RELEASE1_REDUCTION_ENABLE,
            RELEASE1_REDUCTION_OP,
            RELEASE1_REDUCTION_FORMAT,
            RELEASE1_TRAP_TYPE,
            RELEASE1_PAYLOAD64B,
            RELEASE1_PAYLOAD_LOWER,
            RELEASE1_PAYLOAD_UPPER
        ),
        release!(
            RELEASE2_ADDRESS_LOWER,
            RELEASE2_ADDRESS_UPPER,
            RELEASE2_ENABLE,
            RELEASE2_STRUCTURE_SIZE,
            RELEASE2_MEMBAR_TYPE,
            RELEASE2_REDUCTION_ENABLE,
            RELEASE2_REDUCTION_OP,
            RELEASE2_REDUCTION_FORMAT,
            RELEASE2_TRAP_TYPE,
            RELEASE2_PAYLOAD64B,
            RELEASE2_PAYLOAD_LOWER,
            RELEASE2_PAYLOAD_UPPER
        ),
    ],
    dependents: [
        DependentFields {
            enable: DEPENDENT_QMD0_ENABLE,
            action: DEPENDENT_QMD0_ACTION,
            prefetch: DEPENDENT_QMD0_PREFETCH,
            pointer: Some(Address::new(DEPENDENT_QMD0_POINTER, None, 8)),
        },
        DependentFields {
            enable: DEPENDENT_QMD1_ENABLE,
            action: DEPENDENT_QMD1_ACTION,
            prefetch: DEPENDENT_QMD1_PREFETCH,
            pointer: None,
        },
    ],
    defaults: &[(SM_GLOBAL_CACHING_ENABLE, 1)],
    is_queue: (IS_QUEUE, 1),
};
