// A client in Go made of protos/ alone: it sends, pops, nacks, acknowledges, and prints the results.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"time"

	ortoov1 "generated/ortoo/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

type seen struct {
	Offset  int64    `json:"offset"`
	Attempt uint32   `json:"attempt"`
	Body    []byte   `json:"body"`
	Tag     string   `json:"tag"`
	Keys    []string `json:"keys"`
	Of      string   `json:"of"`
}

func must[T any](answer T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return answer
}

func main() {
	ctx, done := context.WithTimeout(context.Background(), 50*time.Second)
	defer done()
	connection := must(grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials())))
	admin := ortoov1.NewAdminServiceClient(connection)
	producer := ortoov1.NewProducerServiceClient(connection)
	consumer := ortoov1.NewConsumerServiceClient(connection)

	pop := func() (receipts []*ortoov1.LeaseReceipt, found []seen) {
		answer := must(consumer.Pop(ctx, &ortoov1.PopRequest{
			Group: "g", Topic: "t", MessagesMax: 8, WaitMs: 15000, Readable: true,
			Options: &ortoov1.PopOptions{StartFrom: ortoov1.PopStart_POP_START_FIRST},
		}))
		for _, batch := range answer.Batches {
			for at, offset := range batch.Offsets {
				attempt := uint32(1)
				if len(batch.Attempts) > 0 {
					attempt = batch.Attempts[at]
				}
				message := batch.Messages[at]
				keys := append([]string{}, message.Keys...)
				found = append(found, seen{offset, attempt, message.Body, message.Tag, keys, message.Properties["of"]})
				receipts = append(receipts, &ortoov1.LeaseReceipt{
					ReceiptHandle: batch.ReceiptHandle, Offsets: []int64{offset},
				})
			}
		}
		return receipts, found
	}

	must(admin.CreateTopic(ctx, &ortoov1.CreateTopicRequest{Name: "t", ReadQueueCount: 1}))
	messages := []*ortoov1.Message{
		{Body: []byte{0, 255}, Tag: "urgent", Keys: []string{"k-1", "k-2"}, Properties: map[string]string{"of": "bank"}},
		{Body: []byte("second")},
	}
	stored := []int64{}
	for _, receipt := range must(producer.Publish(ctx, &ortoov1.PublishRequest{Topic: "t", Messages: messages})).Receipts {
		stored = append(stored, receipt.Offset)
	}
	_, refused := producer.Publish(ctx, &ortoov1.PublishRequest{Topic: "absent", Messages: messages})
	receipts, first := pop()
	must(consumer.Ack(ctx, &ortoov1.AckRequest{Receipts: receipts[:1]}))
	must(consumer.Nack(ctx, &ortoov1.NackRequest{Receipts: receipts[1:], DelayMs: proto.Uint32(0), Error: "not yet"}))
	receipts, again := pop()
	must(consumer.Ack(ctx, &ortoov1.AckRequest{Receipts: receipts}))
	lag := must(admin.DescribeLag(ctx, &ortoov1.DescribeLagRequest{Group: "g", Topic: "t"})).LagMessages
	fmt.Println(string(must(json.Marshal(map[string]any{
		"stored": stored, "refused": status.Code(refused), "first": first, "again": again, "lag": lag,
	}))))
}
