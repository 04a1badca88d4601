package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	own "github.com/seed-20419f34/rollcall/httpd/api"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// TestSnapshotCommandsSaveLookAndRestore has the commands by hand, and a stock client that goes on through a restore.
// TestRestoreBringsBackWhatWasDeletedAndLeavesTheRest of cmd/internal/sim has what a restore does.
func TestSnapshotCommandsSaveLookAndRestore(t *testing.T) {
	t.Parallel()
	n := StartCluster(t, Config{Nodes: 1}).Nodes[0]
	need.That(t, n.putTrue(t, "/v1/kv/config/a", "1") && n.putTrue(t, "/v1/kv/other/x", "old"), "the keys were not written")
	mustRegister(t, n, Instance{App: "ORDERS", ID: "lost-1", Duration: 300})
	need.OK(t, n.Override("ORDERS", "lost-1", "OUT_OF_SERVICE").is(200))
	file := filepath.Join(t.TempDir(), "monday.snap")
	says := func(want string, args ...string) {
		t.Helper()
		said := string(rollcall(t, append([]string{"snapshot"}, args...)...))
		expect.That(t, strings.Contains(said, want), "snapshot %v says %q, want %q in it", args, said, want)
	}
	says("1 instances, 2 keys, 0 sessions", "save", file, "--addr", n.URL())
	says("config/a", "inspect", file, "--keys", "config/")
	says("no difference", "diff", file, "--addr", n.URL())
	need.OK(t, n.Do(Request{Method: "DELETE", Path: "/v1/kv/config/a"}).is(200))
	need.That(t, n.putTrue(t, "/v1/kv/other/x", "new"), "the key was not written")
	mustCancel(t, n, "ORDERS", "lost-1")
	mustRegister(t, n, Instance{App: "ORDERS", ID: "newer-1", Duration: 300})
	for _, line := range []string{"-       instance  ORDERS/lost-1", "+       instance  ORDERS/newer-1", "-       key       config/a", "~       key       other/x"} {
		says(line, "diff", file, "--addr", n.URL())
	}
	fargo := newFargoClient(t, true)
	need.OK(t, fargo.Start(strings.TrimSuffix(n.Eureka(), "/"), "fargo-app", "fargo-1", 90))
	var plan, done own.Restored
	decode(t, rollcall(t, "snapshot", "restore", file, "--dry-run", "-o", "json", "--addr", n.URL()), &plan)
	expect.That(t, plan.DryRun && fmt.Sprint(plan.Plan.Instances) == "[ORDERS/lost-1]" && plan.Plan.InstancesNewer == 2, "the plan is %+v %+v", plan, plan.Plan)
	decode(t, rollcall(t, "snapshot", "restore", file, "--reason", "monday was better", "-o", "json", "--addr", n.URL()), &done)
	expect.That(t, done.Instances == 1 && done.Keys == 2, "restored: %+v", done)
	found := need.Got(fargo.Discover("orders"))(t)
	expect.That(t, found["lost-1"] == "OUT_OF_SERVICE" && found["newer-1"] == "UP", "fargo finds %v", found)
}
