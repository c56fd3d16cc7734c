package kafkatool;

import java.io.EOFException;
import java.io.IOException;
import java.io.Serializable;
import java.util.Iterator;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.function.FlatMapFunction;
import org.apache.spark.deploy.SparkHadoopUtil;

/**
 * Reads ranges of files through Hadoop's file systems, which are Spark's connectors (hdfs, s3a, ...).
 *
 * Spark offers Python whole files or lines as text, but neither pieces of a large file nor bytes that are no UTF-8. Janino,
 * the compiler that Spark brings for its own generated code, compiles this on the driver: no generics, no lambdas.
 *
 * An element is a text of requests, one on a line: header TAB uri TAB offset TAB length. Each becomes one byte array:
 * the header, a line's end, the bytes.
 */
public class RangeReader implements FlatMapFunction, Serializable {
    public Iterator call(Object requests) {
        return new Frames(((String) requests).split("\n"));
    }

    public byte[] read(String uri, String offset, String length) throws IOException {
        return range(new byte[0], uri, Long.parseLong(offset), Integer.parseInt(length));
    }

    static byte[] range(byte[] header, String uri, long offset, int length) throws IOException {
        Path path = new Path(uri);
        byte[] frame = new byte[header.length + length];
        System.arraycopy(header, 0, frame, 0, header.length);
        FSDataInputStream in = path.getFileSystem(SparkHadoopUtil.get().conf()).open(path);
        try {
            in.readFully(offset, frame, header.length, length);
        } catch (EOFException e) {
            throw new IOException(uri + " became shorter while it was read; merge a copy of it");
        } finally {
            in.close();
        }
        return frame;
    }

    static class Frames implements Iterator {
        private final String[] requests;
        private int at = 0;

        Frames(String[] requests) {
            this.requests = requests;
        }

        public boolean hasNext() {
            return this.at < this.requests.length;
        }

        public void remove() {
            throw new UnsupportedOperationException();
        }

        public Object next() {
            String[] request = this.requests[this.at++].split("\t");
            try {
                byte[] header = (request[0] + "\n").getBytes("UTF-8");
                return range(header, request[1], Long.parseLong(request[2]), Integer.parseInt(request[3]));
            } catch (IOException e) {
                throw new RuntimeException(e.getMessage(), e);
            }
        }
    }
}
