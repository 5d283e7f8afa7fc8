//! Splits values as TLC prints them: `[a |-> 1, b |-> (p1 :> {2})]` is `a 1` and `b.p1 {2}`.

/// Returns the parts of a value: the path to each, and its value.
pub(super) fn parts(name: &str, value: &str) -> Vec<(String, String)> {
    let value = value.trim();
    let inner = |open: char, close: char| value.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    let (fields, arrow, between) = match (inner('[', ']'), inner('(', ')')) {
        (Some(record), _) => (record, " |-> ", ", "),
        (_, Some(function)) => (function, " :> ", " @@ "),
        _ => return vec![(name.to_owned(), value.to_owned())],
    };
    let fields = split(fields, between).into_iter().filter_map(|field| field.split_once(arrow));
    fields.flat_map(|(field, value)| parts(&format!("{name}.{}", field.trim()), value)).collect()
}

/// Splits a text at separators outside of brackets.
fn split<'a>(text: &'a str, between: &str) -> Vec<&'a str> {
    let (mut depth, mut start, mut pieces) = (0_i32, 0, Vec::new());
    for (place, sign) in text.char_indices() {
        // The brackets of a sequence, `<<` and `>>`, count twice and close twice. The sign `>` of an arrow does not count.
        match sign {
            '[' | '{' | '(' | '<' => depth += 1,
            ']' | '}' | ')' => depth -= 1,
            '>' if !text[..place].ends_with([':', '-']) => depth -= 1,
            _ => {}
        }
        if depth == 0 && place >= start && text[place..].starts_with(between) {
            pieces.push(&text[start..place]);
            start = place + between.len();
        }
    }
    pieces.push(&text[start..]);
    pieces
}

#[cfg(test)]
mod tests {
    use lock_testing::limit;

    use super::parts;

    #[test]
    #[limit]
    fn a_value_is_taken_apart_down_to_sets_and_sequences() {
        let value = "[held |-> {[claim |-> <<p1, 1>>, ends |-> 2]}, at |-> (p1 :> [n |-> 1] @@ p2 :> [n |-> 0])]";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            parts("server", value),
            [
                pair("server.held", "{[claim |-> <<p1, 1>>, ends |-> 2]}"),
                pair("server.at.p1.n", "1"),
                pair("server.at.p2.n", "0")
            ],
        );
        assert_eq!(parts("now", "3"), [pair("now", "3")]);
    }
}
