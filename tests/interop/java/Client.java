import com.google.protobuf.ByteString;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import grpc.testing.Testing.Empty;
import grpc.testing.Testing.EchoStatus;
import grpc.testing.Testing.Payload;
import grpc.testing.Testing.ResponseParameters;
import grpc.testing.Testing.SimpleRequest;
import grpc.testing.Testing.SimpleResponse;
import grpc.testing.Testing.StreamingInputCallRequest;
import grpc.testing.Testing.StreamingInputCallResponse;
import grpc.testing.Testing.StreamingOutputCallRequest;
import grpc.testing.Testing.StreamingOutputCallResponse;
import java.util.Iterator;
import java.util.Objects;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;

/** gRPC's interop test cases by grpc-java: java Client HOST:PORT CASE. */
public class Client {
  static final int[] REQUEST_SIZES = {27_182, 8, 1_828, 45_904};
  static final int[] RESPONSE_SIZES = {31_415, 9, 2_653, 58_979};
  static final String SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP \u263a and non-BMP \ud83d\ude08\t\n";
  static final Metadata.Key<String> INITIAL =
      Metadata.Key.of("x-grpc-test-echo-initial", Metadata.ASCII_STRING_MARSHALLER);
  static final Metadata.Key<byte[]> TRAILING =
      Metadata.Key.of("x-grpc-test-echo-trailing-bin", Metadata.BINARY_BYTE_MARSHALLER);

  static final String SERVICE = "grpc.testing.TestService/";
  static final MethodDescriptor<Empty, Empty> EMPTY_CALL =
      method(SERVICE + "EmptyCall", MethodType.UNARY, Empty.getDefaultInstance(), Empty.getDefaultInstance());
  static final MethodDescriptor<Empty, Empty> NO_METHOD =
      method(SERVICE + "UnimplementedCall", MethodType.UNARY, Empty.getDefaultInstance(), Empty.getDefaultInstance());
  static final MethodDescriptor<Empty, Empty> NO_SERVICE =
      method(
          "grpc.testing.UnimplementedService/UnimplementedCall",
          MethodType.UNARY,
          Empty.getDefaultInstance(),
          Empty.getDefaultInstance());
  static final MethodDescriptor<SimpleRequest, SimpleResponse> UNARY_CALL =
      method(
          SERVICE + "UnaryCall",
          MethodType.UNARY,
          SimpleRequest.getDefaultInstance(),
          SimpleResponse.getDefaultInstance());
  static final MethodDescriptor<StreamingInputCallRequest, StreamingInputCallResponse> INPUT_CALL =
      method(
          SERVICE + "StreamingInputCall",
          MethodType.CLIENT_STREAMING,
          StreamingInputCallRequest.getDefaultInstance(),
          StreamingInputCallResponse.getDefaultInstance());
  static final MethodDescriptor<StreamingOutputCallRequest, StreamingOutputCallResponse> OUTPUT_CALL =
      method(
          SERVICE + "StreamingOutputCall",
          MethodType.SERVER_STREAMING,
          StreamingOutputCallRequest.getDefaultInstance(),
          StreamingOutputCallResponse.getDefaultInstance());
  static final MethodDescriptor<StreamingOutputCallRequest, StreamingOutputCallResponse> DUPLEX_CALL =
      method(
          SERVICE + "FullDuplexCall",
          MethodType.BIDI_STREAMING,
          StreamingOutputCallRequest.getDefaultInstance(),
          StreamingOutputCallResponse.getDefaultInstance());

  static <Q extends Message, A extends Message> MethodDescriptor<Q, A> method(
      String name, MethodType type, Q request, A answer) {
    return MethodDescriptor.newBuilder(ProtoUtils.marshaller(request), ProtoUtils.marshaller(answer))
        .setFullMethodName(name)
        .setType(type)
        .build();
  }

  static <Q, A> A unary(Channel channel, MethodDescriptor<Q, A> method, Q request) {
    return ClientCalls.blockingUnaryCall(channel, method, CallOptions.DEFAULT, request);
  }

  /** Begins a call with many requests, which can be cancelled. */
  static <Q, A> Sending<Q> begin(Channel channel, MethodDescriptor<Q, A> method, Seen<A> seen, CallOptions options) {
    ClientCall<Q, A> call = channel.newCall(method, options);
    boolean hasMany = method.getType() == MethodType.BIDI_STREAMING;
    StreamObserver<Q> requests =
        hasMany ? ClientCalls.asyncBidiStreamingCall(call, seen) : ClientCalls.asyncClientStreamingCall(call, seen);
    return new Sending<>(call, requests);
  }

  static class Sending<Q> {
    final ClientCall<Q, ?> call;
    final StreamObserver<Q> requests;

    Sending(ClientCall<Q, ?> call, StreamObserver<Q> requests) {
      this.call = call;
      this.requests = requests;
    }
  }

  /** The answers of a stream and its status, in the order of their arrival. */
  static class Seen<T> implements StreamObserver<T> {
    final BlockingQueue<Object> all = new LinkedBlockingQueue<>();

    @Override
    public void onNext(T answer) {
      all.add(answer);
    }

    @Override
    public void onError(Throwable error) {
      all.add(Status.fromThrowable(error));
    }

    @Override
    public void onCompleted() {
      all.add(Status.OK);
    }

    Object next() throws InterruptedException {
      return Objects.requireNonNull(all.poll(60, TimeUnit.SECONDS), "no answer in time");
    }

    int size() throws InterruptedException {
      return ((StreamingOutputCallResponse) next()).getPayload().getBody().size();
    }

    Status status() throws InterruptedException {
      return (Status) next();
    }
  }

  static Payload payload(int size) {
    return Payload.newBuilder().setBody(ByteString.copyFrom(new byte[size])).build();
  }

  static StreamingOutputCallRequest asked(int requestSize, int... sizes) {
    StreamingOutputCallRequest.Builder made = StreamingOutputCallRequest.newBuilder().setPayload(payload(requestSize));
    for (int size : sizes) {
      made.addResponseParameters(ResponseParameters.newBuilder().setSize(size));
    }
    return made.build();
  }

  static void same(Object expected, Object found) {
    if (!expected.equals(found)) {
      throw new AssertionError("expected " + expected + ", found " + found);
    }
  }

  static Status failure(Runnable call) {
    try {
      call.run();
    } catch (StatusRuntimeException error) {
      return error.getStatus();
    }
    throw new AssertionError("the call succeeded");
  }

  static void endsAsAsked(ManagedChannel channel, String text) throws InterruptedException {
    EchoStatus wanted = EchoStatus.newBuilder().setCode(2).setMessage(text).build();
    SimpleRequest request = SimpleRequest.newBuilder().setResponseStatus(wanted).build();
    Status single = failure(() -> unary(channel, UNARY_CALL, request));
    Seen<StreamingOutputCallResponse> seen = new Seen<>();
    begin(channel, DUPLEX_CALL, seen, CallOptions.DEFAULT)
        .requests
        .onNext(StreamingOutputCallRequest.newBuilder().setResponseStatus(wanted).build());
    for (Status status : new Status[] {single, seen.status()}) {
      same(Status.Code.UNKNOWN, status.getCode());
      same(text, status.getDescription());
    }
  }

  static void customMetadata(ManagedChannel channel) throws InterruptedException {
    Metadata given = new Metadata();
    given.put(INITIAL, "test_initial_metadata_value");
    given.put(TRAILING, new byte[] {(byte) 0xab, (byte) 0xab, (byte) 0xab});
    for (boolean isStream : new boolean[] {false, true}) {
      AtomicReference<Metadata> initial = new AtomicReference<>();
      AtomicReference<Metadata> trailing = new AtomicReference<>();
      Channel around =
          ClientInterceptors.intercept(
              channel,
              MetadataUtils.newAttachHeadersInterceptor(given),
              MetadataUtils.newCaptureMetadataInterceptor(initial, trailing));
      if (isStream) {
        Seen<StreamingOutputCallResponse> seen = new Seen<>();
        Sending<StreamingOutputCallRequest> sending = begin(around, DUPLEX_CALL, seen, CallOptions.DEFAULT);
        sending.requests.onNext(asked(1, 1));
        sending.requests.onCompleted();
        same(1, seen.size());
        same(Status.OK, seen.status());
      } else {
        unary(around, UNARY_CALL, SimpleRequest.newBuilder().setResponseSize(1).build());
      }
      same("test_initial_metadata_value", initial.get().get(INITIAL));
      same(ByteString.copyFrom(given.get(TRAILING)), ByteString.copyFrom(trailing.get().get(TRAILING)));
    }
  }

  static void run(String name, ManagedChannel channel) throws InterruptedException {
    Empty empty = Empty.getDefaultInstance();
    CallOptions usual = CallOptions.DEFAULT;
    Seen<StreamingOutputCallResponse> seen = new Seen<>();
    Seen<StreamingInputCallResponse> total = new Seen<>();
    switch (name) {
      case "empty_unary":
        same(empty, unary(channel, EMPTY_CALL, empty));
        break;
      case "large_unary":
        SimpleRequest large = SimpleRequest.newBuilder().setResponseSize(314_159).setPayload(payload(271_828)).build();
        same(314_159, unary(channel, UNARY_CALL, large).getPayload().getBody().size());
        break;
      case "client_streaming":
        StreamObserver<StreamingInputCallRequest> input = begin(channel, INPUT_CALL, total, usual).requests;
        for (int size : REQUEST_SIZES) {
          input.onNext(StreamingInputCallRequest.newBuilder().setPayload(payload(size)).build());
        }
        input.onCompleted();
        same(74_922, ((StreamingInputCallResponse) total.next()).getAggregatedPayloadSize());
        same(Status.OK, total.status());
        break;
      case "server_streaming":
        Iterator<StreamingOutputCallResponse> answers =
            ClientCalls.blockingServerStreamingCall(channel, OUTPUT_CALL, usual, asked(0, RESPONSE_SIZES));
        for (int size : RESPONSE_SIZES) {
          same(size, answers.next().getPayload().getBody().size());
        }
        same(false, answers.hasNext());
        break;
      case "ping_pong":
        StreamObserver<StreamingOutputCallRequest> pings = begin(channel, DUPLEX_CALL, seen, usual).requests;
        for (int at = 0; at < 4; at++) {
          pings.onNext(asked(REQUEST_SIZES[at], RESPONSE_SIZES[at]));
          same(RESPONSE_SIZES[at], seen.size());
        }
        pings.onCompleted();
        same(Status.OK, seen.status());
        break;
      case "empty_stream":
        begin(channel, DUPLEX_CALL, seen, usual).requests.onCompleted();
        same(Status.OK, seen.status());
        break;
      case "cancel_after_begin":
        begin(channel, INPUT_CALL, total, usual).call.cancel("the test case", null);
        same(Status.Code.CANCELLED, total.status().getCode());
        break;
      case "cancel_after_first_response":
        Sending<StreamingOutputCallRequest> sending = begin(channel, DUPLEX_CALL, seen, usual);
        sending.requests.onNext(asked(REQUEST_SIZES[0], RESPONSE_SIZES[0]));
        same(RESPONSE_SIZES[0], seen.size());
        sending.call.cancel("the test case", null);
        same(Status.Code.CANCELLED, seen.status().getCode());
        break;
      case "timeout_on_sleeping_server":
        CallOptions soon = usual.withDeadlineAfter(1, TimeUnit.MILLISECONDS);
        begin(channel, DUPLEX_CALL, seen, soon).requests.onNext(asked(REQUEST_SIZES[0]));
        same(Status.Code.DEADLINE_EXCEEDED, seen.status().getCode());
        break;
      case "status_code_and_message":
        endsAsAsked(channel, "test status message");
        break;
      case "special_status_message":
        endsAsAsked(channel, SPECIAL);
        break;
      case "custom_metadata":
        customMetadata(channel);
        break;
      case "unimplemented_method":
        same(Status.Code.UNIMPLEMENTED, failure(() -> unary(channel, NO_METHOD, empty)).getCode());
        break;
      case "unimplemented_service":
        same(Status.Code.UNIMPLEMENTED, failure(() -> unary(channel, NO_SERVICE, empty)).getCode());
        break;
      default:
        throw new AssertionError("unknown case " + name);
    }
  }

  public static void main(String[] arguments) throws Exception {
    ManagedChannel channel = NettyChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
    try {
      run(arguments[1], channel);
    } finally {
      channel.shutdownNow();
    }
    System.exit(0);
  }
}
