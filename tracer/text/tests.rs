use super::*;
use crate::wire::{Ev, HEADER, SPECS, varint};

fn text_of(trace: &[u8], widths: Widths) -> (String, Option<Error>) {
    let mut text = Vec::new();
    let error = to_text(trace, &mut text, widths).err();
    (String::from_utf8(text).expect("a text is UTF-8"), error)
}

fn trace_of(text: &str) -> (Vec<u8>, Option<Error>) {
    let mut trace = Vec::new();
    let error = to_trace(text.as_bytes(), &mut trace).err();
    (trace, error)
}

/// A trace with every kind of event of a version, in numbers as short as can be or longer.
fn all_events(version: crate::read::Version, long: bool) -> Vec<u8> {
    let mut trace = version.header().to_vec();
    let mut n = 0u64;
    let mut number = |trace: &mut Vec<u8>, fixed: Option<u64>| {
        n = n.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let v = fixed.unwrap_or(n >> (n % 64));
        if long && n.is_multiple_of(3) {
            let at = trace.len();
            trace.resize(at + varint::MAX_BYTES, 0);
            varint::put_padded10(trace, at, v);
        } else {
            varint::put(trace, v);
        }
    };
    for spec in SPECS.iter().filter(|spec| u32::from(spec.since) <= version.minor()) {
        trace.push(spec.ev as u8);
        for i in 0..spec.args.len() {
            number(&mut trace, (spec.frames && i == 1).then_some(2));
        }
        for _ in 0..if spec.frames { 8 } else { 0 } {
            number(&mut trace, None);
        }
        if spec.data {
            let data = b"a \"string\"\n\xff with # everything \xe2\x82\xac";
            number(&mut trace, Some(data.len() as u64));
            trace.extend_from_slice(data);
        }
    }
    trace
}

#[test]
fn every_event_of_every_version_comes_back_to_the_byte() {
    use crate::read::Version::*;
    for version in [Go122, Go123, Go125, Go126] {
        for long in [false, true] {
            let trace = all_events(version, long);
            let (text, error) = text_of(&trace, Widths::Keep);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(text.contains("#widths"), long);
            let (again, error) = trace_of(&text);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(again, trace);
            // Without the widths the events are the same, in fewer bytes.
            let (bare, _) = text_of(&trace, Widths::Drop);
            let (short, error) = trace_of(&bare);
            assert!(error.is_none(), "{error:?}");
            assert_eq!(short.len() < trace.len(), long);
            assert_eq!(text_of(&short, Widths::Keep).0, bare);
        }
    }
}

#[test]
fn an_event_is_unknown_before_its_version() {
    let mut trace = crate::read::Version::Go122.header().to_vec();
    trace.push(Ev::Sync as u8);
    let (text, error) = text_of(&trace, Widths::Keep);
    assert_eq!(text, "Trace Go1.22\n");
    assert_eq!(error.map(|e| e.to_string()).as_deref(), Some("byte 16: number 50 is no event of go 1.22"));
    let (_, error) = trace_of("Trace Go1.22\nSync\n");
    assert_eq!(error.map(|e| e.to_string()).as_deref(), Some("line 2: \"Sync\" is no event of go 1.22"));
}

#[test]
fn comments_blank_lines_and_empty_data() {
    let text = "\n# A comment.\n  Trace Go1.26   \n\n\tStrings # the table\r\nString id=1\n# no data\nString id=2\n\tdata = \"x\" # and\n";
    let (trace, error) = trace_of(text);
    assert!(error.is_none(), "{error:?}");
    assert_eq!(trace[16..], [Ev::Strings as u8, Ev::String as u8, 1, 0, Ev::String as u8, 2, 1, b'x']);
    assert_eq!(text_of(&trace, Widths::Drop).0, "Trace Go1.26\nStrings\nString id=1\nString id=2\n\tdata=\"x\"\n");
    assert!(text_of(&trace, Widths::Keep).0.contains("id=1\n\tdata=\"\"\n"));
}

#[test]
fn what_is_wrong_with_a_text_and_where() {
    for (text, line, what) in [
        ("", 1, "the text is empty"),
        ("\n\n", 2, "the text is empty"),
        ("Trace\n", 1, "the first line must be"),
        ("Trace Go1.26 x\n", 1, "the first line must be"),
        ("Trace Go1.21\n", 1, "Go1.21 has no text form"),
        ("Trace Go1.26\nFoo\n", 2, "\"Foo\" is no event"),
        ("Trace Go1.26\n\nProcStop\n", 3, "ProcStop: dt= is missing"),
        ("Trace Go1.26\nProcStop dt\n", 2, "\"dt\" stands where dt= must"),
        ("Trace Go1.26\nProcStop p=1\n", 2, "p= stands where dt= must"),
        ("Trace Go1.26\nProcStop dt=\n", 2, "\"dt=\" is no number"),
        ("Trace Go1.26\nProcStop dt=-1\n", 2, "\"dt=-1\" is no number"),
        ("Trace Go1.26\nProcStop dt=18446744073709551616\n", 2, "is no number of 64 bits"),
        ("Trace Go1.26\nProcStop dt=1 p=1\n", 2, "\"p=1\" is too much"),
        ("Trace Go1.26\nStack id=1 nframes=2\n\tpc=1 func=1 file=1 line=1\n", 3, "1 of 2 frames are there"),
        ("Trace Go1.26\nStack id=1 nframes=1\n\tpc=1 func=1 line=1\n", 3, "frame 1 of 1: line= stands where file="),
        ("Trace Go1.26\nString id=1\n\tdata=x\n", 3, "data: a string in quotes is missing"),
        ("Trace Go1.26\nString id=1\n\tdata=\"x\" y\n", 3, "\"y\" is too much"),
        ("Trace Go1.26\nString id=1\n\tdata=\"\\q\"\n", 3, "there is no escape \\q"),
        ("Trace Go1.26\n#widths 1 11\nProcStop dt=1\n", 2, "#widths takes numbers from 1 to 10"),
        ("Trace Go1.26\n#widths 1 1\nProcStop dt=1\n", 2, "2 widths, but the event after it has 1 numbers"),
        ("Trace Go1.26\n#widths 1\nProcStop dt=128\n", 2, "128 does not fit 1 bytes"),
        ("Trace Go1.26\n#widths 1\n\n", 2, "no event follows #widths"),
        ("Trace Go1.26\nStack id=1 nframes=18446744073709551615\n", 2, "0 of 18446744073709551615 frames are there"),
    ] {
        match trace_of(text).1 {
            Some(Error::Text { line: at, what: found }) => {
                assert!(at == line && found.contains(what), "{text:?}: line {at}: {found}");
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }
    let error = to_trace(&b"Trace Go1.26\n\xff\n"[..], Vec::new()).expect_err("that is not UTF-8");
    assert_eq!(error.to_string(), "line 2: the line is not UTF-8");
}

#[test]
fn what_is_wrong_with_a_trace_and_where() {
    for (bytes, what) in [
        (&[0][..], "byte 16: number 0 is no event of go 1.26"),
        (&[200], "byte 16: number 200 is no event of go 1.26"),
        (&[11, 1, 13, 1], "byte 18: the trace ends in the numbers of ProcStatus"),
        (&[11, 255, 255, 255, 255, 255, 255, 255, 255, 255, 2], "byte 16: a number of ProcStop has more than 64 bits"),
        (&[5, 1, 200, 1, 65], "byte 16: the trace ends in the bytes of String: 1 of 200 are there"),
        (&[3, 1, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1], "byte 16: the trace ends in the numbers of Stack"),
    ] {
        let (_, error) = text_of(&[&HEADER[..], bytes].concat(), Widths::Keep);
        assert_eq!(error.expect("it is broken").to_string(), what);
    }
    assert!(matches!(
        text_of(b"go 1.21 trace\0\0\0", Widths::Keep).1,
        Some(Error::Header(crate::read::Error::Version(21)))
    ));
    assert!(matches!(text_of(b"", Widths::Keep).1, Some(Error::Header(crate::read::Error::NotATrace))));
}

#[test]
fn a_cut_trace_is_told_up_to_the_cut() {
    let trace = all_events(crate::read::Version::Go126, true);
    let (whole, _) = text_of(&trace, Widths::Keep);
    for cut in 16..trace.len() {
        let (text, error) = text_of(&trace[..cut], Widths::Keep);
        assert!(whole.starts_with(&text), "cut at {cut}");
        let (again, _) = trace_of(&text);
        assert!(trace.starts_with(&again), "cut at {cut}");
        assert_eq!(error.is_none(), again.len() == cut, "cut at {cut}");
    }
}
