//! Size classes.

/// Bytes before a value: its object's header.
pub(crate) const HEADER_BYTES: usize = 8;
/// Bytes of a block of slots.
pub(crate) const BLOCK_BYTES: usize = 1 << BLOCK_SHIFT;
pub(crate) const BLOCK_SHIFT: u32 = 15;
/// The most slots that a block has.
pub(crate) const SLOTS_MAX: usize = BLOCK_BYTES / CLASSES[0] as usize;

/// Bytes of the slots of each class, header included.
const CLASSES: [u16; 32] = [
    24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536,
    1792, 2048, 2560, 3264, 4096, 5456, 6544, 8192,
];
pub(crate) const CLASSES_LEN: usize = CLASSES.len();

/// The class for an object of so many bytes, header included, if there is one where all slots are so aligned; any other has blocks of
/// its own.
pub(crate) const fn class_of(bytes: usize, align: usize) -> Option<usize> {
    let mut class = 0;
    while class < CLASSES_LEN {
        let slot_bytes = CLASSES[class] as usize;
        if bytes <= slot_bytes && slot_bytes.is_multiple_of(align) {
            return Some(class);
        }
        class += 1;
    }
    None
}

#[inline]
pub(crate) fn slot_bytes(class: usize) -> usize {
    CLASSES[class] as usize
}

/// For a slot's number from its offset by a multiplication.
pub(crate) fn reciprocal(slot_bytes: usize) -> u32 {
    (1u64 << 32).div_ceil(slot_bytes as u64) as u32
}

/// The number of the slot that begins at this offset in its block.
#[inline]
pub(crate) fn slot_at(offset: usize, reciprocal: u32) -> usize {
    ((offset as u64 * u64::from(reciprocal)) >> 32) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_size_classes_fit_and_are_found() {
        let max = slot_bytes(CLASSES_LEN - 1);
        for bytes in 0..=max {
            let class = class_of(bytes, 8).expect("a class");
            assert!(slot_bytes(class) >= bytes);
            assert!(class == 0 || slot_bytes(class - 1) < bytes, "{bytes}");
        }
        assert_eq!(class_of(max + 1, 8), None);
        for class in 0..CLASSES_LEN {
            let bytes = slot_bytes(class);
            assert_eq!(bytes % 8, 0);
            let slots = BLOCK_BYTES / bytes;
            assert!(slots <= SLOTS_MAX && (4..).contains(&slots));
            for i in 0..slots {
                assert_eq!(slot_at(i * bytes, reciprocal(bytes)), i);
            }
        }
    }

    #[test]
    fn gc_slots_of_aligned_values_are_aligned() {
        for align in (3..=12).map(|shift| 1 << shift) {
            for bytes in 0..=slot_bytes(CLASSES_LEN - 1) {
                let class = class_of(bytes, align).expect("the last class is aligned to 4096 bytes and more");
                assert!(slot_bytes(class) >= bytes && slot_bytes(class).is_multiple_of(align));
            }
        }
    }
}
