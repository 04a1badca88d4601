package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/client"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// recoverNode runs rollcall recover, and returns what it says.
func recoverNode(t *testing.T, n *Node, all []*Node) (string, error) {
	t.Helper()
	var members []string
	for _, m := range all {
		members = append(members, m.Name+"="+m.Cluster)
	}
	out, err := exec.Command(Binary(t), "recover", "--data-dir", n.Dir, "--members", strings.Join(members, ",")).CombinedOutput()
	return string(out), err
}

// Two of three disks are lost for good, under load. The cluster goes on with what the third has, and the two others join
// again with empty directories.
func TestClusterIsRecoveredFromOneOfThreeDirectories(t *testing.T) {
	t.Parallel()
	eachLog(t, recoveredFromOneOfThree)
}

func recoveredFromOneOfThree(t *testing.T, log string) {
	c := StartCluster(t, Config{Settings: map[string]string{"raft.log": log}})
	leader := c.Leader()
	left := c.Others(leader)[0]
	cl := goClient(t, client.Config{Servers: urls(leader)})
	need.Equal(t, leader.Register(Instance{App: "ORDERS", ID: "orders-1", Duration: 300}).Outcome(), Done, "a registration is")
	session := need.Got(cl.CreateSession(t.Context(), client.SessionOptions{TTL: 10 * time.Minute}))(t)
	before, err := cl.KV().Write(t.Context(), client.Write{Key: "leader", Acquire: session.ID})
	need.That(t, err == nil && before.OK, "acquire: %+v, %v", before, err)

	var mu sync.Mutex
	acked := 0
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	load.Go(func() {
		for n := 1; ctx.Err() == nil; n++ {
			if cl.KV().Put(ctx, fmt.Sprintf("load/%06d", n), []byte("x")) != nil {
				return // of unknown outcome, and the last
			}
			mu.Lock()
			acked = n
			mu.Unlock()
		}
	})
	Eventually(t, ReadyLimit, "there is load", func() error {
		mu.Lock()
		defer mu.Unlock()
		return unless(acked >= 200, "%d writes", acked)
	})
	said, err := recoverNode(t, left, c.Nodes)
	expect.That(t, err != nil && strings.Contains(said, "another process has it open"), "recover of a directory in use: %v, %s", err, said)

	left.Stop(t) // what it has is a while old then
	said, err = recoverNode(t, left, c.Nodes)
	expect.That(t, err != nil && strings.Contains(said, "a majority"), "recover while a majority answers: %v, %s", err, said)
	lost := c.Others(left)
	for _, n := range lost {
		n.Signal(t, syscall.SIGKILL)
		n.ExitCode(t, ReadyLimit)
	}
	stop()
	load.Wait()
	for _, n := range lost {
		need.OK(t, os.RemoveAll(n.Dir))
	}
	if log == "wal" {
		tearSegment(t, left)
	}
	said, err = recoverNode(t, left, c.Nodes)
	need.That(t, err == nil && strings.Contains(said, "is lost; the index goes on from"), "recover: %v, %s", err, said)
	t.Log(said)
	left.Start(t)
	left.WaitReady(t)
	kv := patientConsul(t, left).KV()
	keys, meta, err := kv.Keys("load/", "", nil)
	need.OK(t, err)
	for i, key := range keys { // what it had is a prefix of what was written: nothing of it is missing in between
		need.Equal(t, key, fmt.Sprintf("load/%06d", i+1), "key %d is", i)
	}
	expect.That(t, len(keys) >= 200 && meta.LastIndex > 1<<32, "%d keys are there, of at least 200, at index %d", len(keys), meta.LastIndex)
	for _, n := range lost {
		n.Start(t)
	}
	for _, n := range lost {
		n.WaitReady(t)
		Eventually(t, ReadyLimit, n.Name+" has everything", func() error {
			there, _, err := consulClient(t, n).KV().Keys("load/", "", &api.QueryOptions{AllowStale: true})
			return errors.Join(err, unless(len(there) == len(keys), "%d keys of %d", len(there), len(keys)))
		})
	}
	found, err := lost[0].Lookup("ORDERS", "orders-1")
	expect.That(t, err == nil && found != nil, "the instance: %+v, %v", found, err)
	cl = goClient(t, client.Config{Servers: urls(c.Nodes...)})
	again := need.Got(cl.CreateSession(t.Context(), client.SessionOptions{TTL: time.Minute}))(t)
	Eventually(t, ReadyLimit, "the key is acquired after its lock-delay", func() error {
		after, err := cl.KV().Write(t.Context(), client.Write{Key: "leader", Acquire: again.ID})
		if err != nil || !after.OK {
			return errors.Join(err, errors.New("not acquired"))
		}
		return unless(after.Fence > before.Fence && after.Fence > 1<<32, "token %d after %d", after.Fence, before.Fence)
	})
}

// Somebody starts the two lost nodes with their old directories after all, while the recovered one is down. Together they are a
// majority of the cluster as it was. The recovered node must not follow them: its state is another one than theirs.
func TestRecoveredNodeDoesNotFollowTheClusterAsItWas(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, Config{})
	left := c.Others(c.Leader())[0]
	old := c.Others(left)
	for _, n := range c.Nodes {
		n.Stop(t)
	}
	said, err := recoverNode(t, left, c.Nodes)
	need.That(t, err == nil, "recover: %v, %s", err, said)
	left.Start(t)
	left.WaitReady(t)
	_, err = consulClient(t, left).KV().Put(&api.KVPair{Key: "recovered", Value: []byte("x")}, nil)
	need.OK(t, err)
	left.Stop(t)

	for _, n := range old {
		n.Start(t)
	}
	for _, n := range old {
		n.WaitReady(t)
	}
	for i := range 50 { // more entries than the recovered node has
		_, err := patientConsul(t, old[0]).KV().Put(&api.KVPair{Key: fmt.Sprint("old/", i)}, nil)
		need.OK(t, err)
	}
	left.Start(t)
	left.WaitReady(t)
	for _, n := range old {
		code := n.ExitCode(t, ReadyLimit)
		expect.That(t, code != 0 && strings.Contains(n.Output(t), "the cluster was recovered (rollcall recover) without what node "+n.Name+" has here"), "%s ended with %d, want words about the recovery", n.Name, code)
	}
	status, err := goClient(t, client.Config{Servers: urls(left)}).Status(t.Context())
	need.That(t, err == nil && status.Leader == left.Name, "the recovered node follows %q, %v", status.Leader, err)
	p, _, err := consulClient(t, left).KV().Get("recovered", nil)
	need.That(t, err == nil && p != nil, "what the recovered node had acknowledged is %v, %v", p, err)
}
