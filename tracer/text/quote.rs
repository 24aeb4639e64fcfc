//! Strings in quotes, as Go's `strconv.Quote` writes and `strconv.Unquote` reads them.

use std::fmt::Write;

/// Appends `bytes` in quotes. What is no UTF-8 or cannot be seen is escaped.
pub(crate) fn quote(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            quote_char(out, c);
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out.push('"');
}

fn quote_char(out: &mut String, c: char) {
    let short = match c {
        '"' => '"',
        '\\' => '\\',
        '\x07' => 'a',
        '\x08' => 'b',
        '\x0c' => 'f',
        '\n' => 'n',
        '\r' => 'r',
        '\t' => 't',
        '\x0b' => 'v',
        ' '..='~' => return out.push(c),
        _ if c.is_ascii() => {
            let _ = write!(out, "\\x{:02x}", c as u32);
            return;
        }
        _ if is_printable(c) => return out.push(c),
        _ if (c as u32) < 0x1_0000 => {
            let _ = write!(out, "\\u{:04x}", c as u32);
            return;
        }
        _ => {
            let _ = write!(out, "\\U{:08x}", c as u32);
            return;
        }
    };
    out.push('\\');
    out.push(short);
}

/// It can be seen: a letter, a mark, a digit, a sign. The standard library knows, and tells it in a roundabout way: in a
/// string it escapes what cannot be seen, and an accent only where it comes first.
fn is_printable(c: char) -> bool {
    let mut utf8 = [0; 5];
    utf8[0] = b'a';
    let len = c.encode_utf8(&mut utf8[1..]).len();
    let Ok(text) = std::str::from_utf8(&utf8[..=len]) else { return false };
    text.escape_debug().nth(1) == Some(c)
}

/// The bytes that a string in quotes stands for, and what follows its closing quote. `Err` says what is wrong.
pub(crate) fn unquote(text: &str) -> Result<(Vec<u8>, &str), String> {
    if let Some(raw) = text.strip_prefix('`') {
        let (inside, rest) = raw.split_once('`').ok_or("the closing ` is missing")?;
        return Ok((inside.replace('\r', "").into_bytes(), rest));
    }
    let mut rest = text.strip_prefix('"').ok_or("a string in quotes is missing")?;
    let mut out = Vec::new();
    loop {
        let plain = rest.find(['"', '\\']).ok_or("the closing quote is missing")?;
        out.extend_from_slice(&rest.as_bytes()[..plain]);
        let quoted = rest.as_bytes()[plain] == b'"';
        rest = &rest[plain + 1..];
        if quoted {
            return Ok((out, rest));
        }
        rest = unescape(&mut out, rest)?;
    }
}

/// Appends what the escape stands for whose `\` has been read; answers what follows it.
fn unescape<'t>(out: &mut Vec<u8>, text: &'t str) -> Result<&'t str, String> {
    let mut chars = text.chars();
    let kind = chars.next().ok_or("a \\ at the end")?;
    let short = match kind {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' | '"' => kind as u8,
        'x' | 'u' | 'U' | '0'..='7' => return unescape_number(out, kind, text),
        other => return Err(format!("there is no escape \\{other}")),
    };
    out.push(short);
    Ok(chars.as_str())
}

fn unescape_number<'t>(out: &mut Vec<u8>, kind: char, text: &'t str) -> Result<&'t str, String> {
    let (start, len, radix) = match kind {
        'x' => (1, 2, 16),
        'u' => (1, 4, 16),
        'U' => (1, 8, 16),
        _ => (0, 3, 8),
    };
    let digits = text.get(start..start + len).filter(|digits| digits.chars().all(|c| c.is_digit(radix)));
    let digits = digits.ok_or_else(|| format!("\\{kind} has too few digits"))?;
    let value = u32::from_str_radix(digits, radix).map_err(|e| e.to_string())?;
    if matches!(kind, 'u' | 'U') {
        let c = char::from_u32(value).ok_or_else(|| format!("\\{kind}{digits} is no character"))?;
        out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    } else {
        out.push(u8::try_from(value).map_err(|_| format!("\\{digits} is more than a byte"))?);
    }
    Ok(&text[start + len..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(bytes: &[u8]) -> String {
        let mut out = String::new();
        quote(&mut out, bytes);
        out
    }

    #[test]
    fn quoted_as_go_does() {
        for (bytes, expected) in [
            (&b""[..], r#""""#),
            (b"main.main", r#""main.main""#),
            (b"a\"b\\c\x07\x08\x0c\n\r\t\x0b", r#""a\"b\\c\a\b\f\n\r\t\v""#),
            (b"\0\x1f\x7f\xff\xc3", r#""\x00\x1f\x7f\xff\xc3""#),
            ("é日😀".as_bytes(), r#""é日😀""#),
            ("e\u{301}\u{301}".as_bytes(), "\"e\u{301}\u{301}\""),
            ("\u{301}".as_bytes(), "\"\u{301}\""),
            ("\u{a0}\u{ad}\u{200b}\u{2028}\u{feff}".as_bytes(), r#""\u00a0\u00ad\u200b\u2028\ufeff""#),
            ("\u{e000}\u{10ffff}\u{fffd}".as_bytes(), "\"\\ue000\\U0010ffff\u{fffd}\""),
            ("'".as_bytes(), r#""'""#),
        ] {
            assert_eq!(quoted(bytes), expected);
        }
    }

    #[test]
    fn what_is_quoted_comes_back() {
        let mut bytes: Vec<u8> = (0..=255).collect();
        bytes.extend("é日😀\u{301}\u{2028}\u{10ffff}".bytes());
        for i in 0..bytes.len() {
            let (back, rest) =
                unquote(&quoted(&bytes[i..])).map(|(b, r)| (b, r.to_owned())).expect("it is well quoted");
            assert_eq!((&back[..], &rest[..]), (&bytes[i..], ""));
        }
    }

    #[test]
    fn escapes_of_go_are_read() {
        assert_eq!(unquote(r#""\101\x42\u00e9\U0001f600" x"#), Ok(("AB\u{e9}\u{1f600}".into(), " x")));
        assert_eq!(unquote("`a\\n\r`"), Ok((b"a\\n".to_vec(), "")));
        for bad in [
            "",
            "x",
            "\"",
            "\"a",
            "`a",
            r#""\"#,
            r#""\q""#,
            r#""\x4""#,
            r#""\400""#,
            r#""\ud800""#,
            r#""\xé""#,
            r#""\'""#,
        ] {
            assert!(unquote(bad).is_err(), "{bad}");
        }
    }
}
