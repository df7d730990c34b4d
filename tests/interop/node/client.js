// gRPC's interop test cases by @grpc/grpc-js: node client.js HOST:PORT CASE
"use strict";

const assert = require("node:assert");
const path = require("node:path");
const official = path.join(__dirname, "../../official/node/node_modules/@grpc");
const grpc = require(path.join(official, "grpc-js"));
const { loadSync } = require(path.join(official, "proto-loader"));

const { testing } = grpc.loadPackageDefinition(loadSync(path.join(__dirname, "../testing.proto"), { keepCase: true })).grpc;
const [address, name] = process.argv.slice(2);
const insecure = grpc.credentials.createInsecure();
const options = { "grpc.max_receive_message_length": 8 << 20, "grpc.max_send_message_length": 8 << 20 };
const client = new testing.TestService(address, insecure, options);
const REQUEST_SIZES = [27182, 8, 1828, 45904];
const RESPONSE_SIZES = [31415, 9, 2653, 58979];
const SPECIAL = "\t\ntest with whitespace\r\nand Unicode BMP ☺ and non-BMP 😈\t\n";
const INITIAL = "x-grpc-test-echo-initial";
const TRAILING = "x-grpc-test-echo-trailing-bin";

const payload = (size) => ({ body: Buffer.alloc(size) });
const asked = (size, requestSize) => ({ response_parameters: [{ size }], payload: payload(requestSize) });

/** Calls a method with one answer; resolves to the error, the answer, and the metadata before and after it. */
function unary(of, method, request, metadata = new grpc.Metadata()) {
  return new Promise((resolve) => {
    const found = {};
    const call = of[method](request, metadata, (error, answer) => Object.assign(found, { error, answer }));
    call.on("metadata", (initial) => (found.initial = initial));
    call.on("status", (status) => setImmediate(() => resolve({ ...found, trailing: status.metadata })));
  });
}

/** Follows a stream of answers; `onAnswer` may write to it. Resolves to its status and its answers. */
function stream(call, onAnswer = () => {}) {
  return new Promise((resolve) => {
    const found = { answers: [] };
    call.on("metadata", (initial) => (found.initial = initial));
    call.on("data", (answer) => {
      found.answers.push(answer.payload.body.length);
      onAnswer(found.answers.length);
    });
    call.on("error", () => {});
    call.on("status", (status) => resolve({ ...found, status }));
  });
}

async function endedAsAsked(text) {
  const response_status = { code: grpc.status.UNKNOWN, message: text };
  const { error } = await unary(client, "UnaryCall", { response_status });
  assert.deepStrictEqual([error.code, error.details], [grpc.status.UNKNOWN, text]);
  const call = client.FullDuplexCall();
  call.end({ response_status });
  const { status } = await stream(call);
  assert.deepStrictEqual([status.code, status.details], [grpc.status.UNKNOWN, text]);
}

const CASES = {
  async empty_unary() {
    assert.deepStrictEqual((await unary(client, "EmptyCall", {})).answer, {});
  },
  async large_unary() {
    const { answer } = await unary(client, "UnaryCall", { response_size: 314159, payload: payload(271828) });
    assert.strictEqual(answer.payload.body.length, 314159);
  },
  async client_streaming() {
    const answer = await new Promise((resolve, reject) => {
      const call = client.StreamingInputCall((error, found) => (error ? reject(error) : resolve(found)));
      REQUEST_SIZES.forEach((size) => call.write({ payload: payload(size) }));
      call.end();
    });
    assert.strictEqual(answer.aggregated_payload_size, 74922);
  },
  async server_streaming() {
    const parameters = RESPONSE_SIZES.map((size) => ({ size }));
    const { answers } = await stream(client.StreamingOutputCall({ response_parameters: parameters }));
    assert.deepStrictEqual(answers, RESPONSE_SIZES);
  },
  async ping_pong() {
    const call = client.FullDuplexCall();
    const next = (at) => (at < 4 ? call.write(asked(RESPONSE_SIZES[at], REQUEST_SIZES[at])) : call.end());
    next(0);
    const { answers, status } = await stream(call, next);
    assert.deepStrictEqual([answers, status.code], [RESPONSE_SIZES, grpc.status.OK]);
  },
  async empty_stream() {
    const call = client.FullDuplexCall();
    call.end();
    const { answers, status } = await stream(call);
    assert.deepStrictEqual([answers, status.code], [[], grpc.status.OK]);
  },
  async cancel_after_begin() {
    const error = await new Promise((resolve) => {
      const call = client.StreamingInputCall(resolve);
      setImmediate(() => call.cancel());
    });
    assert.strictEqual(error.code, grpc.status.CANCELLED);
  },
  async cancel_after_first_response() {
    const call = client.FullDuplexCall();
    call.write(asked(RESPONSE_SIZES[0], REQUEST_SIZES[0]));
    const { status } = await stream(call, () => call.cancel());
    assert.strictEqual(status.code, grpc.status.CANCELLED);
  },
  async timeout_on_sleeping_server() {
    const call = client.FullDuplexCall({ deadline: Date.now() + 1 });
    call.write({ payload: payload(REQUEST_SIZES[0]) });
    const { status } = await stream(call);
    assert.strictEqual(status.code, grpc.status.DEADLINE_EXCEEDED);
  },
  status_code_and_message: () => endedAsAsked("test status message"),
  special_status_message: () => endedAsAsked(SPECIAL),
  async custom_metadata() {
    const given = new grpc.Metadata();
    given.set(INITIAL, "test_initial_metadata_value");
    given.set(TRAILING, Buffer.from("ababab", "hex"));
    const call = client.FullDuplexCall(given);
    call.end(asked(1, 1));
    const streamed = await stream(call);
    const single = await unary(client, "UnaryCall", { response_size: 1 }, given);
    for (const [initial, trailing] of [
      [streamed.initial, streamed.status.metadata],
      [single.initial, single.trailing],
    ]) {
      assert.deepStrictEqual(initial.get(INITIAL), ["test_initial_metadata_value"]);
      assert.deepStrictEqual(trailing.get(TRAILING), [Buffer.from("ababab", "hex")]);
    }
  },
  async unimplemented_method() {
    const { error } = await unary(client, "UnimplementedCall", {});
    assert.strictEqual(error.code, grpc.status.UNIMPLEMENTED);
  },
  async unimplemented_service() {
    const other = new testing.UnimplementedService(address, insecure);
    const { error } = await unary(other, "UnimplementedCall", {});
    assert.strictEqual(error.code, grpc.status.UNIMPLEMENTED);
    other.close();
  },
};

CASES[name]().then(
  () => client.close(),
  (error) => {
    console.error(error);
    process.exit(1);
  },
);
