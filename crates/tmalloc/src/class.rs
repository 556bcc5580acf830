//! Sizes of blocks: multiples of 32 bytes up to 512, then eight to each doubling, so that less than an eighth is waste.
//!
//! A block is what the arena's allocator hands out with its header; its payload is 16 bytes less. Each size begins one of
//! that allocator's own lists, so a free block of a size is always found by somebody who looks for that size.

/// What the arena's allocator keeps before each payload, in bytes.
pub(crate) const BLOCK_HEADER_BYTES: usize = 16;
/// Payloads start 16 bytes behind a multiple of this.
pub(crate) const GRANULE_BYTES: usize = 32;
/// What more than this asks for has a mapping of its own.
pub(crate) const PAYLOAD_BYTES_MAX: usize = 128 << 10;
/// How many sizes there are.
pub(crate) const CLASSES: usize = class_of_block(PAYLOAD_BYTES_MAX + GRANULE_BYTES) + 1;

const EVEN_BYTES_MAX: usize = 512;
const EVEN_CLASSES: usize = EVEN_BYTES_MAX / GRANULE_BYTES;
const EVEN_LOG: usize = 9;

static BLOCK_BYTES: [u32; CLASSES] = block_sizes();

/// The smallest class that holds a payload of up to [`PAYLOAD_BYTES_MAX`].
#[inline]
pub(crate) const fn class_of(payload_bytes: usize) -> usize {
    class_of_block(payload_bytes + BLOCK_HEADER_BYTES)
}

#[inline]
const fn class_of_block(bytes: usize) -> usize {
    if bytes <= EVEN_BYTES_MAX {
        return (bytes - 1) / GRANULE_BYTES;
    }
    let below = bytes - 1;
    let log = below.ilog2() as usize;
    EVEN_CLASSES + (log - EVEN_LOG) * 8 + (below >> (log - 3)) - 8
}

/// A block of this class, header and all.
#[inline]
pub(crate) fn block_bytes(class: usize) -> usize {
    BLOCK_BYTES.get(class).map_or(0, |bytes| *bytes as usize)
}

/// What a block of this class holds.
#[inline]
pub(crate) fn payload_bytes(class: usize) -> usize {
    block_bytes(class) - BLOCK_HEADER_BYTES
}

/// As [`block_bytes`], worked out.
pub(crate) const fn block_bytes_at_build(class: usize) -> usize {
    if class < EVEN_CLASSES {
        return (class + 1) * GRANULE_BYTES;
    }
    let step = class - EVEN_CLASSES;
    (9 + step % 8) << (step / 8 + EVEN_LOG - 3)
}

#[expect(clippy::indexing_slicing, reason = "worked out when this is built")]
const fn block_sizes() -> [u32; CLASSES] {
    let mut sizes = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        sizes[class] = block_bytes_at_build(class) as u32;
        class += 1;
    }
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_size_gets_the_smallest_class_that_holds_it() {
        for bytes in 0..=PAYLOAD_BYTES_MAX {
            let class = class_of(bytes);
            assert!(payload_bytes(class) >= bytes, "{bytes} in {class}");
            assert!(class == 0 || payload_bytes(class - 1) < bytes, "{bytes} in {class}");
        }
        assert_eq!(class_of(PAYLOAD_BYTES_MAX), CLASSES - 1);
    }

    #[test]
    fn less_than_an_eighth_is_waste() {
        for class in 1..CLASSES {
            let before = block_bytes(class - 1);
            assert!(block_bytes(class) - before <= (before / 8).max(GRANULE_BYTES), "{class}");
            assert_eq!(block_bytes(class) % GRANULE_BYTES, 0);
        }
    }
}
