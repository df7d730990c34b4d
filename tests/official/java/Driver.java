// The official Java client, driven like driver.py: a command a line in, an answer or event a line out.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientConfigurationBuilder;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.FilterExpressionType;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.MessageBuilder;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;
import org.apache.rocketmq.client.apis.producer.ProducerBuilder;
import org.apache.rocketmq.client.apis.producer.SendReceipt;
import org.apache.rocketmq.client.apis.producer.Transaction;
import org.apache.rocketmq.client.apis.producer.TransactionResolution;
import org.apache.rocketmq.shaded.com.google.gson.Gson;
import org.apache.rocketmq.shaded.com.google.gson.JsonElement;
import org.apache.rocketmq.shaded.com.google.gson.JsonObject;

public class Driver {
  private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  private static final Gson GSON = new Gson();
  private static final PrintStream OUT = System.out;

  private final String endpoints;
  private final Map<String, AutoCloseable> clients = new ConcurrentHashMap<>();
  private final Map<String, MessageView> received = new ConcurrentHashMap<>();
  private final Map<String, Transaction> transactions = new ConcurrentHashMap<>();

  private Driver(String endpoints) {
    this.endpoints = endpoints;
  }

  public static void main(String[] arguments) throws Exception {
    System.setOut(System.err);
    Driver driver = new Driver(arguments[0]);
    ExecutorService pool = Executors.newFixedThreadPool(32);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonObject ask = GSON.fromJson(line, JsonObject.class);
      pool.submit(() -> driver.answer(ask));
    }
    System.exit(0);
  }

  private static synchronized void say(Map<String, Object> line) {
    OUT.println(GSON.toJson(line));
    OUT.flush();
  }

  private void answer(JsonObject ask) {
    Map<String, Object> answer = new HashMap<>();
    try {
      answer.putAll(run(ask));
    } catch (Throwable error) {
      answer.put("error", error.toString());
    }
    answer.put("id", ask.get("id").getAsInt());
    say(answer);
  }

  private Map<String, Object> run(JsonObject ask) throws Exception {
    String name = ask.get("name").getAsString();
    switch (ask.get("do").getAsString()) {
      case "producer":
        List<String> topics = new ArrayList<>();
        ask.getAsJsonArray("topics").forEach(topic -> topics.add(topic.getAsString()));
        ProducerBuilder starting = PROVIDER.newProducerBuilder().setClientConfiguration(configuration(ask))
            .setTopics(topics.toArray(new String[0]));
        if (ask.has("verdict")) {
          starting.setTransactionChecker(
              view -> TransactionResolution.valueOf(ask.get("verdict").getAsString().toUpperCase()));
        }
        clients.put(name, starting.build());
        return Map.of();
      case "send":
        Producer producer = (Producer) clients.get(name);
        SendReceipt receipt = ask.has("transaction")
            ? producer.send(message(ask), transactions.get(ask.get("transaction").getAsString()))
            : producer.send(message(ask));
        return Map.of("message_id", receipt.getMessageId().toString());
      case "begin":
        transactions.put(ask.get("transaction").getAsString(), ((Producer) clients.get(name)).beginTransaction());
        return Map.of();
      case "commit":
        transactions.remove(ask.get("transaction").getAsString()).commit();
        return Map.of();
      case "push":
        int failures = ask.has("failures") ? ask.get("failures").getAsInt() : 0;
        clients.put(name, PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration(ask))
            .setConsumerGroup(ask.get("group").getAsString()).setSubscriptionExpressions(expressions(ask))
            .setMessageListener(view -> {
              boolean failed = view.getDeliveryAttempt() <= failures;
              Map<String, Object> event = plain(view);
              event.putAll(Map.of("event", "message", "consumer", name, "failed", failed));
              say(event);
              return failed ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
            }).build());
        return Map.of();
      case "simple":
        clients.put(name, PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration(ask))
            .setConsumerGroup(ask.get("group").getAsString()).setSubscriptionExpressions(expressions(ask))
            .setAwaitDuration(Duration.ofSeconds(ask.has("await_s") ? ask.get("await_s").getAsInt() : 5)).build());
        return Map.of();
      case "receive":
        List<Map<String, Object>> messages = new ArrayList<>();
        for (MessageView view : ((SimpleConsumer) clients.get(name)).receive(
            ask.get("count").getAsInt(), Duration.ofSeconds(ask.get("invisible_s").getAsInt()))) {
          received.put(view.getMessageId().toString(), view);
          messages.add(plain(view));
        }
        return Map.of("messages", messages);
      case "ack":
        ((SimpleConsumer) clients.get(name)).ack(received.get(ask.get("message_id").getAsString()));
        return Map.of();
      case "shutdown":
        clients.remove(name).close();
        return Map.of();
      default:
        throw new IllegalArgumentException("no such command: " + ask.get("do"));
    }
  }

  private ClientConfiguration configuration(JsonObject ask) {
    // The default includes the start of its threads, slow on a busy machine.
    int timeoutS = ask.has("timeout_s") ? ask.get("timeout_s").getAsInt() : 20;
    ClientConfigurationBuilder builder = ClientConfiguration.newBuilder().setEndpoints(endpoints)
        .setRequestTimeout(Duration.ofSeconds(timeoutS));
    if (ask.has("tls")) {
      builder.enableSsl(ask.get("tls").getAsBoolean());  // otherwise the client's default
    }
    return builder.build();
  }

  private static Map<String, FilterExpression> expressions(JsonObject ask) {
    Map<String, FilterExpression> wanted = new HashMap<>();
    for (Map.Entry<String, JsonElement> one : ask.getAsJsonObject("subscriptions").entrySet()) {
      JsonObject said = one.getValue().getAsJsonObject();
      boolean sql = said.has("sql") && said.get("sql").getAsBoolean();
      wanted.put(one.getKey(), new FilterExpression(
          said.get("expression").getAsString(), sql ? FilterExpressionType.SQL92 : FilterExpressionType.TAG));
    }
    return wanted;
  }

  private static org.apache.rocketmq.client.apis.message.Message message(JsonObject ask) {
    MessageBuilder builder = PROVIDER.newMessageBuilder().setTopic(ask.get("topic").getAsString())
        .setBody(Base64.getDecoder().decode(ask.get("body").getAsString()));
    if (ask.has("tag")) {
      builder.setTag(ask.get("tag").getAsString());
    }
    if (ask.has("keys")) {
      List<String> keys = new ArrayList<>();
      ask.getAsJsonArray("keys").forEach(key -> keys.add(key.getAsString()));
      builder.setKeys(keys.toArray(new String[0]));
    }
    if (ask.has("properties")) {
      ask.getAsJsonObject("properties").entrySet()
          .forEach(one -> builder.addProperty(one.getKey(), one.getValue().getAsString()));
    }
    if (ask.has("message_group")) {
      builder.setMessageGroup(ask.get("message_group").getAsString());
    }
    return builder.build();
  }

  private static Map<String, Object> plain(MessageView view) {
    ByteBuffer body = view.getBody();
    byte[] bytes = new byte[body.remaining()];
    body.get(bytes);
    Map<String, Object> said = new HashMap<>();
    said.put("message_id", view.getMessageId().toString());
    said.put("topic", view.getTopic());
    said.put("body", Base64.getEncoder().encodeToString(bytes));
    said.put("tag", view.getTag().orElse(null));
    said.put("keys", new TreeSet<>(view.getKeys()));
    said.put("properties", view.getProperties());
    said.put("message_group", view.getMessageGroup().orElse(null));
    said.put("attempt", view.getDeliveryAttempt());
    return said;
  }
}
