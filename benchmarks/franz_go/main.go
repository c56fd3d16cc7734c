// The tests of scripts/benchmark embedded by franz-go: on a cluster, or on a kfake started here if none is named.
//
// Arguments: brokers, tests, perhaps a bootstrap address. Prints seconds: start, topics, writing, reading.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 3

func main() {
	brokers, tests := number(os.Args[1]), number(os.Args[2])
	var seeds []string
	begun := time.Now()
	if len(os.Args) > 3 {
		seeds = strings.Split(os.Args[3], ",")
	} else {
		cluster, err := kfake.NewCluster(kfake.NumBrokers(brokers))
		check(err)
		defer cluster.Close()
		seeds = cluster.ListenAddrs()
	}
	start := time.Since(begun)
	admin := kadm.NewClient(client(kgo.SeedBrokers(seeds...)))
	defer admin.Close()
	var topics, writing, reading time.Duration
	for i := range tests {
		name := fmt.Sprintf("test-%d", i)
		at := time.Now()
		_, err := admin.CreateTopic(context.Background(), 1, int16(min(brokers, 3)), nil, name)
		check(err)
		topics, at = topics+time.Since(at), time.Now()
		write(seeds, name)
		writing, at = writing+time.Since(at), time.Now()
		read(seeds, name)
		reading += time.Since(at)
	}
	fmt.Println(start.Seconds(), topics.Seconds(), writing.Seconds(), reading.Seconds())
}

func write(seeds []string, topic string) {
	producer := client(kgo.SeedBrokers(seeds...), kgo.DefaultProduceTopic(topic))
	defer producer.Close()
	for i := range records {
		check(producer.ProduceSync(context.Background(), kgo.StringRecord(strconv.Itoa(i))).FirstErr())
	}
}

func read(seeds []string, topic string) {
	consumer := client(kgo.SeedBrokers(seeds...), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer consumer.Close()
	for left := records; left > 0; {
		left -= consumer.PollFetches(context.Background()).NumRecords()
	}
}

func client(options ...kgo.Opt) *kgo.Client {
	made, err := kgo.NewClient(options...)
	check(err)
	return made
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
