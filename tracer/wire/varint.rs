//! Unsigned LEB128, as everything in a trace is written: seven bits a byte, low bits first, the top bit set on all
//! bytes but the last. A number takes at most ten bytes; padding with empty high groups is legal, and the batch length
//! uses it.

/// The most bytes that one varint takes.
pub const MAX_BYTES: usize = 10;

/// How many bytes [`put`] writes for `v`.
#[inline]
pub const fn len(v: u64) -> usize {
    let bits = 64 - (v | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends `v`.
#[inline]
pub fn put(buf: &mut Vec<u8>, mut v: u64) {
    while v >= 0x80 {
        buf.push(v as u8 | 0x80);
        v >>= 7;
    }
    buf.push(v as u8);
}

/// Writes `v` at `pos` and returns the position after it.
///
/// Panics if the buffer ends before the number does: the caller keeps [`MAX_BYTES`] free.
#[inline]
pub fn put_at(buf: &mut [u8], mut pos: usize, mut v: u64) -> usize {
    while v >= 0x80 {
        buf[pos] = v as u8 | 0x80;
        v >>= 7;
        pos += 1;
    }
    buf[pos] = v as u8;
    pos + 1
}

/// Writes `v` at `pos` in exactly [`MAX_BYTES`] bytes and returns the position after them.
///
/// The place can be written again with another value when that is known: so a batch gets its length at flush.
#[inline]
pub fn put_padded10(buf: &mut [u8], pos: usize, mut v: u64) -> usize {
    let place = &mut buf[pos..pos + MAX_BYTES];
    for byte in &mut place[..MAX_BYTES - 1] {
        *byte = v as u8 | 0x80;
        v >>= 7;
    }
    place[MAX_BYTES - 1] = v as u8;
    pos + MAX_BYTES
}

/// Reads the number at `pos` and moves `pos` behind it.
///
/// `None`, with `pos` where it was, if the bytes end first or the number does not fit 64 bits.
#[inline]
pub fn read(bytes: &[u8], pos: &mut usize) -> Option<u64> {
    let first = *bytes.get(*pos)?;
    if first < 0x80 {
        *pos += 1;
        return Some(u64::from(first));
    }
    read_long(bytes, pos)
}

#[inline]
fn read_long(bytes: &[u8], pos: &mut usize) -> Option<u64> {
    let mut v = 0u64;
    for (i, &byte) in bytes.get(*pos..)?.iter().take(MAX_BYTES).enumerate() {
        if i == MAX_BYTES - 1 && byte > 1 {
            return None; // More than 64 bits, or an eleventh byte.
        }
        v |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            *pos += i + 1;
            return Some(v);
        }
    }
    None
}

/// The number that begins with the first of these bytes, the low one, and how many bytes it has; `None` if it has more than
/// eight.
///
/// Takes the same steps for every length, for those that cannot be foretold.
#[inline]
pub const fn read_word(word: u64) -> Option<(u64, usize)> {
    const CONTINUES: u64 = 0x8080_8080_8080_8080;
    let ends = !word & CONTINUES;
    if ends == 0 {
        return None;
    }
    let len = ends.trailing_zeros() as usize / 8 + 1;
    // All up to the first end, without the top bits; then groups of 7, 14 and 28 bits move together.
    let v = word & (ends ^ (ends - 1)) & !CONTINUES;
    let v = (v & 0x007f_007f_007f_007f) | ((v & 0x7f00_7f00_7f00_7f00) >> 1);
    let v = (v & 0x0000_3fff_0000_3fff) | ((v & 0x3fff_0000_3fff_0000) >> 2);
    let v = (v & 0x0000_0000_0fff_ffff) | ((v & 0x0fff_ffff_0000_0000) >> 4);
    Some((v, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values around every power of two, and pseudo-random ones of every magnitude.
    fn values() -> impl Iterator<Item = u64> {
        let edges = (0..64).flat_map(|b| [(1u64 << b) - 1, 1 << b, (1 << b) + 1]);
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        let random = (0..20_000).map(move |i| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x >> (i % 64)
        });
        edges.chain([u64::MAX]).chain(random)
    }

    #[test]
    fn what_is_put_is_read() {
        for v in values() {
            let mut grown = vec![0xee];
            put(&mut grown, v);
            assert_eq!(grown.len() - 1, len(v), "{v}");
            let mut fixed = [0xeeu8; 12];
            assert_eq!(put_at(&mut fixed, 1, v), grown.len());
            assert_eq!(fixed[..grown.len()], grown);
            let mut pos = 1;
            assert_eq!(read(&grown, &mut pos), Some(v));
            assert_eq!(pos, grown.len());
        }
    }

    #[test]
    fn padded_numbers_take_ten_bytes_and_can_be_overwritten() {
        for v in values() {
            let mut buf = [0u8; 11];
            assert_eq!(put_padded10(&mut buf, 1, u64::MAX), 11);
            assert_eq!(put_padded10(&mut buf, 1, v), 11);
            let mut pos = 1;
            assert_eq!(read(&buf, &mut pos), Some(v));
            assert_eq!(pos, 11);
        }
    }

    #[test]
    fn a_cut_number_is_none_and_moves_nothing() {
        for v in values() {
            let mut buf = Vec::new();
            put(&mut buf, v);
            for cut in 0..buf.len() {
                let mut pos = 0;
                assert_eq!(read(&buf[..cut], &mut pos), None);
                assert_eq!(pos, 0);
            }
        }
        let mut beyond = 7;
        assert_eq!(read(&[1], &mut beyond), None);
    }

    #[test]
    fn words_hold_numbers_of_up_to_eight_bytes() {
        for v in values() {
            let mut bytes = Vec::new();
            put(&mut bytes, v);
            let len = bytes.len();
            // What follows must not matter.
            for fill in [0, 0x7f, 0x80, 0xff] {
                bytes.resize(16, fill);
                let word = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
                let expected = (len <= 8).then_some((v, len));
                assert_eq!(read_word(word), expected, "{v}");
                bytes.truncate(len);
            }
        }
        assert_eq!(read_word(0x0080_8080_8080_8085), Some((5, 8)));
    }

    #[test]
    fn a_number_over_64_bits_is_none() {
        let mut bytes = [0xffu8; 10];
        bytes[9] = 1;
        assert_eq!(read(&bytes, &mut 0), Some(u64::MAX));
        bytes[9] = 2;
        assert_eq!(read(&bytes, &mut 0), None);
        bytes[9] = 0x80;
        assert_eq!(read(&bytes, &mut 0), None);
        assert_eq!(read(&[0x80; 20], &mut 0), None);
    }
}
