use super::{Draw, Floor};
use lock_store::types::fencing::FencingToken;

#[test]
fn tokens_are_ordered_as_draws_are_and_fit_an_i64() {
    let draws = [(0, 1), (1, 0), (1, 8191), (2, 0), (1_800_000_000_000, 5), ((1 << 43) - 1, 8191)];
    let tokens: Vec<_> = draws.map(|(ms, seq)| Draw { ms, seq }).iter().map(|draw| draw.token().unwrap()).collect();
    assert!(tokens.windows(2).all(|pair| pair[0].get() + 127 < pair[1].get()));
    assert!(tokens.iter().all(|token| i64::try_from(token.get() + 127).is_ok()));
    for (draw, token) in draws.iter().zip(&tokens) {
        let last = FencingToken::new(token.get() + 127);
        assert_eq!((Draw::of(*token), Draw::of(last)), (Draw { ms: draw.0, seq: draw.1 }, Draw::of(*token)));
    }
    assert_eq!((Draw { ms: 1, seq: 8192 }.token(), Draw { ms: 1 << 43, seq: 0 }.token()), (None, None));
}

#[test]
fn ids_are_read_and_nonsense_is_not() {
    assert_eq!(Draw::read(b"1763-5"), Some(Draw { ms: 1763, seq: 5 }));
    assert_eq!(Draw::read(b"18446744073709551615-18446744073709551615").unwrap().token(), None);
    for bad in ["", "1", "-", "1-", "-1", "1-x", "99999999999999999999-0"] {
        assert_eq!(Draw::read(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn a_floor_beyond_an_hour_is_forgotten() {
    let floor = Floor::default();
    let token = |ms| Draw { ms, seq: 0 }.token().unwrap();
    floor.raise(token(5_000_000));
    let none = FencingToken::default();
    assert_eq!(floor.at_least(none, 5_000_000_000 - 3_600_000_000), token(5_000_000));
    assert_eq!(floor.at_least(none, 1_000_000_000), none);
    assert_eq!(floor.at_least(none, 5_000_000_000), none);
}
