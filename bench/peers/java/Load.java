// The official Java client as a load: a command a line in; `begin` when counting begins, `stop` when it stops before
// the command is done, and `end {...}` when it is.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.apis.ClientConfiguration;
import org.apache.rocketmq.client.apis.ClientServiceProvider;
import org.apache.rocketmq.client.apis.consumer.ConsumeResult;
import org.apache.rocketmq.client.apis.consumer.FilterExpression;
import org.apache.rocketmq.client.apis.consumer.MessageListener;
import org.apache.rocketmq.client.apis.consumer.PushConsumer;
import org.apache.rocketmq.client.apis.consumer.SimpleConsumer;
import org.apache.rocketmq.client.apis.message.Message;
import org.apache.rocketmq.client.apis.message.MessageView;
import org.apache.rocketmq.client.apis.producer.Producer;

public class Load {
  private static final ClientServiceProvider PROVIDER = ClientServiceProvider.loadService();
  private static final Duration INVISIBLE = Duration.ofSeconds(60);
  private static final long TRY_FOR_NS = TimeUnit.SECONDS.toNanos(120);
  private static final long ARRIVE_WITHIN_NS = TimeUnit.SECONDS.toNanos(20);
  private static final PrintStream OUT = System.out;

  private final byte[] body;
  private ClientConfiguration configuration;
  private Producer producer;

  private Load(int bodyBytes) {
    body = new byte[bodyBytes];
    new Random(1).nextBytes(body);
  }

  public static void main(String[] arguments) throws Exception {
    System.setOut(System.err);
    Load load = new Load(Integer.parseInt(arguments[0]));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    say("end {}");  // the program itself is up
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      String[] words = line.split(" ");
      try {
        say("end " + load.run(words));
      } catch (Throwable error) {
        error.printStackTrace();
        say("failed " + line + ": " + error);
      }
    }
    System.exit(0);  // some of the client's threads would hold up the end
  }

  private static synchronized void say(String line) {
    OUT.println(line);
    OUT.flush();
  }

  private String run(String[] words) throws Exception {
    switch (words[0]) {
      case "first":
        return first(words[1], words[2]);
      case "anchor":
        return anchor(words[1], words[2]);
      case "send":
        return send(words[1], number(words[2]), seconds(words[3]));
      case "simple":
        return simple(words[1], words[2], number(words[3]), number(words[4]), window(words, 5));
      case "push":
        return push(words[1], words[2], number(words[3]), window(words, 4));
      case "steady":
        return steady(words[1], words[2], number(words[3]), number(words[4]), seconds(words[5]), seconds(words[6]));
      default:
        throw new IllegalArgumentException("no such command");
    }
  }

  private static int number(String word) {
    return Integer.parseInt(word);
  }

  private static long seconds(String word) {
    return (long) (Double.parseDouble(word) * 1e9);
  }

  private static Window window(String[] words, int at) {
    return new Window(seconds(words[at]), seconds(words[at + 1]), Integer.parseInt(words[at + 2]));
  }

  private static String figures(String format, Object... values) {
    return "{" + String.format(Locale.ROOT, format.replace('\'', '"'), values) + "}";
  }

  /** Tries until the first message is acknowledged: the servers may be starting still. */
  private String first(String endpoints, String topic) throws Exception {
    configuration = ClientConfiguration.newBuilder().setEndpoints(endpoints).enableSsl(false)
        .setRequestTimeout(Duration.ofSeconds(10)).build();
    long giveUp = System.nanoTime() + TRY_FOR_NS;
    while (true) {
      try {
        if (producer == null) {
          producer = PROVIDER.newProducerBuilder().setClientConfiguration(configuration).setTopics(topic).build();
        }
        producer.send(message(topic, body));
        return "{}";
      } catch (Throwable error) {
        if (System.nanoTime() > giveUp) {
          throw error;
        }
        Thread.sleep(50);
      }
    }
  }

  /** Gives a group its place in a topic: it receives and acknowledges a message, so that nothing later is passed over. */
  private String anchor(String topic, String group) throws Exception {
    long giveUp = System.nanoTime() + TRY_FOR_NS;
    try (SimpleConsumer consumer = simpleConsumer(topic, group, Duration.ofSeconds(1))) {
      while (System.nanoTime() < giveUp) {
        producer.send(message(topic, body));
        for (MessageView view : consumer.receive(32, INVISIBLE)) {
          consumer.ack(view);
          giveUp = 0;
        }
      }
    }
    if (giveUp != 0) {
      throw new IllegalStateException("the group gets no message");
    }
    return "{}";
  }

  /** Threads that each send one message after another. */
  private String send(String topic, int inFlight, long lastsNs) throws Exception {
    ConcurrentLinkedQueue<long[]> all = new ConcurrentLinkedQueue<>();
    AtomicInteger errors = new AtomicInteger();
    long begun = System.nanoTime();
    say("begin");
    together(inFlight, () -> {
      long[] delays = new long[1024];
      int count = 0;
      for (long before = System.nanoTime(); before - begun < lastsNs; before = System.nanoTime()) {
        try {
          producer.send(message(topic, body));
        } catch (Exception error) {
          errors.incrementAndGet();
          continue;
        }
        if (count == delays.length) {
          delays = Arrays.copyOf(delays, 2 * count);
        }
        delays[count++] = System.nanoTime() - before;
      }
      all.add(Arrays.copyOf(delays, count));
    });
    double elapsed = (System.nanoTime() - begun) / 1e9;
    long[] sorted = all.stream().flatMapToLong(Arrays::stream).sorted().toArray();
    return figures("'messages':%d,'per_s':%.1f,'p50_ms':%.3f,'p99_ms':%.3f,'errors':%d", sorted.length,
        sorted.length / elapsed, ms(sorted, 0.5), ms(sorted, 0.99), errors.get());
  }

  private String simple(String topic, String group, int threads, int batch, Window window) throws Exception {
    try (SimpleConsumer consumer = simpleConsumer(topic, group, Duration.ofSeconds(5))) {
      together(threads, () -> {
        while (!window.over()) {
          try {
            for (MessageView view : consumer.receive(batch, INVISIBLE)) {
              consumer.ack(view);
              window.count();
            }
          } catch (Exception error) {
            window.error();
          }
        }
      });
      say("stop");
      return window.figures();
    }
  }

  private String push(String topic, String group, int threads, Window window) throws Exception {
    PushConsumer consumer = pushConsumer(topic, group, threads, view -> {
      window.count();
      return ConsumeResult.SUCCESS;
    });
    while (!window.over()) {
      Thread.sleep(5);
    }
    say("stop");
    String said = window.figures();
    consumer.close();
    return said;
  }

  /** An open loop: each message carries the time at which it was to be sent, and is late by what held it up. */
  private String steady(String topic, String group, int threads, int perS, long warmNs, long lastsNs) throws Exception {
    int warm = (int) (warmNs / 1e9 * perS);
    int counted = (int) (lastsNs / 1e9 * perS);
    long[] delays = new long[warm + counted];
    AtomicInteger arrived = new AtomicInteger();
    PushConsumer consumer = pushConsumer(topic, group, threads, view -> {
      ByteBuffer said = view.getBody();
      if (said.remaining() == body.length && said.getInt() == 0x57EAD1) {
        int number = said.getInt();
        long delay = System.nanoTime() - said.getLong();
        synchronized (delays) {
          if (delays[number] == 0) {
            delays[number] = delay;
            if (number >= warm) {
              arrived.incrementAndGet();
            }
          }
        }
      }
      return ConsumeResult.SUCCESS;
    });
    AtomicInteger errors = new AtomicInteger();
    long begun = System.nanoTime();
    for (int number = 0; number < delays.length; number++) {
      long planned = begun + (long) (number * 1e9 / perS);
      for (long left = planned - System.nanoTime(); left > 0; left = planned - System.nanoTime()) {
        LockSupport.parkNanos(left);
      }
      if (number == warm) {
        say("begin");
      }
      byte[] stamped = body.clone();
      ByteBuffer.wrap(stamped).putInt(0x57EAD1).putInt(number).putLong(planned);
      producer.sendAsync(message(topic, stamped)).exceptionally(error -> {
        errors.incrementAndGet();
        return null;
      });
    }
    long giveUp = System.nanoTime() + ARRIVE_WITHIN_NS;
    while (arrived.get() < counted && System.nanoTime() < giveUp) {
      Thread.sleep(1);
    }
    say("stop"); // closing takes as long as a long poll, twenty seconds in which nothing is sent
    long[] sorted;
    synchronized (delays) {
      sorted = Arrays.stream(delays).skip(warm).filter(delay -> delay > 0).sorted().toArray();
    }
    String said = figures("'messages':%d,'p50_ms':%.3f,'p99_ms':%.3f,'missing':%d,'errors':%d", counted,
        ms(sorted, 0.5), ms(sorted, 0.99), counted - sorted.length, errors.get());
    consumer.close();
    return said;
  }

  private SimpleConsumer simpleConsumer(String topic, String group, Duration await) throws Exception {
    return PROVIDER.newSimpleConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
        .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).setAwaitDuration(await).build();
  }

  private PushConsumer pushConsumer(String topic, String group, int threads, MessageListener listener)
      throws Exception {
    return PROVIDER.newPushConsumerBuilder().setClientConfiguration(configuration).setConsumerGroup(group)
        .setSubscriptionExpressions(Map.of(topic, FilterExpression.SUB_ALL)).setConsumptionThreadCount(threads)
        .setMessageListener(listener).build();
  }

  private static Message message(String topic, byte[] body) {
    return PROVIDER.newMessageBuilder().setTopic(topic).setBody(body).build();
  }

  private static void together(int threads, Runnable work) throws InterruptedException {
    Thread[] started = new Thread[threads];
    for (int at = 0; at < threads; at++) {
      started[at] = new Thread(work);
      started[at].start();
    }
    for (Thread thread : started) {
      thread.join();
    }
  }

  /** The value that a share of the sorted durations does not exceed, by the nearest rank. */
  private static double ms(long[] sorted, double share) {
    return sorted.length == 0 ? -1 : sorted[(int) Math.max(0, Math.ceil(share * sorted.length) - 1)] / 1e6;
  }

  /** What is counted of a backlog: from when the first was warm until the time is over or all of it has come. */
  private static final class Window {
    private final long warmNs;
    private final long lastsNs;
    private final int backlog;
    private final long opened = System.nanoTime();
    private int all;
    private int counted;
    private int errors;
    private long begun;
    private long last;

    Window(long warmNs, long lastsNs, int backlog) {
      this.warmNs = warmNs;
      this.lastsNs = lastsNs;
      this.backlog = backlog;
    }

    synchronized void count() {
      all++;
      long now = System.nanoTime();
      if (begun == 0) {
        if (now - opened >= warmNs || 3 * all >= backlog) {
          begun = now;
          say("begin");
        }
      } else if (now - begun < lastsNs && all <= backlog) {
        counted++;
        last = now;
      }
    }

    synchronized void error() {
      errors++;
    }

    synchronized boolean over() {
      long now = System.nanoTime();
      return all >= backlog || (begun == 0 ? now - opened > TRY_FOR_NS : now - begun >= lastsNs);
    }

    synchronized String figures() {
      return Load.figures("'messages':%d,'per_s':%.1f,'errors':%d,'received':%d", counted,
          counted / Math.max(1e-9, (last - begun) / 1e9), errors, all);
    }
  }
}
