package kafkatool;

import java.io.EOFException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.Serializable;
import java.util.Iterator;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
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

    /**
     * Finds the files that a path names, or a pattern if nothing has that name, a line for each: uri TAB size. Of a
     * directory those at any depth whose names contain a word. All in one call, and not by listFiles: on disks here that runs a program for each file, to
     * learn of rights that nobody asks for.
     */
    public String list(String uri, String word) throws IOException {
        Path path = new Path(uri);
        FileSystem files = path.getFileSystem(SparkHadoopUtil.get().conf());
        StringBuilder found = new StringBuilder();
        FileStatus[] named;
        try {
            named = new FileStatus[] {files.getFileStatus(path)};
        } catch (FileNotFoundException e) {
            named = files.globStatus(path);
        }
        for (int i = 0; named != null && i < named.length; i++) {
            if (named[i].isFile()) {
                add(found, named[i]);
            } else {
                below(files, named[i].getPath(), word, found);
            }
        }
        return found.toString();
    }

    private static void below(FileSystem files, Path directory, String word, StringBuilder found) throws IOException {
        FileStatus[] in = files.listStatus(directory);
        for (int i = 0; i < in.length; i++) {
            if (in[i].isDirectory()) {
                below(files, in[i].getPath(), word, found);
            } else if (in[i].getPath().getName().indexOf(word) >= 0) {
                add(found, in[i]);
            }
        }
    }

    private static void add(StringBuilder found, FileStatus file) {
        found.append(file.getPath().toString()).append('\t').append(file.getLen()).append('\n');
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
