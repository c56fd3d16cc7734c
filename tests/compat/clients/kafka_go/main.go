// Calls of kafka-go's Client, as AdminTools.java makes them of Kafka's AdminClient: BOOTSTRAP CALL WORD...; and its Writer and
// Readers, which open connections that never ask which versions a broker has.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

const patience = 90 * time.Second

var (
	client *kafka.Client
	ctx    = context.Background()
	words  []string
	kinds  = map[string]kafka.ResourceType{"TOPIC": kafka.ResourceTypeTopic, "BROKER": kafka.ResourceTypeBroker}
)

func main() {
	var addresses []net.Addr
	for _, address := range strings.Split(os.Args[1], ",") {
		addresses = append(addresses, kafka.TCP(address))
	}
	client = &kafka.Client{Addr: addresses[0], Timeout: patience}
	words = os.Args[3:]
	calls := map[string]func() error{
		"create": create, "grow": grow, "delete": remove, "describe": describe, "change": change, "configs": configs,
		"move": move, "moves": moves, "elect": elect, "quota": quota, "quotas": quotas, "forget": forget,
		"brokers": brokers, "write": write, "read": read, "groups": groups,
	}
	if err := calls[os.Args[2]](); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func word() string {
	first := words[0]
	words = words[1:]
	return first
}

func number() int {
	found, err := strconv.Atoi(word())
	if err != nil {
		panic(err)
	}
	return found
}

func numbers(text string) (found []int) {
	for _, one := range strings.Split(text, ",") {
		n, err := strconv.Atoi(one)
		if err != nil {
			panic(err)
		}
		found = append(found, n)
	}
	return found
}

func text(found []int) string {
	var parts []string
	for _, one := range found {
		parts = append(parts, strconv.Itoa(one))
	}
	return strings.Join(parts, ",")
}

func first(errs map[string]error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// create TOPIC [REPLICAS ...]; without replicas: as the cluster's defaults say.
func create() error {
	wanted := kafka.TopicConfig{Topic: word(), NumPartitions: -1, ReplicationFactor: -1}
	for partition := 0; len(words) > 0; partition++ {
		one := kafka.ReplicaAssignment{Partition: partition, Replicas: numbers(word())}
		wanted.ReplicaAssignments = append(wanted.ReplicaAssignments, one)
	}
	made, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{wanted}})
	if err != nil {
		return err
	}
	return first(made.Errors)
}

func grow() error {
	wanted := kafka.TopicPartitionsConfig{Name: word(), Count: int32(number())}
	made, err := client.CreatePartitions(ctx, &kafka.CreatePartitionsRequest{Topics: []kafka.TopicPartitionsConfig{wanted}})
	if err != nil {
		return err
	}
	return first(made.Errors)
}

func remove() error {
	done, err := client.DeleteTopics(ctx, &kafka.DeleteTopicsRequest{Topics: []string{word()}})
	if err != nil {
		return err
	}
	return first(done.Errors)
}

func ids(brokers []kafka.Broker) (found []int) {
	for _, broker := range brokers {
		found = append(found, broker.ID)
	}
	return found
}

func describe() error {
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{word()}})
	if err != nil {
		return err
	}
	for _, p := range found.Topics[0].Partitions {
		fmt.Println(p.ID, p.Leader.ID, text(ids(p.Replicas)), text(ids(p.Isr)))
	}
	return found.Topics[0].Error
}

// change KIND NAME (SET|DELETE KEY VALUE)...
func change() error {
	one := kafka.IncrementalAlterConfigsRequestResource{ResourceType: kinds[word()], ResourceName: word()}
	for len(words) > 0 {
		operation := kafka.ConfigOperationSet
		if word() == "DELETE" {
			operation = kafka.ConfigOperationDelete
		}
		config := kafka.IncrementalAlterConfigsRequestConfig{Name: word(), Value: word(), ConfigOperation: operation}
		one.Configs = append(one.Configs, config)
	}
	request := &kafka.IncrementalAlterConfigsRequest{Resources: []kafka.IncrementalAlterConfigsRequestResource{one}}
	done, err := client.IncrementalAlterConfigs(ctx, request)
	if err != nil {
		return err
	}
	return done.Resources[0].Error
}

var sources = map[int8]string{
	1: "DYNAMIC_TOPIC_CONFIG", 2: "DYNAMIC_BROKER_CONFIG", 3: "DYNAMIC_DEFAULT_BROKER_CONFIG", 4: "STATIC_BROKER_CONFIG",
	5: "DEFAULT_CONFIG",
}

func configs() error {
	one := kafka.DescribeConfigRequestResource{ResourceType: kinds[word()], ResourceName: word()}
	request := &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{one}, IncludeSynonyms: true, IncludeDocumentation: true,
	}
	found, err := client.DescribeConfigs(ctx, request)
	if err != nil {
		return err
	}
	for _, c := range found.Resources[0].ConfigEntries {
		fmt.Println(c.ConfigName, sources[c.ConfigSource], c.ConfigType, c.ConfigDocumentation != "", c.ReadOnly, c.ConfigValue)
	}
	return found.Resources[0].Error
}

// move (TOPIC PARTITION REPLICAS)...; "cancel" for the replicas.
func move() error {
	request := &kafka.AlterPartitionReassignmentsRequest{Timeout: patience}
	for len(words) > 0 {
		one := kafka.AlterPartitionReassignmentsRequestAssignment{Topic: word(), PartitionID: number()}
		if replicas := word(); replicas != "cancel" {
			one.BrokerIDs = numbers(replicas)
		}
		request.Assignments = append(request.Assignments, one)
	}
	done, err := client.AlterPartitionReassignments(ctx, request)
	if err != nil {
		return err
	}
	err = done.Error
	for _, result := range done.PartitionResults {
		err = errors.Join(err, result.Error)
	}
	return err
}

func moves() error {
	found, err := client.ListPartitionReassignments(ctx, &kafka.ListPartitionReassignmentsRequest{Timeout: patience})
	if err != nil {
		return err
	}
	for topic, moving := range found.Topics {
		for _, p := range moving.Partitions {
			fmt.Printf("%s-%d: replicas: %s. adding: %s. removing: %s.\n",
				topic, p.PartitionIndex, text(p.Replicas), text(p.AddingReplicas), text(p.RemovingReplicas))
		}
	}
	return found.Error
}

func elect() error {
	if kind := word(); kind != "PREFERRED" {
		return fmt.Errorf("no %s election here", kind)
	}
	request := &kafka.ElectLeadersRequest{Topic: word(), Partitions: []int{number()}, Timeout: patience}
	done, err := client.ElectLeaders(ctx, request)
	if err != nil {
		return err
	}
	err = done.Error
	for _, result := range done.PartitionResults {
		err = errors.Join(err, result.Error)
	}
	return err
}

// quota KIND NAME KEY VALUE; "default" for the name, "none" for the value.
func quota() error {
	entity := kafka.AlterClientQuotaEntity{EntityType: word(), EntityName: word()}
	if entity.EntityName == "default" {
		entity.EntityName = ""
	}
	op := kafka.AlterClientQuotaOps{Key: word()}
	if value := word(); value == "none" {
		op.Remove = true
	} else {
		op.Value, _ = strconv.ParseFloat(value, 64)
	}
	entry := kafka.AlterClientQuotaEntry{
		Entities: []kafka.AlterClientQuotaEntity{entity}, Ops: []kafka.AlterClientQuotaOps{op},
	}
	request := &kafka.AlterClientQuotasRequest{Entries: []kafka.AlterClientQuotaEntry{entry}}
	done, err := client.AlterClientQuotas(ctx, request)
	if err != nil {
		return err
	}
	return done.Entries[0].Error
}

func quotas() error {
	for _, kind := range []string{"user", "client-id", "ip"} {
		component := kafka.DescribeClientQuotasRequestComponent{EntityType: kind, MatchType: 2}
		found, err := client.DescribeClientQuotas(ctx, &kafka.DescribeClientQuotasRequest{
			Components: []kafka.DescribeClientQuotasRequestComponent{component},
		})
		if err != nil {
			return err
		}
		for _, entry := range found.Entries {
			for _, value := range entry.Values {
				fmt.Printf("%s %s %s=%.1f\n", kind, entry.Entities[0].EntityName, value.Key, value.Value)
			}
		}
	}
	return nil
}

func forget() error {
	group, topic, partition := word(), word(), number()
	request := &kafka.OffsetDeleteRequest{GroupID: group, Topics: map[string][]int{topic: {partition}}}
	done, err := client.OffsetDelete(ctx, request)
	if err != nil {
		return err
	}
	err = done.Error
	for _, partitions := range done.Topics {
		for _, one := range partitions {
			err = errors.Join(err, one.Error)
		}
	}
	return err
}

func brokers() error {
	found, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{}})
	if err != nil {
		return err
	}
	known := ids(found.Brokers)
	slices.Sort(known)
	fmt.Println(found.ClusterID, found.Controller.ID, text(known))
	return nil
}

// write TOPIC COUNT
func write() error {
	writer := &kafka.Writer{
		Addr: client.Addr, Topic: word(), RequiredAcks: kafka.RequireAll, Compression: kafka.Zstd, Balancer: &kafka.RoundRobin{},
	}
	var messages []kafka.Message
	for n := range number() {
		messages = append(messages, kafka.Message{Key: []byte(strconv.Itoa(n)), Value: []byte("value " + strconv.Itoa(n))})
	}
	return errors.Join(writer.WriteMessages(ctx, messages...), writer.Close())
}

// read TOPIC GROUP COUNT, as its only member; what is read is committed.
func read() error {
	config := kafka.ReaderConfig{Brokers: strings.Split(os.Args[1], ","), Topic: word(), GroupID: word()}
	reader := kafka.NewReader(config)
	for range number() {
		limited, cancel := context.WithTimeout(ctx, patience)
		message, err := reader.ReadMessage(limited)
		cancel()
		if err != nil {
			return err
		}
		fmt.Println(message.Partition, message.Offset, string(message.Key), string(message.Value))
	}
	return reader.Close()
}

// groups GROUP TOPIC PARTITIONS: the group's state, what it has committed, and its end.
func groups() error {
	group, topic, count := word(), word(), number()
	found, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	var partitions []int
	for p := range count {
		partitions = append(partitions, p)
	}
	committed, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{topic: partitions},
	})
	if err != nil {
		return err
	}
	total := int64(0)
	for _, one := range committed.Topics[topic] {
		total += one.CommittedOffset
	}
	fmt.Println(found.Groups[0].GroupState, total)
	deleted, err := client.DeleteGroups(ctx, &kafka.DeleteGroupsRequest{GroupIDs: []string{group}})
	if err != nil {
		return err
	}
	return first(deleted.Errors)
}
