//! Answers that take longer than a provider may be silent, by a clock that the test moves: the provider, the gateway and
//! the client are tasks of one runtime, which goes on to the next moment when all of them wait.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::lab::{Answer, Lab, Plan, read_answer};

const MINUTE: Duration = Duration::from_secs(60);
/// How long a provider may say nothing.
const SILENCE: Duration = Duration::from_secs(30 * 60);

/// A gateway before a provider that sends a piece after each of these pauses, then ends.
async fn before(pauses: &'static [u64]) -> Lab {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let plan = Plan::before(listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut seen = [0; 4_096];
        assert!(client.read(&mut seen).await.unwrap() > 0);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        client.write_all(head.as_bytes()).await.unwrap();
        for (place, minutes) in pauses.iter().enumerate() {
            sleep(MINUTE * u32::try_from(*minutes).unwrap()).await;
            let piece = format!("data: {place}\n\n");
            let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
            if client.write_all(chunk.as_bytes()).await.is_err() {
                return;
            }
        }
        // Whoever was cut off does not hear it.
        drop(client.write_all(b"0\r\n\r\n").await);
    });
    plan.start().await
}

async fn ask(lab: &Lab) -> (Answer, Duration) {
    let start = Instant::now();
    let answer = read_answer(&mut lab.message().send().await).await;
    (answer, start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn a_stream_may_take_hours_if_it_goes_on() {
    let lab = before(&[29, 29, 29, 29]).await;
    let (answer, took) = ask(&lab).await;
    assert_eq!((answer.status, answer.is_whole), (200, true), "{answer:?}");
    assert_eq!(answer.text(), "data: 0\n\ndata: 1\n\ndata: 2\n\ndata: 3\n\n");
    assert!(took >= MINUTE * 116, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_stops_is_cut_with_all_that_came_before() {
    let lab = before(&[20, 20, 31]).await;
    let (answer, took) = ask(&lab).await;
    assert_eq!((answer.status, answer.is_whole), (200, false), "{answer:?}");
    assert_eq!(answer.text(), "data: 0\n\ndata: 1\n\n");
    assert!(took >= MINUTE * 40 + SILENCE && took < MINUTE * 71, "{took:?}");
}
