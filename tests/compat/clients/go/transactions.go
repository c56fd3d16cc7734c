// The transactional half of franz-go; see ../README.md.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func transactions(bootstrap string) {
	producers := map[string]*kgo.Client{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Split(lines.Text(), " ")
		if words[1] == "init" {
			timeout := time.Duration(number(words[3])) * time.Millisecond
			producers[words[0]] = client(bootstrap, kgo.TransactionalID(words[2]),
				kgo.TransactionTimeout(timeout), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		}
		if err := act(producers[words[0]], words); err != nil {
			emit("failed", err.Error())
		} else {
			emit("done", words[1])
		}
	}
}

func act(c *kgo.Client, words []string) error {
	ctx := context.Background()
	switch words[1] {
	case "init":
		// Else it is asked for by the first record only. The library leaves repeating to who asks for it.
		_, _, err := c.ProducerID(ctx)
		for ; errors.Is(err, kerr.ConcurrentTransactions); _, _, err = c.ProducerID(ctx) {
			time.Sleep(100 * time.Millisecond)
		}
		return err
	case "begin":
		return c.BeginTransaction()
	case "send":
		r := record(words[2], words[5], number(words[4]))
		r.Partition = int32(number(words[3]))
		return c.ProduceSync(ctx, r).FirstErr()
	case "commit":
		return c.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return c.EndTransaction(ctx, kgo.TryAbort)
	}
	return fmt.Errorf("unknown step %s", words[1])
}

// transcribe copies exactly once, by the library's own session of a group's member.
func transcribe(bootstrap, source, sink, name, member string) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(source), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if member == "" {
		options = append(options, kgo.TransactionalID(name))
	} else {
		options = append(options, kgo.TransactionalID(member), kgo.ClientID(member), kgo.SessionTimeout(15*time.Second))
	}
	session, err := kgo.NewGroupTransactSession(options...)
	if err != nil {
		log.Fatal(err)
	}
	ended, first := stdinEnded(), true
	for ended.Err() == nil {
		fetches := session.PollFetches(ended)
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			log.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			session.Produce(context.Background(),
				&kgo.Record{Topic: sink, Partition: r.Partition, Key: r.Key, Value: r.Value}, nil)
		})
		if first {
			if err := session.Client().Flush(context.Background()); err != nil {
				log.Fatal(err)
			}
		}
		if _, err := session.End(context.Background(), kgo.TransactionEndTry(!first)); err != nil {
			log.Fatal(err)
		}
		first = false
	}
	session.Close()
}
