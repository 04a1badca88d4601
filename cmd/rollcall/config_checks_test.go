package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestLoopbackIsProbedIfTheAPIIsServedThereUnlessSet(t *testing.T) {
	tests := []struct {
		args []string
		want bool
	}{
		{nil, true},
		{[]string{"--http-addr=localhost:8761"}, true},
		{[]string{"--http-addr=10.0.0.1:8761"}, false},
		{[]string{"--http-addr=:8761", "--http-advertise=10.0.0.1:8761"}, false},
		{[]string{"--http-addr=10.0.0.1:8761", "--checks-allow-loopback"}, true},
		{[]string{"--checks-allow-loopback=false"}, false},
	}
	for _, tt := range tests {
		s := need.Got(loadWith(t, append(tt.args, "--data-dir=d", "--http-plain"), nil, ""))(t)
		expect.That(t, s.Checks.Rules.AllowLoopback == tt.want && s.Checks.Probes, "%v: %+v, want loopback allowed: %v", tt.args, s.Checks, tt.want)
	}
}

// registerProbed registers a service whose check asks a URL, and returns its checks' URL.
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

func TestTheLeaderProbesServicesUnlessToldNotTo(t *testing.T) {
	for _, probes := range []bool{true, false} {
		t.Run(fmt.Sprint(probes), func(t *testing.T) {
			asked := make(chan struct{}, 1000)
			service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{} }))
			defer service.Close()
			c := oneNode(t)
			c.Checks.Probes = probes
			n := need.Got(openNode(c, quiet))(t)
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
			deadline := time.Now().Add(30 * time.Second)
			for !strings.Contains(text(t, checks), `"Status":"passing"`) {
				if time.Now().After(deadline) {
					t.Fatalf("the checks are %s", text(t, checks))
				}
				select {
				case <-asked:
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
}

func TestATargetOfChecksThatIsNoneIsNamed(t *testing.T) {
	_, err := loadWith(t, []string{"--data-dir=d", "--checks-targets=10.0.0.0/8:*,10.0.0.0/8,nowhere:80"}, nil, "")
	for _, want := range []string{`flag --checks-targets: "10.0.0.0/8" has no port`, `"nowhere:80" does not begin with a CIDR`} {
		expect.ErrorSays(t, err, want, "got")
	}
}
