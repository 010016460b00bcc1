//! Bytes that are mostly few: copied and compared without a call.
//!
//! A text that is a key has some ten bytes, for which a call of the C library's function takes longer
//! than what it does. Up to 32 bytes are two words, or two pairs of them, that may overlap.

/// Room that [`append`] wants behind the bytes.
pub const APPENDED_MORE: usize = 16;

#[inline]
pub fn same(a: &[u8], b: &[u8]) -> bool {
    #[inline(always)]
    fn ends<const N: usize>(bytes: &[u8]) -> Option<(&[u8; N], &[u8; N])> {
        Some((bytes.first_chunk()?, bytes.last_chunk()?))
    }
    a.len() == b.len()
        && match a.len() {
            4..8 => ends::<4>(a) == ends::<4>(b),
            8..=16 => ends::<8>(a) == ends::<8>(b),
            17..=32 => ends::<16>(a) == ends::<16>(b),
            _ => a == b,
        }
}

/// Fills `to`, which is as long as `from`.
#[inline]
pub fn copy(from: &[u8], to: &mut [u8]) {
    #[inline(always)]
    fn ends<const N: usize>(from: &[u8], to: &mut [u8]) {
        let last = from.len() - N;
        to[..N].copy_from_slice(&from[..N]);
        to[last..].copy_from_slice(&from[last..]);
    }
    match from.len() {
        4..8 => ends::<4>(from, to),
        8..=16 => ends::<8>(from, to),
        17..=32 => ends::<16>(from, to),
        _ => to.copy_from_slice(from),
    }
}

#[inline]
pub fn append(bytes: &[u8], to: &mut Vec<u8>) {
    #[inline(always)]
    fn ends<const N: usize>(bytes: &[u8], to: &mut Vec<u8>) {
        let end = to.len() + bytes.len();
        to.extend_from_slice(&bytes[..N]);
        to.extend_from_slice(&[0; N]);
        to[end - N..end].copy_from_slice(&bytes[bytes.len() - N..]);
        to.truncate(end);
    }
    match bytes.len() {
        8..=16 => ends::<8>(bytes, to),
        17..=32 => ends::<16>(bytes, to),
        _ => to.extend_from_slice(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_any_length_are_copied_and_compared_to_the_last() {
        for length in 0..80 {
            let bytes: Vec<u8> = (1..=length as u8).collect();
            assert!(same(&bytes, &bytes.clone()));
            assert!(!same(&bytes, &[&bytes[..], &[0]].concat()));
            for at in 0..length {
                let mut other = bytes.clone();
                other[at] ^= 0x80;
                assert!(!same(&bytes, &other), "{at} of {length}");
            }
            let mut copied = vec![0; length];
            copy(&bytes, &mut copied);
            assert_eq!(copied, bytes);
            let mut appended = vec![7; 5];
            append(&bytes, &mut appended);
            append(&bytes, &mut appended);
            assert_eq!(appended, [&[7; 5], &bytes[..], &bytes[..]].concat());
        }
    }
}
