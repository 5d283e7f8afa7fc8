use proc_macro2::Span;
use syn::LitStr;

use super::{Format, Names, Piece, Template};

fn parse(text: &str) -> Result<Template, String> {
    Template::parse(LitStr::new(text, Span::call_site())).map_err(|error| error.to_string())
}

fn refusal(text: &str) -> String {
    parse(text).err().unwrap_or_else(|| panic!("{text} was accepted"))
}

/// Shows text as it is and values in parentheses.
fn shape(text: &str) -> String {
    let template = parse(text).unwrap();
    template
        .pieces
        .iter()
        .map(|piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Value { source, format: Format::Plain, .. } => format!("({source})"),
            Piece::Value { source, format: Format::Spec(spec), .. } => format!("({source} | {spec})"),
            Piece::Value { source, format: Format::Raw, .. } => format!("({source} as it is)"),
        })
        .collect()
}

#[test]
fn finds_the_values() {
    assert_eq!(shape("lock:user:<user_id>"), "lock:user:(user_id)");
    assert_eq!(shape("{<tenant>}:order:<self.id>"), "{(tenant)}:order:(self.id)");
    assert_eq!(shape("a<<b>>c"), "a<b>c");
    assert_eq!(shape("k:<x.get::<u8>()>"), "k:(x.get::<u8>())");
    assert_eq!(shape(r#"k:<m["a>b"]>!"#), r#"k:(m["a>b"])!"#);
    assert_eq!(shape("<id:08>"), "(id:08 | 08)");
    assert_eq!(shape("<id:?>"), "(id:? | ?)");
    assert_eq!(shape("<id:>8>"), "(id:>8 | >8)");
    assert_eq!(shape("<id:raw>:<a::B:raw>"), "(id:raw as it is):(a::B:raw as it is)");
    assert_eq!(shape("<w>x<h>"), "(w)x(h)");
    assert_eq!(shape("<a><b:raw><c>"), "(a)(b:raw as it is)(c)");
    assert_eq!(shape("<a::B>"), "(a::B)");
    assert_eq!(shape("<t.0>-<v[1]>"), "(t.0)-(v[1])");
    assert_eq!(shape("<<<id>>>"), "<(id)>");
}

#[test]
fn refuses_what_it_cannot_read() {
    for (text, part) in [
        ("", "the key is empty"),
        ("k:<id", "never closed; write `<<`"),
        ("k:id>", "stray `>`"),
        ("k:<>", "names no value"),
        ("k:<user id>", "not a Rust expression"),
        ("k:<f().await>", "`.await` cannot be used here"),
        ("k:<a?>", "`?` cannot be used here"),
        ("k:<{ 1 }>", "a block cannot be used here"),
        ("k:<|x| x>", "a closure cannot be used here"),
        ("k:<format!(\"x\")>", "a macro cannot be used here"),
        ("k:<a><b>", "put a delimiter between them, as in <a>:<b>"),
        ("k:<a>%4F<b>", "nothing separates <a> from <b>"),
        ("k:<a = b>", "an assignment cannot be used here"),
    ] {
        let message = parse(text).err().unwrap_or_else(|| panic!("{text} was accepted"));
        assert!(message.contains(part), "{text}: {message}");
    }
}

fn complaints(text: &str) -> Vec<String> {
    let names = Names {
        function: "charge".to_owned(),
        bound: vec!["user_id".to_owned(), "amount".to_owned()],
        ..Names::default()
    };
    parse(text).unwrap().check(&names).iter().map(ToString::to_string).collect()
}

#[test]
fn knows_the_parameters() {
    assert!(complaints("k:<user_id>:<amount.currency()>:<PREFIX>:<util::shard(user_id)>").is_empty());
    assert_eq!(complaints("<usr_id>"), [r#"usr_id is not a parameter of "charge"; did you mean "user_id"?"#]);
    assert_eq!(complaints("<zzz.id>"), [r#"zzz is not a parameter of "charge"; its parameters: user_id, amount"#]);
    assert_eq!(complaints("<self.id>").len(), 1);
}

#[test]
fn knows_other_languages() {
    for text in [
        "k:{user_id}",
        "k:#user_id",
        "k:#{user_id}",
        "k:$user_id",
        "k:${user_id}",
        "k:$(user_id)",
        "k:%{user_id}",
        "k:%(user_id)s",
        "k:{user_id.id}",
    ] {
        let found = complaints(text);
        assert_eq!(found.len(), 1, "{text}");
        let advice = "would be sent to Redis as written; every call would share one lock. Write <user_id";
        assert!(found[0].contains(advice), "{text}: {found:?}");
    }
    for text in ["k:%s", "k:{}"] {
        let advice = "Write the value between angle brackets; the parameters: user_id, amount";
        assert!(complaints(text)[0].ends_with(advice), "{text}");
    }
    for text in ["{orders}:<user_id>", "a#1", "{<user_id>}", "100%", "100%user_id", "$5", "{"] {
        assert!(complaints(text).is_empty(), "{text}");
    }
}

#[test]
fn raw_names_are_names() {
    let names = |bound: &str| Names { function: "f".to_owned(), bound: vec![bound.to_owned()], ..Names::default() };
    for (text, bound) in [("<r#user_id>", "user_id"), ("<user_id>", "user_id"), ("<r#type.id>", "type")] {
        assert!(parse(text).unwrap().check(&names(bound)).is_empty(), "{text}");
    }
    let found = parse("<r#typ>").unwrap().check(&names("type"));
    assert_eq!(found[0].to_string(), "typ is not a parameter of \"f\"; did you mean \"r#type\"?");
    assert!(refusal("<type>").contains("a keyword; write <r#type>"));
    let guard = syn::parse_str("r#id").unwrap();
    assert!(
        names("id").hidden_by(&guard).unwrap().to_string().starts_with("guard = r#id would hide the parameter \"id\"")
    );
}

#[test]
fn what_would_crash_the_compiler_or_take_it_long_is_refused() {
    let nested = |depth: usize| format!("k:<{}id{}>", "(".repeat(depth), ")".repeat(depth));
    assert!(parse(&nested(32)).is_ok());
    for (text, part) in [
        (nested(33), "nested more than 32 deep"),
        (nested(100_000), "longer than 512 bytes"),
        ("x".repeat(513), "at most 512 bytes"),
        ("x".repeat(100_000), "at most 512 bytes"),
        ("<id>:".repeat(5_000), "at most 512 bytes"),
        ("<id:raw>".repeat(5_000), "at most 512 bytes"),
        (format!("<{}>", "x".repeat(513)), "longer than 512 bytes"),
        (format!("<{}", "x>".repeat(50_000)), "stray `>`"),
        (format!("<{}", "(>".repeat(50_000)), "nested more than 32 deep"),
        (format!("<x y{}", " >".repeat(50_000)), "not a Rust expression"),
    ] {
        let message = refusal(&text);
        assert!(message.contains(part) && message.len() < 400, "{}: {message}", &text[..20]);
    }
    assert!(parse(&"x".repeat(512)).is_ok());
    assert!(parse(&format!("<{}>", "x".repeat(512))).is_ok());
}

#[test]
fn what_nobody_would_see_stands_escaped_in_a_message() {
    assert!(refusal("k:<user\u{200b}id>").starts_with("<user\\u{200b}id> in the key is no"));
}
