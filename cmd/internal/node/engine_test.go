package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-20419f34/rollcall/cmd/internal/logging"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestRunWithReturnsThoughWorkBesideAFailedStoreHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken, never := errors.New("disk broke"), make(chan bool)
		began := time.Now()
		err := runWith(t.Context(),
			func(context.Context) error { return broken },
			func(context.Context) { <-never })
		expect.That(t, errors.Is(err, broken) && time.Since(began) == besideLimit,
			"ended after %v with %v, want the store's error after %v", time.Since(began), err, besideLimit)
		close(never)
	})
}

func registerProbed(t *testing.T, api, url string) (checks string) {
	t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(url, "http://"), ":")
	body := fmt.Sprintf(`{"Name":"web","Address":"127.0.0.1","Port":%s,"Check":{"HTTP":%q,"Interval":"1s"}}`, port, url)
	req := need.Got(http.NewRequestWithContext(t.Context(), http.MethodPut, api+"/v1/agent/service/register", strings.NewReader(body)))(t)
	resp := need.Got(http.DefaultClient.Do(req))(t)
	resp.Body.Close()
	need.Equal(t, resp.StatusCode, http.StatusOK, "register: status")
	return api + "/v1/health/checks/web"
}

func text(t *testing.T, url string) string {
	t.Helper()
	resp := need.Got(http.Get(url))(t)
	defer resp.Body.Close()
	b := need.Got(io.ReadAll(resp.Body))(t)
	return string(b)
}

func TestLeaderProbesServicesUnlessProbesAreOff(t *testing.T) {
	for _, probes := range []bool{true, false} {
		t.Run(fmt.Sprint(probes), func(t *testing.T) {
			service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			defer service.Close()
			c := oneNode(t)
			c.Checks.Probes = probes
			n := need.Got(open(Options{Config: c, Version: "test", Log: quiet, Level: logging.NewLevel("info")}))(t)
			stop := started(t, n)
			defer func() {
				expect.OK(t, stop())
			}()
			api := "http://" + n.listeners[0].Addr().String()
			awaitReady(t, api)
			checks := registerProbed(t, api, service.URL)
			if !probes {
				expect.That(t, !strings.Contains(text(t, api+"/metrics"), "rollcall_probe_"), "there is a prober")
				return
			}
			await(t, "the check passes", func() bool { return strings.Contains(text(t, checks), `"Status":"passing"`) })
		})
	}
}

func TestStoreIsOpenedWithTheSettingsOfLeases(t *testing.T) {
	c := oneNode(t)
	c.Store.Settings.Threshold = 123_456
	expect.Equal(t, setup{Config: c}.storeConfig().Settings, c.Leases(), "got")
}
