//! Connections: how many, how slow they may be, and how they end.

use std::io;
use std::net::TcpListener as StdListener;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;

use crate::serve::app::Limits;
use crate::serve::scheduler::Scheduler;

/// Time that answers which were cut have to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// Time for which no connection is accepted after the system had no means for one.
const PAUSE: Duration = Duration::from_millis(100);
/// Bytes of a head.
const MOST_HEAD: usize = 64 << 10;

/// Serves `router` until `stop` is true: then takes no more requests, gives those that it has `patience`, and
/// cuts what is left. The scheduler is drained afterwards.
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
    let connections = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    let mut stopped = pin!(async move { _ = stop.wait_for(|stop| *stop).await });
    loop {
        let accepted = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            accepted = accepted => accepted,
            () = &mut stopped => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection cannot be accepted: {error}");
                sleep(PAUSE).await;
                continue;
            }
        };
        let connection = graceful.watch(connection(stream, router.clone(), limits));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("a connection ended: {error}");
            }
            drop(permit);
        });
    }
    drop(listener);
    scheduler.drain();
    let mut ended = pin!(graceful.shutdown());
    if timeout(patience, &mut ended).await.is_err() {
        tracing::warn!("requests are cut: they did not end within {} s", patience.as_secs());
        scheduler.cut();
        let _ = timeout(LAST_WORDS, ended).await;
    }
    Ok(())
}

type Stream = TokioIo<Pin<Box<TimeoutStream<TcpStream>>>>;

fn connection(
    stream: TcpStream,
    router: Router,
    limits: Limits,
) -> http1::Connection<Stream, TowerToHyperService<Router>> {
    // Each chunk of a stream is a packet of its own; without it, it only waits.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("{error}");
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.read)
        .max_buf_size(MOST_HEAD)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router))
}
