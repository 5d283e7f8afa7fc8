//! SHA-1 (FIPS 180-4), by which a server names the scripts that it knows. A name, no protection.

/// The first words of the state.
const START: [u32; 5] = [0x6745_2301, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];

/// Returns the hash of a text, in 40 hexadecimal digits.
pub(super) fn hex(text: &[u8]) -> String {
    // A one bit, and zeros until eight bytes are missing to a whole block: there stands the length in bits.
    let mut padded = text.to_vec();
    padded.push(0x80);
    padded.resize((text.len() + 9).next_multiple_of(64) - 8, 0);
    padded.extend((text.len() as u64 * 8).to_be_bytes());
    let (blocks, _) = padded.as_chunks::<64>();
    let state = blocks.iter().fold(START, mix);
    state.iter().map(|word| format!("{word:08x}")).collect()
}

/// Mixes one block into the state.
fn mix(state: [u32; 5], block: &[u8; 64]) -> [u32; 5] {
    let mut words = [0_u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for t in 16..80 {
        words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = state;
    for (t, word) in words.into_iter().enumerate() {
        let (f, k) = match t {
            0..20 => (b & c | !b & d, 0x5A82_7999),
            20..40 => (b ^ c ^ d, 0x6ED9_EBA1),
            40..60 => (b & c | b & d | c & d, 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6_u32),
        };
        let mixed = a.rotate_left(5).wrapping_add(f).wrapping_add(e).wrapping_add(k).wrapping_add(word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, mixed);
    }
    let mixed = [a, b, c, d, e];
    std::array::from_fn(|at| state[at].wrapping_add(mixed[at]))
}

#[cfg(test)]
mod tests {
    use super::hex;

    #[test]
    fn the_examples_of_the_standard_and_every_length_around_a_block() {
        for (text, hash) in [
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", "84983e441c3bd26ebaae4aa1f95129e5e54670f1"),
        ] {
            assert_eq!(hex(text.as_bytes()), hash, "{text:?}");
        }
        // The hash of the hashes of n letters, from 50 to 130: as another implementation has it.
        let all: String = (50..=130).map(|length| hex("x".repeat(length).as_bytes())).collect();
        assert_eq!(hex(all.as_bytes()), "e1053ca87e77cbb304cd14b4c02626206a8b4b9f");
        assert_eq!(hex("a".repeat(1_000_000).as_bytes()), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
