//! QMD v4.0, 384 bytes: `HOPPER_COMPUTE_A` (0xCBC0).
//!
//! Source: `NVCBC0_QMDV04_00_*` in NVIDIA's `clcbc0qmd.h`.

mod fields;

use crate::table::field::Field;
use crate::table::layout::{Address, ConstantBufferFields, DependentFields, Layout, ReleaseFields};

pub use fields::*;

const fn constant_buffer(i: u8) -> ConstantBufferFields {
    ConstantBufferFields {
        valid: CONSTANT_BUFFER_VALID.at(i),
        address: Address::new(
            CONSTANT_BUFFER_ADDR_LOWER_SHIFTED6.at(i),
            Some(CONSTANT_BUFFER_ADDR_UPPER_SHIFTED6.at(i)),
            6,
        ),
        size: CONSTANT_BUFFER_SIZE_SHIFTED4.at(i),
        invalidate: CONSTANT_BUFFER_INVALIDATE.at(i),
        prefetch: CONSTANT_BUFFER_PREFETCH.at(i),
    }
}

const fn release(i: u8, address: [Field; 2], payload: [Field; 2]) -> ReleaseFields {
    ReleaseFields {
        enable: RELEASE_ENABLE.at(i),
        address: Address::new(address[0], Some(address[1]), 0),
        structure_size: RELEASE_STRUCTURE_SIZE.at(i),
        membar: RELEASE_MEMBAR_TYPE.at(i),
        reduction_enable: RELEASE_REDUCTION_ENABLE.at(i),
        reduction_op: RELEASE_REDUCTION_OP.at(i),
        reduction_format: RELEASE_REDUCTION_FORMAT.at(i),
        trap: RELEASE_TRAP_TYPE.at(i),
        payload_64: RELEASE_PAYLOAD64B.at(i),
        payload,
    }
}

const fn dependent(i: u8, pointer: Field) -> DependentFields {
    DependentFields {
        enable: DEPENDENT_QMD_ENABLE.at(i),
        action: DEPENDENT_QMD_ACTION.at(i),
        prefetch: DEPENDENT_QMD_PREFETCH.at(i),
        pointer: Some(Address::new(pointer, None, 8)),
    }
}

/// Fields of the launch parameters.
pub(crate) const LAYOUT: Layout = Layout {
    fields: FIELDS,
    named: NAMED,
    major: QMD_MAJOR_VERSION,
    minor: QMD_MINOR_VERSION,
    group: QMD_GROUP_ID,
    grid: [GRID_WIDTH, GRID_HEIGHT, GRID_DEPTH],
    resume: [GRID_WIDTH_RESUME, GRID_HEIGHT_RESUME, GRID_DEPTH_RESUME],
    block: [CTA_THREAD_DIMENSION0, CTA_THREAD_DIMENSION1, CTA_THREAD_DIMENSION2],
    registers: REGISTER_COUNT,
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
    task_chasing: Some(CWD_MEMBAR_TASK_CHASING_ENABLE),
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
        release(
            0,
            [RELEASE_SEMAPHORE0_ADDR_LOWER, RELEASE_SEMAPHORE0_ADDR_UPPER],
            [RELEASE_SEMAPHORE0_PAYLOAD_LOWER, RELEASE_SEMAPHORE0_PAYLOAD_UPPER],
        ),
        release(
            1,
            [RELEASE_SEMAPHORE1_ADDR_LOWER, RELEASE_SEMAPHORE1_ADDR_UPPER],
            [RELEASE_SEMAPHORE1_PAYLOAD_LOWER, RELEASE_SEMAPHORE1_PAYLOAD_UPPER],
        ),
        release(
            2,
            [RELEASE_SEMAPHORE2_ADDR_LOWER, RELEASE_SEMAPHORE2_ADDR_UPPER],
            [RELEASE_SEMAPHORE2_PAYLOAD_LOWER, RELEASE_SEMAPHORE2_PAYLOAD_UPPER],
        ),
    ],
    dependents: [dependent(0, DEPENDENT_QMD0_POINTER), dependent(1, DEPENDENT_QMD1_POINTER)],
    defaults: &[(QMD_TYPE, 2)],
    is_queue: (QMD_TYPE, 0),
};
