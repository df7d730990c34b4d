// The official Go client, driven like driver.py: a command a line in, an answer or event a line out.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

type filter struct {
	Expression string `json:"expression"`
	Sql        bool   `json:"sql"`
}

type ask struct {
	Id            int               `json:"id"`
	Do            string            `json:"do"`
	Name          string            `json:"name"`
	Topic         string            `json:"topic"`
	Topics        []string          `json:"topics"`
	Group         string            `json:"group"`
	Subscriptions map[string]filter `json:"subscriptions"`
	Body          []byte            `json:"body"`
	Tag           string            `json:"tag"`
	Keys          []string          `json:"keys"`
	Properties    map[string]string `json:"properties"`
	MessageGroup  string            `json:"message_group"`
	Count         int32             `json:"count"`
	InvisibleS    int               `json:"invisible_s"`
	AwaitS        int               `json:"await_s"`
	Failures      int32             `json:"failures"`
	MessageId     string            `json:"message_id"`
	Tls           *bool             `json:"tls"`
}

type fields map[string]any

var (
	endpoint string
	out      sync.Mutex
	clients  sync.Map
	received sync.Map
)

func say(line fields) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	out.Lock()
	defer out.Unlock()
	os.Stdout.Write(append(text, '\n'))
}

func plain(view *rocketmq.MessageView) fields {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	return fields{
		"message_id":    view.GetMessageId(),
		"topic":         view.GetTopic(),
		"body":          view.GetBody(),
		"tag":           view.GetTag(),
		"keys":          keys,
		"properties":    view.GetProperties(),
		"message_group": view.GetMessageGroup(),
		"attempt":       view.GetDeliveryAttempt(),
	}
}

func (a *ask) configuration() *rocketmq.Config {
	return &rocketmq.Config{Endpoint: endpoint, ConsumerGroup: a.Group, Credentials: &credentials.SessionCredentials{}}
}

func (a *ask) expressions() map[string]*rocketmq.FilterExpression {
	wanted := map[string]*rocketmq.FilterExpression{}
	for topic, one := range a.Subscriptions {
		if one.Sql {
			wanted[topic] = rocketmq.NewFilterExpressionWithType(one.Expression, rocketmq.SQL92)
		} else {
			wanted[topic] = rocketmq.NewFilterExpression(one.Expression)
		}
	}
	return wanted
}

func (a *ask) run() (fields, error) {
	ctx, done := context.WithTimeout(context.Background(), 30*time.Second)
	defer done()
	client, _ := clients.Load(a.Name)
	if a.Tls != nil {
		rocketmq.EnableSsl = *a.Tls
	}
	switch a.Do {
	case "producer":
		made, err := rocketmq.NewProducer(a.configuration(), rocketmq.WithTopics(a.Topics...))
		if err != nil {
			return nil, err
		}
		clients.Store(a.Name, made)
		return nil, made.Start()
	case "send":
		message := &rocketmq.Message{Topic: a.Topic, Body: a.Body}
		if a.Tag != "" {
			message.SetTag(a.Tag)
		}
		if len(a.Keys) > 0 {
			message.SetKeys(a.Keys...)
		}
		for name, value := range a.Properties {
			message.AddProperty(name, value)
		}
		if a.MessageGroup != "" {
			message.SetMessageGroup(a.MessageGroup)
		}
		receipts, err := client.(rocketmq.Producer).Send(ctx, message)
		if err != nil {
			return nil, err
		}
		return fields{"message_id": receipts[0].MessageID}, nil
	case "push":
		listener := &rocketmq.FuncMessageListener{Consume: func(view *rocketmq.MessageView) rocketmq.ConsumerResult {
			failed := view.GetDeliveryAttempt() <= a.Failures
			event := plain(view)
			event["event"], event["consumer"], event["failed"] = "message", a.Name, failed
			say(event)
			if failed {
				return rocketmq.FAILURE
			}
			return rocketmq.SUCCESS
		}}
		made, err := rocketmq.NewPushConsumer(a.configuration(),
			rocketmq.WithPushAwaitDuration(5*time.Second),
			rocketmq.WithPushSubscriptionExpressions(a.expressions()),
			rocketmq.WithPushMessageListener(listener))
		if err != nil {
			return nil, err
		}
		clients.Store(a.Name, made)
		return nil, made.Start()
	case "simple":
		wait := time.Duration(max(a.AwaitS, 5)) * time.Second
		made, err := rocketmq.NewSimpleConsumer(a.configuration(),
			rocketmq.WithSimpleAwaitDuration(wait),
			rocketmq.WithSimpleSubscriptionExpressions(a.expressions()))
		if err != nil {
			return nil, err
		}
		clients.Store(a.Name, made)
		return nil, made.Start()
	case "receive":
		views, err := client.(rocketmq.SimpleConsumer).Receive(ctx, a.Count, time.Duration(a.InvisibleS)*time.Second)
		if status, ok := rocketmq.AsErrRpcStatus(err); ok && status.Code == 40401 { // in Go an empty answer is an error
			err = nil
		}
		messages := []fields{}
		for _, view := range views {
			received.Store(view.GetMessageId(), view)
			messages = append(messages, plain(view))
		}
		return fields{"messages": messages}, err
	case "ack":
		view, _ := received.Load(a.MessageId)
		return nil, client.(rocketmq.SimpleConsumer).Ack(ctx, view.(*rocketmq.MessageView))
	case "shutdown":
		clients.Delete(a.Name)
		return nil, client.(interface{ GracefulStop() error }).GracefulStop()
	}
	return nil, fmt.Errorf("no such command: %s", a.Do)
}

func (a *ask) answer() {
	said, err := a.run()
	if said == nil {
		said = fields{}
	}
	if err != nil {
		said["error"] = err.Error()
	}
	said["id"] = a.Id
	say(said)
}

func main() {
	endpoint = os.Args[1]
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		given := &ask{}
		if err := json.Unmarshal(lines.Bytes(), given); err != nil {
			panic(err)
		}
		go given.answer()
	}
}
