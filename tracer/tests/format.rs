//! FORMAT.md's tables are those of the code.
#![cfg(feature = "read")]

use std::fs;
use std::path::PathBuf;

use tracer::read::Rule;
use tracer::wire::SPECS;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("FORMAT.md")
}

fn events() -> String {
    let mut text = String::from("| no. | event | arguments | since | |\n|---|---|---|---|---|\n");
    for spec in SPECS {
        let mut args: Vec<&str> = spec.args.iter().map(|arg| arg.name).collect();
        if spec.data {
            args.push("length, bytes");
        }
        if spec.frames {
            args.push("nframes times pc func file line");
        }
        let end = spec.start.map(|start| format!(" (range of {})", start.name())).unwrap_or_default();
        let experiment = if spec.experiment != 0 { " (experiment AllocFree)" } else { "" };
        let (number, name, since, doc) = (spec.ev as u8, spec.name, spec.since, spec.doc);
        text += &format!("| {number} | {name} | {} | 1.{since} | {doc}{end}{experiment} |\n", args.join(" "));
    }
    text
}

fn rules() -> String {
    let mut text = String::from("| rule | what must hold |\n|---|---|\n");
    for rule in Rule::ALL {
        text += &format!("| {} | {} |\n", rule.name(), rule.text());
    }
    text
}

#[test]
fn tables_are_those_of_the_code() {
    let old = fs::read_to_string(path()).expect("FORMAT.md is there");
    let mut new = old.clone();
    for (name, table) in [("events", events()), ("rules", rules())] {
        let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- /{name} -->"));
        let (head, rest) = new.split_once(&begin).expect("the table's begin is marked");
        let (_, tail) = rest.split_once(&end).expect("the table's end is marked");
        new = format!("{head}{begin}{table}{end}{tail}");
    }
    if std::env::var_os("GORT_BLESS").is_some() {
        fs::write(path(), new).expect("FORMAT.md can be written");
    } else {
        assert!(old == new, "FORMAT.md is out of date: GORT_BLESS=1 cargo test -p gort-tracer --test format");
    }
}

#[test]
fn the_numbers_that_it_names_are_right() {
    let text = fs::read_to_string(path()).expect("FORMAT.md is there");
    let has = |words: &str| assert!(text.contains(words), "{words}");
    has(&format!("one byte, {:x} hex", tracer::wire::Ev::EndOfGeneration as u8));
    has("at most 65,536 bytes");
    assert_eq!(tracer::wire::MAX_BATCH_BYTES, 65_536);
    has("at most 1,024 bytes each");
    assert_eq!(tracer::wire::MAX_STRING_BYTES, 1_024);
    has("at most 128 frames each");
    assert_eq!(tracer::wire::MAX_FRAMES, 128);
    assert_eq!(tracer::wire::ext::MAGIC, *b"\0gort\x01");
}
