use super::{Permyriad, Size, SizeErrorKind};
use crate::units::Bytes;
use proptest::{prop_oneof, proptest, strategy::Strategy};
use std::string::{String, ToString};

fn parsed(text: &str) -> Size {
    text.parse().unwrap()
}

fn in_bytes(bytes: u64) -> Size {
    Size::Bytes(Bytes(bytes))
}

fn share(parts: u16) -> Size {
    Size::OfRam(Permyriad::new(parts).unwrap())
}

#[test]
fn sizes_are_read_in_every_documented_form() {
    let cases = [
        ("512M", 512 << 20),
        ("512MiB", 512 << 20),
        ("512m", 512 << 20),
        ("512MB", 512_000_000),
        ("1K", 1024),
        ("1kB", 1000),
        ("2G", 2 << 30),
        ("2GB", 2_000_000_000),
        ("1T", 1 << 40),
        ("1TiB", 1 << 40),
        ("1TB", 1_000_000_000_000),
        ("1.5G", 3 << 29),
        ("0.000001MB", 1),
        ("4096", 4096),
        ("4096B", 4096),
        ("0", 0),
        ("18446744073709551615", u64::MAX),
        ("16777215T", 16_777_215 << 40),
    ];
    for (text, bytes) in cases {
        assert_eq!(parsed(text), in_bytes(bytes), "{text}");
    }
    for (text, parts) in [("25%", 2500), ("12.5%", 1250), ("0.01%", 1), ("100%", 10_000), ("33.33%", 3333)] {
        assert_eq!(parsed(text), share(parts), "{text}");
    }
}

#[test]
fn what_is_no_size_is_refused_with_its_kind() {
    use SizeErrorKind::{Decimals, Empty, Negative, NotANumber, OverWhole, Overflow, UnknownUnit};
    let unit = |unit: &str| UnknownUnit(unit.to_string());
    let cases = [
        ("", Empty),
        ("-5M", Negative),
        ("-", Negative),
        ("M", NotANumber),
        ("abc", NotANumber),
        (".5G", NotANumber),
        ("5.", NotANumber),
        ("5.G", NotANumber),
        ("1.2.3G", NotANumber),
        (" 5G", NotANumber),
        ("+5G", NotANumber),
        ("12Q", unit("Q")),
        ("12 M", unit(" M")),
        ("12MiBs", unit("MiBs")),
        ("1e9", unit("e9")),
        ("5%%", unit("%%")),
        ("5\u{ff05}", unit("\u{ff05}")),
        ("1.5", Decimals),
        ("1.5B", Decimals),
        ("1.1234567G", Decimals),
        ("12.345%", Decimals),
        ("101%", OverWhole),
        ("100.01%", OverWhole),
        ("99999999999999999999999%", OverWhole),
        ("18446744073709551616", Overflow),
        ("16777216T", Overflow),
        ("999999999999999999999999999999999999999999999999", Overflow),
    ];
    for (text, kind) in cases {
        assert_eq!(text.parse::<Size>().unwrap_err().kind, kind, "{text}");
    }
}

#[test]
fn an_error_is_one_line_that_names_the_input() {
    let cases = [
        (
            "12Q",
            "size '12Q': unknown unit 'Q'; units are K, M, G, T (powers of 1024), KB, MB, GB, TB (powers of 1000) and %",
        ),
        ("", "size '': nothing given; write for example 512M, 1.5G or 25%"),
        ("-5M", "size '-5M': a size cannot be negative"),
        ("101%", "size '101%': more than 100% of RAM"),
        ("x\ny", r"size 'x\ny': not a number; write for example 512M, 1.5G or 25%"),
    ];
    for (text, message) in cases {
        assert_eq!(text.parse::<Size>().unwrap_err().to_string(), message);
    }
}

#[test]
fn the_shortest_exact_form_is_shown() {
    let cases = [
        (in_bytes(0), "0"),
        (in_bytes(1000), "1000"),
        (in_bytes(1024), "1K"),
        (in_bytes(3 << 29), "1536M"),
        (in_bytes(1 << 40), "1T"),
        (share(2500), "25%"),
        (share(1250), "12.5%"),
        (share(1205), "12.05%"),
        (share(1), "0.01%"),
    ];
    for (size, text) in cases {
        assert_eq!(size.to_string(), text);
    }
}

#[test]
fn a_share_is_of_ram_and_rounds_down() {
    assert_eq!(share(2500).resolve(Bytes(4 << 30)), Bytes(1 << 30));
    assert_eq!(share(3333).resolve(Bytes(10_001)), Bytes(3333));
    assert_eq!(share(10_000).resolve(Bytes(u64::MAX)), Bytes(u64::MAX));
    assert_eq!(in_bytes(7).resolve(Bytes(3)), Bytes(7));
}

#[test]
fn no_share_is_above_the_whole() {
    assert_eq!(Permyriad::new(10_000).map(Permyriad::get), Some(10_000));
    assert_eq!(Permyriad::new(10_001), None);
}

#[test]
fn json_holds_the_text_and_takes_plain_numbers() {
    assert_eq!(serde_json::to_string(&share(2500)).unwrap(), "\"25%\"");
    assert_eq!(serde_json::from_str::<Size>("\"512M\"").unwrap(), in_bytes(512 << 20));
    assert_eq!(serde_json::from_str::<Size>("4096").unwrap(), in_bytes(4096));
    let error = serde_json::from_str::<Size>("-4096").unwrap_err().to_string();
    assert!(error.starts_with("size '-4096': a size cannot be negative"), "{error}");
    serde_json::from_str::<Size>("1.5").unwrap_err();
}

fn any_size() -> impl Strategy<Value = Size> {
    prop_oneof![
        proptest::prelude::any::<u64>().prop_map(in_bytes),
        (0_u32..63, 1_u64..4096).prop_map(|(shift, factor)| in_bytes(factor << shift.min(51))),
        (0_u16..=10_000).prop_map(share),
    ]
}

proptest! {
    #[test]
    fn every_size_reads_back_from_what_is_shown(size in any_size()) {
        assert_eq!(parsed(&size.to_string()), size);
    }

    #[test]
    fn no_text_is_ever_more_than_an_error_in_one_line(text: String) {
        if let Err(error) = text.parse::<Size>() {
            assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn a_share_is_never_more_than_ram(parts in 0_u16..=10_000, ram: u64) {
        assert!(share(parts).resolve(Bytes(ram)) <= Bytes(ram));
    }
}
