//! Size classes.

/// Bytes before a value: its object's header.
pub(crate) const HEADER_BYTES: usize = 16;
/// Bytes of a block of slots.
pub(crate) const BLOCK_BYTES: usize = 1 << BLOCK_SHIFT;
pub(crate) const BLOCK_SHIFT: u32 = 15;
/// The most slots that a block has.
pub(crate) const SLOTS_MAX: usize = BLOCK_BYTES / 32;

/// Bytes of the slots of each class, header included.
const CLASSES: [u16; 29] = [
    32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048,
    2560, 3264, 4096, 5456, 6544, 8192,
];
pub(crate) const CLASSES_LEN: usize = CLASSES.len();
/// Objects with more bytes have blocks of their own.
pub(crate) const SMALL_MAX: usize = 8192;

/// The class by the number of 16-byte units.
static CLASS_OF: [u8; SMALL_MAX / 16 + 1] = {
    let mut table = [0; SMALL_MAX / 16 + 1];
    let (mut units, mut class) = (0, 0);
    while units <= SMALL_MAX / 16 {
        if units * 16 > CLASSES[class] as usize {
            class += 1;
        }
        table[units] = class as u8;
        units += 1;
    }
    table
};

/// The class for an object of so many bytes, at most [`SMALL_MAX`], header included.
#[inline]
pub(crate) fn class_of(bytes: usize) -> usize {
    CLASS_OF[bytes.div_ceil(16)] as usize
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
        for bytes in 0..=SMALL_MAX {
            let class = class_of(bytes);
            assert!(slot_bytes(class) >= bytes);
            assert!(class == 0 || slot_bytes(class - 1) < bytes.next_multiple_of(16), "{bytes}");
        }
        for class in 0..CLASSES_LEN {
            let bytes = slot_bytes(class);
            assert_eq!(bytes % 16, 0);
            let slots = BLOCK_BYTES / bytes;
            assert!(slots <= SLOTS_MAX && (4..).contains(&slots));
            for i in 0..slots {
                assert_eq!(slot_at(i * bytes, reciprocal(bytes)), i);
            }
        }
    }
}
