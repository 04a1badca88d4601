//go:build ignore

// Command etcdload is the load that `rollcall-bench peers` puts on etcd, whose clients speak gRPC. It is built inside
// the module of etcd's server (build.sh), so that no module of ours needs it.
//
//	etcdload ADDR keepalive|put|register|get|get-serializable|range|range-serializable KEYS SIZE CONNS WARM WINDOW
//
// Each of CONNS connections sends its next call when the previous one was answered; keys, or leases, take turns. SIZE
// is a value's size in bytes. What an operation needs (leases, keys) is made first, and then the load goes on for
// WARM and WINDOW. The output is two lines of JSON: {} when the window begins, and the result at its end.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "etcdload:", err)
		os.Exit(1)
	}
}

// load is what the arguments say.
type load struct {
	operation         string
	keys, size, conns int
	warm, window      time.Duration

	written atomic.Int64 // makes values differ
}

func run(args []string) error {
	if len(args) != 7 {
		return fmt.Errorf("7 arguments are needed, not %d", len(args))
	}
	l := &load{operation: args[1]}
	for i, number := range []*int{&l.keys, &l.size, &l.conns} {
		var err error
		if *number, err = strconv.Atoi(args[2+i]); err != nil {
			return err
		}
	}
	for i, span := range []*time.Duration{&l.warm, &l.window} {
		var err error
		if *span, err = time.ParseDuration(args[5+i]); err != nil {
			return err
		}
	}
	if l.keys < 1 || l.conns < 1 {
		return errors.New("there must be keys and connections")
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.warm+l.window+5*time.Minute)
	defer cancel()
	senders := make([]*sender, l.conns)
	for i := range senders {
		conn, err := grpc.NewClient(args[0], grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
		if err != nil {
			return err
		}
		defer conn.Close()
		senders[i] = &sender{load: l, turn: i, kv: pb.NewKVClient(conn), lease: pb.NewLeaseClient(conn), wrong: map[string]int{}}
	}
	if err := l.prepare(ctx, senders); err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	return l.send(ctx, senders)
}

// send sends the load and prints the result.
func (l *load) send(ctx context.Context, senders []*sender) error {
	begin := time.Now().Add(l.warm)
	end := begin.Add(l.window)
	ctx, cancel := context.WithDeadline(ctx, end.Add(10*time.Second))
	defer cancel()
	announce := time.AfterFunc(l.warm, func() { fmt.Println("{}") })
	var sending sync.WaitGroup
	for _, s := range senders {
		sending.Go(func() { s.send(ctx, begin, end) })
	}
	sending.Wait()
	if announce.Stop() {
		return errors.New("the load ended before its window began")
	}
	var result struct {
		Right    int            `json:"right"`
		P50, P99 int64          // µs
		Bytes    int            `json:"bytes"` // of a response
		Wrong    map[string]int `json:"wrong"`
	}
	result.Wrong = map[string]int{}
	var all []int64
	for _, s := range senders {
		all = append(all, s.latencies...)
		result.Bytes = max(result.Bytes, s.bytes)
		for how, n := range s.wrong {
			result.Wrong[how] += n
		}
	}
	slices.Sort(all)
	if result.Right = len(all); result.Right > 0 {
		result.P50, result.P99 = all[len(all)/2], all[len(all)*99/100]
	}
	return json.NewEncoder(os.Stdout).Encode(result)
}

// prepare makes the leases or keys that the operation needs. What an earlier load has made stays.
func (l *load) prepare(ctx context.Context, senders []*sender) error {
	var one func(s *sender, i int) error
	switch l.operation {
	case "put":
		return nil
	case "keepalive", "register":
		one = func(s *sender, i int) error {
			_, err := s.lease.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: leaseID(i), TTL: 86400})
			if err != nil {
				_, err = s.lease.LeaseTimeToLive(ctx, &pb.LeaseTimeToLiveRequest{ID: leaseID(i)})
			}
			return err
		}
	default:
		one = func(s *sender, i int) error { return s.put(ctx, i, 0) }
	}
	errs := make([]error, len(senders))
	var making sync.WaitGroup
	for n, s := range senders {
		making.Go(func() {
			for i := n; i < l.keys && errs[n] == nil; i += len(senders) {
				errs[n] = one(s, i)
			}
		})
	}
	making.Wait()
	return errors.Join(errs...)
}

func leaseID(i int) int64 { return int64(i) + 1 }

// sender is one connection.
type sender struct {
	*load
	turn  int // number of the next key or lease
	kv    pb.KVClient
	lease pb.LeaseClient

	latencies []int64 // in µs, of what was sent and answered in the window
	bytes     int
	wrong     map[string]int
}

func (s *sender) send(ctx context.Context, begin, end time.Time) {
	call, err := s.call(ctx)
	for err == nil {
		now := time.Now()
		if !now.Before(end) {
			return
		}
		i := s.turn % s.keys
		s.turn += s.conns
		if err = call(i); err != nil {
			break
		}
		if done := time.Now(); !now.Before(begin) && !done.After(end) {
			s.latencies = append(s.latencies, done.Sub(now).Microseconds())
		}
	}
	s.wrong[err.Error()]++
}

// call returns the operation.
func (s *sender) call(ctx context.Context) (func(i int) error, error) {
	switch s.operation {
	case "put":
		return func(i int) error { return s.put(ctx, i, 0) }, nil
	case "register":
		return func(i int) error { return s.put(ctx, i, leaseID(i)) }, nil
	case "keepalive":
		stream, err := s.lease.LeaseKeepAlive(ctx)
		return func(i int) error { return keepAlive(stream, leaseID(i)) }, err
	case "get", "get-serializable":
		return func(i int) error {
			return s.read(ctx, &pb.RangeRequest{Key: s.key(i), Serializable: s.operation != "get"}, 1)
		}, nil
	case "range", "range-serializable":
		first, last := fmt.Appendf(nil, "%s/", s.prefix()), fmt.Appendf(nil, "%s0", s.prefix()) // 0 follows the slash
		return func(int) error {
			return s.read(ctx, &pb.RangeRequest{Key: first, RangeEnd: last, Serializable: s.operation != "range"}, s.keys)
		}, nil
	}
	return nil, fmt.Errorf("there is no operation %q", s.operation)
}

func keepAlive(stream pb.Lease_LeaseKeepAliveClient, id int64) error {
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
		return err
	}
	r, err := stream.Recv()
	if err == nil && r.TTL <= 0 {
		err = errors.New("the lease is not known")
	}
	return err
}

// prefix keeps the keys of values of one size apart from others.
func (l *load) prefix() string { return fmt.Sprintf("of-%d-bytes", l.size) }

func (l *load) key(i int) []byte { return fmt.Appendf(nil, "%s/%06d", l.prefix(), i) }

func (s *sender) put(ctx context.Context, i int, lease int64) error {
	_, err := s.kv.Put(ctx, &pb.PutRequest{Key: s.key(i), Value: fmt.Appendf(nil, "%0*d", s.size, s.written.Add(1)), Lease: lease})
	return err
}

// read checks for the given number of keys.
func (s *sender) read(ctx context.Context, r *pb.RangeRequest, want int) error {
	found, err := s.kv.Range(ctx, r)
	if err != nil {
		return err
	}
	if len(found.Kvs) != want {
		return fmt.Errorf("%d keys instead of %d", len(found.Kvs), want)
	}
	if s.bytes == 0 {
		s.bytes = proto.Size(found)
	}
	return nil
}
