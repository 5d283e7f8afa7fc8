use super::take;
use crate::connection::connect::Settings;
use crate::connection::pem::decode;
use lock_store::types::url::StoreUrl;

#[test]
fn files_are_named_by_percent_encoded_paths() {
    for (text, path) in [("/a/b.pem", Some("/a/b.pem")), ("%2Fa%20b%26%25", Some("/a b&%")), ("%C3%BC", Some("ü"))] {
        assert_eq!(decode(text).as_deref(), path);
    }
    for wrong in ["%", "%2", "%zz", "%ff", "a%é1"] {
        assert_eq!(decode(wrong), None, "{wrong}");
    }
}

#[test]
fn what_cannot_be_used_says_what_to_write_and_repeats_nothing() {
    for (url, says) in [
        ("redis://h?ca=s3cret", "write rediss://"),
        ("rediss://h?ca=s3cret", "the file that ca names cannot be read"),
        ("rediss://h?cert=s3cret", "name both files"),
        ("rediss://h?cert_key=s3cret", "name both files"),
        ("rediss://h?cert=s3cret&cert_key=s3cret", "the file that cert names cannot be read"),
        ("rediss://h?ca=%s3", "not percent-encoded"),
        ("rediss://h?ca=s3cret&ca=s3cret", "more than one ca"),
    ] {
        let error = take(&mut StoreUrl::read(url), &mut Settings::default()).unwrap_err().to_string();
        assert!(error.contains(says) && !error.contains("s3"), "{url}: {error}");
    }
    let (mut url, mut settings) = (StoreUrl::read("redis://h/2?acks=1"), Settings::default());
    assert!(take(&mut url, &mut settings).is_ok() && url.to_text() == "redis://h/2?acks=1");
    assert!(settings.certificates.is_none());
}
