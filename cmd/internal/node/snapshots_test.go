package node

import (
	"net/http"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
	"github.com/seed-20419f34/rollcall/store/backup"
)

// A snapshot that brings more than the node may keep is refused before anything of it goes into the log.
func TestRestoreBeyondTheLimitsIsRefused(t *testing.T) {
	for setting, change := range map[string]func(*config.Config){
		"limits.state-bytes":     func(c *config.Config) { c.Quota.StateBytes = 1 },
		"limits.instances-total": func(c *config.Config) { c.HTTPD.Limits.InstancesTotal = 1 },
		"has room for":           func(c *config.Config) { c.MinFree = 1 << 60 },
	} {
		t.Run(setting, func(t *testing.T) {
			full := serving(t, oneNode(t))
			responds(t, http.MethodPut, full+"/v1/kv/a", "value", http.StatusOK, "true")
			for _, id := range []string{"a1", "a2"} {
				body := `{"instance":{"instanceId":"` + id + `","hostName":"h","app":"A","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"x","name":"MyOwn"}}}`
				responds(t, http.MethodPost, full+"/eureka/apps/A", body, http.StatusNoContent, "")
			}
			saved := responds(t, http.MethodGet, full+"/v1/rollcall/snapshot", "", http.StatusOK, "ROLLBACK")
			small := oneNode(t)
			change(small)
			url := serving(t, small)
			responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?another-cluster&reason=test", saved, http.StatusInsufficientStorage, setting)
			responds(t, http.MethodGet, url+"/v1/kv/a?stale", "", http.StatusNotFound, "")
		})
	}
}

func TestRestoreUpToTheLimitsIsAccepted(t *testing.T) {
	var h backup.Header
	h.Counts.Instances = 2
	expect.OK(t, restoreLimits{stateBytes: 5, instances: 2}.check(h, 5))
}

func serving(t *testing.T, c *config.Config) string {
	t.Helper()
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	stop := started(t, n)
	t.Cleanup(func() { expect.OK(t, stop()) })
	url := "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	return url
}
