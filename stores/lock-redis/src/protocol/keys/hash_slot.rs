//! The slots of a cluster, and which of them a key is in.
//!
//! The rule is that of the specification: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#key-distribution-model>.

use std::sync::LazyLock;

use lock_store::types::key::LockKey;

/// How many slots a cluster has.
pub(crate) const SLOTS: usize = 16384;

/// Returns a number that hashes to a slot.
pub(crate) fn number_in(slot_of_it: u16) -> u32 {
    static NUMBERS: LazyLock<Vec<u32>> = LazyLock::new(|| {
        let mut numbers = vec![u32::MAX; SLOTS];
        let mut missing = SLOTS;
        for number in 0.. {
            let found = &mut numbers[usize::from(slot(number.to_string().as_bytes()))];
            if *found == u32::MAX {
                *found = number;
                missing -= 1;
            }
            if missing == 0 {
                break;
            }
        }
        numbers
    });
    NUMBERS[usize::from(slot_of_it)]
}

/// Returns the slot of a key.
pub(crate) fn slot_of(key: &LockKey) -> u16 {
    slot_of_name(key.as_str())
}

/// Returns the slot of whatever has this name.
pub(crate) fn slot_of_name(name: &str) -> u16 {
    slot(hash_tag(name).unwrap_or(name).as_bytes())
}

/// Returns the slot of the hashed part of a key: its CRC-16 (XMODEM) modulo the number of slots.
pub(crate) fn slot(hashed: &[u8]) -> u16 {
    /// The contribution of a single byte.
    const BYTES: [u16; 256] = {
        let mut bytes = [0; 256];
        let (mut byte, mut high) = (0, 0_u16);
        while byte < bytes.len() {
            let mut crc = high;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
                bit += 1;
            }
            bytes[byte] = crc;
            byte += 1;
            high = high.wrapping_add(1 << 8);
        }
        bytes
    };
    let next = |crc: u16, byte: &u8| (crc << 8) ^ BYTES[usize::from((crc >> 8) as u8 ^ byte)];
    hashed.iter().fold(0, next) % 16384
}

/// Returns the part of a key that Redis Cluster hashes, if that is not the whole key: the text between
/// the first `{` and the next `}`, unless it is empty.
pub(crate) fn hash_tag(key: &str) -> Option<&str> {
    let (tag, _) = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'))?;
    Some(tag).filter(|tag| !tag.is_empty())
}
