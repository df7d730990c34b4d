//! gRPC's interop test cases by tonic: ortoo-interop HOST:PORT CASE

use std::time::Duration;

use prost::Message;
use tokio_stream::{iter, pending, Stream, StreamExt};
use tonic::client::Grpc;
use tonic::codec::ProstCodec;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::metadata::MetadataValue;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Response, Status, Streaming};

const REQUEST_SIZES: [usize; 4] = [27_182, 8, 1_828, 45_904];
const RESPONSE_SIZES: [usize; 4] = [31_415, 9, 2_653, 58_979];
const SPECIAL: &str = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";
const EMPTY_CALL: &str = "/grpc.testing.TestService/EmptyCall";
const UNARY_CALL: &str = "/grpc.testing.TestService/UnaryCall";
const INPUT_CALL: &str = "/grpc.testing.TestService/StreamingInputCall";
const OUTPUT_CALL: &str = "/grpc.testing.TestService/StreamingOutputCall";
const DUPLEX_CALL: &str = "/grpc.testing.TestService/FullDuplexCall";
const NO_METHOD: &str = "/grpc.testing.TestService/UnimplementedCall";
const NO_SERVICE: &str = "/grpc.testing.UnimplementedService/UnimplementedCall";

#[derive(Clone, PartialEq, Message)]
struct Empty {}

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(bytes = "vec", tag = "2")]
    body: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct EchoStatus {
    #[prost(int32, tag = "1")]
    code: i32,
    #[prost(string, tag = "2")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct SimpleRequest {
    #[prost(int32, tag = "2")]
    response_size: i32,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    response_status: Option<EchoStatus>,
}

#[derive(Clone, PartialEq, Message)]
struct InputRequest {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

#[derive(Clone, PartialEq, Message)]
struct InputResponse {
    #[prost(int32, tag = "1")]
    aggregated_payload_size: i32,
}

#[derive(Clone, PartialEq, Message)]
struct ResponseParameters {
    #[prost(int32, tag = "1")]
    size: i32,
}

#[derive(Clone, PartialEq, Message)]
struct OutputRequest {
    #[prost(message, repeated, tag = "2")]
    response_parameters: Vec<ResponseParameters>,
    #[prost(message, optional, tag = "3")]
    payload: Option<Payload>,
    #[prost(message, optional, tag = "7")]
    response_status: Option<EchoStatus>,
}

/// SimpleResponse and StreamingOutputCallResponse.
#[derive(Clone, PartialEq, Message)]
struct Answer {
    #[prost(message, optional, tag = "1")]
    payload: Option<Payload>,
}

impl Answer {
    fn size(&self) -> usize {
        self.payload.as_ref().map_or(0, |payload| payload.body.len())
    }
}

fn payload(size: usize) -> Option<Payload> {
    Some(Payload { body: vec![0; size] })
}

fn asked(sizes: &[usize], request_size: usize) -> OutputRequest {
    let response_parameters = sizes.iter().map(|size| ResponseParameters { size: *size as i32 }).collect();
    OutputRequest { response_parameters, payload: payload(request_size), response_status: None }
}

fn codec<Q: Message + Default + 'static, A: Message + Default + 'static>() -> ProstCodec<Q, A> {
    ProstCodec::default()
}

struct Client(Grpc<Channel>);

impl Client {
    async fn ready(&mut self) {
        self.0.ready().await.expect("the channel is ready");
    }

    async fn unary<Q, A>(&mut self, path: &'static str, request: Request<Q>) -> Result<Response<A>, Status>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        self.ready().await;
        self.0.unary(request, PathAndQuery::from_static(path), codec()).await
    }

    async fn input(
        &mut self,
        requests: impl Stream<Item = InputRequest> + Send + 'static,
    ) -> Result<Response<InputResponse>, Status> {
        self.ready().await;
        self.0.client_streaming(Request::new(requests), PathAndQuery::from_static(INPUT_CALL), codec()).await
    }

    async fn duplex(
        &mut self,
        request: Request<impl Stream<Item = OutputRequest> + Send + 'static>,
    ) -> Result<Response<Streaming<Answer>>, Status> {
        self.ready().await;
        self.0.streaming(request, PathAndQuery::from_static(DUPLEX_CALL), codec()).await
    }

    async fn ends_as_asked(&mut self, text: &str) {
        let status = Some(EchoStatus { code: Code::Unknown as i32, message: text.to_string() });
        let request = SimpleRequest { response_size: 0, payload: None, response_status: status.clone() };
        let error = self.unary::<_, Answer>(UNARY_CALL, Request::new(request)).await.unwrap_err();
        assert_eq!((error.code(), error.message()), (Code::Unknown, text));
        let request = OutputRequest { response_parameters: vec![], payload: None, response_status: status };
        let error = match self.duplex(Request::new(iter([request]))).await {
            Err(error) => error,
            Ok(answers) => answers.into_inner().message().await.unwrap_err(),
        };
        assert_eq!((error.code(), error.message()), (Code::Unknown, text));
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let endpoint = Endpoint::from_shared(format!("http://{}", arguments[1])).unwrap();
    let mut client = Client(Grpc::new(endpoint.connect().await.unwrap()));
    match arguments[2].as_str() {
        "empty_unary" => {
            client.unary::<_, Empty>(EMPTY_CALL, Request::new(Empty {})).await.unwrap();
        }
        "large_unary" => {
            let request = SimpleRequest { response_size: 314_159, payload: payload(271_828), response_status: None };
            let answer = client.unary::<_, Answer>(UNARY_CALL, Request::new(request)).await.unwrap();
            assert_eq!(answer.get_ref().size(), 314_159);
        }
        "client_streaming" => {
            let requests = iter(REQUEST_SIZES).map(|size| InputRequest { payload: payload(size) });
            assert_eq!(client.input(requests).await.unwrap().get_ref().aggregated_payload_size, 74_922);
        }
        "server_streaming" => {
            client.ready().await;
            let request = Request::new(asked(&RESPONSE_SIZES, 0));
            let path = PathAndQuery::from_static(OUTPUT_CALL);
            let answers = client.0.server_streaming(request, path, codec::<_, Answer>()).await.unwrap().into_inner();
            let sizes: Vec<usize> = answers.map(|answer| answer.unwrap().size()).collect().await;
            assert_eq!(sizes, RESPONSE_SIZES);
        }
        "ping_pong" => {
            let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
            let requests = tokio_stream::wrappers::UnboundedReceiverStream::new(receiver);
            sender.send(asked(&RESPONSE_SIZES[..1], REQUEST_SIZES[0])).unwrap();
            let mut answers = client.duplex(Request::new(requests)).await.unwrap().into_inner();
            for at in 0..4 {
                assert_eq!(answers.message().await.unwrap().unwrap().size(), RESPONSE_SIZES[at]);
                if at < 3 {
                    sender.send(asked(&RESPONSE_SIZES[at + 1..at + 2], REQUEST_SIZES[at + 1])).unwrap();
                }
            }
            drop(sender);
            assert!(answers.message().await.unwrap().is_none());
        }
        "empty_stream" => {
            let answers = client.duplex(Request::new(iter([]))).await.unwrap();
            assert!(answers.into_inner().message().await.unwrap().is_none());
        }
        "cancel_after_begin" => {
            let call = client.input(pending());
            assert!(tokio::time::timeout(Duration::from_millis(100), call).await.is_err());
            client.unary::<_, Empty>(EMPTY_CALL, Request::new(Empty {})).await.unwrap();
        }
        "cancel_after_first_response" => {
            let requests = iter([asked(&RESPONSE_SIZES[..1], REQUEST_SIZES[0])]).chain(pending());
            let mut answers = client.duplex(Request::new(requests)).await.unwrap().into_inner();
            assert_eq!(answers.message().await.unwrap().unwrap().size(), RESPONSE_SIZES[0]);
            drop(answers);
            client.unary::<_, Empty>(EMPTY_CALL, Request::new(Empty {})).await.unwrap();
        }
        "timeout_on_sleeping_server" => {
            let mut request = Request::new(iter([asked(&[], REQUEST_SIZES[0])]).chain(pending()));
            request.set_timeout(Duration::from_millis(1));
            let error = match client.duplex(request).await {
                Err(error) => error,
                Ok(answers) => answers.into_inner().message().await.unwrap_err(),
            };
            // tonic reports its own timeout as CANCELLED.
            assert!(matches!(error.code(), Code::DeadlineExceeded | Code::Cancelled), "{error:?}");
        }
        "status_code_and_message" => client.ends_as_asked("test status message").await,
        "special_status_message" => client.ends_as_asked(SPECIAL).await,
        "custom_metadata" => {
            let request = SimpleRequest { response_size: 1, payload: None, response_status: None };
            let mut request = Request::new(request);
            let value = MetadataValue::from_bytes(&[0xab; 3]);
            request.metadata_mut().insert(INITIAL, MetadataValue::from_static("test_initial_metadata_value"));
            request.metadata_mut().insert_bin(TRAILING, value.clone());
            let answer = client.unary::<_, Answer>(UNARY_CALL, request).await.unwrap();
            // tonic merges the trailing metadata of one answer into the initial metadata.
            assert_eq!(answer.metadata().get(INITIAL).unwrap(), "test_initial_metadata_value");
            assert_eq!(answer.metadata().get_bin(TRAILING).unwrap(), value);
            let mut request = Request::new(iter([asked(&[1], 1)]));
            request.metadata_mut().insert(INITIAL, MetadataValue::from_static("test_initial_metadata_value"));
            request.metadata_mut().insert_bin(TRAILING, value.clone());
            let answers = client.duplex(request).await.unwrap();
            assert_eq!(answers.metadata().get(INITIAL).unwrap(), "test_initial_metadata_value");
            let trailers = answers.into_inner().trailers().await.unwrap().unwrap();
            assert_eq!(trailers.get_bin(TRAILING).unwrap(), value);
        }
        "unimplemented_method" | "unimplemented_service" => {
            let path = if arguments[2].ends_with("method") { NO_METHOD } else { NO_SERVICE };
            let error = client.unary::<_, Empty>(path, Request::new(Empty {})).await.unwrap_err();
            assert_eq!(error.code(), Code::Unimplemented);
        }
        unknown => panic!("unknown case {unknown}"),
    }
}
