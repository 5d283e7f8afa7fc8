//! The parts of a command line that a message may show.

/// Takes out of URLs what stands before the host and after it, also of those whose scheme is missing or none.
pub(super) fn without_credentials(text: &str) -> String {
    const SCHEMES: [&str; 7] = ["redis", "valkey", "unix", "redlock", "postgres", "memory", "http"];
    let hidden = |word: &str| {
        let start = word.find(|c: char| !matches!(c, '\'' | '"' | '=' | '(')).unwrap_or(0);
        let (before, rest) = word.split_at(start);
        let address = match rest.find("://") {
            Some(at) if SCHEMES.iter().any(|scheme| rest.starts_with(scheme)) => at + 3,
            Some(_) => return format!("{before}…{}", &rest[rest.trim_end().len()..]),
            None => 0,
        };
        let (scheme, rest) = rest.split_at(address);
        let (rest, end) = match rest.find('?').filter(|_| address > 0) {
            Some(at) => (&rest[..at], format!("…{}", &rest[rest.trim_end().len()..])),
            None => (rest, String::new()),
        };
        // A password may itself contain an @.
        match rest.rfind('@') {
            Some(at) => format!("{before}{scheme}…{}{end}", &rest[at..]),
            None => format!("{before}{scheme}{rest}{end}"),
        }
    };
    text.split_inclusive(char::is_whitespace).map(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::without_credentials;

    #[test]
    fn messages_carry_no_credentials() {
        let text = "unexpected 'redis://u:p@ss@host:1/2' and redis://host and rediss://:x@h\nor 's3cret@h:1' and :x@h, \
                    'x://h' and\nredis://h?acks=x or redis://a?acks=x@h postgresql://u:p@db/shop?schema=x";
        let clean = "unexpected 'redis://…@host:1/2' and redis://host and rediss://…@h\nor '…@h:1' and …@h, \
                     '… and\nredis://h… or redis://a… postgresql://…@db/shop…";
        assert_eq!(without_credentials(text), clean);
    }
}
