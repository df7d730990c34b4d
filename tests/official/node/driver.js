// The official Node.js client, driven like driver.py: a command a line in, an answer or event a line out.
'use strict';

const readline = require('node:readline');
const { LitePushConsumerImpl, Producer, PushConsumer, SimpleConsumer, ConsumeResult, FilterExpression } = require('rocketmq-client-nodejs');
const { TransactionResolution, FilterType } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const endpoints = process.argv[2];
const quiet = { debug() {}, info() {}, warn() {}, error() {}, close() {} };
const clients = new Map();
const received = new Map();
const transactions = new Map();
const verdicts = { commit: TransactionResolution.COMMIT, rollback: TransactionResolution.ROLLBACK };

const say = line => process.stdout.write(JSON.stringify(line) + '\n');

const plain = view => ({
  message_id: view.messageId,
  topic: view.topic,
  body: view.body.toString('base64'),
  tag: view.tag || null,
  keys: [...view.keys].sort(),
  properties: Object.fromEntries(view.properties),
  message_group: view.messageGroup || null,
  lite_topic: view.liteTopic || null,
  priority: view.priority || null,
  attempt: view.deliveryAttempt,
  corrupted: view.corrupted || false,
  at_ms: Date.now(),
});

const expressions = wanted => new Map(Object.entries(wanted).map(([ topic, one ]) =>
  [ topic, new FilterExpression(one.expression, one.sql ? FilterType.SQL : FilterType.TAG) ]));

const base = ask => ({
  endpoints,
  namespace: '',
  logger: quiet,
  requestTimeout: (ask.timeout_s || 3) * 1000,
  ...(ask.credentials ? { sessionCredentials: { accessKey: ask.credentials[0], accessSecret: ask.credentials[1] } } : {}),
});

const commands = {
  async producer(ask) {
    const options = { ...base(ask), topics: ask.topics };
    if ('verdict' in ask) {
      options.checker = {
        async check(view) {
          say({ event: 'check', message_id: view.messageId });
          return verdicts[ask.verdict] || TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED;
        },
      };
    }
    const client = new Producer(options);
    await client.startup();
    clients.set(ask.name, client);
  },
  async send(ask) {
    const receipt = await clients.get(ask.name).send({
      topic: ask.topic,
      body: Buffer.from(ask.body, 'base64'),
      tag: ask.tag,
      keys: ask.keys || [],
      properties: new Map(Object.entries(ask.properties || {})),
      messageGroup: ask.message_group,
      liteTopic: ask.lite_topic,
      priority: ask.priority,
      ...(ask.delay_s ? { deliveryTimestamp: new Date(Date.now() + ask.delay_s * 1000) } : {}),
    }, transactions.get(ask.transaction));
    return { message_id: receipt.messageId, recall_handle: receipt.recallHandle, offset: Number(receipt.offset) };
  },
  async begin(ask) { transactions.set(ask.transaction, clients.get(ask.name).beginTransaction()); },
  async commit(ask) { await transactions.get(ask.transaction).commit(); },
  async rollback(ask) { await transactions.get(ask.transaction).rollback(); },
  async recall(ask) {
    const receipt = await clients.get(ask.name).recallMessage(ask.topic, ask.recall_handle);
    return { receipt: receipt.messageId };
  },
  async push(ask) {
    const client = new PushConsumer({
      ...base(ask),
      consumerGroup: ask.group,
      subscriptions: expressions(ask.subscriptions),
      messageListener: {
        async consume(view) {
          const failed = (view.deliveryAttempt || 1) <= (ask.failures || 0);
          say({ event: 'message', consumer: ask.name, failed, ...plain(view) });
          if (ask.busy_s) await new Promise(resolve => setTimeout(resolve, ask.busy_s * 1000));
          return failed ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    });
    await client.startup();
    clients.set(ask.name, client);
  },
  async simple(ask) {
    const client = new SimpleConsumer({
      ...base(ask),
      consumerGroup: ask.group,
      subscriptions: expressions(ask.subscriptions),
      awaitDuration: (ask.await_s || 5) * 1000,
    });
    await client.startup();
    clients.set(ask.name, client);
  },
  async lite_push(ask) {
    const client = new LitePushConsumerImpl({
      ...base(ask),
      consumerGroup: ask.group,
      bindTopic: ask.topic,
      messageListener: {
        async consume(view) {
          const failed = (view.deliveryAttempt || 1) <= (ask.failures || 0);
          say({ event: 'message', consumer: ask.name, failed, ...plain(view) });
          return failed ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    });
    await client.startup();
    clients.set(ask.name, client);
  },
  async subscribe_lite(ask) { await clients.get(ask.name).subscribeLite(ask.lite_topic); },
  async unsubscribe_lite(ask) { await clients.get(ask.name).unsubscribeLite(ask.lite_topic); },
  async receive(ask) {
    const views = await clients.get(ask.name).receive(ask.count, ask.invisible_s * 1000);
    views.forEach(view => received.set(view.messageId, view));
    return { messages: views.map(plain) };
  },
  async ack(ask) { await clients.get(ask.name).ack(received.get(ask.message_id)); },
  async invisible(ask) {
    await clients.get(ask.name).changeInvisibleDuration(received.get(ask.message_id), ask.seconds * 1000);
  },
  async shutdown(ask) {
    const client = clients.get(ask.name);
    clients.delete(ask.name);
    await client.shutdown();
  },
};

readline.createInterface({ input: process.stdin })
  .on('line', line => {
    const ask = JSON.parse(line);
    commands[ask.do](ask).then(
      answer => say({ id: ask.id, ...answer }),
      error => say({ id: ask.id, error: `${error.name}: ${error.message}` }));
  })
  .on('close', () => process.exit(0));
