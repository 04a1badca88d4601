package store

import (
	"errors"
	"net"
	"net/rpc"
	"strings"
	"testing"
)

func TestTheNodeChannelAnswersAClientOfTheLibrary(t *testing.T) {
	slow := make(chan struct{})
	table := callTable{
		"Node.Double": callOf(func(n int, reply *int) error { *reply = 2 * n; return nil }),
		"Node.Refuse": callOf(func(struct{}, *int) error { return errors.New("refused, as planned") }),
		"Node.Slow":   callOf(func(struct{}, *int) error { <-slow; return nil }),
	}
	near, far := net.Pipe()
	ended := make(chan struct{})
	go func() { defer close(ended); table.serve(far) }()
	c := rpc.NewClient(near)
	waiting := c.Go("Node.Slow", struct{}{}, new(int), make(chan *rpc.Call, 1))
	for _, tt := range []struct {
		name, method string
		args         any
		want         string // part of the error; empty: none
	}{
		{"a call", "Node.Double", 21, ""},
		{"a call that is refused", "Node.Refuse", struct{}{}, "refused, as planned"},
		{"a call that no node knows", "Node.Shout", 21, "knows no call Node.Shout"},
		{"arguments of another type", "Node.Double", "21", "received remote type string"},
		{"a call after all these", "Node.Double", 21, ""},
	} {
		var reply int
		err := c.Call(tt.method, tt.args, &reply)
		if tt.want == "" && (err != nil || reply != 42) {
			t.Errorf("%s: got %d, %v, want 42", tt.name, reply, err)
		}
		if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %v, want an error with %q", tt.name, err, tt.want)
		}
	}
	close(slow)
	if <-waiting.Done; waiting.Error != nil {
		t.Errorf("the call that took long: %v", waiting.Error)
	}
	c.Close()
	<-ended
}
