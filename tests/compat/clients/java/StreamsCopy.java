import java.util.Optional;
import java.util.Properties;
import java.util.Set;

import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.StreamPartitioner;

/** Kafka Streams with exactly_once_v2, as a loop: record N of FROM goes to partition N mod the number of them of TO. */
public final class StreamsCopy {
    public static void main(String[] args) throws Exception {
        String bootstrap = args[1], from = args[2], to = args[3], application = args[4], member = args[5];
        Properties settings = StreamsProgram.settings(bootstrap, application);
        settings.put(StreamsConfig.CLIENT_ID_CONFIG, member);
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), "15000");

        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream(from).to(to, Produced.streamPartitioner(new ByNumber()));
        StreamsProgram.run(builder.build(), settings);
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
