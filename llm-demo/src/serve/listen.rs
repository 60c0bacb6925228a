//! Connections: how many, how slow they may be, and how they end.

use std::convert::Infallible;
use std::io;
use std::net::TcpListener as StdListener;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::serve::framing::{Ambiguous, Watched};
use crate::serve::places::{Place, Places};
use crate::serve::scheduler::Scheduler;
use crate::serve::state::Limits;

/// Time that answers have to reach their clients when the engine has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time for which no connection is accepted after the system had no means for one.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a head.
const MOST_HEAD: usize = 64 << 10;

/// Serves `router` until `stop` is true: then takes no more requests, gives those that the engine has
/// `patience`, and cuts what is left; what else clients do is not waited for.
pub async fn serve(
    listener: StdListener,
    router: Router,
    limits: Limits,
    scheduler: Scheduler,
    mut stop: watch::Receiver<bool>,
    patience: Duration,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let places = Places::new(limits.connections);
    let mut stopped = pin!(async move { _ = stop.wait_for(|stop| *stop).await });
    loop {
        let accepted = async {
            let accepted = listener.accept().await;
            (accepted, places.take().await)
        };
        let (accepted, place) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stopped => break,
        };
        match accepted {
            Ok((stream, _)) => _ = tokio::spawn(connection(stream, router.clone(), limits, place)),
            Err(error) => {
                tracing::warn!("a connection cannot be accepted: {error}");
                sleep(PAUSE).await;
            }
        }
    }
    drop(listener);
    scheduler.drain();
    places.close();
    let mut ended = pin!(places.free());
    tokio::select! {
        () = &mut ended => return Ok(()),
        () = scheduler.served() => {}
        () = sleep(patience) => {
            tracing::warn!("requests are cut: they did not end within {} s", patience.as_secs());
            scheduler.cut();
        }
    }
    let _ = timeout(LAST_WORDS, ended).await;
    Ok(())
}

/// Serves the requests of a connection.
async fn connection(stream: TcpStream, router: Router, limits: Limits, place: Place) {
    // Each chunk of a stream is a packet of its own; without it, it only waits.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("{error}");
    }
    let ambiguous = Arc::new(AtomicBool::new(false));
    let mut stream = TimeoutStream::new(Watched::new(stream, Arc::clone(&ambiguous)));
    stream.set_write_timeout(Some(limits.write));
    let router = TowerToHyperService::new(router);
    let service = service_fn(|mut request: Request<Incoming>| {
        if ambiguous.load(Ordering::Relaxed) {
            request.extensions_mut().insert(Ambiguous);
        }
        let (busy, answer) = (place.begin(), router.call(request));
        async move {
            let response = answer.await?;
            // A connection is busy until the last of an answer is written.
            let body = |body: Body| {
                Body::new(body.map_frame(move |frame| {
                    let _busy = &busy;
                    frame
                }))
            };
            Ok::<_, Infallible>(response.map(body))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    let mut connection = pin!(connection);
    let ended = loop {
        tokio::select! {
            ended = connection.as_mut() => break ended,
            is_busy = place.closed() => match is_busy {
                true => connection.as_mut().graceful_shutdown(),
                false => return,
            },
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {error}");
    }
}
