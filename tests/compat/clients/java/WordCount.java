import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.state.Stores;

/** Kafka Streams with exactly_once_v2: every word of FROM is counted, and each new count of it goes to TO. */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], from = args[1], to = args[2], application = args[3], directory = args[4];
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, directory);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // every count is told, none skipped
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(from)
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as(Stores.inMemoryKeyValueStore("counts")))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(to);

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(e -> {
            e.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        System.out.println("{\"client\": \"Kafka Streams 3.9.1\"}");
        streams.start();
        while (System.in.read() >= 0) {
            // until it is told to end
        }
        if (!streams.close(Duration.ofSeconds(120))) {
            System.exit(1);
        }
    }
}
