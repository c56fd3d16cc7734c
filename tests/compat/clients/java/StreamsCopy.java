import java.time.Duration;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StreamPartitioner;

/** Kafka Streams with exactly_once_v2, as a loop: record N of FROM goes to partition N mod the number of them of TO. */
public final class StreamsCopy {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[1], from = args[2], to = args[3], application = args[4], member = args[5];
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, member);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "15000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(from).to(to, Produced.streamPartitioner(new ByNumber()));
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

    private static final class ByNumber implements StreamPartitioner<String, String> {
        @Override
        @Deprecated
        public Integer partition(String topic, String key, String value, int partitions) {
            return Integer.parseInt(key) % partitions;
        }

        @Override
        public Optional<Set<Integer>> partitions(String topic, String key, String value, int partitions) {
            return Optional.of(Set.of(Integer.parseInt(key) % partitions));
        }
    }
}
