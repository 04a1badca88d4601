package httpd

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed-20419f34/rollcall/httpd/web"
	"github.com/seed-20419f34/rollcall/internal/expect"
	"github.com/seed-20419f34/rollcall/internal/need"
)

func TestConfigReportsEveryMistakeAtOnce(t *testing.T) {
	_, err := New(Config{Reads: "fresh", BasePaths: []string{"eureka", "/eureka/"}, Limits: web.Limits{BatchBytes: -1, InstancesInApp: -2}})
	need.That(t, err != nil, "the configuration was accepted")
	for _, want := range []string{"Service", "reads.eureka", `"eureka"`, `"/eureka/"`, "limits.batch-bytes", "limits.instances-in-app"} {
		expect.That(t, strings.Contains(err.Error(), want), "the error does not name %s: %v", want, err)
	}
}

// upstreamTarget is upstream's rule with upstream's pattern.
func upstreamTarget(method, path string) target {
	match := regexp.MustCompile(`^.*/apps(/[^/]*)?$`).FindStringSubmatch(path)
	switch {
	case method != http.MethodGet || match == nil:
		return notLimited
	case match[1] == "" || match[1] == "/":
		return fullFetch
	case match[1] == "/delta":
		return deltaFetch
	}
	return applicationFetch
}

func TestRateLimitTargetsAreThoseOfUpstreamsPattern(t *testing.T) {
	for _, row := range []struct {
		method, path string
		want         target
	}{
		{"GET", "/eureka/apps", fullFetch}, {"GET", "/eureka/apps/", fullFetch}, {"GET", "/eureka/v2//apps", fullFetch},
		{"GET", "/eureka/apps/delta", deltaFetch}, {"GET", "/eureka/apps/delta/", notLimited},
		{"GET", "/eureka/apps/ORDERS", applicationFetch}, {"GET", "/eureka/apps/DELTA", applicationFetch},
		{"GET", "/eureka/apps/ORDERS/", notLimited}, {"GET", "/eureka/apps/ORDERS/i1", notLimited}, {"GET", "/eureka/apps//", notLimited},
		{"GET", "/eureka/apps/APPS", applicationFetch}, {"GET", "/eureka/apps/apps", fullFetch}, {"GET", "/eureka/apps/apps/x", applicationFetch},
		{"GET", "/eureka/vips/orders", notLimited}, {"GET", "/eureka/svips/orders", notLimited}, {"GET", "/eureka/vips/apps", fullFetch},
		{"GET", "/eureka/instances/i1", notLimited}, {"GET", "/eureka/myapps", notLimited}, {"GET", "apps", notLimited}, {"GET", "", notLimited},
		{"HEAD", "/eureka/apps", notLimited}, {"PUT", "/eureka/apps/ORDERS", notLimited}, {"POST", "/eureka/apps/ORDERS", notLimited},
	} {
		got, pattern := targetOf(row.method, row.path), upstreamTarget(row.method, row.path)
		expect.That(t, got == row.want && pattern == row.want, "%s %s: got %d, the pattern says %d, want %d", row.method, row.path, got, pattern, row.want)
	}
	pieces := rapid.SampledFrom([]string{"/", "/apps", "apps", "/delta", "delta", "/ORDERS", "/eureka", "/v2", "/vips", "x", "%2F", "%61pps", ";a=b", "/apps/"})
	rapid.Check(t, func(rt *rapid.T) {
		path := strings.Join(rapid.SliceOfN(pieces, 0, 8).Draw(rt, "path"), "")
		method := rapid.SampledFrom([]string{"GET", "GET", "GET", "HEAD", "PUT", "POST", "DELETE"}).Draw(rt, "method")
		got, want := targetOf(method, path), upstreamTarget(method, path)
		need.That(rt, got == want, "%s %s: got %d, the pattern says %d", method, path, got, want)
	})
}
