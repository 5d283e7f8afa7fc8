//! The frames of RESP2 and RESP3: where one ends, and the words of a request.

/// Returns the length of the first complete frame in bytes. `None` if the frame goes on.
pub(super) fn frame(bytes: &[u8]) -> Option<usize> {
    let kind = *bytes.first()?;
    let line = bytes.windows(2).position(|end| end == b"\r\n")?;
    let rest = line + 2;
    let number = || std::str::from_utf8(&bytes[1..line]).ok()?.parse::<i64>().ok();
    let frames = match kind {
        b'$' | b'=' | b'!' => {
            let Ok(length) = usize::try_from(number()?) else { return Some(rest) };
            let end = rest + length + 2;
            return (bytes.len() >= end).then_some(end);
        }
        b'*' | b'~' | b'>' => number()?,
        b'%' => 2 * number()?,
        b'|' => 2 * number()? + 1,
        _ => 0,
    };
    (0..frames).try_fold(rest, |end, _| Some(end + frame(&bytes[end..])?))
}

/// Returns the words of a request, which is an array of strings.
pub(super) fn words(request: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let Some(mut at) = request.windows(2).position(|end| end == b"\r\n").map(|line| line + 2) else { return words };
    while let Some(length) = request.get(at..).and_then(frame) {
        let word = &request[at..at + length];
        let start = word.windows(2).position(|end| end == b"\r\n").map_or(0, |line| line + 2);
        words.push(word[start..length - 2].to_vec());
        at += length;
    }
    words
}

/// Writes a request.
pub(crate) fn request(words: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let head = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().fold(head, |bytes, word| [bytes, string(word.as_ref())].concat())
}

/// Writes a string.
pub(super) fn string(text: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", text.len()).as_bytes(), text, b"\r\n"].concat()
}

/// Returns the hash slot of a key of a cluster.
pub(super) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|byte| *byte == b'}').filter(|close| *close > 0).map(|close| &rest[..close])
    });
    let crc = tag.unwrap_or(key).iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| (crc << 1) ^ if crc & 0x8000 == 0 { 0 } else { 0x1021 })
    });
    crc % 16384
}

#[cfg(test)]
mod tests {
    use super::{frame, request, slot, words};

    #[test]
    fn frames_end_where_they_end() {
        for whole in [
            "+OK\r\n",
            "$-1\r\n",
            "$5\r\nh\r\nlo\r\n",
            "*2\r\n:1\r\n*1\r\n$1\r\na\r\n",
            "%1\r\n+a\r\n~1\r\n_\r\n",
            ">3\r\n+message\r\n+c\r\n$2\r\nhi\r\n",
            "|1\r\n+a\r\n+b\r\n:7\r\n",
            "*-1\r\n",
        ] {
            let bytes = format!("{whole}+more\r\n").into_bytes();
            assert_eq!(frame(&bytes), Some(whole.len()), "{whole:?}");
            assert!((0..whole.len()).all(|cut| frame(&bytes[..cut]).is_none()), "{whole:?}");
        }
        let asked = [b"SET".to_vec(), b"k\r\n".to_vec(), Vec::new()];
        assert_eq!(words(&request(&asked)), asked);
    }

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(
            ["foo", "{foo}bar", "{}foo", "123456789"].map(|key| slot(key.as_bytes())),
            [12182, 12182, 9500, 12739]
        );
    }
}
