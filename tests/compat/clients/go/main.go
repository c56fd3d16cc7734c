// franz-go; see ../README.md.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var printing sync.Mutex

func emit(name string, what any) {
	line, err := json.Marshal(map[string]any{name: what})
	if err != nil {
		log.Fatal(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

// logIn reads what librdkafka would from the file of CLIENT_CONFIG.
func logIn() []kgo.Opt {
	path := os.Getenv("CLIENT_CONFIG")
	if path == "" {
		return nil
	}
	told := map[string]string{}
	for _, line := range strings.Split(string(read(path)), "\n") {
		name, value, _ := strings.Cut(line, "=")
		told[name] = value
	}
	var options []kgo.Opt
	if told["ssl.ca.location"] != "" {
		trusted := x509.NewCertPool()
		trusted.AppendCertsFromPEM(read(told["ssl.ca.location"]))
		config := &tls.Config{RootCAs: trusted}
		if told["ssl.key.location"] != "" {
			pair, err := tls.LoadX509KeyPair(told["ssl.certificate.location"], told["ssl.key.location"])
			if err != nil {
				log.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	user, password := told["sasl.username"], told["sasl.password"]
	switch told["sasl.mechanism"] {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	}
	return options
}

func read(path string) []byte {
	content, err := os.ReadFile(path)
	if err != nil {
		log.Fatal(err)
	}
	return content
}

func client(bootstrap string, options ...kgo.Opt) *kgo.Client {
	options = append(options, logIn()...)
	c, err := kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(bootstrap, ",")...))...)
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func record(topic, prefix string, number int) *kgo.Record {
	return &kgo.Record{
		Topic: topic,
		Key:   []byte(strconv.Itoa(number)),
		Value: []byte(fmt.Sprintf("%s-%d-%s", prefix, number, strings.Repeat("x", 100))),
	}
}

func send(c *kgo.Client, topic, prefix string, number int) {
	c.Produce(context.Background(), record(topic, prefix, number), func(_ *kgo.Record, err error) {
		if err != nil {
			log.Fatal(err)
		}
		emit("acknowledged", number)
	})
}

func flush(c *kgo.Client) {
	if err := c.Flush(context.Background()); err != nil {
		log.Fatal(err)
	}
	c.Close()
}

func produce(bootstrap, topic, prefix string, count int, codec string) {
	c := client(bootstrap, kgo.ProducerBatchCompression(codecs[codec]))
	for number := range count {
		send(c, topic, prefix, number)
	}
	flush(c)
}

// load leaves acks as they are: all, and idempotent, is franz-go's default. Its default to give records up when a broker
// says four times that it knows no such topic is too short for one that is back and waits for a busy controller's word.
func load(bootstrap, topic, prefix string) {
	c := client(bootstrap, kgo.UnknownTopicRetries(-1))
	ended := stdinEnded()
	for number := 0; ended.Err() == nil; number++ {
		send(c, topic, prefix, number)
		time.Sleep(50 * time.Millisecond)
	}
	flush(c)
}

func consume(bootstrap string, topics []string, count int, isolation kgo.IsolationLevel) {
	c := client(bootstrap, kgo.ConsumeTopics(topics...), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(isolation))
	for count > 0 {
		count -= emitPolled(context.Background(), c)
	}
	c.Close()
}

func group(bootstrap, topic, name string) {
	var mine []int32
	assigned := func(_ context.Context, _ *kgo.Client, added map[string][]int32) {
		mine = append(mine, added[topic]...)
		slices.Sort(mine)
		emit("assigned", mine)
	}
	revoked := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) {
		mine = slices.DeleteFunc(mine, func(p int32) bool { return slices.Contains(gone[topic], p) })
		emit("assigned", mine)
	}
	c := client(bootstrap, kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(assigned), kgo.OnPartitionsLost(revoked),
		kgo.OnPartitionsRevoked(func(ctx context.Context, c *kgo.Client, gone map[string][]int32) {
			// A callback of one's own takes the place of the default one, which commits.
			if err := c.CommitUncommittedOffsets(ctx); err != nil {
				log.Print(err)
			}
			revoked(ctx, c, gone)
		}))
	ended := stdinEnded()
	for ended.Err() == nil {
		emitPolled(ended, c)
	}
	c.Close()
}

func emitPolled(ctx context.Context, c *kgo.Client) int {
	fetches := c.PollFetches(ctx)
	fetches.EachError(func(topic string, partition int32, err error) {
		log.Printf("%s-%d: %v", topic, partition, err)
	})
	fetches.EachRecord(func(r *kgo.Record) {
		emit("record", []any{r.Topic, r.Partition, r.Offset, string(r.Key), string(r.Value)})
	})
	return fetches.NumRecords()
}

func stdinEnded() context.Context {
	ctx, end := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		end()
	}()
	return ctx
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		log.Fatal(err)
	}
	return n
}

func main() {
	info, _ := debug.ReadBuildInfo()
	for _, module := range info.Deps {
		if module.Path == "github.com/twmb/franz-go" {
			emit("client", "franz-go "+strings.TrimPrefix(module.Version, "v"))
		}
	}
	switch a := os.Args; a[1] {
	case "produce":
		produce(a[2], a[3], a[4], number(a[5]), a[6])
	case "load":
		load(a[2], a[3], a[4])
	case "consume":
		isolation := kgo.ReadUncommitted()
		if len(a) > 5 && a[5] == "read_committed" {
			isolation = kgo.ReadCommitted()
		}
		consume(a[2], strings.Split(a[3], ","), number(a[4]), isolation)
	case "group":
		group(a[2], a[3], a[4])
	case "transactions":
		transactions(a[2])
	case "copy":
		member := ""
		if len(a) > 6 {
			member = a[6]
		}
		transcribe(a[2], a[3], a[4], a[5], member)
	default:
		log.Fatalf("unknown command %s", a[1])
	}
}
