package node

import (
	"net/http"
	"strings"
	"testing"

	"github.com/seed-20419f34/rollcall/cmd/internal/config"
	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

// A dry run says what a restore then does, in mode ap too: what was canceled since stays away, and there are no keys.
func TestDryRunWithoutConsensusSaysWhatARestoreDoes(t *testing.T) {
	c := oneNode(t)
	c.Mode = config.AP
	n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
	stop := started(t, n)
	t.Cleanup(func() { expect.OK(t, stop()) })
	url := "http://" + n.listeners[0].Addr().String()
	awaitReady(t, url)
	body := `{"instance":{"instanceId":"a1","hostName":"h","app":"A","ipAddr":"10.0.0.1","status":"UP","dataCenterInfo":{"@class":"x","name":"MyOwn"}}}`
	responds(t, http.MethodPost, url+"/eureka/apps/A", body, http.StatusNoContent, "")
	saved := responds(t, http.MethodGet, url+"/v1/rollcall/snapshot", "", http.StatusOK, "ROLLBACK")
	responds(t, http.MethodDelete, url+"/eureka/apps/A/a1", "", http.StatusOK, "")

	would := responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?dry-run", saved, http.StatusOK, "")
	done := responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?reason=test", saved, http.StatusOK, `"instances":0`)
	expect.That(t, strings.Contains(would, `"instances":0`), "the dry run says %s, and the restore %s", would, done)
	responds(t, http.MethodPut, url+"/v1/rollcall/snapshot?dry-run&keys-only", saved, http.StatusNotImplemented, "keys-only")
}
