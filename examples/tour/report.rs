pub(crate) fn print(trace: &str) -> Result<(), super::Failure> {
    let mut reader = tracer::read::Reader::new(std::fs::File::open(trace)?)?;
    let (s, e) = tracer::read::summary::summarize(&mut reader);
    println!("{s}");
    if let Some(e) = e { return Err(e.into()) }
    Ok(())
}
