//! hyper on tokio: a task for each connection, as in hyper's own guide.

use super::BODY;
use crate::options::Serve;
use crate::rivals::tokio::Tokio;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use tokio::net::TcpListener;

/// Serves until it is killed.
pub fn serve(serve: &Serve) -> Result<(), String> {
    let address = serve.address.clone();
    Tokio::start(serve.procs)?.inside(async move {
        let failed = |error| format!("cannot listen on {address}: {error}");
        let listener = TcpListener::bind(&address).await.map_err(failed)?;
        println!("listening on {}", listener.local_addr().map_err(failed)?);
        loop {
            let (stream, _) = listener.accept().await.map_err(|error| format!("cannot accept: {error}"))?;
            stream.set_nodelay(true).map_err(|error| format!("cannot set TCP_NODELAY: {error}"))?;
            tokio::spawn(async move {
                // A client that goes away is none of our business.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(hello)).await;
            });
        }
    })
}

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(BODY.as_bytes()))))
}
