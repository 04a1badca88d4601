package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// The leader writes snapshots by its schedule. After the loss of everything a new cluster begins with one of them, which all of
// its nodes are given.
func TestNewClusterBeginsWithAScheduledSnapshot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	other := filepath.Join(dir, "rollcall-n9-20200101T000000Z.snap")
	need.OK(t, os.WriteFile(other, []byte("of another node"), 0o600))
	c := StartCluster(t, Config{Settings: map[string]string{"backup.dir": dir, "backup.interval": "1s", "backup.keep": "2"}})
	n := c.Leader()
	need.Equal(t, n.Register(Instance{App: "ORDERS", ID: "orders-1", Duration: 300}).Outcome(), Done, "a registration is")
	need.Got(patientConsul(t, n).KV().Put(&api.KVPair{Key: "config/a", Value: []byte("1")}, nil))(t)
	snapshots := func() []string { return need.Got(filepath.Glob(filepath.Join(dir, "rollcall-"+n.Name+"-*.snap")))(t) }
	Eventually(t, ReadyLimit, "a snapshot has everything, and old ones go", func() error {
		files := snapshots()
		if len(files) == 0 {
			return unless(false, "no file")
		}
		out, err := exec.Command(Binary(t), "snapshot", "inspect", files[len(files)-1], "--keys", "config/").CombinedOutput()
		return unless(err == nil && strings.Contains(string(out), "config/a") && len(files) <= 2 && files[0] > filepath.Join(dir, "rollcall-"+n.Name+"-2"), "%v: %s, %v", files, out, err)
	})
	metrics := string(n.Get("/metrics").Body)
	expect.That(t, strings.Contains(metrics, "rollcall_backup_last_success_timestamp_seconds 1."), "the metric of the last snapshot is not there, or 0")
	for _, node := range c.Nodes {
		node.Stop(t)
	}
	// Only now: until the leader stops it removes what was its newest two seconds ago.
	files := snapshots()
	need.OK(t, exec.Command("cp", files[len(files)-1], filepath.Join(dir, "chosen.snap")).Run())
	_, err := os.Stat(other)
	expect.That(t, err == nil, "a file of another node: %v", err)

	chosen := filepath.Join(dir, "chosen.snap")
	again := StartCluster(t, Config{Settings: map[string]string{"restore-from": chosen}})
	for _, node := range again.Nodes {
		found, err := node.Lookup("ORDERS", "orders-1")
		p, meta, getErr := patientConsul(t, node).KV().Get("config/a", nil)
		expect.That(t, err == nil && found != nil && getErr == nil && p != nil && meta.LastIndex > 1<<32, "%s has %+v, %v, %+v, %v", node.Name, found, err, p, getErr)
	}
	first := again.Nodes[0]
	index := position(t, need.Got(first.Status())(t).Nodes[0].Index)
	expect.That(t, index>>32 == uint64(time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))/time.Hour), "the index %d has no incarnation of the hour, or there was more than one restore", index)
	first.Stop(t)
	first.Start(t)
	first.ExitCode(t, ReadyLimit)
	expect.That(t, strings.Contains(first.Output(t), "belongs to cluster"), "a second start with restore-from says %s", first.Output(t))
}
