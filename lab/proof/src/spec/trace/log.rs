//! The log of a server: its append-only file. Each step is one command, or a transaction of several.

use std::fs;
use std::path::Path;

/// The commands of one step, word by word.
pub(super) type Group = Vec<Vec<String>>;

/// A value, or `None` if its end is not written yet.
type Read<T> = Result<Option<T>, String>;

/// Reads the file up to the last complete step.
pub(super) fn read(path: &Path) -> Result<Vec<Group>, String> {
    let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    parse(&bytes).map_err(|why| format!("{} is no append-only file of Redis: {why}", path.display()))
}

fn parse(mut bytes: &[u8]) -> Result<Vec<Group>, String> {
    let (mut groups, mut open): (Vec<Group>, Option<Group>) = (Vec::new(), None);
    while !bytes.is_empty() {
        // A comment: some servers write the time.
        if bytes[0] == b'#' {
            let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len() - 1);
            bytes = &bytes[end + 1..];
            continue;
        }
        let Some((command, rest)) = command(bytes)? else { break };
        bytes = rest;
        match (command.first().ok_or("a command without words")?.to_ascii_uppercase().as_str(), &mut open) {
            ("MULTI", None) => open = Some(Vec::new()),
            ("EXEC", Some(group)) => {
                groups.push(std::mem::take(group));
                open = None;
            }
            (_, Some(group)) => group.push(command),
            (_, None) => groups.push(vec![command]),
        }
    }
    Ok(groups)
}

fn command(bytes: &[u8]) -> Read<(Vec<String>, &[u8])> {
    let Some((count, mut rest)) = number(bytes, b'*')? else { return Ok(None) };
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let Some((length, after)) = number(rest, b'$')? else { return Ok(None) };
        if after.len() < length + 2 {
            return Ok(None);
        }
        words.push(String::from_utf8_lossy(&after[..length]).into_owned());
        rest = &after[length + 2..];
    }
    Ok(Some((words, rest)))
}

fn number(bytes: &[u8], sign: u8) -> Read<(usize, &[u8])> {
    let Some(end) = bytes.windows(2).position(|two| two == b"\r\n") else { return Ok(None) };
    let number = std::str::from_utf8(&bytes[1.min(end)..end]).ok().filter(|_| bytes[0] == sign);
    let number = number.and_then(|number| number.parse().ok());
    let number = number.ok_or_else(|| format!("{:?} is no number", String::from_utf8_lossy(&bytes[..end])))?;
    Ok(Some((number, &bytes[end + 2..])))
}

#[cfg(test)]
mod tests {
    use lock_testing::limit;

    use super::parse;

    #[test]
    #[limit]
    fn a_step_is_one_command_or_a_transaction_and_what_is_cut_is_left_out() {
        let one = "*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n";
        let text = format!("*1\r\n$5\r\nMULTI\r\n{one}#TS:1700000000\r\n{one}*1\r\n$4\r\nEXEC\r\n{one}{}", &one[..9]);
        let groups = parse(text.as_bytes()).unwrap();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(groups[1][0], ["DEL", "k"]);
        // A transaction without its end was never executed.
        assert_eq!(parse(&text.as_bytes()[..40]).unwrap().len(), 0);
        assert_eq!(parse(b"hello\r\n"), Err("\"hello\" is no number".to_owned()));
    }
}
