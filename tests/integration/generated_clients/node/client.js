// A client in Node.js made of protos/ alone: it sends, pops, nacks, acknowledges, and prints the results.
'use strict';

const path = require('node:path');
const [ address, protos, modules ] = process.argv.slice(2);
const grpc = require(path.join(modules, '@grpc/grpc-js'));
const loader = require(path.join(modules, '@grpc/proto-loader'));

const files = [ 'admin', 'producer', 'consumer' ].map(name => `ortoo/v1/${name}.proto`);
const { ortoo } = grpc.loadPackageDefinition(
  loader.loadSync(files, { includeDirs: [ protos ], keepCase: true, longs: Number, defaults: true }));
const secure = grpc.credentials.createInsecure();
const admin = new ortoo.v1.AdminService(address, secure);
const producer = new ortoo.v1.ProducerService(address, secure);
const consumer = new ortoo.v1.ConsumerService(address, secure);

const call = (client, method, request) => new Promise((done, failed) =>
  client[method](request, (error, answer) => error ? failed(error) : done(answer)));

const pop = async () => {
  const options = { start_from: 'POP_START_FIRST' };
  const request = { group: 'g', topic: 't', messages_max: 8, wait_ms: 15000, readable: true, options };
  const { batches } = await call(consumer, 'Pop', request);
  return batches.flatMap(batch => batch.offsets.map((offset, at) => ({
    receipt: { receipt_handle: batch.receipt_handle, offsets: [ offset ] },
    seen: {
      offset, attempt: batch.attempts[at] || 1, body: batch.messages[at].body.toString('base64'),
      tag: batch.messages[at].tag, keys: batch.messages[at].keys, of: batch.messages[at].properties.of || '',
    },
  })));
};

(async () => {
  await call(admin, 'CreateTopic', { name: 't', read_queue_count: 1 });
  const messages = [
    { body: Buffer.from([ 0, 255 ]), tag: 'urgent', keys: [ 'k-1', 'k-2' ], properties: { of: 'bank' } },
    { body: Buffer.from('second') },
  ];
  const { receipts } = await call(producer, 'Publish', { topic: 't', messages });
  const said = { stored: receipts.map(receipt => receipt.offset) };
  try {
    await call(producer, 'Publish', { topic: 'absent', messages });
  } catch (error) {
    said.refused = error.code;
  }
  const first = await pop();
  said.first = first.map(one => one.seen);
  await call(consumer, 'Ack', { receipts: [ first[0].receipt ] });
  await call(consumer, 'Nack', { receipts: [ first[1].receipt ], delay_ms: 0, error: 'not yet' });
  const again = await pop();
  said.again = again.map(one => one.seen);
  await call(consumer, 'Ack', { receipts: again.map(one => one.receipt) });
  said.lag = (await call(admin, 'DescribeLag', { group: 'g', topic: 't' })).lag_messages;
  console.log(JSON.stringify(said));
  process.exit(0);
})();
