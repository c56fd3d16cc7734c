import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads "key version request|response hex" lines; answers "header-version bytes-left hex-written-again hex-of-json", by
 * Kafka's own classes.
 */
public class KafkaOracle {
    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        HexFormat hex = HexFormat.of();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                String[] words = line.split(" ", -1);
                short version = Short.parseShort(words[1]);
                ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
                boolean asks = words[2].equals("request");
                ApiMessage message = asks ? type.newRequest() : type.newResponse();
                short header = asks ? type.requestHeaderVersion(version) : type.responseHeaderVersion(version);
                ByteBuffer in = ByteBuffer.wrap(hex.parseHex(words[3]));
                message.read(new ByteBufferAccessor(in), version);
                ObjectSerializationCache cache = new ObjectSerializationCache();
                ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
                message.write(new ByteBufferAccessor(out), cache, version);
                Object json = Class.forName(message.getClass().getName() + "JsonConverter")
                    .getMethod("write", message.getClass(), short.class)
                    .invoke(null, message, version);
                System.out.println(header + " " + in.remaining() + " " + hex.formatHex(out.array()) + " "
                    + hex.formatHex(json.toString().getBytes("UTF-8")));
            } catch (Exception e) {
                System.out.println("error " + e.toString().replace('\n', ' '));
            }
        }
    }
}
