//! Channel binding: what ties a login to the certificate that the server showed (`tls-server-end-point`, RFC 5929).

use ring::digest::{Algorithm, SHA256, SHA384, SHA512, digest};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];

/// Returns the hash of a certificate, by the function that its signature uses. `None` if the standard has none for that signature.
pub(super) fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    Some(digest(algorithm(certificate)?, certificate).as_ref().to_vec())
}

/// Reads which hash function the signature of a certificate uses: the second of its three parts says so.
fn algorithm(certificate: &[u8]) -> Option<&'static Algorithm> {
    let (parts, _) = value(certificate)?;
    let (_, after_first) = value(parts)?;
    let (second, _) = value(after_first)?;
    let (name, _) = value(second)?;
    match (name.strip_prefix(RSA), name.strip_prefix(ECDSA)) {
        // MD5 and SHA-1 are replaced by SHA-256.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => Some(&SHA256),
        (Some([12]), _) | (_, Some([3, 3])) => Some(&SHA384),
        (Some([13]), _) | (_, Some([3, 4])) => Some(&SHA512),
        _ => None,
    }
}

/// Splits a text in DER into what its first value contains, and what follows that value.
fn value(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = der.get(1..)?.split_first()?;
    let (length, rest) = match length {
        0..=127 => (usize::from(length), rest),
        // The length has as many bytes as the low bits say.
        _ => {
            let (digits, rest) =
                rest.split_at_checked(usize::from(length & 127)).filter(|(digits, _)| digits.len() < 5)?;
            (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
        }
    };
    rest.split_at_checked(length)
}

#[cfg(test)]
mod tests {
    use super::{algorithm, value};

    #[test]
    fn nonsense_has_no_hash() {
        for text in [&[][..], &[0x30], &[0x30, 0x84, 1], &[0x30, 0x82, 0xff, 0xff, 0], &[0x30; 40], &[0x30, 0xff]] {
            assert!(algorithm(text).is_none(), "{text:?}");
        }
        assert_eq!(value(&[0x30, 0x81, 2, 7, 8, 9]), Some((&[7, 8][..], &[9][..])));
    }
}
